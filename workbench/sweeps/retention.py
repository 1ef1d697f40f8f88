"""Keep the checkpoints of unfinished trials and of the best finished ones, and delete the others.

In a population, the checkpoints from which a member may still continue are kept as well.

A deletion is stored before it is carried out, so that no history refers to a missing file. A crash,
or a worker that does not know yet that its trial has ended, may leave files behind. They are
removed when the run is resumed or ends. Resuming also reports unfinished trials whose checkpoints
somebody has deleted. Within one trial, the training keeps the last and the best checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import CheckpointSaved, CheckpointsDeleted, Event, Noted
from workbench.foundation.formatting import format_bytes
from workbench.store.database.run_files import TRIALS, trial_folder
from workbench.store.history import Trial
from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

_CHECKPOINTS = "checkpoints"


class Retention:
    """Keeps the checkpoints of one run within the limits of its `resources`."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Manage the files in `artifacts` by the events in `ledger`."""
        resources = ledger.experiment.resources
        self._keep_best = None if resources.keep_best == "all" else resources.keep_best
        self._limit_bytes = resources.max_checkpoints_size
        self._ledger = ledger
        self._artifacts = artifacts
        self._sizes_bytes: dict[int, int] = {}
        self._has_warned = False

    def begin(self) -> None:
        """Find the checkpoints that earlier drivers of the run have left."""
        try:
            self._sizes_bytes = self._take_stock()
            self._delete_again()
        except ArtifactsError as error:
            logger.warning("checkpoints cannot be managed: %s", error)
        else:
            self._note_lost()
            self._enforce()

    def on_events(self, number: int, events: Iterable[Event]) -> None:
        """Handle the events of a trial after the history has applied them.

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
            logger.warning("the checkpoints of trial %d cannot be managed: %s", number, error)
            return
        if size_bytes:
            self._sizes_bytes[number] = size_bytes
            self._enforce()

    def end(self) -> None:
        """Remove what workers wrote after their trial had ended and its files were deleted."""
        try:
            if any(trial.checkpoints_deleted for trial in self._ledger.history.trials.values()):
                self._sizes_bytes = self._take_stock()
                self._delete_again()
        except ArtifactsError as error:
            logger.warning("checkpoints cannot be managed: %s", error)

    def _take_stock(self) -> dict[int, int]:
        sizes_bytes: dict[int, int] = {}
        for name, size_bytes in self._artifacts.sizes(TRIALS).items():
            _, number, kind, *_ = [*name.split("/"), "", ""]
            if kind == _CHECKPOINTS and number.isdecimal():
                sizes_bytes[int(number)] = sizes_bytes.get(int(number), 0) + size_bytes
        trials = self._ledger.history.trials
        return {number: size for number, size in sizes_bytes.items() if number in trials}

    def _note_lost(self) -> None:
        """Record which unfinished trials have lost their checkpoints."""
        lost = [
            trial.number
            for trial in self._ledger.history.trials.values()
            if trial.last_checkpoint is not None
            and not self._is_finished(trial)
            and trial.number not in self._sizes_bytes
        ]
        if not lost:
            return
        which, whose = f"trial {lost[0]} starts", "its"
        if len(lost) > 1:
            which, whose = f"trials {', '.join(map(str, lost))} start", "their"
        message = (
            f"{which} over: {whose} checkpoints are no longer in {self._artifacts.below(TRIALS)}"
        )
        logger.warning(message)
        self._ledger.record(Noted(level="warning", message=message))

    def _delete_again(self) -> None:
        for number in [*self._sizes_bytes]:
            if self._ledger.history.trials[number].checkpoints_deleted:
                self._remove(number)

    def _enforce(self) -> None:
        trials = self._ledger.history.trials
        needed = self._ledger.study.needed()
        held = [
            trials[number]
            for number in self._sizes_bytes
            if self._is_finished(trials[number]) and number not in needed
        ]
        too_many = self._keep_best is not None and len(held) > self._keep_best
        if not too_many and not self._is_too_large():
            return
        ordered, num_front = self._order(held)
        num_kept = len(ordered)
        if self._keep_best is not None:
            num_kept = max(self._keep_best, num_front)
        for trial in ordered[num_kept:]:
            self._delete(trial, "keep_best")
        del ordered[num_kept:]
        while len(ordered) > 1 and self._is_too_large():
            self._delete(ordered.pop(), "max_checkpoints_size")
        if self._is_too_large() and not self._has_warned:
            self._has_warned = True
            self._warn()

    def _order(self, held: list[Trial]) -> tuple[list[Trial], int]:
        """Return trials, the most valuable first, and how many of them no other trial beats."""
        history = self._ledger.history
        ranked = history.ranked(held)
        front = ranked[:1]
        if len(history.objectives) > 1:
            front = history.front(among=ranked)
        first = {trial.number for trial in front}
        behind = [trial for trial in ranked if trial.number not in first]
        ordered_numbers = first | {trial.number for trial in behind}
        rest = [trial for trial in reversed(held) if trial.number not in ordered_numbers]
        return [*front, *behind, *rest], len(front)

    def _delete(self, trial: Trial, reason: Literal["keep_best", "max_checkpoints_size"]) -> None:
        size_bytes = self._sizes_bytes[trial.number]
        self._ledger.record(
            CheckpointsDeleted(trial=trial.number, reason=reason, size_bytes=size_bytes)
        )
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
            "the checkpoints of the best trial and of unfinished ones take"
            f" {format_bytes(sum(self._sizes_bytes.values()))}, more than"
            f" resources.max_checkpoints_size = {format_bytes(self._limit_bytes or 0)}. They are"
            " kept anyway"
        )
        logger.warning(message)
        self._ledger.record(Noted(level="warning", message=message))

    def _is_finished(self, trial: Trial) -> bool:
        return trial.finished and not trial.interrupted


def _folder(number: int) -> str:
    return f"{trial_folder(number)}/{_CHECKPOINTS}"
