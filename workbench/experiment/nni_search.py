"""Converts experiments of NNI: a configuration, or a search space with `_type` and `_value`.

`trialCommand` becomes the command, with all parameters as options. When NNI is not in charge, its
package prints each reported metric, and the workbench reads these lines. A key without a
counterpart is an error. A key that only says where NNI runs is ignored, with a note.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from workbench.experiment.command import parse_command
from workbench.experiment.experiment import Experiment
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import ExperimentError

Note = Callable[[str], None]

_SAMPLERS = {
    "tpe": "tpe",
    "random": "random",
    "gridsearch": "grid",
    "grid": "grid",
    "evolution": "tpe",
    "anneal": "tpe",
    "smac": "tpe",
    "gp": "gp",
    "bohb": "tpe",
    "metis": "gp",
}
_PLACES = (
    "trainingService",
    "trainingServicePlatform",
    "trialCodeDirectory",
    "debug",
    "logLevel",
    "experimentWorkingDirectory",
    "useAnnotation",
    "nniManagerIp",
    "logCollection",
)
_KEYS = (
    "experimentName",
    "searchSpace",
    "searchSpaceFile",
    "trialCommand",
    "trialConcurrency",
    "trialGpuNumber",
    "maxTrialNumber",
    "maxTrialDuration",
    "maxExperimentDuration",
    "tuner",
    "assessor",
)
_LIMITS = {
    "budget": {"maxTrialNumber": "trials", "maxExperimentDuration": "time"},
    "resources": {
        "trialConcurrency": "concurrency",
        "trialGpuNumber": "gpus_per_worker",
        "maxTrialDuration": "trial_time",
    },
}
_NUM_LISTED = 64
_PRINTED = (
    r"(?:Intermediate|Final) result: (?P<default>[^\s{]+)",
    r"(?:Intermediate|Final) result: \{.*?\bdefault\W: *(?P<default>[^\s,}]+)",
)
"""The lines that the nni package prints for a reported number, or a mapping with a number.

The patterns match any value, not only numbers. If a NaN did not match, an earlier result would
count instead.
"""
_MAX_LISTED = 1000
"""The most values to list as choices if they are not evenly spaced."""


def is_nni(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a search space or a configuration of NNI."""
    if "searchSpace" in document or "searchSpaceFile" in document:
        return True
    return bool(document) and all(
        isinstance(domain, Mapping) and "_type" in domain and "_value" in domain
        for domain in document.values()
    )


def from_nni(
    document: Mapping[str, Any],
    *,
    folder: Path,
    train: str | None = None,
    note: Note = lambda _text: None,
) -> Experiment:
    """Turn an experiment of NNI into one of the workbench.

    Args:
        document: The content of the file: a configuration, or a search space alone.
        folder: The folder of the configuration, which may refer to a search space file.
        train: A function to train with, as package.module:function, instead of `trialCommand`.
        note: Called with a sentence for each setting that is only approximated, or ignored.

    Returns:
        An experiment with the same parameters, command, tuner, concurrency and limits.

    Raises:
        ExperimentError: If a key or a type has no counterpart, or if there is nothing to train.
    """
    if "searchSpace" not in document and "searchSpaceFile" not in document:
        document = {"searchSpace": document}
    for key in document:
        if key in _PLACES:
            note(f"{key} is ignored: it only says where NNI runs")
        elif key not in _KEYS:
            raise ExperimentError(
                "it has no counterpart in an experiment",
                field=str(key),
                allowed=_KEYS,
                next_step="Remove it.",
            )
    space = document.get("searchSpace")
    if space is None:
        space = read_yaml_file(
            folder / str(document["searchSpaceFile"]), holds="a search space of NNI"
        )
    tuner = _named(document.get("tuner"))
    goal = str(_arguments(document.get("tuner")).get("optimize_mode", "maximize"))
    settings: dict[str, Any] = {
        "objectives": [{"metric": "default", "goal": goal}],
        "search": _parameters(space, "searchSpace", "", {}, note),
    }
    if tuner.lower() in _SAMPLERS:
        settings["sampler"] = _SAMPLERS[tuner.lower()]
    elif tuner:
        note(f"the tuner {tuner} has no counterpart: the default sampler is used instead")
    if train is None and "trialCommand" not in document:
        raise ExperimentError(
            "missing",
            field="trialCommand",
            next_step="Import the configuration file that has it, or add --train MODULE:FUNCTION.",
        )
    if train is not None:
        settings["train"] = train
    else:
        plain = str(document["trialCommand"]).replace("{", "{{").replace("}", "}}")
        settings["command"] = parse_command(f"{plain} {{args}}")
        settings["metrics"] = {"pattern": list(_PRINTED)}
        note(
            "the program receives its parameters as options, --name=value:"
            " nni.get_next_parameter() returns nothing"
        )
        note(
            "metrics are read from the lines that nni prints: if you remove nni, also remove"
            " metrics, and print the metric of your objective"
        )
    return Experiment(**settings, **_limits(document, note))


