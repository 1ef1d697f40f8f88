"""Finds out before the first step whether a loss stays the same however a batch is divided.

The outputs of a few samples are computed once, without gradients, and the loss is applied to all of
them and to their parts. For your own class with training steps, the losses are computed for some
samples and for their parts. This is done with the current weights and with changed ones, because a
new model may hide differences. Dropout and batch statistics are off, because users of torch know
how these depend on a batch. A loss that draws at random is compared by the means of many draws.

Afterwards, random generators, weights, statistics, attributes and the mode of the model are
restored. Whether parts add up is decided by `models.batch_parts`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data.collating import TARGET_NAMES
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.sample_seeding import RandomStates
from workbench.data.targets import known_targets
from workbench.experiment.plan import Plan
from workbench.foundation.errors import ExperimentError
from workbench.models import batch_parts as rules
from workbench.models.metrics import BatchMetric
from workbench.models.model_calls import loss_in, map_tensors, num_samples, output_in
from workbench.models.own_steps import OwnSteps
from workbench.models.pairing import IGNORED
from workbench.training.assembly import Parts
from workbench.training.evaluation import in_single_precision
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.loss_and_metrics import leaves_out_targets
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.optimizer_phases import Phased
from workbench.training.tensor_source import WorkerBatch

NUM_SAMPLES = 16
"""Number of samples for your own loss."""
MAX_HELD_BYTES = 256 << 20
"""Outputs of an evaluation up to this size are always kept for your own metrics.
"""
_MAX_CLASSES = 64
EXACT_FORM = "return losses.sum(), len(losses)"
_SPECIALITY: list[rules.Division] = ["samples", "targets", "next_targets", "counts", "none"]
_SHIFT = 0.5
"""Relative size of the change of weights, which shows differences that a new model hides."""


def find_division(parts: Parts) -> None:
    """Find out how parts of a batch count, and which metrics need all outputs of an evaluation.

    Args:
        parts: Everything that the loop of the trial needs. The result is stored in its loss and
            metrics.
    """
    if parts.makes_own_steps:
        _find_of_own_steps(parts)
        return
    # Our own losses and metrics are known to add up. Only yours must be tried.
    functions = [
        name
        for name, item in parts.metrics.items()
        if isinstance(item, BatchMetric) and item.adds_up is None
    ]
    # Only workers that hold the end of the model know whether it returns outputs or a loss.
    returns_outputs = any(parts.worker.group.gather(parts.pairing.returns_outputs))
    may_be_returned = parts.loss.takes_returned and not returns_outputs
    if not functions and parts.loss_kind is not None and not may_be_returned:
        return  # all losses and metrics are ours, and known to add up
    with _unchanged(parts):
        own = _seen(parts, functions, may_be_returned)
    seen = [verdict for verdict in parts.worker.group.gather(own) if verdict is not None]
    divisions = [verdict.division for verdict in seen if verdict.division is not None]
    if divisions:
        # Replicas see different samples, so the strictest result counts for all.
        parts.loss.division = max(divisions, key=_SPECIALITY.index)
    for name in functions:
        if name != "loss":
            adds_up = _common([verdict.adds_up[name] for verdict in seen])
        elif any(verdict.is_returned for verdict in seen):
            adds_up = True  # if the model computes the loss, outputs cannot be joined later
        elif parts.loss.division == "none":
            adds_up = False
        else:
            adds_up = None
        metric = parts.metrics[name]
        parts.metrics[name] = dataclasses.replace(metric, adds_up=adds_up)  # type: ignore[call-arg]


def _find_of_own_steps(parts: Parts) -> None:
    """Find out whether the losses of a class add up over parts, and its metrics over samples."""
    size = min(NUM_SAMPLES, len(parts.validation))
    model = parts.strategy.own_steps if isinstance(parts.strategy, Phased) else None
    if model is None or size < 2:
        return
    with _unchanged(parts):
        batch, targets = parts.validation.fetch(_chosen(parts, size))
        verdicts = parts.worker.group.gather(judge_own_steps(model, batch, targets))
    divisions = [division for verdict in verdicts for division in verdict.divisions.values()]
    if divisions:
        # If the losses of one optimizer do not add up, no step can be divided. Otherwise each
        # optimizer adds its own totals and counts.
        parts.loss.division = "none" if "none" in divisions else "samples"
    for name in {name for verdict in verdicts for name in verdict.differing_metrics}:
        metric = parts.metrics[name]
        parts.metrics[name] = dataclasses.replace(metric, adds_up=False)  # type: ignore[call-arg]


@dataclasses.dataclass(frozen=True)
class _Seen:
    """The findings of one worker."""

    division: rules.Division | None
    adds_up: dict[str, bool | None]
    is_returned: bool


def _seen(parts: Parts, functions: list[str], may_be_returned: bool) -> _Seen | None:
    size = min(NUM_SAMPLES, len(parts.validation))
    try:
        outputs, targets = _predicted(parts, _chosen(parts, size))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # an error of the model, which the training reports
        return None
    if outputs is None or size < 2:
        return None
    is_returned = may_be_returned and loss_in(outputs) is not None
    division: rules.Division | None = None
    if is_returned:
        division = _division_of_model(parts, size)
    elif parts.loss_kind is None:
        division = _division(parts, outputs, targets)
    names = [name for name in functions if name != "loss"]
    return _Seen(
        division, {name: _adds_up(parts, name, outputs, targets) for name in names}, is_returned
    )


def _common(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    if not verdicts or None in verdicts:
        return None
    return True


def refuse_division(parts: Parts, plan: Plan | None = None) -> None:
    """Reject a plan that divides a loss whose parts do not add up to the whole.

    Args:
        parts: The argument of `find_division`.
        plan: The plan to check, or None for the plan of `parts`.

    Raises:
        ExperimentError: If it does. The message shows a form of the loss that is exact.
    """
    states_count = parts.loss.division == "counts" and parts.loss_kind is None
    if parts.loss.division != "none" and not (states_count and parts.privacy is not None):
        return
    plan = plan or parts.settings.plan
    is_federated = parts.settings.federated is not None
    refusal = functools.partial(
        _refusal, returned_by="step" if parts.makes_own_steps else "the loss"
    )
    if parts.privacy is not None:
        raise refusal(
            "a private training computes it for each sample alone", "training.private", None
        )
    if plan.accumulation > 1:
        raise refusal(
            f"plan.accumulation {plan.accumulation} computes it for {plan.micro_batch} samples at a"
            " time",
            "plan.accumulation",
            "1",
        )
    if plan.replicas > 1 and not (is_federated or _joins_replicas(parts, plan)):
        raise refusal(
            f"plan.workers {plan.workers} computes it for the samples of each worker alone",
            "plan.workers",
            "1",
        )


def _joins_replicas(parts: Parts, plan: Plan) -> bool:
    """Return whether the loss sees the samples of all replicas, so that they make an exact step."""
    return (
        parts.loss.joins_replicas
        and capabilities_of(plan.strategy).axis is None
        and exchange_capabilities(plan.exchange).is_exact
    )


def _refusal(problem: str, field: str, allowed: str | None, *, returned_by: str) -> ExperimentError:
    return ExperimentError(
        f"the loss of a batch is not the mean of the losses of its parts, and {problem}, which"
        " would change the training",
        field=field,
        allowed=allowed,
        next_step=(
            f"Let {returned_by} return its total and its count. They are added up over the whole"
            f" step before they are divided. For example: `{EXACT_FORM}`, or with weights"
            " `return (weights * losses).sum(), weights.sum()`. If the loss compares the samples of"
            " a batch with each other, it has no such form. It needs the whole batch on one worker"
            " at once."
        ),
    )


@contextlib.contextmanager
def _unchanged(parts: Parts) -> Iterator[None]:
    """Restore random generators and the mode of the model at the end."""
    device = parts.worker.device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), RandomStates(0).in_use():
        parts.strategy.train(False)
        try:
            yield
        finally:
            parts.strategy.train(True)


def _chosen(parts: Parts, size: int) -> np.ndarray:
    """Return different samples: some of each class, if known, from all over the split."""
    split, num = parts.datasets.validation, len(parts.validation)
    if isinstance(split, OrderedSplit):
        return np.arange(size)
    spread = np.unique(np.linspace(0, num - 1, size).astype(int))
    targets = known_targets(split)
    if targets is None or targets.ndim != 1 or targets.dtype.kind not in "iub":
        return spread
    _, firsts = np.unique(targets, return_index=True)
    rest = [index for index in spread if index not in set(firsts[: size // 2])]
    return np.sort(np.array([*firsts[: size // 2], *rest][:size]))


def _predicted(parts: Parts, indices: np.ndarray) -> tuple[Any, Any]:
    """Return outputs and targets of some samples, or None for both if another worker has them."""
    source = parts.validation
    size = min(parts.settings.plan.micro_batch, len(indices))
    batches = []
    batch = WorkerBatch(source, indices, micro_batch=max(1, size))
    for inputs, targets, _ in source.micro_batches(batch):
        outputs = parts.strategy.predict(inputs)
        if outputs is not None:
            batches.append((in_single_precision(outputs), targets))
    if not batches:
        return None, None
    outputs, targets = (rules.joined([pair[side] for pair in batches]) for side in (0, 1))
    return outputs, targets


def _division(parts: Parts, outputs: Any, targets: Any) -> rules.Division | None:
    function = _own_copy(parts.loss.function)
    is_random = _draws(function, outputs, targets)
    if is_random is None:
        return None
    if is_random:
        piece = _evidence_of_draws(function, outputs, targets)
        if piece is None:
            return None
        return rules.division_shown_by([piece])
    seen = list(_evidence(parts, function, outputs, targets))
    imagined = list(_evidence_of_left_out(parts, function, outputs, targets))
    return _decided(parts, seen, imagined, leaves_out=_leaves_out(targets))


def _decided(
    parts: Parts, seen: list[rules.Evidence], imagined: list[rules.Evidence], *, leaves_out: bool
) -> rules.Division:
    """Return how parts of a loss count.

    Args:
        parts: The argument of `find_division`.
        seen: Evidence from targets that occur, or could occur.
        imagined: Evidence from ignored targets, which may not occur.
        leaves_out: Whether ignored targets occur.
    """
    division = rules.division_shown_by(seen + imagined)
    if division != "none" or not imagined or leaves_out:
        return division
    # Maybe no target of this data is ignored. So the loss is only rejected when one is read.
    parts.train.look_at_targets(functools.partial(_refuse_left_out, parts))
    return rules.division_shown_by(seen)


def _leaves_out(targets: Any) -> bool:
    return isinstance(targets, Tensor | np.ndarray) and bool((targets == IGNORED).any())


def _refuse_left_out(parts: Parts, targets: Any) -> None:
    """Raise an error for ignored targets in a divided step, if parts do not add up with them.

    Raises:
        ExperimentError: If there are such targets, and the plan divides steps.
    """
    if parts.loss.division != "none" and _leaves_out(targets):
        parts.loss.division = "none"
        refuse_division(parts)


def _evidence_of_draws(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any
) -> rules.Evidence | None:
    num = num_samples(targets) or num_samples(outputs)
    sizes = (num // 2, num - num // 2)
    parts = list(zip(rules.cut(outputs, sizes), rules.cut(targets, sizes), strict=True))
    with (
        torch.no_grad(),
        contextlib.suppress(Exception),
    ):  # the first step reports the error
        return rules.evidence_of_means(
            lambda pair: function(*pair), (outputs, targets), parts, [part[1] for part in parts]
        )
    return None


def _adds_up(parts: Parts, name: str, outputs: Any, targets: Any) -> bool | None:
    """Return whether parts of an evaluation add up.

    None if the outputs are small enough to be kept, so that it need not be known.
    """
    metric = parts.metrics[name]
    assert isinstance(metric, BatchMetric)
    compared = output_in(outputs)
    per_sample = 0.0
    if isinstance(compared, Tensor) and compared.ndim:
        per_sample = compared.nbytes / max(len(compared), 1)
    pieces = list(_evidence(parts, metric.measure, outputs, targets))
    if any(not piece.supports("counts") for piece in pieces):
        return False
    # Keeping all outputs would take too much memory, so trust a metric that seems to add up.
    if pieces and per_sample * len(parts.validation) > MAX_HELD_BYTES:
        return True
    return None


def _evidence(
    parts: Parts, function: Callable[[Any, Any], Any], outputs: Any, targets: Any
) -> Iterator[rules.Evidence]:
    with torch.no_grad():
        for some_outputs, some_targets in rules.variants(outputs, targets, _pool(parts, targets)):
            yield from rules.evidence_on(function, some_outputs, some_targets) or ()


def _evidence_of_left_out(
    parts: Parts, function: Callable[[Any, Any], Any], outputs: Any, targets: Any
) -> Iterator[rules.Evidence]:
    """Yield the evidence from ignored targets, if there are any or this is not known."""
    with torch.no_grad():
        if _pool(parts, targets) is None:
            return
        if not leaves_out_targets(parts.datasets) and not _leaves_out(targets):
            return
        # On the CPU, because an unknown class number may crash the context of a GPU.
        on_cpu = functools.partial(map_tensors, Tensor.cpu)
        yield from rules.evidence_on(function, on_cpu(outputs), rules.masked(on_cpu(targets))) or ()


def _pool(parts: Parts, targets: Any) -> Tensor | None:
    """Return the class numbers that targets have, or None if they have none."""
    if not isinstance(targets, Tensor) or not targets.ndim:
        return None
    if targets.is_floating_point() and not bool((targets == targets.round()).all()):
        return None
    known = known_targets(parts.datasets.validation)
    if known is None:
        numbers = targets.cpu()
    else:
        numbers = torch.as_tensor(np.unique(known)[: 4 * _MAX_CLASSES])
    numbers = numbers.unique()
    return numbers[numbers != IGNORED][:_MAX_CLASSES]


def _draws(function: Callable[[Any, Any], Any], outputs: Any, targets: Any) -> bool | None:
    """Return whether a loss draws at random, by calling it twice. None if it fails."""
    try:
        with torch.no_grad():
            values = [function(outputs, targets) for _ in range(2)]
        numbers = [float(value[0] if isinstance(value, tuple) else value) for value in values]
    except Exception:  # the first step reports the error
        return None
    return numbers[0] != numbers[1]


def _own_copy(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a copy of a loss, so that its state, such as a running mean, does not change."""
    inner = inspect.unwrap(function)
    if not isinstance(inner, nn.Module):
        return function
    return copy.deepcopy(inner)


