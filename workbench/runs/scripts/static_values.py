"""The values of expressions in a source, without running it.

Literals, arithmetic, names that a module assigns once, f-strings, and a few builtins are evaluated,
so that `default=5 * 8` and options that a loop declares are known. Whatever depends on the run of a
program is not. What such a value is computed from is known as well: a loop over `val_loader`, a
call of `evaluate`. So is by which value a program keeps its best model.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from workbench.experiment.goals import Goal
from workbench.runs.scripts.script_options import called_name, last_name, name_words, walk
from workbench.training.programs.constants import dotted_name

MAX_ITEMS = 500
"""Maximum number of items of what is evaluated. A source may ask for any number."""
_MAX_EXPONENT = 64
_MAX_CALLS = 6
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
}
_METHODS = {
    dict: ("items", "keys", "values", "get", "copy"),
    str: ("replace", "lower", "upper", "strip", "lstrip", "rstrip", "split", "format", "join"),
}


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > MAX_ITEMS:
        raise NotStatic
    return list(numbers)


def _zip(*columns: Any) -> list[Any]:
    return list(zip(*columns, strict=False))


def _product(*columns: Any) -> list[Any]:
    if math.prod(map(len, columns)) > MAX_ITEMS:
        raise NotStatic
    return list(itertools.product(*columns))


class NotStatic(Exception):
    """An expression whose value is only known when the program runs."""


@dataclass(frozen=True)
class TypeName:
    """A type that a source names, such as float."""

    name: str


@dataclass(frozen=True)
class Field:
    """A field of a dataclass, as `dataclasses.fields` returns it."""

    name: str
    type: Any
    default: Any


_BUILTINS: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": list,
    "set": list,
    "sorted": sorted,
    "enumerate": lambda values: list(enumerate(values)),
    "zip": _zip,
    "product": _product,
    "range": _range,
    "type": lambda value: TypeName(type(value).__name__),
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "abs": abs,
    "round": round,
    "len": len,
}
Fields = Callable[[str], list[Field]]
"""Returns the fields of a class by its name."""


def literal_of(node: ast.AST | None) -> Any:
    """Return the value of a literal in a source, or None for anything else."""
    try:
        return node and ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


class StaticValues:
    """Evaluates expressions with the names that are known."""

    def __init__(
        self,
        names: Mapping[str, Any] | None = None,
        fields: Fields | None = None,
        functions: Mapping[str, ast.FunctionDef] | None = None,
    ) -> None:
        """Start with some names.

        Args:
            names: Values by name. A name with dots is an attribute.
            fields: Returns the fields of a dataclass, for loops over them.
            functions: Functions without parameters that are evaluated where they are called.
        """
        self.names: dict[str, Any] = dict(names or {})
        self._fields = fields
        self._functions = functions or {}
        self._depth = 0

    def value(self, node: ast.AST | None) -> Any:
        """Return the value of an expression.

        Raises:
            NotStatic: If it is only known when the program runs.
        """
        try:
            value = self._value(node)
        except NotStatic:
            raise
        except Exception as error:  # such as 1 / 0, or a key that is missing
            raise NotStatic from error
        if isinstance(value, str | list | tuple | dict) and len(value) > MAX_ITEMS * 20:
            raise NotStatic
        return value

    def get(self, node: ast.AST | None, otherwise: Any = None) -> Any:
        """Return the value of an expression, or another one if it is not known."""
        try:
            return self.value(node)
        except NotStatic:
            return otherwise

    def bind(self, target: ast.expr, value: Any) -> None:
        """Give a value to the names of an assignment or a loop."""
        if isinstance(target, ast.Tuple | ast.List):
            # A source may write `near, far = None` for what it sets later.
            parts = list(value) if isinstance(value, list | tuple | dict | str) else []
            for element, part in zip(target.elts, parts, strict=False):
                self.bind(element, part)
        elif name := dotted_name(target):
            self.names[name] = value

    def learn(self, statements: list[ast.stmt]) -> None:
        """Learn the names that statements assign, in their order, without those in functions."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    known = self.get(value, NotStatic)
                    for target in targets:
                        if known is not NotStatic:
                            self.bind(target, known)
                        elif name := dotted_name(target):
                            self.names.pop(name, None)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    known = self.get(value, NotStatic)
                    if known is not NotStatic:
                        self.bind(target, known)
                case ast.ClassDef(name=name, body=body):
                    self._learn_class(name, body)
                case ast.Expr(value=ast.Call() as call):
                    self.update(call)

    def update(self, call: ast.Call) -> None:
        """Learn what `known.update(other)` adds to a dict."""
        match call.func:
            case ast.Attribute(value=ast.Name(id=name), attr="update"):
                before = self.names.get(name)
                added = [self.get(argument) for argument in call.args[:1]]
                if isinstance(before, dict) and all(isinstance(other, dict) for other in added):
                    given = {w.arg: self.get(w.value) for w in call.keywords if w.arg}
                    self.names[name] = before | (added[0] if added else {}) | given

    def _learn_class(self, name: str, body: list[ast.stmt]) -> None:
        inner = StaticValues(self.names, self._fields)
        before = set(self.names)
        inner.learn(body)
        for attribute, value in inner.names.items():
            if attribute not in before:
                self.names[f"{name}.{attribute}"] = value

    def items(self, node: ast.expr) -> Iterator[Any]:
        """Yield what a loop goes over.

        Raises:
            NotStatic: If it is only known when the program runs.
        """
        value = self.value(node)
        if not isinstance(value, list | tuple | dict | set | range) or len(value) > MAX_ITEMS:
            raise NotStatic
        yield from value

    def _value(self, node: ast.AST | None) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.List() | ast.Set() | ast.Tuple() | ast.Dict() | ast.JoinedStr():
                return self._collected(node)
            case ast.FormattedValue(value=value, format_spec=form):
                return format(self._value(value), "" if form is None else self._value(form))
            case ast.UnaryOp() | ast.BinOp():
                return self._computed(node)
            case ast.Subscript(value=value, slice=key):
                return self._value(value)[self._value(key)]
            case ast.Call():
                return self._called(node)
            case ast.ListComp() | ast.GeneratorExp():
                return self._comprehended(node)
        raise NotStatic

    def _collected(self, node: ast.List | ast.Set | ast.Tuple | ast.Dict | ast.JoinedStr) -> Any:
        match node:
            case ast.Dict(keys=keys, values=values):
                return {self._value(k): self._value(v) for k, v in zip(keys, values, strict=True)}
            case ast.JoinedStr(values=parts):
                return "".join(str(self._value(part)) for part in parts)
            case ast.Tuple(elts=elements):
                return tuple(self._value(element) for element in elements)
        return [self._value(element) for element in node.elts]

    def _named(self, node: ast.Name | ast.Attribute) -> Any:
        name = dotted_name(node)
        if name in self.names:
            return self.names[name]
        if name in ("int", "float", "str", "bool"):
            return TypeName(name)
        if isinstance(node, ast.Attribute):
            if name in ("math.pi", "np.pi"):
                return 3.141592653589793
            owner = self._value(node.value)
            if isinstance(owner, Field | TypeName) and not node.attr.startswith("_"):
                return getattr(owner, node.attr)
            if isinstance(owner, TypeName) and node.attr == "__name__":
                return owner.name
        raise NotStatic

    def _computed(self, node: ast.UnaryOp | ast.BinOp) -> Any:
        if isinstance(node, ast.UnaryOp):
            operand = self._value(node.operand)
            if isinstance(node.op, ast.USub):
                return -operand
            if isinstance(node.op, ast.Not):
                return not operand
            raise NotStatic
        left = self._value(node.left)
        right = self._value(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) <= _MAX_EXPONENT:
            return left**right
        if isinstance(node.op, ast.Mult) and not isinstance(left, int | float):
            raise NotStatic
        if isinstance(left, PurePosixPath) and isinstance(node.op, ast.Div):
            return left / right
        if type(node.op) not in _OPERATORS:
            raise NotStatic
        return _OPERATORS[type(node.op)](left, right)

    def _called(self, call: ast.Call) -> Any:
        name = called_name(call)
        if name in ("fields", "__dataclass_fields__") and len(call.args) == 1:
            if self._fields is None:
                raise NotStatic
            return self._fields(last_name(call.args[0]))
        if name in self._functions and not call.args and not call.keywords:
            return self._returned(self._functions[name])
        if isinstance(call.func, ast.Attribute):
            owner = self.get(call.func.value, NotStatic)
            if owner is not NotStatic and name in _METHODS.get(type(owner), ()):
                return self._method(owner, name, call)
        arguments = [self._value(argument) for argument in call.args]
        named = {word.arg: self._value(word.value) for word in call.keywords if word.arg}
        if name == "dict":
            return dict(*arguments, **named)
        if name in ("Path", "PurePath", "join", "expanduser") and arguments:
            return str(PurePosixPath(*map(str, arguments)))
        if name not in _BUILTINS or named:
            raise NotStatic
        return _BUILTINS[name](*arguments)

    def _returned(self, function: ast.FunctionDef) -> Any:
        """Return what a function without parameters returns at its end."""
        if self._depth > _MAX_CALLS or function.args.args or not function.body:
            raise NotStatic
        inner = StaticValues(self.names, self._fields, self._functions)
        inner._depth = self._depth + 1
        inner.learn(function.body)
        last = function.body[-1]
        if not isinstance(last, ast.Return):
            raise NotStatic
        return inner.value(last.value)

    def _method(self, owner: Any, name: str, call: ast.Call) -> Any:
        arguments = [self._value(argument) for argument in call.args]
        if name == "format" and re.search(r"\{[^{}]*:[^{}]*\d{4}", owner):
            raise NotStatic
        result = getattr(owner, name)(*arguments)
        return list(result) if name in ("items", "keys", "values") else result

    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise NotStatic
        generator = node.generators[0]
        inner = StaticValues(self.names, self._fields)
        values = []
        for item in self.items(generator.iter):
            inner.bind(generator.target, item)
            values.append(inner.value(node.elt))
        return values


