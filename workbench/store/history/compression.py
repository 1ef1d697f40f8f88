"""Give the answer of a run that compresses a model: which trial to deploy, and why not the others.

A compression is an ordinary run. The options of its train function contain the original trial, and
its constraints keep slower or worse results from being the best trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.formatting import format_bytes, format_number, format_percent
from workbench.store.history.history import History
from workbench.store.history.standings import excess_of, keeps
from workbench.store.history.trial import Trial

BASE_RUN, BASE_TRIAL, BASE_METRIC, BASE_VALUE = (
    "base_run",
    "base_trial",
    "base_metric",
    "base_value",
)
"""The options of a train function that describe the original trial."""
NOT_SEARCHED = "not_searched"
"""The option that describes which ways do not fit the model."""
DEVICE = "device"
"""The option with the device on which latencies are measured, if it is another machine."""
_UNCHANGED = "no compression"
RATIO = "latency_ratio"
RATIO_HERE = "latency_ratio_here"
"""The ratio on the machine of the trials, shown next to that of another device."""


@dataclass(frozen=True)
class Compressed:
    """The answer of a compression.

    Attributes:
        recommended: The trial to deploy, or None if the original stays the best.
        words: The verdict as text.
        lost: Why each other trial is not recommended, by its number.
    """

    recommended: Trial | None
    words: str
    lost: Mapping[int, str]


def is_compression(experiment: Experiment) -> bool:
    """Return whether a run of an experiment compresses a trained model."""
    return experiment.train is not None and BASE_RUN in experiment.train.options


def base_of(experiment: Experiment) -> dict[str, Any]:
    """Return the original of a compression: its run, trial, metric and the metric's value."""
    assert experiment.train is not None
    return {
        name: experiment.train.options[name]
        for name in (BASE_RUN, BASE_TRIAL, BASE_METRIC, BASE_VALUE)
    }


def base_values(experiment: Experiment) -> tuple[float, ...] | None:
    """Return the objectives of a compression's original model, or None for other experiments."""
    if not is_compression(experiment):
        return None
    base = base_of(experiment)
    values = {RATIO: 1.0, base[BASE_METRIC]: float(base[BASE_VALUE])}
    return tuple(values[item.metric] for item in experiment.objectives)


def describe_way(params: Mapping[str, Any]) -> str:
    """Describe the steps of a configuration."""
    parts = []
    if params.get("slimming"):
        parts.append(f"slimming of {format_number(params['slimming'])}")
    if params.get("pruning"):
        parts.append(f"{format_percent(params['pruning'])} of the channels pruned")
    if params.get("rank", 1.0) < 1:
        parts.append(f"{format_percent(params['rank'])} of the rank")
    if params.get("epochs"):
        parts.append(f"{params['epochs']} epochs of fine-tuning")
    if params.get("quantiser", "none") != "none":
        calibration = f" ({params['calibration']})" if "calibration" in params else ""
        how = params["quantiser"]
        if how == "qat":
            how = f"{params['qat_epochs']} epochs with rounding, static"
        parts.append(f"{how} int8{calibration}")
    return ", ".join(parts) or _UNCHANGED


def compressed(history: History) -> Compressed:
    """Return the answer of a compression, or its answer so far.

    Args:
        history: Its history.
    """
    best = history.best()
    base = base_of(history.experiment)
    name = f"trial {base[BASE_TRIAL]} of {base[BASE_RUN]}"
    if best is None:
        words = f"keep {name}: no trial is faster within the limits"
        if (nearest := _nearest(history)) is not None:
            words += f". Trial {nearest.number} comes nearest: {_why_lost(history, nearest, None)}"
        if not history.trials:
            words = "no trial has been measured yet"
        elif not history.in_state("complete"):
            words = "no trial could be measured"
    else:
        where = device_of(history.experiment)
        words = f"trial {best.number} is recommended instead of {name}: {_gain(best, where)}"
    lost = {
        trial.number: why
        for trial in history.trials.values()
        if trial.finished and trial is not best and (why := _why_lost(history, trial, best))
    }
    return Compressed(best, words, lost)


def _nearest(history: History) -> Trial | None:
    """Return the trial that misses the limits by the least. Faster trials come first."""
    faster, *others = history.experiment.constraints
    compressed_trials = [
        trial for trial in history.in_state("complete") if describe_way(trial.params) != _UNCHANGED
    ]
    return min(
        compressed_trials,
        key=lambda trial: (
            not keeps(faster, trial.values),
            excess_of([faster, *others], trial.values),
        ),
        default=None,
    )


def device_of(experiment: Experiment) -> str | None:
    """Return the device on which a compression measures latencies, or None for this machine."""
    if experiment.train is None or experiment.train.options.get(DEVICE) is None:
        return None
    return str(experiment.train.options[DEVICE])


def _gain(trial: Trial, device: str | None) -> str:
    values = trial.values
    where = ""
    if device is not None:
        where = f" on {device}, {format_number(values[RATIO_HERE])} where the trial ran,"
    interval = (
        f"{format_number(values['latency_ratio_low'])} to"
        f" {format_number(values['latency_ratio_high'])}"
    )
    return (
        f"{format_number(values[RATIO])} ({interval}) of the base's latency{where} and "
        f"{format_percent(values['size_ratio'])} of its size, {_loss(values['drop'])}"
    )


def _loss(drop: float) -> str:
    if drop == 0:
        return "with the same result"
    return f"{format_number(abs(drop) * 100)} points {'less' if drop > 0 else 'better'}"


def _why_lost(history: History, trial: Trial, best: Trial | None) -> str:
    if trial.state != "complete":
        if trial.message:
            return f"{trial.state}: {trial.message}"
        return trial.state
    values, reasons = trial.values, []
    for limit in history.experiment.constraints:
        value = values.get(limit.metric)
        if value is None or limit.violation(value) <= 0:
            continue
        reasons.append(_broken(limit.metric, value, limit.at_most or 0.0, values))
    if reasons:
        return "; ".join(reasons)
    if best is not None and values.get(RATIO, 0.0) >= best.values[RATIO]:
        return f"not the fastest: {format_number(values[RATIO])} of the base's latency"
    return ""


def _broken(metric: str, value: float, at_most: float, values: Mapping[str, float]) -> str:
    match metric:
        case "latency_ratio_high":
            return f"not faster: {format_number(values.get(RATIO, value))} of the base's latency"
        case "drop":
            return f"{_loss(value)}, but the limit is {format_number(at_most * 100)}"
        case "size_bytes":
            return f"{format_bytes(value)}, but the limit is {format_bytes(at_most)}"
        case "memory_bytes":
            return f"{format_bytes(value)} of memory, but the limit is {format_bytes(at_most)}"
        case "latency_s":
            return (
                f"{format_number(value * 1000)} ms per call, but the limit is"
                f" {format_number(at_most * 1000)} ms"
            )
        case _:
            return f"{metric} {format_number(value)} exceeds {format_number(at_most)}"
