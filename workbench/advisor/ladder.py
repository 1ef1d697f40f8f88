"""Predicts the loss of a large language model from trainings of small ones, and where it begins.

    loss = E + A / parameters^a + B / tokens^b

E is what no model reaches, and the two powers are what more parameters and more tokens still bring.
The beliefs about the powers before any training are those of public ladders. The rest of the
beliefs are wide, because losses depend on the tokenizer and the text. The interval has 90 % of the
laws that agree with the trainings.

Source: Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", equation 2; the
powers as in Besiroglu et al. 2024, "Chinchilla Scaling: A replication attempt".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_count
from workbench.hardware.performance.least_squares import jacobian, minimise

Array = NDArray[np.float64]

MIN_TRAININGS = 4
"""Fewer trainings than this say nothing about both powers."""
FAR = 100.0
"""A model that needs more than this many times the largest training's operations is far away."""
_POWERS = np.log([0.348, 0.366])
_POWER_DEVIATION = 0.3
_FLOOR_SHARE, _FLOOR_DEVIATION = 0.6, 0.5
_TERM_SHARE, _TERM_DEVIATION = 0.15, 1.5
_NOISE = 0.01
_NOISE_WEIGHT, _MOST_NOISE = 4.0, 0.2
_NUM_DRAWS = 4000
_LARGEST = 100.0
_CONFIDENCE = 0.9
_WIDER, _FREEDOM = 1.5, 4.0
"""How much wider than the curvature says laws are proposed, and the degrees of freedom."""
_WARMUP_STEPS, _MOST_WARMUP = 2000, 0.1


@dataclass(frozen=True)
class Rung:
    """A training of a language model.

    Attributes:
        parameters: All parameters of the model.
        tokens: Tokens that it was trained on.
        loss: Its loss on validation data, in nats per token.
        name: Its run and trial.
    """

    parameters: float
    tokens: float
    loss: float
    name: str = ""


class LadderPrediction(NamedTuple):
    """The loss of a training, and the interval that should contain it in 90 % of all cases."""

    loss: float
    low: float
    high: float


class Beginning(NamedTuple):
    """Where the pretraining of a language model begins.

    Attributes:
        batch_tokens: Tokens of an optimizer step.
        learning_rate: The peak rate of AdamW.
        weight_decay: The decoupled weight decay of AdamW.
        num_steps: Optimizer steps of the training.
        warmup_steps: Steps of the warm-up.
    """

    batch_tokens: float
    learning_rate: float
    weight_decay: float
    num_steps: int
    warmup_steps: int


def where_to_begin(parameters: float, tokens: float) -> Beginning:
    """Return batch, rate, weight decay and warm-up of a pretraining.

    Args:
        parameters: Parameters of the model, > 0.
        tokens: Tokens of the training, > 0.

    Returns:
        Where to begin. The decay is what the rate and the batch of this answer need.

    Source: rate and batch from Li et al. 2025, "Predictable Scale: Step Law"; the decay from the
    timescale of AdamW, Bergsma et al. 2025, "Power Lines"; the warm-up of 2 / (1 - beta2) steps
    with beta2 = 0.999 from Ma and Yarats 2019, at most a tenth of the training.
    """
    rate = 1.79 * parameters**-0.713 * tokens**0.307
    batch = min(tokens, 0.58 * tokens**0.571)
    timescale = 1.084 * (tokens / parameters) ** -0.527
    num_steps = max(1, round(tokens / batch))
    return Beginning(
        batch,
        rate,
        batch / (rate * timescale * tokens),
        num_steps,
        min(_WARMUP_STEPS, round(_MOST_WARMUP * num_steps)),
    )


@dataclass(frozen=True)
class LadderLaw:
    """The law, with its uncertainty.

    Attributes:
        means: Logarithms of E, of both terms at the centre, and of both powers: the best fit.
        draws: The same of laws that agree with the trainings, each as likely, [5, draws].
        noise: The relative deviation of a single training.
        centre: The logarithms of parameters and tokens at which the terms are given.
        rungs: The trainings.
    """

    means: Array
    draws: Array
    noise: float
    centre: tuple[float, float]
    rungs: tuple[Rung, ...]

    def predict(self, parameters: float, tokens: float) -> LadderPrediction:
        """Return the loss of a training.

        Args:
            parameters: Parameters of the model, > 0.
            tokens: Tokens of the training, > 0.
        """
        place = np.log([[parameters], [tokens]])
        losses = _loss(self.draws, place, self.centre)
        value = float(np.median(losses))
        losses = losses * np.exp(self.noise * np.random.default_rng(0).normal(size=losses.shape))
        tail = (1 - _CONFIDENCE) / 2
        low, high = np.quantile(losses, [tail, 1 - tail])
        return LadderPrediction(value, min(float(low), value), max(float(high), value))

    def reach(self, parameters: float, tokens: float) -> float:
        """Return by how much a training exceeds the operations of the largest measured one."""
        return parameters * tokens / max(rung.parameters * rung.tokens for rung in self.rungs)


