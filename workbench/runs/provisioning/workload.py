"""Input and result of a simulation: the machines, the trials of some runs, what happened."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.cluster.workers.admission import Node

Policy = Literal["workbench", "elastic", "fifo", "one-gpu"]
POLICIES: tuple[Policy, ...] = ("workbench", "elastic", "fifo", "one-gpu")
_CPUS_PER_GPU = 2.0


@dataclass(frozen=True)
class Cluster:
    """The machines, how often they fail, and what trials lose.

    Attributes:
        gpus: GPUs of all machines.
        gpus_per_node: GPUs of one machine; the last one may have fewer.
        failures_per_node_hour: Failures of a machine per hour, at random times.
        repair_s: Seconds until a machine that failed is back.
        checkpoint_s: Seconds between checkpoints.
        restart_s: Seconds from leasing new workers to the first step of a resumed trial.
        overhead: The serial part of a step, relative to computing on one GPU, as in `scaling`.
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
        sizes = [self.gpus_per_node] * whole + ([rest] if rest else [])
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

    policy: Policy
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
        num_trials: Trials of all runs together; the first run has a higher priority than the
            others.
        seed: Seed of everything that is drawn.
        num_runs: Runs, at least 1.
        mean_s: Mean duration of a trial on one GPU, in seconds; durations are log-normal.
        max_workers: Trials have a power of two of workers up to this; larger ones are rarer.

    Returns:
        The trials; those of a run in the order in which they are proposed.
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
