"""What can be measured instead of training a trial.

Plain values that travel to the workers of a gang.

Importing this loads no torch: what carries a measurement out is loaded by the worker that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event
from workbench.training.outcome import Outcome
from workbench.training.task import TrialTask


@dataclass(frozen=True)
class PlanProbe:
    """Instead of a training: a few steps of each of several plans, measured.

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

    def run(self, task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
        """Measure the plans, as one worker of the gang."""
        if task.experiment.trains_model:
            from workbench.training.probes.plan_probe import probe
        else:
            from workbench.training.probes.reported_speed import probe

        return probe(task, self, report)


@dataclass(frozen=True)
class NeighbourProbe:
    """Instead of a training.

    Every worker of the gang makes the steps of one training by itself, all at once.

    Attributes:
        plan: What differs in the plan of each; it has one worker.
        longest_s: Seconds for which steps are counted, and half as many before.
        setting: What the measurement belongs to.
    """

    plan: PartialPlan
    longest_s: float = 2.0
    setting: str = ""

    def run(self, task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
        """Make the steps, as one worker of the gang."""
        from workbench.training.probes.neighbours import probe

        return probe(task, self, report)


@dataclass(frozen=True)
class RateTest:
    """Instead of a training: learning rates that rise from step to step, and what the loss does.

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

    def run(self, task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
        """Train with rising rates, as one worker of the gang."""
        from workbench.training.probes.rate_range_test import measure_rates

        return measure_rates(task, self, report)