def _limits(document: Mapping[str, Any], note: Note) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if "experimentName" in document:
        settings["name"] = document["experimentName"]
    for section, keys in _LIMITS.items():
        if given := {name: document[key] for key, name in keys.items() if key in document}:
            settings[section] = given
    match _named(document.get("assessor")).lower():
        case "":
            pass
        case "medianstop":
            start = _arguments(document["assessor"]).get("start_step", 0)
            settings["early_stop"] = {"pruner": "median", "grace": max(1, int(start))}
        case other:
            note(f"the assessor {other} has no counterpart: write early_stop yourself")
    return settings


def _named(given: Any) -> str:
    """Return the name of a tuner or an assessor, or "" if there is none."""
    if not isinstance(given, Mapping):
        return ""
    # NNI 1 and 2 have different keys for it.
    names = (
        given.get(key) for key in ("name", "builtinTunerName", "builtinAssessorName", "className")
    )
    return str(next((name for name in names if name is not None), ""))


def _arguments(given: Any) -> Mapping[str, Any]:
    match given:
        case {"classArgs": Mapping() as arguments}:
            return arguments
        case _:
            return {}


def _parameters(
    space: Any, field: str, prefix: str, when: Mapping[str, Any], note: Note
) -> dict[str, dict[str, Any]]:
    """Return parameters by name. Those within a nested choice depend on it.

    Args:
        space: A search space, or one branch of a nested choice.
        field: Its place in the file, for messages.
        prefix: The start of the names of its parameters.
        when: The condition of its parameters.
        note: As in `from_nni`.
    """
    if not isinstance(space, Mapping):
        raise ExperimentError(
            f"{space!r} is not a mapping", field=field, allowed="parameters by name"
        )
    search: dict[str, dict[str, Any]] = {}
    for name, given in space.items():
        path, flat = f"{field}.{name}", f"{prefix}{name}"
        if not isinstance(given, Mapping) or "_type" not in given or "_value" not in given:
            raise ExperimentError(
                "the parameter has no _type and _value", field=path, next_step="Add them."
            )
        kind, values = given["_type"], given["_value"]
        if (
            kind == "choice"
            and isinstance(values, list)
            and any(isinstance(value, Mapping) for value in values)
        ):
            search |= _branches(values, path, flat, when, note)
            continue
        if kind not in _TYPES:
            raise ExperimentError(
                f"{kind!r} has no counterpart", field=f"{path}._type", allowed=["choice", *_TYPES]
            )
        try:
            domain = _TYPES[kind](*values)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ExperimentError(
                f"{values!r} does not fit {kind}", field=f"{path}._value", allowed=_VALUES[kind]
            ) from error
        if kind in ("normal", "qnormal", "lognormal", "qlognormal"):
            note(f"{path}: {kind} becomes a range of three standard deviations around the mean")
        if kind in ("qloguniform", "qlognormal") and _is_thinned(domain, values[2]):
            num = len(domain["choices"])
            note(f"{path}: only {num} multiples of q are tried, spaced on a logarithmic scale")
        if kind == "quniform" and "low" in domain and _are_clipped(*values):
            note(f"{path}: only multiples of q are tried, from {domain['low']} to {domain['high']}")
        search[flat] = _with_condition(domain, when)
    return search


