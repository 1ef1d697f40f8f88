"""The workers of one trial, as its coordinator holds them: request, start, follow, stop, release.

A gang waits for its turn in the pool and then runs one trial, or several short ones in a row. Rank
0 reports events. Other ranks only report that they ended or died. The first call to a worker also
returns its first events, so a short trial takes one call. A trial that follows another one needs no
call to the pool. This module does not import torch. The caller handles lost workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import socket
import time
import uuid
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    TaskCancelledError,
)

from workbench.cluster.ray_internals import was_killed_for_memory
from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.pool import Lease, Owner, connect_pool
from workbench.cluster.workers.worker import Progress, WorkerInfo
from workbench.foundation.errors import RunError, WorkbenchError
from workbench.foundation.events import Event, Reason, TrialEnded
from workbench.hardware.resources import num_memory_kills
from workbench.training.outcome import FAILED_EXCHANGE

if TYPE_CHECKING:
    from workbench.training.worker_task import TrialTask

logger = logging.getLogger(__name__)

_NODE_DIED = "its node has died"  # as Ray puts it
POOL_RESTART_S = 30.0
"""How long to try to open another pool after one died."""
DEATH_KNOWN_S = 1.0
"""How long the cluster takes to learn why a process ended."""
CHILD_PROCESSES_S = 3.0
"""How long workers may take to end the processes that their trial started, before they are
killed.
"""
RANKS_APART_S = 5.0
"""How much later than rank 0 another rank may end its trial."""
KEPT_S = 0.5
"""How long trials in a row may run on the same lease. After that, other runs have their turn."""


class Gang:
    """The workers of one trial, from the request to the release."""

    def __init__(self, request: Request) -> None:
        """Request a gang from the pool. `ready` returns whether it was granted.

        Args:
            request: What to request.
        """
        self._request = request
        self._requested_s = 0.0
        self._pool_lost_s: float | None = None
        """When the first of several pools in a row died."""
        self._granted_s = 0.0
        self._num_trials = 0
        self._is_announced = True
        self._lease: Lease | None = None
        self._pending_lease = self._request_lease()
        self._running: list[Any] = []  # one pending call per rank whose trial has not ended
        self._ended: Progress | None = None
        self._endings: dict[int, TrialEnded] = {}
        self._failed_s: float | None = None  # when the first rank failed
        self._num_memory_kills = 0
        self._unfit: list[str] = []
        self._unhealthy: set[int] = set()
        self._occupied: dict[int, str] = {}
        self._stop_sent = False

    @classmethod
    def lease(cls, request: Request, timeout_s: float | None = None) -> Gang:
        """Request a gang and wait until it is granted.

        Args:
            request: What to request.
            timeout_s: How long to wait, or None for as long as it takes.

        Returns:
            The gang, ready to start.

        Raises:
            ResourcesError: If the cluster can never hold it.
            RunError: If it is not granted in time, or workers do not start.
        """
        gang = cls(request)
        if not gang.ready(timeout_s):
            gang.release()
            raise RunError(
                f"no worker became free within {timeout_s:g} s", next_step="Try again later."
            )
        return gang

    def ready(self, timeout_s: float | None = None) -> bool:
        """Return whether the workers have been leased.

        Args:
            timeout_s: How long to wait for them, or None for as long as it takes.

        Raises:
            ResourcesError: If the cluster can never hold the gang.
            RunError: If workers do not start, or the pool died and could not be restarted.
        """
        while self._lease is None:
            try:
                self._lease = ray.get(self._pending_lease, timeout=timeout_s)
                self._granted_s = time.monotonic()
            except (GetTimeoutError, TaskCancelledError):  # its run ends
                return False
            except RayTaskError as error:
                if isinstance(error.cause, WorkbenchError):
                    raise error.cause from None
                raise RunError(f"the worker pool failed: {error.cause}") from error
            except RayActorError as error:
                now_s = time.monotonic()
                has_worked = now_s - self._requested_s > POOL_RESTART_S
                if self._pool_lost_s is None or has_worked:
                    self._pool_lost_s = now_s
                elif now_s - self._pool_lost_s > POOL_RESTART_S:
                    raise RunError("the worker pool died and could not be restarted") from error
                time.sleep(0.1)
                _pool_at.cache_clear()
                self._pending_lease = self._request_lease()
        return True

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The processes of the gang, by rank, or empty before it is ready."""
        return self._lease.infos if self._lease is not None else ()

    def start(
        self, task: TrialTask, *, blocking: bool = False, origin: Origin | None = None
    ) -> None:
        """Start the trial on every worker.

        Args:
            task: The trial. Each worker gets it with its own rank.
            blocking: Whether training waits after each report of an objective until `next` is
                called again, so that a decision to stop takes effect at exactly that report.
            origin: Where the run was started, so that imports and relative paths resolve as they do
                there.
        """
        lease = self._lease
        if lease is None:
            raise RunError("the gang has no workers yet", next_step="Wait until it is ready.")
        num_workers = len(lease.workers)
        self._num_trials += 1
        self._ended, self._stop_sent = None, False
        self._endings, self._failed_s = {}, None
        self._num_memory_kills = num_memory_kills()
        if num_workers > 1:
            task = dataclasses.replace(task, num_workers=num_workers, meeting=uuid.uuid4().hex)
        self._running = [
            worker.start.remote(
                dataclasses.replace(task, rank=rank) if rank else task,
                blocking and rank == 0,
                origin,
                lease.workers[0] if rank else None,
            )
            for rank, worker in enumerate(lease.workers)
        ]

    def call(self, target: str, *arguments: Any) -> Any:
        """Call a function on rank 0 while no trial runs there, and return its result.

        Args:
            target: The function as `module:name`.
            arguments: Its arguments.

        Raises:
            RayError: If the worker is lost. What the function raises is raised as it is.
        """
        if self._lease is None:
            raise RunError("the gang has no workers yet", next_step="Wait until it is ready.")
        try:
            return ray.get(self._lease.workers[0].call.remote(target, arguments))
        except RayTaskError as error:
            raise error.cause from error
        except RayError:
            self._unhealthy.add(0)
            raise

    def next(self, *, stop: bool = False, timeout_s: float | None = None) -> Progress:
        """Wait for the next events of the trial.

        Args:
            stop: Whether it should stop at its next report. It may report and checkpoint once more.
            timeout_s: How long to wait, or None for as long as it takes.

        Returns:
            The progress since the last call, which is empty if the time is up. `ended` or `lost` is
            set once the trial is over, and stays set.
        """
        if self._ended is not None:
            return self._ended
        lease = self._lease
        if lease is None or not self._running:
            raise RunError("no trial was started", next_step="Start one.")
        first = lease.workers[0]
        if self._running[0] is None:
            self._running[0] = first.next.remote(stop)
        elif stop and not self._stop_sent:
            first.stop.remote()
        self._stop_sent = self._stop_sent or stop
        return self._collect(timeout_s)

    def stop(self, grace_s: float) -> Progress:
        """Stop the trial. Its processes are killed if it does not stop in time.

        Args:
            grace_s: Seconds until the processes are killed.

        Returns:
            The progress until the end. If processes had to be killed, neither `ended` nor `lost` is
            set.
        """
        deadline = time.monotonic() + grace_s
        events = []
        while (left_s := deadline - time.monotonic()) > 0:
            progress = self.next(stop=True, timeout_s=left_s)
            events += progress.events
            if progress.ended is not None or progress.lost is not None:
                return dataclasses.replace(progress, events=events)
        self.kill()
        return Progress(
            events, message=f"it did not stop within {grace_s:g} s, so its processes were killed"
        )

    def kill(self) -> None:
        """Kill the processes of the gang now."""
        if self._lease is None:
            return
        # Their own child processes would survive them.
        ending = [worker.end.remote(0.0) for worker in self._lease.workers]
        ray.wait(ending, num_returns=len(ending), timeout=CHILD_PROCESSES_S)
        for worker in self._lease.workers:
            ray.kill(worker)
        self._unhealthy.update(range(len(self._lease.workers)))
        self._running = []

    @property
    def can_continue(self) -> bool:
        """Whether another trial may run on the same workers without a turn of other runs."""
        is_idle = self._lease is not None and not self._running
        is_idle = is_idle and not self._unhealthy and not self._occupied
        return is_idle and not self._request.fresh and time.monotonic() - self._granted_s < KEPT_S

    def continue_with(self, request: Request) -> bool:
        """Keep the workers for the next trial if it requests the same, and return whether it does.

        The pool is not called, because that takes longer than some trials. See `announce`.

        Args:
            request: What the next trial requests.
        """
        same = dataclasses.replace(request, trial=self._request.trial)
        if not self.can_continue or same != self._request:
            return False
        self._request, self._is_announced = request, False
        return True

    def announce(self) -> None:
        """Let the pool know which trial runs, before anybody can cancel it."""
        if self._is_announced or self._lease is None:
            return
        with contextlib.suppress(RayError):  # a pool that died took its workers with it
            ray.get(_pool().rename.remote(self._lease.lease_id, self._request))
        self._is_announced = True

    def release(self) -> None:
        """Return the workers to the pool, or withdraw the request. Those that train are stopped.

        It returns at once and may be called twice.
        """
        if self._lease is None:
            with contextlib.suppress(RayError):
                ray.cancel(self._pending_lease)
            return
        unhealthy = tuple(sorted(self._unhealthy))
        _pool().release.remote(
            self._lease.lease_id,
            unhealthy,
            bool(self._running),
            self._num_trials,
            occupied=self._occupied,
        )
        self._lease, self._running = None, []

    def _request_lease(self) -> Any:
        self._requested_s = time.monotonic()
        return _pool().lease.remote(self._request, _owner())

    def _collect(self, timeout_s: float | None) -> Progress:
        """Return what rank 0 reports, unless another rank ends badly and rank 0 does not notice."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            pending = [reference for reference in self._running if reference is not None]
            until_s = [] if deadline is None else [deadline]
            if self._failed_s is not None:
                until_s.append(self._failed_s + RANKS_APART_S)
            left_s = max(0.0, min(until_s) - time.monotonic()) if until_s else None
            done, _ = ray.wait(pending, timeout=left_s) if len(pending) > 1 else (pending, [])
            try:
                progress = ray.get(done[0], timeout=left_s) if done else None
            except GetTimeoutError:
                progress = None
            except (RayActorError, OutOfMemoryError) as error:
                return self._end_lost(self._running.index(done[0]), error)
            if progress is None:
                if self._failed_s is None or time.monotonic() < self._failed_s + RANKS_APART_S:
                    return Progress()
                # It waits for a rank that has gone, in a collective that cannot be aborted.
                return self._end([])
            rank = self._running.index(done[0])
            self._take(rank, progress)
            if rank == 0:
                if progress.ended is None:
                    return progress
                return self._end(progress.events)
            if progress.events:  # of the other ranks only matches in their logs are reported
                return Progress(progress.events)

    def _take(self, rank: int, progress: Progress) -> None:
        self._running[rank] = None
        if rank and progress.ended is None and self._lease is not None:
            self._running[rank] = self._lease.workers[rank].next.remote(False)
        if progress.unfit is not None:
            self._unhealthy.add(rank)
            self._unfit.append(
                f"worker {self.workers[rank].pid} on {self.workers[rank].host} {progress.unfit}"
            )
        if progress.occupied is not None:
            self._occupied[rank] = progress.occupied
        if progress.ended is not None:
            self._endings[rank] = progress.ended
            if progress.ended.state == "failed" and self._failed_s is None:
                self._failed_s = time.monotonic()

    def _end(self, events: list[Event]) -> Progress:
        """Wait for the ranks that still run, and return how the trial ended.

        If one rank fails, the others fail because it is missing. So the cause is taken from a rank
        whose error is not just about a missing rank. Ranks that do not end are not used again.
        """
        deadline = time.monotonic() + RANKS_APART_S
        for rank, reference in enumerate(self._running):
            if reference is None:
                continue
            try:
                while (reference := self._running[rank]) is not None:
                    left_s = max(0.0, deadline - time.monotonic())
                    progress: Progress = ray.get(reference, timeout=left_s)
                    self._take(rank, progress)
                    events = [*events, *(progress.events if rank else ())]
            except GetTimeoutError:
                self._unhealthy.add(rank)
            except (RayActorError, OutOfMemoryError) as error:
                return dataclasses.replace(self._end_lost(rank, error), events=events)
        failed = [ending for ending in self._endings.values() if ending.state == "failed"]
        first = min(failed, key=_cause_order) if failed else self._endings[0]
        of_first_rank = self._endings.get(0, first)
        ended = of_first_rank.model_copy(
            update={
                name: getattr(first, name) for name in ("state", "reason", "message", "traceback")
            }
        )
        self._running = []
        unfit = "; ".join(self._unfit) or None
        occupied = "; ".join(self._occupied.values()) or None
        self._ended = Progress(ended=ended, unfit=unfit, occupied=occupied)
        return Progress(events, ended, unfit=unfit, occupied=occupied)

    def _end_lost(self, rank: int, error: RayError) -> Progress:
        """End the trial because a worker died. The others can be used again if they notice."""
        info = self.workers[rank]
        reason: Reason = "lost"
        cause = "its process ended (exit or crash)"
        if self._ran_out_of_memory(info, error):
            reason = "oom"
            cause = "memory ran out"
        elif _NODE_DIED in str(error):
            cause = "its node was lost"
        logger.info("worker %d on %s died: %s", info.pid, info.host, error)
        self._unhealthy.add(rank)
        self._ended = Progress(
            lost=reason, message=f"worker {info.pid} on {info.host} died: {cause}"
        )
        return self._ended

    def _ran_out_of_memory(self, info: WorkerInfo, error: RayError) -> bool:
        if isinstance(error, OutOfMemoryError) or was_killed_for_memory(
            info.process_id, DEATH_KNOWN_S
        ):
            return True
        # Linux kills processes without notifying Ray. Its counter can only be read on this machine.
        return info.host == socket.gethostname() and num_memory_kills() > self._num_memory_kills


def _pool() -> Any:
    context = ray.get_runtime_context()
    return _pool_at(context.gcs_address, context.get_job_id())


@functools.lru_cache(maxsize=4)
def _pool_at(address: str, job_id: str) -> Any:
    """Connect once for as long as this process is attached, each time as another job."""
    return connect_pool()


def _cause_order(ending: TrialEnded) -> int:
    """Return the order of a failure, those most likely to have caused the others first."""
    if ending.reason == "oom":
        return 0
    text = f"{ending.message} {ending.traceback}"
    return 2 if any(sign in text for sign in FAILED_EXCHANGE) else 1


def _owner() -> Owner:
    context = ray.get_runtime_context()
    actor_id = context.get_actor_id()
    handle = None if actor_id is None else context.current_actor
    return Owner(context.get_job_id(), os.getpid(), actor_id, context.get_node_id(), handle)
