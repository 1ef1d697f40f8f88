"""A second layer learns whom to believe about which class, and is judged on other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.models.second_layer import SecondLayer, learn_second_layer

RANDOM = np.random.default_rng(4)
TARGETS = RANDOM.integers(0, 3, size=900)
TRUTH = np.eye(3)[TARGETS]


def log_loss(predicted: np.ndarray, targets: np.ndarray = TARGETS) -> float:
    return float(-np.log(predicted[np.arange(len(targets)), targets]).mean())


def expert(known: int) -> np.ndarray:
    """Return the probabilities of a model that knows one class, and guesses between the others."""
    shares = np.full((len(TARGETS), 3), 0.0)
    shares[:, known] = np.where(known == TARGETS, 0.9, 0.05)
    others = [place for place in range(3) if place != known]
    split = RANDOM.uniform(0.05, 0.95, size=len(TARGETS))
    left = 1.0 - shares[:, known]
    shares[:, others[0]], shares[:, others[1]] = left * split, left * (1.0 - split)
    return shares


def test_it_believes_each_model_about_the_class_that_it_knows() -> None:
    experts = [expert(number) for number in range(3)]
    layer, unseen = learn_second_layer(experts, TARGETS, loss=log_loss, seed=0)
    assert log_loss(unseen) < 0.5 * log_loss(np.mean(experts, axis=0))
    answers = layer.answers(experts)
    assert answers.sum(axis=1) == pytest.approx(1.0)
    assert (answers.argmax(axis=1) == TARGETS).mean() > 0.95


def test_models_that_know_nothing_do_not_look_better_than_a_guess() -> None:
    guesses = [RANDOM.dirichlet(np.ones(3), size=len(TARGETS)) for _ in range(6)]
    layer, unseen = learn_second_layer(guesses, TARGETS, loss=log_loss, seed=0)
    assert log_loss(unseen) > np.log(3) - 0.005
    assert log_loss(layer.answers(guesses)) < log_loss(unseen)


def test_probabilities_beyond_those_of_the_learned_rows_count_as_their_ends() -> None:
    experts = [expert(number) for number in range(3)]
    layer, _ = learn_second_layer(experts, TARGETS, loss=log_loss, seed=0)
    sure = [np.tile([1.0, 0.0, 0.0], (1, 1)) for _ in experts]
    surer = [np.tile([1.0 - 1e-9, 1e-9, 0.0], (1, 1)) for _ in experts]
    np.testing.assert_array_equal(layer.answers(sure), layer.answers(surer))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_graph_answers_the_same(num_classes: int) -> None:
    import onnxruntime

    from workbench.deploy.exported_model import along_second_layer
    from workbench.deploy.graph import Graph

    targets = TARGETS % num_classes
    members = [RANDOM.dirichlet(np.ones(num_classes), size=900) for _ in range(4)]
    layer: SecondLayer
    layer, _ = learn_second_layer(
        [np.mean(members[:2], axis=0), *members[2:]],
        targets,
        loss=lambda predicted: log_loss(predicted, targets),
        seed=0,
    )
    graph = Graph()
    float32: Any = np.dtype("float32")
    names = [graph.input(f"m{number}", float32, (num_classes,)) for number in range(4)]
    total = along_second_layer(graph, names, layer, [0, 0, 1, 2])
    model = graph.model(total, "answers", float32, (num_classes,))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    given = {f"m{number}": member.astype(np.float32) for number, member in enumerate(members)}
    expected = layer.answers([np.mean(members[:2], axis=0), *members[2:]])
    answers: Any = session.run(None, given)[0]
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-6)
