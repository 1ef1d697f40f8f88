"""Whether the losses of a class with steps of its own are the same however a step is divided.

Each loss is computed for a few samples and for their parts, with the weights as they are and with
others, as a new model may hide what differs. Dropout and batch statistics are off: what they do to
a part is what users of torch expect of them. Weights, buffers and plain attributes of the class are
put back. A step that draws at random is compared by the means of many draws. What parts must equal
is decided in `models.parts`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workbench.models import parts as rules
from workbench.models.calls import map_tensors, num_samples
from workbench.models.own_steps import OwnSteps

_SHIFT = 0.5
"""By what part of their own size weights are changed, to see what a new model hides."""


@dataclass(frozen=True)
class OwnVerdict:
    """What was seen of a class with steps of its own.

    Attributes:
        divisions: By what the parts of each loss count; "none" where they do not add up.
        differing_metrics: What `evaluate` returns that is no mean over samples.
    """

    divisions: Mapping[str, rules.Division]
    differing_metrics: tuple[str, ...]


def judge_own_steps(model: OwnSteps, batch: Any, targets: Any) -> OwnVerdict:
    """Apply the losses and the metrics of a class to a batch and to its parts.

    Args:
        model: The class as a module, on its device.
        batch: What `step` receives, for at least 2 samples.
        targets: Of the same samples.

    Returns:
        What was seen; of what fails, nothing: the training meets it where it belongs.
    """
    pieces: dict[str, list[rules.Evidence]] = {}
    differing: set[str] = set()
    with _restored(model):
        for shifts in (False, True):
            if shifts:
                _shift(model)
            for name in model.optimizers:
                with (
                    torch.enable_grad()
                ):  # a step may take gradients itself, such as a penalty on them
                    found = list(
                        _evidence(lambda part, name=name: _loss(model, part, name), batch, targets)
                    )
                pieces.setdefault(name, []).extend(found)
            with torch.no_grad():
                differing |= _differing_metrics(model, batch, targets)
    divisions: dict[str, rules.Division] = {
        name: rules.division_shown_by(found) for name, found in pieces.items() if found
    }
    # What counts targets is not known of a class, so that its parts count by samples or as it
    # states.
    known = {
        name: each if each in ("samples", "counts") else "none" for name, each in divisions.items()
    }
    return OwnVerdict(known, tuple(sorted(differing)))  # type: ignore[arg-type]


def _loss(model: OwnSteps, batch: Any, name: str) -> Any:
    found = model.loss(batch, name)
    return math.nan if found is None else found


def _differing_metrics(model: OwnSteps, batch: Any, targets: Any) -> set[str]:
    try:
        names = list(model(batch))
    except Exception:
        return set()
    return {
        name
        for name in names
        for piece in _evidence(lambda part, name=name: model(part)[name], batch, targets)
        if not piece.supports("counts" if "counts" in piece.counts else "samples")
    }


def _evidence(function: Callable[[Any], Any], batch: Any, targets: Any) -> Iterator[rules.Evidence]:
    """Yield what a function returns for a batch and for its parts; nothing of too few samples."""
    num = num_samples(targets) or num_samples(batch)
    if num < 2:
        return
    try:
        first, again = _measured(function, batch, seed=0), _measured(function, batch, seed=1)
    except Exception:
        return
    if not math.isfinite(first[0]) or not math.isfinite(again[0]):
        return
    if first[0] != again[0]:
        sizes = (num // 2, num - num // 2)
        draws = functools.partial(_called, function)
        with contextlib.suppress(Exception):
            piece = rules.evidence_of_means(
                draws, batch, rules.cut(batch, sizes), rules.cut(targets, sizes)
            )
            yield from () if piece is None else (piece,)
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
    return function(map_tensors(Tensor.clone, batch))  # which a step may change


@contextlib.contextmanager
def _restored(model: OwnSteps) -> Iterator[None]:
    """Put back what computing losses may change.

    Weights, buffers, gradients and plain attributes.
    """
    tensors = [*model.parameters(), *model.buffers()]
    kept = [each.detach().cpu().clone() for each in tensors]
    gradients = [each.grad for each in model.parameters()]
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
    is_plain = isinstance(value, dict | list | set | deque) and type(value).__module__ in (
        "builtins",
        "collections",
    )
    return copy.copy(value) if is_plain else value


def _shift(model: OwnSteps) -> None:
    """Change the weights, so that outputs differ from sample to sample."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            noise = torch.randn(tuple(parameter.shape), generator=generator).to(parameter)
            size = (
                parameter.std(unbiased=False) if parameter.numel() > 1 else parameter.abs().mean()
            )
            parameter.add_(
                noise * torch.where(size > 0, _SHIFT * size, 0.1 * torch.ones_like(size))
            )
