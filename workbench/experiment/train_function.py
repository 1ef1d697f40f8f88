"""How a train function is called.

Which of its parameters receive the configuration, `report`, and the rest.

One place decides it, for the check before a run starts and for the call itself. Where a function is
named by its module, its parameters are read from the source, so that nothing runs before the trial
does.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.experiment.components import Component
from workbench.experiment.module_inspection import definition_of
from workbench.foundation.errors import ExperimentError

BY_NAME = ("seed", "folder", "worker")
"""What a function receives where it has a parameter of this name."""
_ALLOWED = (
    "function(config, report) or function(config); parameters named folder, seed or worker if"
    " needed"
)
_WORDS = ("config", "report")
Kind = Literal["function", "async", "generator", "class", "value"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_WHAT = {
    "async": "an async function, which is not awaited",
    "generator": "a generator, because it uses yield",
    "class": "a class, which trains nothing when it is made",
    "value": "a value",
}


@dataclass(frozen=True)
class TrainCall:
    """The arguments of one call: words that stand for the configuration and for `report`."""

    positional: tuple[str, ...]
    """In order, each of them config, report, seed, folder or worker."""
    named: Mapping[str, str]
    """The same by the name of the parameter."""
    by_value: tuple[str, ...] = ()
    """Parameters with a default that receive the value of their name in the configuration."""

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the call.

        Args:
            values: What each word stands for; only those that the call names are needed.
        """
        named = {name: values[word] for name, word in self.named.items()}
        config = values.get("config", {})
        named |= {name: config[name] for name in self.by_value if name in config}
        return [values[word] for word in self.positional], named


def plan_call(
    signature: inspect.Signature | None, title: str, searched: Collection[str] = ()
) -> TrainCall:
    """Return how a function is called.

    A function receives the configuration and `report`, in this order or by these names; one with a
    single parameter receives the configuration, and what it returns is its result.

    Args:
        signature: The parameters of the function; None where Python cannot determine them.
        title: The name of the function, for the message.
        searched: The names of the parameters in a configuration.

    Raises:
        ExperimentError: If it cannot be called with what there is.
    """
    if signature is None:
        return TrainCall(_WORDS, {})
    parameters = list(signature.parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    given: dict[str, str] = {
        parameter.name: parameter.name
        for parameter in parameters
        if parameter.kind
        in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )
        and parameter.name in (*BY_NAME, *_WORDS)
    }
    words = [word for word in _WORDS if word not in given]
    slots = [parameter for parameter in positional if parameter.name not in given]
    required = [slot.name for slot in slots if _is_required(slot)]
    if len(words) == len(_WORDS) and required and all(name in searched for name in required):
        raise _refused(
            signature,
            title,
            f"would receive the whole configuration as `{required[0]}`",
            f"Take the configuration as one mapping: def {title}(config, report), and read "
            f"config[{required[0]!r}] in it.",
        )
    missing = []
    for slot in slots:
        is_value = "config" in given and slot.name in searched
        if words and not is_value and (_is_required(slot) or _waits_for(slot, words[0])):
            given[slot.name] = words.pop(0)
        elif _is_required(slot):
            missing.append(slot.name)
    first = [
        parameter.name
        for parameter in positional
        if parameter.kind == inspect.Parameter.POSITIONAL_ONLY and parameter.name in given
    ]
    takes_more = any(parameter.kind == inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_more and words and all(parameter.name in given for parameter in positional):
        first = [parameter.name for parameter in positional]
        ordered = [*(given.pop(name) for name in first), *words]
    else:
        ordered = [given.pop(name) for name in first]
    missing += [
        parameter.name
        for parameter in parameters
        if parameter.kind == inspect.Parameter.KEYWORD_ONLY
        and _is_required(parameter)
        and parameter.name not in given
    ]
    if missing:
        raise _refused(
            signature,
            title,
            f"needs {' and '.join(f'`{name}`' for name in missing)}, which nothing gives",
            "Give it a default, bind it with functools.partial, or read it from the configuration.",
        )
    if "config" not in (*ordered, *given.values()):
        raise _refused(
            signature,
            title,
            "has no parameter that receives the configuration",
            f"Write def {title}(config).",
        )
    # A default in the place of a searched value would train something else than what the trial
    # shows.
    by_value = tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind
        in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )
        and parameter.default is not inspect.Parameter.empty
        and parameter.name in searched
        and parameter.name not in given
        and parameter.name not in first
    )
    return TrainCall(tuple(ordered), given, by_value)


