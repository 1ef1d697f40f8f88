"""Simulate a shared cluster: runs, trials and failing machines, scheduled by the rules of the pool.

`workers.admission` decides whose turn it is and where workers run, as in the pool, and
`sweeps.elastic` whether a trial grows, as in a driver. Two simpler policies serve as a comparison.
A trial with w workers does w x efficiency(w) seconds of its work per second, a gang on several
machines less. If a machine fails, the work of its trials since their last checkpoints is
lost.
"""

from __future__ import annotations

import heapq
import itertools
import math
import operator
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import thread_time_ns
from typing import Any, Literal, Protocol

from workbench.cluster.workers.admission import (
    Node,
    Request,
    Shape,
    check_feasible,
    next_index,
    place,
)
from workbench.foundation.errors import ResourcesError, RunError
from workbench.hardware.performance.topology import parallel_efficiency
from workbench.sweeps.elastic_gain import estimate_gain

Policy = Literal["workbench", "elastic", "fifo", "one-gpu"]
POLICIES: tuple[Policy, ...] = ("workbench", "elastic", "fifo", "one-gpu")


class OwnPolicy(Protocol):
    """A rule of your own. It is asked whenever a request arrives or machines become free."""

    def __call__(
        self, waiting: Sequence[Request], nodes: Sequence[Node], held: Mapping[str, float], /
    ) -> tuple[int, Sequence[str]] | None:
        """Choose the request to serve next, and where.

        Args:
            waiting: The requests, oldest first, at least one. Each has a run_id, a trial,
                num_workers and a priority.
            nodes: The machines that work. `node.fits(request.shape)` is the number of workers that
                could start there now, and `node.gpus - node.leased_gpus` the free GPUs.
            held: The GPUs that each run holds, by run id.

        Returns:
            The place of the request in `waiting`, and the node_id of each of its workers. You may
            give it fewer or more workers than it requests. None lets all requests wait until
            something changes.
        """
        ...


_CPUS_PER_GPU = 2.0
_SHAPE = Shape(cpus=1, gpus=1.0)
_MAX_FAILURES_PER_TRIAL = 1000


@dataclass(frozen=True)
class Cluster:
    """The machines, how often they fail, and what trials lose.

    Attributes:
        gpus: GPUs of all machines.
        gpus_per_node: GPUs of one machine. The last one may have fewer.
        failures_per_node_hour: Failures of a machine per hour, at random times.
        repair_s: Seconds until a machine that failed is back.
        checkpoint_s: Seconds between checkpoints.
        restart_s: Seconds from leasing new workers to the first step of a resumed trial.
        overhead: The serial part of a step, relative to computing on one GPU, as in `topology`.
        spread_slowdown: How many times as long a step takes on several machines.
    """

    gpus: int = 1000
    gpus_per_node: int = 8
    failures_per_node_hour: float = 0.002
    repair_s: float = 600.0
    checkpoint_s: float = 600.0
    restart_s: float = 10.0
    overhead: float = 0.02
    spread_slowdown: float = 1.25

    def nodes(self) -> list[Node]:
        """Return the machines, all idle."""
        whole, rest = divmod(self.gpus, self.gpus_per_node)
        sizes = [self.gpus_per_node] * whole
        if rest:
            sizes.append(rest)
        return [
            Node(f"node-{index}", _CPUS_PER_GPU * size, size) for index, size in enumerate(sizes)
        ]


@dataclass(frozen=True)
class Trial:
    """A trial to simulate: `work_s` is its duration on one GPU, `workers` the GPUs it requests."""

    run_id: str
    number: int
    workers: int
    work_s: float
    priority: int = 0


@dataclass(frozen=True)
class LeaseRecord:
    """One lease of a simulation: which machines a trial held, for how long, and what was lost.

    Attributes:
        trial: The trial.
        nodes: The machine of each worker.
        began_s: Start of the lease.
        ended_s: End of the lease.
        done_s: Seconds of the trial's work that it completed.
        lost_gpu_s: GPU seconds lost with a machine.
    """

    trial: Trial
    nodes: tuple[str, ...]
    began_s: float
    ended_s: float
    done_s: float
    lost_gpu_s: float


