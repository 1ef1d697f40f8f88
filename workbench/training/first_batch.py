"""Checks before the first step whether outputs, targets, loss and metrics fit together.

The outputs of a few validation samples are computed once, without gradients, and every loss and
metric is applied to them. All targets in memory are checked now. Others are checked whenever they
are read.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook

from workbench.data import Split
from workbench.data.batches import worker_part
from workbench.data.targets import known_targets
from workbench.experiment.plan import Plan
from workbench.foundation.errors import ExperimentError, WorkbenchError, first_line_of
from workbench.models.metrics import AnyMetric, WholeMetric, kind_read_by
from workbench.models.model_calls import describe_inputs, loss_in, map_tensors, output_in
from workbench.models.own_functions import check_function, check_pairs
from workbench.models.pairing import Kind
from workbench.training.assembly import Parts
from workbench.training.evaluation import in_single_precision
from workbench.training.loss_division import find_division, refuse_division
from workbench.training.tensor_source import Source, WorkerBatch

_ABOUT_TYPES = re.compile(r"\bd?types?\b|expected scalar type|\bDouble\b|\bHalf\b", re.IGNORECASE)
"""Words in torch's errors about types that do not match."""
_SAME = 0.01
"""Outputs with at most this relative difference count as equal. Rounding depends on the batch size.
"""
_NUM_SAMPLES = 16
"""Number of samples to compute. A smaller micro batch gives fewer, but at least two."""
_checked: dict[str, tuple[weakref.ref[Split], object]] = {}
"""The splits whose targets have been checked, by part. Trials of a run on a warm worker share them.
"""


def check_first_batch(parts: Parts, *, plan: Plan | None = None, is_checked: bool = False) -> None:
    """Check before the first step that loss and metrics can compare outputs and targets.

    Args:
        parts: Everything that the loop of the trial needs.
        plan: The plan to check, if `parts` is only one of several workers. None checks its own.
        is_checked: Whether an earlier attempt has checked the same. Then it is only found out how
            the loss may be divided.

    Raises:
        WorkbenchError: If they cannot. It shows both shapes and what to change.
    """
    if parts.makes_own_steps or is_checked:
        find_division(parts)
        refuse_division(parts, plan)
        return
    size = min(len(parts.validation), max(2, min(_NUM_SAMPLES, parts.settings.plan.micro_batch)))
    parts.strategy.train(False)
    try:
        devices = [parts.worker.device] if parts.worker.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), _seeing_normalisation() as alone:
            outputs, targets = _compare(parts, size)
            # If another dimension has the same length, it is unclear which one is the samples.
            is_alone = parts.worker.workers_per_replica == 1  # others may not have the outputs
            if is_alone and size > 2 and size in _sizes(outputs, targets):
                _compare(parts, size - 1)
    finally:
        parts.strategy.train(True)
    if any(module.training for module in alone):
        _refuse_single_samples(parts)
    find_division(parts)
    refuse_division(parts, plan)
    if outputs is None:  # another worker of the replica has them
        return
    returns_loss = loss_in(outputs) is not None and not parts.pairing.returns_outputs
    _check_targets(parts, None if returns_loss else parts.loss_kind)


