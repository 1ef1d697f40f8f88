"""Under which values of other options a program uses an option.

`args.huber_delta` below `if args.loss == "huber"` has no effect while the loss is another one. Each
use is looked at with the tests around it, those of the callers of its function included. A test is
true, false, or not known, as the options are by default.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from workbench.runs.scripts.program_source import ProgramSource
from workbench.runs.scripts.script_options import (
    ScriptOption,
    called_name,
    children_of,
    name_words,
    plain_name,
    walk,
)
from workbench.runs.scripts.static_values import literal_of

OptionIn = Callable[[str, ast.expr | None], str | None]
"""Returns the option that an expression in a function is the value of, or None."""
_SAYS = frozenset(
    ("print", "info", "debug", "warning", "warn", "log", "write", "echo", "add_argument")
)
"""Functions that say a value, which is no use of it."""
_SET_BY_COMMAND = frozenset(
    (
        *("train", "training", "eval", "evaluate", "evaluation", "val", "valid", "validate"),
        *("validation", "test", "do", "run", "mode", "phase", "stage", "task", "action", "status"),
        *("cuda", "gpu", "gpus", "device", "distributed", "dist", "wandb", "tensorboard", "log"),
        *("debug", "resume", "local", "rank", "world"),
    )
)
"""Words of options that the machine or the command of a trial decides."""
_BY_NAME = ("option", "apart", "single", "switch", "off", "both")
"""How options are passed that can be left out of the command of a trial."""
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_MAX_CALLERS = 3
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: lambda value, other: value is other,
    ast.IsNot: lambda value, other: value is not other,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, others: value in others,
    ast.NotIn: lambda value, others: value not in others,
}


@dataclass(frozen=True)
class _Guard:
    """A test that must have a result where something is."""

    function: str
    test: ast.expr
    wanted: bool


_Guards = tuple[_Guard, ...]


class Conditions:
    """Knows where a program uses its options, and what must hold there."""

    def __init__(self, program: ProgramSource, option_in: OptionIn, passed_on: set[int]) -> None:
        """Look at all uses.

        Args:
            program: The program.
            option_in: How options are recognized.
            passed_on: The nodes that only give an option to a variable or parameter.
        """
        self._option_in = option_in
        self._passed_on = passed_on
        self._uses: dict[str, list[tuple[str, _Guards]]] = {}
        self._callers: dict[str, list[tuple[str, _Guards]]] = {}
        self._assigned: set[str] = set()
        for module in program.modules:
            self._visit_block(module.tree.body, "", ())

    def applied_to(self, options: list[ScriptOption]) -> list[ScriptOption]:
        """Return options, with what must hold for those that do not always have an effect."""
        names = [plain_name(option) for option in options]
        by_name = {
            plain_name(option): option for option in options if names.count(plain_name(option)) == 1
        }
        defaults = {
            name: option.default
            for name, option in by_name.items()
            if option.default is not None
            and not option.is_required
            and name not in self._assigned
            and not set(name_words(name)) & _SET_BY_COMMAND
        }
        return [
            self._with_condition(option, by_name, defaults)
            if by_name.get(plain_name(option)) is option
            else option
            for option in options
        ]

    def _with_condition(
        self, option: ScriptOption, by_name: Mapping[str, ScriptOption], defaults: dict[str, Any]
    ) -> ScriptOption:
        uses = self._uses.get(plain_name(option), [])
        if not uses or option.is_required:
            return option
        has_effect = any(self._may_run(use, defaults) for use in uses)
        for name in dict.fromkeys(self._tested_by(uses, defaults)):
            other = by_name[name]
            values = (True, False) if other.is_flag else other.choices
            wanted = tuple(
                value
                for value in values
                if any(self._may_run(use, {**defaults, name: value}) for use in uses)
            )
            if wanted and wanted != values and option.way in _BY_NAME:
                return replace(option, needs=(other.name, wanted))
        return option if has_effect else replace(option, has_effect=False)

    def _tested_by(
        self, uses: Iterable[tuple[str, _Guards]], defaults: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield the options because of which uses do not run."""
        for function, guards in uses:
            for guard in (*guards, *self._of_callers(function)):
                for part in walk(guard.test):
                    name = self._option_in(guard.function, part) if _is_value(part) else None
                    if name is not None and name in defaults:
                        yield name

    def _of_callers(self, function: str) -> Iterator[_Guard]:
        for _, guards in self._callers.get(function, []):
            yield from guards

    def _may_run(self, use: tuple[str, _Guards], values: Mapping[str, Any], depth: int = 0) -> bool:
        """Return whether a use is reached with the values of options, as far as is known."""
        function, guards = use
        if any(self._truth(guard, values) is (not guard.wanted) for guard in guards):
            return False
        callers = self._callers.get(function, []) if depth < _MAX_CALLERS else []
        return not callers or any(self._may_run(caller, values, depth + 1) for caller in callers)

    def _truth(self, guard: _Guard, values: Mapping[str, Any]) -> bool | None:
        return self._truth_of(guard.function, guard.test, values)

    def _truth_of(self, function: str, test: ast.expr, values: Mapping[str, Any]) -> bool | None:
        """Return whether a test holds, or None if that is not known."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self._truth_of(function, operand, values)
                return None if known is None else not known
            case ast.BoolOp(op=op, values=parts):
                results = [self._truth_of(function, part, values) for part in parts]
                decisive = isinstance(op, ast.Or)
                if decisive in results:
                    return decisive
                return None if None in results else not decisive
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                first = self._value_of(function, left, values)
                second = self._value_of(function, right, values)
                return None if not first or not second else _compared(op, first[0], second[0])
        known = self._value_of(function, test, values)
        return bool(known[0]) if known else None

    def _value_of(
        self, function: str, node: ast.expr, values: Mapping[str, Any]
    ) -> tuple[Any] | tuple[()]:
        """Return the value of an expression in a tuple, or an empty one if it is not known."""
        name = self._option_in(function, node)
        if name is not None:
            return (values[name],) if name in values else ()
        try:
            return (ast.literal_eval(node),)
        except (ValueError, TypeError, SyntaxError):
            return ()

    def _visit_block(self, block: list[ast.stmt], function: str, guards: _Guards) -> None:
        for statement in block:
            self._visit(statement, function, guards)
            if isinstance(statement, ast.If) and isinstance(statement.body[-1], _ENDS):
                guards = (*guards, _Guard(function, statement.test, wanted=False))

    def _visit(self, node: ast.AST, function: str, guards: _Guards) -> None:
        match node:
            case ast.FunctionDef(name=name, body=body):
                self._visit_block(body, name if name != "__init__" else function, guards)
            case ast.ClassDef(name=name, body=body):
                self._visit_block(body, name, guards)
            case ast.If() | ast.IfExp():
                self._visit_choice(node, function, guards)
            case ast.BoolOp(op=op, values=values):
                for value in values:
                    self._visit(value, function, guards)
                    is_and = isinstance(op, ast.And)
                    guards = (*guards, _Guard(function, value, wanted=is_and))
            case ast.Match(subject=subject, cases=cases):
                self._visit(subject, function, guards)
                for case in cases:
                    test = _as_test(subject, case.pattern)
                    own = () if test is None else (_Guard(function, test, wanted=True),)
                    self._visit_block(case.body, function, (*guards, *own))
            case ast.JoinedStr():
                return
            case _:
                self._visit_others(node, function, guards)

    def _visit_choice(self, node: ast.If | ast.IfExp, function: str, guards: _Guards) -> None:
        self._visit(node.test, function, guards)
        for branch, wanted in ((node.body, True), (node.orelse, False)):
            own = (*guards, _Guard(function, node.test, wanted=wanted))
            if isinstance(branch, list):
                self._visit_block(branch, function, own)
            else:
                self._visit(branch, function, own)

    def _visit_others(self, node: ast.AST, function: str, guards: _Guards) -> None:
        if isinstance(node, ast.Call) and called_name(node) in _SAYS:
            return
        if isinstance(node, ast.Call) and called_name(node):
            self._callers.setdefault(called_name(node), []).append((function, guards))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            self._assigned.add(node.attr)
        elif _is_value(node) and id(node) not in self._passed_on:
            name = self._option_in(function, node)
            if name is not None:
                self._uses.setdefault(name, []).append((function, guards))
        children = children_of(node)
        if any(isinstance(child, ast.stmt) for child in children):
            self._visit_fields(node, function, guards)
            return
        for child in children:
            if not isinstance(child, _LEAVES):
                self._visit(child, function, guards)

    def _visit_fields(self, node: ast.AST, function: str, guards: _Guards) -> None:
        """Visit what a statement with blocks consists of."""
        for _, value in ast.iter_fields(node):
            items = value if isinstance(value, list) else [value]
            if statements := [item for item in items if isinstance(item, ast.stmt)]:
                self._visit_block(statements, function, guards)
                continue
            for item in items:
                if isinstance(item, ast.AST):
                    self._visit(item, function, guards)


_LEAVES = (ast.Constant, ast.operator, ast.cmpop, ast.unaryop, ast.boolop, ast.expr_context)


def _is_value(node: ast.AST) -> TypeGuard[ast.expr]:
    return isinstance(node, ast.Attribute | ast.Subscript | ast.Name | ast.Call)


def _as_test(subject: ast.expr, pattern: ast.pattern) -> ast.expr | None:
    """Return the test of a case as an expression, or None if it is not about a value."""
    values = [part.value for part in walk(pattern) if isinstance(part, ast.MatchValue)]
    if not values or not all(isinstance(literal_of(value), str) for value in values):
        return None
    return ast.Compare(subject, [ast.In()], [ast.Tuple(values, ast.Load())])


def _compared(op: ast.cmpop, first: Any, second: Any) -> bool | None:
    texts = isinstance(first, str) and isinstance(second, str)
    if texts and isinstance(op, ast.Eq | ast.NotEq):
        first, second = first.lower(), second.lower()
    try:
        return bool(_COMPARES[type(op)](first, second))
    except TypeError:
        return None
