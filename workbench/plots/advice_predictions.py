"""What a stored advice predicts of step times: read once, then asked for plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.advisor.stored_advice import Interval, finite, mapping, rows
from workbench.events import PlanMeasured

Usual = tuple[Any, Any]
# Of a step; what claims more was not measured.
MOST_SAMPLES = 1e12


@dataclass(frozen=True)
class CurveStep:
    """A step of the stored curve: one micro batch a worker, gradients exchanged after it."""

    workers: int
    micro_batch: int
    step: Interval


class Predictions:
    """Step times as an advice predicts them."""

    def __init__(self, advice: Mapping[str, Any]) -> None:
        """Read an advice; an empty one predicts nothing."""
        candidates = [mapping(advice.get(name)) for name in ("choice", "runner_up", "reference")]
        self._candidates = [each for each in (*candidates, *rows(advice.get("others"))) if each]
        self._usual = usual_of(mapping(advice.get("choice")), ())
        stored = rows(mapping(advice.get("curves")).get("step_time"))
        found = [step for row in stored if (step := _curve_step(row)) is not None]
        self.curve = sorted(found, key=lambda step: (step.workers, step.micro_batch))

    def of_plan(self, plan: Mapping[str, Any]) -> Interval | None:
        """Return the predicted step time of a plan; None where the advice says nothing about it."""
        names = ("workers", "micro_batch", "accumulation", "precision", "strategy")
        wanted = [plan.get(name) for name in names]
        for candidate in self._candidates:
            if wanted == [mapping(candidate.get("plan")).get(name) for name in names]:
                return _time(Interval.of(candidate.get("step_time_s")))
        workers, micro_batch = finite(plan.get("workers")), finite(plan.get("micro_batch"))
        if workers is None or micro_batch is None or not is_usual(plan, self._usual):
            return None
        return self._on_curve(workers, micro_batch)

    def _on_curve(self, workers: float, micro_batch: float) -> Interval | None:
        line = [row for row in self.curve if row.workers == workers]
        if not line or not line[0].micro_batch <= micro_batch <= line[-1].micro_batch:
            return None
        at = [math.log(row.micro_batch) for row in line]
        columns = zip(*((row.step.value, row.step.low, row.step.high) for row in line), strict=True)
        value, low, high = (
            float(np.exp(np.interp(math.log(micro_batch), at, np.log(column)))) for column in columns
        )
        nearest = min(line, key=lambda row: abs(row.micro_batch - micro_batch))
        return Interval(value, low, high, nearest.step.extrapolated)


def usual_of(choice: Mapping[str, Any], measured: Sequence[PlanMeasured]) -> Usual:
    """Return the precision and recomputation that curves are about: the choice's, else the first measured."""
    plan = mapping(choice.get("plan")) or (measured[0].plan if measured else {})
    return plan.get("precision"), plan.get("recompute", "none")


def is_usual(plan: Mapping[str, Any], usual: Usual) -> bool:
    """Tell whether a plan makes steps as curves show them: that precision, gradients exchanged each time."""
    return (
        plan.get("accumulation", 1) == 1 and (plan.get("precision"), plan.get("recompute", "none")) == usual
    )


def _curve_step(row: Mapping[str, Any]) -> CurveStep | None:
    workers, micro_batch = finite(row.get("workers")), finite(row.get("micro_batch"))
    step = _time(
        Interval.of({"value": row.get("step_time_s"), "low": row.get("low_s"), "high": row.get("high_s"),
                     "extrapolated": row.get("extrapolated")})
    )  # fmt: skip
    if not (workers and micro_batch and step) or min(workers, micro_batch) < 1:
        return None
    if workers * micro_batch > MOST_SAMPLES:
        return None
    return CurveStep(int(workers), int(micro_batch), step)


def _time(interval: Interval | None) -> Interval | None:
    return interval if interval is not None and interval.is_time else None
