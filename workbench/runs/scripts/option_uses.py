"""What a program does with its options, as its source shows.

An option is followed from where it is read, `args.optimizer`, through variables and parameters to
where it is used: texts that it is compared with are its choices, and a switch that a model is made
with is worth a search. What data are made with, and what no code reads, is not.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workbench.runs.scripts.option_conditions import Conditions
from workbench.runs.scripts.option_domains import makes_data
from workbench.runs.scripts.program_source import ProgramSource
from workbench.runs.scripts.script_options import (
    ScriptOption,
    called_name,
    children_of,
    is_seed_name,
    last_name,
    name_words,
    plain_name,
    walk,
    words_of,
)
from workbench.runs.scripts.static_values import StaticValues, literal_of
from workbench.runs.scripts.use_kinds import values_used

MODES = frozenset(("mode", "task", "phase", "stage", "action", "status"))
"""Words of options that say what a program does."""
_COMPARED = frozenset(
    (
        *("optimizer", "optim", "opt", "learner", "solver", "scheduler", "sched", "schedule"),
        *("activation", "act", "nonlinearity", "pool", "pooling", "readout", "norm"),
        *("normalization", "cell", "rnn", "aggregator", "aggregation", "combine", "fusion"),
        *("booster", "penalty", "criterion", "init"),
    )
)
"""Words of options whose values a person compares, if the source compares them."""
_MAKES_MODEL = frozenset(("forward", "__call__", "call"))
"""Methods that make a class a model."""
_LAYERS = frozenset(("nn", "layers", "hk", "eqx", "linen", "rnn", "slim"))
"""What libraries call the modules in which their layers are."""
_SUMS = frozenset(("loss", "losses", "reward", "cost", "penalty", "objective"))
"""Words of variables that a training minimizes or maximizes."""
_IN_FILES = ("assigned", "constant", "listed")
"""Ways of values whose type is only known from what a file has: 1 may be 1.0."""
_SEEDING = frozenset(
    (
        *("seed", "seed_all", "seed_everything", "set_seed", "set_random_seed", "manual_seed"),
        *("manual_seed_all", "default_rng", "RandomState", "PRNGKey", "Random"),
    )
)
"""Functions whose first argument is a seed."""
_SAME_TEXT = ("lower", "upper", "strip")
_NUM_STEPS = 3
"""Maximum number of calls and assignments between an option and its use."""


def with_uses(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options with what their uses say: choices, and which are not to be searched.

    Args:
        program: The program.
        options: All its options.
    """
    options = _without_data(program, _without_unread(program, options))
    options = _without_forms(program, options)
    options = _without_replacing(program, options)
    options = _without_other_presets(program, options)
    uses = _Uses(program, options)
    options = [uses.applied_to(option) for option in options]
    return Conditions(program, uses.option_in, uses.passed_on).applied_to(options)


