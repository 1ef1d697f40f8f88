"""A replay compared with its original: its proposals, and how far its results are apart."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from workbench.foundation.formatting import format_count, format_number
from workbench.store.history import History


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How a replay differs from its original.

    Attributes:
        of_run_id: The original.
        num_recorded: Trials that the original had proposed when it was replayed.
        num_identical: Trials of the replay with the parameters, repeat and seed of the original's
            trial.
        num_compared: Trials that are complete in both runs.
        num_otherwise: Trials that are finished in both runs, but not in the same state.
        largest_difference: Largest difference of an objective over the compared trials. None
            without any.
        metric: The objective with the largest difference.
        trial: The trial with the largest difference.
    """

    of_run_id: str
    num_recorded: int
    num_identical: int
    num_compared: int
    num_otherwise: int
    largest_difference: float | None
    metric: str | None
    trial: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        text = (
            f"replay of {self.of_run_id}: {self.num_identical} of {self.num_recorded} proposals"
            " identical"
        )
        if self.largest_difference is not None:
            difference = format_number(self.largest_difference)
            text += f"; largest difference of {self.metric} {difference} (trial {self.trial})"
            text += f", {format_count(self.num_compared, 'trial')} complete in both"
        if self.num_otherwise:
            text += f"; {format_count(self.num_otherwise, 'trial')} ended in another state"
        return text


def compare(original: History, replay: History) -> Comparison | None:
    """Compare a replay with its original, trial by trial.

    Args:
        original: The run that was replayed.
        replay: The replay, as far as it has come.

    Returns:
        The comparison, or None if `replay` is none.
    """
    if replay.replay_of is None:
        return None
    pairs = [
        (original.trials[number], trial)
        for number, trial in replay.trials.items()
        if number in original.trials
    ]
    same = [
        (old.params, old.configuration, old.repeat, old.seed)
        == (new.params, new.configuration, new.repeat, new.seed)
        for old, new in pairs
    ]
    complete = [(old, new) for old, new in pairs if old.state == new.state == "complete"]
    differences = [
        (
            _difference(
                old.values.get(item.metric, math.nan), new.values.get(item.metric, math.nan)
            ),
            item.metric,
            new.number,
        )
        for old, new in complete
        for item in replay.objectives
    ]
    largest = max(differences, key=lambda difference: difference[0], default=None)
    return Comparison(
        of_run_id=replay.replay_of,
        num_recorded=replay.num_recorded,
        num_identical=sum(same),
        num_compared=len(complete),
        num_otherwise=sum(
            old.finished and new.finished and old.state != new.state for old, new in pairs
        ),
        largest_difference=largest and largest[0],
        metric=largest and largest[1],
        trial=largest and largest[2],
    )


def _difference(first: float, second: float) -> float:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    difference = abs(first - second)
    if math.isnan(difference):
        return math.inf
    return difference
