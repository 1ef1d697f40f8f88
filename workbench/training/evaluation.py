"""Evaluates metrics exactly, however samples are cut into batches and divided among workers.

Validation samples are measured during a training, together with the size and the latency of the
model. The test samples are measured only once, at the end, with the weights that the trial keeps.
They are never used for training, selection or pruning. If the test fails, the training still
counts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch

from workbench.data.splits import Prompt
from workbench.experiment import Experiment
from workbench.experiment.goals import LATENCY, SIZE
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.attachments import Attachment, attachment_of
from workbench.foundation.errors import ExperimentError, RunError, first_line_of
from workbench.foundation.events import Event, Noted, TrialTested
from workbench.models import batch_parts
from workbench.models.metrics import AnyMetric, BatchMetric, WholeMetric, predicted_classes
from workbench.models.model_calls import map_outputs, map_tensors, output_in
from workbench.models.pairing import Pairing
from workbench.training import checkpoint
from workbench.training.assembly import Parts
from workbench.training.strategies.strategy import StatisticsRenewing, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch
from workbench.training.worker_task import BEST, TrialTask

MAX_AT_ONCE_BYTES = 256 << 20
"""Maximum size of the validation inputs for metrics that need all samples at once."""
_NUM_LATENCIES = 11
_OF_TRAINED = ("trained", "averaged")
"""Keys of a checkpoint whose mean weights are kept. They hold the weights that are trained."""


class Predictor(Protocol):
    """The part of a strategy that an evaluation needs."""

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch, or None if another worker of the replica has them."""
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
        metrics: The metrics by name.
        batch: Samples at once.
        worker: Which worker this is. Each worker measures its part.

    Returns:
        The value of each metric over all samples of the split.
    """
    means, whole = in_parts_and_whole(metrics)
    kept: list[tuple[Any, Any]] | None = [] if whole else None
    keeps_classes = whole_classes(whole)
    strategy.train(False)
    totals, counts = measure_own(
        strategy,
        source,
        means,
        source.all_indices,
        batch=batch,
        worker=worker,
        kept=kept,
        keeps_classes=keeps_classes,
        keeps_all=any(isinstance(item, BatchMetric) for item in whole.values()),
    )
    strategy.train(True)
    values = _finish(means, totals, counts, worker)
    if kept is not None:
        # Each worker has measured one part of the samples, so this is in the order of the samples.
        gathered = [pair for part in worker.group.gather(kept) for pair in part]
        values |= measure_whole(whole, gathered, worker.device)
    return {name: values[name] for name in metrics}


def evaluate_at_once(
    strategy: Predictor, source: Source, metrics: Mapping[str, AnyMetric], *, device: torch.device
) -> dict[str, float]:
    """Measure metrics that your code computes from all samples together, on each worker.

    Args:
        strategy: Holds the model.
        source: The split.
        metrics: The metrics by name.
        device: The worker's device.

    Raises:
        ExperimentError: If there are too many samples to evaluate at once.
    """
    inputs, _ = source.fetch(source.all_indices[:1])
    sizes: list[int] = []
    map_tensors(lambda tensor: sizes.append(tensor.nbytes), inputs)
    if sum(sizes) * len(source) > MAX_AT_ONCE_BYTES:
        whole = [name for name, item in metrics.items() if _needs_all(item)]
        raise ExperimentError(
            f"evaluate returns {', '.join(whole)}, which is not a mean over samples, and the"
            " validation data is too large to evaluate at once",
            field="train",
            next_step="Return a total and a count from evaluate instead, or remove the metric.",
        )
    alone = Worker(0, 1, device, Group(0, 1, device, None))
    adding = {
        name: dataclasses.replace(item, adds_up=True) if isinstance(item, BatchMetric) else item
        for name, item in metrics.items()
    }
    return evaluate(strategy, source, adding, batch=len(source), worker=alone)


def measure_split(parts: Parts, source: Source) -> dict[str, float]:
    """Measure the metrics of a training on some samples. All workers must call it.

    Args:
        parts: The training.
        source: The samples.
    """
    strategy = parts.strategy
    worker = parts.worker
    metrics = parts.metrics
    needs_all = any(map(_needs_all, metrics.values()))
    if parts.makes_own_steps and needs_all:
        return evaluate_at_once(strategy, source, metrics, device=worker.device)
    return evaluate(strategy, source, metrics, batch=parts.settings.plan.micro_batch, worker=worker)


def answer(parts: Parts) -> Attachment | None:
    """Let the model answer the prompts of the data. All workers must call it.

    It writes the most likely token each time.

    Args:
        parts: The training.

    Returns:
        A table of prompts, answers, and the answers in the data. None if there are no prompts.
    """
    prompts = parts.datasets.prompts
    if not prompts:
        return None
    parts.strategy.train(False)
    rows = [
        {
            "prompt": prompt.decode(prompt.tokens.tolist()),
            "answer": prompt.decode(_continued(parts, prompt)),
            "expected": prompt.decode(prompt.expected.tolist()),
        }
        for prompt in prompts
    ]
    parts.strategy.train(True)
    return attachment_of("answers", rows)


def _continued(parts: Parts, prompt: Prompt) -> list[int]:
    worker = parts.worker
    tokens = torch.from_numpy(prompt.tokens.astype(np.int64)).to(worker.device)[None]
    written: list[int] = []
    while len(written) < prompt.most_tokens:
        outputs = parts.strategy.predict({"input_ids": tokens, "num_scores": 1})
        own = None if outputs is None else int(outputs.logits[0, -1].argmax())
        # All workers continue with the same token, and stop together.
        token = next(item for item in worker.group.gather(own) if item is not None)
        written.append(token)
        if token == int(prompt.expected[-1]):
            break
        tokens = torch.cat([tokens, tokens.new_tensor([[token]])], dim=1)
    return written


def measure_kept(
    task: TrialTask, parts: Parts, report: Callable[[Event], bool], *, has_kept_weights: bool
) -> None:
    """Measure the weights that a trial keeps on the test samples, if the data has some.

    All workers must call it, after the last step, because it may replace the weights of the
    strategy.

    Args:
        task: The order.
        parts: The training, which is complete.
        report: Receives events. Called on rank 0 only.
        has_kept_weights: Whether the strategy has the weights that the trial keeps. Otherwise they
            are read from the checkpoint.
    """
    split = parts.datasets.test
    if split is None or not len(split):
        return
    try:
        if not has_kept_weights:
            parts.strategy.load(_kept(task.checkpoints))
        source = Source(split, parts.worker.device, part="test")
        values = measure_split(parts, source)
    except Exception as error:
        if parts.worker.rank == 0:
            report(failed_test(task, error))
        return
    if parts.worker.rank == 0:
        report(tested(task, values))


def renew_statistics(
    strategy: Strategy,
    source: Source,
    batches: Iterable[np.ndarray],
    *,
    micro_batch: int,
    worker: Worker,
) -> None:
    """Compute the statistics of batch normalisation again for mean weights, if needed.

    Args:
        strategy: Holds the model.
        source: The training samples.
        batches: The samples of each batch of an epoch.
        micro_batch: Samples that one worker computes at once.
        worker: Which worker this is.
    """
    strategy.train(False)
    if isinstance(strategy, StatisticsRenewing) and strategy.needs_statistics:
        parts = (
            WorkerBatch(
                source,
                indices,
                micro_batch=micro_batch,
                replica=worker.replica,
                num_replicas=worker.num_replicas,
            )
            for indices in batches
        )
        strategy.renew_statistics(inputs for part in source.ahead(parts) for inputs, _, _ in part)


def in_parts_and_whole(
    metrics: Mapping[str, AnyMetric],
) -> tuple[dict[str, BatchMetric], dict[str, AnyMetric]]:
    """Return the metrics whose parts add up, and the metrics that need all outputs."""
    means = {
        name: item
        for name, item in metrics.items()
        if isinstance(item, BatchMetric) and item.adds_up is True
    }
    return means, {name: item for name, item in metrics.items() if name not in means}


def whole_classes(metrics: Mapping[str, AnyMetric]) -> Pairing | None:
    """Return how outputs meet targets if metrics only need the predicted classes, or else None.

    Args:
        metrics: Metrics over all outputs, by name.
    """
    whole = [metric for metric in metrics.values() if isinstance(metric, WholeMetric)]
    if not whole or len(whole) < len(metrics) or not all(metric.reads_classes for metric in whole):
        return None
    return whole[0].pairing


def measure_own(
    strategy: Predictor,
    source: Source,
    metrics: Mapping[str, BatchMetric],
    indices: np.ndarray,
    *,
    batch: int,
    worker: Worker,
    kept: list[tuple[Any, Any]] | None = None,
    keeps_classes: Pairing | None = None,
    keeps_all: bool = False,
) -> tuple[dict[str, torch.Tensor], dict[str, int | torch.Tensor]]:
    """Measure metrics on one worker's part of some samples.

    Args:
        strategy: Holds the model, which is in evaluation mode.
        source: The split.
        metrics: The metrics by name.
        indices: The samples, over all workers.
        batch: Samples at once.
        worker: Which worker this is.
        kept: Receives the outputs and targets of each batch, on the CPU.
        keeps_classes: How outputs meet targets, if `kept` only receives the predicted and the true
            classes.
        keeps_all: Whether `kept` receives the whole result of the model, not only the output that
            is compared with targets.

    Returns:
        The total and the count of each metric. A worker without samples has no totals.
    """
    totals: dict[str, torch.Tensor] = {}
    counts: dict[str, int | torch.Tensor] = dict.fromkeys(metrics, 0)
    own = WorkerBatch(
        source, indices, micro_batch=batch, replica=worker.replica, num_replicas=worker.num_replicas
    )
    for inputs, targets, weight in source.micro_batches(own):
        outputs = strategy.predict(inputs)
        if weight == 0.0 or outputs is None:  # another worker of the replica has them
            continue
        outputs = in_single_precision(outputs)
        if kept is not None:
            pair = (outputs if keeps_all else output_in(outputs)), targets
            if keeps_classes is not None:
                pair = predicted_classes(outputs, targets, keeps_classes, "a metric")
            kept.append((_on_cpu(pair[0]), _on_cpu(pair[1])))
        with torch.inference_mode():
            for name, metric in metrics.items():
                total, count = metric.measure(outputs, targets)
                totals[name] = totals[name] + total if name in totals else total
                counts[name] += count
    return totals, counts


def measure_whole(
    whole: Mapping[str, AnyMetric], batches: list[tuple[Any, Any]], device: torch.device
) -> dict[str, float]:
    """Return the values of metrics over all outputs of an evaluation.

    Args:
        whole: The metrics.
        batches: Outputs and targets in the order of the samples, on the CPU.
        device: The device where your function may keep tensors.

    Raises:
        ExperimentError: If a metric needs all outputs, but their shapes differ.
    """
    values: dict[str, float] = {}
    together: tuple[Any, Any] | None = None
    for name, metric in whole.items():
        if isinstance(metric, WholeMetric):
            values[name] = metric.compute((output_in(made), targets) for made, targets in batches)
            continue
        fits = all(batch_parts.is_joinable([pair[side] for pair in batches]) for side in (0, 1))
        if fits or metric.adds_up is False:
            if together is None:
                _check_joinable(name, batches)
                together = tuple(
                    batch_parts.joined([pair[side] for pair in batches]) for side in (0, 1)
                )
            total, count = _measured(metric, *together, device)
        else:
            measured = [_measured(metric, *pair, device) for pair in batches]
            total = sum(part for part, _ in measured)
            count = sum(part for _, part in measured)
        values[name] = metric.finish(total / count if count else math.nan)
    return values


def in_single_precision(outputs: Any) -> Any:
    """Return outputs in single precision. In half precision, metrics would have only three digits.

    Args:
        outputs: The result of a model.
    """

    def convert(values: torch.Tensor) -> torch.Tensor:
        if values.dtype in (torch.bfloat16, torch.float16):
            return values.float()
        return values

    return map_outputs(convert, outputs)


def tested(task: TrialTask, values: Mapping[str, float]) -> TrialTested:
    """Return the event of a measurement on the test samples.

    Args:
        task: The order.
        values: The values by metric.
    """
    named = {f"test_{name}": value for name, value in values.items()}
    return TrialTested(trial=task.trial, attempt=task.attempt, values=named)


def failed_test(task: TrialTask, error: Exception) -> Noted:
    """Return the note that the test samples could not be used.

    Args:
        task: The order.
        error: Why.
    """
    message = f"the test samples could not be measured: {first_line_of(error)}"
    return Noted(level="warning", message=message, trial=task.trial)


class ModelCosts:
    """Measures the size of a model and how long it takes to predict a sample."""

    def __init__(self, experiment: Experiment, model_bytes: int) -> None:
        """Find out which costs to measure.

        Args:
            experiment: The experiment, whose objectives and constraints decide.
            model_bytes: Size of the parameters of the whole model.
        """
        self._wanted = {
            target.metric for target in (*experiment.objectives, *experiment.constraints)
        }
        self._model_bytes = model_bytes

    def measure(self, strategy: Strategy, source: Source, worker: Worker) -> dict[str, float]:
        """Return the costs by metric. All workers must call it, after an evaluation.

        Args:
            strategy: Holds the model, which is in evaluation mode.
            source: The split whose first sample is predicted.
            worker: Which worker this is. Only rank 0 measures time.
        """
        costs: dict[str, float] = {}
        if SIZE in self._wanted:
            costs[SIZE] = float(self._model_bytes)
        if LATENCY in self._wanted:
            costs[LATENCY] = _latency_s(strategy, source, worker)
        return costs


def _measured(
    metric: BatchMetric, outputs: Any, targets: Any, device: torch.device
) -> tuple[float, float]:
    with torch.inference_mode():
        try:
            total, count = metric.measure(outputs, targets)
        except RuntimeError:  # the metric may have tensors on the device, such as class weights
            if device.type == "cpu":
                raise
            there = functools.partial(map_tensors, lambda tensor: tensor.to(device))
            total, count = metric.measure(there(outputs), there(targets))
    return float(total), float(count)


def _check_joinable(name: str, batches: list[tuple[Any, Any]]) -> None:
    """Check that the outputs of all batches can be joined."""
    compared = [output_in(outputs) for outputs, _ in batches]
    shapes = {tuple(item.shape[1:]) for item in compared if isinstance(item, torch.Tensor)}
    if len(shapes) > 1:
        raise ExperimentError(
            f"{name} is not a mean over samples, so it needs all outputs, but their shapes cannot"
            f" be joined: {' and '.join(map(str, sorted(shapes)))}",
            field="metrics",
            allowed="(total, count), or a class with update and compute",
            next_step=(
                f"Return a total and a count from {name}, or write a class with update and compute."
            ),
        )


def _finish(
    metrics: Mapping[str, BatchMetric],
    totals: Mapping[str, torch.Tensor],
    counts: Mapping[str, int | torch.Tensor],
    worker: Worker,
) -> dict[str, float]:
    """Add up over the workers, and divide."""
    if not metrics:
        return {}
    nothing = torch.zeros((), dtype=torch.float64)  # of a worker without samples
    numbers = [
        *(totals.get(name, nothing) for name in metrics),
        *(counts[name] for name in metrics),
    ]
    with torch.inference_mode():
        own = [torch.as_tensor(number).to(worker.device, torch.float64) for number in numbers]
        values = worker.group.total(torch.stack(own)).tolist()
    sums = zip(metrics.items(), values[: len(metrics)], values[len(metrics) :], strict=True)
    return {name: metric.finish(total / count) for (name, metric), total, count in sums}


def _needs_all(metric: AnyMetric) -> bool:
    """Return whether a metric has turned out not to be a mean over samples."""
    return getattr(metric, "adds_up", True) is False


def _on_cpu(values: Any) -> Any:
    moved = map_tensors(torch.Tensor.cpu, values)
    # Keep the type, because a metric may read its attributes.
    if isinstance(values, Mapping) and type(values) is not dict:
        return type(values)(moved)  # type: ignore[call-arg]
    return moved


def _latency_s(strategy: Strategy, source: Source, worker: Worker) -> float:
    inputs, _ = source.fetch(source.all_indices[:1])
    seconds = []
    for _ in range(1 + _NUM_LATENCIES):  # the first prediction warms up
        began_s = perf_counter()
        strategy.predict(inputs)
        if worker.device.type == "cuda":
            torch.cuda.synchronize(worker.device)
        seconds.append(perf_counter() - began_s)
    own = median(seconds[1:]) if worker.rank == 0 else 0.0
    return worker.group.total(torch.tensor(own, dtype=torch.float64, device=worker.device)).item()


def _kept(folder: Artifacts) -> dict[str, Any]:
    if not folder.exists(BEST):
        raise RunError("the trial has not saved any weights")
    with checkpoint.fetched(folder, BEST) as path:
        state = checkpoint.read(path)["strategy"]
    return {name: value for name, value in state.items() if name not in _OF_TRAINED}
