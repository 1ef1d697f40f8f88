"""Wherever a model has its classes, its bundle answers with their probabilities, the classes
last.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from workbench.data import load
from workbench.deploy.exported_bundle import Exported, add_trial
from workbench.deploy.predictor import Predictor
from workbench.experiment import Experiment

NUM = 24
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(NUM, 6, generator=GENERATOR)
DENSE = torch.randint(3, (NUM, 5), generator=GENERATOR)
LABELS = torch.randint(2, (NUM,), generator=GENERATOR)
SEVERAL = torch.randint(2, (NUM, 3), generator=GENERATOR)


class Shaped(nn.Module):
    """A layer whose outputs take another shape."""

    def __init__(self, num_outputs: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.shape = nn.Linear(6, num_outputs), shape

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs).reshape(-1, *self.shape)


def sigmoids(outputs: Tensor) -> Tensor:
    return torch.stack([1 - outputs.sigmoid(), outputs.sigmoid()], dim=-1)


FORMS: dict[str, tuple[int, tuple[int, ...], Tensor, int, Callable[[Tensor], Tensor]]] = {
    "second": (15, (3, 5), DENSE, 3, lambda outputs: outputs.softmax(1).movedim(1, -1)),
    "last": (15, (5, 3), DENSE, 3, lambda outputs: outputs.softmax(-1)),
    "one score": (1, (), LABELS, 2, sigmoids),
    "one score in a column": (1, (1,), LABELS, 2, lambda outputs: sigmoids(outputs[:, 0])),
    "one score of each position": (5, (5,), DENSE.clamp(max=1), 2, sigmoids),
    "one score of each position, as a channel": (
        5,
        (1, 5),
        DENSE.clamp(max=1),
        2,
        lambda outputs: sigmoids(outputs[:, 0]),
    ),
}


def export(
    folder: Path, model: nn.Module, targets: Tensor, num_outputs: int, **fields: Any
) -> Predictor:
    def own(options: Any) -> Any:
        return TensorDataset(INPUTS, targets), TensorDataset(INPUTS, targets)

    asked = Experiment(
        **{
            "model": Shaped,
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "data": {"name": own, "task": "classification", "num_outputs": num_outputs},
        }
        | fields
    )
    assert asked.data is not None
    data = load(own, asked.data.options)
    origin = Exported("mine", "mine-1", 0, "Shaped", "own", data.task, {"val_loss": 0.5}, NUM)
    add_trial(folder, model.eval(), data, asked, origin)
    return Predictor.open(folder, threads=1)


@pytest.mark.parametrize("name", FORMS)
def test_a_bundle_answers_with_probabilities_of_the_classes(name: str, tmp_path: Path) -> None:
    num, shape, targets, num_classes, expected = FORMS[name]
    torch.manual_seed(0)
    model = Shaped(num, shape)
    answers = export(tmp_path, model, targets, num_classes).predict({"inputs": INPUTS.numpy()})
    with torch.no_grad():
        probabilities = expected(model(INPUTS)).numpy()
    assert answers.probabilities is not None
    np.testing.assert_allclose(answers.probabilities, probabilities, atol=1e-5)
    assert answers.classes is not None
    assert answers.classes.tolist() == probabilities.argmax(-1).astype(str).tolist()


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("loss", [functional.binary_cross_entropy, nn.BCELoss])
def test_probabilities_of_two_classes_stay_what_they_are(
    loss: Any, shape: tuple[int, ...], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Shaped(1, shape), nn.Sigmoid())
    with torch.no_grad():
        model[0].layer.weight.mul_(20)  # so that some are nearly 0 or 1
    targets = LABELS.float().reshape(-1, *shape)
    answers = export(tmp_path, model, targets, 2, loss=loss).predict({"inputs": INPUTS.numpy()})
    with torch.no_grad():
        ones = model(INPUTS).reshape(-1).numpy()
    assert ones.min() < 1e-3
    assert ones.max() > 1 - 1e-3
    np.testing.assert_allclose(answers.probabilities, np.stack([1 - ones, ones], axis=1), atol=2e-6)


def test_scores_of_several_classes_at_once_stay_what_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Shaped(3, (3,))
    predictor = export(
        tmp_path, model, SEVERAL.float(), 3, loss=functional.binary_cross_entropy_with_logits
    )
    answers = predictor.predict({"inputs": INPUTS.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(answers.values, model(INPUTS).numpy(), atol=1e-5)
    assert answers.probabilities is None