def _division_of_model(parts: Parts, size: int) -> rules.Division | None:
    """Return how the parts of a loss count if the model computes it.

    The model is called for each part. It never receives more samples than in a step, because more
    may not fit into memory.
    """
    indices = _chosen(parts, size)
    at_once = max(2, min(len(indices), parts.settings.plan.micro_batch))
    seen: list[rules.Evidence] = []
    imagined: list[rules.Evidence] = []
    leaves_out = False
    for first in range(0, len(indices) - 1, at_once):
        inputs, targets = parts.validation.fetch(indices[first : first + at_once])
        evidence = _evidence_of_model(parts, inputs, targets)
        if evidence is None:
            return None
        seen += evidence
        leaves_out = leaves_out or _leaves_out(targets)
        # If all samples ignore the same number of targets, counting samples and counting targets
        # cannot be told apart.
        changed = _with_other_targets(parts, inputs, targets, seed=first)
        if changed is not None:
            # A model may not support targets of -100.
            with contextlib.suppress(ValueError, IndexError, RuntimeError):
                imagined += _evidence_of_model(parts, *changed) or []
    if not seen and not imagined:
        return None
    return _decided(parts, seen, imagined, leaves_out=leaves_out)


def _evidence_of_model(parts: Parts, inputs: Any, targets: Any) -> list[rules.Evidence] | None:
    """Return the model's loss for a batch and its parts, or None if it returns no loss."""
    num = num_samples(targets) or num_samples(inputs)
    whole = _returned(parts, inputs)
    if whole is None:
        return None
    if num < 2 or whole != whole:
        return []
    pieces = []
    for sizes in rules.sizes_of_parts(num):
        values: list[tuple[float, float | None]] = [
            (math.nan if loss is None else loss, None)
            for loss in (_returned(parts, part) for part in rules.cut(inputs, sizes))
        ]
        pieces.append(rules.evidence_of(whole, values, rules.cut(targets, sizes), sizes, 1.0))
    return pieces


