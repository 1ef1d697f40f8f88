"""Of what a model returns, its output is found by its name, whatever stands before it."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from workbench.models.model_calls import output_in

MAIN, OTHER = torch.ones(4, 3), torch.zeros(4, 3)
Named = namedtuple("Named", "hidden pred")


@dataclass
class Answer:
    features: torch.Tensor
    y_hat: torch.Tensor


@pytest.mark.parametrize(
    "outputs",
    [
        MAIN,
        (MAIN, OTHER),
        {"aux": OTHER, "out": MAIN},
        OrderedDict(aux=OTHER, output=MAIN),
        {"out": OTHER, "logits": MAIN},
        {"hidden": OTHER, "prediction": MAIN, "loss": torch.tensor(0.5)},
        {"first": MAIN, "second": OTHER},
        {"out": torch.tensor(0.5), "first": MAIN},
        Named(OTHER, MAIN),
        Answer(OTHER, MAIN),
    ],
)
def test_the_output_is_found_by_its_name(outputs: Any) -> None:
    assert output_in(outputs) is MAIN
