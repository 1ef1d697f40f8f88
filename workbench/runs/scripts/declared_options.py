"""Options that a Python program declares by calls: argparse, optparse, click, absl, sys.argv.

Loops over names are followed, and values that the source gives elsewhere are looked up. Options of
types and signatures are left to `typed_options`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any

from workbench.runs.scripts.program_source import Module, ProgramSource
from workbench.runs.scripts.script_help import options_in_help
from workbench.runs.scripts.script_options import (
    ScriptOption,
    Way,
    called_name,
    last_name,
    plain_name,
    walk,
)
from workbench.runs.scripts.static_values import (
    Field,
    NotStatic,
    StaticValues,
    TypeName,
    literal_of,
)
from workbench.training.programs.constants import dotted_name

TRAINS = ("train", "fit", "finetune", "run", "main", "pretrain", "learn", "tune")
"""Names of commands that train, the most usual first."""
_DECLARE = ("add_argument", "add_option", "add_arg")
_ABSL = {
    "DEFINE_float": "float",
    "DEFINE_integer": "int",
    "DEFINE_boolean": "bool",
    "DEFINE_bool": "bool",
    "DEFINE_string": "str",
    "DEFINE_multi_string": "str",
    "DEFINE_enum": "str",
    "DEFINE_enum_class": "str",
}
_KINDS = {
    "float": "float",
    "int": "int",
    "str": "str",
    "string": "str",
    "bool": "bool",
    "Path": "path",
    "double": "float",
    "FLOAT": "float",
    "INT": "int",
    "STRING": "str",
    "BOOL": "bool",
    "FloatRange": "float",
    "IntRange": "int",
    "File": "path",
    "FileType": "path",
}
_PARSES = re.compile(
    r"(?i)^(?:\w*ya?ml\w*|json5?|toml\w*|omegaconf|\w*pars\w*|conf\w*|cfg)\.(?:\w*load\w*|read\w*)$"
)
"""Functions that parse a configuration file."""
_READS_BOOL = re.compile(r"bool", re.IGNORECASE)
_ALTERNATIVES = re.compile(r"(?<![\w|])(\w[\w.-]*(?:\s?\|\s?\w[\w.-]*)+)(?![\w|])")
_LISTED = re.compile(r"[\[({:]\s*([\w.'\"-]+(?:\s*,\s*[\w.'\"-]+)+)\s*[\])}.]?")
_OR = re.compile(
    r"(?<![\w-])(['\"]?[\w-]+['\"]?(?:\s*,\s*['\"]?[\w-]+['\"]?)*\s*,?\s+or\s+['\"]?[\w-]+['\"]?)(?![\w-])"
)
_SLASHES = re.compile(
    r"(?<![\w/.~])([\w+-]+(?:\{[^{}]*\})?(?:\s?/\s?[\w+-]+(?:\{[^{}]*\})?)+)(?![\w/.])"
)
_SAYS_PATH = re.compile(
    r"\b(?:path|file|folder|director|weights|such as|e\.g|ratio|per)", re.IGNORECASE
)
"""What a help says in which a slash divides folders or numbers."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_ENDS = ("help", "version", "append", "append_const", "count", "store_const", "extend")
_UNKNOWN = object()


def declared_options(program: ProgramSource) -> tuple[list[ScriptOption], list[str]]:
    """Return the options that a program declares by calls, in their order.

    Args:
        program: The program.

    Returns:
        The options, and the words of the subcommand that trains.
    """
    if "docopt" in program.imported_names:
        return options_in_help(ast.get_docstring(program.main.tree) or ""), []
    options: dict[str, ScriptOption] = {}
    defaults: dict[str, Any] = {}
    classes = _command_classes(program)
    words = [chosen_command(list(classes))] if classes else []
    readers = _of_command_class(program, classes[words[0]]) if classes else _of_modules(program)
    for reader in readers:
        for option in reader.options:
            options.setdefault(option.name, option)
        defaults |= reader.defaults
        words = words or reader.subcommand
    for name, option in options.items():
        if plain_name(option) in defaults and not option.is_flag:
            options[name] = replace(option, default=defaults[plain_name(option)])
    others = [*_by_place(program.main.tree), *_of_getopt(program)]
    options |= {option.name: option for option in others if option.name not in options}
    return list(options.values()), words


