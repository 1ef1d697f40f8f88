"""The pool: the actor that owns the workers of an installation, and leases them in gangs.

Workers stay warm between leases with the same environment variables. They are returned to the
cluster when they have been idle for a while, and replaced when they die or after many leases. They
belong to the process of the pool. If it dies, they also die, and the next caller opens another
pool. A lease ends with its owner, and several short trials may share one.

When memory runs out, Ray kills restartable actors first, the newest first. So workers are
restartable and the pool is not, although a restarted worker is never used.

`admission` decides whose turn it is and where workers run. `pool_workers` starts workers and ends
idle ones. `gang` and `worker` use the leased workers. If idle workers of other installations hold
resources that this pool needs, their pools are asked to give way.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import exit_actor
from ray.exceptions import ActorUnschedulableError

from workbench.cluster.head.attachment import NAMESPACE
from workbench.cluster.head.installation import installation_id
from workbench.cluster.head.local_head import keep_alive
from workbench.cluster.ray_internals import actor_state, ended_jobs
from workbench.cluster.workers.admission import (
    Request,
    RunsBetweenTrials,
    Shape,
    Shortage,
    check_feasible,
    find_shortage,
    next_index,
    serving_order,
)
from workbench.cluster.workers.nodes import ON_HEAD, Nodes, ResourceDemand
from workbench.cluster.workers.pool_workers import (
    IdleWorkers,
    WorkerHandle,
    result_of,
    wait_until_ready,
)
from workbench.cluster.workers.worker import WorkerInfo
from workbench.foundation.errors import ResourcesError, RunError, first_line_of

POOL_NAME = "workbench-pool-"
"""The start of the names of pools. Each installation has its own."""
logger = logging.getLogger(__name__)
WORKER_IDLE_S = 60.0
IDLE_VARIABLE = "WORKBENCH_WORKER_IDLE_S"
TRIALS_PER_WORKER = 1000
RELEASE_TIMEOUT_S = 2.0
START_ATTEMPTS = 3
NODE_GONE_S = 60.0
"""How long a lease waits for workers on other nodes where its own is gone."""
TICK_S = 0.1
OWNER_CHECK_S = 0.5
QUARANTINE_POLL_S = 5.0
"""How long a worker may take to say whether its GPU is free."""
UNUSED_S = 60.0
"""How long a pool must have been unused before it makes way for another installation's pool."""


def ask_to_give_way() -> None:
    """Ask all other pools to end their idle workers, without waiting for it."""
    own_name = ray.get_runtime_context().get_actor_name()
    for name in ray.util.list_named_actors():
        if name.startswith(POOL_NAME) and name != own_name:
            with contextlib.suppress(ValueError, AttributeError):  # it has just ended
                ray.get_actor(name).give_way.remote()


@dataclass(eq=False)
class _PendingRequest:
    request: Request
    owner: Owner | None
    admitted: asyncio.Future[int]


@dataclass(eq=False)
class _ActiveLease:
    request: Request
    owner: Owner | None
    workers: list[WorkerHandle]


