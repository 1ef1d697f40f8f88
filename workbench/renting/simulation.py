"""A cluster under a fake clock: runs, trials and failing machines, shared out by the rules of the pool.

Whose turn it is and where workers run is asked of `workers.admission`, as the pool asks it; two simpler rules
serve to compare. A trial of w workers does w x efficiency(w) seconds of its work a second, a gang on several
machines less; a machine that fails takes what its trials did since their last checkpoints along.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import thread_time_ns
from typing import Literal

from workbench.errors import ResourcesError
from workbench.performance.scaling import parallel_efficiency
from workbench.workers.admission import Node, Request, Shape, check_feasible, order, place

Policy = Literal["workbench", "fifo", "one-gpu"]
POLICIES: tuple[Policy, ...] = ("workbench", "fifo", "one-gpu")
_SHAPE = Shape(cpus=1, gpus=1.0)
_CPUS_PER_GPU = 2.0
_MOST_FAILURES_PER_TRIAL = 1000


@dataclass(frozen=True)
class Cluster:
    """The machines, how they fail, and what trials lose.

    Attributes:
        gpus: GPUs in all.
        gpus_per_node: GPUs of one machine; the last one may have fewer.
        failures_per_node_hour: Failures of a machine per hour of its life, at no particular time.
        repair_s: Seconds until a machine that failed is there again.
        checkpoint_s: Seconds between checkpoints.
        restart_s: Seconds from its new workers to the first step of a trial that goes on.
        overhead: What of a step is not parallel, relative to computing on one GPU, as in `scaling`.
        spread_slowdown: How many times as long a gang takes whose machines are several.
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
        sizes = [self.gpus_per_node] * whole + ([rest] if rest else [])
        return [Node(f"node-{index}", _CPUS_PER_GPU * size, size) for index, size in enumerate(sizes)]


@dataclass(frozen=True)
class Trial:
    """What is to be done: `work_s` are seconds on one GPU."""

    run_id: str
    number: int
    workers: int
    work_s: float
    priority: int = 0


@dataclass(frozen=True)
class Stretch:
    """One lease: who held which machines, from when to when, and what of it was lost.

    Attributes:
        trial: Who.
        nodes: Machine of each worker.
        began_s: When.
        ended_s: When.
        done_s: Seconds of the trial's work that stay done.
        lost_gpu_s: Seconds of GPUs that were lost with a machine.
    """

    trial: Trial
    nodes: tuple[str, ...]
    began_s: float
    ended_s: float
    done_s: float
    lost_gpu_s: float


@dataclass(frozen=True)
class Played:
    """How it went.

    Attributes:
        policy: The rule.
        makespan_s: When the last trial had ended.
        busy: Part of all GPU seconds until then in which a GPU was leased.
        useful: Part of them that stays done as seconds of work of one GPU: neither lost nor overhead.
        lost_gpu_s: GPU seconds lost with machines.
        failures: Machines that failed while trials were left.
        finished_s: When each run had ended.
        decisions_ns: What each decision took of a processor: who is next, and where.
        stretches: All leases, in the order in which they ended.
    """

    policy: Policy
    makespan_s: float
    busy: float
    useful: float
    lost_gpu_s: float
    failures: int
    finished_s: dict[str, float]
    decisions_ns: list[int]
    stretches: list[Stretch]


def draw_trials(
    num_trials: int, seed: int = 0, *, num_runs: int = 4, mean_s: float = 3600.0, most_workers: int = 16
) -> list[Trial]:
    """Draw the trials of some runs.

    Args:
        num_trials: Trials of all runs; each has as many, the first a higher priority than the others.
        seed: Decides everything that is drawn.
        num_runs: Runs, at least 1.
        mean_s: Seconds on one GPU that a trial takes, in the mean; single ones vary, log-normally.
        most_workers: Trials have a power of two of workers up to that, few of them the most.

    Returns:
        The trials; those of a run in the order in which they are proposed.
    """
    rng = random.Random(seed)
    sizes = [2**power for power in range(most_workers.bit_length())]
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


def simulate(cluster: Cluster, trials: Sequence[Trial], policy: Policy, seed: int = 0) -> Played:
    """Play a cluster until all trials have ended.

    Args:
        cluster: The machines.
        trials: What is to be done; there from the beginning.
        policy: workbench: the rules of the pool; fifo: the oldest first, on the first machines that are free;
            one-gpu: the rules of the pool, but each trial on one GPU.
        seed: Decides when machines fail; the same for all policies.

    Returns:
        How it went.

    Raises:
        ResourcesError: If a trial could never run.
    """
    if policy == "one-gpu":
        trials = [replace(trial, workers=1) for trial in trials]
    if not trials:
        raise ResourcesError("there is no trial to play", field="--trials", allowed="1 or more")
    return _Player(cluster, trials, policy, seed).play()


@dataclass(eq=False)
class _Running:
    trial: Trial
    nodes: tuple[str, ...]
    began_s: float
    rate: float
    """Seconds of work that are done in a second."""
    starts_s: float
    """Seconds until the first step."""
    ended: bool = False


