"""The speed of a function and of a program, as they report it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, PlanMeasured, TrialEnded
from workbench.training.probes import reported_speed
from workbench.training.probes.measurements import PlanProbe
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

PROGRAM = Path(__file__).with_name("speaking_program.py")
FUNCTION = "tests.training.probes.test_reported_speed:function"
LONGEST_S = 1.0
"""Long enough that a busy machine still gets several reports through in that time."""


def function(config: dict[str, Any], report: Any) -> None:
    step = 0
    while not report(step=step, loss=1.0, ms_per_step=2.0 * config["batch"] / config["lr"]):
        step += 1
        time.sleep(0.001)


def measure(
    experiment: Experiment, *micro_batches: int, **params: Any
) -> tuple[list[PlanMeasured], TrialEnded]:
    plans = tuple(PartialPlan.of(micro_batch=size) for size in micro_batches)
    task = TrialTask(
        "r",
        0,
        0,
        experiment.model_dump_json(),
        params=params,
        plan=PartialPlan.of(workers=1),
        measurement=PlanProbe(plans, longest_s=LONGEST_S),
    )
    events: list[Event] = []
    ended = run_trial(task, lambda event: bool(events.append(event)))
    return [event for event in events if isinstance(event, PlanMeasured)], ended


def experiment(kind: str = "", **fields: Any) -> Experiment:
    return Experiment(
        **{
            "command": [sys.executable, str(PROGRAM), kind, "{batch}"],
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "search": {"batch": {"choices": [8, 16]}},
            "advise": {"batch": "batch"},
            **fields,
        }
    )


def test_a_program_runs_until_it_has_reported_its_speed_a_few_times() -> None:
    (first, second), ended = measure(experiment("fast"), 8, 16)
    assert ended.state == "complete"
    assert first.plan == {"workers": 1, "micro_batch": 8, "accumulation": 1, "global_batch": 8}
    assert (first.samples_per_s, first.step_time_s) == (800.0, 0.01), (
        "the first report is a warm-up"
    )
    assert second.samples_per_s == pytest.approx(1600.0)
    assert first.num_steps >= 3


def test_a_function_runs_with_the_batch_of_the_plan_and_its_other_parameters() -> None:
    search = {"batch": {"choices": [8, 16]}, "lr": 0.5}
    (event,), _ = measure(
        experiment(command=None, train=FUNCTION, search=search), 16, **{"own.lr": 0.5}
    )
    assert event.step_time_s == pytest.approx(0.064)


def test_a_batch_that_does_not_fit_is_a_measurement() -> None:
    (event,), ended = measure(experiment("memory"), 16)
    assert ended.state == "complete"
    assert not event.fits
    assert "CUDA out of memory" in (event.message or "")


def test_a_program_that_reports_no_speed_is_named_with_what_it_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = measure(experiment("slow"), 8)[1]
    assert (ended.state, ended.is_unreported) == ("failed", True)
    assert (
        ended.message == "the command reported no samples_per_s or steps_per_s; it reported: loss"
    )
    monkeypatch.setattr(reported_speed, "SILENT_S", 0.2)
    ended = measure(experiment("silent"), 8)[1]
    assert ended.message == (
        "the command reported no samples_per_s or steps_per_s within 200 ms; it reported nothing"
    )


def test_a_program_that_fails_fails_the_measurement() -> None:
    ended = measure(experiment("fails"), 8)[1]
    assert not ended.is_unreported
    assert "ValueError: boom" in (ended.message or "")
