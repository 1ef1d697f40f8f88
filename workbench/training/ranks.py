"""How the workers of a function or a program tell each other about reports, stops and endings.

They use the store where the workers met, so no collective is needed. Most scripts for several
processes only report on rank 0, so a worker may report less often than rank 0, or never. Rank 0's
reports are numbered, and only they count. If a worker reports as often as rank 0, it learns the
decision on a report at its own report of the same number. Any other worker notices a stop when its
next exchange fails, because rank 0 has left the group.

Functions, programs and their libraries find each other by the environment variables of torchrun. A
program with one worker needs none of this, so this module does not load torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from workbench.foundation.formatting import format_count
from workbench.training.worker_task import TrialTask

if TYPE_CHECKING:
    from workbench.training.strategies.worker_group import Group

WAIT_S = 5.0
"""How long another rank waits for the same report of rank 0, which may be slow or never come."""
LEAVE_S = 3.0
"""How long a rank waits for the others after its function has returned, before it leaves."""
STOPPED_S = 1.0
"""The same if the trial must stop. Ranks that do not report only notice when rank 0 leaves."""
CHECK_S = 0.2
"""How often the workers of a program check whether they must stop."""
FAILED_S = 2.0
"""How long the program of another rank may take to fail by itself, because its own error says more
than being stopped.
"""
_POLL_S = (0.0005, 0.02)
# Keys of messages in the store.
_REPORTS, _STOP, _BEGUN = "reports/0", "stop_at", "begun"
_PROGRAM_STOP, _PROGRAM_FAILED = "program/stop", "program/failed"


class Ranks:
    """One worker's view of the progress of the others."""

    def __init__(self, group: Group) -> None:
        """Join the others. Every worker must call it.

        Args:
            group: The group of the trial, with several workers.
        """
        assert group.store is not None
        self._group = group
        self._store, self._rank, self._num_workers = group.store, group.rank, group.num_workers
        self.num_reports = 0

    def follow_first(self) -> None:
        """Let the other workers wait until rank 0 has called this as well."""
        if self._rank == 0:
            self._store.set(_BEGUN, "1")
        while not self._is_set(_BEGUN):
            time.sleep(_POLL_S[1])

    def decide(self, stop: bool) -> bool:
        """Record a report of this worker, and return whether rank 0 had to stop by then.

        Args:
            stop: Whether this worker must stop.
        """
        self.num_reports += 1
        if self._rank == 0:
            # The decision must be in the store before the number of the report, because the others
            # wait for the number.
            if stop and not self._is_set(_STOP):
                self._store.set(_STOP, str(self.num_reports))
            self._store.set(_REPORTS, str(self.num_reports))
            return stop
        self._store.set(f"reports/{self._rank}", str(self.num_reports))
        return self._wait_for_decision() or stop

    def _wait_for_decision(self) -> bool:
        # If an earlier wait was in vain, and rank 0 is still behind, it reports less often than
        # this worker. Do not wait again.
        has_caught_up = self._number(_REPORTS) >= self.num_reports - 1
        deadline = time.monotonic() + (WAIT_S if has_caught_up else 0.0)
        # Poll with growing pauses: usually, rank 0 reports at about the same time.
        pause_s, longest_s = _POLL_S
        while True:
            if self._number(_REPORTS) >= self.num_reports or self._is_set("left/0"):
                break
            if time.monotonic() >= deadline:
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        stop_at = self._number(_STOP)
        return 0 < stop_at <= self.num_reports

    def leave(self, *, wait_s: float) -> None:
        """Record that this worker's function has returned, and leave when all others have returned.

        If another worker still waits for an exchange with this one, the exchange fails then.

        Args:
            wait_s: How long to wait for the others.
        """
        self._store.set(f"left/{self._rank}", str(self.num_reports))
        deadline = time.monotonic() + wait_s
        while (is_early := len(self._left()) < self._num_workers) and time.monotonic() < deadline:
            time.sleep(_POLL_S[0])
        self._group.close()
        if is_early:
            from workbench.training.strategies.worker_group import (
                let_go,  # loads torch, which a single worker may not need
            )

            let_go()

    def is_stopped(self) -> bool:
        """Return whether rank 0 had to stop."""
        with contextlib.suppress(RuntimeError):  # rank 0's process and its store have ended
            return self._is_set(_STOP)
        return False

    def explain(self) -> str | None:
        """Return why an exchange failed, if the reason is that others have returned."""
        with contextlib.suppress(RuntimeError):
            left = [
                f"rank {rank} after {format_count(reports, 'report')}"
                for rank, reports in self._left().items()
            ]
            if left:
                return (
                    f"the function has returned on {', '.join(left)} while rank {self._rank} still"
                    f" exchanges with the others, after {format_count(self.num_reports, 'report')}"
                )
        return None

    def describe_unequal(self) -> str | None:
        """Describe ranks that have reported, but not as often as rank 0.

        None if there are none.
        """
        counts = {rank: self._number(f"reports/{rank}") for rank in range(1, self._num_workers)}
        unequal = {
            rank: count for rank, count in counts.items() if count not in (0, self.num_reports)
        }
        if not unequal:
            return None
        others = ", ".join(
            f"rank {rank} {format_count(count, 'report')}" for rank, count in unequal.items()
        )
        return (
            f"rank 0 made {format_count(self.num_reports, 'report')}, {others}. Only the reports of"
            " rank 0 count"
        )

    def _left(self) -> dict[int, int]:
        """Return the ranks whose function has returned, with the number of their reports."""
        names = {rank: f"left/{rank}" for rank in range(self._num_workers)}
        return {rank: self._number(name) for rank, name in names.items() if self._is_set(name)}

    def _is_set(self, name: str) -> bool:
        return bool(self._store.check([name]))

    def _number(self, name: str) -> int:
        return int(self._store.get(name)) if self._is_set(name) else 0


