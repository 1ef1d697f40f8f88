"""How to call a train function: which parameters receive the configuration, `report` and the rest.

The check before a run and the call itself both use this module. If a function is given by its
module, its parameters are read from the source, so that none of your code runs before the trial.
An imported run has the tool that ran it in place of a function: there is nothing here to start.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workbench.experiment.components import Component
from workbench.experiment.module_inspection import definition_of
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.formatting import joined_by_and

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

_IMPORTED = "imported:"
IMPORTED_TAG = "imported"
"""The tag of imported runs. Users may remove it."""
BY_NAME = ("seed", "folder", "worker")
"""Values that a function receives if it has a parameter of this name."""
_ALLOWED = (
    "function(config, report) or function(config), and also parameters named folder, seed or worker"
)
_WORDS = ("config", "report")
Kind = Literal["function", "async", "generator", "class", "value"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_WHAT = {
    "async": "an async function, which would never be awaited",
    "generator": "a generator, because it uses yield",
    "class": "a class, and making an object does not train anything",
    "value": "a value",
}


@dataclass(frozen=True)
class TrainCall:
    """The arguments of one call, as words: config, report, seed, folder or worker."""

    positional: tuple[str, ...]
    """The words of positional arguments, in order."""
    named: Mapping[str, str]
    """The words of keyword arguments, by the name of the parameter."""
    by_value: tuple[str, ...] = ()
    """Parameters with a default that receive the value with their name in the configuration."""

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the call.

        Args:
            values: The value of each word that the call uses.
        """
        named = {name: values[word] for name, word in self.named.items()}
        config = values.get("config", {})
        named |= {name: config[name] for name in self.by_value if name in config}
        return [values[word] for word in self.positional], named


def plan_call(
    signature: inspect.Signature | None, title: str, searched: Collection[str] = ()
) -> TrainCall:
    """Return how to call a function.

    A function receives the configuration and `report`, in this order or by these names. A function
    with a single parameter receives the configuration and returns its result.

    Args:
        signature: The parameters of the function. None if Python cannot determine them.
        title: The name of the function, for the message.
        searched: The names of the parameters in a configuration.

    Raises:
        ExperimentError: If a parameter has no value, or none receives the configuration.
    """
    if signature is None:
        return TrainCall(_WORDS, {})
    parameters = list(signature.parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    given = {
        parameter.name: parameter.name
        for parameter in parameters
        if parameter.kind in _BY_KEYWORD and parameter.name in (*BY_NAME, *_WORDS)
    }
    # The words that no parameter has as its name go to the other positional parameters, in order.
    words = [word for word in _WORDS if word not in given]
    slots = [parameter for parameter in positional if parameter.name not in given]
    required = [slot.name for slot in slots if _is_required(slot)]
    # def train(lr, width) looks like a function that takes values one by one, which it does not.
    if len(words) == len(_WORDS) and required and all(name in searched for name in required):
        raise _refused(
            signature,
            title,
            f"would receive the whole configuration as `{required[0]}`",
            f"Write def {title}(config, report), and read config[{required[0]!r}] in it.",
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
    # *args takes the words that are left, but only if all parameters before it are positional too.
    takes_more = any(parameter.kind == inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_more and all(parameter.name in given for parameter in positional):
        first = [parameter.name for parameter in positional]
    else:
        words = []
    by_value = _searched_defaults(parameters, searched, {*given})
    ordered = [*(given.pop(name) for name in first), *words]
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
            f"has no value for {joined_by_and(f'`{name}`' for name in missing)}",
            "Give it a default, bind it with functools.partial, or read it from the configuration.",
        )
    if "config" not in (*ordered, *given.values()):
        raise _refused(
            signature,
            title,
            "has no parameter that receives the configuration",
            f"Write def {title}(config).",
        )
    return TrainCall(tuple(ordered), given, by_value)


def _searched_defaults(
    parameters: Sequence[inspect.Parameter], searched: Collection[str], given: Collection[str]
) -> tuple[str, ...]:
    """Return the parameters that receive the value with their name in the configuration.

    If a parameter with a default is searched, it has to receive the value of the trial. Otherwise
    the trial would train with the default, and show the searched value.
    """
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in _BY_KEYWORD
        and parameter.default is not inspect.Parameter.empty
        and parameter.name in searched
        and parameter.name not in given
    )


def check_kind(kind: Kind, title: str, type_name: str = "") -> None:
    """Check that an object is a plain function.

    A call of an async function or of a generator returns before anything was trained.

    Args:
        kind: The kind of the object.
        title: Its name.
        type_name: The type of a value.

    Raises:
        ExperimentError: If it is anything else.
    """
    if kind == "function":
        return
    problem = f"{title} is {_WHAT[kind]}"
    next_step = "Define it with def, and report values with report(...) or return them."
    if kind == "value":
        problem += f" of type {type_name}"
    if kind == "class":
        next_step += " For a class with its own training steps, add data."
    raise ExperimentError(
        problem,
        field="train",
        allowed="a plain function (config, report)",
        next_step=next_step,
    )


def kind_of(function: Any) -> Kind:
    """Return the kind of an object that was given as a train function."""
    if inspect.isclass(function):
        return "class"
    if not callable(function):
        return "value"
    # A decorator may hide an async function behind a plain one, and so may functools.partial.
    called: Any = function
    if inspect.isfunction(function):
        called = inspect.unwrap(function)
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called):
        called = type(called).__call__
    for candidate in (function, called):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            return "async"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return "function"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function, or None if Python cannot determine them."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def check_train_function(component: Component, searched: Collection[str]) -> None:
    """Check a train function before a run starts, without running its module.

    Args:
        component: The `train` of an experiment.
        searched: The names of the parameters in a configuration.

    Raises:
        ExperimentError: If it is not a plain function, or has parameters without a value.
    """
    if component.payload_hash is not None:
        if component.payload is not None:
            function = component.load(field="train")
            check_kind(kind_of(function), component.short_name, type(function).__name__)
            plan_call(signature_of(function), component.short_name, searched)
        return
    definition = definition_of(component)
    # A decorator may change the parameters. Only an import would tell, and the trial does that.
    if definition is None or definition.decorator_list:
        return
    if isinstance(definition, ast.ClassDef):
        check_kind("class", component.title)
        return
    if isinstance(definition, ast.AsyncFunctionDef):
        check_kind("async", component.title)
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(definition)):
        check_kind("generator", component.title)
    plan_call(_signature_in(definition.args), component.short_name, searched)


