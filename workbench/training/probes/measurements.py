"""The measurements that a worker can make instead of training a trial, as plain values.

The advisor and the sweeps order them in processes without torch, so nothing here imports it.
`training.trial` carries them out in the worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan


@dataclass(frozen=True)
class PlanProbe:
    """A few steps of each of several plans, measured.

    Attributes:
        plans: The differences of each plan: micro_batch, accumulation, precision, strategy,
            recompute. The number of workers is that of the gang. List plans that differ in size by
            size: two sizes show whether a third needs to be tried.
        warmup_steps: Steps before the first that is timed.
        num_steps: Steps that are timed, at most.
        longest_s: Seconds for the timed steps of one plan, and half as many for the steps before.
            At least three steps are timed.
        limit_bytes: Memory that one worker may use on its device, or None for all of it.
        setting: The key under which the measurements are stored.
        measures_power: Whether to measure the power of the devices. Steps then continue until their
            counters have moved.
        surveys_links: Whether to measure the links and the computation of exchanges as well.
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
    """Steps of one training that each worker of the gang makes alone, all at the same time.

    Attributes:
        plan: Differences of the plan of each, which has one worker.
        longest_s: Seconds for which steps are counted, and half as many before.
        setting: The key under which the measurement is stored.
    """

    plan: PartialPlan
    longest_s: float = 2.0
    setting: str = ""


@dataclass(frozen=True)
class RateTest:
    """A test of learning rates that rise from step to step.

    Attributes:
        lowest: The first rate, > 0.
        highest: The last, > `lowest`.
        num_steps: Steps from one to the other.
        num_seeds: How often, each from the same weights with other batches.
        setting: The key under which the result is stored.
    """

    lowest: float = 1e-5
    highest: float = 10.0
    num_steps: int = 80
    num_seeds: int = 3
    setting: str = ""


Measurement = PlanProbe | NeighbourProbe | RateTest
"""Whatever a `TrialTask` can order instead of a training."""
