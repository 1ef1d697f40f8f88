"""Evaluation by client: every metric over all validation samples, and how far clients are apart.

Batches are cut by client, whatever the number of workers, and their totals are added in the order
of the clients: so the values are the same, bit for bit, on any number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workbench.experiment.federated import SPREADS
from workbench.models.metrics import AnyMetric, Metric
from workbench.training.evaluation import Predictor, in_parts_and_whole, measure_own, measure_whole
from workbench.training.federated.partitions import Shards
from workbench.training.source import Source
from workbench.training.strategies.strategy import Worker

_ALONE = Worker()


def evaluate_clients(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, AnyMetric],
    shards: Shards,
    *,
    batch: int,
    worker: Worker,
) -> dict[str, float]:
    """Measure metrics on the validation samples of all clients.

    Args:
        strategy: Holds the model.
        source: The validation samples.
        metrics: What to measure, by name.
        shards: The samples of each client.
        batch: Samples at once.
        worker: Which worker this is; each measures its part of the batches.

    Returns:
        The value of each metric over all samples, and the spread over the clients that have
        samples.
    """
    means, whole = in_parts_and_whole(metrics)
    parts = [
        (client, shard[first : first + batch])
        for client, shard in enumerate(shards)
        for first in range(0, len(shard), batch)
    ]
    strategy.train(False)
    own = [
        _measure(strategy, source, means, indices, keeps=bool(whole))
        for _, indices in parts[worker.rank :: worker.num_workers]
    ]
    strategy.train(True)
    gathered = worker.group.gather(own)
    measured = [
        gathered[at % worker.num_workers][at // worker.num_workers] for at in range(len(parts))
    ]
    clients = np.array([client for client, _ in parts])
    values: dict[str, float] = {}
    for index, (name, metric) in enumerate(means.items()):
        totals = np.array([numbers[index] for numbers, _ in measured])
        values[name] = metric.finish(float(totals[:, 0].sum() / totals[:, 1].sum()))
        if name == "loss" and len(metrics) > 1:
            continue
        each = [totals[clients == client].sum(axis=0) for client in np.unique(clients)]
        values |= _spread(
            name, np.array([metric.finish(float(sums[0] / sums[1])) for sums in each if sums[1]])
        )
    kept = [each for _, outputs in measured for each in outputs]
    values |= measure_whole(whole, kept, worker.device)
    functions = {name: item for name, item in whole.items() if isinstance(item, Metric)}
    if len(metrics) > 1:
        functions.pop("loss", None)
    if functions:
        of_clients = [
            measure_whole(functions, [each for part in some for each in part], worker.device)
            for client in np.unique(clients)
            if (some := [measured[at][1] for at in np.flatnonzero(clients == client)])
        ]
        for name in functions:
            values |= _spread(name, np.array([each[name] for each in of_clients]))
    return values


def _measure(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, Metric],
    indices: np.ndarray,
    *,
    keeps: bool,
) -> tuple[list[tuple[float, float]], list[tuple[Any, Any]]]:
    """Return total and count of each metric over one batch, and its outputs where these are
    needed.
    """
    kept: list[tuple[Any, Any]] | None = [] if keeps else None
    totals, counts = measure_own(
        strategy,
        source,
        metrics,
        indices,
        batch=len(indices),
        worker=_ALONE,
        kept=kept,
        keeps_all=keeps,
    )
    return [
        (float(totals[name]), float(torch.as_tensor(counts[name]))) for name in metrics
    ], kept or []


def _spread(name: str, values: np.ndarray) -> dict[str, float]:
    found = (values.min(), values.max(), values.std())
    return {
        f"{name}_client_{kind}": float(value) for kind, value in zip(SPREADS, found, strict=True)
    }
