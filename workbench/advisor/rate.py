"""The learning rate at another batch: which rule, how far it holds, how long to warm up, and why.

The rules themselves are those of `training.learning_rate`, so that advice and trainings cannot
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
"""Up to so many times the batch: Goyal et al. 2017 tried the linear rule, You et al. 2019 LEGW."""
_PUBLISHED_RATIO_OF_LAMB = 64.0
"""You et al. 2020."""


@dataclass(frozen=True)
class RateRequest:
    """A request for a learning rate at another batch.

    Attributes:
        optimizer: One of OPTIMIZERS.
        lr: The rate at `from_batch`, > 0.
        from_batch: Samples per step at which `lr` is meant.
        to_batch: Samples per step in use.
        rule: One of RULES.
        noise_scale: The gradient noise scale in samples, where it was measured.
        warmup: The part of the training that is warm-up at `from_batch`, from 0 to 1, or None if
            not known.
        beta1: Decay of the first moment in optimizers of the Adam type.
        beta2: Decay of the second.
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
    """The answer.

    Attributes:
        lr: The rate at the new batch.
        rule: The rule that gave it. Never auto.
        warmup: The part of the training over which to raise the rate from near 0, from 0 to 1.
        reason: Why, and what to beware of, in sentences.
        extrapolated: Whether the new batch lies beyond those for which a rule was tried.
    """

    lr: float
    rule: Rule
    warmup: float
    reason: str
    extrapolated: bool


def advise_rate(request: RateRequest) -> RateAdvice:
    """Carry a learning rate to another batch.

    Args:
        request: The rate to carry over.

    Returns:
        The rate, clamped to where its rule holds.

    Raises:
        ExperimentError: If adascale is requested without a noise scale.
    """
    rule = rule_in_force(request.rule, optimizer=request.optimizer, going_up=request.ratio >= 1)
    if rule == "adascale" and request.noise_scale is None:
        raise ExperimentError(
            "adascale follows the noise of the gradients, and none was given",
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
            "The rule holds only while ratio x (1 - beta) < 1: the rate is clamped to"
            f" {highest:.4g}, as at {largest:.4g} times the batch, instead of {unlimited:.4g}."
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
                f"With {request.optimizer}, {times} keeps the rate: its steps are normalised"
                " already."
            )
        case "linear":
            return (
                f"{times.capitalize()} averages away as much noise as a rate that many times higher"
                " adds."
            )
        case "sqrt" if request.ratio < 1:
            why = f"Going down ({times}), the square root of the ratio is best for every optimizer."
            undefined = "AdaScale is defined for larger batches only, so the rule is sqrt. "
            return undefined + why if request.rule == "adascale" else why
        case "sqrt":
            return f"The square root rule keeps the noise of adaptive steps the same at {times}."
        case "adascale":
            return (
                f"AdaScale: the gain of {times} at a noise scale of {request.noise_scale:.4g}"
                " samples."
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
            f"The higher rate needs a gradual warm-up over {warmup:.3g} of the training."
        ]
    base = BASE_WARMUP_FRACTION if request.warmup is None else request.warmup
    warmup = legw_warmup(request.warmup, request.ratio)
    words = []
    if request.warmup is None:
        words.append(f"The warm-up is taken to be {base:g} of the training so far.")
    if base * request.ratio > max(LONGEST_WARMUP_FRACTION, base):
        words.append(
            f"It is limited to {warmup:g} of the training instead of {base * request.ratio:.3g}."
        )
    return warmup, words


def _beware(rule: Rule, request: RateRequest) -> list[str]:
    words: list[str] = []
    going_up = request.ratio > 1
    if going_up and rule == "linear" and request.optimizer != "sgd":
        words.append(
            f"Beware: with {request.optimizer} the linear rule is known to diverge. "
            "constant and sqrt are safer."
        )
    if rule in _LAYER_WISE and request.optimizer != rule:
        words.append(f"Caution: the rule is meant for {rule.upper()}, whose rates differ by layer.")
    return words


def _beyond(rule: Rule, request: RateRequest) -> list[str]:
    """Return why the rate is extrapolated, or empty if it is not."""
    words: list[str] = []
    limit = _PUBLISHED_RATIO_OF_LAMB if rule == "lamb" else _PUBLISHED_RATIO
    if request.ratio > limit:
        words.append(
            f"Extrapolated: rules were tried at up to {limit:g} times the batch, so this rate is a"
            " guess. Sweep around it."
        )
    elif request.ratio < 1 / limit:
        words.append(
            f"Extrapolated: rules were tried down to 1/{limit:g} of the batch, so this rate is a"
            " guess. Sweep around it."
        )
    if (
        request.noise_scale is not None
        and request.to_batch > MAX_NOISE_SCALES * request.noise_scale
    ):
        words.append(
            f"Caution: {request.to_batch} is more than {MAX_NOISE_SCALES:g} times the noise scale"
            f" of {request.noise_scale:.4g} samples. It saves almost no steps, and no rule is"
            " reliable there."
        )
    return words
