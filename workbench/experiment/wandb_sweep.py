"""Converts sweep files of Weights & Biases.

Nested parameters become flat ones: `parent.child` for a program, which receives each group as W&B
would pass it, and `parent_child` for a function. `bayes` becomes auto, and `early_terminate`
becomes asha, whose rungs are reported steps. `program` and `command` become a command, whose
metrics are read from its wandb log, unless you give a function instead. A key without a counterpart
is an error. There is a note for a setting that W&B ignores, or that is only approximated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any

from workbench.experiment.domain import MAX_EXACT
from workbench.experiment.experiment import Experiment
from workbench.foundation.errors import ExperimentError

Note = Callable[[str], None]

_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = re.compile(r"\$\{([^}]*)\}")
_PLAIN_MACROS = {"interpreter": "python", "args_json": "{args:json}", "args_json_file": "{config}"}
_MACROS_OF_LISTS = ("args", "args_no_hyphens", "args_no_boolean_flags")

_NUM_ON_LOG_SCALE = 16
"""The number of choices for a logarithmic range of multiples."""
_LARGEST = {"s": 50, "eta": 1000}
_METHODS = {"grid": "grid", "random": "random", "bayes": "auto"}
_KEYS = (
    "name",
    "program",
    "method",
    "metric",
    "parameters",
    "early_terminate",
    "run_cap",
    "command",
)
HOMELESS = {
    "project": "The workbench keeps runs in its own store: remove project.",
    "entity": "The workbench keeps runs in its own store: remove entity.",
    "description": "Put it into name, or into a comment.",
    "image_uri": "The workbench trains in the environment that it runs in: remove image_uri.",
    "job": "Give the function as train instead.",
}


def from_wandb_sweep(
    document: Mapping[str, Any], *, train: str | None = None, note: Note = lambda _text: None
) -> Experiment:
    """Turn a sweep configuration of Weights & Biases into an experiment.

    Args:
        document: The content of the sweep file.
        train: A function `(config, report)` to train with, as package.module:function, instead of
            the script in `program`. None starts the script unchanged.
        note: Called with a sentence for each setting that is only approximated, or has no effect in
            W&B.

    Returns:
        An experiment with the same parameters, metric, method, early stopping and number of runs.

    Raises:
        ExperimentError: If a key or a distribution has no counterpart, or if there is nothing to
            train.
    """
    if {"objectives", "search", "train", "model"} & set(document):
        raise ExperimentError(
            "this file is already a Workbench experiment",
            next_step="Start it with: workbench sweep FILE",
        )
    _refuse_others(document, _KEYS)
    if train is None and "program" not in document:
        raise ExperimentError(
            "missing",
            field="program",
            next_step="Add the path of your script, or give train='package.module:function'.",
        )
    parameters = _mapping(_need(document, "parameters"), "parameters")
    joint = "_"
    if train is None:
        joint = "."
    search, nested_names = _parameters(parameters, "parameters", joint, note)
    settings: dict[str, Any] = {
        "objectives": [_objective(_mapping(_need(document, "metric"), "metric"))],
        "search": search,
        "sampler": _one_of(_need(document, "method"), _METHODS, "method"),
    }
    if train is not None:
        settings["train"] = train
        if "command" in document:
            note("command has no effect, because the workbench calls the function itself")
    else:
        settings["command"] = _command_of(document, search, nested_names, note)
        settings["metrics"] = {"from": "wandb"}
    if "name" in document:
        settings["name"] = document["name"]
    if "run_cap" in document:
        settings["budget"] = {"trials": document["run_cap"]}
    if "early_terminate" in document:
        given = _mapping(document["early_terminate"], "early_terminate")
        settings["early_stop"] = _early_stop(given, note)
    return Experiment(**settings)


def _need(document: Mapping[str, Any], key: str, field: str | None = None) -> Any:
    if key not in document:
        raise ExperimentError(
            "missing", field=".".join(filter(None, (field, key))), next_step=f"Add {key}."
        )
    return document[key]


def _mapping(given: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ExperimentError(
            f"{given!r} is not a mapping", field=field, allowed="a mapping, such as {name: value}"
        )
    return given


def _one_of(given: Any, table: Mapping[str, str], field: str) -> str:
    if not isinstance(given, str) or given not in table:
        raise ExperimentError(f"{given!r} has no counterpart", field=field, allowed=table)
    return table[given]


def _refuse_others(given: Mapping[str, Any], allowed: Iterable[str], field: str = "") -> None:
    allowed = list(allowed)
    for key in given:
        if key not in allowed:
            dotted = ".".join(filter(None, (field, str(key))))
            raise ExperimentError(
                "it has no counterpart in an experiment",
                field=dotted,
                allowed=allowed,
                next_step=HOMELESS.get(dotted, "Remove it."),
            )


def _objective(metric: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_others(metric, ("name", "goal", "target"), "metric")
    goals = {"minimize": "minimize", "maximize": "maximize"}
    objective = {
        "metric": _need(metric, "name", "metric"),
        "goal": _one_of(metric.get("goal", "minimize"), goals, "metric.goal"),
    }
    if "target" in metric:
        objective["target"] = metric["target"]
    return objective


def _early_stop(given: Mapping[str, Any], note: Note) -> dict[str, Any]:
    field = "early_terminate"
    _refuse_others(given, ("type", "min_iter", "max_iter", "s", "eta", "strict"), field)
    _one_of(_need(given, "type", field), {"hyperband": "asha"}, f"{field}.type")
    if given.get("strict", True) is not True:
        raise ExperimentError(
            "asha always stops all but the best trials of a rung",
            field=f"{field}.strict",
            allowed="true",
            next_step="Remove strict.",
        )
    for key in ("min_iter", "max_iter", "s", "eta"):
        largest = _LARGEST.get(key, MAX_EXACT)
        if key in given and (not isinstance(given[key], int) or not 0 < given[key] <= largest):
            raise ExperimentError(
                f"{given[key]!r} is not valid",
                field=f"{field}.{key}",
                allowed=f"a whole number from 1 to {largest:,}",
            )
    eta = given.get("eta", 3)
    if "max_iter" not in given:
        if "s" in given:
            note(f"{field}.s has no effect without max_iter, as in W&B")
        return {"pruner": "asha", "grace": _need(given, "min_iter", field), "reduction_factor": eta}
    if "min_iter" in given:
        note(f"{field}.min_iter has no effect together with max_iter, as in W&B")
    rungs = eta ** _need(given, "s", field)
    grace = max(1, given["max_iter"] // rungs)
    if grace * rungs != given["max_iter"]:
        note(
            f"{field}.max_iter is not a multiple of {rungs}, so the rungs are {grace},"
            f" {grace * eta}, ..."
        )
    return {"pruner": "asha", "grace": grace, "reduction_factor": eta}


def _parameters(
    given: Mapping[str, Any], field: str, joint: str, note: Note, prefix: str = ""
) -> tuple[dict[str, Any], set[str]]:
    """Return the domains by flat name, and the names that are nested in the file."""
    search: dict[str, Any] = {}
    nested_names: set[str] = set()
    for name, parameter in given.items():
        path, flat = f"{field}.{name}", f"{prefix}{name}"
        parameter = _mapping(parameter, path)
        if "parameters" in parameter:
            _refuse_others(parameter, ("parameters",), path)
            inner = _mapping(parameter["parameters"], f"{path}.parameters")
            domains, _ = _parameters(inner, f"{path}.parameters", joint, note, f"{flat}{joint}")
            nested_names |= domains.keys()
        else:
            domains = {flat: _domain(parameter, path)}
            if (
                str(parameter.get("distribution")).startswith("q_log")
                and parameter.get("q", 1) != 1
            ):
                note(f"{path}: {_describe_rounding(domains[flat])}")
        for twin in domains.keys() & search.keys():
            raise ExperimentError(
                f"two parameters would be called {twin}", field=path, next_step="Rename one."
            )
        search |= domains
    return search, nested_names


def _domain(given: Mapping[str, Any], field: str) -> dict[str, Any]:
    name = given.get("distribution") or _default_distribution(given, field)
    if not isinstance(name, str) or name not in _DISTRIBUTIONS:
        raise ExperimentError(
            f"{name!r} has no counterpart",
            field=f"{field}.distribution",
            allowed=_DISTRIBUTIONS,
            next_step=("Use uniform or log_uniform_values with min and max, or list values."),
        )
    keys, build = _DISTRIBUTIONS[name]
    _refuse_others(given, ("distribution", *keys), field)
    given = {"q": 1, **given}
    numbers = [_need(given, key, field) for key in keys]
    for key, number in zip(keys, numbers, strict=True):
        if key in ("min", "max", "q") and (
            isinstance(number, bool) or not isinstance(number, int | float)
        ):
            raise ExperimentError(
                f"{number!r} is not valid", field=f"{field}.{key}", allowed="a number"
            )
    try:
        return build(field, *numbers)
    except ArithmeticError as error:  # exp(1024), or a multiple of infinity
        step = None
        if name in _BY_EXPONENTS:
            step = f"For values instead of exponents, write {name}_values."
        raise ExperimentError(
            f"the range of {name} is too large", field=field, next_step=step
        ) from error


def _default_distribution(given: Mapping[str, Any], field: str) -> str:
    if "value" in given:
        return "constant"
    if "values" in given:
        return "categorical"
    if "min" in given and "max" in given:
        if isinstance(given["min"], int) and isinstance(given["max"], int):
            return "int_uniform"
        return "uniform"
    raise ExperimentError(
        "the parameter has no values", field=field, allowed="value, values, or min and max"
    )


def _choices(field: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, list | tuple):
        raise ExperimentError(
            f"{values!r} is not valid", field=f"{field}.values", allowed="a list of values"
        )
    return {"choices": list(values)}


def _whole(field: str, low: float, high: float) -> dict[str, Any]:
    for key, bound in (("min", low), ("max", high)):
        if not isinstance(bound, int):
            raise ExperimentError(
                f"{bound!r} is not valid", field=f"{field}.{key}", allowed="a whole number"
            )
    return {"type": "int", "low": low, "high": high}


def _even(field: str, low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high}


def _logarithmic(field: str, low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, "log": True}


def _exponents(field: str, low: float, high: float) -> dict[str, Any]:
    return _logarithmic(field, math.exp(low), math.exp(high))


def _negative_exponents(field: str, low: float, high: float) -> dict[str, Any]:
    return _logarithmic(field, math.exp(-high), math.exp(-low))


def _rounded(field: str, low: float, high: float, step: float) -> dict[str, Any]:
    """Return the multiples of `step` to which W&B rounds numbers from low to high."""
    if step <= 0:
        raise ExperimentError(
            f"{step} is not valid", field=f"{field}.q", allowed="a number above 0"
        )
    exact = Decimal(str(step))  # in floats, 6 * 0.1 is 0.6000000000000001
    first, last = (round(Decimal(str(bound)) / exact) * exact for bound in (low, high))
    if isinstance(step, int):
        return {"type": "int", "low": int(first), "high": int(last), "step": step}
    return {"type": "float", "low": float(first), "high": float(last), "step": step}


def _rounded_logarithmic(field: str, low: float, high: float, step: float) -> dict[str, Any]:
    if step <= 0:
        raise ExperimentError(
            f"{step} is not valid", field=f"{field}.q", allowed="a number above 0"
        )
    if step == 1:
        return {"type": "int", "low": round(low), "high": round(high), "log": True}
    if not isinstance(step, int) or not 0 < low <= high:
        return _logarithmic(field, low, high)
    # A logarithmic range cannot have steps, so some multiples become choices.
    last = _NUM_ON_LOG_SCALE - 1
    places = (place / last for place in range(_NUM_ON_LOG_SCALE))
    drawn = (low ** (1 - place) * high**place for place in places)
    return {"choices": sorted({round(number / step) * step for number in drawn})}


def _describe_rounding(domain: Mapping[str, Any]) -> str:
    if "choices" in domain:
        num = len(domain["choices"])
        return f"only {num} multiples of q are tried, spaced on a logarithmic scale"
    return "values are not rounded to q, because a logarithmic range has no steps"


def _rounded_exponents(field: str, low: float, high: float, step: float) -> dict[str, Any]:
    return _rounded_logarithmic(field, math.exp(low), math.exp(high), step)


def _command_of(
    document: Mapping[str, Any],
    search: Mapping[str, Any],
    nested_names: Collection[str],
    note: Callable[[str], None],
) -> list[str]:
    """Return the command line of a sweep's program, with our placeholders.

    Args:
        document: The content of the sweep file, with a program.
        search: The searched parameters, as an experiment writes them.
        nested_names: The parameters that are nested in the sweep file. W&B passes each group as one
            literal.
        note: Called with a sentence for anything that is only approximated.

    Raises:
        ExperimentError: If a macro has no counterpart.
    """
    given = document.get("command", _DEFAULT_COMMAND)
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise ExperimentError(
            f"{given!r} is not a list", field="command", allowed="a list, as in W&B"
        )
    booleans = [name for name, domain in search.items() if _is_boolean(domain)]
    groups = list(dict.fromkeys(name.partition(".")[0] for name in nested_names))
    names = [name for name in search if name not in nested_names]
    arguments: list[str] = []
    for index, word in enumerate(str(word) for word in given):
        if word == "${env}":  # /usr/bin/env, which a command does not need here
            continue
        macro = _MACRO.fullmatch(word)
        if macro and macro[1] in _MACROS_OF_LISTS:
            arguments += _arguments(macro[1], names, booleans, groups)
        else:
            arguments.append(_replaced(word, str(document["program"]), f"command.{index}"))
    if not any("{" in word for word in arguments):
        note("{args} was added to command, because no macro passed the parameters")
        arguments += _arguments("args", names, booleans, groups)
    return arguments


def _arguments(macro: str, names: list[str], booleans: list[str], groups: list[str]) -> list[str]:
    # W&B writes True, False and mappings as Python does, so they need the form python. The
    # placeholder {args} adds all other parameters.
    literals = [name for name in names if name in booleans]
    if macro == "args_no_hyphens":
        forms = dict.fromkeys([*literals, *groups], ":python")
        return [f"{name}={{{name}{forms.get(name, '')}}}" for name in [*names, *groups]]
    written = [f"--{name}={{{name}:python}}" for name in groups]
    if macro == "args_no_boolean_flags":
        return [*(f"{{{name}:flag}}" for name in literals), *written, "{args}"]
    return [*(f"--{name}={{{name}:python}}" for name in literals), *written, "{args}"]


def _replaced(word: str, program: str, field: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] == "program":
            return program.replace("{", "{{").replace("}", "}}")
        if match[1] not in _PLAIN_MACROS:
            raise ExperimentError(
                f"${{{match[1]}}} has no counterpart",
                field=field,
                allowed=[
                    "${env}",
                    "${program}",
                    *(f"${{{name}}}" for name in (*_PLAIN_MACROS, *_MACROS_OF_LISTS)),
                ],
                next_step="Write its value instead.",
            )
        return _PLAIN_MACROS[match[1]]

    pieces, end = [], 0
    for match in _MACRO.finditer(word):
        pieces += [word[end : match.start()].replace("{", "{{").replace("}", "}}"), replace(match)]
        end = match.end()
    return "".join([*pieces, word[end:].replace("{", "{{").replace("}", "}}")])


def _is_boolean(domain: Any) -> bool:
    values = domain
    if isinstance(domain, Mapping):
        values = domain.get("choices", [domain.get("value")])
    if not isinstance(values, list):
        values = [values]
    return bool(values) and all(isinstance(value, bool) for value in values)


_RANGE = ("min", "max")
_BY_EXPONENTS = ("log_uniform", "q_log_uniform", "inv_log_uniform")
"""Distributions whose ends are exponents of e."""
_DISTRIBUTIONS: dict[str, tuple[tuple[str, ...], Callable[..., dict[str, Any]]]] = {
    "constant": (("value",), lambda field, value: {"value": value}),
    "categorical": (("values",), _choices),
    "int_uniform": (_RANGE, _whole),
    "uniform": (_RANGE, _even),
    "q_uniform": ((*_RANGE, "q"), _rounded),
    "log_uniform": (_RANGE, _exponents),
    "log_uniform_values": (_RANGE, _logarithmic),
    "q_log_uniform": ((*_RANGE, "q"), _rounded_exponents),
    "q_log_uniform_values": ((*_RANGE, "q"), _rounded_logarithmic),
    "inv_log_uniform": (_RANGE, _negative_exponents),
    "inv_log_uniform_values": (_RANGE, _logarithmic),
}