@contextlib.contextmanager
def torchrun_variables(group: Group, host: str) -> Iterator[None]:
    """Set the variables as long as the context is open. Every worker must enter it.

    Args:
        group: The group of the trial.
        host: Address of rank 0's machine, as the others see it.
    """
    variables = variables_of(group, host)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def host_of(task: TrialTask) -> str:
    """Return the address of rank 0's machine."""
    if task.meeting is None:
        return "127.0.0.1"
    return task.meeting.partition("/")[0].rpartition(":")[0]


class Companions(Protocol):
    """The workers of a trial, for making the variables."""

    rank: int
    num_workers: int

    def gather(self, content: Any) -> list[Any]:
        """Return the `content` of every worker, by rank."""
        ...

    def broadcast(self, content: Any) -> Any:
        """Return the `content` of rank 0."""
        ...


def variables_of(group: Companions, host: str) -> dict[str, str]:
    """Return the variables by name. Every worker must call it.

    Scripts choose their device by `LOCAL_RANK`. So it is 0 if a worker only sees its own GPU.
    """
    import torch

    names = group.gather(socket.gethostname())
    nodes = list(dict.fromkeys(names))
    node = names[group.rank]
    local_rank = names[: group.rank].count(node)
    num_devices = torch.cuda.device_count()
    node_rank = str(nodes.index(node))
    return {
        "RANK": str(group.rank),
        "WORLD_SIZE": str(group.num_workers),
        "LOCAL_RANK": str(min(local_rank, num_devices - 1) if num_devices else local_rank),
        "LOCAL_WORLD_SIZE": str(names.count(node)),
        "GROUP_RANK": node_rank,
        "NODE_RANK": node_rank,
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "ROLE_RANK": str(group.rank),
        "ROLE_WORLD_SIZE": str(group.num_workers),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(group.broadcast(_free_port(host) if group.rank == 0 else None)),
    }


def _free_port(host: str) -> int:
    """Return a port for rank 0, in case the script opens a meeting point of its own."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class ProgramRanks:
    """One worker's view of the others. A single worker has none."""

    master = ""
    variables: dict[str, str] = {}

    def should_stop(self) -> bool:
        """Return whether rank 0 must stop, or another rank has failed."""
        return False

    def request_stop(self) -> None:
        """Let the other ranks stop."""

    def leave(self, *, failed: bool) -> None:
        """Tell the other ranks how the program ended here."""


class _SeveralRanks(ProgramRanks):
    def __init__(self, task: TrialTask) -> None:
        from workbench.training.strategies.worker_group import connect

        assert task.meeting is not None
        self.rank, self.num_workers = task.rank, task.num_workers
        self._store = connect(task.meeting)
        self._num_gathered = 0
        self._checked_s = 0.0
        self._failed_s: float | None = None
        self.variables = variables_of(self, host_of(task))
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
        # Rank 0's process may have ended, and its store with it.
        with contextlib.suppress(RuntimeError):
            if self._store.check([_PROGRAM_STOP]):
                return True
            if self._failed_s is None and self._store.check([_PROGRAM_FAILED]):
                self._failed_s = now_s
            return self._failed_s is not None and now_s - self._failed_s >= FAILED_S
        return True

    def request_stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(_PROGRAM_STOP, "")

    def leave(self, *, failed: bool) -> None:
        if failed:
            with contextlib.suppress(RuntimeError):
                self._store.set(_PROGRAM_FAILED, str(self.rank))


def join_ranks(task: TrialTask) -> ProgramRanks:
    """Join the other workers of a trial, if there are any."""
    if task.num_workers == 1:
        return ProgramRanks()
    return _SeveralRanks(task)
