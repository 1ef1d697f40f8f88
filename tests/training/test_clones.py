"""A clone continues from a checkpoint of its parent, as if that had been stopped and changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_resume import assert_same
from workbench.experiment import Experiment
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.events import (
    CheckpointSaved,
    Clone,
    Event,
    TrialEnded,
    TrialPlanned,
    TrialReported,
)
from workbench.training import checkpoint
from workbench.training.mirrored_folder import branch_at, copy_files, keep_branch, written_files
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

MODEL = Experiment(
    model={"name": "convnet", "width": 4, "dropout": 0.3},
    data="digits",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={
        "lr": {"low": 0.001, "high": 1.0},
        "momentum": {"low": 0.0, "high": 0.95},
        "global_batch": {"choices": [104, 208]},
    },
    training={
        "epochs": 4,
        "optimizer": "sgd",
        "schedule": "cosine",
        "checkpoint_after": 1e-6,
    },
)
PARAMS = {"lr": 0.05, "momentum": 0.9, "global_batch": 104}
STEPS_PER_EPOCH = 14  # 1,438 samples


def run(
    task: TrialTask, stop: Callable[[Event], bool] = lambda _: False
) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []

    def take(event: Event) -> bool:
        events.append(event)
        return stop(event)

    return run_trial(task, take), events


def order(folder: Path, **task: Any) -> TrialTask:
    fields: dict[str, Any] = {
        "run_id": "r",
        "trial": 0,
        "attempt": 0,
        "experiment_json": MODEL.model_dump_json(),
        "seed": 11,
        "resume": True,
        "params": PARAMS,
        "folder": str(folder),
    }
    return TrialTask(**fields | task)


def order_clone(folder: Path, parent: Path, **task: Any) -> TrialTask:
    clone = Clone(of=0, begins_from="weights", step=1, first_step=1)
    return order(folder, **{"trial": 1, "continued": str(parent), "clone": clone, **task})


def last_state(folder: Path) -> dict[str, Any]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")


def stopped_parent(folder: Path, *, in_epoch: bool) -> dict[str, Any]:
    """Train until a checkpoint in the first or after the second epoch, and return it."""
    # With this `checkpoint_after`, the first step is saved as well.
    wanted_step = 1 if in_epoch else 2 * STEPS_PER_EPOCH

    def is_there(event: Event) -> bool:
        return isinstance(event, CheckpointSaved) and event.step == wanted_step

    ended, _ = run(order(folder), is_there)
    assert ended.state == "stopped"
    state = last_state(folder)
    assert (state["steps_of_epoch"] > 0) == in_epoch
    return state


STABLE = {**MODEL.training.model_dump(), "schedule": "wsd", "checkpoint_every": 4}
DECAYING = MODEL.replace(
    training=STABLE,
    search={
        **MODEL.model_dump()["search"],
        "schedule_options.decay": {"choices": [0.25, 0.5, 1.0]},
    },
)


def decaying(folder: Path, decay: float, **task: Any) -> TrialTask:
    params = {**PARAMS, "schedule_options.decay": decay}
    return order(folder, params=params, experiment_json=DECAYING.model_dump_json(), **task)


def test_a_clone_with_another_ending_equals_a_training_with_it_from_the_start(
    tmp_path: Path,
) -> None:
    wanted_step = 2 * STEPS_PER_EPOCH  # where the longer of both decays begins

    def is_there(event: Event) -> bool:
        return isinstance(event, CheckpointSaved) and event.step == wanted_step

    parent = tmp_path / "parent"
    run(decaying(parent, 0.25), is_there)
    clone = Clone(of=0, begins_from="weights", step=1, first_step=1)
    continued = {"trial": 1, "continued": str(parent), "clone": clone}
    run(decaying(tmp_path / "clone", 0.5, **continued))
    run(decaying(tmp_path / "whole", 0.5))
    clones, whole = (last_state(tmp_path / name)["strategy"] for name in ("clone", "whole"))
    assert_same(clones["model"], whole["model"])


@pytest.mark.parametrize(("first", "second"), [(0.25, 0.5), (0.5, 0.25)])
def test_trainings_that_decay_differently_share_what_is_before_to_the_bit(
    first: float, second: float, tmp_path: Path
) -> None:
    trunk = tmp_path / "first" / "trunk"
    _, events = run(decaying(tmp_path / "first", first, kept_epochs=(2,)))
    assert [path.name for path in trunk.iterdir()] == ["2"]
    shares = {"trial": 1, "continued": str(trunk / "2"), "trunk_of": 0}
    ended, events = run(decaying(tmp_path / "second", second, **shares))
    whole_ended, whole = run(decaying(tmp_path / "whole", second))
    assert_same(*({**last_state(tmp_path / name), "random": None} for name in ("second", "whole")))
    assert ended.values == whole_ended.values
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert (planned.begins_step, planned.trunk_of) == (2 * STEPS_PER_EPOCH, 0)
    assert (planned.saved_s or 0) > 0
    assert any("begins with the first 2 epochs of trial 0" in str(event) for event in events)
    reports, of_whole = (
        {event.step: event.values for event in some if isinstance(event, TrialReported)}
        for some in (events, whole)
    )
    assert min(reports) > 2 * STEPS_PER_EPOCH
    evaluated = [step for step in reports if step % STEPS_PER_EPOCH == 0]
    assert len(evaluated) == 2
    assert {step: reports[step] for step in evaluated} == {
        step: of_whole[step] for step in evaluated
    }


def test_nothing_is_shared_with_a_training_by_another_plan(tmp_path: Path) -> None:
    run(decaying(tmp_path / "first", 0.25, kept_epochs=(2,)))
    shares = {"trial": 1, "continued": str(tmp_path / "first/trunk/2"), "trunk_of": 0}
    other = DECAYING.replace(plan={"micro_batch": 52}).model_dump_json()
    task = replace(decaying(tmp_path / "second", 0.5, **shares), experiment_json=other)
    _, events = run(task)
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert (planned.begins_step, planned.trunk_of) == (None, None)
    assert last_state(tmp_path / "second")["step"] == 4 * STEPS_PER_EPOCH


@pytest.mark.parametrize("in_epoch", [True, False])
def test_a_clone_equals_its_parent_stopped_and_resumed_with_the_new_values(
    in_epoch: bool, tmp_path: Path
) -> None:
    parent = tmp_path / "parent"
    before = stopped_parent(parent, in_epoch=in_epoch)
    changed = {**PARAMS, "lr": 0.01, "momentum": 0.5}

    # The stopped training, with the momentum that its optimizer has stored changed by hand.
    resumed_folder = tmp_path / "resumed"
    shutil.copytree(parent, resumed_folder)
    for name in ("last.pt", "best.pt"):
        path = resumed_folder / "checkpoints" / name
        if path.exists():
            content = checkpoint.read(path)
            for group in content["strategy"]["optimizer"]["param_groups"]:
                group["momentum"] = 0.5
            checkpoint.save(path.parent, content, last=name == "last.pt", best=name == "best.pt")
    resumed, _ = run(order(resumed_folder, params=changed, attempt=1))
    cloned, events = run(order_clone(tmp_path / "clone", parent, params=changed))

    assert (cloned.state, cloned.step) == ("complete", 4 * STEPS_PER_EPOCH)
    assert cloned.step == resumed.step
    state, wanted = last_state(tmp_path / "clone"), last_state(resumed_folder)
    for part in ("strategy", "random", "schedule", "values"):
        assert_same(state[part], wanted[part])
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert (planned.begins_step, planned.begins_epoch) == (
        before["step"],
        pytest.approx(before["step"] / STEPS_PER_EPOCH),
    )
    steps = [event.step for event in events if isinstance(event, TrialReported)]
    assert min(steps) > before["step"], "its curve begins where it leaves its parent"
    # Without the change, the weights are different, so the comparison above is not empty.
    same, _ = run(order_clone(tmp_path / "same", parent))
    assert same.values["val_loss"] != cloned.values["val_loss"]


@pytest.mark.parametrize("in_epoch", [True, False])
def test_a_checkpoint_that_is_kept_for_a_clone_does_not_change_the_training(
    in_epoch: bool, tmp_path: Path
) -> None:
    step = STEPS_PER_EPOCH + (5 if in_epoch else 0)
    plain, _ = run(order(tmp_path / "plain"))
    parent, _ = run(order(tmp_path / "parent", branches=(step,)))
    assert (parent.step, parent.values) == (plain.step, plain.values)
    assert_same(
        last_state(tmp_path / "parent")["strategy"], last_state(tmp_path / "plain")["strategy"]
    )
    branch = branch_at(open_artifacts(tmp_path / "parent"), step)
    clone, events = run(order_clone(tmp_path / "clone", branch.working_folder))
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert (planned.begins_step, planned.begins_epoch) == (
        step,
        pytest.approx(step / STEPS_PER_EPOCH),
    )
    # With the parameters of its parent, it ends with the same weights.
    assert clone.step == plain.step
    assert_same(
        last_state(tmp_path / "clone")["strategy"], last_state(tmp_path / "plain")["strategy"]
    )


def test_a_clone_with_another_batch_begins_at_the_same_sample(tmp_path: Path) -> None:
    run(order(tmp_path / "parent", branches=(STEPS_PER_EPOCH + 6,)))
    branch = branch_at(open_artifacts(tmp_path / "parent"), STEPS_PER_EPOCH + 6).working_folder
    params = {**PARAMS, "global_batch": 208}
    cloned, events = run(order_clone(tmp_path / "clone", branch, params=params))
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert planned.begins_step == 7 + 3, "7 steps of 208 samples are an epoch"
    assert (cloned.state, cloned.step) == ("complete", 4 * 7)


def test_a_clone_of_a_training_that_is_over_says_so(tmp_path: Path) -> None:
    run(order(tmp_path / "parent"))
    ended, _ = run(order_clone(tmp_path / "clone", tmp_path / "parent"))
    assert (ended.state, ended.message) == (
        "failed",
        "the training was over at the checkpoint of trial 0 that the clone received, so"
        " nothing was left to train. Clone a trial that is still training, or clone it from its"
        " start.",
    )


WALK = Experiment(
    train={"name": "tests.sweeps.sweep_functions:descend", "steps": 8},
    objectives=[{"metric": "loss", "goal": "minimize"}],
    search={"rate": {"low": 0.0, "high": 1.0}},
)


def walk(rates: list[float]) -> list[float]:
    """The distances of `descend`, computed by hand."""
    distances = [4.0]
    for rate in rates:
        distance = distances[-1]
        distances.append(abs(distance - rate * min(1.0, distance)) + 0.001 * rate)
    return distances[1:]


def test_a_function_keeps_its_files_for_a_clone_and_the_clone_continues_from_them(
    tmp_path: Path,
) -> None:
    task = order(
        tmp_path / "parent",
        experiment_json=WALK.model_dump_json(),
        params={"rate": 0.5},
        branches=(3,),
    )
    parent, _ = run(task)
    assert parent.state == "complete"
    branch = branch_at(open_artifacts(tmp_path / "parent"), 3).working_folder
    clone = replace(
        task,
        trial=1,
        folder=str(tmp_path / "clone"),
        params={"rate": 0.25},
        branches=(),
        continued=str(branch),
        clone=Clone(of=0, begins_from="weights", step=3, branch=3, first_step=1),
    )
    ended, events = run(clone)
    files = [
        (event.step, event.values["loss"]) for event in events if isinstance(event, TrialReported)
    ]
    wanted = walk([0.5] * 3 + [0.25] * 5)
    assert files == [(step, pytest.approx(wanted[step - 1])) for step in range(4, 9)]
    assert ended.state == "complete"


def test_a_function_that_starts_again_from_its_beginning_is_no_clone(tmp_path: Path) -> None:
    source = open_artifacts(tmp_path / "parent")
    source.below("checkpoints").write("unread", b"1")
    clone = order(
        tmp_path / "clone",
        trial=1,
        experiment_json=WALK.model_dump_json(),
        params={"rate": 0.25},
        continued=str(tmp_path / "parent"),
        clone=Clone(of=0, begins_from="weights", step=3, first_step=1),
    )
    ended, events = run(clone)
    assert ended.state == "failed"
    assert ended.message is not None
    assert "starts at step 1 again, although trial 0" in ended.message
    assert not [event for event in events if isinstance(event, TrialReported)]


def test_files_for_clones_are_kept_as_they_were_written(tmp_path: Path) -> None:
    trial = open_artifacts(tmp_path)
    for name in ("10.pt", "9.pt"):
        trial.below("checkpoints").write(name, name.encode())
    keep_branch(
        trial,
        4,
        lambda target: copy_files(trial.below("checkpoints"), target, written_files(trial)),
    )
    kept = branch_at(trial, 4).below("checkpoints")
    assert {name: kept.read(name) for name in kept.stamps()} == {
        "10.pt": b"10.pt",
        "9.pt": b"9.pt",
    }
    assert kept.stamps()["9.pt"] == trial.below("checkpoints").stamps()["9.pt"], "same time"
    trial.below("checkpoints").write("9.pt", b"later")
    keep_branch(trial, 4, lambda target: target.write("9.pt", b"later"))
    assert kept.read("9.pt") == b"9.pt", "the first copy stays"
