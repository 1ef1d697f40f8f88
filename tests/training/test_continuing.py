"""A trial that continues the training of another one.

With its weights, and with parameters of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.services.process_group import run_together
from tests.training.test_resume import assert_same
from workbench.experiment import Experiment
from workbench.foundation.events import CheckpointSaved, Event, Segment, TrialEnded, TrialReported
from workbench.training import checkpoint
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

MODEL = Experiment(
    model={"name": "convnet", "width": 8},
    data="digits",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={
        "momentum": {"low": 0.0, "high": 0.95},
        "weight_decay": {"low": 0.0, "high": 0.1},
        "dropout": {"low": 0.0, "high": 0.5},
        "global_batch": {"choices": [208, 416]},
    },
    training={"epochs": 4, "optimizer": "sgd", "lr": 0.05, "schedule": "cosine"},
)
PARAMS = {"momentum": 0.9, "weight_decay": 0.01, "dropout": 0.3, "global_batch": 208}


def order(
    folder: Path, trial: int, begin: int, end: int, continues: int | None = None, **task: Any
) -> TrialTask:
    return TrialTask(
        **{
            "run_id": "r",
            "trial": trial,
            "attempt": 0,
            "experiment_json": MODEL.model_dump_json(),
            "seed": 11,
            "resume": True,
            "params": PARAMS,
            "folder": str(folder / str(trial)),
            "segment": Segment(member=0, begin=begin, end=end, continues=continues),
            "continued": None if continues is None else str(folder / str(continues)),
            **task,
        }
    )


def run(
    task: TrialTask, stop: Callable[[Event], bool] = lambda _: False
) -> tuple[TrialEnded, list[Event]]:
    events: list[Event] = []

    def take(event: Event) -> bool:
        events.append(event)
        return stop(event)

    return run_trial(task, take), events


def last_state(folder: Path, trial: int) -> dict[str, Any]:
    return checkpoint.read(folder / str(trial) / "checkpoints" / "last.pt")


def test_parts_with_the_same_parameters_are_like_a_whole_training(tmp_path: Path) -> None:
    whole, _ = run(order(tmp_path, 0, 0, 4))
    first, reports = run(order(tmp_path, 1, 0, 2))
    assert (first.state, first.step) == ("complete", whole.step / 2)
    assert [
        event.epoch
        for event in reports
        if isinstance(event, TrialReported) and "val_loss" in event.values
    ] == [1, 2]
    second, reports = run(order(tmp_path, 2, 2, 4, continues=1))
    assert [
        event.epoch
        for event in reports
        if isinstance(event, TrialReported) and "val_loss" in event.values
    ] == [3, 4]
    assert second.step == whole.step
    state, wanted = last_state(tmp_path, 2), last_state(tmp_path, 0)
    assert_same(state["strategy"], wanted["strategy"])
    assert_same(state["random"], wanted["random"])


def test_an_interrupted_part_continues_from_its_own_checkpoint(tmp_path: Path) -> None:
    run(order(tmp_path, 0, 0, 1))
    run(order(tmp_path, 1, 1, 4, continues=0))
    stopped, _ = run(
        order(tmp_path, 2, 1, 4, continues=0), lambda event: isinstance(event, CheckpointSaved)
    )
    assert stopped.state == "stopped"
    resumed, reports = run(order(tmp_path, 2, 1, 4, continues=0, attempt=1))
    assert resumed.state == "complete"
    epochs = [
        event.epoch
        for event in reports
        if isinstance(event, TrialReported) and not event.told_again
    ]
    assert min(epoch for epoch in epochs if epoch is not None) > 2
    assert_same(last_state(tmp_path, 2)["strategy"], last_state(tmp_path, 1)["strategy"])


def test_a_stopped_training_that_is_resumed_as_another_trial_is_like_a_whole_one(
    tmp_path: Path,
) -> None:
    whole, _ = run(order(tmp_path, 0, 0, 4, segment=None))
    stopped, _ = run(
        order(tmp_path, 1, 0, 4, segment=None),
        lambda event: (
            isinstance(event, TrialReported) and event.epoch == 3 and "val_loss" in event.values
        ),
    )
    assert stopped.state == "stopped"
    resumed, events = run(order(tmp_path, 2, 0, 4, continues=1, segment=None))
    assert (resumed.state, resumed.step, resumed.values) == ("complete", whole.step, whole.values)
    assert {event.trial for event in events if isinstance(event, TrialReported)} == {2}
    epochs = [
        event.epoch
        for event in events
        if isinstance(event, TrialReported) and "val_loss" in event.values
    ]
    assert epochs == [4], "the third was the best so far, and so it is kept"
    assert_same(last_state(tmp_path, 2)["strategy"], last_state(tmp_path, 0)["strategy"])


def test_a_stopped_training_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    run(order(tmp_path, 1, 0, 1, segment=None), lambda event: isinstance(event, TrialReported))
    resumed, _ = run(order(tmp_path, 2, 0, 4, continues=1, segment=None))
    assert resumed.state == "complete"


def test_weights_and_moments_are_taken_and_hyperparameters_are_not(tmp_path: Path) -> None:
    run(order(tmp_path, 0, 0, 1))
    changed = {"momentum": 0.5, "weight_decay": 0.03, "dropout": 0.1, "global_batch": 416}
    ended, events = run(order(tmp_path, 1, 1, 2, continues=0, params=changed))
    assert ended.state == "complete", ended.traceback
    before, after = last_state(tmp_path, 0), last_state(tmp_path, 1)
    [group] = after["strategy"]["optimizer"]["param_groups"]
    assert (group["momentum"], group["weight_decay"]) == (0.5, 0.03)
    assert before["strategy"]["optimizer"]["param_groups"][0]["momentum"] == 0.9
    # Of twice the batch an epoch has half of the steps, and the training is at the same epoch.
    assert after["step"] == 2 * (before["step"] + 1) // 2
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert reports[-1].epoch == 2
    assert after["strategy"]["optimizer"]["state"][0]["momentum_buffer"].abs().sum() > 0


def test_without_a_checkpoint_to_continue_from_the_trial_fails_in_words(tmp_path: Path) -> None:
    ended, _ = run(order(tmp_path, 1, 1, 2, continues=0))
    assert ended.state == "failed"
    assert "trial 0, which this one continues, has not saved a checkpoint" in (ended.message or "")


def on_rank(
    rank: int,
    num_workers: int,
    meeting: str,
    folder: str,
    experiment: Experiment,
    *,
    parts: list[Any],
) -> list[TrialEnded]:
    """Train parts one after another on several workers."""
    results = []
    for trial, begin, end, continues, params in parts:
        task = order(
            Path(folder),
            trial,
            begin,
            end,
            continues,
            params=params,
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{trial}",
            experiment_json=experiment.model_dump_json(),
        )
        results.append(run(task)[0])
    return results


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "pipeline"])
def test_two_workers_continue_what_one_has_begun(tmp_path: Path, strategy: str) -> None:
    run(order(tmp_path, 0, 0, 1))
    two = MODEL.replace(plan={"workers": 2, "strategy": strategy})
    changed = {**PARAMS, "weight_decay": 0.02}
    run(order(tmp_path, 1, 1, 2, continues=0, params=changed))
    ended = run_together(
        functools.partial(on_rank, parts=[(2, 1, 2, 0, changed)]), 2, str(tmp_path), two
    )
    assert [[end.state for end in ends] for ends in ended] == [["complete"]] * 2, ended
    state, wanted = last_state(tmp_path, 2)["strategy"], last_state(tmp_path, 1)["strategy"]
    assert state["optimizer"]["param_groups"][0]["weight_decay"] == 0.02
    for name, value in wanted["model"].items():
        assert torch.isfinite(state["model"][name]).all()
        assert state["model"][name].shape == value.shape


# A function counts to its end, keeping how far it came.


def counting(config: dict[str, Any], report: Callable[..., bool], folder: Path) -> None:
    saved = folder / "step"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, 100):
        saved.write_text(str(step))
        if report(step=step, loss=1.0 / step):
            return


def forgetful(config: dict[str, Any], report: Callable[..., bool], folder: Path) -> None:
    for step in range(1, 100):
        (folder / "step").write_text(str(step))
        if report(step=step, loss=1.0 / step):
            return


def counting_together(
    config: dict[str, Any], report: Callable[..., bool], folder: Path, worker: Any
) -> None:
    begun = int((folder / "step").read_text()) if (folder / "step").exists() else 0
    total = worker.group.total(torch.tensor(float(begun)))  # every worker has found the same
    assert total == worker.num_workers * begun
    for step in range(begun + 1, 100):
        if worker.rank == 0:
            (folder / "step").write_text(str(step))
        if report(step=step, loss=1.0 / step):
            return


def of_function(name: str) -> Experiment:
    return Experiment(
        train=f"{__name__}:{name}", objectives=[{"metric": "loss", "goal": "minimize"}]
    )


def steps_of(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, TrialReported)]


def test_a_function_ends_at_the_end_of_its_part_and_finds_what_the_part_before_left(
    tmp_path: Path,
) -> None:
    task = {"experiment_json": of_function("counting").model_dump_json(), "params": {}}
    first, events = run(order(tmp_path, 0, 0, 3, **task))
    assert (first.state, first.values, steps_of(events)) == ("complete", {"loss": 1 / 3}, [1, 2, 3])
    second, events = run(order(tmp_path, 1, 3, 5, continues=0, **task))
    assert (second.state, steps_of(events)) == ("complete", [4, 5])
    # What it continued is as it was.
    assert (tmp_path / "0" / "checkpoints" / "step").read_text() == "3"


def test_what_was_taken_over_is_not_taken_over_again(tmp_path: Path) -> None:
    task = {"experiment_json": of_function("counting").model_dump_json(), "params": {}}
    run(order(tmp_path, 0, 0, 3, **task))
    run(order(tmp_path, 1, 3, 9, continues=0, **task), lambda event: getattr(event, "step", 0) == 5)
    _, events = run(order(tmp_path, 1, 3, 9, continues=0, attempt=1, **task))
    told = [event for event in events if isinstance(event, TrialReported) and not event.told_again]
    assert [event.step for event in told] == [6, 7, 8, 9]


def test_a_part_whose_end_was_reported_is_not_trained_further(tmp_path: Path) -> None:
    task = {"experiment_json": of_function("counting").model_dump_json(), "params": {}}
    run(order(tmp_path, 0, 0, 3, **task))
    ended, events = run(order(tmp_path, 0, 0, 3, attempt=1, **task))
    assert (ended.state, ended.step, ended.values) == ("complete", 3, {"loss": 1 / 3})
    assert steps_of(events) == [1, 2, 3]
    assert all(event.told_again for event in events if isinstance(event, TrialReported))


def test_a_function_that_begins_anew_is_told(tmp_path: Path) -> None:
    task = {"experiment_json": of_function("forgetful").model_dump_json(), "params": {}}
    run(order(tmp_path, 0, 0, 3, **task))
    ended, _ = run(order(tmp_path, 1, 3, 5, continues=0, **task))
    assert ended.state == "failed"
    assert "starts at step 1, but trial 0 has reached step 3" in (ended.message or "")


def test_all_workers_of_a_function_find_what_was_taken_over(tmp_path: Path) -> None:
    two = of_function("counting_together").replace(plan={"workers": 2})
    parts = [(0, 0, 2, None, {}), (1, 2, 4, 0, {}), (2, 4, 6, 1, {})]
    ended = run_together(functools.partial(on_rank, parts=parts), 2, str(tmp_path), two)
    for ends in ended:
        assert [(end.state, end.step) for end in ends] == [
            ("complete", 2),
            ("complete", 4),
            ("complete", 6),
        ]
