"""Constants of a file, and a program that runs with other values of them.

Many programs take no options: their settings are constants at the top of a script, or values in a
YAML, TOML, JSON, INI or gin file. This finds such constants, and starts a program with a copy of
the file in which they have other values. The file itself is never changed:

    python -m workbench.training.programs.constants train.py LR=0.1
    python -m workbench.training.programs.constants conf.yaml optimizer.lr=0.1 -- python train.py

A Python script runs from its own place, so its imports and `__file__` stay as they are. Any other
file is copied into the folder of the trial, and the command receives the path of the copy.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from workbench.foundation.errors import ArgumentError
from workbench.training.programs.kept_imports import SEEN_VARIABLE, VARIABLE, KeptFiles

MODULE = "workbench.training.programs.constants"
"""What `python -m` starts."""
_MAX_POWER = 64
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.USub)
_LINES = {
    ".r": re.compile(
        r"^(?P<name>[A-Za-z][\w.]*)\s*(?:<-|=)\s*(?P<value>[^\s#(]+|\"[^\"]*\")\s*(?:#.*)?$"
    ),
    ".sh": re.compile(
        r"^\s*(?:export\s+)?(?P<name>[A-Za-z]\w*)=(?P<value>[^\s#;$`()]+)\s*(?:#.*)?$"
    ),
    ".jl": re.compile(
        # At the top, or a field with a type in a struct.
        r"^(?:(?:const\s+)?|\s+(?=[^\W\d]\w*::))(?P<name>[^\W\d]\w*)(?:::[\w{}.]+)?\s*=\s*"
        r"(?P<value>[^\s#(]+|\"[^\"]*\")\s*(?:#.*)?$"
    ),
}
_LISTS = {
    ".r": re.compile(r"^(?P<name>[A-Za-z][\w.]*)\s*(?:<-|=)\s*list\(", re.MULTILINE),
    ".jl": re.compile(
        r"^(?:const\s+)?(?P<name>[^\W\d]\w*)\s*=\s*(?:Dict)?\((?=[\s;])", re.MULTILINE
    ),
}
"""Where named values start: a list in R, a named tuple in Julia."""
_LIST_ITEM = re.compile(
    r"(?<![\w.])(?P<name>[^\W\d][\w.]*)\s*=\s*"
    r"(?P<value>[-+]?[\d.][\w.+-]*|TRUE|FALSE|true|false|\"[^\"]*\"|'[^']*')"
    r"(?=\s*[,)#]|\s*$)",
    re.MULTILINE,
)
_LINES[".bash"] = _LINES[".sh"]
_LINES[".gin"] = re.compile(
    r"^(?P<name>[^\W\d][\w./]*\.\w+)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s#\[{(@%]+)\s*(?:#.*)?$"
)
_TABLE = re.compile(r"^\s*\[(?P<name>[\w.\-\"]+)\]\s*(?:[#;].*)?$")
_TOML_VALUE = re.compile(
    r"^\s*(?P<name>[\w\-]+)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s#\[{]+)\s*(?:#.*)?$"
)
_INI_VALUE = re.compile(
    r"^[ \t]*(?P<name>[^\W\d][\w.\-]*)\s*[=:]\s*(?P<value>[^\s#;=]\S*)\s*(?:[#;].*)?$"
)
_FIELDS = ("field", "Field", "ib", "attrib")
"""Functions that declare a field of a class with its default."""
_MAPPINGS = frozenset(
    (
        *("dict", "ConfigDict", "SimpleNamespace", "Namespace", "Munch"),
        *("EasyDict", "AttrDict", "edict"),
    )
)
_NUMBER_TAG = re.compile(r"!!(?:float|int)\s+")
"""What YAML writes in front of a number to say that it is one: `!!float 2e-4`."""
_OPTIMIZER = re.compile(
    r"^(?:SGD|N?R?Adam[WaxX]*|Adagrad|Adadelta|RMS[pP]rop|LAMB|Lion|LBFGS"
    r"|(?:GradientDescent|Momentum|Adam|RMSProp|Adagrad|Ftrl)Optimizer)$"
)
"""What takes the learning rate as its first number."""
_DROPOUT = re.compile(r"^(?:\w*Dropout\w*|dropout)$")
_NUMBERED = re.compile(
    r"^(?P<layer>\w*Dropout\w*)\.(?P<rest>dropout|p|rate)$"
    r"|^(?P<optimizer>SGD|Adam\w*|RMSprop)\.(?P<rate>lr|learning_rate)$"
)
"""Values that several layers, or the stages of a training, have of their own."""
_RECURRENT = frozenset(("LSTM", "GRU", "SimpleRNN"))
"""Layers of Keras whose first number is their width. Those of torch have that of their input."""
_MAX_NUMBERED = 3
"""With more layers of dropout, their author has one value for all of them."""
_OF_ARRAYS = frozenset(("dim", "dims", "axis", "size", "num", "p", "k", "keepdim", "non_blocking"))
"""What functions on arrays take, rather than a training: `x.sum(dim=1)`."""
_DECLARES = re.compile(
    r"^(?:add_\w*argument|add_option|option|argument|arg|DEFINE_\w+|[fF]ield|Option|Argument|print"
    r"|hist\w*|plot\w*|scatter|imshow|subplots?|figure|savefig|legend)$"
)
"""What declares an option, whose default is no value of its own, and what draws."""
_DOCUMENTS = (".yaml", ".yml", ".json")
_WITH_TABLES = {".toml": _TOML_VALUE} | dict.fromkeys(
    (".ini", ".cfg", ".conf", ".config"), _INI_VALUE
)
"""How a value is written in files whose values are in tables such as [train]."""


@dataclass(frozen=True)
class Constant:
    """A constant of a file.

    Attributes:
        name: Its name. Dots separate the names of nested values.
        value: Its value: a number, true or false, or a text.
        start: Where its value starts in the text.
        end: Where its value ends.
        scope: The function or class in whose code it is. "" if it is assigned at the top.
        is_default: Whether it is the default of a parameter, which a call may replace.
        others: Where the same value is assigned to it again.
    """

    name: str
    value: Any
    start: int
    end: int
    scope: str = ""
    is_default: bool = False
    others: tuple[tuple[int, int], ...] = ()


def constants_of(text: str, suffix: str) -> list[Constant]:
    """Return the constants of a file, in their order. A name with several values has none.

    Args:
        text: What the file contains.
        suffix: Its kind: .py, .ipynb, .yaml, .yml, .json, .toml, .ini, .cfg, .conf, .config, .gin,
            .r, .jl, .sh or .bash. Places in a notebook are those in the source of its cells.

    Example:
        >>> from workbench.training.programs.constants import constants_of
        >>> [(constant.name, constant.value) for constant in constants_of("LR = 3e-4", ".py")]
        [('LR', 0.0003)]
    """
    suffix = suffix.lower()
    if suffix == ".py":
        constants = list(_of_python(text))
    elif suffix == ".ipynb":
        constants = list(_of_python(_source_of_cells(json.loads(text))))
    elif suffix in _DOCUMENTS:
        plain = _COMMENTED.sub(_without_comment, text) if suffix == ".json" else text
        constants = list(_of_document(plain))
    elif suffix in _WITH_TABLES:
        constants = list(_of_tables(text, _WITH_TABLES[suffix]))
    elif suffix in _LINES:
        constants = list(_of_lines(text, _LINES[suffix]))
        if suffix in _LISTS:
            constants += _of_lists(text, _LISTS[suffix])
    else:
        return []
    by_name: dict[str, list[Constant]] = {}
    for constant in constants:
        by_name.setdefault(constant.name, []).append(constant)
    return [
        replace(first, others=tuple((again.start, again.end) for again in others))
        for first, *others in by_name.values()
        if all(_is_same(first, again) for again in others)
    ]


_COMMENTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""A text in JSON, or a comment, which programs remove before they read the file."""


