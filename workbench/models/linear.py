"""Linear and logistic models, fitted to all samples at once.

Inputs are kept within the range of the train samples, so that a row far outside cannot get an
absurd answer.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.models.trees import UNSEEN

_MAX_STEPS = 300


class LinearModel(nn.Module):
    """A weighted sum of the inputs for each output."""

    low: Tensor
    high: Tensor

    def __init__(self, num_features: int, num_outputs: int) -> None:
        """Build it with PyTorch's default initialisation and a range that holds every input."""
        super().__init__()
        self.register_buffer("low", torch.full((num_features,), -float("inf")))
        self.register_buffer("high", torch.full((num_features,), float("inf")))
        self.sum = nn.Linear(num_features, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) numbers to (batch, num_outputs)."""
        rows = inputs.flatten(1)
        return self.sum(torch.minimum(torch.maximum(rows, self.low), self.high))


def fit_linear(
    inputs: np.ndarray, targets: np.ndarray, *, num_classes: int | None, l2: float
) -> LinearModel:
    """Fit a ridge regression, or a logistic regression for classes.

    Args:
        inputs: Train samples as (samples, features).
        targets: Class numbers, or numbers as (samples,) or (samples, numbers).
        num_classes: Number of classes; None for a regression.
        l2: L2 regularisation of the weights, as of scikit-learn's `Ridge` and as the inverse of the
            `C` of its `LogisticRegression`.
    """
    weights, bias = (
        _fit_numbers(inputs, targets, l2)
        if num_classes is None
        else _fit_classes(inputs, targets, num_classes, l2)
    )
    model = LinearModel(inputs.shape[1], len(weights))
    with torch.no_grad():
        for kept, values in ((model.sum.weight, weights), (model.sum.bias, bias)):
            kept.copy_(torch.from_numpy(np.asarray(values, dtype=np.float32)))
    model.low, model.high = (
        torch.from_numpy(np.asarray(ends, dtype=np.float32))
        for ends in (inputs.min(axis=0), inputs.max(axis=0))
    )
    return model


def _fit_numbers(inputs: np.ndarray, targets: np.ndarray, l2: float) -> tuple[Any, Any]:
    from sklearn.linear_model import Ridge

    columns = targets.reshape(len(targets), -1)
    fitted = Ridge(alpha=l2).fit(inputs.astype(np.float64), columns)
    return np.asarray(fitted.coef_).reshape(columns.shape[1], -1), np.ravel(fitted.intercept_)


def _fit_classes(
    inputs: np.ndarray, targets: np.ndarray, num_classes: int, l2: float
) -> tuple[Any, Any]:
    from sklearn.linear_model import LogisticRegression

    places = np.unique(targets)
    weights = np.zeros((num_classes, inputs.shape[1]))
    bias = np.full(num_classes, -UNSEEN)
    bias[places] = 0.0
    if len(places) == 1:
        return weights, bias
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits have not converged matters to nobody
        fitted: Any = LogisticRegression(C=1.0 / l2, max_iter=_MAX_STEPS)
        fitted.fit(inputs.astype(np.float64), targets)
    scored = places[1:] if len(places) == 2 else places
    weights[scored], bias[scored] = fitted.coef_, fitted.intercept_
    unseen = np.setdiff1d(np.arange(num_classes), places)
    bias[unseen] = bias.min() - UNSEEN
    return weights, bias