def _with_other_targets(
    parts: Parts, inputs: Any, targets: Any, *, seed: int
) -> tuple[Any, Any] | None:
    """Return a batch that ignores other targets, or None if that is impossible."""
    if not isinstance(targets, Tensor) or targets.is_floating_point() or not targets.ndim:
        return None
    has_some = bool((targets == IGNORED).any())
    # An unknown class number may crash the context of a GPU.
    may_have = parts.worker.device.type == "cpu" and leaves_out_targets(parts.datasets)
    if not has_some and not may_have:
        return None
    # If there are only two samples, both must count, with different numbers of targets.
    changed = rules.masked(targets, seed=seed, has_empty=len(targets) > 2 or seed % 4 == 2)
    replaced = _with(inputs, targets, changed)
    if replaced is None:
        return None
    return replaced, changed


def _returned(parts: Parts, inputs: Any) -> float | None:
    outputs = parts.strategy.predict(inputs)
    if outputs is None:
        return None
    loss = loss_in(outputs)
    if loss is None:
        return None
    return float(loss)


def _with(inputs: Any, targets: Tensor, changed: Tensor) -> Any:
    """Return inputs in which the targets are replaced.

    None if the targets are not known to be part of the inputs.
    """
    if isinstance(inputs, dict):
        name = next((name for name in TARGET_NAMES if _is_same(inputs.get(name), targets)), None)
        if name is None:
            return None
        return inputs | {name: changed}
    if isinstance(inputs, tuple) and _is_same(inputs[-1], targets):
        return (*inputs[:-1], changed)
    return None


