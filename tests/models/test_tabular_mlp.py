"""The network for tables: what it learns, and that every way to predict agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from workbench.deploy.onnx_export import write_onnx
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.tabular_mlp import TabularMLP

RANDOM = np.random.default_rng(5)
NUMBERS = RANDOM.normal(size=(300, 4)).astype(np.float32)
FLAGS = (RANDOM.random((300, 3)) < 0.4).astype(np.float32)
INPUTS = np.concatenate([NUMBERS, FLAGS], axis=1)
# A sharp edge, which a perceptron without embeddings learns slowly.
SCORE = np.where(NUMBERS[:, 0] > 0.3, 2.0, 0.0) + FLAGS[:, 0] * NUMBERS[:, 1]
TARGETS = {
    "numbers": (100.0 + 10.0 * SCORE, None),
    "two classes": ((SCORE > 1.0).astype(np.int64), 2),
    "classes": (np.digitize(SCORE, [0.5, 1.5]), 4),
}


def rounds(task: str, inputs: np.ndarray = INPUTS, **values: Any) -> list[TabularMLP]:
    targets, num_classes = TARGETS[task]
    configuration = configure("tabular_mlp", {"num_passes": 30.0, "hidden_width": 32} | values)
    assert isinstance(configuration, FittedConfiguration)
    grown: Any = configuration.grow(inputs, targets, num_classes=num_classes, num_rounds=4, seed=2)
    return list(grown)


def answers(model: torch.nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(inputs)).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["piecewise", "periodic"])
def test_edges_of_numbers_are_learned(embedding: str) -> None:
    targets = TARGETS["numbers"][0]
    said = answers(rounds("numbers", numeric_embedding=embedding)[-1], INPUTS)[:, 0]
    assert np.mean((said - targets) ** 2) < 0.05 * targets.var()
    scores = answers(rounds("classes", numeric_embedding=embedding)[-1], INPUTS)
    assert scores.shape == (300, 4)
    assert np.exp(scores).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.mean(scores.argmax(axis=1) == TARGETS["classes"][0]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "embedding", "columns"),
    [
        ("numbers", "piecewise", slice(0, 7)),
        ("two classes", "periodic", slice(0, 7)),
        ("classes", "piecewise", slice(4, 7)),  # only flags
        ("classes", "periodic", slice(0, 4)),  # none
    ],
)
def test_stored_weights_and_the_graph_say_the_same(
    task: str, embedding: str, columns: slice, tmp_path: Path
) -> None:
    inputs = np.ascontiguousarray(INPUTS[:, columns])
    values: dict[str, Any] = {"numeric_embedding": embedding, "num_passes": 4.0}
    model = rounds(task, inputs, **values)[-1]
    empty = configure("tabular_mlp", {"numeric_embedding": embedding}).build(
        input_shape=inputs.shape[1:], num_outputs=4, vocabulary_size=None
    )
    empty.load_state_dict(model.state_dict())
    far = np.concatenate([inputs, inputs * 1e6, -inputs * 1e6])
    np.testing.assert_array_equal(answers(empty.eval(), far), answers(model, far))

    write_onnx(model, torch.from_numpy(inputs[:9]), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (name,) = (given.name for given in session.get_inputs())
    for rows in (far, far[:1]):
        np.testing.assert_allclose(
            session.run(None, {name: rows})[0], answers(model, rows), rtol=1e-5, atol=1e-5
        )


def test_rows_far_outside_get_an_answer_like_that_of_the_edge() -> None:
    model = rounds("numbers")[-1]
    targets = TARGETS["numbers"][0]
    said = answers(model, INPUTS * np.float32(1e6))
    assert np.abs(said - targets.mean()).max() < 3 * np.ptp(targets)


def test_later_rounds_do_not_change_an_earlier_model_and_a_seed_repeats_it() -> None:
    first, second = (rounds("two classes", num_passes=8.0) for _ in range(2))
    assert [float(model.epochs) for model in first] == sorted(
        float(model.epochs) for model in first
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(answers(one, INPUTS), answers(other, INPUTS))
    assert np.abs(answers(first[0], INPUTS) - answers(first[-1], INPUTS)).max() > 0.01


def test_all_rows_are_passed_as_often_as_the_folds_needed() -> None:
    configuration = configure("tabular_mlp", {})
    assert isinstance(configuration, FittedConfiguration)
    models: Any = rounds("numbers", num_passes=10.0)
    again: Any = configuration.for_all_rows([models[-1], models[-1]])
    assert again.num_passes == pytest.approx(11.0, rel=0.05)


def test_several_numbers_are_predicted_together() -> None:
    configuration = configure("tabular_mlp", {"num_passes": 30.0})
    assert isinstance(configuration, FittedConfiguration)
    both = np.stack([NUMBERS[:, 0], 50.0 * NUMBERS[:, 1]], axis=1)
    *_, model = configuration.grow(INPUTS, both, num_classes=None, num_rounds=1, seed=0)
    errors = ((answers(model, INPUTS) - both) ** 2).mean(axis=0)
    assert (errors < 0.05 * both.var(axis=0)).all()


@pytest.mark.parametrize("num_rows", [1, 2, 33])
def test_few_rows_are_enough(num_rows: int) -> None:
    configuration = configure("tabular_mlp", {"num_passes": 3.0})
    assert isinstance(configuration, FittedConfiguration)
    targets = np.arange(num_rows) % 2
    grown = configuration.grow(INPUTS[:num_rows], targets, num_classes=2, num_rounds=3, seed=0)
    assert all(np.isfinite(answers(model, INPUTS)).all() for model in grown)
