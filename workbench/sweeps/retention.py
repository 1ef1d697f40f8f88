"""Which checkpoints of a run stay: those of unfinished trials, and of the best finished ones.

A deletion is stored before it is done, so that no history names a missing file; what a crash, or a worker
that had not yet heard of its trial's end, left behind is removed when the run is driven again or ends.
Within one trial the last and the best checkpoint are kept by the training.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from workbench.artifacts import Artifacts
from workbench.errors import ArtifactsError
from workbench.events import CheckpointSaved, CheckpointsDeleted, Event, Noted
from workbench.history import Trial
from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

_TRIALS, _CHECKPOINTS = "trials", "checkpoints"


class Retention:
    """Keeps the checkpoints of one run within `resources.keep_best` and `resources.max_checkpoints_size`."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Look after the files in `artifacts`, by what `ledger` holds."""
        resources = ledger.experiment.resources
        self._keep_best = None if resources.keep_best == "all" else resources.keep_best
        self._limit_bytes = resources.max_checkpoints_size
        self._ledger = ledger
        self._artifacts = artifacts
        self._sizes_bytes: dict[int, int] = {}
        self._has_warned = False

    def begin(self) -> None:
        """Take stock of what earlier drivers of the run left."""
        try:
            self._sizes_bytes = self._take_stock()
            self._delete_again()
        except ArtifactsError as error:
            logger.warning("checkpoints cannot be looked after: %s", error)
        else:
            self._enforce()

    def hear(self, number: int, events: Iterable[Event]) -> None:
        """Follow what happened in a trial; the history knows of it already.

        Args:
            number: The trial.
            events: What it reported.
        """
        finished = self._is_finished(self._ledger.history.trials[number])
        has_saved = any(isinstance(event, CheckpointSaved) for event in events)
        if not finished and not (has_saved and self._limit_bytes is not None):
            return
        try:
            size_bytes = sum(self._artifacts.sizes(_folder(number)).values())
        except ArtifactsError as error:
            logger.warning("the checkpoints of trial %d cannot be looked after: %s", number, error)
            return
        if size_bytes:
            self._sizes_bytes[number] = size_bytes
            self._enforce()

    def end(self) -> None:
        """Remove what workers wrote after their trial was over and its files were deleted."""
        try:
            if any(trial.checkpoints_deleted for trial in self._ledger.history.trials.values()):
                self._sizes_bytes = self._take_stock()
                self._delete_again()
        except ArtifactsError as error:
            logger.warning("checkpoints cannot be looked after: %s", error)

    def _take_stock(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, size_bytes in self._artifacts.sizes(_TRIALS).items():
            _, number, kind, *_ = [*name.split("/"), "", ""]
            if kind == _CHECKPOINTS and number.isdecimal():
                found[int(number)] = found.get(int(number), 0) + size_bytes
        return {number: size for number, size in found.items() if number in self._ledger.history.trials}

    def _delete_again(self) -> None:
        for number in [*self._sizes_bytes]:
            if self._ledger.history.trials[number].checkpoints_deleted:
                self._remove(number)

    def _enforce(self) -> None:
        trials = self._ledger.history.trials
        held = [trials[number] for number in self._sizes_bytes if self._is_finished(trials[number])]
        too_many = self._keep_best is not None and len(held) > self._keep_best
        if not too_many and not self._is_too_large():
            return
        ordered, num_front = self._order(held)
        num_kept = len(ordered) if self._keep_best is None else max(self._keep_best, num_front)
        for trial in ordered[num_kept:]:
            self._delete(trial, "keep_best")
        del ordered[num_kept:]
        while len(ordered) > 1 and self._is_too_large():
            self._delete(ordered.pop(), "max_checkpoints_size")
        if self._is_too_large() and not self._has_warned:
            self._has_warned = True
            self._warn()

    def _order(self, held: list[Trial]) -> tuple[list[Trial], int]:
        """Return trials, the most valuable first, and how many of them no other one beats."""
        history = self._ledger.history
        numbers = {trial.number for trial in held}
        ranked = [trial for trial in history.ranked() if trial.number in numbers]
        front = history.front(among=ranked) if len(history.objectives) > 1 else ranked[:1]
        first = {trial.number for trial in front}
        behind = [trial for trial in ranked if trial.number not in first]
        seen = first | {trial.number for trial in behind}
        rest = [trial for trial in reversed(held) if trial.number not in seen]
        return [*front, *behind, *rest], len(front)

    def _delete(self, trial: Trial, reason: Literal["keep_best", "max_checkpoints_size"]) -> None:
        size_bytes = self._sizes_bytes[trial.number]
        self._ledger.record(CheckpointsDeleted(trial=trial.number, reason=reason, size_bytes=size_bytes))
        self._remove(trial.number)

    def _remove(self, number: int) -> None:
        del self._sizes_bytes[number]
        try:
            self._artifacts.delete(_folder(number))
        except ArtifactsError as error:
            logger.warning("the checkpoints of trial %d cannot be deleted: %s", number, error)

    def _is_too_large(self) -> bool:
        return self._limit_bytes is not None and sum(self._sizes_bytes.values()) > self._limit_bytes

    def _warn(self) -> None:
        message = (
            f"the checkpoints of the best trial and of unfinished ones take "
            f"{sum(self._sizes_bytes.values()):,} bytes, more than resources.max_checkpoints_size = "
            f"{self._limit_bytes:,}; they are kept all the same"
        )
        logger.warning(message)
        self._ledger.record(Noted(level="warning", message=message))

    def _is_finished(self, trial: Trial) -> bool:
        return trial.finished and not trial.interrupted


def _folder(number: int) -> str:
    return f"{_TRIALS}/{number:05d}/{_CHECKPOINTS}"