def _of_modules(program: ProgramSource) -> Iterator[_Calls]:
    for module in _declaring(program):
        reader = _Calls(program, module)
        reader.read()
        yield reader


def _command_classes(program: ProgramSource) -> dict[str, ast.ClassDef]:
    """Return the classes of a program that are its subcommands, by their command.

    They are called as an attribute says, as in `commands.add_parser(cls.COMMAND)`.
    """
    attributes = {
        call.args[0].attr
        for module in program.modules
        for call in walk(module.tree)
        if isinstance(call, ast.Call)
        and called_name(call) == "add_parser"
        and call.args
        and isinstance(call.args[0], ast.Attribute)
    }
    return {
        command: node
        for _, node in program.classes.values()
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and last_name(statement.targets[0]) in attributes
        and isinstance(command := literal_of(statement.value), str)
    }


def _of_command_class(program: ProgramSource, command: ast.ClassDef) -> Iterator[_Calls]:
    """Yield what the methods of a subcommand declare, and what the functions do that they call."""
    reader = _Calls(program, program.main)
    reader.read()
    yield reader
    module = program.classes[command.name][0]
    waiting = [(module, node) for node in command.body if isinstance(node, ast.FunctionDef)]
    seen: set[str] = set()
    for module, function in waiting:  # it grows while it is read
        reader = _Calls(program, module)
        reader.read_function(function)
        yield reader
        for call in walk(function):
            name = called_name(call) if isinstance(call, ast.Call) else ""
            if name in program.functions and name not in seen and reader.takes_parser(name):
                seen.add(name)
                waiting.append(program.functions[name])


def _declaring(program: ProgramSource) -> Iterator[Module]:
    """Yield the modules that declare options of a program: itself, and those that it calls."""
    main = program.main
    yield main
    functions = _declaring_functions(program)
    own = _declares(main.tree, functions)
    waiting = [module for module in program.modules[1:] if _declares(module.tree, functions)]
    texts, num_before = [main.text], -1
    # A function that adds options may call another one, in a module that is imported earlier.
    while len(texts) != num_before:
        num_before = len(texts)
        for module in list(waiting):
            if 'if __name__ == "__main__"' in module.text.replace("'", '"') and own:
                continue  # another program, of which this one uses something else
            if not own or _adds_to_parser(module.tree, "\n".join(texts)):
                texts.append(module.text)
                waiting.remove(module)
                yield module


def _declares(tree: ast.Module, functions: Container[str] = ()) -> bool:
    """Return whether a tree declares options, or calls one of some functions that do."""
    return any(
        isinstance(node, ast.Call)
        and (
            is_declaration(node)
            or called_name(node) in ("option", "argument")
            or called_name(node) in _ABSL
            or called_name(node) in functions
        )
        for node in walk(tree)
    )


def _declaring_functions(program: ProgramSource) -> frozenset[str]:
    """Return the functions that declare an option for each item of what they are called with."""
    return frozenset(
        name
        for name, (_, function) in program.functions.items()
        if len(function.args.args) > 1
        and any(
            isinstance(loop, ast.For) and _declares(ast.Module(loop.body, []))
            for loop in walk(function)
        )
    )


def is_declaration(call: ast.Call) -> bool:
    """Return whether a call adds an option to a parser. configargparse also has a short `add`."""
    if called_name(call) in _DECLARE:
        return True
    first = literal_of(call.args[0]) if call.args else None
    return called_name(call) == "add" and isinstance(first, str) and first.startswith("-")