def note_on_mixed_samples(parts: Parts) -> str | None:
    """Return a note if the model's output for a sample depends on other samples in its batch.

    That happens if the model expects the dimensions in another order. Its metrics then depend on
    the batch size of the evaluation, and predictions for single samples differ.

    Args:
        parts: Everything that the loop of the trial needs.
    """
    is_alone = parts.worker.num_workers == 1  # others would have to predict at the same time
    if parts.makes_own_steps or not is_alone or parts.settings.plan.compile == "default":
        return None
    num = min(len(parts.validation), _NUM_SAMPLES)
    source = parts.validation
    batch = WorkerBatch(source, source.all_indices[:num], micro_batch=num)
    [(inputs, _, _)] = source.micro_batches(batch)
    lengths: list[int] = []
    map_tensors(lambda tensor: lengths.append(len(tensor) if tensor.ndim else 0), inputs)
    if num < 2 or not lengths or set(lengths) != {num}:
        return None
    parts.strategy.train(False)
    try:
        with torch.random.fork_rng(devices=[]):
            first, again = (output_in(parts.strategy.predict(inputs)) for _ in range(2))
            half = map_tensors(lambda tensor: tensor[: num // 2], inputs)
            alone = output_in(parts.strategy.predict(half))
    except Exception:  # the training reports the model's error
        return None
    finally:
        parts.strategy.train(True)
    answers = (first, again, alone)
    if (
        not all(isinstance(answer, torch.Tensor) and answer.ndim for answer in answers)
        or len(first) != num
    ):
        return None
    # If the same samples get different outputs, the model draws at random.
    if not _are_close(first, again) or _are_close(first[: num // 2], alone):
        return None
    return (
        "the model's output for a sample depends on the other samples in its batch, so its metrics"
        " depend on the batch size. Maybe the model mixes up the dimensions. Common causes are an"
        " LSTM without batch_first, and a softmax over dimension 0"
    )


def _are_close(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape:
        return False
    first, second = first.detach().float(), second.detach().float()
    scale = float(first.abs().max()) if first.numel() else 0.0
    return torch.allclose(first, second, rtol=_SAME, atol=_SAME * scale, equal_nan=True)


@contextlib.contextmanager
def _seeing_normalisation() -> Iterator[list[nn.Module]]:
    """Collect the batch normalisations that see only one value per channel of a sample.

    They need at least two samples for training.
    """
    alone: list[nn.Module] = []

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, _BatchNorm) and math.prod(inputs[0].shape[2:]) == 1:
            alone.append(module)

    handle = register_module_forward_pre_hook(look)
    try:
        yield alone
    finally:
        handle.remove()


def _refuse_single_samples(parts: Parts) -> None:
    """Check that no worker gets a single sample at once.

    Raises:
        ExperimentError: If one does. It shows the batch size, and a size that works.
    """
    settings = parts.settings
    num_samples = len(parts.train)
    if settings.federated is not None or parts.privacy is not None:
        return  # its batches are drawn in another way
    replicas, micro_batch = parts.worker.num_replicas, settings.plan.micro_batch
    drops_last = parts.datasets.order.drops_last
    if not _has_single(num_samples, settings.step_batch, replicas, micro_batch, drops_last):
        return
    other = next(
        size
        for size in itertools.count(settings.step_batch + 1)
        if not _has_single(num_samples, size, replicas, size, drops_last)
    )
    raise ExperimentError(
        f"with {num_samples:,} samples in batches of {settings.step_batch:,}, a worker gets a"
        " single sample at once, but batch normalisation needs two",
        field="training.global_batch",
        next_step=(
            f"Use another batch size, such as {other:,}, or one sample more or less. A DataLoader"
            " with drop_last=True also helps: it skips the smaller last batch of an epoch."
        ),
    )


def _has_single(
    num_samples: int, batch: int, num_replicas: int, micro_batch: int, drops_last: bool
) -> bool:
    """Return whether some step of an epoch has a part with a single sample."""
    last = 0 if drops_last else num_samples % batch
    for size in {min(batch, num_samples), last} - {0}:
        for replica in range(num_replicas):
            own = len(worker_part(np.arange(size), replica, num_replicas))
            if own and (own % micro_batch == 1 or micro_batch == 1):
                return True
    return False


def _compare(parts: Parts, num_samples: int) -> tuple[Any, Any]:
    """Apply loss and metrics to some samples, and return outputs and targets."""
    source = parts.validation
    batch = WorkerBatch(source, source.all_indices[:num_samples], micro_batch=num_samples)
    [(inputs, targets, _)] = source.micro_batches(batch)
    types: set[torch.dtype] = set()
    try:
        with _seeing_types(types):
            outputs = parts.strategy.predict(inputs)
    except WorkbenchError:
        raise
    except Exception as error:  # the training reports the model's error
        _refuse_types(parts, inputs, types, error)
        outputs = None
    if outputs is None:
        return None, targets
    outputs = in_single_precision(outputs)
    with torch.inference_mode():
        for name, metric in parts.metrics.items():
            _apply(name, metric, parts, outputs, targets)
    return outputs, targets


@contextlib.contextmanager
def _seeing_types(types: set[torch.dtype]) -> Iterator[None]:
    """Collect the weight types of the modules that are called in this context."""

    def look(module: nn.Module, _inputs: tuple[Any, ...]) -> None:
        types.update(weight.dtype for weight in module.parameters() if weight.is_floating_point())

    handle = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


def _refuse_types(parts: Parts, inputs: Any, types: set[torch.dtype], error: Exception) -> None:
    """Raise an error if the model has failed because inputs and weights have different types.

    Args:
        parts: The training.
        inputs: The inputs for which the model failed.
        types: The types of its weights.
        error: The error of the model.

    Raises:
        ExperimentError: If the types differ, and the error is about types.
    """
    given: set[torch.dtype] = set()
    map_tensors(lambda tensor: given.add(tensor.dtype), inputs)
    if len(types) != 1 or not given or types == given or not _ABOUT_TYPES.search(str(error)):
        return
    [of_weights] = (str(dtype).removeprefix("torch.") for dtype in types)
    raise ExperimentError(
        f"{parts.pairing.model} takes {of_weights}, but {parts.pairing.data} has "
        f"{describe_inputs(inputs)}: {type(error).__name__}: {first_line_of(error)}",
        field="data",
        allowed=f"inputs of type {of_weights}, the type of its weights",
        next_step="Convert the inputs in your data, with .float() or .astype(np.float32).",
    ) from error


def _sizes(outputs: Any, targets: Any) -> set[int]:
    tensors = [
        values for values in (output_in(outputs), targets) if isinstance(values, torch.Tensor)
    ]
    return {size for tensor in tensors for size in tensor.shape[1:]}


def _apply(name: str, metric: AnyMetric, parts: Parts, outputs: Any, targets: Any) -> None:
    """Apply a metric to a batch. Check whether your own metric broadcasts."""
    is_loss = name == "loss"
    try:
        if isinstance(metric, WholeMetric):
            _apply_whole(
                name, metric, *map_tensors(torch.Tensor.cpu, (output_in(outputs), targets))
            )
        elif kind_read_by(metric) or (is_loss and parts.loss_kind):
            metric.measure(outputs, targets)
        else:
            title = "the loss" if is_loss else name
            field = "loss" if is_loss else f"metrics.{name}"
            check_function(metric.measure, outputs, targets, name=title, field=field)
    except WorkbenchError as error:
        if is_loss or kind_read_by(metric) is None:
            raise
        step = "Or choose other metrics. Your own metric receives both unchanged."
        if error.next_step:
            step = f"{error.next_step} {step}"
        raise type(error)(
            error.problem, field=f"metrics.{name}", allowed=error.allowed, next_step=step
        ) from error


def _apply_whole(name: str, metric: WholeMetric, outputs: Any, targets: Any) -> None:
    metric.begin().update(outputs, targets)
    if metric.reads is None:
        check_pairs(
            lambda *pair: metric.compute([pair]),
            outputs,
            targets,
            name=name,
            field=f"metrics.{name}",
        )


def _check_targets(parts: Parts, loss_kind: Kind | None) -> None:
    """Check all targets that are in memory, and have others checked when they are read."""
    kinds = {loss_kind, *map(kind_read_by, parts.metrics.values())}
    # Your own loss may do anything with numbers that are not finite, so it is not checked.
    of_validation: list[Kind] = []
    if "classes" in kinds:
        of_validation.append("classes")
    if loss_kind == "numbers":
        of_validation.append("numbers")
    of_train: list[Kind] = []
    if loss_kind is not None:
        of_train.append(loss_kind)
    for part, split, source, read in (
        ("train", parts.datasets.train, parts.train, of_train),
        ("validation", parts.datasets.validation, parts.validation, of_validation),
    ):
        if read:
            _check_part(parts, part, split, source, read)


def _check_part(
    parts: Parts, part: str, split: Split, source: Source, kinds: Sequence[Kind]
) -> None:
    pairing = parts.pairing
    about = (kinds, pairing.form, pairing.num_scores)
    last = _checked.get(part)
    if last is not None and last[0]() is split and last[1] == about:
        return
    targets = known_targets(split)
    for kind in kinds:
        check = functools.partial(pairing.check_targets, kind=kind)
        if targets is None:
            source.look_at_targets(check)
        else:
            check(targets, where=part)
    if targets is not None:
        _checked[part] = weakref.ref(split), about
