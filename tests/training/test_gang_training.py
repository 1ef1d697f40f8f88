"""A whole training on several workers.

Like one worker's, and as if nothing had happened after a break.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import CheckpointSaved, Event, Noted, TrialEnded, TrialReported
from workbench.training import checkpoint, ranks
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

FEW_STEPS = {"epochs": 2, "global_batch": 240}
"""Six an epoch, the last of them smaller than the others."""


def experiment(**fields: Any) -> str:
    training = {"epochs": 3, "global_batch": 32, "lr": 0.01, **fields.pop("training", {})}
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "dropout": 0.3},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    return Experiment(**settings | fields, training=training).model_dump_json()


def train(
    rank: int,
    num_workers: int,
    meeting: str | None,
    text: str,
    folder: str,
    *,
    stop_at: str | None = None,
    **task: Any,
) -> tuple[TrialEnded, list[Event]]:
    """Train, and stop at the first event that `stop_at` names as `type step`."""
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return f"{event.type} {getattr(event, 'step', None)}" == stop_at

    order = TrialTask(
        "run",
        0,
        0,
        text,
        seed=5,
        folder=folder,
        resume=True,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        **task,
    )
    return run_trial(order, report), events


def train_whole_and_broken(
    rank: int, num_workers: int, meeting: str, text: str, folder: str
) -> Any:
    whole, _ = train(rank, num_workers, meeting + "-whole", text, f"{folder}/whole")
    stopped, before = train(
        rank, num_workers, meeting + "-1", text, f"{folder}/broken", stop_at="checkpoint_saved 1"
    )
    resumed, after = train(rank, num_workers, meeting + "-2", text, f"{folder}/broken")
    return whole, stopped, resumed, before, after


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


@pytest.mark.parametrize(
    "strategy",
    [*sorted({*OF_SEVERAL} - {"tensor"}), pytest.param("tensor", marks=pytest.mark.slow)],
)
def test_two_workers_go_on_in_the_middle_of_an_epoch_as_if_nothing_had_happened(
    strategy: str, tmp_path: Path
) -> None:
    text = experiment(
        plan={"workers": 2, "strategy": strategy},
        training={**FEW_STEPS, "checkpoint_after": 1e-9, "optimizer": "adamw"},
    )
    answers = run_together(train_whole_and_broken, 2, text, str(tmp_path))
    whole, stopped, resumed, before, after = answers[0]
    assert (whole.state, stopped.state, resumed.state) == (
        "complete",
        "stopped",
        "complete",
    ), whole.traceback
    saved = [event for event in before if isinstance(event, CheckpointSaved)]
    assert [event.step for event in saved] == [1]
    reports = [event for event in after if isinstance(event, TrialReported)]
    assert [event.epoch for event in reports if event.values.get("val_accuracy")] == [1.0, 2.0]
    assert resumed.values == pytest.approx(whole.values, rel=1e-9)
    for name, expected in weights(tmp_path / "whole").items():
        # Units were dropped, on each worker others: the generators of both went on where they were.
        assert torch.equal(weights(tmp_path / "broken")[name], expected)
    assert [answer[1].state for answer in answers] == ["stopped", "stopped"]
    assert answers[1][3] == [], "rank 0 alone is heard"


def train_with_late_rank(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    def wait(module: torch.nn.Module, inputs: Any) -> None:
        if module.training and not list(module.children()):
            time.sleep(0.05)

    hook = torch.nn.modules.module.register_module_forward_pre_hook(wait) if rank == 2 else None
    try:
        return train(rank, num_workers, meeting, text, folder)
    finally:
        if hook is not None:
            hook.remove()


@pytest.mark.slow
def test_the_worker_for_which_the_others_wait_is_reported(tmp_path: Path) -> None:
    text = experiment(plan={"workers": 3}, training={"global_batch": 480, "epochs": 4})
    ended, events = run_together(train_with_late_rank, 3, text, str(tmp_path))[0]
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert ended.state == "complete", ended.traceback
    assert reports[0].slowest_rank is None, "the first steps differ from all others"
    assert reports[-1].slowest_rank == 2
    assert reports[-1].slowest_rank_factor is not None
    assert reports[-1].slowest_rank_factor > 2


def train_on(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    return train(
        rank,
        num_workers,
        meeting,
        text,
        folder,
        plan=PartialPlan.of(workers=2, micro_batch=16),
    )


def test_a_training_of_one_worker_goes_on_with_two(tmp_path: Path) -> None:
    text = experiment(model={"name": "mlp", "dropout": 0.0})
    whole, _ = train(0, 1, None, text, str(tmp_path / "whole"))
    train(0, 1, None, text, str(tmp_path / "grown"), stop_at="checkpoint_saved 45")
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


def run_own_function(
    rank: int,
    num_workers: int,
    meeting: str,
    function: str,
    stop_at: str | None = "trial_reported 4",
) -> Any:
    text = Experiment(
        train=f"test_gang_training:{function}", objectives=[{"metric": "loss", "goal": "minimize"}]
    ).model_dump_json()
    return train(rank, num_workers, meeting, text, "unused", stop_at=stop_at)


def run_own_function_to_the_end(rank: int, num_workers: int, meeting: str, function: str) -> Any:
    return run_own_function(rank, num_workers, meeting, function, stop_at=None)


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
    for step in range(1, 3 if worker.rank else 4):
        report(step=step, loss=1.0)


def report_more_on_rank_1(config: dict[str, Any], report: Any, worker: Any) -> None:
    for step in range(1, 4 if worker.rank else 3):
        report(step=step, loss=1.0)


@pytest.mark.parametrize(("rank", "counts"), [(0, (3, 2)), (1, (2, 3))])
def test_unequal_reports_are_accepted_and_named(rank: int, counts: tuple[int, int]) -> None:
    answers = run_together(run_own_function, 2, f"report_more_on_rank_{rank}")
    assert [ended.state for ended, _ in answers] == ["complete", "complete"], answers[0][0].message
    warning = answers[0][1][-1]
    assert isinstance(warning, Noted)
    assert (
        warning.message == f"rank 0 made {counts[0]} reports, rank 1 {counts[1]} reports."
        " Only the reports of rank 0 count"
    )


def report_twice_on_rank_1(config: dict[str, Any], report: Any, worker: Any) -> None:
    ranks.WAIT_S = 0.3
    for step in range(1, 30):
        torch.distributed.all_reduce(torch.ones(1))
        for _ in range(1 + worker.rank):
            report(step=step, loss=1.0)


def test_a_rank_that_reports_more_often_than_rank_0_is_not_held_up() -> None:
    answers = run_together(run_own_function_to_the_end, 2, "report_twice_on_rank_1")
    assert answers[0][0].state == "complete", answers[0][0].traceback
    assert answers[0][1][-1].message.startswith("rank 0 made 29 reports, rank 1 58 reports")


def report_on_rank_0(config: dict[str, Any], report: Any, worker: Any) -> None:
    for step in range(1, 50):
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        if worker.rank == 0 and report(step=step, loss=float(total)):
            return
        if step == config.get("steps"):
            return


def test_reports_of_rank_0_alone_are_enough_and_a_stop_reaches_the_others() -> None:
    (first, events), *others = run_together(run_own_function, 3, "report_on_rank_0")
    assert (first.state, first.step) == ("stopped", 4), first.traceback
    assert [event.values["loss"] for event in events] == [3.0] * 4
    for ended, seen in others:
        assert (ended.state, seen) == ("stopped", []), ended.traceback


def report_on_rank_0_to_the_end(config: dict[str, Any], report: Any, worker: Any) -> None:
    report_on_rank_0({"steps": 3}, report, worker)


def test_a_function_that_reports_on_rank_0_alone_completes() -> None:
    for ended, events in run_together(run_own_function, 2, "report_on_rank_0_to_the_end"):
        assert ended.state == "complete", ended.traceback
        assert not any(isinstance(event, Noted) for event in events)


def exchange_more_on_rank_1(config: dict[str, Any], report: Any, worker: Any) -> None:
    for step in range(1, 5 if worker.rank else 3):
        torch.distributed.all_reduce(torch.ones(1))
        if worker.rank == 0:
            report(step=step, loss=1.0)


@pytest.mark.slow
def test_a_rank_that_exchanges_more_often_is_named_instead_of_waiting() -> None:
    (first, _), (second, _) = run_together(run_own_function, 2, "exchange_more_on_rank_1")
    assert first.state == "complete"
    assert (second.state, second.reason) == ("failed", "error")
    assert (
        "the function has returned on rank 0 after 2 reports while rank 1 still exchanges"
        in second.message
    )


TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK")


def read_torchrun_variables(config: dict[str, Any], report: Any, worker: Any) -> None:
    for name in (*TORCHRUN, "MASTER_PORT"):
        report(step=1, loss=0.0, **{name: int(os.environ[name])})
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"


def restored_variables(rank: int, num_workers: int, meeting: str) -> Any:
    os.environ.pop("RANK", None)
    os.environ["WORLD_SIZE"] = "mine"
    answer = run_own_function(rank, num_workers, meeting, "read_torchrun_variables")
    return answer, os.environ.get("RANK"), os.environ.pop("WORLD_SIZE")


def test_workers_see_the_variables_of_torchrun_and_their_own_afterwards() -> None:
    for rank, ((ended, events), *after) in enumerate(run_together(restored_variables, 2)):
        assert ended.state == "complete", ended.traceback
        seen = {name: value for event in events for name, value in event.values.items()}
        assert [seen[name] for name in TORCHRUN] == [rank, 2, rank, 2, 0, 0]
        assert after == [None, "mine"]


def train_as_scripts_do(config: dict[str, Any], report: Any, worker: Any) -> None:
    dist = torch.distributed
    for _ in range(2):  # in the group that is there, then in one of its own over env://
        dist.init_process_group("gloo")
        assert (dist.get_rank(), dist.get_world_size()) == (int(os.environ["RANK"]), 2)
        total = torch.ones(1)
        dist.all_reduce(total)
        dist.destroy_process_group()
        if worker.rank == 0:
            report(step=1, loss=float(total))


def test_a_script_that_joins_and_leaves_its_own_group_works() -> None:
    for _ in range(2):  # also in a process that did so before
        answers = run_together(run_own_function, 2, "train_as_scripts_do")
        assert [ended.state for ended, _ in answers] == ["complete"] * 2, answers[0][0].traceback
        assert answers[0][1][0].values == {"loss": 2.0}


def join_another_group(config: dict[str, Any], report: Any, worker: Any) -> None:
    torch.distributed.init_process_group("gloo", rank=worker.rank, world_size=5)


def test_another_group_is_refused_in_words() -> None:
    for ended, _ in run_together(run_own_function, 2, "join_another_group"):
        assert ended.state == "failed"
        assert "world_size=5, but the group of the trial has world_size=2" in ended.message


def train_with_accelerate(config: dict[str, Any], report: Any, worker: Any) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    accelerator = Accelerator(cpu=True)
    assert (accelerator.process_index, accelerator.num_processes) == (
        worker.rank,
        worker.num_workers,
    )
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    model(torch.ones(1, 1)).sum().backward()
    if accelerator.is_main_process:
        report(step=1, loss=float(accelerator.num_processes))
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()


def test_accelerate_sees_the_workers() -> None:
    pytest.importorskip("accelerate")
    answers = run_together(run_own_function, 2, "train_with_accelerate")
    assert [ended.state for ended, _ in answers] == ["complete"] * 2, answers[0][0].traceback
    assert answers[0][1][0].values == {"loss": 2.0}


def see_worker(config: dict[str, Any], report: Any, worker: Any) -> float:
    return float(worker.num_workers + 10 * worker.rank)


def test_a_function_that_asks_for_its_worker_gets_one_also_where_it_is_alone() -> None:
    ended, _ = run_own_function(0, 1, "", "see_worker")
    assert (ended.state, ended.values) == ("complete", {"loss": 1.0}), ended.traceback


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_every_optimizer_trains_shards(optimizer: str, tmp_path: Path) -> None:
    text = experiment(
        plan={"workers": 2, "strategy": "fsdp"}, training={**FEW_STEPS, "optimizer": optimizer}
    )
    for ended, _ in run_together(train_whole, 2, text, str(tmp_path)):
        assert ended.state == "complete", ended.traceback


def train_whole(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> Any:
    return train(rank, num_workers, meeting, text, folder)