@dataclass(frozen=True)
class SimulationResult:
    """What happened in a simulation.

    Attributes:
        policy: The policy.
        makespan_s: When the last trial ended.
        busy: Fraction of all GPU seconds until then in which a GPU was leased.
        useful: Fraction of them that was work of one GPU: neither lost nor overhead.
        lost_gpu_s: GPU seconds lost with machines.
        failures: Number of failures of machines while trials were left.
        finished_s: When each run ended.
        decisions_ns: CPU time of each decision: which request is next, and where it runs.
        leases: All leases, in the order in which they ended.
    """

    policy: str
    makespan_s: float
    busy: float
    useful: float
    lost_gpu_s: float
    failures: int
    finished_s: dict[str, float]
    decisions_ns: list[int]
    leases: list[LeaseRecord]


def draw_trials(
    num_trials: int,
    seed: int = 0,
    *,
    num_runs: int = 4,
    mean_s: float = 3600.0,
    max_workers: int = 16,
) -> list[Trial]:
    """Draw the trials of some runs.

    Args:
        num_trials: Trials of all runs together. The first run has a higher priority than the
            others.
        seed: Seed of everything that is drawn.
        num_runs: Runs, at least 1.
        mean_s: Mean duration of a trial on one GPU, in seconds. Durations are log-normal.
        max_workers: Trials have a power of two of workers up to this. Larger ones are rarer.

    Returns:
        The trials. Those of one run are in the order in which they are proposed.
    """
    rng = random.Random(seed)
    sizes = [2**power for power in range(max_workers.bit_length())]
    weights = [1.0 / (index + 1) for index in range(len(sizes))]
    sigma = 0.5
    return [
        Trial(
            run_id=f"run-{number % num_runs}",
            number=number,
            workers=rng.choices(sizes, weights)[0],
            work_s=rng.lognormvariate(math.log(mean_s) - sigma**2 / 2.0, sigma),
            priority=1 if number % num_runs == 0 and num_runs > 1 else 0,
        )
        for number in range(num_trials)
    ]


def quantiles_ms(decisions_ns: Sequence[int]) -> Mapping[str, float]:
    """Return the CPU time of a decision in milliseconds: median, 99th percentile and maximum."""
    ordered = sorted(decisions_ns)
    ranks = {"median": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[math.ceil(rank * len(ordered)) - 1] / 1e6 for name, rank in ranks.items()}


def simulate(
    cluster: Cluster, trials: Sequence[Trial], policy: Policy | OwnPolicy, seed: int = 0
) -> SimulationResult:
    """Simulate a cluster until all trials have ended.

    Args:
        cluster: The machines.
        trials: The trials, all submitted at the start.
        policy: "workbench": the rules of the pool. "elastic": the same, but trials start on one GPU
            and grow at checkpoints while no request waits, up to the size of the largest. "fifo":
            the oldest first, on the first free machines. "one-gpu": the rules of the pool, but each
            trial on one GPU. Or a rule of your own.
        seed: Decides when machines fail, for all policies in the same way.

    Returns:
        What happened.

    Raises:
        ResourcesError: If a trial could never run, or your own rule never starts one.
        RunError: If your own rule chooses a request or machines that are not there.
    """
    if not trials:
        raise ResourcesError(
            "there is no trial to simulate", field="--num-trials", allowed="1 or more"
        )
    max_workers = 1
    if policy == "elastic":
        max_workers = max(trial.workers for trial in trials)
    if policy in ("one-gpu", "elastic"):
        trials = [replace(trial, workers=1) for trial in trials]
    return _Simulation(cluster, trials, policy, seed, max_workers).run()


