"""A range test in a real training.

What it finds, on one worker and on two, and that nothing of it stays.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.foundation.events import Event, RatesTested, TrialEnded
from workbench.training.assembly import assemble
from workbench.training.probes.measurements import RateTest
from workbench.training.probes.rate_range_test import _test
from workbench.training.strategies.strategy import Worker
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

TEST = RateTest(lowest=1e-5, highest=100.0, num_steps=70, num_seeds=2, setting="digits")


def digits(**fields: Any) -> Experiment:
    training = {"global_batch": 64, "optimizer": "sgd", "epochs": 2, **fields.pop("training", {})}
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "dropout": 0.2},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    return Experiment(**settings | fields, training=training)


def run(
    rank: int,
    num_workers: int,
    meeting: str | None,
    text: str,
    folder: str,
    *,
    test: RateTest | None = TEST,
) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []
    task = TrialTask(
        "run",
        0,
        0,
        text,
        seed=4,
        folder=folder,
        measurement=test,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    return run_trial(task, lambda event: events.append(event) is not None), events


def test_a_rate_is_found_with_which_the_model_learns(tmp_path: Path) -> None:
    experiment = digits()
    ended, (event,) = run(0, 1, None, experiment.model_dump_json(), str(tmp_path))
    assert ended.state == "complete", ended.traceback
    assert isinstance(event, RatesTested)
    assert (event.setting, event.global_batch, event.num_seeds) == ("digits", 64, 2)
    assert len(event.rates) == len(event.losses) < 70, "100 is no rate for SGD"
    assert event.rates[0] == 1e-5
    assert event.losses[0] == pytest.approx(math.log(10), rel=0.2)
    assert all(map(math.isfinite, event.losses))
    assert event.highest_stable == event.rates[-1]
    assert event.suggested is not None
    assert 1e-3 < event.suggested < event.highest_stable
    learnt = digits(
        training={"lr": event.suggested, "reference_batch": 64, "epochs": 4}
    ).model_dump_json()
    trained, _ = run(0, 1, None, learnt, str(tmp_path), test=None)
    assert trained.values["val_accuracy"] > 0.8


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_workers_find_what_one_finds(strategy: str, tmp_path: Path) -> None:
    whole = digits(model={"name": "mlp", "dropout": 0.0})
    shared = digits(
        model={"name": "mlp", "dropout": 0.0}, plan={"workers": 2, "strategy": strategy}
    )
    _, (alone,) = run(0, 1, None, whole.model_dump_json(), str(tmp_path))
    (ended, (event,)), (other, silent) = run_together(
        run, 2, shared.model_dump_json(), str(tmp_path)
    )
    assert (ended.state, other.state) == ("complete", "complete"), ended.traceback
    assert silent == [], "rank 0 alone is heard"
    assert isinstance(alone, RatesTested)
    assert event.rates == alone.rates
    # Where the loss is about to diverge, every rounding error counts.
    assert event.losses[:-6] == pytest.approx(alone.losses[:-6], rel=1e-2)
    assert event.suggested == pytest.approx(alone.suggested, rel=0.3)


def test_every_run_begins_from_the_same_state_and_the_last_one_leaves_it(tmp_path: Path) -> None:
    experiment = digits(training={"optimizer": "adamw"}).model_dump_json()
    task = TrialTask("run", 0, 0, experiment, seed=4, folder=str(tmp_path), measurement=TEST)
    parts = assemble(task, Worker())
    before = {name: value.clone() for name, value in parts.strategy.state()["model"].items()}
    drawn = torch.get_rng_state()
    losses = _test(task, TEST, parts)
    state = parts.strategy.state()
    for name, value in state["model"].items():
        assert torch.equal(value, before[name])
    assert state["optimizer"]["state"] == {}
    assert torch.equal(torch.get_rng_state(), drawn)
    assert _test(task, TEST, parts) == losses


def test_rates_that_are_all_too_low_suggest_nothing(tmp_path: Path) -> None:
    test = RateTest(lowest=1e-12, highest=1e-9, num_steps=30, num_seeds=2)
    ended, (event,) = run(0, 1, None, digits().model_dump_json(), str(tmp_path), test=test)
    assert ended.state == "complete", ended.traceback
    assert isinstance(event, RatesTested)
    assert event.suggested is None
    assert len(event.rates) == 30


def test_a_train_function_has_no_rates_to_test(tmp_path: Path) -> None:
    experiment = Experiment(
        train="somewhere:train", objectives=[{"metric": "loss", "goal": "minimize"}]
    )
    ended, events = run(0, 1, None, experiment.model_dump_json(), str(tmp_path))
    assert (ended.state, ended.reason, events) == ("failed", "error", [])
    assert "a train function sets its own learning rate" in str(ended.message)