def fit_ladder(rungs: Sequence[Rung]) -> LadderLaw:
    """Fit the law to trainings.

    Args:
        rungs: Trainings of at least two sizes and two numbers of tokens, at least four in all.

    Raises:
        DataError: If there are too few.
    """
    sizes, lengths = ({getattr(rung, name) for rung in rungs} for name in ("parameters", "tokens"))
    if len(rungs) < MIN_TRAININGS or len(sizes) < 2 or len(lengths) < 2:
        raise DataError(
            f"{format_count(len(rungs), 'training')} of {format_count(len(sizes), 'model size')}"
            f" and {format_count(len(lengths), 'length')} are too few",
            allowed=f"at least {MIN_TRAININGS} trainings, of two sizes and two numbers of tokens",
            next_step="Train more small models, and name their runs as well.",
        )
    places = np.log([[getattr(rung, name) for rung in rungs] for name in ("parameters", "tokens")])
    centre = (float(places[0].mean()), float(places[1].mean()))
    losses = np.array([rung.loss for rung in rungs])
    lowest = math.log(losses.min())
    means = np.array(
        [
            lowest + math.log(_FLOOR_SHARE),
            *[lowest + math.log(_TERM_SHARE)] * 2,
            *_POWERS,
        ]
    )
    deviations = np.array([_FLOOR_DEVIATION, *[_TERM_DEVIATION] * 2, *[_POWER_DEVIATION] * 2])
    noise, at = _NOISE, means
    covariance = np.diag(deviations**2)
    for _ in range(3):

        def residuals(at: Array, noise: float = noise) -> Array:
            return (np.log(losses) - np.log(_loss(at, places, centre))) / noise

        at = minimise(residuals, means, deviations, [means])
        left, slopes = jacobian(residuals, at)
        covariance = np.linalg.inv(slopes.T @ slopes + np.diag(deviations**-2.0))
        # Each parameter that the trainings determine takes one of their deviations.
        num_free = len(rungs) - float(np.trace(slopes @ covariance @ slopes.T))
        squares = float(left @ left) * noise**2 + _NOISE_WEIGHT * _NOISE**2
        noise = min(math.sqrt(squares / (num_free + _NOISE_WEIGHT)), _MOST_NOISE)

    def log_likelihood(laws: Array) -> Array:
        left = (np.log(losses) - np.log(_loss(laws[:, :, None], places, centre))) / noise
        beliefs = (laws - means[:, None]) / deviations[:, None]
        return -0.5 * ((left**2).sum(axis=1) + (beliefs**2).sum(axis=0))

    return LadderLaw(at, _draw_laws(at, covariance, log_likelihood), noise, centre, tuple(rungs))


def _draw_laws(at: Array, covariance: Array, log_likelihood: Callable[[Array], Array]) -> Array:
    """Return laws by their probability, [5, draws].

    The probability of the parameters is far from normal, because a lower E goes with smaller
    powers. So draws from a wider distribution with heavy tails are weighted and drawn again.
    """
    random = np.random.default_rng(0)
    num, size = 5 * _NUM_DRAWS, len(at)
    spread = np.linalg.cholesky(_WIDER**2 * covariance)
    standard = random.normal(size=(size, num))
    scale = np.sqrt(random.chisquare(_FREEDOM, size=num) / _FREEDOM)
    laws = at[:, None] + spread @ (standard / scale)
    distance = ((standard / scale) ** 2).sum(axis=0)
    log_proposal = -0.5 * (_FREEDOM + size) * np.log1p(distance / _FREEDOM)
    log_weights = log_likelihood(laws) - log_proposal
    weights = np.exp(log_weights - log_weights.max())
    return laws[:, random.choice(num, size=_NUM_DRAWS, p=weights / weights.sum())]


def _loss(at: Array, places: Array, centre: tuple[float, float]) -> Array:
    """Return losses at logarithms of parameters and tokens, [2, n], for one or several laws."""
    floor, first, second, power, other = at
    of_size = first - np.exp(power) * (places[0] - centre[0])
    of_tokens = second - np.exp(other) * (places[1] - centre[1])
    parts = (floor, of_size, of_tokens)
    return sum((np.exp(np.minimum(part, _LARGEST)) for part in parts), np.zeros(()))
