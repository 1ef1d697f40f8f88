"""What a worker can measure instead of training a trial: plain values that travel to it.

The advisor and the sweeps order measurements in processes that have no torch, so nothing is
imported here that carries one out: that is left to `measuring`, in the worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan


@dataclass(frozen=True)
class PlanProbe:
    """A few steps of each of several plans, measured.

    Attributes:
        plans: What of the plan differs, one mapping a plan: micro_batch, accumulation, precision,
            strategy, recompute. The number of workers is that of the gang. Plans that differ in
            size are best given in order of it: whether a third size needs to be tried follows from
            what fits at two.
        warmup_steps: Steps before the first that is timed.
        num_steps: Steps that are timed, at most.
        longest_s: Seconds that the timed steps of one plan may take, and half as many those before;
            at least three are timed.
        limit_bytes: What one worker may hold on its device; None for what the device has.
        setting: What the measurements are stored under.
        measures_power: Whether to measure the power of the devices; steps then continue until their
            counters have moved.
        surveys_links: Whether to measure what the links carry and what exchanges compute, too.
    """

    plans: tuple[PartialPlan, ...]
    warmup_steps: int = 5
    num_steps: int = 20
    longest_s: float = 5.0
    limit_bytes: int | None = None
    setting: str = ""
    measures_power: bool = False
    surveys_links: bool = True


@dataclass(frozen=True)
class NeighbourProbe:
    """Steps that every worker of the gang makes of one training by itself, all at once.

    Attributes:
        plan: What differs in the plan of each; it has one worker.
        longest_s: Seconds for which steps are counted, and half as many before.
        setting: What the measurement belongs to.
    """

    plan: PartialPlan
    longest_s: float = 2.0
    setting: str = ""


@dataclass(frozen=True)
class RateTest:
    """Learning rates that rise from step to step, and what the loss does.

    Attributes:
        lowest: The first rate, > 0.
        highest: The last, > `lowest`.
        num_steps: Steps from one to the other.
        num_seeds: How often, each from the same weights with other batches.
        setting: What the result is stored under.
    """

    lowest: float = 1e-5
    highest: float = 10.0
    num_steps: int = 80
    num_seeds: int = 3
    setting: str = ""


Measurement = PlanProbe | NeighbourProbe | RateTest
"""Whatever a `TrialTask` can order instead of a training."""