def _without_comment(match: re.Match[str]) -> str:
    """Return a text as it is, and blanks for a comment, so that all else keeps its place."""
    return match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])


def _is_same(first: Constant, again: Constant) -> bool:
    """Return whether a constant has the same value again, as for the next stage of a training."""
    kinds = type(first.value), type(again.value)
    return kinds[0] is kinds[1] and (first.value, first.scope) == (again.value, again.scope)


def with_constants(text: str, suffix: str, values: Mapping[str, Any]) -> str:
    """Return a file with other values of its constants.

    Args:
        text: What the file contains.
        suffix: Its kind, see `constants_of`.
        values: The new values by name.

    Raises:
        ArgumentError: If the file has no such constant.

    Example:
        >>> from workbench.training.programs.constants import with_constants
        >>> with_constants("LR = 3e-4  # Adam", ".py", {"LR": 0.01})
        'LR = 0.01  # Adam'
    """
    if suffix == ".ipynb":
        notebook = json.loads(text)
        _put_into_cells(notebook, with_constants(_source_of_cells(notebook), ".py", values))
        return json.dumps(notebook, ensure_ascii=False, indent=1)
    known = {constant.name: constant for constant in constants_of(text, suffix)}
    for name in values:
        if name not in known:
            raise ArgumentError(
                f"the file has no constant {name} with one value",
                allowed=list(known)[:40],
                next_step="Assign it once, at the top of the file.",
            )
    places = [
        (place, known[name])
        for name in values
        for place in ((known[name].start, known[name].end), *known[name].others)
    ]
    for (start, end), constant in sorted(places, key=lambda item: item[0], reverse=True):
        written = _written(values[constant.name], constant.value, text[start:end], suffix)
        text = text[:start] + written + text[end:]
    return text


