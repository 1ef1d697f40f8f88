from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders.advice import measured_here
from tests.builders.recorded_runs import append, begin
from workbench.experiment import Experiment
from workbench.hardware.resources import likely_cluster
from workbench.runs.dry_run import forecast_run
from workbench.store.database import Store

FIELDS: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "search": {"lr": {"low": 1e-4, "high": 0.1, "log": True}},
    "training": {"epochs": 4},
    "budget": {"trials": 6},
    "resources": {"gpus_per_worker": 0, "concurrency": 1},
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def test_all_that_is_wrong_is_told_at_once_and_only_that(store: Store) -> None:
    wrong = {
        "model": {"name": "mlp", "widht": 3},
        "data": "digitts",
        "training": {"optimizer": "adamm"},
    }
    told = forecast_run(Experiment(**FIELDS | wrong), store=store, launcher="nowhere")
    assert [problem["field"] for problem in told["problems"]] == [
        "model.widht",
        "data",
        "training.optimizer",
        "launcher",
    ]
    assert (
        told["problems"][0]["next_step"] == "Did you mean width?" or told["problems"][0]["allowed"]
    )
    assert told["lines"] == []


def test_a_run_that_may_start_is_described(store: Store) -> None:
    told = forecast_run(Experiment(**FIELDS, repeats=2), store=store)
    assert told["problems"] == []
    assert (told["num_trainings"], told["workers"], told["at_once"]) == (12, 1, 1)
    assert told["lines"][0] == "ends after 6 configurations, each trained 2 times"
    assert told["expected"] is None
    assert "the duration is unknown" in told["forecast"][0]
    assert told["duration"] == "duration unknown"


def test_a_dry_run_notes_what_check_notes(store: Store) -> None:
    short = {"sampler": {"name": "pbt", "options": {"population": 4, "every": 2}}}
    sharing = {"resources": {"concurrency": 1, "per_gpu": 2}}
    told = forecast_run(Experiment(**FIELDS | short), store=store)
    assert told["notes"][0].startswith("budget.trials: the population needs")
    if not likely_cluster().num_gpus:
        notes = forecast_run(Experiment(**FIELDS | sharing), store=store)["notes"]
        assert notes[0].startswith(
            "resources.per_gpu: it has no effect, because there is no GPU here"
        )
    assert forecast_run(Experiment(**FIELDS), store=store)["notes"] == []


def test_a_worker_that_this_machine_cannot_give_is_a_problem_here_and_not_elsewhere(
    store: Store,
) -> None:
    experiment = Experiment(**FIELDS | {"resources": {"cpus_per_worker": 10_000}})
    assert (
        forecast_run(experiment, store=store)["problems"][0]["field"] == "resources.cpus_per_worker"
    )
    elsewhere = forecast_run(experiment, store=store, address="somewhere:6379")
    assert (elsewhere["problems"], elsewhere["machine"], elsewhere["at_once"]) == ([], None, None)
    assert any("somewhere:6379" in line for line in elsewhere["lines"])


def test_an_earlier_run_that_cannot_teach_is_a_problem(store: Store) -> None:
    other = store.create_run(
        Experiment(**FIELDS | {"objectives": [{"metric": "val_accuracy", "goal": "maximize"}]})
    )
    [problem] = forecast_run(Experiment(**FIELDS), store=store, warm_start=[other])["problems"]
    assert problem["field"] == "objectives"


def test_what_was_measured_before_foretells_how_long_a_run_takes(store: Store) -> None:
    experiment = Experiment(**FIELDS)
    append(store, store.create_run(experiment), [*begin(), measured_here(experiment)])
    told = forecast_run(experiment, store=store)
    forecast = told["expected"]
    assert told["duration"] == "about 2.88 s"  # 6 trials of 48 steps of 10 ms
    short = forecast_run(experiment.replace(budget={"trials": 6, "time": 1}), store=store)
    assert short["duration"] == "at most 1 s"
    steps = 12 * 4  # 1,438 samples in steps of 128, four times
    assert forecast["trial_s"]["value"] == pytest.approx(steps * 0.01)
    assert forecast["run_s"]["value"] == pytest.approx(6 * steps * 0.01)
    assert forecast["checkpoints_bytes"] == 2 * 1000 * 6
    assert (forecast["plan"], forecast["at_once"], forecast["ends_by"]) == (
        "128 samples = 128 x 1 accumulated x 1 worker",
        1,
        "trials",
    )
    assert "budget.trials ends the run" in forecast["words"]
    assert forecast_run(experiment.replace(model="convnet"), store=store)["expected"] is None