@dataclass(frozen=True)
class _Origin:
    """What a variable gets its value from.

    Attributes:
        value: The expression.
        around: What the loops go over that it is in.
        is_of_evaluation: Whether no gradients are computed there, or the model evaluates.
    """

    value: ast.expr
    around: tuple[ast.expr, ...]
    is_of_evaluation: bool


class Origins:
    """What the values of a function are computed from, as far as its source shows."""

    def __init__(self, body: list[ast.stmt]) -> None:
        """Read the assignments of a function.

        Args:
            body: Its statements.
        """
        self._known: dict[str, list[_Origin]] = {}
        self._evaluates = False
        self._read(body, ())

    def words_of(self, value: ast.expr) -> Iterator[frozenset[str]]:
        """Yield the words of the names that a value comes from: its own, then those before it.

        `eval` is among them if it is computed where the model evaluates.

        Args:
            value: The expression.

        Example:
            >>> body = ast.parse("for x in val_loader: total += criterion(x)").body
            >>> [sorted(words) for words in Origins(body).words_of(ast.Name("total"))]
            [['total'], ['criterion', 'loader', 'val', 'x']]
        """
        step, seen = [value], set[str]()
        yield _words_in(step)
        for _ in range(_MAX_STEPS):
            names = {dotted_name(part) for inner in step for part in walk(inner)} - seen
            seen |= names
            origins = [origin for name in names for origin in self._known.get(name, ())]
            if not origins:
                return
            step = [part for origin in origins for part in (origin.value, *origin.around)]
            evaluates = all(origin.is_of_evaluation for origin in origins)
            yield _words_in(step) | (frozenset(("eval",)) if evaluates else frozenset())

    def _read(self, body: list[ast.stmt], around: tuple[ast.expr, ...]) -> None:
        for statement in body:
            match statement:
                case ast.For(target=target, iter=items, body=inner, orelse=after):
                    self._learn(target, items, around)
                    self._read([*inner, *after], (*around, items))
                case ast.With(items=items, body=inner):
                    self._read_below(inner, around, items, is_alone=False)
                case ast.FunctionDef(body=inner, decorator_list=decorators):
                    self._read_below(inner, (), decorators, is_alone=True)
                case (
                    ast.Assign(targets=[target], value=value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                ):
                    self._learn(target, value, around)
                case ast.Expr(value=ast.Call(func=ast.Attribute() as method, args=args)):
                    self._call(method, args, around)
            if not isinstance(statement, ast.For | ast.With | ast.FunctionDef):
                for name in ("body", "orelse", "finalbody"):
                    self._read(getattr(statement, name, []), around)

    def _read_below(
        self,
        body: list[ast.stmt],
        around: tuple[ast.expr, ...],
        heads: Iterable[ast.AST],
        *,
        is_alone: bool,
    ) -> None:
        """Read the body of a function or a `with`, which may say that there are no gradients."""
        before, named = self._evaluates, " ".join(map(ast.unparse, heads))
        evaluates = _WITHOUT_GRADIENTS.search(named) is not None
        self._evaluates = evaluates or (before and not is_alone)
        self._read(body, around)
        self._evaluates = before

    def _call(
        self, method: ast.Attribute, args: list[ast.expr], around: tuple[ast.expr, ...]
    ) -> None:
        """Take a call alone, such as `losses.append(loss)` and `model.eval()`."""
        if method.attr in ("append", "update", "add", "extend"):
            for value in args:
                self._learn(method.value, value, around)
        elif method.attr in ("eval", "train"):
            self._evaluates = method.attr == "eval" or bool(args and literal_of(args[0]) is False)

    def _learn(self, target: ast.expr, value: ast.expr, around: tuple[ast.expr, ...]) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for inner, own in zip(targets, values, strict=True):
                    self._learn(inner, own, around)
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), _):
                for inner in targets:
                    self._learn(inner, value, around)
            case ((ast.Subscript(value=owner) | ast.Starred(value=owner)), _):
                self._learn(owner, value, around)
            case _:
                if name := dotted_name(target):
                    origin = _Origin(value, around, self._evaluates)
                    self._known.setdefault(name, []).append(origin)