@dataclass
class _Player:
    cluster: Cluster
    trials: Sequence[Trial]
    policy: Policy
    seed: int
    now_s: float = 0.0
    _stretches: list[Stretch] = field(default_factory=list)
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

    def play(self) -> Played:
        for node_id in self._nodes:
            self._expect_failure(node_id)
        for run_id, proposals in self._proposals.items():
            for _ in range(min(len(proposals), self._concurrency(proposals))):
                self._propose(run_id)
        self._admit()
        while self._left_s:
            self.now_s, _, what, subject = heapq.heappop(self._events)
            if what == "ends":
                self._end(subject)  # type: ignore[arg-type]
            elif what == "fails":
                self._fail(str(subject))
            else:
                self._down.discard(str(subject))
                self._expect_failure(str(subject))
            self._admit()
        gpu_s = self.cluster.gpus * self.now_s
        return Played(
            policy=self.policy,
            makespan_s=self.now_s,
            busy=sum(len(each.nodes) * (each.ended_s - each.began_s) for each in self._stretches) / gpu_s,
            useful=sum(trial.work_s for trial in self.trials) / gpu_s,
            lost_gpu_s=sum(each.lost_gpu_s for each in self._stretches),
            failures=self._failures,
            finished_s=self._finished_s,
            decisions_ns=self._decisions_ns,
            stretches=self._stretches,
        )

    def _concurrency(self, proposals: Sequence[Trial]) -> int:
        """Return how many trials a run has open at once: as many of its kind as the cluster could hold."""
        usual = sum(trial.workers for trial in proposals) / len(proposals)
        return max(1, math.ceil(self.cluster.gpus / usual))

    def _propose(self, run_id: str) -> None:
        if self._proposals[run_id]:
            self._ask(self._proposals[run_id].popleft())

    def _ask(self, trial: Trial) -> None:
        self._waiting.append(trial)
        self._requests.append(_request(trial))

    def _admit(self) -> None:
        """Admit requests in their order until one has to wait, as the pool does."""
        while self._waiting:
            nodes = [node for node_id, node in self._nodes.items() if node_id not in self._down]
            began_ns = thread_time_ns()
            index = 0 if self.policy == "fifo" else order(self._requests, self._held)
            request = self._requests[index]
            chosen = _first_fit(request, nodes) if self.policy == "fifo" else place(request, nodes)
            self._decisions_ns.append(thread_time_ns() - began_ns)
            if chosen is None:
                return
            del self._requests[index]
            self._start(self._waiting.pop(index), tuple(chosen))

    def _start(self, trial: Trial, chosen: tuple[str, ...]) -> None:
        self._lease(trial.run_id, chosen, 1)
        slowdown = self.cluster.spread_slowdown if len(set(chosen)) > 1 else 1.0
        rate = trial.workers * parallel_efficiency(trial.workers, self.cluster.overhead) / slowdown
        starts_s = self.cluster.restart_s if trial.number in self._tried else 0.0
        self._tried.add(trial.number)
        running = _Running(trial, chosen, self.now_s, rate, starts_s)
        for node_id in set(chosen):
            self._running[node_id].add(running)
        self._expect(self.now_s + starts_s + self._left_s[trial.number] / rate, "ends", running)

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
            return  # a machine of it failed before
        trial = running.trial
        self._give_back(running, done_s=self._left_s.pop(trial.number), lost_gpu_s=0.0)
        self._finished_s[trial.run_id] = self.now_s
        self._propose(trial.run_id)

    def _fail(self, node_id: str) -> None:
        self._failures += 1
        if self._failures > _MOST_FAILURES_PER_TRIAL * len(self.trials):
            raise ResourcesError(
                "machines fail so often that trials never end",
                field="--failure-rate",
                allowed="less than one failure of a gang's machines between two checkpoints",
            )
        for running in sorted(self._running[node_id], key=lambda each: each.trial.number):
            trial, elapsed_s = running.trial, self.now_s - running.began_s
            trained_s = max(0.0, elapsed_s - running.starts_s)
            kept_s = math.floor(trained_s / self.cluster.checkpoint_s) * self.cluster.checkpoint_s
            done_s = min(kept_s * running.rate, self._left_s[trial.number])
            self._left_s[trial.number] -= done_s
            self._give_back(running, done_s, (elapsed_s - kept_s) * len(running.nodes))
            self._ask(trial)
        self._down.add(node_id)
        self._expect(self.now_s + self.cluster.repair_s, "returns", node_id)

    def _give_back(self, running: _Running, done_s: float, lost_gpu_s: float) -> None:
        running.ended = True
        for node_id in set(running.nodes):
            self._running[node_id].discard(running)
        self._lease(running.trial.run_id, running.nodes, -1)
        self._stretches.append(
            Stretch(running.trial, running.nodes, running.began_s, self.now_s, done_s, lost_gpu_s)
        )

    def _expect_failure(self, node_id: str) -> None:
        rate = self.cluster.failures_per_node_hour
        if rate > 0:
            self._expect(self.now_s + self._fails[node_id].expovariate(rate / 3600.0), "fails", node_id)

    def _expect(self, at_s: float, what: str, subject: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._tie), what, subject))


def _request(trial: Trial) -> Request:
    return Request(
        trial.run_id, trial.number, num_workers=trial.workers, shape=_SHAPE, priority=trial.priority
    )


def _first_fit(request: Request, nodes: Sequence[Node]) -> list[str] | None:
    """Fill the machines in their order, wherever there is room."""
    chosen: list[str] = []
    for node in nodes:
        chosen += [node.node_id] * min(node.fits(request.shape), request.num_workers - len(chosen))
        if len(chosen) == request.num_workers:
            return chosen
    return None


def quantiles_ms(decisions_ns: Sequence[int]) -> Mapping[str, float]:
    """Return what a decision takes of a processor: median, 99th percentile and the most, in milliseconds."""
    ordered = sorted(decisions_ns)
    ranks = {"median": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[math.ceil(rank * len(ordered)) - 1] / 1e6 for name, rank in ranks.items()}
