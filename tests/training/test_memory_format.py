"""Channels last as a way of making a step.

The same training up to rounding, also from any checkpoint.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.services.process_group import run_together
from workbench.advisor.open_settings import choices_of
from workbench.advisor.plan_variants import alternatives
from workbench.advisor.plans import enumerate_plans
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import CheckpointSaved, Event, PlanMeasured, TrialEnded
from workbench.training import checkpoint
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies.single import lay_channels_last, lay_like_parameters
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

FORMATS = ("contiguous", "channels_last")
OPTIMIZERS = {
    # Without it rounding decides where a weight goes whose gradients are all but zero.
    "adamw": {"optimizer": "adamw", "optimizer_options": {"eps": 1e-3}},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "clip_norm": 1.0, "average_decay": 0.9},
}


def experiment(memory_format: str | None = "channels_last", **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "model": {"name": "convnet", "width": 8},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "training": {"epochs": 3, "global_batch": 400, "lr": 0.01},
        "plan": {} if memory_format is None else {"memory_format": memory_format},
    }
    return Experiment(**{**fields, **changes})


def train(
    folder: Path, written: Experiment, num_checkpoints: int | None = None, **task: Any
) -> TrialEnded:
    """Train to the end, or stop after a number of checkpoints."""
    saved: list[Event] = []

    def report(event: Event) -> bool:
        saved.extend([event] if isinstance(event, CheckpointSaved) else [])
        return len(saved) == num_checkpoints

    order = TrialTask(
        "run", 0, 0, written.model_dump_json(), seed=3, folder=str(folder), resume=True, **task
    )
    return run_trial(order, report)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_is_the_same_also_where_it_goes_on_in_the_other_format(
    optimizer: str, tmp_path: Path
) -> None:
    training = {"epochs": 3, "global_batch": 400, "lr": 0.01, **OPTIMIZERS[optimizer]}
    ended = train(tmp_path / "whole", experiment("contiguous", training=training))
    assert ended.state == "complete", ended.traceback
    whole = weights(tmp_path / "whole")
    for first, second in [FORMATS, FORMATS[::-1], FORMATS[1:] * 2]:
        folder = tmp_path / f"{first} {second}"
        assert train(folder, experiment(first, training=training), 2).state == "stopped"
        ended = train(folder, experiment(second, training=training))
        assert ended.state == "complete", ended.traceback
        assert_close(weights(folder), whole)


@pytest.mark.parametrize("model", ["resnet", "convnet"])
def test_weights_and_images_lie_with_their_channels_last(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[bool, bool]] = set()
    convolve = nn.Conv2d.forward

    def look(module: nn.Conv2d, images: torch.Tensor) -> torch.Tensor:
        lie = [
            tensor.is_contiguous(memory_format=torch.channels_last)
            for tensor in (module.weight, images)
        ]
        seen.add((lie[0], lie[1]))
        return convolve(module, images)

    monkeypatch.setattr(nn.Conv2d, "forward", look)
    options = {"depth": 8} if model == "resnet" else {}
    written = experiment(
        model={"name": model, "width": 8, **options},
        training={"epochs": 1, "global_batch": 400, "optimizer": "sgd"},
    )
    assert train(tmp_path, written).state == "complete"
    assert seen == {(True, True)}


def train_together(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> str:
    order = TrialTask(
        "run",
        0,
        0,
        text,
        seed=3,
        folder=folder,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    return str(run_trial(order, lambda _: False).message)


def test_two_workers_train_the_same_model(tmp_path: Path) -> None:
    for memory_format in FORMATS:
        plan = {"workers": 2, "strategy": "ddp", "memory_format": memory_format}
        text = experiment(plan=plan).model_dump_json()
        assert run_together(train_together, 2, text, str(tmp_path / memory_format)) == [
            "None",
            "None",
        ]
    assert_close(weights(tmp_path / "channels_last"), weights(tmp_path / "contiguous"))


def test_the_state_of_an_optimizer_lies_as_its_parameter_does() -> None:
    torch.manual_seed(0)
    models = [nn.Conv2d(4, 4, 3) for _ in FORMATS]
    models[1].load_state_dict(models[0].state_dict())
    lay_channels_last(models[1])
    images = torch.randn(2, 4, 8, 8)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1, fused=True) for model in models]

    def step(index: int) -> None:
        models[index](images).square().mean().backward()
        optimizers[index].step()
        optimizers[index].zero_grad()

    step(0)
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    lay_like_parameters(optimizers[1])
    for _ in range(3):
        step(0)
        step(1)
    torch.testing.assert_close(models[1].weight, models[0].weight, rtol=1e-4, atol=1e-6)


def test_its_weights_are_exported_as_any_others(tmp_path: Path) -> None:
    assert train(tmp_path, experiment()).state == "complete"
    write_weights(tmp_path / "checkpoints" / "best.pt", tmp_path / "weights.safetensors")
    model, _ = read_model(experiment(), {}, tmp_path / "weights.safetensors")
    best = checkpoint.read(tmp_path / "checkpoints" / "best.pt")["strategy"]["model"]
    assert_close(model.state_dict(), best)


def test_a_probe_measures_both(tmp_path: Path) -> None:
    plans = tuple(
        PartialPlan.of(micro_batch=50, accumulation=1, memory_format=value) for value in FORMATS
    )
    events: list[PlanMeasured] = []
    task = TrialTask(
        "r",
        0,
        0,
        experiment(None, training={}).model_dump_json(),
        folder=str(tmp_path),
        measurement=PlanProbe(plans),
    )
    ended = run_trial(task, events.append)  # type: ignore[arg-type, func-returns-value]
    assert ended.state == "complete", ended.message
    assert [event.plan["memory_format"] for event in events] == list(FORMATS)
    assert all(event.step_time_s for event in events)


@pytest.mark.parametrize(
    "plan",
    [
        {"workers": 2, "strategy": "fsdp"},
        {"workers": 2, "strategy": "zero1"},
        {"workers": 2, "exchange": "topk"},
        {"workers": 2, "stages": 2},
    ],
)
def test_plans_that_divide_a_model_are_refused(plan: dict[str, Any]) -> None:
    written = experiment(plan={"memory_format": "channels_last", **plan})
    with pytest.raises(ExperimentError, match=r"plan.memory_format: .*allowed: auto, contiguous"):
        resolve(written, {})


@pytest.mark.parametrize(
    ("changes", "is_tried"),
    [
        ({}, True),
        ({"model": {"name": "resnet", "depth": 8}}, True),
        ({"model": "mlp"}, False),
        ({"model": "tests.training.test_cuda_graphs:Both"}, False),
        (
            {"model": "tests.training.test_cuda_graphs:Both", "plan": {"memory_format": "auto"}},
            False,
        ),
    ],
)
def test_the_advisor_tries_it_with_convolutions_of_the_workbench(
    changes: dict[str, Any], is_tried: bool
) -> None:
    written = experiment(None, **changes)
    choices = choices_of(written, num_train_samples=1000, max_workers=2, hardware=Hardware())
    variants = [
        variant
        for variant in alternatives(choices.usual_variant, choices.options, "speed")
        if variant.get("memory_format") == "channels_last"
    ]
    assert bool(variants) == is_tried
    assert {plan.workers for plan in enumerate_plans(choices, variants)} == (
        {1, 2} if is_tried else set()
    )