_WITHOUT_GRADIENTS = re.compile(r"\bno_grad\b|\binference_mode\b")
_MAX_STEPS = 4


def _words_in(values: list[ast.expr]) -> frozenset[str]:
    """Return the words of all names in some expressions, in lower case."""
    texts: list[str] = []
    for part in (inner for value in values for inner in walk(value)):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                texts.append(name)
            case ast.Subscript(slice=ast.Constant(value=str() as key)):
                texts.append(key)
            case ast.Call(args=[ast.Constant(value=str() as key), *_]):
                texts.append(key)
    return frozenset(word for text in texts for word in name_words(text))


@dataclass(frozen=True)
class KeptValue:
    """A value that the best one is compared with, between two assignments of its name."""

    goal: Goal | None
    first_line: float
    end_line: float


class KeptValues:
    """The values by which a program keeps its best model, whatever their names are.

    `if acc > record: record = acc` shows which value it is. It is followed to the function that
    returned it, and into the functions that it is given to.
    """

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        """Read the functions of a program.

        Args:
            trees: Its parsed files.
        """
        self._functions: dict[str, ast.FunctionDef] = {}
        self._assignments: dict[str, list[tuple[int, _Part]]] = {}
        self._calls: list[tuple[str, ast.Call]] = []
        self._kept: dict[tuple[str, str], list[KeptValue]] = {}
        values: list[tuple[str, tuple[ast.expr, Goal | None]]] = []
        for function, node in (pair for tree in trees for pair in self._nodes_of(tree)):
            if isinstance(node, ast.Call):
                self._calls.append((function, node))
            elif isinstance(node, ast.Assign):
                parts = [p for t in node.targets for p in _assigned_parts(t, node.value)]
                places = self._assignments.setdefault(function, [])
                places += [(node.lineno, part) for part in parts]
            values += [(function, kept) for kept in _kept_by(node)]
        for function, (value, goal) in values:
            self._follow(function, value, goal, 0)

    def find(self, function: str, value: ast.expr) -> KeptValue | None:
        """Return how a value is kept, or None if the best one is not compared with it.

        Args:
            function: The function that has it, "" outside of all functions.
            value: The expression.
        """
        line = getattr(value, "lineno", None)
        for kept in self._kept.get((function, _text_of(value)), []):
            if line is None or kept.first_line <= line < kept.end_line:
                return kept
        return None

    def _nodes_of(self, tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
        """Yield the nodes of a file with the functions that they are in."""
        inside: set[int] = set()
        for node in walk(tree):
            if isinstance(node, ast.FunctionDef):
                nodes = walk(node)[1:]
                inside |= {id(part) for part in nodes}
                self._functions.setdefault(node.name, node)
                yield from ((node.name, part) for part in nodes)
        yield from (("", node) for node in walk(tree) if id(node) not in inside)

    def _follow(self, function: str, value: ast.expr, goal: Goal | None, num_steps: int) -> None:
        value, text = _bare(value), _text_of(value)
        known = self._kept.setdefault((function, text), [])
        first, last, origin = self._assigned(function, value)
        kept = KeptValue(goal, first, last)
        if isinstance(value, ast.Constant) or num_steps > _MAX_STEPS or kept in known:
            return
        known.append(kept)
        after = num_steps + 1
        for owner, inner in self._origins(function, value, origin):
            self._follow(owner, inner, goal, after)
        if not isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
            return
        for caller, call in self._calls:
            if caller == function and first <= call.lineno < last:
                for parameter, given in self._given(call):
                    if _text_of(given) == text:
                        self._follow(called_name(call), ast.Name(parameter), goal, after)

    def _assigned(self, function: str, value: ast.expr) -> tuple[float, float, _Part | None]:
        """Return the lines between which a value is the same, and what it is assigned from."""
        line = getattr(value, "lineno", None)
        name = dotted_name(value.value if isinstance(value, ast.Subscript) else value)
        places = [p for p in self._assignments.get(function, []) if p[1].name == name != ""]
        places.sort(key=lambda place: place[0])
        if line is None:
            return 0, math.inf, places[-1][1] if places else None
        before = [place for place in places if place[0] < line]
        later = [place[0] for place in places if place[0] >= line]
        first, origin = before[-1] if before else (0, None)
        return first, later[0] if later else math.inf, origin

    def _origins(
        self, function: str, value: ast.expr, origin: _Part | None
    ) -> Iterator[tuple[str, ast.expr]]:
        """Yield where a value comes from: an expression, a returned value, or an argument."""
        key = literal_of(value.slice) if isinstance(value, ast.Subscript) else None
        if isinstance(value, ast.Call):
            yield from self._returned(value, None)
        elif origin is not None and isinstance(origin.value, ast.Call):
            yield from self._returned(origin.value, key if key is not None else origin.place)
        elif origin is not None and origin.place is None:
            inner = origin.value if key is None else _item_of(origin.value, key)
            if inner is not None:
                yield function, inner
        elif isinstance(value, ast.Name) and function not in _GENERAL_FUNCTIONS:
            for caller, call in self._calls:
                if called_name(call) == function:
                    arguments = dict(self._given(call))
                    if value.id in arguments:
                        yield caller, arguments[value.id]

    def _returned(self, call: ast.Call, place: int | str | None) -> Iterator[tuple[str, ast.expr]]:
        """Yield what a function of the program returns, or an item of it."""
        name = called_name(call)
        function = self._functions.get(name)
        if function is None or name in _GENERAL_FUNCTIONS or self._trains_as_well(name):
            return
        for node in walk(function):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            value: ast.expr | None = node.value
            if place is not None:
                origin = self._assigned(name, value)[2]
                value = _item_of(value if origin is None else origin.value, place)
            if value is not None:
                yield name, value

    def _trains_as_well(self, name: str) -> bool:
        """Return whether a function is called to train and to evaluate: `run(is_training=True)`.

        What it prints is then about both.
        """
        said = {
            literal_of(word.value)
            for _, call in self._calls
            if called_name(call) == name
            for word in call.keywords
            if {"train", "training"} & set(name_words(word.arg or ""))
        }
        return {True, False} <= said

    def _given(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Yield the parameters that a call of a function of the program has values for."""
        function = self._functions.get(called_name(call))
        if function is None or function.name in _GENERAL_FUNCTIONS:
            return
        names = [argument.arg for argument in function.args.args]
        yield from zip(names[1:] if names[:1] == ["self"] else names, call.args, strict=False)
        yield from ((word.arg, word.value) for word in call.keywords if word.arg)


_GENERAL_FUNCTIONS = ("__init__", "__call__", "forward", "step", "update", "append", "add", "get")
"""Names that other objects have as well, so that a call does not show which function is meant."""
_AVERAGED = ("avg", "average", "global_avg")
_CONVERSIONS = ("item", "mean", "compute", "result", "cpu", "numpy", "detach")
_PERCENT = re.compile(r"\b100(?:\.0)? \* | \* 100(?:\.0)?\b")


@dataclass(frozen=True)
class _Part:
    """A name of an assignment, with its place in what is unpacked, if it is."""

    name: str
    value: ast.expr
    place: int | None = None


def _assigned_parts(target: ast.expr, value: ast.expr) -> Iterator[_Part]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield _Part(dotted_name(target), value)
        return
    for place, inner in enumerate(target.elts):
        own = _item_of(value, place)
        yield (
            _Part(dotted_name(inner), value, place)
            if own is None
            else _Part(dotted_name(inner), own)
        )


def _item_of(value: ast.expr, key: int | str) -> ast.expr | None:
    """Return an item of a tuple or a dict in a source, or None if it is not there."""
    match value:
        case ast.Tuple(elts=items) | ast.List(elts=items) if isinstance(key, int):
            return items[key] if 0 <= key < len(items) else None
        case ast.Dict(keys=keys, values=values):
            return next(
                (v for k, v in zip(keys, values, strict=True) if k and literal_of(k) == key), None
            )
        case ast.Call(func=ast.Name(id="dict"), keywords=words):
            return next((word.value for word in words if word.arg == key), None)
    return None


def _kept_by(node: ast.AST) -> Iterator[tuple[ast.expr, Goal | None]]:
    """Yield the values by which a statement keeps the best one, and their goals."""
    match node:
        case ast.If(test=test, body=body):
            assigned = {
                (ast.unparse(target), _text_of(inner.value))
                for statement in body
                for inner in walk(statement)
                if isinstance(inner, ast.Assign)
                for target in inner.targets
            }
            for part in walk(test):
                yield from _kept_by_comparison(part, assigned)
        case ast.Assign(
            targets=[target],
            value=ast.Call(func=ast.Name(id="max" | "min" as name), args=[first, second]),
        ):
            goal: Goal = "maximize" if name == "max" else "minimize"
            for best, other in ((first, second), (second, first)):
                if ast.unparse(best) == ast.unparse(target):
                    yield other, goal
        case ast.Call(args=[value, *_]) if {"early", "stopping"} <= {*name_words(_called(node))}:
            if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
                yield value, None


def _called(call: ast.Call) -> str:
    return re.sub(r"(?i)stopper|stop\b", "stopping", dotted_name(call.func).replace(".", "_"))


def _kept_by_comparison(
    node: ast.AST, assigned: set[tuple[str, str]]
) -> Iterator[tuple[ast.expr, Goal]]:
    match node:
        case ast.Compare(left=less, ops=[ast.Lt() | ast.LtE()], comparators=[more]):
            pass
        case ast.Compare(left=more, ops=[ast.Gt() | ast.GtE()], comparators=[less]):
            pass
        case _:
            return
    if _is_extreme(more, "min") or (ast.unparse(more), _text_of(less)) in assigned:
        yield less, "minimize"
    elif _is_extreme(less, "max") or (ast.unparse(less), _text_of(more)) in assigned:
        yield more, "maximize"


def _is_extreme(node: ast.expr, name: str) -> bool:
    """Return whether an expression is the best value so far: `min(losses)`."""
    return isinstance(node, ast.Call) and dotted_name(node.func) == name and len(node.args) == 1


def _bare(value: ast.expr) -> ast.expr:
    """Return what a number is, without conversions: `loss` of `float(loss.item())`."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr=attribute), args=[]) if (
            attribute in _CONVERSIONS
        ):
            return _bare(inner)
        case ast.Attribute(value=inner, attr=attribute) if attribute in _AVERAGED:
            return _bare(inner)
        case ast.Call(func=ast.Name(id="float" | "round"), args=[inner, *_]):
            return _bare(inner)
    return value


def _text_of(value: ast.expr) -> str:
    """Return the source of a number, the same for a share and its percentage."""
    text = _PERCENT.sub("", ast.unparse(_bare(value)))
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text
