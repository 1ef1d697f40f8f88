"""Metrics that are no means over samples, measured by workers.

Light to import, as each worker does it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data.splits import ArraySplit
from workbench.models.adapters import load_metrics
from workbench.training.evaluation import evaluate
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source

# Metrics: outputs are the inputs themselves, in an order that makes parts differ.
SCORES = np.sort(np.random.default_rng(0).normal(size=37)).astype(np.float32)
LABELS = (SCORES + np.random.default_rng(1).normal(size=37) > 0.6).astype(np.int64)
NUMBERS = (SCORES + np.random.default_rng(2).normal(size=37)).astype(np.float32)


def auc(outputs: Tensor, targets: Tensor) -> Tensor:
    is_right = targets > 0.5
    differences = outputs[is_right] - outputs[~is_right].T
    return (differences > 0).float().mean()


def f1(outputs: Tensor, targets: Tensor) -> Tensor:
    is_right, is_named = targets > 0.5, outputs[:, 0] > 0.7
    return 2.0 * (is_right & is_named).sum() / (is_right.sum() + is_named.sum())


def r2(outputs: Tensor, targets: Tensor) -> Tensor:
    targets = targets.float()
    return 1 - (targets - outputs[:, 0]).square().sum() / (targets - targets.mean()).square().sum()


def correlation(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.corrcoef(torch.stack([outputs[:, 0], targets.float()]))[0, 1]


def median_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).abs().median()


def geometric_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).abs().clamp(min=1e-3).log().mean().exp()


def root_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean().sqrt()


def largest(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """Return what is stated as a total and a count, and does not add up."""
    return (outputs[:, 0] - targets).abs().max() * len(targets), len(targets)


FUNCTIONS: list[Any] = [auc, f1, r2, correlation, median_error, geometric_mean, root_mean, largest]


class Identity:
    def predict(self, inputs: Any) -> Any:
        return inputs

    def train(self, mode: bool) -> None:
        pass


def measure(
    rank: int, num_workers: int, meeting: str | None, batches: tuple[int, ...]
) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    metrics = load_metrics({function.__name__: function for function in FUNCTIONS}, "regression")
    worker, results = Worker(rank, num_workers, group=group), []
    for targets in (NUMBERS, LABELS):
        source = Source(ArraySplit(SCORES[:, None], targets), torch.device("cpu"))
        results += [
            evaluate(Identity(), source, metrics, batch=batch, worker=worker) for batch in batches
        ]
    group.close()
    return results
