"""A training with a DataLoader of the user's ends with the parameters of a plain loop of torch over
it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import (
    DataLoader,
    Dataset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from tests.services.process_group import run_together
from workbench.cli.check import describe_first_steps
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    CheckpointSaved,
    Noted,
    TrialEnded,
    TrialPlanned,
    TrialReported,
)
from workbench.training import checkpoint
from workbench.training.probes.first_step import try_first_steps
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_TRAIN, NUM_VALIDATION, BATCH, NUM_EPOCHS, RATE = 26, 13, 8, 2, 0.2
_GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(NUM_TRAIN + NUM_VALIDATION, 4, generator=_GENERATOR)
# Sorted, so that the order of the steps matters.
TARGETS = torch.arange(NUM_TRAIN + NUM_VALIDATION) % NUM_TRAIN / 10 + INPUTS[:, :1].squeeze(1)
TRAIN = TensorDataset(INPUTS[:NUM_TRAIN], TARGETS[:NUM_TRAIN])
VALIDATION = TensorDataset(INPUTS[NUM_TRAIN:], TARGETS[NUM_TRAIN:])


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def sampled() -> WeightedRandomSampler:
    return WeightedRandomSampler(range(NUM_TRAIN), 21, generator=seeded())


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "shuffle=False": lambda: (
        DataLoader(TRAIN, batch_size=BATCH, shuffle=False),
        DataLoader(VALIDATION, batch_size=5),
    ),
    "drop_last": lambda: (
        DataLoader(TRAIN, batch_size=BATCH, drop_last=True),
        DataLoader(VALIDATION, batch_size=5, drop_last=True),
    ),
    "generator": lambda: (
        DataLoader(TRAIN, batch_size=BATCH, shuffle=True, generator=seeded()),
        DataLoader(VALIDATION, batch_size=BATCH),
    ),
    "sampler": lambda: (
        DataLoader(TRAIN, batch_size=BATCH, sampler=sampled(), drop_last=True),
        DataLoader(VALIDATION, batch_size=BATCH, sampler=[0, 3, 5]),
    ),
    "num_workers": lambda: (
        DataLoader(
            TRAIN, batch_size=BATCH, num_workers=1, prefetch_factor=3, persistent_workers=True
        ),
        DataLoader(VALIDATION, batch_size=BATCH),
    ),
}


def load(options: Any) -> Any:
    return KINDS[options["kind"]]()


def build(_config: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1), nn.Flatten(0))


def asked(kind: str, **fields: Any) -> Experiment:
    here = "tests.training.test_loaders_like_torch"
    defaults: dict[str, Any] = {
        "model": f"{here}:build",
        "data": {"name": f"{here}:load", "kind": kind, "task": "regression"},
        "loss": "mean_squared_error",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "training": {
            "epochs": NUM_EPOCHS,
            "global_batch": BATCH,
            "lr": RATE,
            "lr_rule": "constant",
            "optimizer": "sgd",
            "momentum": 0.0,
            "schedule": "constant",
        },
    }
    return Experiment(**{**defaults, **fields})


def run(
    experiment: Experiment, folder: Path, *, attempt: int = 0, **task_fields: Any
) -> tuple[TrialEnded, list[Any]]:
    events: list[Any] = []
    text = experiment.model_dump_json()
    task = TrialTask(str(folder), 0, attempt, text, folder=str(folder), **task_fields)
    return run_trial(task, lambda event: bool(events.append(event))), events


def weights_of(folder: Path) -> dict[str, Tensor]:
    content = checkpoint.read_latest(folder / "checkpoints")
    assert content is not None
    return content["strategy"]["model"]


def of_torch(kind: str, loss: Any = functional.mse_loss) -> tuple[dict[str, Tensor], float]:
    """Return weights and the loss of validation after a plain loop over the loaders."""
    train, validation = KINDS[kind]()
    model = build(None)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(NUM_EPOCHS):
        for inputs, targets in train:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()
    with torch.no_grad():
        outputs, targets = (
            torch.cat(each)
            for each in zip(
                *((model(inputs), targets) for inputs, targets in validation), strict=True
            )
        )
    return model.state_dict(), loss(outputs, targets).item()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_validation_are_those_of_a_plain_loop(kind: str, tmp_path: Path) -> None:
    ended, events = run(asked(kind), tmp_path)
    assert ended.state == "complete", ended.message
    expected, loss = of_torch(kind)
    for name, values in weights_of(tmp_path).items():
        torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)
    reported = [
        event.values for event in events if isinstance(event, TrialReported) and event.values
    ]
    assert reported[-1]["val_loss"] == pytest.approx(loss, rel=1e-5)
    assert not [event for event in events if isinstance(event, Noted)]
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert planned.plan.get("loaders", 0) == (1 if kind == "num_workers" else 0)


def of_rank(
    rank: int, num_workers: int, meeting: str, kind: str, folder: str
) -> tuple[str, str | None]:
    experiment = asked(kind, plan={"workers": num_workers})
    task = TrialTask(
        folder,
        0,
        0,
        experiment.model_dump_json(),
        folder=folder,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    ended = run_trial(task, lambda _event: False)
    return ended.state, ended.message


@pytest.mark.parametrize("kind", ["drop_last", "sampler"])
def test_two_workers_end_with_the_parameters_of_the_plain_loop(kind: str, tmp_path: Path) -> None:
    for state, message in run_together(of_rank, 2, kind, str(tmp_path)):
        assert state == "complete", message
    expected, _ = of_torch(kind)
    for name, values in weights_of(tmp_path).items():
        torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)


def by_size(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mean that is weighted by the size of the targets, as total and count."""
    weights = targets.abs()
    return (weights * (outputs - targets).square()).sum(), weights.sum()


