"""What the functions of a program are called with, as far as it names a metric.

In `show("Validation", loss)`, the function is given a part of the data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from workbench.runs.scripts.program_source import Module
from workbench.runs.scripts.script_metrics import (
    dicts_given,
    looped_words,
    static_texts,
    texts_of_dicts,
)
from workbench.runs.scripts.script_options import called_name, last_name, walk
from workbench.runs.scripts.static_values import KeptValues, literal_of
from workbench.training.programs.metric_names import split_word

REPORTING_METHODS = (
    "log",
    "log_dict",
    "log_metrics",
    "log_metric",
    "add_scalar",
    "add_scalars",
    "scalar",
)
"""Methods that take the name of a metric first."""
Given = dict[str, dict[str, list[str]]]
"""The parts of the data that calls name: by function, then by parameter."""


@dataclass(frozen=True)
class Calls:
    """What the functions of a program are called with.

    Attributes:
        words: The parts of the data that calls name: by function, then by parameter.
        dicts: The texts of dicts: by function, then by parameter.
        curves: The functions that draw curves, with the places of the name and of the dict.
        kept: By which values it keeps its best model.
        off: Its switches that are off.
    """

    words: Given
    dicts: Mapping[str, Mapping[str, str]]
    curves: Mapping[str, tuple[int, int]]
    kept: KeptValues
    off: frozenset[str] = frozenset()


def calls_in(modules: list[Module], off: frozenset[str]) -> Calls:
    """Return what the functions of a program are called with.

    Args:
        modules: The modules of the program.
        off: Its switches that are off by default.
    """
    return Calls(
        words=_words_given(modules),
        dicts=_dicts_given(modules),
        curves=_curves_of_functions(modules),
        kept=KeptValues([module.tree for module in modules]),
        off=off,
    )


def _words_given(modules: list[Module]) -> Given:
    """Return which parts of the data functions are called with, as in `show("Validation", loss)`.

    Classes are functions as well: `Logger(name="val")`.
    """
    parameters = _all_parameters(modules)
    tags = {(name, tag) for module in modules for name, tag in _tags_of_functions(module.tree)}
    given: Given = _words_by_default(modules)
    for module in modules:
        lists = {
            last_name(node.targets[0]): node.value.elts
            for node in walk(module.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple)
        }
        looped = looped_words(module.tree)
        for call in walk(module.tree):
            if not isinstance(call, ast.Call) or (name := called_name(call)) not in parameters:
                continue
            passed = [*zip(parameters[name], call.args, strict=False)]
            passed += [(word.arg, word.value) for word in call.keywords if word.arg]
            for parameter, value in passed:
                words = given.get(name, {}).get(parameter, [])
                new = [*words, *_split_words(value, lists, looped)]
                if (name, parameter) in tags:
                    new += static_texts(value, looped)
                if new:
                    given.setdefault(name, {})[parameter] = list(dict.fromkeys(new))
    return given


def _all_parameters(modules: Iterable[Module]) -> dict[str, list[str]]:
    return {
        name: names
        for module in modules
        for node in walk(module.tree)
        for name, names in _parameters_of(node)
    }


def _dicts_given(modules: list[Module]) -> dict[str, dict[str, str]]:
    """Return the texts of the dicts that functions are called with."""
    parameters = _all_parameters(modules)
    whole = {name: text for m in modules for name, text in texts_of_dicts(m.tree).items()}
    given: dict[str, dict[str, str]] = {}
    for module in modules:
        for name, dicts in dicts_given(module.tree, parameters, whole).items():
            known = given.setdefault(name, {})
            known |= {
                parameter: text for parameter, text in dicts.items() if parameter not in known
            }
    return given


def _curves_of_functions(modules: list[Module]) -> dict[str, tuple[int, int]]:
    """Return the functions that give a name and a dict to `add_scalars`, and their places."""
    curves = {"add_scalars": (0, 1)}
    for function in (node for module in modules for node in walk(module.tree)):
        for name, parameters in _parameters_of(function):
            for call in walk(function):
                match call:
                    case ast.Call(
                        func=ast.Attribute(attr="add_scalars"),
                        args=[ast.Name(id=tag), ast.Name(id=values), *_],
                    ) if tag in parameters and values in parameters:
                        curves[name] = parameters.index(tag), parameters.index(values)
    return curves


def _tags_of_functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions that pass on a name to a logger, and the parameters that it is from."""
    for function in walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in walk(function):
            if isinstance(call, ast.Call) and called_name(call) in REPORTING_METHODS and call.args:
                for part in walk(call.args[0]):
                    if isinstance(part, ast.Name):
                        yield function.name, part.id


def _words_by_default(modules: list[Module]) -> Given:
    """Return the parts of the data that are defaults: `def evaluate(data, kind="Valid")`."""
    given: Given = {}
    for module in modules:
        for node in walk(module.tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args]
            defaults = node.args.defaults
            with_default = arguments[len(arguments) - len(defaults) :]
            for argument, default in zip(with_default, defaults, strict=True):
                if words := _split_words(default, {}, {}):
                    given.setdefault(node.name, {})[argument.arg] = words
    return given


def _split_words(
    value: ast.expr, lists: Mapping[str, list[ast.expr]], looped: Mapping[str, list[str]]
) -> list[str]:
    """Return the words that an argument may be, if one of them names a part of the data."""
    match value:
        case ast.Name(id=name) if name in looped:
            words = looped[name]
        case ast.Subscript(value=owner):
            words = [literal_of(item) for item in lists.get(last_name(owner), [])]
        case _:
            words = [literal_of(value)]
    known = [word for word in words if isinstance(word, str)]
    return known if any(split_word(word.strip(" :_-[]/")) for word in known) else []


def _parameters_of(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the parameters of a function, or those that objects of a class are made with."""
    match node:
        case ast.FunctionDef(name=name, args=arguments):
            names = [argument.arg for argument in arguments.args]
            yield name, names[1:] if names[:1] == ["self"] else names
        case ast.ClassDef(name=name, body=body):
            for method in body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    yield name, [argument.arg for argument in method.args.args[1:]]