def check_kind(kind: Kind, title: str, type_name: str = "") -> None:
    """Refuse what is not a function, and functions that return before they have done anything.

    Args:
        kind: What it is.
        title: Its name.
        type_name: The type of a value.

    Raises:
        ExperimentError: If it is one of them.
    """
    if kind != "function":
        of_type = f" of type {type_name}" if kind == "value" else ""
        raise ExperimentError(
            f"{title} is {_WHAT[kind]}{of_type}",
            field="train",
            allowed="a plain function (config, report)",
            next_step=(
                "Define it by def, and report values by calling report(...) or returning them."
            )
            + (" A class with steps of its own needs data." if kind == "class" else ""),
        )


def kind_of(function: Any) -> Kind:
    """Return what an object is that was named as a train function."""
    if inspect.isclass(function):
        return "class"
    if not callable(function):
        return "value"
    called: Any = inspect.unwrap(function) if inspect.isfunction(function) else function
    while isinstance(called, functools.partial):
        called = called.func
    made = called if inspect.isroutine(called) else type(called).__call__
    for candidate in (function, made):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return "async"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return "function"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function; None where Python cannot determine them."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def check_train_function(component: Component, searched: Collection[str]) -> None:
    """Refuse a train function that cannot be called, before a run starts and without running its
    module.

    Args:
        component: What `train` of an experiment names.
        searched: The names of the parameters in a configuration.

    Raises:
        ExperimentError: If it is not a function, or has parameters that nothing gives.
    """
    if component.payload_hash is not None:
        if component.payload is not None:
            function = component.load(field="train")
            check_kind(kind_of(function), component.short_name, type(function).__name__)
            plan_call(signature_of(function), component.short_name, searched)
        return
    definition = definition_of(component)
    if definition is None or definition.decorator_list:
        return  # only known when it is imported, which the trial does
    if isinstance(definition, ast.ClassDef):
        check_kind("class", component.title)
        return
    if isinstance(definition, ast.AsyncFunctionDef):
        check_kind("async", component.title)
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(definition)):
        check_kind("generator", component.title)
    plan_call(_signature_in(definition.args), component.short_name, searched)


def _signature_in(arguments: ast.arguments) -> inspect.Signature:
    """Return the parameters of a function in source; the values of defaults are left out."""
    names = [*arguments.posonlyargs, *arguments.args]
    num_required = len(names) - len(arguments.defaults)
    parameters = []
    for number, item in enumerate(names):
        kind = _POSITIONAL[number >= len(arguments.posonlyargs)]
        default = inspect.Parameter.empty
        if number >= num_required:
            default = _default_of(arguments.defaults[number - num_required])
        parameters.append(inspect.Parameter(item.arg, kind, default=default))
    if arguments.vararg is not None:
        parameters.append(inspect.Parameter(arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    for item, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = inspect.Parameter.empty if node is None else _default_of(node)
        parameters.append(
            inspect.Parameter(item.arg, inspect.Parameter.KEYWORD_ONLY, default=default)
        )
    if arguments.kwarg is not None:
        parameters.append(inspect.Parameter(arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _default_of(node: ast.expr) -> Any:
    """Return a default that is written as a plain value; `...` for any other."""
    return node.value if isinstance(node, ast.Constant) else ...


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes in a function, but for those of functions and classes that it defines."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _waits_for(parameter: inspect.Parameter, word: str) -> bool:
    """Return whether an optional parameter is meant for a word.

    Its default is None, or its name shows it.
    """
    return parameter.default is None or word in parameter.name.lower()


def _refused(
    signature: inspect.Signature, title: str, problem: str, next_step: str
) -> ExperimentError:
    written = str(signature.replace(return_annotation=inspect.Signature.empty))
    return ExperimentError(
        f"{title}{written} {problem}", field="train", allowed=_ALLOWED, next_step=next_step
    )
