"""The learning rate at another batch: which rule, how far it holds, how long to warm up, and why.

The rules are implemented in `training.planning.learning_rate`, so that advice and trainings cannot
differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.noise import MAX_NOISE_SCALES
from workbench.training.planning.learning_rate import (
    ADAM_TYPES,
    BASE_WARMUP_FRACTION,
    LONGEST_WARMUP_FRACTION,
    WARMUP_FRACTION,
    Rule,
    largest_ratio,
    legw_warmup,
    rule_in_force,
    scaled_lr,
    unlimited_lr,
)

OPTIMIZERS = (
    "sgd",
    "asgd",
    *ADAM_TYPES,
    "adafactor",
    "adagrad",
    "adadelta",
    "rmsprop",
    "rprop",
    "muon",
    "lars",
    "lamb",
)
RULES: tuple[Rule, ...] = ("auto", "constant", "linear", "sqrt", "adascale", "legw", "lars", "lamb")
_LAYER_WISE = ("lars", "lamb")
_PUBLISHED_RATIO = 32.0
"""Goyal et al. 2017 (linear rule) and You et al. 2019 (LEGW) tried up to 32 times the batch."""
_PUBLISHED_RATIO_OF_LAMB = 64.0
"""You et al. 2020 tried up to 64 times the batch."""


@dataclass(frozen=True)
class RateRequest:
    """A request for a learning rate at another batch.

    Attributes:
        optimizer: One of OPTIMIZERS.
        lr: The rate at `from_batch`, > 0.
        from_batch: Samples per step for which `lr` was chosen.
        to_batch: Samples per step of the new training.
        rule: One of RULES.
        noise_scale: The gradient noise scale in samples, or None if it was not measured.
        warmup: The part of the training that is warm-up at `from_batch`, from 0 to 1, or None if
            unknown.
        beta1: Decay of the first moment in optimizers of the Adam type.
        beta2: Decay of the second moment.
    """

    optimizer: str
    lr: float
    from_batch: int
    to_batch: int
    rule: Rule = "auto"
    noise_scale: float | None = None
    warmup: float | None = None
    beta1: float = 0.9
    beta2: float = 0.999

    @property
    def ratio(self) -> float:
        """How many times the batch grows."""
        return self.to_batch / self.from_batch


@dataclass(frozen=True)
class RateAdvice:
    """A learning rate for another batch, with the reasons.

    Attributes:
        lr: The rate at the new batch.
        rule: The rule that was applied, never auto.
        warmup: The part of the training over which the rate rises from near 0, from 0 to 1.
        reason: Reasons and warnings, in sentences.
        extrapolated: Whether the new batch is beyond those for which the rule was published.
    """

    lr: float
    rule: Rule
    warmup: float
    reason: str
    extrapolated: bool


def advise_rate(request: RateRequest) -> RateAdvice:
    """Convert a learning rate to another batch.

    Args:
        request: The rate and both batches.

    Returns:
        The rate, limited to the range in which its rule holds.

    Raises:
        ExperimentError: If adascale is requested without a noise scale.
    """
    rule = rule_in_force(request.rule, optimizer=request.optimizer, going_up=request.ratio >= 1)
    if rule == "adascale" and request.noise_scale is None:
        raise ExperimentError(
            "adascale needs the gradient noise scale",
            field="--noise-scale",
            allowed="a number of samples greater than 0",
        )
    reasons = [_why(rule, request)]
    unlimited = unlimited_lr(
        request.lr,
        optimizer=request.optimizer,
        rule=rule,
        from_batch=request.from_batch,
        to_batch=request.to_batch,
        noise_scale=request.noise_scale,
    )
    decays = (request.beta1, request.beta2) if request.optimizer in ADAM_TYPES else None
    lr = scaled_lr(
        request.lr,
        optimizer=request.optimizer,
        rule=rule,
        from_batch=request.from_batch,
        to_batch=request.to_batch,
        noise_scale=request.noise_scale,
        decays=decays,
    )
    largest = largest_ratio(rule, optimizer=request.optimizer, decays=decays)
    highest = request.lr * math.sqrt(largest)
    if request.ratio > 1 and unlimited >= highest * (1 - 1e-9):
        reasons.append(
            "The rule only holds while ratio x (1 - beta) < 1, so the rate is limited to"
            f" {highest:.4g}, the rate at {largest:.4g} times the batch, instead of"
            f" {unlimited:.4g}."
        )
    elif rule == "sqrt" and request.optimizer in ADAM_TYPES and request.ratio != 1:
        reasons.append(_scaled_betas(request))
    warmup, words = _warmup(rule, request)
    beyond = _beyond(rule, request)
    reasons += words + _beware(rule, request) + beyond
    return RateAdvice(lr, rule, warmup, " ".join(reasons), extrapolated=bool(beyond))


def _why(rule: Rule, request: RateRequest) -> str:
    times = f"{request.ratio:.4g} times the batch"
    match rule:
        case "constant":
            return (
                f"With {request.optimizer}, the rate stays the same at {times}, because its steps"
                " are normalised."
            )
        case "linear":
            return (
                f"{times.capitalize()} averages the noise enough for a rate that is as many times"
                " higher."
            )
        case "sqrt" if request.ratio < 1:
            why = f"For smaller batches ({times}), the square root of the ratio is the best rule."
            undefined = "AdaScale is only defined for larger batches, so the rule is sqrt. "
            return undefined + why if request.rule == "adascale" else why
        case "sqrt":
            return f"The square root rule keeps the noise of adaptive steps constant at {times}."
        case "adascale":
            return (
                f"AdaScale gives the gain of {times} at a noise scale of"
                f" {request.noise_scale:.4g} samples."
            )
        case "legw":
            return (
                f"LEGW: the square root of the ratio, and a warm-up {request.ratio:.4g} times as"
                " long."
            )
        case "lars":
            return f"LARS scales linearly: {times}."
        case _:
            return (
                f"LAMB: the square root of the ratio, and a warm-up {request.ratio:.4g} times as"
                " long."
            )


def _scaled_betas(request: RateRequest) -> str:
    beta1, beta2 = (1.0 - request.ratio * (1.0 - beta) for beta in (request.beta1, request.beta2))
    return (
        f"The rule also requires betas of {beta1:.6g} and {beta2:.6g}, and epsilon divided by "
        f"{math.sqrt(request.ratio):.4g}."
    )


def _warmup(rule: Rule, request: RateRequest) -> tuple[float, list[str]]:
    if request.ratio <= 1 or rule == "constant":
        return request.warmup or 0.0, []
    if rule not in ("legw", "lamb"):
        warmup = max(request.warmup or 0.0, WARMUP_FRACTION)
        return warmup, [
            f"The higher rate needs a gradual warm-up over {100 * warmup:.3g} % of the training."
        ]
    base = BASE_WARMUP_FRACTION if request.warmup is None else request.warmup
    warmup = legw_warmup(request.warmup, request.ratio)
    words = []
    if request.warmup is None:
        words.append(f"The old warm-up is assumed to be {100 * base:g} % of the training.")
    if base * request.ratio > max(LONGEST_WARMUP_FRACTION, base):
        words.append(
            f"The new warm-up is limited to {100 * warmup:g} % of the training instead of"
            f" {100 * base * request.ratio:.3g} %."
        )
    return warmup, words


def _beware(rule: Rule, request: RateRequest) -> list[str]:
    words: list[str] = []
    going_up = request.ratio > 1
    if going_up and rule == "linear" and request.optimizer != "sgd":
        words.append(
            f"Caution: with {request.optimizer}, the linear rule often diverges. constant and sqrt"
            " are safer."
        )
    if rule in _LAYER_WISE and request.optimizer != rule:
        words.append(f"Caution: the rule is meant for {rule.upper()}, whose rates differ by layer.")
    return words


def _beyond(rule: Rule, request: RateRequest) -> list[str]:
    """Return why the rate is extrapolated, or an empty list if it is not."""
    words: list[str] = []
    limit = _PUBLISHED_RATIO_OF_LAMB if rule == "lamb" else _PUBLISHED_RATIO
    if request.ratio > limit:
        words.append(
            f"Extrapolated: the rules were published for up to {limit:g} times the batch, so this"
            " rate is a guess. Sweep around it."
        )
    elif request.ratio < 1 / limit:
        words.append(
            f"Extrapolated: the rules were published down to 1/{limit:g} of the batch, so this rate"
            " is a guess. Sweep around it."
        )
    if (
        request.noise_scale is not None
        and request.to_batch > MAX_NOISE_SCALES * request.noise_scale
    ):
        words.append(
            f"Caution: a batch of {request.to_batch} is more than {MAX_NOISE_SCALES:g} times the"
            f" noise scale of {request.noise_scale:.4g} samples. It saves almost no steps, and no"
            " rule is reliable there."
        )
    return words