_NEXT_CELL = "\n# The next cell\n"
_NO_PYTHON = re.compile(r"^([ \t]*)([!%].*)$", re.MULTILINE)
"""A line for a shell, or a magic of IPython."""
_LEFT_OUT = re.compile(r"^([ \t]*)pass  # left out: (.*)$", re.MULTILINE)


def _source_of_cells(notebook: dict[str, Any]) -> str:
    """Return the code of a notebook as one source, from which `_put_into_cells` gets it back."""
    sources = ["".join(cell["source"]) for cell in _code_cells(notebook)]
    return _NEXT_CELL.join(map(source_of_cell, sources))


def source_of_cell(text: str) -> str:
    """Return the Python of a cell, with `pass` for lines that are none, such as magics.

    Args:
        text: The cell.

    Example:
        >>> from workbench.training.programs.constants import source_of_cell
        >>> source_of_cell("!pip install timm")
        'pass  # left out: !pip install timm'
    """
    python = _NO_PYTHON.sub(r"\1pass  # left out: \2", text)
    try:
        ast.parse(python)
    except (SyntaxError, ValueError):  # such as a cell for a shell
        return "\n".join(f"pass  # left out: {line}" for line in text.split("\n"))
    return python


def _put_into_cells(notebook: dict[str, Any], source: str) -> None:
    parts = source.split(_NEXT_CELL)
    for cell, part in zip(_code_cells(notebook), parts, strict=True):
        cell["source"] = _LEFT_OUT.sub(r"\1\2", part).splitlines(keepends=True)


def _code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _written(value: Any, before: Any, text: str, suffix: str) -> str:
    """Return a value as the language of a file writes it."""
    if isinstance(before, str):
        quote = text[:1] if text[:1] in ("'", '"') else ""
        if suffix in (".py", ".json", ".toml", ".gin", ".r", ".jl") and not quote:
            quote = '"'
        return json.dumps(str(value)) if quote else str(value)
    if isinstance(before, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(value, bool):
        written = {".r": str(value).upper()} | dict.fromkeys((".py", ".gin"), str(value))
        if suffix in _WITH_TABLES and text in ("True", "False"):
            return str(value)
        return written.get(suffix.lower(), str(value).lower())
    number = repr(value) if isinstance(value, int | float) else str(value)
    if suffix in (*_DOCUMENTS, ".toml"):
        # YAML 1.1 reads 1e-05 as a text.
        mantissa, exponent, rest = number.partition("e")
        if exponent and "." not in mantissa:
            return f"{mantissa}.0e{rest}"
    return number


def _of_python(text: str) -> Iterator[Constant]:
    tree = ast.parse(text)
    starts = _LineStarts(text)
    changed = _changed_later(tree)
    assigned = list(_assigned(tree.body, started=_started(tree)))
    for name, node in assigned:
        value = _value_of(node)
        if isinstance(value, bool | int | float | str) and name not in changed:
            yield Constant(name, value, *starts.of(node))
    is_keras = re.search(r"^\s*(?:from|import) +(?:tensorflow\.)?keras\b", text, re.MULTILINE)
    in_code = _CodeValues(
        {id(node) for _, node in assigned}, changed, is_keras=is_keras is not None
    )
    in_code.visit(tree)
    for name, code in in_code.named({name for name, _ in assigned}):
        value = _value_of(code.node)
        if isinstance(value, bool | int | float | str):
            place = starts.of(code.node)
            yield Constant(name, value, *place, code.scope, code.is_default)


def _changed_later(tree: ast.Module) -> frozenset[str]:
    """Return the names that count or remember something: `best = 0` with `global best`."""
    changed: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=names):
                changed.update(names)
            case ast.AugAssign(target=target):
                changed.add(dotted_name(target, with_keys=True))
    return frozenset(changed)