class _Uses:
    """Follows options through the variables, parameters and attributes that they are put in."""

    def __init__(self, program: ProgramSource, options: list[ScriptOption]) -> None:
        # An option and a value of a configuration may have one name, which says nothing then.
        names = [plain_name(option) for option in options]
        self._names = {name for name in names if names.count(name) == 1}
        self._models = {
            name
            for name, (_, node) in program.classes.items()
            if _MAKES_MODEL & {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        }
        self._known: dict[tuple[str, str], str] = {}
        """The option that a variable of a function holds."""
        self._class_of = {
            id(part): name for name, (_, node) in program.classes.items() for part in walk(node)
        }
        """The class in whose code a node is."""
        self._held: dict[tuple[str, str], str] = {}
        """The option that an attribute of a class holds."""
        self.passed_on: set[int] = set()
        """The nodes that only give an option to a variable or a parameter."""
        self.compared: dict[str, list[str]] = {}
        self.remainders: dict[str, list[ast.expr]] = {}
        """What a program asserts about the remainder of a number: `(depth - 4) % 6 == 0`."""
        self.asserted: dict[str, Any] = {}
        """The only value that a program allows: `assert args.n_views == 2`."""
        self.needed: set[str] = set()
        """What must not be empty: `assert base_model, "..."`."""
        self._main = {
            node.name
            for module in program.modules[:1]
            for node in module.tree.body
            if isinstance(node, ast.FunctionDef)
        }
        self.of_models: set[str] = set()
        self.weights: set[str] = set()
        """What terms of a loss or of a reward are multiplied with."""
        self.seeds: set[str] = set()
        self.uses: dict[str, set[str]] = {}
        """For what options are used."""
        self.called: dict[str, set[str]] = {}
        """The words of the keywords that options are passed as."""
        self._groups = _groups_of(options)
        nodes = [pair for module in program.modules for pair in _nodes_of(module.tree)]
        flowing = [(f, n) for f, n in nodes if isinstance(n, ast.Assign | ast.Call)]
        parameters = _parameters_of(program)
        dicts = {
            last_name(node.targets[0]): node.value
            for _, node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        }
        for _ in range(_NUM_STEPS):
            num_before = len(self._known) + len(self._held)
            for function, node in flowing:
                self._follow(function, node, parameters)
            if len(self._known) + len(self._held) == num_before:
                break
        chosen = {
            id(part)
            for _, node in nodes
            if isinstance(node, ast.If) and "__name__" not in ast.unparse(node.test)
            for part in walk(node)
        }
        for function, node in nodes:
            self._compare(function, node, dicts)
            self._classify(function, node)
            if isinstance(node, ast.Assert):
                self._learn(function, node.test, is_always=id(node) not in chosen)
            if isinstance(node, ast.Call):
                self.seeds |= self._seeding(function, node)
            if isinstance(node, ast.Call) and self._makes_part(node):
                self.of_models |= self._given_to(function, node)
            if isinstance(node, ast.Assign | ast.AugAssign):
                self.weights |= self._weighing(function, node)
        for name in self._models:
            self.of_models |= {
                part.attr
                for method in program.classes[name][1].body
                if not _only_evaluates(method)
                for part in walk(method)
                if isinstance(part, ast.Attribute)
                and part.attr in self._names
                and last_name(part.value) not in ("self", "")
            }

    def _classify(self, function: str, node: ast.AST) -> None:
        """Learn for what a node uses options."""
        for kind, value, keyword in values_used(node):
            name = self.option_in(function, value)
            names = {name} if name is not None else self._groups.get(_last_key(value), set())
            for used in names:
                if kind:
                    self.uses.setdefault(used, set()).add(kind)
                if keyword and name is not None:
                    self.called.setdefault(used, set()).update(name_words(keyword))

    def _compare(self, function: str, node: ast.AST, dicts: dict[str, ast.Dict]) -> None:
        """Learn from comparisons in a node, which texts an option may have."""
        for value, texts in _comparisons(node, dicts):
            # A parameter with the name of an option has its value, if it is a text.
            own = value.id if isinstance(value, ast.Name) and value.id in self._names else None
            if (name := self.option_in(function, value) or own) is not None:
                self.compared.setdefault(name, []).extend(texts)

    def _learn(self, function: str, test: ast.expr, *, is_always: bool) -> None:
        """Learn from what a program asserts, which values an option may have."""
        if (name := _divided(test)) in self._names:
            self.remainders.setdefault(name, []).append(test)
        match test if is_always else None:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
                if (name := self.option_in(function, left)) is not None:
                    self.asserted[name] = value
            case ast.Name(id=name) if function in self._main and name in self._names:
                self.needed.add(name)
            case ast.Attribute() if (name := self.option_in(function, test)) is not None:
                self.needed.add(name)

    def applied_to(self, option: ScriptOption) -> ScriptOption:
        """Return an option with its choices, and whether it changes the model."""
        name = plain_name(option)
        texts = self.compared.get(name, []) if isinstance(option.default, str) else []
        words = set(name_words(name))
        is_chosen = name in MODES or words & _COMPARED or words >= {"lr", "method"}
        is_known = option.way == "fixed" or not option.has_effect or option.choices
        if texts and is_chosen and not is_known:
            choices = _without_doubles([option.default, *texts])
            option = replace(option, choices=choices if len(choices) > 1 else ())
        if name in self.remainders and type(option.default) is int:
            option = replace(option, choices=_allowed(option.default, self.remainders[name]))
        if name in self.asserted and self.asserted[name] == option.default:
            option = replace(option, has_effect=False)
        if name in self.needed and option.default in (None, "") and not option.is_flag:
            option = replace(option, is_required=True)
        if name in self.weights and type(option.default) is int and option.way in _IN_FILES:
            option = replace(option, kind="float", default=float(option.default))
        is_of_model = name in self.of_models | self.weights
        return replace(
            option,
            is_of_model=is_of_model,
            is_seed=name in self.seeds,
            uses=frozenset(self.uses.get(name, ())),
            called=frozenset(self.called.get(name, ())),
        )

    def option_in(self, function: str, value: ast.expr | None) -> str | None:
        """Return the option that an expression is the value of, or None."""
        match value:
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[]) if (
                method in _SAME_TEXT
            ):
                return self.option_in(function, inner)
            case ast.Call(func=ast.Name(id="int" | "float" | "str" | "bool"), args=[inner]):
                return self.option_in(function, inner)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if (
                held := self._held.get((self._class_of.get(id(value), ""), name))
            ) is not None:
                return held
            case ast.Attribute(attr=name) if name in self._names:
                return name
            case (
                ast.Call(
                    func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str() as name), *_]
                )
                | ast.Call(
                    func=ast.Attribute(attr="get"), args=[ast.Constant(value=str() as name), *_]
                )
            ) if name in self._names:
                return name
            case ast.Subscript(slice=ast.Constant(value=str() as name)) if name in self._names:
                return name
            case ast.Name(id=name):
                return self._known.get((function, name))
        return None

    def _follow(
        self, function: str, node: ast.Assign | ast.Call, parameters: dict[str, list[str]]
    ) -> None:
        if isinstance(node, ast.Assign):
            option = self.option_in(function, node.value)
            for target in node.targets if option is not None else []:
                if isinstance(target, ast.Name):
                    self._known[function, target.id] = str(option)
                    self.passed_on.add(id(node.value))
                elif isinstance(target, ast.Attribute) and last_name(target.value) == "self":
                    owner = self._class_of.get(id(node), "")
                    if self._held.setdefault((owner, target.attr), str(option)) == option:
                        self.passed_on.add(id(node.value))
            return
        called = called_name(node)
        passed = [*zip(parameters.get(called, []), node.args, strict=False)]
        passed += [(word.arg, word.value) for word in node.keywords if word.arg]
        for parameter, value in passed if called in parameters else []:
            option = self.option_in(function, value)
            if option is not None and option == self._known.setdefault((called, parameter), option):
                self.passed_on.add(id(value))

    def _given_to(self, function: str, call: ast.Call) -> set[str]:
        given = [*call.args, *(word.value for word in call.keywords)]
        found: set[str] = set()
        for value in given:
            name = self.option_in(function, value)
            if name is not None:
                found.add(name)
            elif (group := _last_key(value)) in self._groups:
                found |= self._groups[group]  # `Net(**config["net"])`
        return found

    def _seeding(self, function: str, call: ast.Call) -> set[str]:
        """Return the options that a call takes as the seed of a generator."""
        values = [word.value for word in call.keywords if word.arg and is_seed_name(word.arg)]
        if called_name(call) in _SEEDING:
            values += call.args[:1]
        return {name for value in values if (name := self.option_in(function, value)) is not None}

    def _makes_part(self, call: ast.Call) -> bool:
        """Return whether a call makes a model of the program, or a layer of a library."""
        if called_name(call) in self._models:
            return True
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return last_name(owner) in _LAYERS and called_name(call)[:1].isupper()

    def _weighing(self, function: str, node: ast.Assign | ast.AugAssign) -> set[str]:
        """Return the options that terms of a loss are multiplied with in an assignment."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        words = {word for target in targets for word in words_of(last_name(target))}
        if not words & _SUMS or node.value is None:
            return set()
        products = [
            part
            for part in walk(node.value)
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult)
        ]
        factors = [side for part in products for side in (part.left, part.right)]
        return {name for side in factors if (name := self.option_in(function, side)) is not None}


def _groups_of(options: list[ScriptOption]) -> dict[str, set[str]]:
    """Return the options in each group of a configuration."""
    groups: dict[str, set[str]] = {}
    for option in options:
        for group in option.name.split(".")[:-1]:
            groups.setdefault(group, set()).add(plain_name(option))
    return groups


def _last_key(node: ast.expr) -> str:
    """Return the name of a group where it is read: `net` of `config["net"]` or `config.net`."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str() as name)) | ast.Attribute(attr=name):
            return name
    return ""


