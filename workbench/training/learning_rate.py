"""Learning rates: how a rate follows the batch size, and its course over a training. Pure functions."""

from __future__ import annotations

import math
from typing import Literal

Rule = Literal["auto", "constant", "linear", "sqrt"]
Schedule = Literal["constant", "cosine", "linear", "one_cycle"]

ONE_CYCLE_WARMUP_FRACTION = 0.3
_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = _ONE_CYCLE_START / 1e4
_DEFAULT_RATES = {"sgd": 0.1, "asgd": 0.01, "adadelta": 1.0, "adagrad": 1e-2, "rprop": 1e-2}


def default_lr(optimizer: str) -> float:
    """Return the rate at the reference batch where nobody names one.

    Args:
        optimizer: Name of a class of torch.optim, in any case.

    Returns:
        0.1 for sgd, 1e-3 for Adam and its kin; torch's own default for the few that differ.
    """
    return _DEFAULT_RATES.get(optimizer.lower(), 1e-3)


def scaled_lr(lr: float, *, optimizer: str, rule: Rule, from_batch: int, to_batch: int) -> float:
    """Carry a rate from one global batch to another.

    Source: linear: Goyal et al. 2017, "Accurate, Large Minibatch SGD"; sqrt: Malladi et al. 2022, "On the
    SDEs and Scaling Rules for Adaptive Gradient Algorithms".

    Args:
        lr: The rate at `from_batch`.
        optimizer: Name of a class of torch.optim, in any case.
        rule: How to scale. `auto`: SGD linear going up, square root going down; all others keep the rate
            going up and take the square root going down.
        from_batch: Samples per step at which `lr` is meant.
        to_batch: Samples per step in use.

    Returns:
        The rate at `to_batch`.
    """
    ratio = to_batch / from_batch
    if rule == "auto":
        going_up: Rule = "linear" if optimizer.lower() == "sgd" else "constant"
        rule = "sqrt" if ratio < 1 else going_up
    if rule == "linear":
        return lr * ratio
    return lr * math.sqrt(ratio) if rule == "sqrt" else lr


def factor(schedule: Schedule, step: int, *, total_steps: int, warmup_steps: int) -> float:
    """Return the part of the peak rate that one optimizer step uses.

    Warm-up rises in a straight line and reaches 1 at step `warmup_steps - 1`. Cosine and linear then fall
    and would reach 0 at `total_steps`. One-cycle is that of torch.optim.lr_scheduler.OneCycleLR: from 1/25
    along a half cosine to 1, and down to 4e-6 at the last step.

    Args:
        schedule: The course after warm-up.
        step: Number of the step, from 0.
        total_steps: Steps of the whole training; at least 1.
        warmup_steps: Steps of the warm-up, from 0 to total_steps.

    Returns:
        A number from 0 to 1.
    """
    if schedule == "one_cycle":
        return _one_cycle(step, total_steps, warmup_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    progress = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))


def _one_cycle(step: int, total_steps: int, warmup_steps: int) -> float:
    peak = max(warmup_steps - 1, 0)
    last = total_steps - 1
    if step < peak:
        return _between(_ONE_CYCLE_START, 1.0, step / peak)
    return _between(1.0, _ONE_CYCLE_END, min((step - peak) / max(last - peak, 1), 1.0))


def _between(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * progress))
