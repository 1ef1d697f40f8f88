"""Evaluation: every metric exactly, however the samples are cut into batches and shared by workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch

from workbench.models.calls import map_tensors, output_in
from workbench.models.metrics import AnyMetric, Metric, WholeMetric, predicted_classes
from workbench.models.pairing import Pairing
from workbench.strategies.strategy import StatisticsRenewing, Strategy, Worker
from workbench.training.source import Source, WorkerBatch


class Predictor(Protocol):
    """What of a strategy an evaluation needs."""

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch; None where another worker of the replica has them."""
        ...

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off."""
        ...


def evaluate(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, AnyMetric],
    *,
    batch: int,
    worker: Worker,
) -> dict[str, float]:
    """Measure metrics on a split.

    Args:
        strategy: Holds the model.
        source: The split.
        metrics: What to measure, by name.
        batch: Samples at once.
        worker: Which worker this is; each measures its part.

    Returns:
        The value of each metric over all samples of the split.
    """
    whole = {name: metric for name, metric in metrics.items() if isinstance(metric, WholeMetric)}
    means = {name: metric for name, metric in metrics.items() if isinstance(metric, Metric)}
    kept: list[tuple[Any, Any]] | None = [] if whole else None
    keeps_classes = whole_classes(whole)
    strategy.train(False)
    totals, counts = measure_own(
        strategy, source, means, source.all_indices, batch=batch, worker=worker, kept=kept,
        keeps_classes=keeps_classes,
    )  # fmt: skip
    strategy.train(True)
    values = _finish(means, totals, counts, worker)
    if kept is not None:
        # In the order of the samples: each worker measured one part of them after the other.
        gathered = [each for part in worker.group.gather(kept) for each in part]
        values |= {name: metric.compute(gathered) for name, metric in whole.items()}
    return {name: values[name] for name in metrics}


def whole_classes(metrics: Mapping[str, WholeMetric]) -> Pairing | None:
    """Return how outputs meet targets where all of some metrics need no more than the predicted classes.

    Args:
        metrics: Metrics of a whole set, by name.
    """
    if not metrics or not all(metric.reads_classes for metric in metrics.values()):
        return None
    return next(iter(metrics.values())).pairing


def in_single_precision(outputs: Any) -> Any:
    """Return outputs for metrics: what is computed of half precision would have three digits.

    Args:
        outputs: What a model returned.
    """

    def convert(values: torch.Tensor) -> torch.Tensor:
        return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values

    if isinstance(outputs, Mapping):  # of its type, since a loss may read attributes of it
        return type(outputs)(map_tensors(convert, outputs))  # type: ignore[call-arg]
    return map_tensors(convert, outputs)


def renew_statistics(
    strategy: Strategy, source: Source, batches: Iterable[np.ndarray], *, micro_batch: int, worker: Worker
) -> None:
    """Let batch normalisation see the training samples through the weights that are evaluated, if it has to.

    Args:
        strategy: Holds the model.
        source: The training samples.
        batches: Which of them make the batches of an epoch.
        micro_batch: Samples that one worker takes at once.
        worker: Which worker this is.
    """
    strategy.train(False)
    if isinstance(strategy, StatisticsRenewing) and strategy.needs_statistics:
        parts = (
            WorkerBatch(
                source, indices, micro_batch=micro_batch, replica=worker.replica,
                num_replicas=worker.num_replicas,
            )
            for indices in batches
        )  # fmt: skip
        strategy.renew_statistics(inputs for part in source.ahead(parts) for inputs, _, _ in part)


def _finish(
    metrics: Mapping[str, Metric],
    totals: Mapping[str, torch.Tensor],
    counts: Mapping[str, int | torch.Tensor],
    worker: Worker,
) -> dict[str, float]:
    """Add up over the workers, and divide."""
    sums = [totals[name].double() if name in totals else torch.zeros(()).double() for name in metrics]
    with torch.inference_mode():
        own = torch.stack(
            [
                *(item.to(worker.device) for item in sums),
                *(
                    torch.tensor(float(counts[name]), dtype=torch.float64, device=worker.device)
                    for name in metrics
                ),
            ]
        )
        values = worker.group.total(own).tolist()
    return {
        name: metric.finish(values[index] / values[len(metrics) + index])
        for index, (name, metric) in enumerate(metrics.items())
    }


def measure_own(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, Metric],
    indices: np.ndarray,
    *,
    batch: int,
    worker: Worker,
    kept: list[tuple[Any, Any]] | None = None,
    keeps_classes: Pairing | None = None,
) -> tuple[dict[str, torch.Tensor], dict[str, int | torch.Tensor]]:
    """Measure metrics on one worker's part of some samples.

    Args:
        strategy: Holds the model, which is not training at the moment.
        source: The split.
        metrics: What to measure, by name.
        indices: The samples, over all workers.
        batch: Samples at once.
        worker: Which worker this is.
        kept: Receives the outputs and targets of each batch, on the CPU.
        keeps_classes: How outputs meet targets, where it receives predicted and right classes in their place.

    Returns:
        By metric, a total and of how many it is; a worker without samples has no totals.
    """
    totals: dict[str, torch.Tensor] = {}
    counts: dict[str, int | torch.Tensor] = dict.fromkeys(metrics, 0)
    own = WorkerBatch(
        source, indices, micro_batch=batch, replica=worker.replica, num_replicas=worker.num_replicas
    )
    for inputs, targets, weight in (each for whole in source.ahead([own]) for each in whole):
        outputs = strategy.predict(inputs)
        if weight == 0.0 or outputs is None:  # another worker of the replica has them
            continue
        outputs = in_single_precision(outputs)
        if kept is not None:
            pair = output_in(outputs), targets
            if keeps_classes is not None:
                pair = predicted_classes(outputs, targets, keeps_classes, "a metric")
            kept.append(map_tensors(torch.Tensor.cpu, pair))
        with torch.inference_mode():
            for name, metric in metrics.items():
                total, count = metric.measure(outputs, targets)
                totals[name] = totals[name] + total if name in totals else total
                counts[name] += count
    return totals, counts
