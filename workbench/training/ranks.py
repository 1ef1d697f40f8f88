"""How the workers of a function or a program tell each other about reports, stops and endings.

They use the store at which the workers met, so no collective is needed. A worker may report less
often than rank 0, or never, as in most scripts for several processes. Rank 0's reports count and
are numbered. A worker that reports as often as rank 0 learns the decision on each report at its
same report. Any other worker learns it when its next exchange fails, because rank 0 has left the
group.

Functions, programs and their libraries find each other by the environment variables of torchrun. A
program of one worker needs none of this, so this module loads no torch.
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
from workbench.training.task import TrialTask

if TYPE_CHECKING:
    from workbench.training.strategies.group import Group

WAIT_S = 5.0
"""How long a report of another rank waits for rank 0's, which may be slow or may never come."""
LEAVE_S = 3.0
"""How long a rank whose function has returned waits for the others before it leaves the group."""
STOPPED_S = 1.0
"""The same where the trial has to stop: ranks that do not report notice only then."""
CHECK_S = 0.2
"""How often the workers of a program look whether they have to stop."""
FAILED_S = 2.0
"""How long the program of another rank may take to fail by itself.

That says more than being stopped.
"""
_POLL_S = (0.0005, 0.02)
# Keys in the store with which functions and programs leave messages.
_REPORTS, _STOP, _BEGUN = "reports/0", "stop_at", "begun"
_PROGRAM_STOP, _PROGRAM_FAILED = "program/stop", "program/failed"


class Ranks:
    """One worker's view of how far the others are."""

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
        """Wait on the other workers until rank 0 has come here as well."""
        if self._rank == 0:
            self._store.set(_BEGUN, "1")
        while not self._is_set(_BEGUN):
            time.sleep(_POLL_S[1])

    def decide(self, stop: bool) -> bool:
        """Note a report of this worker, and return whether rank 0 had to stop at it or before.

        Args:
            stop: Whether this worker has to stop.
        """
        self.num_reports += 1
        if self._rank == 0:
            if stop and not self._is_set(_STOP):
                self._store.set(_STOP, str(self.num_reports))
            self._store.set(_REPORTS, str(self.num_reports))
            return stop
        self._store.set(f"reports/{self._rank}", str(self.num_reports))
        return self._wait_for_decision() or stop

    def _wait_for_decision(self) -> bool:
        # If an earlier wait was in vain and rank 0 has not caught up, it reports less often.
        has_caught_up = self._number(_REPORTS) >= self.num_reports - 1
        deadline = time.monotonic() + (WAIT_S if has_caught_up else 0.0)
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
        """Note that this worker's function has returned, and leave once all others have returned.

        An exchange for which another worker still waits fails when this one leaves.

        Args:
            wait_s: How long to wait for the others.
        """
        self._store.set(f"left/{self._rank}", str(self.num_reports))
        deadline = time.monotonic() + wait_s
        while (is_early := len(self._left()) < self._num_workers) and time.monotonic() < deadline:
            time.sleep(_POLL_S[0])
        self._group.close()
        if is_early:
            from workbench.training.strategies.group import (
                let_go,  # loads torch, which one worker may do without
            )

            let_go()

    def is_stopped(self) -> bool:
        """Return whether rank 0 had to stop."""
        with contextlib.suppress(RuntimeError):  # its process has ended, and the store with it
            return self._is_set(_STOP)
        return False

    def explain(self) -> str | None:
        """Return why an exchange failed here, if that is because others have returned."""
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
        """Return which ranks have reported, but not as often as rank 0.

        None where there are none.
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
            f"rank 0 made {format_count(self.num_reports, 'report')}, {others}: only the reports of"
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
    """Set the variables for as long as the context lasts. Every worker must enter it.

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
    """Return the address at which rank 0 is reached."""
    if task.meeting is None:
        return "127.0.0.1"
    return task.meeting.partition("/")[0].rpartition(":")[0]


class Companions(Protocol):
    """The workers of a trial, as far as the variables depend on them."""

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

    `LOCAL_RANK` chooses the device in all scripts, so it is 0 if a worker sees only its own GPU.
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
    """Return a port on which rank 0 can open another meeting point if it wants one."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class ProgramRanks:
    """One worker's view of the others. A single worker has none."""

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
        # The process of rank 0 has ended, and the store with it.
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
    """Meet the other workers of a trial, if there are any."""
    if task.num_workers == 1:
        return ProgramRanks()
    return _SeveralRanks(task)