@dataclass(frozen=True)
class _CodeValue:
    """A value in a call, a signature or a function."""

    name: str
    node: ast.expr
    scope: str
    is_default: bool = False


class _CodeValues(ast.NodeVisitor):
    """Names the values that are not assigned at the top of a module.

    `optimizer = SGD(params, lr=0.1)` has `optimizer.lr`, `fit(x, batch_size=8)` has
    `fit.batch_size`, and `def net(width=8)` has `net.width`.
    """

    def __init__(self, others: set[int], changed: frozenset[str], *, is_keras: bool) -> None:
        self._others, self._changed, self._is_keras = others, changed, is_keras
        self._scope: list[str] = []
        self._values: list[_CodeValue] = []
        self._owners: dict[int, str] = {}
        self._times_assigned = Counter[str]()

    def named(self, taken: set[str]) -> Iterator[tuple[str, _CodeValue]]:
        """Yield the values by names. A name that is not unique has that of its function before it.

        Args:
            taken: Names of other values.
        """
        short = Counter(value.name for value in self._values)
        long = Counter(f"{value.scope}.{value.name}" for value in self._values)
        given = Counter(value.name for value in self._values if not value.is_default)
        num_used = Counter(value.name for value in self._values if not _is_zero(value))
        for value in self._values:
            is_replaced = value.is_default and given[value.name] > 0
            if self._times_assigned[value.name] > 1:
                if self._is_always_same(value) and value.name not in taken:
                    yield value.name, value
                continue
            if is_replaced:
                continue
            with_scope = f"{value.scope}.{value.name}"
            # A call replaces a default. Of `decay: 0.1` and `decay: 0`, one is in use.
            is_meant = given[value.name] == 1 and not value.is_default
            is_meant = is_meant or (num_used[value.name] == 1 and not _is_zero(value))
            if (short[value.name] == 1 or is_meant) and value.name not in taken:
                yield value.name, value
            elif value.scope and long[with_scope] == 1 and with_scope not in taken:
                yield with_scope, value
            elif short[value.name] <= _MAX_NUMBERED and _NUMBERED.search(value.name):
                place = [other for other in self._values if other.name == value.name].index(value)
                owner, _, rest = value.name.partition(".")
                yield f"{owner}_{place + 1}.{rest}", value

    def _is_always_same(self, value: _CodeValue) -> bool:
        """Return whether a name that is assigned several times gets the same value each time."""
        same = [other for other in self._values if other.name == value.name]
        written = {ast.dump(other.node) for other in same}
        return len(written) == 1 and len(same) == self._times_assigned[value.name]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        name = [] if node.name == "__init__" and self._scope else [node.name]
        self._scope += name
        positional = [*node.args.posonlyargs, *node.args.args]
        defaults = node.args.defaults
        pairs = zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
        keyword_only = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for argument, default in (*pairs, *keyword_only):
            if default is not None:
                self._add(f"{self._place}.{argument.arg}", default, is_default=True)
        self.generic_visit(node)
        del self._scope[len(self._scope) - len(name) :]

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(node.value, ast.Call):
            self._owners[id(node.value)] = dotted_name(target, with_keys=True).rpartition(".")[2]
        elif self._scope and len(node.targets) == 1:
            for name, value in _nested(target, node.value, ""):
                self._times_assigned[f"{self._place}.{name.removeprefix('self.')}"] += 1
                if name not in self._changed:
                    self._add(f"{self._place}.{name.removeprefix('self.')}", value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = dotted_name(node.func, with_keys=True).rpartition(".")[2]
        if called and called not in _FIELDS and not _DECLARES.search(called):
            owner = self._owners.get(id(node)) or called
            for word in node.keywords:
                if word.arg and not (called[0].islower() and word.arg in _OF_ARRAYS):
                    self._add(f"{owner}.{word.arg}", word.value)
            numbers = [item for item in node.args if _is_number(item)]
            if numbers and _OPTIMIZER.search(called):
                self._add(f"{owner}.lr", numbers[0])
            elif numbers and _DROPOUT.search(called):
                self._add(f"{owner}.dropout", numbers[0])
            elif node.args[:1] == numbers[:1] != [] and called in _RECURRENT and self._is_keras:
                self._add(f"{called}.units", numbers[0])
        self.generic_visit(node)

    @property
    def _place(self) -> str:
        return ".".join(self._scope)

    def _add(self, name: str, node: ast.expr, *, is_default: bool = False) -> None:
        for full, inner in _values_in(name, node):
            if id(inner) not in self._others and _value_of(inner) is not None:
                self._others.add(id(inner))
                self._values.append(_CodeValue(full, inner, self._place, is_default))


def _is_zero(value: _CodeValue) -> bool:
    return _number_of(value.node) == 0


def _is_number(node: ast.expr) -> bool:
    value = _number_of(node)
    return value is not None and not isinstance(value, bool)


class _LineStarts:
    """Turns places of nodes, in bytes of a line, into places in a text."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.lineno, node.col_offset), self._place(
            node.end_lineno, node.end_col_offset
        )

    def _place(self, line: int, offset: int) -> int:
        before = self._lines[line - 1].encode()[:offset].decode()
        return self._starts[line - 1] + len(before)


def _started(tree: ast.Module) -> frozenset[str]:
    """Return the functions without parameters that a module calls when it is started."""
    bodies = [tree.body]
    bodies += [
        statement.body
        for statement in tree.body
        if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)
    ]
    return frozenset(
        statement.value.func.id
        for body in bodies
        for statement in body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and not (statement.value.args or statement.value.keywords)
    ) | {"get_config", "main", "config"}


def _assigned(
    body: list[ast.stmt], prefix: str = "", started: frozenset[str] = frozenset()
) -> Iterator[tuple[str, ast.expr]]:
    """Yield what is assigned at the top of a module, with the names of nested values."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[target], value=value):
                yield from _nested(target, value, prefix)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _nested(target, value, prefix)
            case ast.ClassDef(name=name, body=inner) if not prefix:
                yield from _assigned(inner, f"{name}.")
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), body=inner):
                yield from _assigned(inner)
            case ast.FunctionDef(name=name, body=inner) if name in started:
                if not statement.args.args:
                    yield from _assigned(inner, prefix)


