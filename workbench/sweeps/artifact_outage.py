"""Pause a run while its artifacts cannot be written, and end it before that costs trials.

If the storage of its artifacts is full, read-only or missing, a trial does not count as failed. It
waits with the others until the storage works again. If that takes too long, the run ends, and you
can resume it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Literal

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ArtifactsError
from workbench.foundation.events import CheckpointSaved, Event, Noted, TrialEnded
from workbench.sweeps.code_versions import FILE_NAME
from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

ARTIFACTS_PATIENCE_S = 60.0
"""How long a run retries to write files before it ends."""
POLL_S = 2.0
MAX_WAIT_S = 15.0


class Pause:
    """Holds back the trials of one run while its artifacts cannot be written."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Watch the storage of a run's artifacts. Notes are recorded in `ledger`."""
        self._ledger = ledger
        self._artifacts = artifacts
        self._is_marked = artifacts.exists(FILE_NAME)
        self._problem: str | None = None
        self._since_s = 0.0
        self._wait_s = 0.0
        self._until_s = 0.0
        self._checked_s = time.monotonic()
        self.holds = False
        """Whether no trial may start now."""

    def begin(self, problem: str) -> None:
        """Hold trials back, because one could not write its files.

        Args:
            problem: Why it could not.
        """
        now_s = time.monotonic()
        if self._problem is None:
            self._since_s, self._wait_s = now_s, POLL_S / 4
            self._note(
                "warning", f"the run is paused because its files cannot be written: {problem}"
            )
        elif not self.holds:  # it seemed to work again, but did not
            self._wait_s = min(2 * self._wait_s, MAX_WAIT_S)
        self._problem = problem
        self.holds, self._until_s = True, now_s + self._wait_s

    def on_events(self, events: Iterable[Event]) -> None:
        """Continue the run once a file was written."""
        if self._problem is not None and any(_shows_success(event) for event in events):
            self._problem, self.holds = None, False
            self._note("info", "files can be written again, and the run continues")

    def tick(self) -> None:
        """Check the storage, and let trials start again once it seems to work.

        Raises:
            ArtifactsError: If it has not worked for too long.
        """
        now_s = time.monotonic()
        self._check_presence(now_s)
        if self._problem is None:
            return
        if self.holds and now_s >= self._until_s:
            try:
                self._artifacts.probe()
                self.holds = self._has_vanished()
            except ArtifactsError as error:
                self._problem = error.problem
            self._until_s = now_s + POLL_S
        if now_s - self._since_s > ARTIFACTS_PATIENCE_S:
            raise ArtifactsError(
                f"the files of the run cannot be written: {self._problem.removesuffix('.')}",
                next_step="Fix the storage, then resume the run.",
            )

    def _check_presence(self, now_s: float) -> None:
        # On a URL every check costs a request, so only failed writes show an outage there.
        if not self._is_marked or not self._artifacts.is_local or now_s - self._checked_s < POLL_S:
            return
        self._checked_s = now_s
        if not self.holds and self._has_vanished():
            self.begin(f"{self._artifacts} no longer exists")

    def _has_vanished(self) -> bool:
        return self._is_marked and not self._artifacts.exists(FILE_NAME)

    def _note(self, level: Literal["info", "warning"], message: str) -> None:
        logger.warning(message)
        self._ledger.record(Noted(level=level, message=message))


def _shows_success(event: Event) -> bool:
    return isinstance(event, CheckpointSaved) or (
        isinstance(event, TrialEnded) and event.state == "complete"
    )