@dataclass(eq=False)
class _Running:
    trial: Trial
    nodes: tuple[str, ...]
    began_s: float
    rate: float
    """Seconds of work done per second."""
    starts_s: float
    """Seconds until the first step."""
    ended: bool = False


@dataclass
class _Simulation:
    cluster: Cluster
    trials: Sequence[Trial]
    policy: Policy | OwnPolicy
    seed: int
    max_workers: int
    """The number of workers up to which a trial may grow."""
    now_s: float = 0.0
    _leases: list[LeaseRecord] = field(default_factory=list)
    _decisions_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._nodes = {node.node_id: node for node in self.cluster.nodes()}
        self._down: set[str] = set()
        self._left_s = {trial.number: trial.work_s for trial in self.trials}
        self._tried: set[int] = set()
        self._proposals: dict[str, deque[Trial]] = {}
        for trial in self.trials:
            self._proposals.setdefault(trial.run_id, deque()).append(trial)
            check_feasible(_request(trial), list(self._nodes.values()))
        self._waiting: list[Trial] = []
        self._requests: list[Request] = []
        self._held: Counter[str] = Counter()
        self._running: dict[str, set[_Running]] = {node_id: set() for node_id in self._nodes}
        self._finished_s: dict[str, float] = {}
        self._failures = 0
        self._tie = itertools.count()
        self._events: list[tuple[float, int, str, object]] = []
        self._fails = {node_id: random.Random(f"{self.seed} {node_id}") for node_id in self._nodes}

    def run(self) -> SimulationResult:
        for node_id in self._nodes:
            self._expect_failure(node_id)
        for run_id, proposals in self._proposals.items():
            for _ in range(min(len(proposals), self._concurrency(proposals))):
                self._propose(run_id)
        self._admit()
        while self._left_s:
            if not self._events or (callable(self.policy) and self._is_stuck()):
                raise ResourcesError(
                    f"no trial runs at {self.now_s:,.0f} s, and {len(self._waiting)} wait",
                    field="--policy",
                    next_step="Let the rule start a request when all machines are idle.",
                )
            self.now_s, _, what, subject = heapq.heappop(self._events)
            if what == "ends":
                self._end(subject)  # type: ignore[arg-type]
            elif what == "saves":
                self._grow(subject)  # type: ignore[arg-type]
                continue
            elif what == "fails":
                self._fail(str(subject))
            else:
                self._down.discard(str(subject))
                self._expect_failure(str(subject))
            self._admit()
        gpu_s = self.cluster.gpus * self.now_s
        return SimulationResult(
            policy=self.policy if isinstance(self.policy, str) else _name_of(self.policy),
            makespan_s=self.now_s,
            busy=sum(len(lease.nodes) * (lease.ended_s - lease.began_s) for lease in self._leases)
            / gpu_s,
            useful=sum(trial.work_s for trial in self.trials) / gpu_s,
            lost_gpu_s=sum(lease.lost_gpu_s for lease in self._leases),
            failures=self._failures,
            finished_s=self._finished_s,
            decisions_ns=self._decisions_ns,
            leases=self._leases,
        )

    def _concurrency(self, proposals: Sequence[Trial]) -> int:
        """Return how many trials a run keeps open.

        As many of its usual size as the cluster could hold.
        """
        usual = sum(trial.workers for trial in proposals) / len(proposals)
        return max(1, math.ceil(self.cluster.gpus / usual))

    def _propose(self, run_id: str) -> None:
        if self._proposals[run_id]:
            self._submit(self._proposals[run_id].popleft())

    def _submit(self, trial: Trial) -> None:
        self._waiting.append(trial)
        self._requests.append(_request(trial))

    def _admit(self) -> None:
        """Admit requests in their order until one has to wait, as the pool does."""
        while self._waiting:
            nodes = [node for node_id, node in self._nodes.items() if node_id not in self._down]
            began_ns = thread_time_ns()
            if callable(self.policy):
                index, chosen = self._ask(self.policy, nodes)
            elif self.policy == "fifo":
                index = 0
                chosen = _first_fit(self._requests[0], nodes)
            else:
                index = next_index(self._requests, self._held)
                chosen = place(self._requests[index], nodes)
            self._decisions_ns.append(thread_time_ns() - began_ns)
            if chosen is None:
                return
            del self._requests[index]
            trial = self._waiting.pop(index)
            self._start(replace(trial, workers=len(chosen)), tuple(chosen))

    def _ask(self, policy: OwnPolicy, nodes: list[Node]) -> tuple[int, Sequence[str] | None]:
        """Return what a rule of the user's chooses, if it is possible."""
        answer = policy(tuple(self._requests), nodes, dict(self._held))
        if answer is None:
            return 0, None
        index, chosen = _choice_in(answer, policy)
        free = {node.node_id: node.fits(_SHAPE) for node in nodes}
        problem = None
        if not 0 <= index < len(self._requests):
            problem = f"request {index} of {len(self._requests)}"
        elif not chosen:
            problem = "no machine for a request"
        else:
            for node_id, count in Counter(chosen).items():
                if count > free.get(node_id, 0):
                    problem = f"{count} workers on {node_id}, where {free.get(node_id, 0)} fit"
        if problem is not None:
            raise RunError(
                f"the rule {_name_of(policy)} chose {problem}",
                field="--policy",
                next_step="Return a place in waiting and the node_id of each worker, or None.",
            )
        return index, chosen

    def _is_stuck(self) -> bool:
        return bool(self._waiting) and not self._down and not any(self._running.values())

    def _start(self, trial: Trial, chosen: tuple[str, ...]) -> None:
        self._lease(trial.run_id, chosen, 1)
        rate = self._rate(chosen)
        starts_s = 0.0
        if trial.number in self._tried:
            starts_s = self.cluster.restart_s
        self._tried.add(trial.number)
        running = _Running(trial, chosen, self.now_s, rate, starts_s)
        for node_id in set(chosen):
            self._running[node_id].add(running)
        self._expect(self.now_s + starts_s + self._left_s[trial.number] / rate, "ends", running)
        if trial.workers < self.max_workers:
            self._expect(self.now_s + starts_s + self.cluster.checkpoint_s, "saves", running)

    def _rate(self, chosen: Sequence[str]) -> float:
        slowdown = 1.0
        if len(set(chosen)) > 1:
            slowdown = self.cluster.spread_slowdown
        return len(chosen) * parallel_efficiency(len(chosen), self.cluster.overhead) / slowdown

    def _grow(self, running: _Running) -> None:
        """Restart a trial that has just saved with more workers, if that pays off."""
        trial = running.trial
        if running.ended:
            return
        done_s = (self.now_s - running.began_s - running.starts_s) * running.rate
        left_s = self._left_s[trial.number] - done_s
        if not self._waiting and not any(self._proposals.values()) and left_s > 0:
            self._lease(trial.run_id, running.nodes, -1)
            wider = self._widest(trial)
            self._lease(trial.run_id, running.nodes, 1)
            rate = 0.0
            if wider is not None:
                rate = self._rate(wider)
            if (
                wider
                and rate > 0
                and estimate_gain(left_s, running.rate, rate, self.cluster.restart_s).pays
            ):
                self._left_s[trial.number] = left_s
                self._end_lease(running, done_s, lost_gpu_s=0.0)
                self._start(replace(trial, workers=len(wider)), tuple(wider))
                return
        self._expect(self.now_s + self.cluster.checkpoint_s, "saves", running)

    def _widest(self, trial: Trial) -> list[str] | None:
        """Return the nodes where a trial would be fastest, with 2, 4, 8, ... times its workers."""
        nodes = [node for node_id, node in self._nodes.items() if node_id not in self._down]
        sizes = []
        workers = trial.workers
        while (workers := 2 * workers) <= self.max_workers:
            sizes.append(workers)
        places = [place(_request(replace(trial, workers=size)), nodes) for size in sizes]
        return max(filter(None, places), key=self._rate, default=None)

    def _lease(self, run_id: str, chosen: Sequence[str], sign: int) -> None:
        for node_id, count in Counter(chosen).items():
            node = self._nodes[node_id]
            self._nodes[node_id] = replace(
                node,
                leased_cpus=node.leased_cpus + sign * count * _SHAPE.cpus,
                leased_gpus=node.leased_gpus + sign * count * _SHAPE.gpus,
            )
        self._held[run_id] += sign * len(chosen) * _SHAPE.cpus

    def _end(self, running: _Running) -> None:
        if running.ended:
            return  # one of its machines failed before
        trial = running.trial
        self._end_lease(running, done_s=self._left_s.pop(trial.number), lost_gpu_s=0.0)
        self._finished_s[trial.run_id] = self.now_s
        self._propose(trial.run_id)

    def _fail(self, node_id: str) -> None:
        self._failures += 1
        if self._failures > _MAX_FAILURES_PER_TRIAL * len(self.trials):
            raise ResourcesError(
                "machines fail so often that the trials never end",
                field="--failure-rate",
                allowed="fewer than one failure of a gang's machines between two checkpoints",
            )
        for running in sorted(self._running[node_id], key=lambda other: other.trial.number):
            trial = running.trial
            elapsed_s = self.now_s - running.began_s
            trained_s = max(0.0, elapsed_s - running.starts_s)
            kept_s = math.floor(trained_s / self.cluster.checkpoint_s) * self.cluster.checkpoint_s
            done_s = min(kept_s * running.rate, self._left_s[trial.number])
            self._left_s[trial.number] -= done_s
            self._end_lease(running, done_s, (elapsed_s - kept_s) * len(running.nodes))
            self._submit(trial)
        self._down.add(node_id)
        self._expect(self.now_s + self.cluster.repair_s, "returns", node_id)

    def _end_lease(self, running: _Running, done_s: float, lost_gpu_s: float) -> None:
        running.ended = True
        for node_id in set(running.nodes):
            self._running[node_id].discard(running)
        self._lease(running.trial.run_id, running.nodes, -1)
        self._leases.append(
            LeaseRecord(
                trial=running.trial,
                nodes=running.nodes,
                began_s=running.began_s,
                ended_s=self.now_s,
                done_s=done_s,
                lost_gpu_s=lost_gpu_s,
            )
        )

    def _expect_failure(self, node_id: str) -> None:
        rate = self.cluster.failures_per_node_hour
        if rate > 0:
            self._expect(
                self.now_s + self._fails[node_id].expovariate(rate / 3600.0), "fails", node_id
            )

    def _expect(self, at_s: float, what: str, subject: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._tie), what, subject))


def _choice_in(answer: Any, policy: OwnPolicy) -> tuple[int, list[str]]:
    """Return the request and the machines that a rule of the user's returned."""
    try:
        index, nodes = operator.index(answer[0]), list(answer[1])
    except (TypeError, IndexError, KeyError):
        index, nodes = 0, None
    if nodes is None or isinstance(answer[1], str):
        raise RunError(
            f"the rule {_name_of(policy)} returned {answer!r}",
            field="--policy",
            next_step="Return a place in waiting and a list with the node_id of each worker.",
        )
    return index, nodes


def _name_of(policy: OwnPolicy) -> str:
    return getattr(policy, "__name__", type(policy).__name__)


def _request(trial: Trial) -> Request:
    return Request(
        trial.run_id, trial.number, num_workers=trial.workers, shape=_SHAPE, priority=trial.priority
    )


def _first_fit(request: Request, nodes: Sequence[Node]) -> list[str] | None:
    """Fill the nodes in their order."""
    chosen: list[str] = []
    for node in nodes:
        chosen += [node.node_id] * min(node.fits(request.shape), request.num_workers - len(chosen))
        if len(chosen) == request.num_workers:
            return chosen
    return None
