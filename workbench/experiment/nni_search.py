"""Reads experiments of NNI: a search space with `_type` and `_value`, alone or named by a configuration.

`trialCommand` becomes the command, with all parameters as options. Outside of its own experiments nni prints
what is reported to it, and that is read. A key without a counterpart is refused by its name, or left out with
a note where it only says where to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.command import parse_command
from workbench.experiment.yaml_file import read_yaml_file

Note = Callable[[str], None]

_SAMPLERS = {"tpe": "tpe", "random": "random", "gridsearch": "grid", "grid": "grid", "evolution": "tpe",
             "anneal": "tpe", "smac": "tpe", "gp": "gp", "bohb": "tpe", "metis": "gp"}  # fmt: skip
_PLACES = ("trainingService", "trainingServicePlatform", "trialCodeDirectory", "debug", "logLevel",
           "experimentWorkingDirectory", "useAnnotation", "nniManagerIp", "logCollection")  # fmt: skip
_KEYS = ("experimentName", "searchSpace", "searchSpaceFile", "trialCommand", "trialConcurrency",
         "trialGpuNumber", "maxTrialNumber", "maxTrialDuration", "maxExperimentDuration", "tuner",
         "assessor")  # fmt: skip
_LIMITS = {
    "budget": {"maxTrialNumber": "trials", "maxExperimentDuration": "time"},
    "resources": {
        "trialConcurrency": "concurrency", "trialGpuNumber": "gpus_per_worker",
        "maxTrialDuration": "trial_time",
    },
}  # fmt: skip
_NUM_LISTED = 64
_PRINTED = r"(?:Intermediate|Final) result: (?P<default>[-+.\deE]+)"
"""What nni prints of a reported number where none of its experiments runs."""


def is_nni(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a search space or a configuration of NNI."""
    if "searchSpace" in document or "searchSpaceFile" in document:
        return True
    return bool(document) and all(
        isinstance(one, Mapping) and "_type" in one and "_value" in one for one in document.values()
    )


def from_nni(
    document: Mapping[str, Any], *, folder: Path, train: str | None = None, note: Note = lambda _text: None
) -> Experiment:
    """Turn an experiment of NNI into one of the workbench.

    Args:
        document: The content of the file: a configuration, or a search space alone.
        folder: Where a search space lies that the configuration names.
        train: A function to train with, as package.module:function, instead of `trialCommand`.
        note: Called with a sentence for each setting that is only approximated, or left out.

    Returns:
        An experiment with the same parameters, command, tuner, concurrency and limits.

    Raises:
        ExperimentError: If a key or a type has no counterpart, or nothing says what to train.
    """
    if "searchSpace" not in document and "searchSpaceFile" not in document:
        document = {"searchSpace": document}
    for key in document:
        if key in _PLACES:
            note(f"{key} is left out: it says where NNI runs, not what")
        elif key not in _KEYS:
            raise ExperimentError(
                "has no counterpart in an experiment", field=str(key), allowed=_KEYS,
                next_step="Remove it.",
            )  # fmt: skip
    space = document.get("searchSpace")
    if space is None:
        space = read_yaml_file(folder / str(document["searchSpaceFile"]), holds="a search space of NNI")
    tuner = _named(document.get("tuner"))
    goal = str(_arguments(document.get("tuner")).get("optimize_mode", "maximize"))
    settings: dict[str, Any] = {
        "objectives": [{"metric": "default", "goal": goal}],
        "search": _parameters(space, "searchSpace", "", {}, note),
    }
    if tuner.lower() in _SAMPLERS:
        settings["sampler"] = _SAMPLERS[tuner.lower()]
    elif tuner:
        note(f"tuner {tuner} has no counterpart: the default sampler takes its place")
    if train is None and "trialCommand" not in document:
        raise ExperimentError(
            "missing", field="trialCommand",
            next_step="Give the configuration that names it, or --train MODULE:FUNCTION.",
        )  # fmt: skip
    if train is not None:
        settings["train"] = train
    else:
        plain = str(document["trialCommand"]).replace("{", "{{").replace("}", "}}")
        settings["command"] = parse_command(f"{plain} {{args}}")
        settings["metrics"] = {"pattern": _PRINTED}
        note("the parameters are passed as options, --name=value: nni.get_next_parameter() returns none")
        note("metrics reads what nni prints: without nni, remove it and name in objectives what is printed")
    return Experiment(**settings, **_limits(document, note))


def _limits(document: Mapping[str, Any], note: Note) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "experimentName" in document:
        found["name"] = document["experimentName"]
    for section, keys in _LIMITS.items():
        if given := {name: document[key] for key, name in keys.items() if key in document}:
            found[section] = given
    match _named(document.get("assessor")).lower():
        case "":
            pass
        case "medianstop":
            start = _arguments(document["assessor"]).get("start_step", 0)
            found["early_stop"] = {"pruner": "median", "grace": max(1, int(start))}
        case other:
            note(f"assessor {other} has no counterpart: write early_stop")
    return found


