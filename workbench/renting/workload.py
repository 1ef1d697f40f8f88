"""What is simulated: the machines, the trials of some runs, how it went."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.workers.admission import Node

Policy = Literal["workbench", "elastic", "fifo", "one-gpu"]
POLICIES: tuple[Policy, ...] = ("workbench", "elastic", "fifo", "one-gpu")
_CPUS_PER_GPU = 2.0


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
    """What is to be done: `work_s` are seconds on one GPU, `workers` how many GPUs it asks for."""

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


def quantiles_ms(decisions_ns: Sequence[int]) -> Mapping[str, float]:
    """Return what a decision takes of a processor: median, 99th percentile and the most, in milliseconds."""
    ordered = sorted(decisions_ns)
    ranks = {"median": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[math.ceil(rank * len(ordered)) - 1] / 1e6 for name, rank in ranks.items()}
