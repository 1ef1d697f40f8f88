"""The measurements that a worker can make instead of training a trial, as plain values.

The advisor and the sweeps order them in processes without torch, so nothing here imports it.
Carrying them out is left to `training.trial`.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan


@dataclass(frozen=True)
class PlanProbe:
    """Measures a few steps of each of several plans.

    Attributes:
        plans: The changes of each plan, such as micro_batch, accumulation, precision, strategy or
            recompute. All workers of the gang take part. List plans that differ only in size in
            order of size, because two sizes show whether a third one needs to be tried.
        warmup_steps: Steps before the first timed step.
        num_steps: Maximum number of timed steps.
        longest_s: Seconds for the timed steps of one plan, and half as many for the warm-up. At
            least three steps are timed.
        limit_bytes: Memory that one worker may use on its device, or None for all of it.
        setting: The key under which the measurements are stored.
        measures_power: Whether to measure the power of the devices. Steps then continue until the
            energy counters have moved.
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
    """Measures steps of one training that all workers of the gang make at once, each one alone.

    Attributes:
        plan: Changes of the plan of each worker.
        longest_s: Seconds for which steps are counted, and half as many for the warm-up.
        setting: The key under which the measurement is stored.
    """

    plan: PartialPlan
    longest_s: float = 2.0
    setting: str = ""


@dataclass(frozen=True)
class PowerProbe:
    """Measures one plan under several power limits of its GPUs, from the present limit down.

    Attributes:
        plan: Changes of the plan.
        num_limits: Number of limits, at least 2, evenly spaced down to the lowest allowed one.
        longest_s: Seconds for which steps are timed under each limit.
        setting: The key of the measurements.
    """

    plan: PartialPlan
    num_limits: int = 6
    longest_s: float = 2.0
    setting: str = ""


@dataclass(frozen=True)
class RateTest:
    """Tests learning rates that rise from step to step.

    Attributes:
        lowest: The first rate, > 0.
        highest: The last rate, > `lowest`.
        num_steps: Steps from the first to the last rate.
        num_seeds: How often to repeat it from the same weights, each time with other batches.
        setting: The key under which the result is stored.
    """

    lowest: float = 1e-5
    highest: float = 10.0
    num_steps: int = 80
    num_seeds: int = 3
    setting: str = ""


Measurement = PlanProbe | NeighbourProbe | PowerProbe | RateTest
"""The measurements that a `TrialTask` can order instead of a training."""
