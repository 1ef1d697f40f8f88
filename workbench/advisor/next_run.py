"""Which batch reaches a target first, from cheap profiles of an epoch and few full runs.

A full run shows how many epochs one batch needs. `performance` predicts the epochs of the others.
The next run is the one that is expected to improve the choice the most, with a small price for the
run itself. A batch can only be chosen if a run at it reached the target, or if runs at a smaller
and at a larger batch did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from workbench.advisor.measurement_tables import (
    Column,
    positive_number,
    positive_whole_number,
    read_table,
)
from workbench.foundation.errors import DataError
from workbench.hardware.performance.epochs_to_target import SEED_DEVIATION, EpochsPrior, FullRun

Array = NDArray[np.float64]
NORMAL_90 = 1.6449
# Five equally likely outcomes of a run: the 10, 30, 50, 70 and 90 % quantiles of the standard
# normal distribution.
_OUTCOMES = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
# The weight of the time of a trial run, relative to the time of the trainings that it speeds up.
_PRICE = 0.02


@dataclass(frozen=True)
class Ranked:
    """A batch that may be chosen.

    Attributes:
        global_batch: Samples per step.
        time_to_target_s: The expected time of a run. None until a run has reached the target.
        low_s: The lower end of the range that contains 90 % of runs.
        high_s: The upper end of that range.
    """

    global_batch: int
    time_to_target_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True)
class NextRun:
    """The batch to run next, and the batch to use with what is known now.

    Attributes:
        next_run: The batch to run next, or None if all runs are used or no batch is left.
        choice: The batch to use, or None if every run failed and no batch is left.
        ranking: The batches that may be chosen, the fastest first.
    """

    next_run: int | None
    choice: int | None
    ranking: tuple[Ranked, ...]


def read_epoch_times(path: Path, batches: Sequence[int]) -> dict[int, float]:
    """Read the seconds of an epoch, and interpolate between profiled batches.

    Args:
        path: A table with the columns `global_batch` and `epoch_time_s`. If a batch has several
            profiles, their median is used.
        batches: The batches to compare.

    Raises:
        DataError: If the table is malformed, or a batch is outside the range of the profiles.
    """
    profiles: dict[int, list[float]] = {}
    columns = (
        Column("global_batch", positive_whole_number),
        Column("epoch_time_s", positive_number),
    )
    for row in read_table(path, *columns):
        profiles.setdefault(row["global_batch"], []).append(row["epoch_time_s"])
    times_s = {batch: median(profiles[batch]) for batch in sorted(profiles)}
    return {batch: _epoch_time_s(path, batch, times_s) for batch in batches}


def _epoch_time_s(path: Path, batch: int, times_s: Mapping[int, float]) -> float:
    if batch in times_s:
        return times_s[batch]
    for smaller, larger in pairwise(times_s):
        if smaller < batch < larger:
            # A step takes a + c B seconds, and an epoch has N / B steps. So the time of an epoch is
            # a straight line over 1/B.
            part = (1 / smaller - 1 / batch) / (1 / smaller - 1 / larger)
            return times_s[smaller] + part * (times_s[larger] - times_s[smaller])
    raise DataError(
        f"{path} has no profile of batch {batch}, and none of a smaller and a larger batch",
        field="--batches",
        allowed=f"from {min(times_s)} to {max(times_s)}" if times_s else "none: the table is empty",
        next_step="Profile an epoch, or a part of one, at that batch.",
    )


def read_runs(path: Path, batches: Sequence[int]) -> list[FullRun]:
    """Read the full runs so far.

    Args:
        path: A table with the columns `global_batch` and `epochs_to_target`. An empty cell means
            that the run never reached the target.
        batches: The batches to compare. A run at another batch is an error.

    Raises:
        DataError: If the table is malformed.
    """

    def asked_batch(cell: str) -> int:
        batch = positive_whole_number(cell)
        if batch not in batches:
            raise ValueError(f"one of --batches: {', '.join(map(str, batches))}")
        return batch

    def epochs(cell: str) -> float | None:
        try:
            return positive_number(cell) if cell else None
        except ValueError as error:
            raise ValueError(f"{error}, or empty if the target was never reached") from error

    rows = read_table(path, Column("global_batch", asked_batch), Column("epochs_to_target", epochs))
    return [FullRun(row["global_batch"], row["epochs_to_target"]) for row in rows]


def advise_next_run(
    epoch_times_s: Mapping[int, float], runs: Sequence[FullRun], *, max_runs: int
) -> NextRun:
    """Return the batch to run next, and the best choice with what is known now.

    Args:
        epoch_times_s: Seconds of an epoch by batch.
        runs: The full runs so far, at these batches.
        max_runs: The number of full runs that are allowed in total, >= 0.
    """
    search = _Search(epoch_times_s, runs)
    next_at = search.next_run() if len(runs) < max_runs else None
    choice_at = search.choice()
    return NextRun(
        None if next_at is None else search.batches[next_at],
        None if choice_at is None else search.batches[choice_at],
        search.ranking(),
    )


class _Search:
    """The state of the search. Methods refer to batches by their position in `batches`."""

    def __init__(self, epoch_times_s: Mapping[int, float], runs: Sequence[FullRun]) -> None:
        self.batches = sorted(epoch_times_s)
        self._runs = list(runs)
        self._log_epoch_s = np.log([epoch_times_s[batch] for batch in self.batches])
        self._prior = EpochsPrior(self.batches)
        self._belief = self._prior.given(runs)
        self._log_times = self._belief.log_epochs + self._log_epoch_s
        self._failed = {self.batches.index(run.global_batch) for run in runs if run.epochs is None}
        tried = {self.batches.index(run.global_batch) for run in runs}
        self._reached = tried - self._failed
        self._untried = [at for at in range(len(self.batches)) if at not in tried]
        self._open = [at for at in self._untried if not self._is_ruled_out(at)]

    def _is_ruled_out(self, at: int) -> bool:
        """Return whether a failed run rules a batch out.

        Batches beyond a failure are ruled out, seen from the batches that reached the target. If
        none did, all batches above a failure are.
        """
        if not self._reached:
            return any(at > failed for failed in self._failed)
        return any(
            at > failed > max(self._reached) or at < failed < min(self._reached)
            for failed in self._failed
        )

    def _choosable(self, reached: set[int]) -> list[int]:
        if not reached:
            return []
        return [at for at in range(min(reached), max(reached) + 1) if at not in self._failed]

    def choice(self) -> int | None:
        choosable = self._choosable(self._reached)
        if choosable:
            return min(choosable, key=lambda at: self._log_times[at])
        return min(self._open, key=self._promise, default=None)

    def _promise(self, at: int) -> float:
        """Return the logarithm of the expected time until a run at this batch reaches the target.

        Runs are repeated until one succeeds, which takes 1 / chance of them.
        """
        return float(self._log_times[at] - np.log(self._belief.chance[at]))

    def next_run(self) -> int | None:
        if not self._reached:
            # If even the smallest batch failed, larger ones may still be run, but not chosen.
            return min(self._open or self._untried, key=self._promise, default=None)
        return min(self._open, key=self._expected_after, default=None)

    def _expected_after(self, at: int) -> float:
        """Return how much a run is expected to change the log time of the choice, plus its price.

        Lower is better. For each of five possible outcomes, the belief is updated as if the run had
        ended that way, and the best choice is made again. A run that fails changes nothing.
        """
        chosen = self._choosable(self._reached)
        gains: list[float] = []
        spread = float(np.hypot(self._belief.deviation[at], SEED_DEVIATION))
        for outcome in _OUTCOMES:
            epochs = float(np.exp(self._belief.log_epochs[at] + outcome * spread))
            belief = self._prior.given([*self._runs, FullRun(self.batches[at], epochs)])
            log_times = belief.log_epochs + self._log_epoch_s
            after = self._choosable(self._reached | {at})
            gains.append(float(log_times[after].min() - log_times[chosen].min()))
        price = float(np.exp(self._log_times[at] - self._log_times[chosen].min()))
        return float(self._belief.chance[at]) * fmean(gains) + _PRICE * price

    def ranking(self) -> tuple[Ranked, ...]:
        if not self._reached:
            return tuple(
                Ranked(self.batches[at], None, None, None)
                for at in sorted(self._open, key=self._promise)
            )
        choosable = sorted(self._choosable(self._reached), key=lambda at: self._log_times[at])
        return tuple(self._ranked(at) for at in choosable)

    def _ranked(self, at: int) -> Ranked:
        time_s = float(np.exp(self._log_times[at]))
        width = float(np.exp(NORMAL_90 * np.hypot(self._belief.deviation[at], SEED_DEVIATION)))
        return Ranked(self.batches[at], time_s, time_s / width, time_s * width)