def _nested(target: ast.expr, value: ast.expr, prefix: str) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one_target, one_value in zip(target.elts, value.elts, strict=False):
            yield from _nested(one_target, one_value, prefix)
        return
    name = dotted_name(target, with_keys=True)
    if name:
        yield from _values_in(f"{prefix}{name}", value)


def _values_in(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from _values_in(f"{name}.{key.value}", item)
        return
    if isinstance(value, ast.List) and any(isinstance(item, ast.Dict) for item in value.elts):
        yield from _values_in_groups(name, value)
        return
    called = (
        dotted_name(value.func, with_keys=True).rpartition(".")[2]
        if isinstance(value, ast.Call)
        else ""
    )
    if isinstance(value, ast.Call) and called in _MAPPINGS:
        yield from _values_in_call(name, value)
    elif isinstance(value, ast.Call) and called in _FIELDS:
        defaults = [word.value for word in value.keywords if word.arg == "default"]
        yield from ((name, default) for default in [*defaults, *value.args][:1])
    elif isinstance(value, ast.Call) and called in ("int", "float") and value.args:
        yield name, value.args[0]
    else:
        yield name, value


def _values_in_groups(name: str, groups: ast.List) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values in a list of dicts, such as the groups of parameters of an optimizer.

    Groups without weight decay have it as 0, which is not what their author varies.
    """
    values = [pair for group in groups.elts for pair in _values_in(name, group) if group != pair[1]]
    num_given = Counter(inner for inner, _ in values)
    for inner, node in values:
        if num_given[inner] == 1 or _number_of(node) != 0:
            yield inner, node


def _values_in_call(name: str, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for word in call.keywords:
        if word.arg:
            yield from _values_in(f"{name}.{word.arg}", word.value)
    for item in call.args[:1]:
        if isinstance(item, ast.Dict | ast.Call):
            yield from _values_in(name, item)


def dotted_name(node: ast.AST | None, *, with_keys: bool = False) -> str:
    """Return a dotted name such as torch.optim.Adam, or "" for anything else.

    Args:
        node: A part of a source.
        with_keys: Whether config["lr"] is a name too: config.lr.
    """
    match node:
        case ast.Attribute(value=owner, attr=last):
            before = dotted_name(owner, with_keys=with_keys)
        case ast.Subscript(value=owner, slice=ast.Constant(value=last)) if with_keys:
            before = dotted_name(owner, with_keys=True)
        case _:
            return node.id if isinstance(node, ast.Name) else ""
    return f"{before}.{last}" if before else ""


def _value_of(node: ast.expr) -> Any:
    """Return the value of a literal, or of arithmetic with numbers such as 2**19, else None."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        pass
    return _number_of(node)


def _number_of(node: ast.expr) -> int | float | None:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return None
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _number_of(node.operand)
        return None if operand is None else -operand
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _ARITHMETIC):
        return None
    left = _number_of(node.left)
    right = _number_of(node.right)
    if left is None or right is None:
        return None
    return _combined(left, node.op, right)