def _adds_to_parser(tree: ast.Module, text: str) -> bool:
    """Return whether a program calls a function of a module that adds options to a parser."""
    functions = [node for node in walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if re.search(rf"\b{re.escape(function.name)}\s*\(", text) and any(
            isinstance(node, ast.Call) and is_declaration(node) for node in walk(function)
        ):
            return True
    return any(isinstance(node, ast.Call) and called_name(node) in _ABSL for node in walk(tree))


def _by_place(tree: ast.Module) -> Iterator[ScriptOption]:
    """Yield what a script reads from sys.argv[1], sys.argv[2] and so on."""
    places: dict[int, ScriptOption] = {}
    optional = _if_given(tree)
    for target, value in _single_assignments(tree):
        name = last_name(target)
        place = _place_in_argv(value)
        if not name or place is None or place in places:
            continue
        default = None
        if isinstance(value, ast.IfExp):
            default = literal_of(value.orelse)
        is_required = not isinstance(value, ast.IfExp) and id(value) not in optional
        places[place] = ScriptOption(
            name, default, kind=_converted_kind(value), way="positional", is_required=is_required
        )
    for place, option in _configurations_by_place(tree):
        known = places.get(place, option)
        places[place] = replace(known, name=option.name, kind="path")
    if sorted(places) == list(range(1, len(places) + 1)):
        yield from (places[place] for place in sorted(places))


def _configurations_by_place(tree: ast.Module) -> Iterator[tuple[int, ScriptOption]]:
    """Yield the places of arguments that name a file which the script parses.

    It does so at once, `yaml.safe_load(open(sys.argv[1]))`, or by variables, `with` and parameters.
    """
    held: dict[str, int] = {}
    """The places of the arguments that variables are made of."""

    def place_in(node: ast.expr) -> int | None:
        names = [part.id for part in walk(node) if isinstance(part, ast.Name)]
        return _place_in_argv(node) or next((held[name] for name in names if name in held), None)

    for name, value in _bindings(tree):
        if (place := place_in(value)) is not None:
            held.setdefault(name, place)
    for node in walk(tree):
        if isinstance(node, ast.Call) and _PARSES.search(dotted_name(node.func)):
            for place in filter(None, map(place_in, node.args)):
                yield (
                    place,
                    ScriptOption("config", kind="path", way="positional", is_required=True),
                )


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values that variables and parameters receive."""
    nodes = walk(tree)
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                yield name, value
            case ast.Call(args=args) if called_name(node) in functions:
                names = [argument.arg for argument in functions[called_name(node)].args.args]
                yield from zip(names, args, strict=False)


def _if_given(tree: ast.Module) -> frozenset[int]:
    """Return the nodes that only run if there are arguments: below `if len(sys.argv) > 1`."""
    return frozenset(
        id(inner)
        for node in walk(tree)
        if isinstance(node, ast.If | ast.Try)
        and (isinstance(node, ast.Try) or "argv" in ast.unparse(node.test))
        for statement in node.body
        for inner in walk(statement)
    )


def _looped_texts(tree: ast.Module) -> dict[str, list[str]]:
    """Return the texts that loops give to their variables: `for name in ("train", "test")`."""
    assigned = {
        last_name(node.targets[0]): node.value
        for node in walk(tree)
        if isinstance(node, ast.Assign)
    }
    texts: dict[str, list[str]] = {}
    for node in walk(tree):
        if not isinstance(node, ast.For):
            continue
        target = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        over = node.iter
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
            over = over.func.value  # that of `commands.items()`
        over = assigned.get(last_name(over), over)
        items = over.keys if isinstance(over, ast.Dict) else getattr(over, "elts", [])
        firsts = [
            item.elts[0] if isinstance(item, ast.Tuple) and item.elts else item for item in items
        ]
        known = [literal_of(first) for first in firsts]
        if known and last_name(target) and all(isinstance(text, str) for text in known):
            texts[last_name(target)] = [str(text) for text in known]
    return texts


def _single_assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the assignments of one value to one name, also those in `a, b = 1, 2`."""
    for node in walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from zip(targets, values, strict=False)
            case ast.Assign(targets=[target], value=value):
                yield target, value


def _converted_kind(node: ast.expr) -> str:
    """Return the type to which an expression converts a text."""
    calls = [part for part in walk(node) if isinstance(part, ast.Call)]
    names = [called_name(call) for call in calls if called_name(call) in ("float", "int")]
    return _KINDS[names[0]] if names else "str"


def _of_getopt(program: ProgramSource) -> Iterator[ScriptOption]:
    """Yield the long options of getopt, with the defaults of the variables that they are put in."""
    tree = program.main.tree
    values = StaticValues()
    values.learn(tree.body)
    for function in walk(tree):
        if isinstance(function, ast.FunctionDef):
            values.learn(function.body)
    names = [
        name
        for call in walk(tree)
        if isinstance(call, ast.Call) and called_name(call) in ("getopt", "gnu_getopt")
        for name in values.get(call.args[2] if len(call.args) > 2 else None, [])
        if isinstance(name, str)
    ]
    for name in names:
        plain = name.rstrip("=")
        assigned = [
            pair
            for node in walk(tree)
            if isinstance(node, ast.If) and f"--{plain}" in _texts_of(node.test)
            for statement in node.body
            for pair in _single_assignments(statement)
        ]
        if plain == name or not assigned:
            if plain == name and plain not in ("help", "version"):
                yield ScriptOption(plain, default=False, kind="bool", way="switch")
            continue
        target, value = assigned[0]
        default = values.get(target)
        kind = _converted_kind(value)
        yield ScriptOption(
            plain, default if isinstance(default, bool | int | float | str) else None, kind=kind
        )


def _texts_of(node: ast.expr) -> list[str]:
    return [str(part.value) for part in walk(node) if isinstance(part, ast.Constant)]


def _place_in_argv(node: ast.expr) -> int | None:
    for part in walk(node):
        if (
            isinstance(part, ast.Subscript)
            and dotted_name(part.value) in ("sys.argv", "argv")
            and isinstance(place := literal_of(part.slice), int)
            and place > 0
        ):
            return place
    return None


class _Calls:
    """Reads the calls of one module in their order."""

    def __init__(self, program: ProgramSource, module: Module) -> None:
        self._program, self._module = program, module
        functions = {name: function for name, (_, function) in program.functions.items()}
        self._values = StaticValues(functions=functions)
        self._values.learn(module.tree.body)
        self._called: list[str] = []
        self._text = "\n".join(other.text for other in program.modules[:20])
        self._functions = _declaring_functions(program)
        self._parsers: dict[str, str] = {}
        self._commands: dict[str, str] = {}
        self.options: list[ScriptOption] = []
        self.defaults: dict[str, Any] = {}
        self.subcommand: list[str] = []

    def read(self) -> None:
        """Read the module."""
        self._find_subcommands()
        self._read_all(self._module.tree.body)

    def read_function(self, function: ast.FunctionDef) -> None:
        """Read one function of the module."""
        self._read_function(function)

    def takes_parser(self, name: str) -> bool:
        """Return whether a function of the program adds options to what it is called with."""
        function = self._program.functions[name][1]
        return _declares(ast.Module([function], []), self._functions) or any(
            "pars" in argument.arg for argument in function.args.args
        )

    def _find_subcommands(self) -> None:
        """Choose the subcommand that trains, where a program has several."""
        passed_on: list[str] = []
        looped = _looped_texts(self._module.tree)
        for node in walk(self._module.tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="add_parser"), args=[ast.Name(id=name), *_]
                ) if name in looped:
                    passed_on += looped[name]
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Attribute(attr="add_parser"), args=[word, *_]),
                ) if isinstance(literal := literal_of(word), str):
                    self._parsers[name] = literal
                # As in `add_options(commands.add_parser("train"))`.
                case ast.Call(func=ast.Attribute(attr="add_parser"), args=[word, *_]) if isinstance(
                    literal := literal_of(word), str
                ):
                    passed_on.append(literal)
                case ast.FunctionDef(name=name, decorator_list=decorators):
                    for decorator in decorators:
                        if _is_command_of_group(decorator):
                            self._commands[name] = _command_name(decorator, name)
        words = [*self._parsers.values(), *passed_on, *self._commands.values()]
        words = list(dict.fromkeys(words))
        groups = [
            node
            for node in walk(self._module.tree)
            if isinstance(node, ast.FunctionDef)
            and any(called_or_named(decorator) == "group" for decorator in node.decorator_list)
        ]
        # A parser that another program passes is no subcommand of this one.
        has_parsers = (self._parsers or passed_on) and "add_subparsers" in self._text
        if has_parsers or (groups and self._commands):
            self.subcommand = [chosen_command(words)]
        else:
            self._commands = {}

    def _read_all(self, nodes: list[Any]) -> None:
        for node in nodes:
            self._read(node)

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.For) and self._unrolled(node):
            return
        if isinstance(node, ast.FunctionDef):
            self._read_function(node)
            return
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            known = self._values.get(node.value, _UNKNOWN)
            if known is not _UNKNOWN:
                self._values.bind(node.targets[0], known)
        if isinstance(node, ast.Call):
            self._values.update(node)
            self._take(node)
            self._enter(node)
        self._read_all(list(ast.iter_child_nodes(node)))

    def _read_function(self, function: ast.FunctionDef) -> None:
        command = self._commands.get(function.name)
        if command is not None and self.subcommand and command != self.subcommand[0]:
            return
        before = dict(self._values.names)
        defaults = function.args.defaults
        arguments = [*function.args.posonlyargs, *function.args.args]
        with_default = arguments[len(arguments) - len(defaults) :]
        for argument, default in zip(with_default, defaults, strict=True):
            if (known := self._values.get(default, _UNKNOWN)) is not _UNKNOWN:
                self._values.names[argument.arg] = known
        self._read_all(list(ast.iter_child_nodes(function)))
        self._values.names = before

    def _enter(self, call: ast.Call) -> None:
        """Read a function that declares options for a dict which it is called with."""
        name = called_name(call)
        if name not in self._functions or name in self._called or not call.args:
            return
        function = self._program.functions[name][1]
        given = [self._values.get(argument, _UNKNOWN) for argument in call.args]
        before = dict(self._values.names)
        for argument, value in zip(function.args.args, given, strict=False):
            if value is not _UNKNOWN:
                self._values.names[argument.arg] = value
        self._called.append(name)
        self._read_all(list(function.body))
        self._called.pop()
        self._values.names = before

    def _unrolled(self, loop: ast.For) -> bool:
        """Read the body of a loop once for each item, and return whether they are known."""
        if not _declares(ast.Module(loop.body, []), self._functions):
            return False
        values = self._values
        fields = StaticValues(values.names, self._fields_of)
        try:
            items = list(fields.items(loop.iter))
        except NotStatic:
            return False
        for item in items:
            values.bind(loop.target, item)
            self._read_all(loop.body)
        return True

    def _fields_of(self, name: str) -> list[Field]:
        """Return the fields of a dataclass, over which a script may loop."""
        if name not in self._program.classes:
            raise NotStatic
        return [
            Field(
                field.target.id,
                TypeName(last_name(field.annotation)),
                self._values.get(field.value),
            )
            for field in self._program.classes[name][1].body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        ]

    def _take(self, call: ast.Call) -> None:
        name = called_name(call)
        option = None
        if is_declaration(call):
            receiver = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            command = self._parsers.get(receiver)
            if command is not None and command not in (self.subcommand or [command]):
                return
            option = self._of_argparse(call)
        elif name in ("option", "argument") and _is_click(call):
            option = self._of_click(call)
        elif name in _ABSL:
            option = self._of_absl(call, _ABSL[name])
        elif name == "set_defaults":
            known = {word.arg: self._values.get(word.value) for word in call.keywords if word.arg}
            self.defaults |= {name: value for name, value in known.items() if value is not None}
        elif name in ("mark_flag_as_required", "mark_flags_as_required"):
            self._require(call)
        if option is not None and not re.search(r"[^\w.-]", option.name):
            dest = "" if name in _ABSL else self._dest_of(call, option)
            self.options.append(replace(option, dest=dest))

    def _dest_of(self, call: ast.Call, option: ScriptOption) -> str:
        """Return the name by which the code reads an option, or "" if that is its own name.

        It is the `dest` of argparse, a name without dashes of click, or else the first long name.
        """
        names = self._names_in(call)
        given = {word.arg: word.value for word in call.keywords if word.arg}
        dest = self._values.get(given.get("dest"))
        if called_name(call) == "option":
            dest = next((name for name in names if not name.startswith("-")), None)
        if not isinstance(dest, str):
            long = [name for name in names if name.startswith("--")]
            dest = (long or names)[0].lstrip("-").partition("/")[0].strip()
        dest = dest.replace("-", "_")
        return "" if dest == plain_name(option) else dest

    def _require(self, call: ast.Call) -> None:
        names = self._values.get(call.args[0]) if call.args else None
        required = [names] if isinstance(names, str) else names or []
        self.options = [
            replace(option, is_required=True) if option.name in required else option
            for option in self.options
        ]

    def _names_in(self, call: ast.Call) -> list[str]:
        known = (self._values.get(argument) for argument in call.args)
        return [name for name in known if isinstance(name, str) and name]

    def _of_argparse(self, call: ast.Call) -> ScriptOption | None:
        names = self._names_in(call)
        given = {word.arg: word.value for word in call.keywords if word.arg}
        if not names or names[0] in ("--help", "--version", "-h"):
            return None
        action = self._values.get(given.get("action"))
        if last_name(given.get("action")) == "BooleanOptionalAction":
            action = "both"
        if action in _ENDS:
            return None
        name, way = _chosen_name(names)
        target = str(self._values.get(given.get("dest"), ""))
        for long in names:  # of several names, the one by which the script knows it
            if long.startswith("--") and long[2:].replace("-", "_") == target:
                name = long[2:]
        default = self._default(given.get("default"))
        kind = self._kind(given.get("type"), default)
        default = _converted(default, kind)
        num_values = self._num_values(given.get("nargs"))
        if num_values in ("+", "*") and isinstance(default, list) and len(default) == 1:
            # As many values as there are layers, of which one is enough for all of them.
            default, num_values = default[0], 1
        is_several = num_values not in (1, "?", None)
        text = self._values.get(given.get("help"), "")
        required = self._values.get(given.get("required"), otherwise=False)
        if way == "positional":
            required = "default" not in given and num_values not in ("?", "*", "...")
        if action in ("store_true", "store_false", "both"):
            return _flag(name, way, action, default, text)
        if (kind == "any" and default is not None) or is_several:
            way = "fixed" if way != "positional" else way
        return ScriptOption(
            name=name,
            default=default,
            choices=self._choices(given.get("choices"), text, default, kind),
            kind=None if kind == "any" else kind,
            way=way,
            is_required=required is True,
            text=str(text),
        )

    def _num_values(self, node: ast.expr | None) -> Any:
        """Return how many values an option of argparse takes, as `nargs` says it."""
        return "..." if last_name(node) == "REMAINDER" else self._values.get(node, 1)

    def _kind(self, node: ast.expr | None, default: Any) -> str | None:
        """Return the type of an option of argparse, "any" if a number is passed on as a text."""
        if node is None:
            is_number = isinstance(default, int | float)
            return "any" if is_number else None
        known = self._values.get(node)
        is_number = isinstance(default, bool | int | float)
        if is_number and isinstance(known, TypeName) and last_name(node) not in _KINDS:
            return type(default).__name__  # the type is a variable that depends on the default
        name = known.name if isinstance(known, TypeName) else str(known or _name_of_type(node))
        if name == "bool":
            return "any"  # each text but the empty one is true
        if _READS_BOOL.search(name):
            return "bool"
        if name in _KINDS:
            return _KINDS[name]
        if is_number and not isinstance(default, bool) and re.search(r"int|float", name):
            return "int" if "int" in name else "float"
        return type(default).__name__ if is_number else None

    def _default(self, node: ast.expr | None) -> Any:
        """Return a default if its value is known. Of `a or b`, and of environment variables, b."""
        match node:
            case ast.BoolOp(op=ast.Or(), values=[*_, last]):
                return self._default(last)
            case ast.Call(args=[_, otherwise]) if called_name(node) in ("get", "getenv"):
                return self._default(otherwise)
            case ast.Call(args=[inner]) if called_name(node) in ("int", "float", "Path", "str"):
                known = self._default(inner)
                try:
                    return {"int": int, "float": float}.get(called_name(node), str)(known)
                except (TypeError, ValueError):
                    return None
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str() as path)):
                return path  # below the folder of the program
        value = self._values.get(node)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value if isinstance(value, bool | int | float | str | list | tuple) else None

    def _choices(
        self, node: ast.expr | None, text: Any, default: Any, kind: str | None
    ) -> tuple[Any, ...]:
        known = self._values.get(node)
        if isinstance(known, dict):
            known = list(known)
        if isinstance(known, list | tuple | set):
            return tuple(value for value in known if isinstance(value, str | int | float))
        if node is None and isinstance(text, str) and kind in (None, "str"):
            return alternatives_in(text, default)
        return ()

    def _of_click(self, call: ast.Call) -> ScriptOption | None:
        names = self._names_in(call)
        given = {word.arg: word.value for word in call.keywords if word.arg}
        is_argument = called_name(call) == "argument"
        long = [name for name in names if name.startswith("--")]
        if not names or (not is_argument and not any(name.startswith("-") for name in names)):
            return None
        default = self._default(given.get("default"))
        required = self._values.get(given.get("required"), otherwise=is_argument)
        text = str(self._values.get(given.get("help"), ""))
        if is_argument:
            return ScriptOption(
                name=names[0],
                default=default,
                choices=self._click_choices(given.get("type")),
                kind=self._click_kind(given.get("type"), default),
                way="positional",
                is_required=required is True and default is None,
            )
        first, _, second = (long or names)[0].partition("/")
        name, way = _chosen_name([first, *names])
        if second or self._values.get(given.get("is_flag")) is True:
            return _of_click_flag(name, second.strip(), default, text)
        if any(word in given for word in ("multiple", "nargs", "count", "expose_value")):
            way = "fixed"
        choices = self._click_choices(given.get("type"))
        if not choices and given.get("type") is None:
            choices = alternatives_in(text, default)
        return ScriptOption(
            name=name,
            default=default,
            choices=choices,
            kind=self._click_kind(given.get("type"), default),
            way=way,
            is_required=required is True and default is None,
            text=text,
        )

    def _click_choices(self, node: ast.expr | None) -> tuple[Any, ...]:
        if not isinstance(node, ast.Call) or called_name(node) != "Choice" or not node.args:
            return ()
        known = self._values.get(node.args[0], ())
        return tuple(known) if isinstance(known, list | tuple | dict) else ()

    def _click_kind(self, node: ast.expr | None, default: Any) -> str | None:
        name = called_name(node) if isinstance(node, ast.Call) else last_name(node)
        if name in _KINDS:
            return _KINDS[name]
        if node is None and isinstance(default, bool | int | float):
            return type(default).__name__
        return None

    def _of_absl(self, call: ast.Call, kind: str) -> ScriptOption | None:
        names = ("name", "default", "enum_values", "help")
        if kind != "str" or not called_name(call).startswith("DEFINE_enum"):
            names = ("name", "default", "help")
        given = dict(zip(names, call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        name = self._values.get(given.get("name"))
        if not isinstance(name, str):
            return None
        choices = self._values.get(given.get("enum_values"), ())
        return ScriptOption(
            name,
            self._default(given.get("default")),
            tuple(choices) if isinstance(choices, list | tuple) else (),
            kind,
            is_required=self._values.get(given.get("required")) is True,
            text=str(self._values.get(given.get("help"), "")),
        )


def _converted(default: Any, kind: str | None) -> Any:
    """Return a default as argparse converts it: a text like what is given, "0.1" as 0.1."""
    if kind not in ("int", "float") or not isinstance(default, str):
        return default
    try:
        return int(default) if kind == "int" else float(default)
    except ValueError:
        return default


def _name_of_type(node: ast.expr) -> str:
    """Return the name of what converts the text of an option."""
    if isinstance(node, ast.Call):
        return called_name(node)
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    return last_name(node)


def chosen_command(words: list[str]) -> str:
    """Return the command that trains, among the commands of a program."""
    for wanted in TRAINS:
        for word in words:
            if wanted in re.split(r"[-_]", word.lower()):
                return word
    return words[0]


def called_or_named(node: ast.expr) -> str:
    """Return the last name of a decorator, called or not."""
    return called_name(node) if isinstance(node, ast.Call) else last_name(node)


def alternatives_in(text: str, default: Any) -> tuple[str, ...]:
    """Return the values that a help lists as a|b|c or a/b{_c}, if the default is one of them.

    Example:
        >>> from workbench.runs.scripts.declared_options import alternatives_in
        >>> alternatives_in("kind of cell, rnn|gru|lstm", "gru")
        ('rnn', 'gru', 'lstm')
        >>> alternatives_in("sgd, adam or adamw", "adam")
        ('sgd', 'adam', 'adamw')
        >>> alternatives_in("model: Conv{4|6} / ResNet{10|18}", "Conv4")
        ('Conv4', 'Conv6', 'ResNet10', 'ResNet18')
    """
    patterns = (
        (_ALTERNATIVES, r"\|"),
        (_OR, r",\s*(?:or\s+)?|\s+or\s+"),
        (_LISTED, ","),
        (_SLASHES, r"\s?/\s?"),
    )
    for pattern, sign in patterns:
        if pattern is _SLASHES and _SAYS_PATH.search(text):
            continue
        for match in pattern.finditer(text):
            written = [value.strip(" '\"`") for value in re.split(sign, match[1])]
            values = tuple(value for part in written for value in _without_braces(part))
            if default in values and len(values) > 1:
                return values
    return ()


def _without_braces(written: str) -> list[str]:
    """Return what braces stand for: one of several parts, or a part that may be missing."""
    braces = _BRACES.search(written)
    if braces is None:
        return [written]
    parts = re.split(r"[|,]", braces[1])
    if len(parts) == 1:
        parts = ["", *parts]
    return [written[: braces.start()] + part.strip() + written[braces.end() :] for part in parts]


def _chosen_name(names: list[str]) -> tuple[str, Way]:
    """Return the name by which an option is passed, without dashes, and how."""
    if not names[0].startswith("-"):
        return names[0], "positional"
    long = [name for name in names if name.startswith("--") and len(name) > len("--")]
    if long:
        return long[0][2:], "option"
    single = sorted((name[1:] for name in names if name.startswith("-")), key=len, reverse=True)
    return single[0], "single"


def _flag(name: str, way: Way, action: str, default: Any, text: Any) -> ScriptOption:
    """Return an option of argparse that is true or false."""
    text = str(text)
    if way == "single":  # there is no placeholder for it
        return ScriptOption(name, default, kind="bool", way="fixed", text=text)
    if action == "both":
        return ScriptOption(name, default, kind="bool", way="both", text=text)
    if action == "store_false":
        negative = name.removeprefix("no-")
        if negative != name:
            return ScriptOption(negative, default=True, kind="bool", way="off", text=text)
        return ScriptOption(name, default=False, kind="bool", way="switch", text=text)
    if default is True:  # it changes nothing
        return ScriptOption(name, default=True, kind="bool", way="fixed", text=text)
    return ScriptOption(name, default=False, kind="bool", way="switch", text=text)


def _of_click_flag(name: str, second: str, default: Any, text: str) -> ScriptOption:
    if second == f"--no-{name}":
        return ScriptOption(name, default, kind="bool", way="both", text=text)
    if second and default is True:
        return ScriptOption(name, default, kind="bool", way="fixed", text=text)
    if default is True:
        return ScriptOption(name, default=True, kind="bool", way="fixed", text=text)
    return ScriptOption(name, default=False, kind="bool", way="switch", text=text)


def _is_click(call: ast.Call) -> bool:
    """Return whether a call named option or argument is a decorator of click."""
    return bool(call.args) and isinstance(call.func, ast.Name | ast.Attribute)


def _is_command_of_group(decorator: ast.expr) -> bool:
    name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.endswith(".command") and not name.startswith("click.")


def _command_name(decorator: ast.expr, function: str) -> str:
    if isinstance(decorator, ast.Call):
        given = {word.arg: literal_of(word.value) for word in decorator.keywords}
        first = literal_of(decorator.args[0]) if decorator.args else None
        if isinstance(name := first or given.get("name"), str):
            return name
    return function.replace("_", "-").removesuffix("-command").removesuffix("-cmd")
