"""The workers of a program's trial.

The environment variables of torchrun for each, and a common end.

They meet at a store for TCP connections, as workers of a model do, but exchange nothing else: what
the program's processes exchange is theirs. A program that uses one worker needs none of this, and
no torch.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from workbench.training.task import TrialTask

CHECK_S = 0.2
FAILED_S = 2.0
"""How long the program of another rank may take to fail by itself, which says more than being
stopped.
"""
_STOP, _FAILED = "program/stop", "program/failed"


class ProgramRanks:
    """One worker's view of the others; of a single worker, nothing."""

    master = ""
    variables: dict[str, str] = {}

    def should_stop(self) -> bool:
        """Return whether rank 0 has to stop, or another rank has failed."""
        return False

    def request_stop(self) -> None:
        """Let the other ranks stop."""

    def leave(self, *, failed: bool) -> None:
        """Let the other ranks know how the program ended here."""


class _SeveralRanks(ProgramRanks):
    def __init__(self, task: TrialTask) -> None:
        from workbench.training.strategies.group import connect
        from workbench.training.torchrun import variables_of

        assert task.meeting is not None
        self.rank, self.num_workers = task.rank, task.num_workers
        self._store = connect(task.meeting)
        self._num_gathered = 0
        self._checked_s = 0.0
        self._failed_s: float | None = None
        host = task.meeting.partition("/")[0].rpartition(":")[0]
        self.variables = variables_of(self, host)
        self.master = f"{self.variables['MASTER_ADDR']}:{self.variables['MASTER_PORT']}"

    def gather(self, content: Any) -> list[Any]:
        """Return the `content` of every worker, by rank."""
        self._num_gathered += 1
        prefix = f"program/{self._num_gathered}"
        self._store.set(f"{prefix}/{self.rank}", json.dumps(content))
        return [json.loads(self._store.get(f"{prefix}/{rank}")) for rank in range(self.num_workers)]

    def broadcast(self, content: Any) -> Any:
        """Return the `content` of rank 0."""
        return self.gather(content)[0]

    def should_stop(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_S:
            return False
        self._checked_s = now_s
        with contextlib.suppress(
            RuntimeError
        ):  # the process of rank 0 has ended, and the store with it
            if self._store.check([_STOP]):
                return True
            if self._failed_s is None and self._store.check([_FAILED]):
                self._failed_s = now_s
            return self._failed_s is not None and now_s - self._failed_s >= FAILED_S
        return True

    def request_stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(_STOP, "")

    def leave(self, *, failed: bool) -> None:
        if failed:
            with contextlib.suppress(RuntimeError):
                self._store.set(_FAILED, str(self.rank))


@contextlib.contextmanager
def join_ranks(task: TrialTask) -> Iterator[ProgramRanks]:
    """Meet the other workers of a trial; alone, meet nobody."""
    yield ProgramRanks() if task.num_workers == 1 else _SeveralRanks(task)
