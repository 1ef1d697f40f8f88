"""The gradient noise that a training measures of itself.

True, harmless, and kept over interruptions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.services.process_group import run_together
from workbench.data import Datasets
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.hardware.performance.noise import gain
from workbench.training import checkpoint
from workbench.training.step_window import CUT_INTERVAL, INTERVAL, NoiseMeter
from workbench.training.strategies.strategy import MeasuredStep, Worker
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_SAMPLES, NUM_FEATURES, GLOBAL_BATCH = 35_000, 20, 256


def load_line(options: Mapping[str, Any]) -> Datasets:
    """Targets on a plane, with noise twice as large as what the plane explains."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(NUM_SAMPLES, NUM_FEATURES)).astype(np.float32)
    targets = inputs.mean(axis=1, keepdims=True) * math.sqrt(NUM_FEATURES)
    targets += 2.0 * rng.normal(size=targets.shape).astype(np.float32)
    train = ArraySplit(inputs, targets)
    return Datasets(
        name="line",
        task="regression",
        train=train,
        validation=ArraySplit(inputs[:64], targets[:64]),
        input_shape=(NUM_FEATURES,),
        num_outputs=1,
    )


def build_line(options: Mapping[str, Any]) -> nn.Module:
    line = nn.Linear(NUM_FEATURES, 1, bias=False)
    nn.init.zeros_(line.weight)
    return line


def true_moments() -> tuple[float, float]:
    """|G|^2 and tr(Sigma) at weights 0.

    The gradient of the squared error of a sample is -2 target input.
    """
    split = load_line({}).train
    inputs, targets = split.batch(np.arange(NUM_SAMPLES))
    gradients = -2.0 * targets.astype(np.float64) * inputs
    mean = gradients.mean(axis=0)
    return float(mean @ mean), float(np.square(gradients - mean).sum(axis=1).mean())


def line(epochs: int, training: dict[str, Any] | None = None, **plan: Any) -> str:
    return Experiment(
        model="test_noise_meter:build_line",
        data="test_noise_meter:load_line",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": epochs,
            "evaluate_every": epochs,
            "checkpoint_every": epochs,
            "schedule": "constant",
            "optimizer": "sgd",
            "lr": 1e-9,
            "reference_batch": GLOBAL_BATCH,
            "global_batch": GLOBAL_BATCH,
            "clip_norm": 1e-3,
            **(training or {}),
        },
        plan=plan,
    ).model_dump_json()


def train(
    rank: int,
    num_workers: int,
    meeting: str | None,
    text: str,
    folder: str,
    *,
    stop_at: str = "",
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


def alone(text: str, folder: Path, stop_at: str = "") -> list[TrialReported]:
    ended, events = train(0, 1, None, text, str(folder), stop_at=stop_at)
    assert ended.state == ("stopped" if stop_at else "complete"), ended.traceback
    return [event for event in events if isinstance(event, TrialReported)]


def assert_true(event: TrialReported) -> None:
    signal_sqr, noise = true_moments()
    assert event.gradient_signal_sqr is not None
    assert event.gradient_noise is not None
    assert event.gradient_noise == pytest.approx(noise, rel=0.1)
    assert event.gradient_noise / event.gradient_signal_sqr == pytest.approx(
        noise / signal_sqr, rel=0.2
    )


@pytest.mark.slow
def test_one_worker_measures_the_true_noise_by_accumulated_micro_batches(tmp_path: Path) -> None:
    reports = alone(line(25, micro_batch=64), tmp_path)
    assert_true(reports[-1])


@pytest.mark.slow
def test_one_worker_measures_the_true_noise_by_cutting_some_steps(tmp_path: Path) -> None:
    reports = alone(line(76), tmp_path)
    assert_true(reports[-1])
    too_early = [event for event in reports if event.step < 100 * CUT_INTERVAL]
    assert all(
        event.gradient_noise is None and event.gradient_signal_sqr is None for event in too_early
    )


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_two_workers_measure_the_true_noise(strategy: str, tmp_path: Path) -> None:
    plan = {"strategy": strategy}
    text = line(25, workers=2, **plan)
    (ended, events), _ = run_together(train, 2, text, str(tmp_path))
    assert ended.state == "complete", ended.traceback
    assert_true([event for event in events if isinstance(event, TrialReported)][-1])


def digits(**fields: Any) -> Experiment:
    training = {"epochs": 8, "global_batch": 32, "optimizer": "adamw", **fields.pop("training", {})}
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "dropout": 0.3},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    return Experiment(**settings | fields, training=training)


def content(folder: Path) -> dict[str, Any]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")


@pytest.mark.slow
def test_a_training_that_accumulates_is_the_same_with_measuring_and_without(tmp_path: Path) -> None:
    plan = {"micro_batch": 16}
    for name, measures in (("with", True), ("without", False)):
        text = digits(
            plan=plan, training={"measure_noise": measures, "clip_norm": 0.5}
        ).model_dump_json()
        alone(text, tmp_path / name)
    measured, plain = content(tmp_path / "with"), content(tmp_path / "without")
    assert measured["noise"]["smoother"]["num_steps"] > 5
    assert plain["noise"]["smoother"]["num_steps"] == 0
    for name, value in plain["strategy"]["model"].items():
        assert torch.equal(value, measured["strategy"]["model"][name])


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{}, {"micro_batch": 8}], ids=str)
def test_what_was_measured_survives_an_interruption(plan: dict[str, Any], tmp_path: Path) -> None:
    text = digits(plan=plan, training={"checkpoint_every": 1}).model_dump_json()
    alone(text, tmp_path / "whole")
    alone(text, tmp_path / "broken", "checkpoint_saved 45")
    alone(text, tmp_path / "broken")
    assert content(tmp_path / "broken")["noise"] == content(tmp_path / "whole")["noise"]
    assert content(tmp_path / "whole")["noise"]["smoother"]["num_steps"] >= 3


