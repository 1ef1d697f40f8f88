"""Schedules that react, and those of other packages.

The rates of a plain torch loop, resumed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import SGD, lr_scheduler

from tests.services.process_group import run_together
from tests.services.training import losses_by_step
from workbench.experiment import Experiment, Objective, Training
from workbench.foundation.errors import ExperimentError
from workbench.models.adapters import build_model
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.loading import load_trial_data
from workbench.training.schedules import Length, Schedule, schedule_of
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source

LR = 0.2
EPOCHS = 12
STEPS = 3
LOSSES = [1.0, 0.9, 0.91, 0.92, 0.93, 0.5, 0.51, 0.6, 0.7, 0.3, 0.31, 0.32]
PLATEAU = {"factor": 0.5, "patience": 1, "cooldown": 1, "min_lr": 0.03}


class Halving(lr_scheduler.LRScheduler):
    """The rate halves after some steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, after: int) -> None:
        self.after = after
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        return [base * 0.5 ** (self.last_epoch // self.after) for base in self.base_lrs]


class Unstorable(Halving):
    """Its state is a function."""

    def state_dict(self) -> dict[str, Any]:
        return {"function": math.sqrt}


def rising(optimizer: torch.optim.Optimizer, num_training_steps: int) -> lr_scheduler.LRScheduler:
    """Return a scheduler as the functions of transformers do."""
    return lr_scheduler.LambdaLR(optimizer, lambda step: step / num_training_steps)


def make(
    schedule: str, options: dict[str, Any], *, warmup: int = 0, metric: str = "val_loss"
) -> Schedule:
    training = Training(epochs=EPOCHS, schedule=schedule, schedule_options=options)
    goal = Objective(metric=metric, goal="maximize" if metric == "val_accuracy" else "minimize")
    return schedule_of(
        training,
        LR,
        Length(EPOCHS * STEPS, warmup, EPOCHS, EPOCHS),
        objectives=(goal,),
        measured={
            "train_loss": "minimize",
            "val_loss": "minimize",
            "val_accuracy": "maximize",
            "val_own": None,
        },
        group=Group(),
    )


def rates(schedule: Schedule, *, start: int = 0, stop: int = EPOCHS) -> list[float]:
    """Return the rate of each step of some epochs, as the loop calls a schedule."""
    found = []
    for epoch in range(start, stop):
        for step in range(STEPS):
            found.append(LR * schedule.factor(epoch * STEPS + step))
            schedule.after_step()
        schedule.after_epoch()
        schedule.after_evaluation(
            {"val_loss": LOSSES[epoch], "train_loss": 0.0, "val_accuracy": 0.0}
        )
    return found


def plain(build: Callable[[Any], Any], advance: str) -> list[float]:
    """Return the rate of each step of a plain torch loop."""
    optimizer = SGD([torch.zeros(1)], lr=LR)
    scheduler, rates = build(optimizer), []
    for loss in LOSSES:
        for _ in range(STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if advance == "step":
                scheduler.step()
        if advance == "epoch":
            scheduler.step()
        elif advance == "evaluation":
            scheduler.step(loss)
    return rates


TORCH = "torch.optim.lr_scheduler"
CASES: dict[str, tuple[str, dict[str, Any], Callable[[Any], Any], str]] = {
    "plateau": (
        "plateau",
        PLATEAU,
        lambda at: lr_scheduler.ReduceLROnPlateau(at, **PLATEAU),
        "evaluation",
    ),
    "own plateau": (
        f"{TORCH}:ReduceLROnPlateau",
        {**PLATEAU, "metric": "val_loss"},
        lambda at: lr_scheduler.ReduceLROnPlateau(at, **PLATEAU),
        "evaluation",
    ),
    "by epoch": (
        f"{TORCH}:StepLR",
        {"step_size": 2, "gamma": 0.7},
        lambda at: lr_scheduler.StepLR(at, 2, 0.7),
        "epoch",
    ),
    "by step": (
        f"{TORCH}:OneCycleLR",
        {"interval": "step", "max_lr": 0.5, "cycle_momentum": False},
        lambda at: lr_scheduler.OneCycleLR(at, 0.5, EPOCHS * STEPS, cycle_momentum=False),
        "step",
    ),
    "length in epochs": (
        f"{TORCH}:CosineAnnealingLR",
        {"eta_min": 0.01},
        lambda at: lr_scheduler.CosineAnnealingLR(at, EPOCHS, 0.01),
        "epoch",
    ),
    "a class": (
        f"{__name__}:Halving",
        {"after": 5, "interval": "step"},
        lambda at: Halving(at, 5),
        "step",
    ),
    "a function": (
        f"{__name__}:rising",
        {"interval": "step"},
        lambda at: rising(at, EPOCHS * STEPS),
        "step",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rates_are_those_of_a_plain_loop_also_when_it_was_stopped(case: str) -> None:
    schedule, options, build, advance = CASES[case]
    expected = plain(build, advance)
    assert len(set(expected)) > 2, "the rate changes"
    assert rates(make(schedule, options)) == pytest.approx(expected, rel=1e-12)
    first = make(schedule, options)
    before = rates(first, stop=5)
    second = make(schedule, options)
    second.load_state_dict(first.state_dict())
    assert before + rates(second, start=5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["plateau", f"{TORCH}:ReduceLROnPlateau"])
def test_plateau_follows_the_objective_in_its_direction(name: str) -> None:
    schedule = make(name, {"patience": 0}, metric="val_accuracy")
    for accuracy in (0.5, 0.6, 0.7):
        schedule.after_evaluation({"val_loss": 1.0, "val_accuracy": accuracy})
    assert schedule.factor(9) == 1.0
    schedule.after_evaluation({"val_loss": 0.5, "val_accuracy": 0.6})
    assert schedule.factor(9) == pytest.approx(0.1)


def test_a_warm_up_rises_to_the_rate_of_the_scheduler() -> None:
    without = rates(make("plateau", PLATEAU))
    assert rates(make("plateau", PLATEAU, warmup=6)) == pytest.approx(
        [rate * min(1.0, (step + 1) / 6) for step, rate in enumerate(without)]
    )


def experiment(**training: Any) -> Experiment:
    strategy = training.pop("strategy", "auto")
    return Experiment(
        model="mlp",
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": 14,
            "global_batch": 456,
            "lr": 1.0,
            "lr_rule": "constant",
            "optimizer": "sgd",
            "momentum": 0.0,
            **training,
        },
        plan={"strategy": strategy, "workers": 1 if strategy == "auto" else 2},
    )


ON_PLATEAU = {
    "schedule": "plateau",
    "schedule_options": {"patience": 0, "factor": 0.5, "threshold": 0.05},
}


@pytest.fixture(scope="module")
def losses_of_plain_loop() -> list[float]:
    """Train on all samples at once with torch alone."""
    data = load_trial_data("plain", experiment())
    train_set, validation = (
        Source(split, torch.device("cpu")) for split in (data.train, data.validation)
    )
    torch.manual_seed(3)
    model = build_model("mlp", {}, input_shape=data.input_shape, num_outputs=data.num_outputs)
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=0.05)
    losses = []
    for _ in range(14):
        model.train()
        inputs, targets = train_set.fetch(np.arange(len(train_set)))
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            inputs, targets = validation.fetch(np.arange(len(validation)))
            losses.append(torch.nn.functional.cross_entropy(model(inputs), targets).item())
        scheduler.step(losses[-1])
    assert optimizer.param_groups[0]["lr"] < 0.2, "it was reduced several times"
    return losses


def test_a_training_on_plateau_is_that_of_a_plain_loop(
    losses_of_plain_loop: list[float], tmp_path: Path
) -> None:
    written = experiment(**ON_PLATEAU)
    whole = losses_by_step(tmp_path / "whole", written)
    assert [*whole.values()] == pytest.approx(losses_of_plain_loop, rel=1e-3)
    parts = [losses_by_step(tmp_path / "cut", written, stop_at=stop_at) for stop_at in (6, None)]
    assert [loss for part in parts for loss in part.values()] == pytest.approx(
        losses_of_plain_loop, rel=1e-3
    )


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    written = experiment(**ON_PLATEAU, strategy="ddp")
    return [
        losses_by_step(
            Path(folder),
            written,
            stop_at=stop_at,
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{stop_at}",
        )
        for stop_at in (6, None)
    ]


def test_two_workers_reduce_the_rate_at_the_same_step(
    losses_of_plain_loop: list[float], tmp_path: Path
) -> None:
    before, after = run_together(train_on_two, 2, str(tmp_path))[0]
    assert [*before.values(), *after.values()] == pytest.approx(losses_of_plain_loop, rel=1e-3)
    state = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["schedule"]
    assert state["rate"] < 0.2


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"schedule": "plato"}, "unknown schedule 'plato'"),
        ({"schedule": "plateau", "schedule_options": {"patienc": 2}}, "patienc"),
        ({"schedule": "plateau", "schedule_options": {"factor": 2}}, "schedule_options.factor"),
        ({"schedule": "plateau", "schedule_options": {"metric": "val_f1"}}, "'val_f1'"),
        ({"schedule": "cosine", "schedule_options": {"patience": 2}}, "cosine has no options"),
        ({"schedule": f"{TORCH}:Step"}, "has no 'Step'"),
        ({"schedule": f"{TORCH}:StepLR", "schedule_options": {"interval": "batch"}}, "interval"),
    ],
)
def test_wrong_schedules_are_refused_before_anything_starts(
    training: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExperimentError, match=words.replace("(", r"\(")):
        check(experiment(**training))


@pytest.mark.parametrize(
    ("schedule", "options", "words"),
    [
        (f"{TORCH}:StepLR", {}, "step_size"),
        (f"{TORCH}:OneCycleLR", {"interval": "step", "max_lr": 0.5}, "momentum"),
        (f"{TORCH}:StepLR", {"step_size": 2, "metric": "val_loss"}, "does not follow a metric"),
        (f"{__name__}:Unstorable", {"after": 2}, "could not continue"),
        ("builtins:dict", {}, "does not accept its options"),
        ("plateau", {"metric": "val_own"}, "should fall or rise"),
    ],
)
def test_a_scheduler_that_does_not_fit_is_refused(
    schedule: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExperimentError, match=words):
        make(schedule, options)


def test_schedules_and_their_options_are_searched() -> None:
    written = experiment(epochs=2).replace(
        search={
            "schedule": {"choices": ["cosine", "plateau"]},
            "schedule_options": {
                "choices": [{"patience": 1}, {"patience": 3}],
                "when": {"schedule": "plateau"},
            },
        }
    )
    check(written)
    with pytest.raises(ExperimentError, match="when"):
        check(
            written.replace(
                search={"schedule_options": {"choices": [{"patience": 1}, {"patience": 3}]}}
            )
        )
