"""The step times that stored advice predicts for plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.advisor.stored_advice import Estimate, finite, mapping, rows, stored_plan
from workbench.advisor.variants import Variant, read_plan, variant_of
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.events import PlanMeasured

# Per step; a larger number cannot be a measurement.
MAX_SAMPLES = 1e12


@dataclass(frozen=True)
class CurveStep:
    """A step of the stored curve: one micro batch per worker, then an exchange of gradients."""

    workers: int
    micro_batch: int
    step: Estimate


class Predictions:
    """The step times that advice predicts."""

    def __init__(self, advice: Mapping[str, Any]) -> None:
        """Read stored advice; empty advice predicts nothing."""
        candidates = [mapping(advice.get(name)) for name in ("choice", "runner_up", "reference")]
        self._candidates = [each for each in (*candidates, *rows(advice.get("others"))) if each]
        self._usual = usual_of(mapping(advice.get("choice")), ())
        stored = rows(mapping(advice.get("curves")).get("step_time"))
        found = [step for row in stored if (step := _curve_step(row)) is not None]
        self.curve = sorted(found, key=lambda step: (step.workers, step.micro_batch))

    def of_plan(self, stored: PartialPlan) -> Estimate | None:
        """Return the predicted step time of a plan, or None if the advice does not cover it."""
        plan = stored.complete()
        if plan is None:
            return None
        for candidate in self._candidates:
            if stored_plan(candidate).complete() == plan:
                return _time(Estimate.of(candidate.get("step_time_s")))
        return (
            self._on_curve(plan.workers, plan.micro_batch) if is_usual(plan, self._usual) else None
        )

    def _on_curve(self, workers: float, micro_batch: float) -> Estimate | None:
        line = [row for row in self.curve if row.workers == workers]
        if not line or not line[0].micro_batch <= micro_batch <= line[-1].micro_batch:
            return None
        at = [math.log(row.micro_batch) for row in line]
        columns = zip(*((row.step.value, row.step.low, row.step.high) for row in line), strict=True)
        value, low, high = (
            float(np.exp(np.interp(math.log(micro_batch), at, np.log(column))))
            for column in columns
        )
        nearest = min(line, key=lambda row: abs(row.micro_batch - micro_batch))
        return Estimate(value, low, high, nearest.step.extrapolated)


def usual_of(choice: Mapping[str, Any], measured: Sequence[PlanMeasured]) -> Variant | None:
    """Return the variant that the curves describe.

    That of the choice, else the first one measured.
    """
    stored = mapping(choice.get("plan")) or (measured[0].plan if measured else {})
    plan = read_plan(stored)
    return None if plan is None else variant_of(plan)


def is_usual(plan: Plan | None, usual: Variant | None) -> bool:
    """Return whether the curves describe a plan.

    Its variant matches and it does not accumulate gradients.
    """
    return plan is not None and plan.accumulation == 1 and variant_of(plan) == usual


def _curve_step(row: Mapping[str, Any]) -> CurveStep | None:
    workers, micro_batch = finite(row.get("workers")), finite(row.get("micro_batch"))
    step = _time(
        Estimate.of(
            {
                "value": row.get("step_time_s"),
                "low": row.get("low_s"),
                "high": row.get("high_s"),
                "extrapolated": row.get("extrapolated"),
            }
        )
    )
    if not (workers and micro_batch and step) or min(workers, micro_batch) < 1:
        return None
    if workers * micro_batch > MAX_SAMPLES:
        return None
    return CurveStep(int(workers), int(micro_batch), step)


def _time(interval: Estimate | None) -> Estimate | None:
    return interval if interval is not None and interval.is_time else None
