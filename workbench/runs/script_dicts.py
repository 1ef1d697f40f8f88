"""The names in dicts that a script prints, and in those that the Trainer of Hugging Face prints for
it.

Which of them are metrics is left to `script_metrics`. The script is read, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from workbench.runs.script_option import called_name

_PRINT = ("print", "pprint", "info", "write", "echo")
_WITH_TRAINERS = ("transformers", "trl", "setfit", "sentence_transformers")
_NUM_PASSES = 3
"""So many steps may lie between the dict and its printing.

Of a function, its result, and an update of it.
"""


def names_in_dicts(tree: ast.Module, holds_several: Callable[[ast.expr], bool]) -> list[str]:
    """Return the keys of the dicts that a script prints, each once.

    Args:
        tree: The script.
        holds_several: Returns whether an expression never is one number.
    """
    dicts = _Dicts(tree, holds_several)
    printed = [
        node
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and called_name(call) in _PRINT
        for argument in call.args
        for node in ast.walk(argument)
        if isinstance(node, ast.expr)
    ]
    names = [name for node in printed for name in dicts.keys_of(node)]
    return list(dict.fromkeys([*_names_of_trainer(tree, dicts), *names]))


class _Dicts:
    """The keys of the dicts of a script, by the variables that hold and the functions that return
    them.
    """

    def __init__(self, tree: ast.Module, holds_several: Callable[[ast.expr], bool]) -> None:
        self._holds_several = holds_several
        self._of_variables: dict[str, list[str]] = {}
        self._of_functions: dict[str, list[str]] = {}
        self._loaded = [
            name.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and called_name(node) in ("load", "load_metric")
            and len(node.args) == 1
            and isinstance(name := node.args[0], ast.Constant)
            and isinstance(name.value, str)
        ]
        for _ in range(_NUM_PASSES):
            for node in ast.walk(tree):
                self._learn(node)

    def keys_of(self, node: ast.expr | None) -> Iterator[str]:
        """Yield the keys of the dict that an expression is.

        Nothing where it is none, or not known.
        """
        match node:
            case ast.Dict():
                yield from self._keys_in(node)
            case ast.Call(func=ast.Name(id="dict"), args=args, keywords=keywords):
                yield from (
                    each.arg
                    for each in keywords
                    if each.arg and not self._holds_several(each.value)
                )
                yield from (key for each in args for key in self.keys_of(each))
            case ast.Call(func=ast.Name(id=name)):
                yield from self._of_functions.get(name, ())
            case ast.Call(func=ast.Attribute(attr="compute")):  # a metric of the library evaluate
                yield from self._loaded
            case ast.Name(id=name):
                yield from self._of_variables.get(name, ())
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from (key for each in (left, right) for key in self.keys_of(each))

    def of_function(self, name: str) -> list[str]:
        """Return the keys of the dicts that a function returns."""
        return self._of_functions.get(name, [])

    def _keys_in(self, node: ast.Dict) -> Iterator[str]:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from self.keys_of(value)
            elif isinstance(key, ast.Constant) and not self._holds_several(value):
                yield str(key.value)

    def _learn(self, node: ast.AST) -> None:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
                | ast.AugAssign(target=ast.Name(id=name), op=ast.BitOr(), value=value)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[value])
            ):
                self._add(self._of_variables, name, self.keys_of(value))
            case ast.Assign(
                targets=[
                    ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key))
                ],
                value=value,
            ):
                if not self._holds_several(value):
                    self._add(self._of_variables, name, iter([key]))
            case ast.FunctionDef(name=name):
                for each in ast.walk(node):
                    if isinstance(each, ast.Return):
                        self._add(self._of_functions, name, self.keys_of(each.value))

    @staticmethod
    def _add(known: dict[str, list[str]], name: str, keys: Iterator[str]) -> None:
        found = list(keys)
        if found:
            known[name] = list(dict.fromkeys([*known.get(name, ()), *found]))


def _names_of_trainer(tree: ast.Module, dicts: _Dicts) -> list[str]:
    """Return the losses and scores that a Trainer prints: those of evaluations have a prefix."""
    modules = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    if not any(module.partition(".")[0] in _WITH_TRAINERS for module in modules):
        return []
    trainers = [
        {keyword.arg: keyword.value for keyword in node.keywords}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called_name(node).endswith("Trainer")
    ]
    if not trainers:
        return []
    scores = [
        key
        for given in trainers
        if isinstance(function := given.get("compute_metrics"), ast.Name)
        for key in dicts.of_function(function.id)
    ]
    evaluates = scores or any({"eval_dataset", None} & given.keys() for given in trainers)
    found = [*scores, "loss"] if evaluates else []
    return [*(f"eval_{name.removeprefix('eval_')}" for name in found), "loss"]