def _is_same(values: Any, targets: Tensor) -> bool:
    return (
        isinstance(values, Tensor)
        and values.shape == targets.shape
        and torch.equal(values, targets)
    )


@dataclass(frozen=True)
class OwnVerdict:
    """The result for your own class with training steps.

    Attributes:
        divisions: How the parts of each loss count. "none" if they do not add up.
        differing_metrics: The metrics of `evaluate` that are not means over samples.
    """

    divisions: Mapping[str, rules.Division]
    differing_metrics: tuple[str, ...]


def judge_own_steps(model: OwnSteps, batch: Any, targets: Any) -> OwnVerdict:
    """Apply the losses and the metrics of a class to a batch and to its parts.

    Args:
        model: The class as a module, on its device.
        batch: The argument of `step`, for at least 2 samples.
        targets: The targets of the same samples.

    Returns:
        The result. Functions that fail are missing, because the training reports their errors.
    """
    evidence: dict[str, list[rules.Evidence]] = {name: [] for name in model.optimizers}
    differing: set[str] = set()
    with _restored(model):
        for shifts in (False, True):
            if shifts:
                _shift(model)
            for name in model.optimizers:
                # A step may compute gradients itself, for example to penalise them.
                with torch.enable_grad():
                    loss = functools.partial(_loss, model, name)
                    evidence[name] += _evidence_of_loss(loss, batch, targets)
            with torch.no_grad():
                differing |= _differing_metrics(model, batch, targets)
    divisions: dict[str, rules.Division] = {}
    for name, pieces in evidence.items():
        if pieces:
            # Nobody knows which targets the class counts. So its parts count by samples, or by the
            # counts that it returns.
            shown = rules.division_shown_by(pieces)
            divisions[name] = shown if shown in ("samples", "counts") else "none"
    return OwnVerdict(divisions, tuple(sorted(differing)))