def _with_condition(domain: dict[str, Any], when: Mapping[str, Any]) -> dict[str, Any]:
    if not when:
        return domain
    return {**domain, "when": dict(when)}


def _branches(
    values: list[Any], path: str, flat: str, when: Mapping[str, Any], note: Note
) -> dict[str, dict[str, Any]]:
    """Return a choice among groups of parameters, and the parameters of each group."""
    names = [_name_of(branch) for branch in values]
    if None in names:
        raise ExperimentError(
            "a nested choice has no _name", field=f"{path}._value", next_step="Add it."
        )
    search: dict[str, dict[str, Any]] = {flat: _with_condition({"choices": names}, when)}
    for name, branch in zip(names, values, strict=True):
        if isinstance(branch, Mapping):
            inner = {key: value for key, value in branch.items() if key != "_name"}
            condition = {**when, flat: name}
            search |= _parameters(inner, f"{path}.{name}", f"{flat}.{name}.", condition, note)
    return search


def _name_of(branch: Any) -> Any:
    """Return the name of a branch of a nested choice. A branch without parameters is its name."""
    if isinstance(branch, Mapping):
        return branch.get("_name")
    return branch


def _whole_range(low: float, high: float) -> dict[str, Any]:
    """Return the whole numbers from low to high, without high."""
    if not _are_whole(low, high) or not low < high:
        raise ValueError("not a range of whole numbers")
    return {"type": "int", "low": int(low), "high": int(high) - 1}


def _even(low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high}


def _logarithmic(low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, "log": True}


def _rounded(low: float, high: float, step: float) -> dict[str, Any]:
    """Return the values of clip(round(x / step) * step, low, high), for x between low and high."""
    places = _places(low, high, step)
    if not places:
        return {"value": low}
    if len(places) > _MAX_LISTED or not _are_clipped(low, high, step):
        # A range cannot contain the clipped ends, so it contains only multiples within the bounds.
        places = range(
            places[0] + (_multiple(places[0], step) < low),
            places[-1] + 1 - (_multiple(places[-1], step) > high),
        )
        return _multiples(places, step)
    return _listed([min(max(_multiple(place, step), low), high) for place in places])


def _are_clipped(low: float, high: float, step: float) -> bool:
    """Return whether numbers near low or high would be rounded to a multiple outside of them."""
    places = _places(low, high, step)
    return bool(places) and (_multiple(places[0], step) < low or _multiple(places[-1], step) > high)


def _rounded_around(mean: float, deviation: float, step: float) -> dict[str, Any]:
    """Return the multiples of a step around a mean. Nothing clips them."""
    around = _around(mean, deviation)
    return _multiples(_places(around["low"], around["high"], step), step)


def _around(mean: float, deviation: float) -> dict[str, Any]:
    if deviation <= 0:
        raise ValueError("no deviation")
    return _even(mean - 3 * deviation, mean + 3 * deviation)


def _logarithmic_around(mean: float, deviation: float) -> dict[str, Any]:
    around = _around(mean, deviation)
    return _logarithmic(math.exp(around["low"]), math.exp(around["high"]))


def _rounded_logarithmic(low: float, high: float, step: float) -> dict[str, Any]:
    """Return the values of clip(round(x / step) * step, low, high), for x between low and high."""
    if step == 1 and _are_whole(low, high):
        return {"type": "int", "low": int(low), "high": int(high), "log": True}
    return _listed([min(max(value, low), high) for value in _spaced(low, high, step)] or [low])


