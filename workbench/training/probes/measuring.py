"""Carries out the measurement that a task orders: who measures what."""

from __future__ import annotations

from collections.abc import Callable

from workbench.foundation.events import Event
from workbench.training.outcome import Outcome
from workbench.training.probes.measurements import NeighbourProbe, RateTest
from workbench.training.task import TrialTask


def measure(task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
    """Measure what a task orders, as one worker of the gang.

    Args:
        task: The task of this worker; it has a measurement.
        report: Takes what was measured; returns whether to stop.

    Returns:
        How the attempt ended.

    Raises:
        WorkbenchError: If the measurement contradicts the experiment.
    """
    measurement = task.measurement
    assert measurement is not None
    # Each needs torch or a running program, and none needs what the others load.
    if isinstance(measurement, NeighbourProbe):
        from workbench.training.probes.neighbours import measure_neighbours

        return measure_neighbours(task, measurement, report)
    if isinstance(measurement, RateTest):
        from workbench.training.probes.rate_range_test import measure_rates

        return measure_rates(task, measurement, report)
    if task.experiment.trains_model:
        from workbench.training.probes.plan_probe import measure_plans

        return measure_plans(task, measurement, report)
    from workbench.training.probes.reported_speed import measure_reported_speed

    return measure_reported_speed(task, measurement, report)
