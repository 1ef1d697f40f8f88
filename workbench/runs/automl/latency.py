"""The time to predict one row, and the limit that a user may set on it.

A model is timed on rows that it learned from, so that nothing depends on the test part. A limit is
kept by fewer models: one fold of each configuration instead of all, then fewer configurations, then
a single one that is fast enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s
from workbench.runs.automl.given_data import samples_of, take

if TYPE_CHECKING:
    from workbench.experiment import Experiment

LATENCY_LIMIT = "latency_limit_s"
"""The option of the data with the most seconds to predict one row."""
NUM_EXAMPLES = 5
_NAME = "latency"
_NUM_REPEATS = 5
_WARM_UP = 2
_MARGIN = 1.1
# A slow model on a busy machine is timed on fewer rows.
_MAX_TIMED_S = 0.5


class _Model(Protocol):
    """A model that predicts rows."""

    def outputs_of_new(self, samples: Any) -> object:
        """Return what it predicts for samples, whose values are checked before."""


Timed = TypeVar("Timed", bound=_Model)


def check_limit(limit: str | Mapping[str, float | str] | None) -> float | None:
    """Return how many seconds the prediction of one row may take, or None for any number.

    Args:
        limit: A limit such as "latency=1ms" or {"latency": "1ms"}, or None.

    Raises:
        ArgumentError: If it is not such a limit.
    """
    if limit is None:
        return None
    if isinstance(limit, str):
        name, _, given = limit.partition("=")
        limits: dict[str, Any] = {name.strip(): given.strip()}
    else:
        limits = dict(limit)
    if set(limits) != {_NAME}:
        shown = ", ".join(map(str, limits)) or "nothing"
        raise ArgumentError(
            f"{shown!r} cannot be limited", field="limit", allowed="latency, such as latency=1ms"
        )
    return duration_argument_s(limits[_NAME], field="limit")


def limit_of(experiment: Experiment) -> float | None:
    """Return how many seconds the prediction of one row may take, or None for any number.

    Args:
        experiment: The experiment of an AutoML run.
    """
    if experiment.data is None:
        return None
    limit: Any = experiment.data.options.get(LATENCY_LIMIT)
    return None if limit is None else float(limit)


def row_s(outputs: Callable[[Any], object], rows: Any) -> float:
    """Return how long a model takes to read and predict one row, in seconds.

    The shortest of several times counts: other programs make the others longer.

    Args:
        outputs: Returns the predictions of a model for samples.
        rows: Some samples.
    """
    singles = [take(rows, np.array([number])) for number in range(len(rows))]

    def predict(row: Any) -> None:
        if hasattr(row, "iloc"):  # a row of a table is checked before it is predicted
            _, row = samples_of(row)
        outputs(row)

    for _ in range(_WARM_UP):
        predict(singles[0])
    until_s = time.perf_counter() + _MAX_TIMED_S
    shortest_s = np.full(len(rows), np.inf)
    for _ in range(_NUM_REPEATS):
        for number, row in enumerate(singles):
            began_s = time.perf_counter()
            predict(row)
            ended_s = time.perf_counter()
            shortest_s[number] = min(shortest_s[number], ended_s - began_s)
            if ended_s > until_s:
                return float(np.median(shortest_s[np.isfinite(shortest_s)]))
    return float(np.median(shortest_s))


def is_within(limit_s: float, model: _Model, rows: Any) -> bool:
    """Return whether a model predicts a row in time, with a margin.

    Args:
        limit_s: How long the prediction of one row may take.
        model: The model.
        rows: Some samples that were learned from.
    """
    return row_s(model.outputs_of_new, rows) * _MARGIN <= limit_s


def within(
    limit_s: float,
    weights: Sequence[float],
    *,
    make: Callable[[Sequence[float], bool], Timed],
    select: Callable[[Sequence[int]], Sequence[float]],
    rows: Any,
) -> Timed:
    """Return a model that predicts a row in time, or the fastest if none does.

    Args:
        limit_s: How long the prediction of one row may take.
        weights: The weight of each candidate without a limit. The best candidate comes first.
        make: Returns the model with some weights, with the models of all folds or of the first one.
        select: Returns the weights of all candidates if only some have one.
        rows: Some samples that were learned from.
    """

    def timed(chosen: Timed) -> float:
        return row_s(chosen.outputs_of_new, rows) * _MARGIN

    chosen = make(weights, True)
    if timed(chosen) <= limit_s:
        return chosen
    together = _fewer(limit_s, weights, make=make, select=select, timed=timed)
    if together is not None:
        return together
    fastest, fastest_s = chosen, np.inf
    for number in range(len(weights)):
        single = make(_alone(number, len(weights)), False)
        taken_s = timed(single)
        if taken_s <= limit_s:
            return single
        if taken_s < fastest_s:
            fastest, fastest_s = single, taken_s
    return fastest


def _alone(number: int, num_candidates: int) -> list[float]:
    return [1.0 if other == number else 0.0 for other in range(num_candidates)]


def _fewer(
    limit_s: float,
    weights: Sequence[float],
    *,
    make: Callable[[Sequence[float], bool], Timed],
    select: Callable[[Sequence[int]], Sequence[float]],
    timed: Callable[[Timed], float],
) -> Timed | None:
    """Return a model of as many of the used candidates as are in time, or None if none are."""
    used = [number for number, weight in enumerate(weights) if weight > 0.0]
    times_s: dict[int, float] = {}
    while True:
        weights = select(used)
        chosen = make(weights, False)
        if timed(chosen) <= limit_s:
            return chosen
        used = [number for number in used if weights[number] > 0.0]
        if len(used) == 1:
            return None
        for number in used:
            if number not in times_s:
                times_s[number] = timed(make(_alone(number, len(weights)), False))
        # The one that costs the most time for what it adds.
        used.remove(max(used, key=lambda number: times_s[number] / weights[number]))
