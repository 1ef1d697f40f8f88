"""What the best score of a run rests on.

How many samples, how sure that makes it, and what chose it.

A score on few samples is a rough one, and the best of many scores on the same samples is too good.
Both are stated here, in the words that the terminal, the panel, the report and Python show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING

from workbench.experiment.metric_declarations import declaration_of
from workbench.foundation.formatting import format_count, format_number

if TYPE_CHECKING:
    from workbench.store.history.history import History
    from workbench.store.history.trial import Trial

CERTAINTY = 0.95
"""The probability with which the interval of a rate holds the rate on all data of its kind."""
NUM_VALIDATION = "num_val_samples"
"""What a function or a program reports to say on how many samples it validates."""
NUM_TEST = "num_test_samples"
"""The same of the samples that it tests on."""


def rate_interval(
    rate: float, num_samples: int, certainty: float = CERTAINTY
) -> tuple[float, float]:
    """Return the interval around a share of samples, such as an accuracy.

    Args:
        rate: The share that was measured, from 0 to 1.
        num_samples: On how many independent samples, at least 1.
        certainty: The probability with which the interval holds the share on all data of this kind.

    Returns:
        Its lower and its upper end, both from 0 to 1.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927.

    Example:
        >>> low, high = rate_interval(1.0, 360)
        >>> round(low, 4), high
        (0.9894, 1.0)
    """
    quantile_sqr = NormalDist().inv_cdf((1 + certainty) / 2) ** 2
    scale = 1 + quantile_sqr / num_samples
    middle = (rate + quantile_sqr / (2 * num_samples)) / scale
    variance = rate * (1 - rate) / num_samples + quantile_sqr / (4 * num_samples**2)
    half = math.sqrt(quantile_sqr * variance) / scale
    # At the ends of the range the sum is exact in theory, but not in floating point.
    low = 0.0 if rate <= 0.0 else max(0.0, middle - half)
    high = 1.0 if rate >= 1.0 else min(1.0, middle + half)
    return low, high


def describe_rate(rate: float, num_samples: int) -> str:
    """Return the interval around a share of samples in words.

    Args:
        rate: The share that was measured, from 0 to 1.
        num_samples: On how many independent samples, at least 1.
    """
    low, high = rate_interval(rate, num_samples)
    ends = [format_number(_outwards(low, math.floor)), format_number(_outwards(high, math.ceil))]
    return f"between {ends[0]} and {ends[1]} with {100 * CERTAINTY:.0f} % certainty"


def describe_evidence(history: History) -> list[str]:
    """Return on what the best score of a run rests, as sentences without their full stops.

    Args:
        history: The run.

    Returns:
        Nothing where nothing is complete, with several objectives, and for a result of AutoML or of
        a compression, which state their own test.
    """
    best = history.best()
    if best is None or len(history.objectives) > 1 or history.result is not None:
        return []
    metric = history.objectives[0].metric
    lines = [_of_validation(history, best, metric), _of_test(history, best, metric)]
    if lines[1] is None:
        lines[1] = _of_choice(history, best, metric)
    return [line for line in lines if line is not None]


def _of_validation(history: History, best: Trial, metric: str) -> str | None:
    num_samples = _count(best, best.num_validation, NUM_VALIDATION)
    if num_samples is None or not _is_measured(history, metric):
        return None
    value = history.mean_values(best)[metric]
    counted = format_count(num_samples, "validation sample")
    if _is_rate(history, metric, value):
        return f"{metric} {format_number(value)} on {counted}: {describe_rate(value, num_samples)}"
    return f"{metric} {format_number(value)} was measured on {counted}"


def _of_test(history: History, best: Trial, metric: str) -> str | None:
    """Return the score on samples by which nothing was chosen."""
    name = f"test_{metric.removeprefix('val_')}"
    values = [
        trial.test_values.get(name, trial.values.get(name)) for trial in history.repeats_of(best)
    ]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or name == metric:
        return None
    value = math.fsum(known) / len(known)
    num_samples = _count(best, best.num_test, NUM_TEST)
    of = "test samples" if num_samples is None else format_count(num_samples, "test sample")
    tested = f"On {of}, which chose nothing, {name} is {format_number(value)}"
    if num_samples is not None and _is_rate(history, metric, value):
        return f"{tested}: {describe_rate(value, num_samples)}"
    return tested


def _of_choice(history: History, best: Trial, metric: str) -> str | None:
    """Return that the best of many scores is too good, where nothing else measured it."""
    num_compared = len(
        {
            trial.configuration
            for trial in history.trials.values()
            if trial.value_of(metric) is not None
        }
    )
    if num_compared < 2 or not _is_measured(history, metric):
        return None
    if (
        _count(best, best.num_validation, NUM_VALIDATION) is None
    ):  # it may be measured on no samples at all
        return None
    return (
        f"The same samples chose it among {num_compared}, so expect a somewhat worse score on new"
        " data, and no test samples say by how much"
    )


def _is_measured(history: History, metric: str) -> bool:
    """Return whether a metric is measured on samples: what a model costs is not."""
    if not history.experiment.trains_model:
        return True
    return metric.startswith("val_")


def _is_rate(history: History, metric: str, value: float) -> bool:
    """Return whether a value is the share of samples of which something is true.

    Of a training by the workbench, the training says so. What a function or a program calls an
    accuracy is taken for one where it says on how many samples, and the value can be a share.
    """
    if not 0.0 <= value <= 1.0:
        return False
    if history.experiment.trains_model:
        return metric in history.rates
    declaration = declaration_of(metric)
    return declaration is not None and declaration.is_rate


def _count(trial: Trial, known: int | None, reported: str) -> int | None:
    """Return a number of samples, from the training or as a function has reported it."""
    if known:
        return known
    value = trial.value_of(reported)
    return int(value) if value is not None and value >= 1 and float(value).is_integer() else None


def _outwards(end: float, towards: Callable[[float], int]) -> float:
    """Round the end of an interval to three decimals, away from its middle."""
    if end in (0.0, 1.0):
        return end
    return towards(end * 1000) / 1000