def _without_doubles(texts: list[str]) -> tuple[str, ...]:
    """Return texts without those that only differ in upper and lower case from an earlier one."""
    return tuple(
        {text.lower(): text for text in reversed(texts)}[low]
        for low in dict.fromkeys(map(str.lower, texts))
    )


def _divided(test: ast.expr) -> str:
    """Return the only name in a comparison of a remainder, or "" for anything else."""
    match test:
        case ast.Compare(left=ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant())):
            names = {last_name(part) for part in walk(left) if isinstance(part, ast.Name)}
            names |= {part.attr for part in walk(left) if isinstance(part, ast.Attribute)}
            whole = [part for part in walk(left) if isinstance(part, ast.Attribute)]
            names -= {last_name(part.value) for part in whole}
            return names.pop() if len(names) == 1 else ""
    return ""


def _allowed(default: int, tests: list[ast.expr]) -> tuple[int, ...]:
    """Return the default and the allowed numbers that are nearest to its half and its double."""

    def is_allowed(number: int) -> bool:
        return all(_holds(test, number) for test in tests)

    if not is_allowed(default):
        return ()
    near = [
        min(found, key=lambda number: abs(number - wanted))
        for wanted in (default // 2, default * 2)
        if (found := [n for n in range(1, min(default * 4, 4096)) if is_allowed(n)])
    ]
    return tuple(sorted({default, *near}))


def _holds(test: ast.expr, number: int) -> bool:
    match test:
        case ast.Compare(
            left=ast.BinOp(left=left, right=ast.Constant(value=int() as divisor)),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=int() as remainder)],
        ) if divisor:
            names = {ast.unparse(part): number for part in walk(left) if last_name(part)}
            value = StaticValues(names).get(left)
            return isinstance(value, int) and value % divisor == remainder
    return True