def _rounded_logarithmic_around(mean: float, deviation: float, step: float) -> dict[str, Any]:
    around = _logarithmic_around(mean, deviation)
    return _listed(_spaced(around["low"], around["high"], step))


def _spaced(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of a step from low to high.

    If there are too many to list, it returns some of them, spaced on a logarithmic scale.
    """
    if not 0 < low <= high:
        raise ValueError("no logarithm")
    places = _places(low, high, step)
    if len(places) > _NUM_LISTED:
        drawn = (
            low ** (1 - part / (_NUM_LISTED - 1)) * high ** (part / (_NUM_LISTED - 1))
            for part in range(_NUM_LISTED)
        )
        rounded = {round(_quotient(number, step)) for number in drawn}
        return [_multiple(place, step) for place in sorted(rounded) if place in places]
    return [_multiple(place, step) for place in places]


def _is_thinned(domain: Mapping[str, Any], step: float) -> bool:
    """Return whether some multiples of a step are missing from the choices."""
    choices = domain.get("choices", ())
    return any(_quotient(after - before, step) > 1 for before, after in itertools.pairwise(choices))


def _multiples(places: range, step: float) -> dict[str, Any]:
    """Return a range of multiples of a step, with both ends, or a single multiple as a value."""
    low, high = _multiple(places[0], step), _multiple(places[-1], step)
    if len(places) == 1:
        return {"value": low}
    if _are_whole(step, low):
        return {"type": "int", "low": low, "high": high, "step": int(step)}
    return {"type": "float", "low": low, "high": high, "step": step}


def _listed(values: list[float]) -> dict[str, Any]:
    distinct = sorted(set(values))
    if len(distinct) == 1:
        return {"value": distinct[0]}
    return {"choices": distinct}


def _are_whole(*numbers: float) -> bool:
    return all(float(number).is_integer() for number in numbers)


def _places(low: float, high: float, step: float) -> range:
    """Return the factors of all multiples of a step to which numbers in the range are rounded."""
    if not step > 0 or not low <= high:
        raise ValueError("not a range of steps")
    half = Decimal("0.5")
    return range(
        math.floor(_quotient(low, step) + half), math.ceil(_quotient(high, step) - half) + 1
    )


def _quotient(value: float, step: float) -> Decimal:
    """Return how many steps a number is, in exact decimals: 0.6 is 6 steps of 0.1."""
    return Decimal(str(value)) / Decimal(str(step))


def _multiple(place: int, step: float) -> float:
    """Return a multiple of a step in exact decimals: 0.3, not 3 * 0.1 = 0.30000000000000004."""
    multiple = Decimal(str(step)) * place
    if float(step).is_integer():
        return int(multiple)
    return float(multiple)


_TYPES: dict[str, Callable[..., dict[str, Any]]] = {
    "choice": lambda *values: {"choices": list(values)},
    "randint": _whole_range,
    "uniform": _even,
    "quniform": _rounded,
    "loguniform": _logarithmic,
    "qloguniform": _rounded_logarithmic,
    "normal": _around,
    "qnormal": _rounded_around,
    "lognormal": _logarithmic_around,
    "qlognormal": _rounded_logarithmic_around,
}
"""The types of NNI. Source: https://nni.readthedocs.io/en/stable/hpo/search_space.html"""
_VALUES = {
    "choice": "a list",
    "randint": "[lower, upper] of whole numbers, without upper",
    "uniform": "[low, high]",
    "quniform": "[low, high, q] with q above 0",
    "loguniform": "[low, high]",
    "qloguniform": "[low, high, q] with low and q above 0",
    "normal": "[mu, sigma] with sigma above 0",
    "qnormal": "[mu, sigma, q] with q above 0",
    "lognormal": "[mu, sigma]",
    "qlognormal": "[mu, sigma, q] with q above 0",
}
