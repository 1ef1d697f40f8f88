"""What is measured of outputs does not depend on how precisely they were computed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from workbench.data.splits import ArraySplit
from workbench.models.adapters import load_metrics
from workbench.models.metrics import mean_over_samples
from workbench.models.model_calls import output_in
from workbench.training.evaluation import evaluate
from workbench.training.strategies.strategy import Worker
from workbench.training.tensor_source import Source

NUM_CLASSES = 5
INPUTS = np.random.default_rng(0).normal(size=(37, NUM_CLASSES)).astype(np.float32)
TARGETS = np.random.default_rng(1).integers(NUM_CLASSES, size=37)


class Answer(OrderedDict[str, Any]):
    """Outputs with an attribute, as those of transformers are."""

    @property
    def logits(self) -> Any:
        return self["logits"]


class Rounded:
    """Predicts its inputs in half precision."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def predict(self, inputs: torch.Tensor) -> Any:
        return self.form(inputs.bfloat16())

    def train(self, mode: bool) -> None:
        pass


def loss_by_attribute(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(
        outputs if isinstance(outputs, torch.Tensor) else outputs.logits, targets
    )


@pytest.mark.parametrize("form", [lambda found: found, lambda found: Answer(logits=found)])
def test_metrics_of_outputs_in_half_precision_are_computed_in_single_precision(form: Any) -> None:
    source = Source(ArraySplit(INPUTS, TARGETS), torch.device("cpu"))
    metrics = {
        "loss": mean_over_samples(loss_by_attribute),
        **load_metrics({"perplexity": "perplexity"}, "classification"),
    }
    found = evaluate(Rounded(form), source, metrics, batch=8, worker=Worker(0, 1))
    rounded, targets = torch.from_numpy(INPUTS).bfloat16(), torch.from_numpy(TARGETS)
    assert output_in(form(rounded)).dtype == torch.bfloat16
    expected = functional.cross_entropy(rounded.double(), targets).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    assert found["perplexity"] == pytest.approx(np.exp(expected), rel=1e-6)
