"""A run whose files cannot be written waits, tries again, and ends before it costs trials.

A trial that fails because the place of its artifacts is full, read-only or gone is not judged: it waits
with the others until that place is well again. One that stays ill ends the run, which can be resumed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Literal

from workbench.artifacts import Artifacts
from workbench.errors import ArtifactsError
from workbench.events import CheckpointSaved, Event, Noted, TrialEnded
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.origin_file import FILE_NAME

logger = logging.getLogger(__name__)

ARTIFACTS_PATIENCE_S = 60.0
"""How long a run tries to keep files, without success, before it ends."""
LOOK_S = 2.0
LONGEST_WAIT_S = 15.0


class Pause:
    """Holds the trials of one run back while its artifacts cannot be written."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Watch the place of a run's artifacts, and tell of it in `ledger`."""
        self._ledger = ledger
        self._artifacts = artifacts
        self._is_marked = artifacts.exists(FILE_NAME)
        self._problem: str | None = None
        self._since_s = 0.0
        self._wait_s = 0.0
        self._until_s = 0.0
        self._looked_s = time.monotonic()
        self.holds = False
        """Whether no trial may start now."""

    def begin(self, problem: str) -> None:
        """Hold trials back, because one could not keep its files.

        Args:
            problem: What was in the way.
        """
        now_s = time.monotonic()
        if self._problem is None:
            self._since_s, self._wait_s = now_s, LOOK_S / 4
            self._tell("warning", f"the run waits, because its files cannot be kept: {problem}")
        elif not self.holds:  # it seemed well again, and was not
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        self._problem = problem
        self.holds, self._until_s = True, now_s + self._wait_s

    def hear(self, events: Iterable[Event]) -> None:
        """Take heart from a file that was kept."""
        if self._problem is not None and any(_tells_of_success(event) for event in events):
            self._problem, self.holds = None, False
            self._tell("info", "files are kept again; the run goes on")

    def tick(self) -> None:
        """Look after the place, and let trials start again where it seems well.

        Raises:
            ArtifactsError: If it has not been well for too long.
        """
        now_s = time.monotonic()
        self._look_whether_it_is_there(now_s)
        if self._problem is None:
            return
        if self.holds and now_s >= self._until_s:
            try:
                self._artifacts.probe()
                self.holds = self._has_vanished()
            except ArtifactsError as error:
                self._problem = error.problem
            self._until_s = now_s + LOOK_S
        if now_s - self._since_s > ARTIFACTS_PATIENCE_S:
            raise ArtifactsError(
                f"the files of the run cannot be kept: {self._problem.removesuffix('.')}",
                next_step=f"Put that right, then go on with: workbench resume {self._ledger.run_id}",
            )

    def _look_whether_it_is_there(self, now_s: float) -> None:
        # On a URL a look costs a request; there only what fails tells.
        if not self._is_marked or not self._artifacts.is_local or now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if not self.holds and self._has_vanished():
            self.begin(f"{self._artifacts} has vanished")

    def _has_vanished(self) -> bool:
        return self._is_marked and not self._artifacts.exists(FILE_NAME)

    def _tell(self, level: Literal["info", "warning"], message: str) -> None:
        logger.warning(message)
        self._ledger.record(Noted(level=level, message=message))


def _tells_of_success(event: Event) -> bool:
    return isinstance(event, CheckpointSaved) or (isinstance(event, TrialEnded) and event.state == "complete")
