"""A training in turns ends with the same weights as one at once, and its turns end where asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.test_resume import assert_same
from workbench.experiment import Experiment
from workbench.experiment.trainings import turn_ends
from workbench.foundation.events import CheckpointSaved, Event, TrialEnded, TrialReported
from workbench.training import checkpoint
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask, Turn

TRAININGS = {
    "one cycle with dropout": {"optimizer": "sgd", "lr": 0.05, "schedule": "one_cycle"},
    "augmented and averaged": {
        "optimizer": "adamw",
        "lr": 0.01,
        "schedule": "cosine",
        "epochs": 4,
        "augment": {"crop": 0.2, "noise": 0.1},
        "average_start": 0.4,
    },
    "evaluated now and then": {
        "optimizer": "adam",
        "lr": 0.01,
        "schedule": "plateau",
        "evaluate_every": 2,
        "checkpoint_every": 5,
    },
}


def make_experiment(training: dict[str, Any], **fields: Any) -> Experiment:
    return Experiment(
        **{
            "model": {"name": "convnet", "width": 4, "dropout": 0.4},
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            "training": {"epochs": 7, **training},
            "early_stop": {"turns": 3},
            **fields,
        }
    )


def run(
    experiment: Experiment, folder: Path, turn: Turn | None = None, attempt: int = 0, **task: Any
) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []
    order = TrialTask(
        "r",
        0,
        attempt,
        experiment.model_dump_json(),
        seed=11,
        folder=str(folder),
        resume=True,
        turn=turn,
        **task,
    )
    return run_trial(order, lambda event: bool(events.append(event))), events


def run_in_turns(
    experiment: Experiment, folder: Path, ends: Sequence[int]
) -> list[tuple[TrialEnded, list[Event]]]:
    """Train as a driver does: an attempt for each turn."""
    done: list[tuple[TrialEnded, list[Event]]] = []
    steps = [0]
    for number, end in enumerate(ends, start=1):
        is_last = number == len(ends)
        turn = Turn(number, len(ends), None if is_last else end, steps[0] or None, steps[-1])
        done.append(run(experiment, folder, turn, attempt=number - 1))
        found = [event.step for event in done[-1][1] if isinstance(event, TrialReported)]
        steps = [steps[0] or found[0], found[-1]]
    return done


def evaluated_epochs(events: Sequence[Event]) -> list[float | None]:
    return [
        event.epoch
        for event in events
        if isinstance(event, TrialReported)
        and "val_accuracy" in event.values
        and not event.told_again
    ]


@pytest.mark.parametrize("training", TRAININGS.values(), ids=list(TRAININGS))
def test_the_weights_are_the_same_to_the_bit(training: dict[str, Any], tmp_path: Path) -> None:
    experiment = make_experiment(training)
    whole, events = run(experiment, tmp_path / "whole")
    ends = turn_ends(experiment, {})
    turns = run_in_turns(experiment, tmp_path / "turns", ends)

    assert [ended.ends_turn for ended, _ in turns] == [True, True, False]
    last = turns[-1][0]
    assert (last.state, last.step, last.values) == ("complete", whole.step, whole.values)
    assert [epoch for _, found in turns for epoch in evaluated_epochs(found)] == evaluated_epochs(
        events
    )
    for name in ("last.pt", "best.pt"):
        turn, wanted = (
            checkpoint.read(tmp_path / folder / "checkpoints" / name)
            for folder in ("turns", "whole")
        )
        for part in ("strategy", "random", "schedule", "step", "values"):
            assert_same(turn[part], wanted[part])
    for (ended, turn), end in zip(turns[:-1], ends, strict=False):
        saved = [event for event in turn if isinstance(event, CheckpointSaved)]
        assert saved[-1].step == ended.step
        assert evaluated_epochs(turn)[-1] == end


def test_a_turn_that_was_over_is_not_repeated(tmp_path: Path) -> None:
    """The driver died before it could store the end of the turn."""
    experiment = make_experiment(TRAININGS["one cycle with dropout"])
    run(experiment, tmp_path, Turn(1, 3, 2))
    again, events = run(experiment, tmp_path, Turn(1, 3, 2), attempt=1)
    assert again.ends_turn
    assert not evaluated_epochs(events)


def count_up(config: Any, report: Any, folder: Path) -> float | None:
    saved = folder / "step"
    step = int(saved.read_text()) if saved.exists() and not config.get("forgets") else 0
    while step < config["epochs"]:
        step += 1
        saved.write_text(str(step))
        if report(step=step, loss=1 / step, samples=step * 100) and not config.get("deaf"):
            return 100.0
    return 1 / step


def make_function(early_stop: dict[str, Any], **options: Any) -> Experiment:
    return Experiment(
        train=count_up,
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"epochs": 6, **options},
        early_stop=early_stop,
    )


def run_function(experiment: Experiment, folder: Path, ends: Sequence[int]) -> list[Any]:
    (folder / "objects").mkdir(parents=True, exist_ok=True)
    for name, payload in experiment.payloads().items():
        (folder / "objects" / name).write_bytes(payload)
    params = experiment.search.check({})
    done, first, last = [], None, 0
    for number, end in enumerate(ends, start=1):
        turn = Turn(number, len(ends), None if number == len(ends) else end, first, last)
        ended, events = run(
            experiment,
            folder,
            turn,
            attempt=number - 1,
            params=params,
            objects=str(folder / "objects"),
        )
        steps = [event.step for event in events if isinstance(event, TrialReported)]
        first, last = first or steps[0], (steps or [last])[-1]
        done.append((ended.state, ended.ends_turn, steps, ended.values, ended.message))
    return done


@pytest.mark.parametrize(
    ("early_stop", "ends"),
    [({"turns": 3}, [2, 4, 6]), ({"turns": 3, "unit": "samples", "length": 600}, [200, 400, 600])],
)
def test_a_function_returns_at_the_end_of_its_turn(
    early_stop: dict[str, Any], ends: list[int], tmp_path: Path
) -> None:
    experiment = make_function(early_stop)
    assert turn_ends(experiment, {"epochs": 6}) == ends
    turns = run_function(experiment, tmp_path, ends)
    assert [(state, ends_turn, steps) for state, ends_turn, steps, *_ in turns] == [
        ("stopped", True, [1, 2]),
        ("stopped", True, [3, 4]),
        ("complete", False, [5, 6]),
    ]
    assert turns[-1][3]["loss"] == 1 / 6, "what it returned at the end of a turn is not its result"


def test_a_function_that_trains_on_is_complete_in_its_next_turn(tmp_path: Path) -> None:
    turns = run_function(make_function({"turns": 2}, deaf=True), tmp_path, [3, 6])
    assert [(state, steps) for state, _, steps, *_ in turns] == [
        ("stopped", [1, 2, 3, 4, 5, 6]),
        ("complete", [6]),
    ]


def test_a_function_that_starts_again_fails_with_what_to_write(tmp_path: Path) -> None:
    turns = run_function(make_function({"turns": 2}, forgets=True), tmp_path, [3, 6])
    state, _, _, _, message = turns[1]
    assert state == "failed"
    assert "turn 2 starts at step 1 again, although the trial has reached step 3" in message
    assert "Save a checkpoint in the trial's folder before each report" in message


@pytest.mark.slow
def test_a_turn_that_starts_in_another_process_has_the_same_weights(tmp_path: Path) -> None:
    """What a process remembers of a checkpoint is what is in the file."""
    experiment = make_experiment(TRAININGS["augmented and averaged"])
    ends = turn_ends(experiment, {})
    [turn, *_] = run_in_turns(experiment, tmp_path / "here", ends[:1] + ends[-1:])
    assert turn[0].ends_turn
    run(experiment, tmp_path / "there", Turn(1, 2, ends[0]))
    # Another process finds the file only.
    last = tmp_path / "there" / "checkpoints" / "last.pt"
    remembered = checkpoint.read_latest(last.parent)
    read = checkpoint.read_latest(last.parent)
    assert remembered is not None
    assert read is not None
    assert remembered["strategy"] is not read["strategy"]
    assert_same(remembered, read)
    assert type(remembered["strategy"]["model"]) is type(read["strategy"]["model"])
    run(experiment, tmp_path / "there", Turn(2, 2, None, 1, 1), attempt=1)
    for name in ("last.pt", "best.pt"):
        state, wanted = (
            checkpoint.read(tmp_path / folder / "checkpoints" / name)
            for folder in ("there", "here")
        )
        assert_same(state["strategy"], wanted["strategy"])


def test_a_checkpoint_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    content = {"step": 1, "weight": torch.ones(3), "pair": (1, [torch.zeros(2)])}
    checkpoint.save(tmp_path, content, last=True, best=False, is_read_soon=True)
    content["weight"].zero_()
    first = checkpoint.read_latest(tmp_path)
    assert first is not None
    assert torch.equal(first["weight"], torch.ones(3)), "training goes on with its own tensors"
    checkpoint.save(tmp_path, content, last=True, best=False, is_read_soon=True)
    checkpoint.save(tmp_path, content | {"step": 2}, last=True, best=False)
    latest = checkpoint.read_latest(tmp_path)
    assert latest is not None
    assert latest["step"] == 2
    checkpoint.save(tmp_path, content | {"step": 3}, last=True, best=False, is_read_soon=True)
    (tmp_path / "last.pt").unlink()
    assert checkpoint.read_latest(tmp_path) is None
