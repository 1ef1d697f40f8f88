"""Runs your function or program for a moment, to learn how fast it is.

It is started like a trial, with the batch and the workers of a plan, and stopped after a few
reports of its speed. The first report may include a warm-up, so it counts only if there is no
other.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable

from workbench.experiment.own_advice import UNITS, OwnAdvice
from workbench.experiment.plan import SIZES, PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, PlanMeasured, TrialReported
from workbench.foundation.formatting import format_duration
from workbench.training.outcome import Outcome
from workbench.training.planning.own_code import in_words_of_plans, own_values
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe
from workbench.training.worker_task import TrialTask

SILENT_S = 60.0
"""How long a program may run without reporting its speed, including its imports."""
_ENOUGH, _FEWEST = 4, 2
"""Reports after which it is stopped: at once, or when the time for a plan is over."""
_LAST_CHANCE = 5.0
"""It is stopped after this many times the time for a plan, however few reports there are."""


def measure_reported_speed(
    task: TrialTask, order: PlanProbe, report: Callable[[Event], bool]
) -> Outcome:
    """Measure plans of a function or a program.

    Args:
        task: The order of this worker.
        order: The plans, and for how long to measure them.
        report: Receives a `PlanMeasured` for each plan, and returns whether to stop.

    Returns:
        How it ended. It has failed if no speed was reported.

    Raises:
        ExperimentError: If the experiment does not say which parameter is the batch.
    """
    advise = task.experiment.advise
    if advise is None:
        raise ExperimentError(
            "the steps of your own code cannot be measured from outside",
            field="train",
            allowed="an experiment with model and data, or with advise: {batch: NAME}",
        )
    experiment = in_words_of_plans(task.experiment)
    for num_done, plan in enumerate(order.plans, start=1):
        decided = task.plan | plan | PartialPlan.of(workers=task.num_workers)
        settings = resolve(experiment, task.params, decided=decided)
        micro_batch = settings.plan.micro_batch
        values = own_values(task.experiment, task.params, micro_batch, settings.lr)
        meter = _SpeedMeter(advise, micro_batch, order.longest_s)
        ended = _run(dataclasses.replace(task, params=values), meter)
        measured = PlanMeasured(
            setting=order.setting,
            plan=PartialPlan.of_plan(settings.plan).only(SIZES).to_json(),
        )
        if (times_s := meter.counted_s) or task.rank != 0:
            step_s = statistics.median(times_s) if times_s else None
            measured = measured.model_copy(
                update={
                    "num_steps": len(times_s),
                    "step_time_s": step_s,
                    "step_time_spread_s": _spread_s(times_s),
                    "samples_per_s": (
                        None if step_s is None else settings.plan.global_batch / step_s
                    ),
                }
            )
        elif ended.reason == "oom":
            measured = measured.model_copy(update={"fits": False, "message": ended.message})
        else:
            return _without_speed(ended, meter, task, advise)
        if report(measured):
            return Outcome("stopped", num_done)
    return Outcome("complete", len(order.plans))


def _run(task: TrialTask, meter: _SpeedMeter) -> Outcome:
    if task.experiment.command is not None:
        from workbench.training.program_trial import run_program

        return run_program(task, meter.take, meter.is_over)
    from workbench.training.functions import run_function

    try:
        return run_function(task, meter.take)
    except ExperimentError:  # it ended before its first report of the objective
        if meter.counted_s:
            return Outcome("stopped", 0)
        raise


class _SpeedMeter:
    """The speeds that the function or program reports while it runs."""

    def __init__(self, advise: OwnAdvice, micro_batch: int, longest_s: float) -> None:
        self._advise, self._micro_batch, self._longest_s = advise, micro_batch, longest_s
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._times_s: list[float] = []
        self.names: dict[str, None] = {}

    @property
    def counted_s(self) -> list[float]:
        """The seconds of a step that count, one for each report."""
        return self._times_s[1:] or self._times_s

    def take(self, event: Event) -> bool:
        """Take an event, and return whether to stop."""
        if isinstance(event, TrialReported):
            self.names |= dict.fromkeys(event.values)
            step_s = self._advise.step_time_s(event.values, micro_batch=self._micro_batch)
            if step_s is not None:
                self._times_s.append(step_s)
                self._first_s = self._first_s or time.monotonic()
        return self.is_over()

    def is_over(self) -> bool:
        """Return whether there are enough reports, or more are not worth waiting for."""
        now_s, count = time.monotonic(), len(self._times_s)
        if self._first_s is None:
            return now_s - self._began_s >= SILENT_S
        since_s = now_s - self._first_s
        return (
            (count >= _ENOUGH and since_s >= self._longest_s / _ENOUGH)
            or (count >= _FEWEST and since_s >= self._longest_s)
            or since_s >= _LAST_CHANCE * self._longest_s
        )


def _without_speed(
    ended: Outcome, meter: _SpeedMeter, task: TrialTask, advise: OwnAdvice
) -> Outcome:
    """Return the outcome if no speed was reported.

    The message says why it failed, or that it must report a speed.
    """
    if ended.state == "failed" and not ended.is_unreported:
        return ended
    wanted = advise.speed or "samples_per_s or steps_per_s"
    when = f" within {format_duration(SILENT_S)}" if ended.state == "stopped" else ""
    others = [name for name in meter.names if advise.speed is not None or name.lower() not in UNITS]
    seen = f"it reported: {', '.join(others)}" if others else "it reported nothing"
    return Outcome(
        "failed",
        0,
        reason="error",
        is_unreported=True,
        message=(
            f"the {'train function' if task.experiment.command is None else 'command'} reported no"
            f" {wanted}{when}; {seen}"
        ),
    )


def _spread_s(times_s: list[float]) -> float | None:
    if len(times_s) < 2:
        return None
    low, _, high = statistics.quantiles(times_s, n=4)
    return high - low