def _signature_in(arguments: ast.arguments) -> inspect.Signature:
    """Return the parameters of a function in source, with the defaults that `_default_of` reads."""
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
        default = inspect.Parameter.empty
        if node is not None:
            default = _default_of(node)
        parameters.append(
            inspect.Parameter(item.arg, inspect.Parameter.KEYWORD_ONLY, default=default)
        )
    if arguments.kwarg is not None:
        parameters.append(inspect.Parameter(arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _default_of(node: ast.expr) -> Any:
    """Return a default that is written as a constant, and `...` for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value
    return ...


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes in a function, except those in functions and classes that it defines."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _waits_for(parameter: inspect.Parameter, word: str) -> bool:
    """Return whether an optional parameter is meant for a word, by its default or its name."""
    return parameter.default is None or word in parameter.name.lower()


def _refused(
    signature: inspect.Signature, title: str, problem: str, next_step: str
) -> ExperimentError:
    written = str(signature.replace(return_annotation=inspect.Signature.empty))
    return ExperimentError(
        f"{title}{written} {problem}", field="train", allowed=_ALLOWED, next_step=next_step
    )


def imported_component(tool: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what stands for the train function in the experiment of an imported run.

    Args:
        tool: The tool that ran it.
        options: What the import needs to know when it is repeated.
    """
    return {"name": f"{_IMPORTED}{tool}", "options": options}


def importing_tool(experiment: Experiment) -> str | None:
    """Return the tool whose runs an experiment describes, or None if it is an ordinary one."""
    if experiment.train is None or not experiment.train.name.startswith(_IMPORTED):
        return None
    return experiment.train.name.removeprefix(_IMPORTED)


def refuse_imported(experiment: Experiment, action: str) -> None:
    """Raise an error if an experiment is that of an imported run.

    Args:
        experiment: The experiment.
        action: The participle of what is not possible, such as `resumed`.

    Raises:
        RunError: If it is.
    """
    if (tool := importing_tool(experiment)) is not None:
        raise RunError(
            f"a run that was imported from {tool} cannot be {action}, because its program is not"
            " known here",
            field="train",
            next_step="Start a run of your program, and let it learn from this one: --warm-start.",
        )