def _nodes_of(root: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return the nodes of a file with the functions that they are in.

    The function of `__init__` is its class, as it is called.
    """
    found: list[tuple[str, ast.AST]] = []
    waiting = [("", root)]
    while waiting:
        function, node = waiting.pop()
        found.append((function, node))
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name != "__init__":
            function = node.name
        waiting += [(function, child) for child in reversed(children_of(node))]
    return found


def _parameters_of(program: ProgramSource) -> dict[str, list[str]]:
    """Return the parameters of all functions and classes by their names.

    Of several with one name, only those are known that all have at the same place.
    """
    parameters: dict[str, list[str]] = {}
    for module in program.modules:
        for node in walk(module.tree):
            for name, function in _called_as(node):
                own = [argument.arg for argument in function.args.args]
                own = own[1:] if own[:1] == ["self"] else own
                parameters[name] = _common(parameters.get(name, own), own)
    return parameters


def _called_as(node: ast.AST) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the function that a definition makes callable, and by which name."""
    if isinstance(node, ast.FunctionDef) and node.name != "__init__":
        yield node.name, node
    elif isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                yield node.name, method


def _common(first: list[str], second: list[str]) -> list[str]:
    """Return the names at the beginning of two lists that are the same."""
    pairs = zip(first, second, strict=False)
    return [name for name, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _comparisons(node: ast.AST, dicts: dict[str, ast.Dict]) -> Iterator[tuple[ast.expr, list[str]]]:
    """Yield the values that a node compares with texts, or looks up in a dict with such keys."""
    match node:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            for value, text in ((left, literal_of(right)), (right, literal_of(left))):
                if isinstance(text, str):
                    yield value, [text]
        case ast.Compare(left=value, ops=[ast.In()], comparators=[right]):
            yield value, _texts_in(literal_of(right))
        case ast.Subscript(value=owner, slice=value):
            found = owner if isinstance(owner, ast.Dict) else dicts.get(last_name(owner))
            if found is not None:
                yield value, _texts_in([literal_of(key) for key in found.keys])
        case ast.Match(subject=value, cases=cases):
            texts = [
                literal_of(part.value)
                for case in cases
                for part in walk(case.pattern)
                if isinstance(part, ast.MatchValue)
            ]
            yield value, _texts_in(texts)


def _texts_in(values: Any) -> list[str]:
    known = values if isinstance(values, list | tuple | set) else []
    return [value for value in known if isinstance(value, str)]


def _without_unread(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options, of which none is searched that no code reads.

    A group of a configuration, or all options, may be passed on as a whole. Then their values are
    read by other names, and most of them seem to be unread.
    """
    nodes = [node for module in program.modules for node in walk(module.tree)]
    read = {name for node in nodes for name in _names_read(node)}
    are_passed_on = any(isinstance(node, ast.keyword) and _is_all(node) for node in nodes)
    groups: dict[str, list[ScriptOption]] = {}
    for option in options:
        group = option.name.rpartition(".")[0]
        is_declared = option.way in _DECLARED_WAYS and option.is_own and not are_passed_on
        if (option.way == "assigned" and group) or (is_declared and not group):
            groups.setdefault(f"{option.way == 'assigned'} {group}", []).append(option)
    unread: set[str] = set()
    for group in groups.values():
        others = {option.name for option in group if plain_name(option) not in read}
        if len(others) * 2 < len(group):
            unread |= others
    return [
        replace(option, has_effect=option.is_required or option.name not in unread)
        for option in options
    ]


_DECLARED_WAYS = ("option", "apart", "single", "switch", "both", "off")


def _is_all(word: ast.keyword) -> bool:
    """Return whether a call receives all options as keywords: `**vars(args)`."""
    return (
        word.arg is None
        and re.search(r"\bvars\(|__dict__|asdict", ast.unparse(word.value)) is not None
    )


def _names_read(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node reads: an attribute, a key, or a parameter."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()) | ast.arg(arg=name):
            yield name
        case ast.Constant(value=str() as name) if name.isidentifier():
            yield name


def _without_data(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options, of which none is searched that the program makes its data with.

    In `make_moons(noise=args.noise)`, other noise is another problem.
    """
    of_data = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for module in program.modules
        for call in walk(module.tree)
        if isinstance(call, ast.Call) and makes_data(called_name(call))
        for node in [*call.args, *(word.value for word in call.keywords)]
        if isinstance(node, ast.Attribute | ast.Name)
    }
    return [
        replace(option, has_effect=False)
        if option.name.rpartition(".")[2].replace("-", "_") in of_data and not option.is_required
        else option
        for option in options
    ]


def _without_forms(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options, of which none is searched that says what form the rows of the data have.

    In `for images, labels in loader: images.reshape(-1, length, width)`, other lengths give
    another number of rows than there are labels. The size of a batch may be any.
    """
    of_forms = {
        last_name(size)
        for module in program.modules
        for loop in walk(module.tree)
        if isinstance(loop, ast.For)
        for call in walk(loop)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("reshape", "view")
        and last_name(call.func.value) in _names_set(loop.target)
        for size in call.args
        if isinstance(size, ast.Attribute | ast.Name) and len(call.args) > _FLAT
    }
    return [
        replace(option, has_effect=False)
        if plain_name(option) in of_forms and not words_of(option.name) & {"batch", "bs", "bsz"}
        else option
        for option in options
    ]


_FLAT = 2
"""Sizes of a table of rows, whose width a model may follow."""


def _names_set(target: ast.expr) -> set[str]:
    """Return the variables that a loop sets."""
    return {part.id for part in walk(target) if isinstance(part, ast.Name)}


def _only_evaluates(method: ast.stmt) -> bool:
    """Return whether a method of a model measures it, and so says nothing about how it is made."""
    name = method.name if isinstance(method, ast.FunctionDef) else ""
    return bool(_EVALUATES & set(name_words(name)))


_EVALUATES = frozenset(
    ("test", "eval", "evaluate", "evaluation", "valid", "validate", "validation")
)


def _without_replacing(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options, of which none is searched that replaces what another one decides.

    After `if args.lr is None: args.lr = args.blr * batch / 256`, `blr` has no effect on a trial
    with its own `lr`.
    """
    by_name = {plain_name(option): option for option in options}
    replacing: set[str] = set()
    for module in program.modules:
        for node in walk(module.tree):
            match node:
                case ast.If(
                    test=ast.Compare(
                        left=ast.Attribute(attr=name),
                        ops=[ast.Is() | ast.Eq()],
                        comparators=[ast.Constant(value=None)],
                    ),
                    body=body,
                ) if name in by_name and by_name[name].default is None:
                    used = _used_for(name, body)
                    if any(other in by_name and _has_number(by_name[other]) for other in used):
                        replacing.add(by_name[name].name)
    return [
        replace(option, has_effect=False) if option.name in replacing else option
        for option in options
    ]


def _used_for(name: str, body: list[ast.stmt]) -> set[str]:
    """Return the attributes that an attribute is computed from in some statements."""
    return {
        used.attr
        for statement in body
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Attribute) and t.attr == name for t in statement.targets)
        for used in walk(statement.value)
        if isinstance(used, ast.Attribute) and used.attr != name
    }


def _has_number(option: ScriptOption) -> bool:
    return isinstance(option.default, int | float) and not isinstance(option.default, bool)


def _without_other_presets(
    program: ProgramSource, options: list[ScriptOption]
) -> list[ScriptOption]:
    """Return options, of which only those of one preset are searched: `PRESETS["small"].lr`.

    It is the one that the source asks for, or the first one.
    """
    presets: dict[str, dict[str, set[str]]] = {}
    for option in options:
        owner, _, last = option.name.rpartition(".")
        owner, _, preset = owner.rpartition(".")
        if option.way == "constant" and owner and "." not in owner:
            presets.setdefault(owner, {}).setdefault(preset, set()).add(last)
    defaults = {plain_name(option): option.default for option in options}
    left: set[str] = set()
    for owner, names in presets.items():
        if len(names) < 2 or not set.intersection(*names.values()):
            continue
        asked = [name for name in _keys_asked_of(program, owner, defaults) if name in names]
        chosen = (asked or list(names))[0]
        left |= {f"{owner}.{name}." for name in names if name != chosen}
    return [
        replace(option, has_effect=False) if option.name.startswith(tuple(left)) else option
        for option in options
    ]


def _keys_asked_of(program: ProgramSource, owner: str, defaults: dict[str, Any]) -> Iterator[str]:
    """Yield the keys that a program looks up in a dict, as far as its source shows."""
    for module in program.modules:
        for node in walk(module.tree):
            match node:
                case ast.Subscript(value=ast.Name(id=name), slice=key) if name == owner:
                    pass
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[key, *_]
                ) if name == owner:
                    pass
                case _:
                    continue
            if isinstance(key, ast.IfExp):  # such as `sys.argv[1] if given else "small"`
                key = key.orelse
            known = literal_of(key) or defaults.get(last_name(key))
            if isinstance(known, str):
                yield known