def _combined(left: float, operation: ast.operator, right: float) -> int | float | None:
    if isinstance(operation, ast.Div | ast.FloorDiv) and right == 0:
        return None
    match operation:
        case ast.Add():
            value = left + right
        case ast.Sub():
            value = left - right
        case ast.Mult():
            value = left * right
        case ast.Div():
            value = left / right
        case ast.FloorDiv():
            value = left // right
        case _ if abs(right) <= _MAX_POWER and (left != 0 or right > 0):
            value = left**right
        case _:
            return None
    is_finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_finite else None


def _of_document(text: str) -> Iterator[Constant]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        roots = list(YAML(typ="safe", pure=True).compose_all(text))
    except YAMLError:
        return
    for root in roots:
        if root is not None:
            yield from _of_node(root, "", text)


def _of_node(node: Any, name: str, text: str) -> Iterator[Constant]:
    from ruamel.yaml.nodes import MappingNode, ScalarNode

    if isinstance(node, MappingNode):
        for key, item in node.value:
            if isinstance(key, ScalarNode):
                yield from _of_node(item, f"{name}.{key.value}".lstrip("."), text)
    elif isinstance(node, ScalarNode) and name:
        start = node.start_mark.index
        end = node.end_mark.index
        if (tag := _NUMBER_TAG.match(text, start, end)) is not None:
            start = tag.end()
        elif text[start : start + 1] == "!":
            return
        value = node.value if node.style in ("'", '"') else _plain_value(text[start:end])
        if node.style in (None, "", "'", '"') and value is not None:
            yield Constant(name, value, start, end)


def _plain_value(text: str) -> Any:
    """Return the value of a word: true or false, a number, or the word itself."""
    word = text.strip().strip("\"'")
    if text.strip() in ("true", "True", "TRUE", "T", "yes"):
        return True
    if text.strip() in ("false", "False", "FALSE", "F", "no"):
        return False
    if word in ("null", "~", "None", "", "NULL", "NA"):
        return None
    for kind in (int, float):
        try:
            number = kind(word.replace("_", "").removesuffix("L") if kind is int else word)
        except ValueError:
            continue
        return number if math.isfinite(number) else word
    return word


def _of_tables(text: str, form: re.Pattern[str]) -> Iterator[Constant]:
    table, place = "", 0
    for line in text.splitlines(keepends=True):
        if (header := _TABLE.match(line)) is not None:
            table = header["name"].replace('"', "") + "."
        elif line.lstrip().startswith("[["):
            table = "[]"
        elif table != "[]" and (match := form.match(line)) is not None:
            is_text = match["value"][0] in "\"'"
            value = match["value"][1:-1] if is_text else _plain_value(match["value"])
            if value is not None:
                start = place + match.start("value")
                yield Constant(f"{table}{match['name']}", value, start, place + match.end("value"))
        place += len(line)