def test_a_batch_that_is_normalised_as_a_whole_is_never_cut(tmp_path: Path) -> None:
    alone(
        digits(model={"name": "convnet", "width": 4}, training={"epochs": 2}).model_dump_json(),
        tmp_path,
    )
    assert content(tmp_path)["noise"]["smoother"]["num_steps"] == 0


def test_micro_batches_that_are_normalised_apart_are_measured(tmp_path: Path) -> None:
    text = digits(
        model={"name": "convnet", "width": 4}, plan={"micro_batch": 16}, training={"epochs": 1}
    ).model_dump_json()
    alone(text, tmp_path)
    assert content(tmp_path)["noise"]["smoother"]["num_steps"] == 45 // INTERVAL


@pytest.mark.slow
def test_adascale_trains_at_the_gain_of_the_noise_so_far_and_goes_on_exactly(
    tmp_path: Path,
) -> None:
    text = line(
        27, {"reference_batch": 64, "lr_rule": "adascale", "checkpoint_every": 25}, micro_batch=128
    )
    alone(text, tmp_path / "whole")
    alone(
        text, tmp_path / "broken", f"checkpoint_saved {25 * math.ceil(NUM_SAMPLES / GLOBAL_BATCH)}"
    )
    alone(text, tmp_path / "broken")
    whole, broken = content(tmp_path / "whole"), content(tmp_path / "broken")
    assert broken["noise"] == whole["noise"]
    assert torch.equal(broken["strategy"]["model"]["weight"], whole["strategy"]["model"]["weight"])
    rates = [state["strategy"]["optimizer"]["param_groups"][0]["lr"] for state in (whole, broken)]
    assert rates[0] == rates[1]
    signal_sqr, noise = true_moments()
    expected = gain(GLOBAL_BATCH, reference_batch=64, noise_scale=noise / signal_sqr)
    assert rates[0] / 1e-9 == pytest.approx(expected, rel=0.1)


def test_adascale_is_refused_where_nothing_can_be_measured(tmp_path: Path) -> None:
    text = digits(
        model={"name": "convnet", "width": 4},
        training={"lr_rule": "adascale", "reference_batch": 16},
    ).model_dump_json()
    ended, _ = train(0, 1, None, text, str(tmp_path))
    assert ended.state == "failed"
    assert "Set plan.accumulation to 2 or more" in str(ended.message)


def divide(micro_batch: int, accumulation: int = 1, workers: int = 1) -> Plan:
    return Plan(workers, micro_batch, accumulation, "fp32", "ddp", "none", "none")


def meter(plan: Plan, *, enabled: bool = True, mixes_samples: bool = False) -> NoiseMeter:
    return NoiseMeter(Worker(0, plan.workers), plan, enabled=enabled, mixes_samples=mixes_samples)


@given(
    micro_batch=st.integers(1, 9),
    accumulation=st.integers(1, 4),
    workers=st.integers(1, 4),
    steps_per_epoch=st.integers(2, 60),
)
def test_measured_steps_are_whole_ones_and_at_least_an_interval_apart(
    micro_batch: int, accumulation: int, workers: int, steps_per_epoch: int
) -> None:
    global_batch = micro_batch * accumulation * workers
    plan = divide(micro_batch, accumulation, workers)
    interval = CUT_INTERVAL if accumulation * workers == 1 else INTERVAL
    chosen = meter(plan)
    measured: list[int] = []
    for step in range(500):
        is_last = step % steps_per_epoch == steps_per_epoch - 1
        size = chosen.micro_batch(step, global_batch - is_last)
        if size is not None:
            assert not is_last
            assert size == (
                micro_batch if accumulation * workers > 1 else math.ceil(global_batch / 2)
            )
            measured.append(step)
    assert len(measured) >= (500 // (interval + 1) if global_batch > 1 else 0)
    assert all(later - step >= interval for step, later in itertools.pairwise(measured))


def test_what_cannot_be_measured_or_should_not_is_never_chosen() -> None:
    whole, accumulated = divide(32), divide(16, 2)
    silent = [
        meter(whole, enabled=False),
        meter(accumulated, enabled=False),
        meter(whole, mixes_samples=True),
        meter(divide(1)),
    ]
    for chosen in silent:
        assert all(chosen.micro_batch(step, 32) is None for step in range(200))
    assert any(meter(accumulated, mixes_samples=True).micro_batch(step, 32) for step in range(200))


@given(
    global_batch=st.integers(2, 40), signal_sqr=st.floats(0.1, 10.0), noise=st.floats(0.1, 1000.0)
)
def test_parts_of_unequal_sizes_are_weighed_so_that_expected_norms_give_the_moments(
    global_batch: int, signal_sqr: float, noise: float
) -> None:
    chosen = meter(divide(global_batch))
    sizes = [math.ceil(global_batch / 2), global_batch // 2]
    parts = sum(signal_sqr + noise / size for size in sizes) / 2
    norms = torch.tensor([parts, signal_sqr + noise / global_batch], dtype=torch.float64)
    for _ in range(100):
        chosen.add(MeasuredStep(torch.zeros(()), norms))
    chosen.add(MeasuredStep(torch.zeros(()), torch.tensor([math.inf, 1.0], dtype=torch.float64)))
    assert chosen.moments() is None
    chosen.read()
    moments = chosen.moments()
    assert moments is not None
    assert moments.signal_sqr == pytest.approx(signal_sqr, rel=1e-6, abs=1e-8 * noise)
    assert moments.noise == pytest.approx(noise, rel=1e-6, abs=1e-8 * signal_sqr)
