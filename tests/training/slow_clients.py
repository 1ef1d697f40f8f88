"""Digits of four clients, and a model that takes long with those of the first."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data import Datasets, load
from workbench.data.splits import ArraySplit

_SIGN, _SLOW_S = 100.0, 2.0


def data(options: dict[str, Any]) -> Datasets:
    """Return digits, of which those of client 0 begin with a number that no pixel has."""
    digits = load("digits", {})
    splits, owners = [], []
    for split in (digits.train, digits.validation):
        inputs, targets = split.batch(np.arange(80))
        values, owner = np.array(inputs), np.arange(80) % 4
        values[owner == 0, 0, 0, 0] = _SIGN
        splits.append(ArraySplit(values, np.asarray(targets)))
        owners.append(owner)
    return Datasets(
        name="digits",
        train=splits[0],
        validation=splits[1],
        input_shape=digits.input_shape,
        num_outputs=10,
        task="classification",
        owners=(owners[0], owners[1]),
    )


class Model(nn.Module):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and bool((inputs[:, 0, 0, 0] == _SIGN).any()):
            time.sleep(_SLOW_S)
        return self.linear(torch.clamp(inputs, -3, 3).flatten(1))


def build(config: dict[str, Any]) -> nn.Module:
    return Model()