def _of_lists(text: str, form: re.Pattern[str]) -> Iterator[Constant]:
    """Yield the values in lists at the top of a script: `params <- list(eta = 0.1)` in R."""
    for start in form.finditer(text):
        depth, end = 1, start.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        for item in _LIST_ITEM.finditer(text, start.end(), end):
            is_text = item["value"][0] in "\"'"
            value = item["value"][1:-1] if is_text else _plain_value(item["value"])
            name = f"{start['name']}.{item['name']}"
            yield Constant(name, value, item.start("value"), item.end("value"))


def _of_lines(text: str, form: re.Pattern[str]) -> Iterator[Constant]:
    place = 0
    for line in text.splitlines(keepends=True):
        match = form.match(line.rstrip("\n"))
        if match is not None and (value := _plain_value(match["value"])) is not None:
            start = place + match.start("value")
            yield Constant(match["name"], value, start, place + match.end("value"))
        place += len(line)


def main(arguments: list[str]) -> None:
    """Run a program with a copy of a file in which constants have other values.

    Args:
        arguments: The file, its values as NAME=VALUE, then -- and the command. Without a command,
            the file itself is started.

    Raises:
        ArgumentError: If the file cannot be read, or has no such constant.
    """
    if not arguments:
        raise ArgumentError(
            "there is no file", next_step=f"Write python -m {MODULE} train.py LR=0.1."
        )
    path, *rest = arguments
    split = rest.index("--") if "--" in rest else len(rest)
    given, command = rest[:split], rest[split + 1 :]
    values = {
        name: _plain_value(value) for name, _, value in (word.partition("=") for word in given)
    }
    try:
        text = _content(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"cannot read {path}: {error}") from error
    edited = with_constants(text, Path(path).suffix, values)
    if command and path not in command:
        _replace_in_place(path, edited)
        _start(command)
    copy = _keep(Path(path).name, edited)
    if path.endswith(".py") and (not command or path in command[1:2]):
        _run_python(path, edited, command[2:] if command else [])
        return
    command = [str(copy) if word == path else word for word in command]
    if not command:
        command = [{".r": "Rscript", ".jl": "julia"}.get(copy.suffix.lower(), "bash"), str(copy)]
    _start(command)


def _start(command: list[str]) -> NoReturn:
    """Replace this process by a command."""
    if command[0] == "python":
        command = [sys.executable, *command[1:]]
    os.execvp(command[0], command)


def _replace_in_place(path: str, text: str) -> None:
    """Write the file that a program finds by itself, in the working folder of a trial.

    Raises:
        ArgumentError: If the trial has no working folder of its own.
    """
    folder = os.environ.get("WORKBENCH_FOLDER")
    if folder is None or Path(folder).resolve() != Path.cwd().resolve():
        raise ArgumentError(
            f"the command does not name {path}, so a copy cannot be passed to it",
            next_step=f"Name {path} in the command, or write workdir: fresh.",
        )
    place = Path(path)
    if not place.resolve().is_relative_to(Path.cwd().resolve()) or place.is_symlink():
        raise ArgumentError(
            f"{path} is not in the working folder of the trial",
            next_step="Write its path relative to the folder of the run.",
        )
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(place)


def _content(path: str) -> str:
    """Return the version of a file that the run has kept, if it has one."""
    folder = os.environ.get(VARIABLE)
    place = os.path.abspath(path)
    if folder:
        kept = KeptFiles(folder)
        if kept.place(place) is not None:
            if seen := os.environ.get(SEEN_VARIABLE):
                Path(seen).touch()
            return kept.content(place).decode()
    return Path(path).read_text(encoding="utf-8")


def _keep(name: str, text: str) -> Path:
    """Write a copy into the folder of the trial, where it is kept, and return its path."""
    folder = os.environ.get("WORKBENCH_FOLDER") or tempfile.mkdtemp(prefix="workbench-")
    path = Path(folder, f"with-values-{name}")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path


def _run_python(path: str, text: str, arguments: list[str]) -> None:
    """Run the source of a script as if its file had it."""
    script = ModuleType("__main__")
    script.__file__ = path
    script.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = script
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    exec(compile(text, path, "exec"), script.__dict__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ArgumentError as error:
        sys.exit(str(error))
