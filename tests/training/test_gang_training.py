"""A whole training on several workers: like one worker's, and as if nothing had happened after a break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from group_of_processes import run_together

from workbench.events import CheckpointSaved, Event, TrialEnded, TrialReported
from workbench.experiment import Experiment
from workbench.training import TrialTask, checkpoint, run_trial


def experiment(**fields: Any) -> str:
    training = {"epochs": 3, "global_batch": 32, "lr": 0.01, **fields.pop("training", {})}
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "dropout": 0.3},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    return Experiment(**settings | fields, training=training).model_dump_json()


def train(
    rank: int, num_workers: int, meeting: str | None, text: str, folder: str, stop_at: str | None, **task: Any
) -> tuple[TrialEnded, list[Event]]:
    """Train, and stop at the first event that `stop_at` names as `type step`."""
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return f"{event.type} {getattr(event, 'step', None)}" == stop_at

    order = TrialTask(
        "run", 0, 0, text, seed=5, folder=folder, resume=True,
        rank=rank, num_workers=num_workers, meeting=meeting, **task,
    )  # fmt: skip
    return run_trial(order, report), events


def train_whole_and_broken(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    whole, _ = train(rank, num_workers, meeting + "-whole", text, f"{folder}/whole", None)
    stopped, before = train(rank, num_workers, meeting + "-1", text, f"{folder}/broken", "checkpoint_saved 1")
    resumed, after = train(rank, num_workers, meeting + "-2", text, f"{folder}/broken", None)
    return whole, stopped, resumed, before, after


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_workers_go_on_in_the_middle_of_an_epoch_as_if_nothing_had_happened(
    strategy: str, tmp_path: Path
) -> None:
    text = experiment(
        plan={"workers": 2, "strategy": strategy}, training={"checkpoint_after": 1e-9, "optimizer": "adamw"}
    )
    answers = run_together(train_whole_and_broken, 2, text, str(tmp_path))
    whole, stopped, resumed, before, after = answers[0]
    assert (whole.state, stopped.state, resumed.state) == ("complete", "stopped", "complete"), whole.traceback
    saved = [event for event in before if isinstance(event, CheckpointSaved)]
    assert [event.step for event in saved] == [1]
    reports = [event for event in after if isinstance(event, TrialReported)]
    assert [event.epoch for event in reports if event.values.get("val_accuracy")] == [1.0, 2.0, 3.0]
    assert resumed.values == pytest.approx(whole.values, rel=1e-9)
    for name, expected in weights(tmp_path / "whole").items():
        # Units were dropped, on each worker others: the generators of both went on where they were.
        assert torch.equal(weights(tmp_path / "broken")[name], expected)
    assert [answer[1].state for answer in answers] == ["stopped", "stopped"]
    assert answers[1][3] == [], "rank 0 alone is heard"


def train_on(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    return train(rank, num_workers, meeting, text, folder, None, plan={"workers": 2, "micro_batch": 16})


def test_a_training_of_one_worker_goes_on_with_two(tmp_path: Path) -> None:
    text = experiment(model={"name": "mlp", "dropout": 0.0})
    whole, _ = train(0, 1, None, text, str(tmp_path / "whole"), None)
    train(0, 1, None, text, str(tmp_path / "grown"), "checkpoint_saved 45")
    (grown, events), _ = run_together(train_on, 2, text, str(tmp_path / "grown"))
    assert grown.state == "complete", grown.traceback
    assert events[0].plan["workers"] == 2
    assert events[0].plan["global_batch"] == 32
    assert grown.values == pytest.approx(whole.values, rel=1e-3)


def sum_ranks(config: dict[str, Any], report: Any, worker: Any, seed: int) -> None:
    for step in range(1, 10):
        total = worker.group.total(torch.tensor(float(worker.rank + 1)))
        if report(step=step, loss=total.item()):
            print("stopped", step)
            return


def run_own_function(rank: int, num_workers: int, meeting: str, function: str) -> Any:
    text = Experiment(
        train=f"test_gang_training:{function}", objectives=[{"metric": "loss", "goal": "minimize"}]
    ).model_dump_json()
    return train(rank, num_workers, meeting, text, "unused", "trial_reported 4")


def test_a_persons_function_trains_on_workers_that_stop_together() -> None:
    for ended, events in run_together(run_own_function, 3, "sum_ranks"):
        assert (ended.state, ended.step) == ("stopped", 4), ended.traceback
        assert [event.values["loss"] for event in events] == [6.0] * 4


def alone(config: dict[str, Any], report: Any) -> None:
    report(step=1, loss=0.0)


def test_a_function_that_does_not_ask_which_worker_it_is_is_refused() -> None:
    for ended, _ in run_together(run_own_function, 2, "alone"):
        assert ended.state == "failed"
        assert "a function with a parameter named worker" in str(ended.message)


def report_more_on_rank_0(config: dict[str, Any], report: Any, worker: Any) -> None:
    for step in range(1, 3 if worker.rank else 5):
        report(step=step, loss=1.0)


def test_workers_that_report_unequally_fail_instead_of_waiting_for_ever() -> None:
    for ended, _ in run_together(run_own_function, 2, "report_more_on_rank_0"):
        assert (ended.state, ended.reason) == ("failed", "error")
        assert "the function has returned on rank 1 while it still reports on others" in ended.message


def see_worker(config: dict[str, Any], report: Any, worker: Any) -> float:
    return float(worker.num_workers + 10 * worker.rank)


def test_a_function_that_asks_for_its_worker_gets_one_also_where_it_is_alone() -> None:
    ended, _ = run_own_function(0, 1, "", "see_worker")
    assert (ended.state, ended.values) == ("complete", {"loss": 1.0}), ended.traceback


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_every_optimizer_trains_shards(optimizer: str, tmp_path: Path) -> None:
    text = experiment(plan={"workers": 2, "strategy": "fsdp"}, training={"optimizer": optimizer, "epochs": 1})
    for ended, _ in run_together(train_whole, 2, text, str(tmp_path)):
        assert ended.state == "complete", ended.traceback


def train_whole(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    return train(rank, num_workers, meeting, text, folder, None)