def _named(given: Any) -> str:
    """Return the name of a tuner or an assessor; "" without one."""
    if not isinstance(given, Mapping):
        return ""
    names = (given.get(key) for key in ("name", "builtinTunerName", "builtinAssessorName", "className"))
    return str(next((name for name in names if name is not None), ""))


def _arguments(given: Any) -> Mapping[str, Any]:
    found = given.get("classArgs") if isinstance(given, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _parameters(
    space: Any, field: str, prefix: str, when: Mapping[str, Any], note: Note
) -> dict[str, dict[str, Any]]:
    """Return parameters by name; those of a nested choice exist where it is chosen."""
    if not isinstance(space, Mapping):
        raise ExperimentError(f"{space!r} is not a mapping", field=field)
    found: dict[str, dict[str, Any]] = {}
    for name, given in space.items():
        path, flat = f"{field}.{name}", f"{prefix}{name}"
        if not isinstance(given, Mapping) or "_type" not in given or "_value" not in given:
            raise ExperimentError("has no _type and _value", field=path)
        kind, values = given["_type"], given["_value"]
        if kind == "choice" and isinstance(values, list) and any(isinstance(one, Mapping) for one in values):
            found |= _branches(values, path, flat, when, note)
            continue
        if kind not in _TYPES:
            raise ExperimentError(
                f"{kind!r} has no counterpart", field=f"{path}._type", allowed=["choice", *_TYPES]
            )
        try:
            domain = _TYPES[kind](*(values if kind != "choice" else [values]))
        except (TypeError, ValueError) as error:
            raise ExperimentError(f"{values!r} does not fit {kind}", field=f"{path}._value") from error
        if kind in ("normal", "qnormal", "lognormal", "qlognormal"):
            note(f"{path}: {kind} becomes a range of three standard deviations around the mean")
        found[flat] = domain | ({"when": dict(when)} if when else {})
    return found


def _branches(
    values: list[Any], path: str, flat: str, when: Mapping[str, Any], note: Note
) -> dict[str, dict[str, Any]]:
    """Return a choice among groups of parameters, and the parameters of each group."""
    names = [one.get("_name") if isinstance(one, Mapping) else one for one in values]
    if None in names:
        raise ExperimentError("a nested choice has no _name", field=f"{path}._value")
    found: dict[str, dict[str, Any]] = {flat: {"choices": names} | ({"when": dict(when)} if when else {})}
    for name, one in zip(names, values, strict=True):
        if isinstance(one, Mapping):
            inner = {key: value for key, value in one.items() if key != "_name"}
            condition = {**when, flat: name}
            found |= _parameters(inner, f"{path}.{name}", f"{flat}.{name}.", condition, note)
    return found


def _rounded(low: float, high: float, step: float) -> dict[str, Any]:
    """Return the multiples of a step between two numbers, both bounds included as NNI does."""
    first, last = math.ceil(low / step) * step, math.floor(high / step) * step
    kind = "int" if all(float(number).is_integer() for number in (first, step)) else "float"
    convert = int if kind == "int" else float
    return {"type": kind, "low": convert(first), "high": convert(last), "step": convert(step)}


def _rounded_logarithmic(low: float, high: float, step: float) -> dict[str, Any]:
    places = (place / (_NUM_LISTED - 1) for place in range(_NUM_LISTED))
    drawn = (low ** (1 - place) * high**place for place in places)
    return {"choices": sorted({min(max(round(one / step) * step, low), high) for one in drawn})}


def _around(mean: float, deviation: float) -> dict[str, Any]:
    return {"type": "float", "low": mean - 3 * deviation, "high": mean + 3 * deviation}


def _logarithmic(low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, "log": True}


_TYPES: dict[str, Callable[..., dict[str, Any]]] = {
    "choice": lambda values: {"choices": list(values)},
    "randint": lambda low, high: {"type": "int", "low": int(low), "high": int(high) - 1},
    "uniform": lambda low, high: {"type": "float", "low": low, "high": high},
    "quniform": _rounded,
    "loguniform": _logarithmic,
    "qloguniform": _rounded_logarithmic,
    "normal": _around,
    "qnormal": lambda mean, deviation, _step: _around(mean, deviation),
    "lognormal": lambda mean, deviation: _logarithmic(
        math.exp(mean - 3 * deviation), math.exp(mean + 3 * deviation)
    ),
    "qlognormal": lambda mean, deviation, _step: _logarithmic(
        math.exp(mean - 3 * deviation), math.exp(mean + 3 * deviation)
    ),
}