def first_epoch(rank: int, num_workers: int, meeting: str, folder: str) -> str:
    """Train on two workers until the checkpoint of the first epoch."""
    experiment = asked("generator", loss="tests.training.test_loaders_like_torch:by_size")
    task = TrialTask(
        folder,
        0,
        0,
        experiment.model_dump_json(),
        folder=folder,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        plan=PartialPlan.of(workers=2, micro_batch=2, accumulation=2),
    )
    return run_trial(task, lambda event: isinstance(event, CheckpointSaved)).state


def test_a_counted_loss_goes_on_in_the_order_of_the_loader_after_a_worker_was_lost(
    tmp_path: Path,
) -> None:
    assert run_together(first_epoch, 2, str(tmp_path)) == ["stopped", "stopped"]
    experiment = asked("generator", loss="tests.training.test_loaders_like_torch:by_size")
    left = PartialPlan.of(workers=1, micro_batch=1, accumulation=8)
    ended, _ = run(experiment, tmp_path, attempt=1, resume=True, plan=left)
    assert ended.state == "complete", ended.message
    expected, _ = of_torch("generator", loss=lambda *pair: torch.div(*by_size(*pair)))
    for name, values in weights_of(tmp_path).items():
        torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)


def test_a_counted_loss_trains_clients_the_same_for_every_micro_batch(tmp_path: Path) -> None:
    trained = []
    for accumulation in (1, 4):
        experiment = asked(
            "shuffle=False",
            loss="tests.training.test_loaders_like_torch:by_size",
            federated={"clients": 2, "fraction": 1.0},
            plan={"micro_batch": BATCH // accumulation, "accumulation": accumulation},
        )
        ended, _ = run(experiment, tmp_path / str(accumulation))
        assert ended.state == "complete", ended.message
        trained.append(weights_of(tmp_path / str(accumulation)))
    for name, values in trained[0].items():
        torch.testing.assert_close(values, trained[1][name], rtol=1e-5, atol=1e-6)


class Prepared(Dataset[Any]):
    """Samples that can be read in processes which a function has prepared."""

    shift: float | None = None

    def __init__(self, of: TensorDataset) -> None:
        self.of, self.pid = of, os.getpid()

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, index: int) -> Any:
        assert (self.shift is not None) == (os.getpid() != self.pid)
        return self.of[index]


def prepare(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == number
    info.dataset.shift = 1.0


def prepared(options: Any) -> Any:
    settings: dict[str, Any] = {"num_workers": 1, "worker_init_fn": prepare}
    return tuple(DataLoader(Prepared(each), **settings) for each in (TRAIN, VALIDATION))


@pytest.mark.parametrize(
    ("plan", "num_loaders"), [({}, 1), ({"loaders": 2}, 2), ({"loaders": 0}, 0)]
)
def test_processes_are_as_many_as_the_loader_states_and_prepared_by_its_function(
    plan: Any, num_loaders: int, tmp_path: Path
) -> None:
    data = {"name": "tests.training.test_loaders_like_torch:prepared", "task": "regression"}
    ended, events = run(asked("", data=data, plan=plan), tmp_path)
    assert ended.state == "complete", ended.message
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert planned.plan.get("loaders", 0) == num_loaders
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert any("num_workers=1" in note for note in notes) == (num_loaders != 1)


class Waiting(Dataset[Any]):
    def __init__(self) -> None:
        self.pid = os.getpid()

    def __len__(self) -> int:
        return NUM_TRAIN

    def __getitem__(self, index: int) -> Any:
        if index == 20 and os.getpid() != self.pid:
            time.sleep(2.0)
        return TRAIN[index]


def waiting(options: Any) -> Any:
    return DataLoader(Waiting(), num_workers=1, timeout=0.5), DataLoader(VALIDATION)


def test_a_batch_that_takes_longer_than_the_timeout_of_the_loader_ends_the_trial(
    tmp_path: Path,
) -> None:
    data = {"name": "tests.training.test_loaders_like_torch:waiting", "task": "regression"}
    ended, _ = run(asked("", data=data), tmp_path)
    assert ended.state == "failed"
    assert "longer than the timeout of the DataLoader" in str(ended.message)


def noted(options: Any) -> Any:
    return DataLoader(TRAIN, batch_size=3), DataLoader(VALIDATION, in_order=False, num_workers=1)


def test_what_is_not_followed_is_noted_once(tmp_path: Path) -> None:
    data = {"name": "tests.training.test_loaders_like_torch:noted", "task": "regression"}
    _, events = run(asked("", data=data), tmp_path)
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert len(notes) == 2
    assert "set training.global_batch to 3" in notes[0]
    assert "in_order=False" in notes[1]
    steps = try_first_steps(asked("", data=data))
    assert [line for line in describe_first_steps(steps) if line.startswith("Note: ")] == [
        f"Note: {note}." for note in notes
    ]
