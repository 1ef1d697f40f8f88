"""The pool: one named actor per Ray cluster that owns all workers and leases them in gangs.

Workers stay warm between leases, are given back to the cluster after idling, replaced when they die or
have served long, and are owned by the pool's process: when it dies they do, too, and the next that
needs a pool opens another. When memory runs out Ray ends restartable actors first, newest first: so
workers are restartable and the pool is not, though nobody uses a worker that was restarted.
A lease ends with its owner, however that ends. Whose turn it is and where workers run is decided in
`admission`; what workers do while leased is left to `gang` and `worker`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import ray

from workbench.errors import ResourcesError, RunError
from workbench.workers.admission import Node, Request, Returning, Shape, check_feasible, order, place, queued
from workbench.workers.head import NAMESPACE, keep_alive
from workbench.workers.lease import Lease, PoolStatus
from workbench.workers.nodes import Nodes
from workbench.workers.owner import Owner, find_dead
from workbench.workers.places import ON_HEAD
from workbench.workers.seats import Seat, answer, make_ready, start_worker
from workbench.workers.wishes import Wishes

logger = logging.getLogger(__name__)

POOL_NAME = "workbench-pool"
WORKER_IDLE_S = 60.0
TRIALS_PER_WORKER = 1000
STOP_GRACE_S = 5.0
"""How long a training may take to stop before its process is ended."""
RELEASE_PATIENCE_S = 2.0
START_ATTEMPTS = 3
TICK_S = 0.1
TOGETHER_S = 5.0
OWNER_CHECK_S = 0.5


@dataclass(eq=False)
class _Waiting:
    request: Request
    owner: Owner | None
    admitted: asyncio.Future[int]
    since_s: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Leased:
    request: Request
    owner: Owner | None
    seats: list[Seat]


class Pool:
    """Owns the workers of a cluster; all methods run on one event loop."""

    def __init__(
        self, worker_idle_s: float = WORKER_IDLE_S, trials_per_worker: int = TRIALS_PER_WORKER
    ) -> None:
        """Open an empty pool.

        Args:
            worker_idle_s: Seconds after which an idle worker is given back to the cluster.
            trials_per_worker: Leases after which a worker is replaced.
        """
        self._worker_idle_s = worker_idle_s
        self._trials_per_worker = trials_per_worker
        self._lease_ids = itertools.count(time.time_ns())  # no lease of an earlier life has the same
        self._idle: list[Seat] = []
        self._leased: dict[int, _Leased] = {}
        self._stopping: list[tuple[str, int] | None] = []  # trials whose workers may still train
        self._waiting: list[_Waiting] = []
        self._returning = Returning()
        self._nodes = Nodes()
        self._wishes = Wishes()
        self._ticking: asyncio.Task[None] | None = None

    async def lease(self, request: Request, owner: Owner | None = None) -> Lease:
        """Wait until a gang is free and lease it.

        Args:
            request: The gang.
            owner: Whose end ends the lease, or the wait for it.

        Returns:
            The lease; its workers are alive and idle.

        Raises:
            ResourcesError: If the cluster can never hold the gang.
            RunError: If workers do not start.
        """
        self._keep_ticking()
        check_feasible(request, self._nodes.hoped_for())
        self._returning.asked(request)
        await self._end_earlier_lease(request, owner)
        problem: str | None = None
        for _ in range(START_ATTEMPTS):
            waiting = _Waiting(request, owner, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._admit()
            lease_id = await waiting.admitted
            seats = self._leased[lease_id].seats
            problem = await make_ready(seats)
            if problem is None:
                infos = tuple(seat.info for seat in seats if seat.info is not None)
                return Lease(lease_id, tuple(seat.handle for seat in seats), infos)
            await self.release(lease_id)
        raise RunError(f"workers do not start: {problem}", next_step="The logs of Ray's workers say more.")

    async def _end_earlier_lease(self, request: Request, owner: Owner | None) -> None:
        """End what is leased to the trial: who asks anew follows one that died, and has no use for it."""
        for lease_id, leased in list(self._leased.items()):
            if request.trial is None or leased.request.of_trial != request.of_trial:
                continue
            # One that lives has given it back, but calls may overtake each other.
            until_s = time.monotonic() + (RELEASE_PATIENCE_S if leased.owner == owner else 0.0)
            while lease_id in self._leased and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
            await self.release(lease_id, unhealthy=tuple(range(len(leased.seats))))

    async def prepare(self, request: Request) -> None:
        """Start workers before they are needed, if they fit now; they wait as idle ones.

        Args:
            request: How many of which shape.
        """
        self._keep_ticking()
        seats = self._try_place(request)
        if seats:
            lease_id = self._lend(request, None, seats)
            await make_ready(seats)
            await self.release(lease_id)

    async def release(self, lease_id: int, unhealthy: tuple[int, ...] = (), training: bool = False) -> None:
        """End a lease; one that has ended already stays ended.

        Args:
            lease_id: The lease.
            unhealthy: Ranks of workers that must not be used again; their processes are ended.
            training: Whether they may still train; they are then stopped first, or ended if they do not.
        """
        leased = self._leased.pop(lease_id, None)
        if leased is None:
            return
        self._returning.ended(leased.request, time.monotonic())
        if training:
            self._stopping.append(leased.request.of_trial)
            answers = [answer(seat.handle.end.remote(STOP_GRACE_S)) for seat in leased.seats]
            ended = await asyncio.gather(*answers, return_exceptions=True)
            self._stopping.remove(leased.request.of_trial)
            unhealthy += tuple(rank for rank, answer in enumerate(ended) if answer is not True)
        for rank, seat in enumerate(leased.seats):
            seat.num_leases += 1
            if rank in unhealthy or seat.info is None or seat.num_leases >= self._trials_per_worker:
                ray.kill(seat.handle)
            else:
                seat.idle_since_s = time.monotonic()
                self._idle.append(seat)
        self._admit()

    async def cancel(self, run_id: str, trial: int) -> None:
        """End whatever is leased to a trial, without its coordinator.

        Args:
            run_id: The run.
            trial: The trial.
        """
        for lease_id, leased in list(self._leased.items()):
            if leased.request.of_trial == (run_id, trial):
                await self.release(lease_id, training=True)

    async def status(self) -> PoolStatus:
        """Say what the pool holds."""
        leased: Counter[str] = Counter()
        for lease in self._leased.values():
            leased[lease.request.run_id] += len(lease.seats)
        pids = tuple(seat.info.pid for seat in self._idle if seat.info is not None)
        foreign_cpus = sum(node.foreign_cpus for node in self._usable(Shape()))
        waiting = [each.request for each in self._waiting if not each.admitted.done()]
        queue = tuple(queued(waiting, self._held_cpus()))
        missing = (*self._nodes.missing(), *self._wishes.told())
        return PoolStatus(dict(leased), queue, pids, round(foreign_cpus, 2), missing)

    def _held_cpus(self) -> Counter[str]:
        """Return the CPUs that the leased workers of each run use."""
        held: Counter[str] = Counter()
        for leased in self._leased.values():
            held[leased.request.run_id] += leased.request.shape.cpus * len(leased.seats)
        return held

    async def num_free(self, shape: Shape) -> int:
        """Say how many workers more could run now; 0 where somebody waits for any.

        Args:
            shape: What one of them uses.
        """
        if any(not waiting.admitted.done() for waiting in self._waiting):
            return 0
        return sum(node.fits(shape) for node in self._usable(shape))

    def _admit(self) -> None:
        """Admit requests in their order until one has to wait."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.admitted.done()]
        while eligible := [waiting for waiting in self._waiting if not self._holds_back(waiting)]:
            waiting = eligible[order([other.request for other in eligible], self._held_cpus())]
            seats = self._try_place(waiting.request)
            if seats is None:
                return
            self._waiting.remove(waiting)
            waiting.admitted.set_result(self._lend(waiting.request, waiting.owner, seats))

    def _holds_back(self, waiting: _Waiting) -> bool:
        """Say whether a request still waits for others: of its run, of its trial, or of more weight."""
        trial = waiting.request.of_trial
        if trial is not None and trial in self._stopping:
            return True  # two attempts at once would write the same checkpoints
        if self._returning.outranks(waiting.request, time.monotonic()):
            return True
        if waiting.request.together <= 1 or time.monotonic() - waiting.since_s > TOGETHER_S:
            return False
        requests = [held.request for held in (*self._waiting, *self._leased.values())]
        return sum(other.run_id == waiting.request.run_id for other in requests) < waiting.request.together

    def _lend(self, request: Request, owner: Owner | None, seats: list[Seat]) -> int:
        lease_id = next(self._lease_ids)
        self._leased[lease_id] = _Leased(request, owner, seats)
        return lease_id

    def _try_place(self, request: Request) -> list[Seat] | None:
        """Take idle workers and start those that lack, or return None where the gang does not fit."""
        self._idle = [seat for seat in self._idle if not seat.is_gone]
        matching = [seat for seat in self._idle if request.accepts(seat.shape, seat.node_id)]
        if request.num_workers == 1 and matching:
            self._idle.remove(matching[-1])
            return [matching[-1]]
        chosen = place(request, self._usable(request.shape))
        if chosen is None:
            return None
        seats: list[Seat] = []
        for node_id in chosen:
            warm = next((seat for seat in reversed(matching) if seat.node_id == node_id), None)
            if warm is not None:
                matching.remove(warm)
                self._idle.remove(warm)
            seats.append(warm or Seat(None, node_id, request.shape))
        for seat in seats:
            if seat.handle is None:
                self._make_room(seat.node_id, seats)
                seat.handle = start_worker(seat.node_id, request)
        return seats

    def _make_room(self, node_id: str, newcomers: list[Seat]) -> None:
        """Give idle workers of a node back until the workers about to run there fit."""
        node = next(node for node in self._nodes.hoped_for() if node.node_id == node_id)
        busy = [*newcomers, *(seat for leased in self._leased.values() for seat in leased.seats)]
        for oldest in sorted(self._idle, key=lambda seat: seat.idle_since_s):
            here = [seat.shape for seat in (*busy, *self._idle) if seat.node_id == node_id]
            if (
                sum(shape.cpus for shape in here) <= node.cpus
                and sum(shape.gpus for shape in here) <= node.gpus
            ):
                return
            if oldest.node_id == node_id:
                self._idle.remove(oldest)
                ray.kill(oldest.handle)

    def _usable(self, shape: Shape) -> list[Node]:
        """Describe the nodes that can be used now."""
        leased = [seat for leased in self._leased.values() for seat in leased.seats]
        return self._nodes.usable(shape, [seat.place for seat in leased], [seat.place for seat in self._idle])

    def _keep_ticking(self) -> None:
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        """Do what no call brings about: end leases of dead owners, give idle workers back, admit."""
        checked_s = 0.0
        while self._leased or self._waiting or self._idle:
            await asyncio.sleep(TICK_S if self._waiting else OWNER_CHECK_S)
            try:
                if time.monotonic() - checked_s >= OWNER_CHECK_S:
                    checked_s = time.monotonic()
                    self._give_up_silent_nodes()
                    self._refuse_hopeless()
                    await self._end_leases_of_the_dead()
                    self._give_back_idle()
                    self._wishes.tell([held.request for held in (*self._leased.values(), *self._waiting)])
                    if self._leased or self._waiting:
                        keep_alive()  # whoever holds workers, of a run or an advice, uses the local head
                self._admit()
            except Exception:  # a cluster that does not answer now may answer next time
                logger.exception("the pool could not look after its workers")
        self._nodes.rest()
        self._wishes.tell(())

    def _give_up_silent_nodes(self) -> None:
        """End the workers of nodes that have fallen silent: their trials go on elsewhere."""
        silent = self._nodes.look()
        if not silent:
            return
        logger.warning("nodes %s are silent; their workers are given up", ", ".join(sorted(silent)))
        for seat in [seat for leased in self._leased.values() for seat in leased.seats] + self._idle:
            if seat.node_id in silent:
                ray.kill(seat.handle)  # whoever waits for its news hears at once that it died
        self._idle = [seat for seat in self._idle if seat.node_id not in silent]
        for owner in {held.owner for held in (*self._leased.values(), *self._waiting)}:
            if owner is not None and owner.node_id in silent and owner.handle is not None:
                ray.kill(owner.handle)

    def _refuse_hopeless(self) -> None:
        """Let nobody wait for a node that was lost long ago."""
        for waiting in self._waiting:
            try:
                check_feasible(waiting.request, self._nodes.hoped_for())
            except ResourcesError as error:
                if not waiting.admitted.done():
                    waiting.admitted.set_exception(error)

    async def _end_leases_of_the_dead(self) -> None:
        owners = {held.owner for held in (*self._leased.values(), *self._waiting) if held.owner is not None}
        dead = await asyncio.to_thread(find_dead, owners) if owners else set()
        for waiting in self._waiting:
            if waiting.owner in dead:
                waiting.admitted.cancel()
        for lease_id, leased in list(self._leased.items()):
            if leased.owner in dead:
                await self.release(lease_id, unhealthy=tuple(range(len(leased.seats))))

    def _give_back_idle(self) -> None:
        now_s = time.monotonic()
        for seat in list(self._idle):
            if now_s - seat.idle_since_s >= self._worker_idle_s:
                self._idle.remove(seat)
                ray.kill(seat.handle)


def connect_pool() -> Any:
    """Return the handle of the cluster's pool, opened if there is none."""
    return (
        ray.remote(Pool)
        .options(
            name=POOL_NAME, namespace=NAMESPACE, lifetime="detached", get_if_exists=True,
            **ON_HEAD,
        )
        .remote()
    )  # fmt: skip
