"""Learning rates: how they scale with the batch size, and their schedule over a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from workbench.hardware.performance.noise import gain

Rule = Literal["auto", "constant", "linear", "sqrt", "adascale", "legw", "lars", "lamb"]
Schedule = Literal["constant", "cosine", "linear", "one_cycle", "wsd"]

ADAM_TYPES = ("adam", "adamw", "adamax", "nadam", "radam", "sparseadam")
_DECAYS = {**dict.fromkeys(ADAM_TYPES, (0.9, 0.999)), "rmsprop": (0.99,)}
"""The part of each moving mean that optimizers keep at a step, by default."""

WARMUP_FRACTION = 0.05
BASE_WARMUP_FRACTION = 0.01
"""The warm-up at the smaller batch if it is not given: a quarter of an epoch in 25 (You et al.
2019).
"""
LONGEST_WARMUP_FRACTION = 0.5
ONE_CYCLE_WARMUP_FRACTION = 0.3
_ONE_CYCLE_START = 1 / 25
_ONE_CYCLE_END = _ONE_CYCLE_START / 1e4
_DEFAULT_RATES = {"sgd": 0.1, "asgd": 0.01, "adadelta": 1.0, "adagrad": 1e-2, "rprop": 1e-2}


def default_lr(optimizer: str) -> float:
    """Return the rate at the reference batch, if an experiment sets none.

    Args:
        optimizer: Name of a class of torch.optim, in any case.

    Returns:
        0.1 for sgd, 1e-3 for Adam and its relatives, and torch's default for a few others.
    """
    return _DEFAULT_RATES.get(optimizer.lower(), 1e-3)


def rule_in_force(rule: Rule, *, optimizer: str, going_up: bool) -> Rule:
    """Resolve `auto`. Any other rule is returned unchanged.

    Args:
        rule: The requested rule.
        optimizer: Name of a class of torch.optim, lars or lamb, in any case.
        going_up: Whether the batch grows.

    Returns:
        For larger batches: linear for SGD, the authors' rules for LARS and LAMB, and constant for
        all others. For smaller batches: the square root. It also replaces adascale, which is not
        defined for them.
    """
    if rule != "auto" and (going_up or rule != "adascale"):
        return rule
    if not going_up:
        return "sqrt"
    published: dict[str, Rule] = {"sgd": "linear", "lars": "lars", "lamb": "lamb"}
    return published.get(optimizer.lower(), "constant")


def scaled_lr(
    lr: float,
    *,
    optimizer: str,
    rule: Rule,
    from_batch: int,
    to_batch: int,
    noise_scale: float | None = None,
    decays: Sequence[float] | None = None,
) -> float:
    """Scale a rate from one global batch to another, as far as the rule is valid.

    Args:
        lr: The rate at `from_batch`.
        optimizer: Name of a class of torch.optim, lars or lamb, in any case.
        rule: How to scale. `rule_in_force` resolves `auto`.
        from_batch: Samples per step for which `lr` was chosen.
        to_batch: Samples per step in use.
        noise_scale: The gradient noise scale in samples, >= 0. Only adascale needs it.
        decays: See `largest_ratio`.

    Returns:
        The rate at `to_batch`. Beyond the largest ratio for which the rule is valid, the highest
        rate that it allows.

    Raises:
        ValueError: If the rule is adascale and there is no noise scale.
    """
    scaled = unlimited_lr(
        lr,
        optimizer=optimizer,
        rule=rule,
        from_batch=from_batch,
        to_batch=to_batch,
        noise_scale=noise_scale,
    )
    if to_batch <= from_batch:
        return scaled
    rule = rule_in_force(rule, optimizer=optimizer, going_up=True)
    return min(scaled, lr * math.sqrt(largest_ratio(rule, optimizer=optimizer, decays=decays)))


def largest_ratio(rule: Rule, *, optimizer: str, decays: Sequence[float] | None = None) -> float:
    """Return the largest ratio of batches for which a rule is valid. It may be infinite.

    Source: Malladi et al. 2022. With the square root rule, 1 - beta becomes ratio (1 - beta), which
    must stay below 1.

    Args:
        rule: The rule in force.
        optimizer: Name of a class of torch.optim, lars or lamb, in any case.
        decays: The part of each moving mean that the optimizer keeps at a step: both betas of Adam
            and its relatives, alpha of RMSprop. None means torch's defaults.
    """
    known = _DECAYS.get(optimizer.lower())
    if rule not in ("sqrt", "legw", "adascale") or known is None:
        return math.inf
    smallest = min(decays or known)
    if smallest >= 1:
        return math.inf
    return max(1.0, 1.0 / (1.0 - smallest))


def legw_warmup(fraction: float | None, ratio: float) -> float:
    """Return which part of a training is warm-up if the batch is `ratio` times as large.

    Source: You et al. 2019, "Large-Batch Training for LSTM and Beyond": `ratio` times as many
    epochs of warm-up.

    Args:
        fraction: The part at the smaller batch, from 0 to 1, or None if it is not given.
        ratio: Larger batch divided by smaller batch, >= 1.
    """
    base = fraction if fraction is not None else BASE_WARMUP_FRACTION
    return min(base * ratio, max(LONGEST_WARMUP_FRACTION, base))


def unlimited_lr(
    lr: float,
    *,
    optimizer: str,
    rule: Rule,
    from_batch: int,
    to_batch: int,
    noise_scale: float | None = None,
) -> float:
    """Scale a rate from one global batch to another, even if the rule is no longer valid there.

    Source: linear: Goyal et al. 2017, "Accurate, Large Minibatch SGD"; sqrt: Malladi et al. 2022,
    "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms"; adascale: Johnson et al. 2020,
    "AdaScale SGD", with the square root of its gain for all but SGD (Qiao et al. 2021, "Pollux");
    legw, lars, lamb: You et al. 2019, "Large-Batch Training for LSTM and Beyond"; 2017, "Large
    Batch Training of Convolutional Networks"; 2020, "Large Batch Optimization for Deep Learning".

    Args:
        lr: The rate at `from_batch`.
        optimizer: Name of a class of torch.optim, lars or lamb, in any case.
        rule: How to scale. `rule_in_force` resolves `auto`.
        from_batch: Samples per step for which `lr` was chosen.
        to_batch: Samples per step in use.
        noise_scale: The gradient noise scale in samples, >= 0. Only adascale needs it.

    Returns:
        The rate at `to_batch`.

    Raises:
        ValueError: If the rule is adascale and there is no noise scale.
    """
    ratio = to_batch / from_batch
    rule = rule_in_force(rule, optimizer=optimizer, going_up=ratio >= 1)
    if rule == "adascale":
        if noise_scale is None:
            raise ValueError("adascale needs a noise scale")
        steps = gain(to_batch, reference_batch=from_batch, noise_scale=noise_scale)
        # The gain of AdaScale is a number of SGD steps. Other optimizers take its square root.
        return lr * (steps if optimizer.lower() == "sgd" else math.sqrt(steps))
    if rule in ("linear", "lars"):
        return lr * ratio
    if rule == "constant":
        return lr
    return lr * math.sqrt(ratio)


def factor(
    schedule: Schedule, step: int, *, total_steps: int, warmup_steps: int, decay: float = 0.2
) -> float:
    """Return the factor of the peak rate for one optimizer step.

    Warm-up rises linearly and reaches 1 at step `warmup_steps - 1`. Cosine and linear then fall,
    and would reach 0 at `total_steps`. One-cycle is the same as
    torch.optim.lr_scheduler.OneCycleLR: it follows half a cosine from 1/25 to 1, then falls to 4e-6
    at the last step. Wsd (warm-up, stable, decay) stays at 1, and falls at the end as 1 minus a
    square root.

    Source: Hägele et al., Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations
    (2024), for wsd.

    Args:
        schedule: The schedule after warm-up.
        step: Number of the step, from 0.
        total_steps: Steps of the whole training, at least 1.
        warmup_steps: Steps of the warm-up, from 0 to total_steps.
        decay: The last part of all steps in which wsd falls, above 0 and up to 1.

    Returns:
        A number from 0 to 1.
    """
    if schedule == "one_cycle":
        return _one_cycle(step, total_steps, warmup_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    if schedule == "wsd":
        decay_steps = decay * total_steps
        decayed = (step - (total_steps - decay_steps)) / decay_steps
        return 1.0 - math.sqrt(min(max(decayed, 0.0), 1.0))
    progress = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    if schedule == "linear":
        return 1.0 - progress
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def _one_cycle(step: int, total_steps: int, warmup_steps: int) -> float:
    peak = max(warmup_steps - 1, 0)
    last = total_steps - 1
    if step < peak:
        return _between(_ONE_CYCLE_START, 1.0, step / peak)
    return _between(1.0, _ONE_CYCLE_END, min((step - peak) / max(last - peak, 1), 1.0))


def _between(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * progress))
