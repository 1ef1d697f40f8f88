"""Why a trial was stopped: the numbers of the sentence are those that the pruner compared."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment
from tests.search.test_front_growth import driven, metrics
from workbench.foundation.events import TrialReported


def why(
    early_stop: dict[str, Any], curves: list[list[float]], goal: str = "minimize"
) -> str | None:
    """Train along each curve; return why the last one was stopped."""
    objectives = [{"metric": "loss", "goal": goal}]
    drive = Drive(make_experiment(sampler="random", early_stop=early_stop, objectives=objectives))
    for curve in curves:
        trial = drive.ask().trial
        for rung, value in enumerate(curve, start=1):
            if drive.report(trial, rung, loss=value):
                drive.end(trial, "pruned")
                break
        else:
            drive.end(trial)
    return drive.study.why_pruned(len(curves) - 1)


MEDIAN = {"pruner": "median", "startup_trials": 2, "grace": 2}
PERCENTILE = {**MEDIAN, "pruner": "percentile", "percentile": 25.0}
ASHA = {"pruner": "asha", "grace": 2, "reduction_factor": 2}


@pytest.mark.parametrize(
    ("early_stop", "curves", "goal", "reason"),
    [
        (
            MEDIAN,
            [[9, 1], [9, 3], [9, 4]],
            "minimize",
            "loss 4 at step 2 is above the median 2 of 2 complete trials there",
        ),
        (
            MEDIAN,
            [[1, 5], [1, 8], [3, 2]],
            "maximize",
            "the best loss until step 2, 3, is below the median 6.5 of 2 complete trials there",
        ),
        (
            PERCENTILE,
            [[0, 1], [0, 2], [0, 3], [0, 2]],
            "maximize",
            "loss 2 at step 2 is not among the best 25% of 3 complete trials there (2.5 or more)",
        ),
        (
            ASHA,
            [[1, 1], [1, 2]],
            "minimize",
            "loss 2 at step 2 is not the best of 2 trials there (1)",
        ),
        (
            ASHA,
            [[0, 9], [0, 8], [0, 7], [0, 6]],
            "maximize",
            "loss 6 at step 2 is not among the best 2 of 4 trials there (8 or more)",
        ),
        (
            {"pruner": "patience", "patience": 2, "grace": 1},
            [[3, 1, 2, 1]],
            "minimize",
            "loss has not improved since step 2, when it was 1",
        ),
    ],
)
def test_the_sentence_states_what_was_compared(
    early_stop: dict[str, Any], curves: list[list[float]], goal: str, reason: str
) -> None:
    assert why(early_stop, curves, goal) == reason


@pytest.mark.parametrize("pruner", ["asha", "hyperband", "median", "percentile"])
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_no_bound_contradicts_the_decision(pruner: str, goal: str) -> None:
    early_stop: dict[str, Any] = {"pruner": pruner, "grace": 1}
    objectives = [{"metric": "loss", "goal": goal}]
    drive = Drive(make_experiment(sampler="random", early_stop=early_stop, objectives=objectives))
    worse, num_pruned = (lambda a, b: a > b) if goal == "minimize" else (lambda a, b: a < b), 0
    draws = random.Random(1)
    for trial in range(60):
        level = draws.randint(1, 10_000) / 100
        drive.ask()
        for rung in range(1, 10):
            if drive.report(trial, rung, loss=level + 10 // rung):
                reason = drive.study.why_pruned(trial)
                assert reason is not None
                value = level + 10 // rung if "until" not in reason else None
                bound = float(re.findall(r"(\d[\d.]*)(?: of \d+ complete| or |\)$)", reason)[-1])
                stated = float(
                    re.findall(r"\d[\d.]*", reason.partition("is ")[0].replace("step", ""))[0]
                )
                assert worse(value or level, bound) or math.isclose(
                    value or level, bound, rel_tol=1e-3
                )
                assert value is None or stated == pytest.approx(value, rel=1e-3)
                drive.end(trial, "pruned")
                num_pruned += 1
                break
        else:
            drive.end(trial)
    assert num_pruned > 5


def test_epochs_are_named_epochs() -> None:
    drive = Drive(make_experiment(sampler="random", early_stop=MEDIAN))
    for trial, loss in enumerate((1.0, 1.0, 2.0)):
        drive.ask()
        report = TrialReported(trial=trial, step=140, epoch=5, values={"loss": loss})
        drive.study.take_report(report)
        if trial < 2:
            drive.end(trial)
    assert (
        drive.study.why_pruned(2)
        == "loss 2 at epoch 5 is above the median 1 of 2 complete trials there"
    )


def test_a_forecast_states_its_chance_and_the_least_one() -> None:
    curves = [[level + 1 / rung for rung in range(1, 17)] for level in (0.4, 0.3, 0.2, 0.1, 3.0)]
    reason = why({"pruner": "curves", "grace": 2, "options": {"chance": 0.1}}, curves)
    assert reason is not None
    chance = r"<?[\d.]+% \(at least 10% is needed\)"
    assert re.fullmatch(
        rf"with loss [\d.]+ at step \d+, the chance of becoming the best is {chance}", reason
    )


def test_before_there_are_forecasts_the_place_among_the_others_is_stated() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "curves", "grace": 2}))
    trials = [drive.ask().trial for _ in range(3)]
    for rung in (1, 2):
        for trial, loss in zip(trials, (1.0, 2.0, 3.0), strict=True):
            drive.report(trial, rung, loss=loss)
    reason = drive.study.why_pruned(trials[2])
    assert (
        reason == "loss 3 at step 2 is worse than 2 of 2 other trials (too few trials are complete"
        " for forecasts)"
    )


def test_a_forecast_of_several_objectives_states_the_chance_to_extend_the_front() -> None:
    drive = driven()
    drive.study.enqueue({"x": 0.5, "y": 0.9})
    trial = drive.ask().trial
    rung = next(
        r for r in range(1, 20) if drive.report(trial, r, **metrics({"x": 0.5, "y": 0.9}, r))
    )
    reason = drive.study.why_pruned(trial)
    assert reason is not None
    chance = r"<?[\d.]+% \(at least 10% is needed\)"
    assert re.fullmatch(rf"at step {rung} the chance of extending the front was {chance}", reason)


def test_a_rebuilt_study_gives_the_same_reasons() -> None:
    drive = Drive(make_experiment(sampler="random", early_stop={"pruner": "asha"}))
    for level in random.Random(2).sample(range(30), 30):
        drive.train(lambda _, rung, level=level: level + 1 / rung, rungs=9)
    rebuilt = drive.rebuilt()
    reasons = [drive.study.why_pruned(trial) for trial in range(30)]
    assert reasons == [rebuilt.why_pruned(trial) for trial in range(30)]
    assert sum(reason is not None for reason in reasons) > 5
