"""Write an experiment as Python source, and read it back without executing any of it.

The reader accepts literals, the types of `workbench`, and names that the caller resolves, such as a
class of a notebook. Anything else is rejected with its line. Validation is left to the experiment.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from workbench.experiment.domain import Choice, Fixed, Float, Int, Versions
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError

_MODULE = "workbench"
_SECTIONS = {
    "training": "Training",
    "plan": "PlanSettings",
    "budget": "Budget",
    "sampler": "Sampler",
    "early_stop": "EarlyStop",
    "confirm": "Confirm",
    "resources": "Resources",
}
_LISTS = {"objectives": "Objective", "constraints": "Constraint"}
_NAMED_PARTS = ("model", "data", "train", "loss")
_DOMAINS: dict[str, str | None] = {"Float": "float", "Int": "int", "Choice": None, "Fixed": None}
_TYPES = frozenset({"Component", "Space", *_SECTIONS.values(), *_LISTS.values(), *_DOMAINS})
_WIDTH = 100
_ACCEPTED = "literals, the types of workbench, and names of classes and functions of this notebook"


@dataclass(frozen=True)
class _Call:
    """A type of `workbench` with its fields."""

    type: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class _Name:
    """A name defined in the notebook."""

    name: str


def write_python(document: Mapping[str, Any], name_of: Callable[[str], str | None]) -> str:
    """Write an experiment as Python source.

    Args:
        document: The experiment as in its file. Invalid values are also written.
        name_of: Returns the Python name of an embedded object, or None.

    Returns:
        Source that assigns the experiment to `experiment`.
    """
    fields = {key: _typed(key, value, name_of) for key, value in document.items()}
    return f"import {_MODULE} as wb\n\nexperiment = {_render(_Call('Experiment', fields), 0)}\n"


def read_python(text: str, lookup: Callable[[str], str | None]) -> dict[str, Any]:
    """Read an experiment from Python source without executing it.

    Args:
        text: The source: imports of `workbench`, and one experiment.
        lookup: Returns how an experiment refers to a Python name, or None if it is unknown.

    Returns:
        The experiment as in its file, not validated yet.

    Raises:
        ExperimentError: If the source is not accepted, with the line as its field.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise _refuse(error.lineno, f"is not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refuse(None, f"is not valid Python: {error}") from error
    reader = _Reader(lookup)
    try:
        for statement in module.body:
            reader.read_statement(statement)
    except RecursionError as error:
        raise _refuse(None, "is nested too deeply") from error
    if reader.experiment is None:
        raise _refuse(
            None,
            "does not define an experiment",
            next_step="Write: experiment = wb.Experiment(...)",
        )
    return reader.experiment


def _typed(key: str, value: Any, name_of: Callable[[str], str | None]) -> Any:
    """Return the value of a field of the experiment as calls of its types."""
    if key in _NAMED_PARTS:
        return _component(value, name_of)
    if key == "metrics" and isinstance(value, list):
        return [_component(item, name_of) for item in value]
    if key in _SECTIONS:
        return _call(_SECTIONS[key], value)
    if key in _LISTS and isinstance(value, list):
        return [_call(_LISTS[key], item) for item in value]
    if key == "search" and isinstance(value, dict):
        return {name: _domain(written) for name, written in value.items()}
    return value


def _component(value: Any, name_of: Callable[[str], str | None]) -> Any:
    if isinstance(value, str):
        name = name_of(value)
        return value if name is None else _Name(name)
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {**value, "name": _component(value["name"], name_of)}
    return value


def _call(kind: str, value: Any) -> Any:
    return _Call(kind, value) if isinstance(value, dict) and _are_arguments(value) else value


def _are_arguments(fields: Mapping[str, Any]) -> bool:
    return all(name.isidentifier() and not keyword.iskeyword(name) for name in fields)


def _domain(written: Any) -> Any:
    """Return a parameter as a call of its type, or as written if it is shorter or invalid."""
    if not isinstance(written, dict):
        return written
    kept = {key: written[key] for key in ("prior", "when") if written.get(key) is not None}
    try:
        domain = Space.model_validate(
            {"x": {key: item for key, item in written.items() if key not in kept}}
        )
    except ValidationError:
        return written
    match domain.root["x"]:
        case Float() | Int() as bounds:
            kind, fields = type(bounds).__name__, {"low": bounds.low, "high": bounds.high}
            fields |= {"step": bounds.step} if bounds.step is not None else {}
            fields |= {"log": True} if bounds.log else {}
        case Versions():
            return written
        case Choice(choices=choices):
            kind, fields = "Choice", {"choices": list(choices)}
        case Fixed(value=value):
            kind, fields = "Fixed", {"value": value}
    return _Call(kind, fields | kept)


def _render(value: Any, indent: int) -> str:
    """Write a value on one line if it fits, else one item per line."""
    flat = _flat(value)
    if len(flat) + indent <= _WIDTH and not (
        isinstance(value, _Call) and value.type == "Experiment"
    ):
        return flat
    inner = indent + 4
    match value:
        case _Call(kind, fields):
            parts = [f"{name}={_render(item, inner)}" for name, item in fields.items()]
            opening, closing = f"wb.{kind}(", ")"
        case dict():
            parts = [f"{_flat(name)}: {_render(item, inner)}" for name, item in value.items()]
            opening, closing = "{", "}"
        case list() | tuple():
            parts = [_render(item, inner) for item in value]
            opening, closing = "[", "]"
        case _:
            return flat
    lines = "".join(f"{' ' * inner}{part},\n" for part in parts)
    return f"{opening}\n{lines}{' ' * indent}{closing}"


def _flat(value: Any) -> str:
    match value:
        case _Call(kind, fields):
            return (
                f"wb.{kind}({', '.join(f'{name}={_flat(item)}' for name, item in fields.items())})"
            )
        case _Name(name):
            return name
        case dict():
            return (
                "{"
                + ", ".join(f"{_flat(name)}: {_flat(item)}" for name, item in value.items())
                + "}"
            )
        case list() | tuple():
            return f"[{', '.join(_flat(item) for item in value)}]"
        case str():
            written = repr(value)
            return written if '"' in written or "\\'" in written else f'"{written[1:-1]}"'
        case _:
            return repr(value)


class _Reader:
    """Reads the statements of a source, and keeps the experiment they define."""

    def __init__(self, lookup: Callable[[str], str | None]) -> None:
        self._lookup = lookup
        self._modules: set[str] = set()
        self._types: dict[str, str] = {}
        self.experiment: dict[str, Any] | None = None

    def read_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import(names=names) if all(alias.name == _MODULE for alias in names):
                self._modules |= {alias.asname or alias.name for alias in names}
            case ast.ImportFrom(module="workbench", names=names, level=0) if all(
                alias.name == "Experiment" or alias.name in _TYPES for alias in names
            ):
                self._types |= {alias.asname or alias.name: alias.name for alias in names}
            case (
                ast.Assign(targets=[ast.Name()], value=ast.Call() as call)
                | ast.Expr(value=ast.Call() as call)
            ) if self._type_of(call.func) == "Experiment":
                if self.experiment is not None:
                    raise _refuse(
                        statement.lineno,
                        "defines a second experiment",
                        next_step="Remove one of the two.",
                    )
                self.experiment = self._fields(call)
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case _:
                raise _refuse(
                    statement.lineno,
                    "is not part of the definition of an experiment",
                    allowed="import workbench as wb, and experiment = wb.Experiment(...)",
                )

    def _type_of(self, function: ast.expr) -> str | None:
        match function:
            case ast.Name(id=name):
                return self._types.get(name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self._modules:
                return name
        return None

    def _fields(self, call: ast.Call) -> dict[str, Any]:
        if call.args:
            raise _refuse(call.args[0].lineno, "is a positional argument", allowed="name=value")
        fields: dict[str, Any] = {}
        for argument in call.keywords:
            if argument.arg is None or argument.arg in fields:
                raise _refuse(
                    argument.value.lineno,
                    "has an unpacked or repeated argument",
                    allowed="name=value, each name once",
                )
            fields[argument.arg] = self._value(argument.value)
        return fields

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(
                op=ast.USub() | ast.UAdd() as sign,
                operand=ast.Constant(value=int() | float() as number),
            ) if not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict():
                return self._mapping(node)
            case ast.Name(id=name) if (value := self._lookup(name)) is not None:
                return value
            case ast.Name(id=name):
                raise _refuse(
                    node.lineno,
                    f"{name} is not defined in this notebook",
                    next_step=(
                        "Run the cell that defines it, or write package.module:name in quotes."
                    ),
                )
            case ast.Call() if (kind := self._type_of(node.func)) in _TYPES:
                return self._call_value(str(kind), node)
        raise _refuse(
            node.lineno,
            f"{ast.unparse(node)[:60]} is not accepted: the source is not executed",
            allowed=_ACCEPTED,
        )

    def _call_value(self, kind: str, call: ast.Call) -> Any:
        if kind == "Space" and len(call.args) == 1 and not call.keywords:
            return self._value(call.args[0])
        fields = self._fields(call)
        written_type = _DOMAINS.get(kind)
        return fields if written_type is None else {"type": written_type, **fields}

    def _mapping(self, node: ast.Dict) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise _refuse(value.lineno, "has a key that is not a string", allowed="strings")
            if key.value in mapping:
                raise _refuse(
                    key.lineno,
                    f"the key {key.value!r} is repeated",
                    next_step="Remove one of the two.",
                )
            mapping[key.value] = self._value(value)
        return mapping


def _refuse(
    line: int | None, problem: str, *, allowed: str | None = None, next_step: str | None = None
) -> ExperimentError:
    field = "the text" if line is None else f"line {line}"
    return ExperimentError(problem, field=field, allowed=allowed, next_step=next_step)
