from __future__ import annotations

from typing import Any

import pytest

from workbench.advisor.stored_advice import Estimate
from workbench.advisor.variants import plan_with
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.sweeps.forecast import Forecast, forecast_of, num_epochs_of

PLAIN = PartialPlan.of(precision="fp32", strategy="ddp", recompute="none")
FIELDS: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "training": {"epochs": 5},
    "search": {"lr": {"low": 0.1, "high": 1.0}},
}


def foretell(**fields: Any) -> Forecast:
    """Of 1,000 samples in steps of 100 that take a second, on two of five places.

    50 s a training.
    """
    experiment = Experiment(**FIELDS | fields)
    return forecast_of(
        experiment,
        plan_with(PLAIN, 2, 50),
        Estimate(1.0, 0.5, 2.0),
        num_epochs=num_epochs_of(experiment),
        num_train_samples=1000,
        num_places=5,
        on_gpu=False,
        state_bytes=10,
    )


def test_trainings_beside_each_other_share_the_time() -> None:
    found = foretell(budget={"trials": 5}, repeats=3)
    assert (found.at_once, found.num_trainings) == (2, 15)
    assert found.trial_s == Estimate(50.0, 25.0, 100.0)
    assert found.run_s == Estimate(400.0, 200.0, 800.0), "eight rounds"
    assert found.worker_hours == pytest.approx(15 * 2 * 50 / 3600)
    assert "Without early stopping, 15 trials take about 6 min 40 s" in str(found)


@pytest.mark.parametrize(
    ("budget", "ends_by"),
    [
        ({"trials": 4}, "trials"),
        ({"trials": 4, "time": 101}, "trials"),
        ({"trials": 4, "time": 99}, "time"),
        ({"time": 60}, "time"),
        ({"plateau": 3}, None),
    ],
)
def test_the_limit_that_is_met_first_ends_the_run(
    budget: dict[str, Any], ends_by: str | None
) -> None:
    found = foretell(budget=budget)
    assert found.ends_by == ends_by
    assert ("trials" in budget) == (found.run_s is not None)


@pytest.mark.parametrize(
    ("resources", "budget", "said"),
    [
        ({"keep_best": 3}, {"trials": 20}, (100, "run")),  # three, and the two that train
        ({"keep_best": "all"}, {"trials": 20}, (400, "run")),
        ({"keep_best": "all"}, {"time": 60}, (20, "trial")),
        ({"keep_best": "all", "max_checkpoints_size": 70}, {"trials": 20}, (70, "run")),
    ],
)
def test_checkpoints_grow_to_what_is_kept(
    resources: dict[str, Any], budget: dict[str, Any], said: tuple[int, str]
) -> None:
    found = foretell(resources=resources, budget=budget)
    assert (found.checkpoints_bytes, found.checkpoints_of) == said


def test_searched_epochs_count_as_they_are_drawn() -> None:
    found = foretell(training={}, search={"epochs": {"choices": [2]}})
    assert found.trial_s.value == 20.0