class Pool:
    """Owns the workers of a cluster. All methods run on one event loop."""

    def __init__(
        self, worker_idle_s: float | None = None, trials_per_worker: int = TRIALS_PER_WORKER
    ) -> None:
        """Open an empty pool.

        Args:
            worker_idle_s: Seconds after which an idle worker is returned to the cluster, or None
                for WORKBENCH_WORKER_IDLE_S, as it was set where the head was started, or 60.
            trials_per_worker: Trials after which a worker is replaced.
        """
        if worker_idle_s is None:
            worker_idle_s = _idle_s_of_user()
        self._trials_per_worker = trials_per_worker
        # Ids must differ from the ids of a pool that died before.
        self._lease_ids = itertools.count(time.time_ns())
        self._leased: dict[int, _ActiveLease] = {}
        self._stopping: list[tuple[str, int] | None] = []  # trials whose workers may still train
        # They belong to no lease any more, and still hold their part of a node.
        self._ending: list[WorkerHandle] = []
        self._waiting: list[_PendingRequest] = []
        self._between_trials = RunsBetweenTrials()
        self._nodes = Nodes()
        self._idle = IdleWorkers(self._nodes, self._leased_workers, worker_idle_s)
        self._demand = ResourceDemand()
        self._quarantine: dict[WorkerHandle, str] = {}
        """Workers that keep their GPUs from others, with who holds memory there."""
        self._owners: set[Owner] = set()
        """Who has leased workers before."""
        self._ticking: asyncio.Task[None] | None = None
        self._used_s = time.monotonic()

    async def lease(self, request: Request, owner: Owner | None = None) -> Lease:
        """Wait until a gang is free and lease it.

        Args:
            request: The gang.
            owner: The process whose end ends the lease, or the wait for it.

        Returns:
            The lease. Its workers are alive and idle.

        Raises:
            ResourcesError: If the cluster can never hold the gang.
            RunError: If workers do not start.
        """
        self._keep_ticking()
        self._used_s = time.monotonic()
        check_feasible(request, self._nodes.known())
        self._between_trials.on_requested(request)
        await self._end_earlier_lease(request, owner)
        num_attempts, requested_s = 0, time.monotonic()
        while True:
            waiting = _PendingRequest(request, owner, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._admit()
            lease_id = await waiting.admitted
            workers = self._leased[lease_id].workers
            try:
                problem = await wait_until_ready(workers)
            except asyncio.CancelledError:  # the gang has withdrawn its request meanwhile
                await self.release(lease_id)
                raise
            if problem is None:
                infos = tuple(worker.info for worker in workers if worker.info is not None)
                return Lease(lease_id, tuple(worker.actor for worker in workers), infos)
            await self.release(lease_id)
            is_early = time.monotonic() - requested_s < NODE_GONE_S
            if isinstance(problem, ActorUnschedulableError) and is_early:
                # The node is gone: others may be there, or Ray is shutting down.
                await asyncio.sleep(1.0)
                continue
            num_attempts += 1
            if num_attempts == START_ATTEMPTS:
                raise RunError(
                    f"workers do not start: {first_line_of(problem)}",
                    next_step="Read the logs of Ray's workers.",
                )

    async def _end_earlier_lease(self, request: Request, owner: Owner | None) -> None:
        """End what is leased to the trial: a new request follows a coordinator that died."""
        if owner is not None and owner not in self._owners:
            # The one before may have died with a trial that the pool does not know of.
            self._owners.add(dataclasses.replace(owner, handle=None))  # else it would stay alive
            await self._end_leases_of_dead_owners()
        for lease_id, leased in list(self._leased.items()):
            if request.trial is None or leased.request.of_trial != request.of_trial:
                continue
            # A living owner has released it, but calls may overtake each other.
            until_s = time.monotonic() + (RELEASE_TIMEOUT_S if leased.owner == owner else 0.0)
            while lease_id in self._leased and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
            await self.release(lease_id, unhealthy=tuple(range(len(leased.workers))))

    async def prepare(self, request: Request) -> None:
        """Start workers ahead, if they fit now. A lease may take them while they start.

        Args:
            request: How many of which shape.
        """
        self._keep_ticking()
        workers = self._idle.take(request) or []
        for worker in workers:
            self._idle.add(worker)
        await wait_until_ready(workers)
        self._idle.on_started(workers)

    async def release(
        self,
        lease_id: int,
        unhealthy: tuple[int, ...] = (),
        training: bool = False,
        num_trials: int = 1,
        *,
        occupied: Mapping[int, str] | None = None,
    ) -> None:
        """End a lease. One that has ended already is ignored.

        Args:
            lease_id: The lease.
            unhealthy: Ranks of workers that must not be used again. Their processes are killed.
            training: Whether they may still train. They are then stopped first, or killed if they
                do not.
            num_trials: How many trials they have run.
            occupied: Who holds memory of the GPU of a worker, by rank. The worker keeps the GPU in
                quarantine, so that nobody gets it, until it is free.
        """
        leased = self._leased.pop(lease_id, None)
        if leased is None:
            return
        self._used_s = time.monotonic()
        self._between_trials.on_lease_ended(leased.request, self._used_s)
        if training:
            self._stopping.append(leased.request.of_trial)
            self._ending += leased.workers
            grace_s = leased.request.stop_grace_s
            answers = [result_of(worker.actor.end.remote(grace_s)) for worker in leased.workers]
            try:
                ended = await asyncio.gather(*answers, return_exceptions=True)
            finally:
                self._stopping.remove(leased.request.of_trial)
                self._ending = [worker for worker in self._ending if worker not in leased.workers]
            unhealthy += tuple(rank for rank, answer in enumerate(ended) if answer is not True)
        for rank, worker in enumerate(leased.workers):
            worker.num_trials += num_trials
            is_used_up = worker.num_trials >= (
                1 if leased.request.fresh else self._trials_per_worker
            )
            if occupied and rank in occupied and rank not in unhealthy:
                self._quarantine[worker] = occupied[rank]
            elif rank in unhealthy or worker.info is None or is_used_up:
                ray.kill(worker.actor)
            else:
                self._idle.add(worker)
        self._admit()

    async def rename(self, lease_id: int, request: Request) -> None:
        """Note that another trial runs on the workers of a lease.

        Args:
            lease_id: The lease. One that has ended is ignored.
            request: The request of the trial, which differs in nothing else.
        """
        if lease_id in self._leased:
            self._leased[lease_id].request = request

    async def cancel(self, run_id: str, trial: int) -> None:
        """End whatever is leased to a trial, without involving its coordinator.

        Args:
            run_id: The run.
            trial: The trial.
        """
        for lease_id, leased in list(self._leased.items()):
            if leased.request.of_trial == (run_id, trial):
                await self.release(lease_id, training=True)

    async def withdraw(self, run_id: str, trials: list[int]) -> None:
        """Forget the requests of trials that still wait for workers.

        Args:
            run_id: The run.
            trials: The trials.
        """
        for waiting in self._waiting:
            if waiting.request.run_id == run_id and waiting.request.trial in trials:
                waiting.admitted.cancel()
        self._admit()

    async def give_way(self) -> None:
        """End idle workers because another pool needs their room. Without leases, end the pool."""
        self._idle.end_all()
        if not self._leased and not self._waiting and time.monotonic() - self._used_s > UNUSED_S:
            exit_actor()

    async def status(self) -> PoolStatus:
        """Return who holds workers and who waits for some."""
        leased: Counter[str] = Counter()
        for lease in self._leased.values():
            leased[lease.request.run_id] += len(lease.workers)
        foreign_cpus = sum(node.foreign_cpus for node in self._idle.usable_nodes(Shape()))
        waiting = [pending.request for pending in self._waiting if not pending.admitted.done()]
        queue = tuple(serving_order(waiting, self._held_cpus()))
        quarantined = (f"in quarantine is {occupied}" for occupied in self._quarantine.values())
        missing = (*self._nodes.missing(), *self._demand.describe(), *quarantined)
        return PoolStatus(dict(leased), queue, self._idle.pids, round(foreign_cpus, 2), missing)

    def _leased_workers(self) -> list[WorkerHandle]:
        leased = [worker for leased in self._leased.values() for worker in leased.workers]
        return [*leased, *self._ending, *self._quarantine]

    def _held_cpus(self) -> Counter[str]:
        """Return the CPUs that the leased workers of each run use."""
        held: Counter[str] = Counter()
        for leased in self._leased.values():
            held[leased.request.run_id] += leased.request.shape.cpus * len(leased.workers)
        return held

    async def num_free(self, shape: Shape) -> int:
        """Return how many more workers could run now, or 0 while a request waits.

        Args:
            shape: What one of them uses.
        """
        if any(not waiting.admitted.done() for waiting in self._waiting):
            return 0
        return sum(node.fits(shape) for node in self._idle.usable_nodes(shape))

    async def shortage(self, asker: Request) -> Shortage | None:
        """Return what the next request of another run lacks, if workers of the asker would help.

        Args:
            asker: What a trial holds.
        """
        waiting = [
            pending.request
            for pending in self._waiting
            if not pending.admitted.done() and not self._is_held_back(pending)
        ]
        if not waiting:
            return None
        leased = [lease.request for lease in self._leased.values()]
        shape = waiting[next_index(waiting, self._held_cpus())].shape
        return find_shortage(asker, waiting, leased, self._idle.usable_nodes(shape))

    def _admit(self) -> None:
        """Admit requests in their order until one has to wait."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.admitted.done()]
        while eligible := [waiting for waiting in self._waiting if not self._is_held_back(waiting)]:
            waiting = eligible[next_index([other.request for other in eligible], self._held_cpus())]
            workers = self._idle.take(waiting.request)
            if workers is None:
                return
            self._waiting.remove(waiting)
            waiting.admitted.set_result(self._grant(waiting.request, waiting.owner, workers))

    def _is_held_back(self, waiting: _PendingRequest) -> bool:
        """Return whether a request waits for its trial to stop, or for a higher priority."""
        trial = waiting.request.of_trial
        if trial is not None and trial in self._stopping:
            return True  # two attempts at once would write the same checkpoints
        return self._between_trials.outranks(waiting.request, time.monotonic())

    def _grant(self, request: Request, owner: Owner | None, workers: list[WorkerHandle]) -> int:
        lease_id = next(self._lease_ids)
        self._leased[lease_id] = _ActiveLease(request, owner, workers)
        return lease_id

    def _keep_ticking(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        """Do what no call triggers: end leases of dead owners and idle workers, admit requests."""
        checked_s = time.monotonic()
        while self._leased or self._waiting or self._idle or self._quarantine:
            await asyncio.sleep(TICK_S if self._waiting else OWNER_CHECK_S)
            try:
                if time.monotonic() - checked_s >= OWNER_CHECK_S:
                    checked_s = time.monotonic()
                    self._give_up_silent_nodes()
                    self._refuse_infeasible()
                    if self._waiting:
                        ask_to_give_way()
                    await self._end_leases_of_dead_owners()
                    self._idle.end_overdue()
                    await self._end_quarantine()
                    self._demand.update(
                        [held.request for held in (*self._leased.values(), *self._waiting)]
                    )
                    if self._leased or self._waiting:
                        # a local head is in use while workers are leased or waited for
                        keep_alive()
                self._admit()
            except Exception:  # a cluster that does not answer now may answer next time
                logger.exception("the pool could not check its workers")
        self._nodes.stop_monitoring()
        self._demand.update(())

    def _give_up_silent_nodes(self) -> None:
        """Kill the workers of nodes that have fallen silent: their trials continue elsewhere."""
        silent = self._nodes.find_silent()
        if not silent:
            return
        logger.warning("nodes %s are silent. Giving up their workers", ", ".join(sorted(silent)))
        for worker in self._leased_workers():
            if worker.node_id in silent:
                ray.kill(worker.actor)  # pending calls to it fail at once
        self._idle.end_on(silent)
        for owner in {held.owner for held in (*self._leased.values(), *self._waiting)}:
            if owner is not None and owner.node_id in silent and owner.handle is not None:
                ray.kill(owner.handle, no_restart=False)  # it restarts where its node comes back

    async def _end_quarantine(self) -> None:
        """Let workers serve again whose GPUs are free. End all if the pool is no longer used."""
        is_in_use = bool(self._leased or self._waiting)
        if not is_in_use and time.monotonic() - self._used_s > UNUSED_S:
            for worker in self._quarantine:
                ray.kill(worker.actor)
            self._quarantine.clear()
            return
        workers = list(self._quarantine)
        answers = (
            asyncio.wait_for(result_of(worker.actor.occupied.remote()), QUARANTINE_POLL_S)
            for worker in workers
        )
        answered = await asyncio.gather(*answers, return_exceptions=True)
        for worker, occupied in zip(workers, answered, strict=True):
            if isinstance(occupied, asyncio.TimeoutError):
                continue
            if isinstance(occupied, str):
                self._quarantine[worker] = occupied
                continue
            del self._quarantine[worker]
            if occupied is None:
                self._idle.add(worker)
            else:
                ray.kill(worker.actor)

    def _refuse_infeasible(self) -> None:
        """Refuse requests that wait for a node that was lost long ago."""
        for waiting in self._waiting:
            try:
                check_feasible(waiting.request, self._nodes.known())
            except ResourcesError as error:
                if not waiting.admitted.done():
                    waiting.admitted.set_exception(error)

    async def _end_leases_of_dead_owners(self) -> None:
        owners = {
            held.owner
            for held in (*self._leased.values(), *self._waiting)
            if held.owner is not None
        }
        dead = await asyncio.to_thread(find_dead, owners) if owners else set()
        for waiting in self._waiting:
            if waiting.owner in dead:
                waiting.admitted.cancel()
        for lease_id, leased in list(self._leased.items()):
            if leased.owner in dead:
                await self.release(lease_id, unhealthy=tuple(range(len(leased.workers))))


def _idle_s_of_user() -> float:
    written = os.environ.get(IDLE_VARIABLE, "")
    if written.isdecimal():
        return float(written)
    if written:
        logger.warning(
            "%s is not a number of seconds: %r. Using %g", IDLE_VARIABLE, written, WORKER_IDLE_S
        )
    return WORKER_IDLE_S


def connect_pool() -> Any:
    """Return the actor handle of the pool of this installation, created if there is none."""
    return (
        ray.remote(Pool)
        .options(
            name=POOL_NAME + installation_id(),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            **ON_HEAD,
        )
        .remote()
    )


@dataclass(frozen=True)
class Lease:
    """A gang that was leased."""

    lease_id: int
    workers: tuple[Any, ...]
    """Actor handles of the workers, by rank."""
    infos: tuple[WorkerInfo, ...]


@dataclass(frozen=True)
class PoolStatus:
    """Who holds workers of the pool and who waits for some."""

    leased: dict[str, int]
    """Number of leased workers, by run."""
    queue: tuple[Request, ...]
    """Waiting requests, the next one first."""
    idle_pids: tuple[int, ...]
    foreign_cpus: float
    """CPUs that other programs than the workbench hold."""
    missing: tuple[str, ...] = ()
    """A sentence on each node that is lost, silent or requested."""

    @property
    def num_waiting(self) -> int:
        """How many requests wait for workers."""
        return len(self.queue)


@dataclass(frozen=True)
class Owner:
    """The process whose end ends a lease: an actor, or the driver process of a Ray job."""

    job_id: str
    pid: int
    actor_id: str | None = None
    node_id: str = ""
    handle: Any = field(default=None, compare=False)
    """The actor, so that it can be killed when its node is silent."""


def find_dead(owners: set[Owner]) -> set[Owner]:
    """Return the owners that are dead, as the cluster knows them.

    Args:
        owners: Owners of leases.
    """
    ended = ended_jobs()
    return {owner for owner in owners if _is_dead(owner, ended)}


def _is_dead(owner: Owner, ended: set[str]) -> bool:
    if owner.actor_id is None:
        return owner.job_id in ended
    state, pid = actor_state(owner.actor_id)
    # An actor that was restarted has the same id but another process.
    return state in ("DEAD", "RESTARTING") or pid not in (0, owner.pid)