def _loss(model: OwnSteps, name: str, batch: Any) -> Any:
    loss = model.loss(batch, name)
    if loss is None:
        return math.nan
    return loss


def _differing_metrics(model: OwnSteps, batch: Any, targets: Any) -> set[str]:
    try:
        names = list(model(batch))
    except Exception:
        return set()
    return {
        name
        for name in names
        for piece in _evidence_of_loss(lambda part, name=name: model(part)[name], batch, targets)
        if not piece.supports("counts" if "counts" in piece.counts else "samples")
    }


def _evidence_of_loss(
    function: Callable[[Any], Any], batch: Any, targets: Any
) -> Iterator[rules.Evidence]:
    """Yield the values of a function for a batch and for its parts. One sample yields nothing."""
    num = num_samples(targets) or num_samples(batch)
    if num < 2:
        return
    try:
        first = _measured(function, batch, seed=0)
        again = _measured(function, batch, seed=1)
    except Exception:
        return
    if not math.isfinite(first[0]) or not math.isfinite(again[0]):
        return
    if first[0] != again[0]:
        sizes = (num // 2, num - num // 2)
        batches = rules.cut(batch, sizes)
        of_parts = rules.cut(targets, sizes)
        with contextlib.suppress(Exception):
            piece = rules.evidence_of_means(
                functools.partial(_called, function), batch, batches, of_parts
            )
            if piece is not None:
                yield piece
        return
    for sizes in rules.sizes_of_parts(num):
        values = [_part(function, part) for part in rules.cut(batch, sizes)]
        yield rules.evidence_of(first[0], values, rules.cut(targets, sizes), sizes, 1.0)


def _part(function: Callable[[Any], Any], part: Any) -> tuple[float, float | None]:
    try:
        return _measured(function, part, seed=0)
    except Exception:
        return math.nan, None


def _measured(
    function: Callable[[Any], Any], batch: Any, *, seed: int
) -> tuple[float, float | None]:
    torch.manual_seed(seed)
    return rules.value_of(_called(function, batch))


def _called(function: Callable[[Any], Any], batch: Any) -> Any:
    return function(map_tensors(Tensor.clone, batch))  # a step may change its batch


@contextlib.contextmanager
def _restored(model: OwnSteps) -> Iterator[None]:
    """Restore everything that computing losses may change.

    That is weights, buffers, gradients and plain attributes.
    """
    tensors = [*model.parameters(), *model.buffers()]
    kept = [tensor.detach().cpu().clone() for tensor in tensors]
    gradients = [parameter.grad for parameter in model.parameters()]
    attributes = {name: _kept(value) for name, value in vars(model.owner).items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, values in zip(tensors, kept, strict=True):
                tensor.copy_(values)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        vars(model.owner).clear()
        vars(model.owner).update(attributes)


def _kept(value: Any) -> Any:
    kind = type(value)
    is_plain = issubclass(kind, dict | list | set | deque)
    is_plain = is_plain and kind.__module__ in ("builtins", "collections")
    if not is_plain:
        return value
    return copy.copy(value)


def _shift(model: OwnSteps) -> None:
    """Change the weights, so that the outputs of samples differ."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            noise = torch.randn(tuple(parameter.shape), generator=generator).to(parameter)
            if parameter.numel() == 1:
                size = parameter.abs().mean()
            else:
                size = parameter.std(unbiased=False)
            shift = torch.where(size > 0, _SHIFT * size, 0.1 * torch.ones_like(size))
            parameter.add_(noise * shift)
