"""What a compression measures.

The ratio of two latencies, what a quantiser writes, what was lost.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workbench.data.splits import ArraySplit
from workbench.deploy.compression.compression import Teacher, fine_tune
from workbench.deploy.compression.quantisers import CALIBRATIONS, quantise
from workbench.deploy.compression.trained_base import Base
from workbench.deploy.device_runner import compare, summarise
from workbench.deploy.onnx_export import write_onnx
from workbench.deploy.predictor import open_session
from workbench.foundation.errors import RunError
from workbench.training.tensor_source import Source


def base(metric: str, goal: str, value: float) -> Base:
    return Base("run", 0, "{}", {}, {}, b"", b"", metric, goal, {metric: value})


@given(ratio=st.floats(0.1, 3.0), seed=st.integers(0, 100))
def test_the_interval_of_a_ratio_holds_it_whatever_outliers_there_are(
    ratio: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    times = np.stack([np.full(200, ratio), np.ones(200)], axis=1) * (
        1 + 0.02 * random.random((200, 2))
    )
    times[random.random((200, 2)) < 0.05] *= 50
    summary = summarise(times)
    assert summary.low <= summary.ratio <= summary.high
    assert summary.ratio == pytest.approx(ratio, rel=0.03)


def test_two_models_are_called_in_turn_and_equally_often() -> None:
    called: list[str] = []
    pause = threading.Event()
    comparison = compare(
        lambda: (called.append("a"), pause.wait(0.002)),
        lambda: (called.append("b"), pause.wait(0.001)),
        measured_s=0.1,
    )
    measured = called[-2 * comparison.num_pairs :]
    pairs = {"".join(measured[at : at + 2]) for at in range(0, len(measured), 2)}
    assert pairs == {"ab", "ba"}


@pytest.mark.parametrize(
    ("given_base", "value", "drop"),
    [
        (base("val_accuracy", "maximize", 0.99), 0.985, 0.005),
        (base("val_accuracy", "maximize", 0.99), 0.995, -0.005),
        (base("val_loss", "minimize", 2.0), 2.1, 0.05),
        (base("val_score", "maximize", 50.0), 45.0, 0.1),
    ],
)
def test_a_drop_is_in_points_of_a_share_and_relative_otherwise(
    given_base: Base, value: float, drop: float
) -> None:
    assert given_base.drop(value) == pytest.approx(drop)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    ).eval()
    path, inputs = tmp_path_factory.mktemp("model") / "model.onnx", torch.randn(70, 1, 8, 8)
    write_onnx(model, inputs[:2], path)
    return path, inputs.numpy()


@pytest.mark.parametrize("calibration", [None, *CALIBRATIONS])
def test_a_quantised_model_is_smaller_and_answers_alike_for_any_batch(
    exported: tuple[Path, np.ndarray], calibration: Any, tmp_path: Path
) -> None:
    path, inputs = exported
    small = tmp_path / "small.onnx"
    if calibration is None:
        quantise(path, small, "dynamic")
    else:
        quantise(path, small, "static", calibration=calibration, samples=inputs)
    assert small.stat().st_size < 0.5 * path.stat().st_size
    for size in (1, 7):
        wanted, outputs = (
            open_session(each).run(None, {"inputs": inputs[:size]})[0] for each in (path, small)
        )
        assert outputs.shape == wanted.shape
        assert np.abs(outputs - wanted).max() < 0.15 * np.abs(wanted).max()
        assert not np.array_equal(outputs, wanted)


def test_no_quantiser_copies_the_file(exported: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    quantise(exported[0], tmp_path / "same.onnx", "none")
    assert (tmp_path / "same.onnx").read_bytes() == exported[0].read_bytes()


def test_what_onnx_runtime_refuses_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "torn.onnx").write_bytes(b"torn")
    with pytest.raises(RunError, match=r"ONNX Runtime cannot quantise the model \(dynamic\)"):
        quantise(tmp_path / "torn.onnx", tmp_path / "out.onnx", "dynamic")


@pytest.mark.parametrize("distillation", [0.0, 0.5, 1.0])
def test_fine_tuning_regains_what_was_lost(distillation: float) -> None:
    torch.manual_seed(0)
    teacher, student = nn.Linear(6, 3), nn.Linear(6, 3)
    inputs = np.random.default_rng(0).standard_normal((256, 6)).astype(np.float32)
    with torch.no_grad():
        targets = teacher(torch.from_numpy(inputs)).argmax(dim=1).numpy()
    losses: list[float] = []

    def report(_epoch: int, loss: float) -> bool:
        losses.append(loss)
        return False

    split = ArraySplit(inputs, targets)
    stopped = fine_tune(
        student,
        Teacher(teacher, split),
        Source(split, torch.device("cpu")),
        nn.functional.cross_entropy,
        epochs=12,
        lr=0.05,
        distillation=distillation,
        batch=32,
        seed=0,
        classes=True,
        report=report,
    )
    assert not stopped
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        assert (student(torch.from_numpy(inputs)).argmax(dim=1).numpy() == targets).mean() > 0.9


def test_fine_tuning_ends_when_it_is_stopped() -> None:
    epochs: list[int] = []
    split = ArraySplit(np.zeros((8, 2), np.float32), np.zeros(8, np.int64))
    model, source = nn.Linear(2, 2), Source(split, torch.device("cpu"))
    assert fine_tune(
        model,
        Teacher(model, split),
        source,
        nn.functional.cross_entropy,
        epochs=5,
        lr=0.1,
        distillation=0.0,
        batch=4,
        seed=0,
        classes=True,
        report=lambda epoch, _loss: bool(epochs.append(epoch)) or epoch == 2,
    )
    assert epochs == [1, 2]


def test_a_teacher_answers_once_for_samples_that_stay_the_same() -> None:
    asked: list[int] = []

    class Counting(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            asked.append(len(inputs))
            return inputs * 2

    inputs = np.arange(6, dtype=np.float32).reshape(6, 1)
    split = ArraySplit(inputs, np.zeros(6, np.int64))
    teacher = Teacher(Counting(), split)
    for order in ([0, 1, 2], [5, 4, 3], [3, 1], [5, 0]):
        indices = np.array(order)
        outputs = teacher.outputs(indices, torch.from_numpy(inputs[indices]))
        assert outputs[:, 0].tolist() == [2.0 * number for number in order]
    assert asked == [3, 3]


def test_a_teacher_of_samples_that_change_answers_each_time() -> None:
    class Drawn:
        def __len__(self) -> int:
            return 4

        def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            raise NotImplementedError

    teacher = Teacher(nn.Identity(), Drawn())
    for value in (1.0, 2.0):
        assert teacher.outputs(np.arange(2), torch.full((2, 1), value)).tolist() == [
            [value],
            [value],
        ]


def test_the_best_of_the_later_epochs_is_kept() -> None:
    split = ArraySplit(np.ones((8, 2), np.float32), np.ones(8, np.int64))
    model = nn.Linear(2, 2)
    qualities, weights = iter([0.5, 0.7, 0.7, 0.1]), []

    def quality() -> float:
        assert not model.training
        weights.append(model.weight.detach().clone())
        return next(qualities)

    fine_tune(
        model,
        Teacher(model, split),
        Source(split, torch.device("cpu")),
        nn.functional.cross_entropy,
        epochs=8,
        lr=0.1,
        distillation=0.0,
        batch=4,
        seed=0,
        classes=True,
        quality=quality,
        report=lambda _epoch, _loss: False,
    )
    assert len(weights) == 4  # of eight epochs
    assert torch.equal(model.weight, weights[2])
    assert not torch.equal(model.weight, weights[3])
