"""Predicts which learning rate and rank suit a low-rank adapter, from trainings of other models.

Above the lowest loss that a model reaches, a training loses in three ways: a low rate learns too
little, a high rate adds noise (the more, the lower the rank), and a low rank holds too little:

    excess = a (rate / 3e-4)^-p + b (rate / 3e-4)^q (rank / 16)^-s + c (rank / 16)^-t

The exponents are those of all models. log a, log b and log c are linear in the logarithm of the
number of parameters and in whether the model is a base model, and each model differs from that by
an amount whose spread is estimated. A model that was never trained gets the linear part with that
spread as its uncertainty. A model that was trained before also gets its own difference.

Models of one family share their architecture and most of their pretraining, and so half of what
makes them differ: all models of Qwen3.5 suffer more from a high rate than those of Qwen3 or Llama.
If a model has a name, the trained models of its family move its prediction.

The law was fitted to trainings with alpha 32. Low-rank additions change a weight by
alpha / rank x B A. B begins at 0, and a step of Adam moves each parameter by about the rate r,
however large the gradient is. While A is close to its first values, n steps change the weight by
about alpha / rank x n r A, so alpha x r decides. Once A has moved as far as B, the change is
alpha / rank x (n r)^2, and sqrt(alpha) x r decides. So the best rate falls with alpha to a power
between 1/2 and 1. `tests/benchmarks/adapter_alpha.py` measured 0.54 on a small model. Another alpha
counts like alpha 32 at the rate times (alpha / 32)^`ALPHA_POWER`.

Source: "LoRA without regret" (Thinking Machines Lab, 2025) for the two invariants.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.advisor.measurement_tables import (
    Column,
    check_has_plans,
    number_between,
    read_objects,
    truth_value,
    whole_number_to,
    written_number,
)
from workbench.foundation.errors import DataError
from workbench.hardware.performance.least_squares import jacobian, minimise

Array = NDArray[np.float64]

DIVERGED_NLL = 2.0
"""The test loss, in nats per token, above which a training counts as diverged."""
LAW_ALPHA = 32.0
"""The alpha of the trainings to which the included law was fitted."""
ALPHA_POWER = 0.6
"""The power of 32 / alpha by which the best rate of an adapter changes."""
SHIPPED = Path(__file__).with_name("adapter_rates.json")
"""The coefficients of the law that is included."""
_NUM_EXPONENTS, _NUM_TERMS, _NUM_FEATURES = 4, 3, 3
NUM_SHARED = _NUM_EXPONENTS + _NUM_TERMS * _NUM_FEATURES
"""How many parameters of the law all models share."""
_RATE, _RANK, _SIZE_B = 3e-4, 16.0, 8.0
# Beliefs before any measurement: the exponents p, q, s and t, and for each of the three terms its
# logarithm at 8 billion parameters, its power of the size, and its difference for base models.
_EXPONENTS = np.log([1.0, 1.5, 0.6, 0.6])
_TERMS = np.array(
    [[np.log(0.005), -0.4, 0.0], [np.log(0.004), 0.2, 0.0], [np.log(0.001), -0.4, 0.0]]
)
_TERM_DEVIATIONS = np.array([2.0, 0.5, 0.5])
_MODEL_DEVIATIONS = np.array([0.4, 0.6, 0.6])
_LOWEST_DEVIATION = 0.005
# Two trainings of one configuration differ by about 0.0002 nats. The rest is what three terms
# cannot describe.
_NOISE, _RELATIVE_NOISE = 0.001, 0.1
_NUM_DRAWS = 2000
_TRIM = 0.1  # of the draws at each end: two powers make their mean depend on the most extreme ones
_KEPT = slice(int(_TRIM * _NUM_DRAWS), int((1 - _TRIM) * _NUM_DRAWS))
# The loss of a model that guesses equally among the words of a large vocabulary. Far outside the
# rates that were measured, the law would exceed it.
_MOST_EXCESS = math.log(262_144)
_CONFIDENCE = 0.9
# The lowest and the highest values in the public trainings.
_TRAINED = {"learning_rate": (4e-5, 3e-3), "rank": (1.0, 128.0), "parameters_b": (1.0, 1040.0)}
_RATES = np.geomspace(1e-5, 1e-2, 41)
_OF_FAMILY = 0.5
"""The correlation between the differences of two models of one family."""
_SIZE_IN_NAME = re.compile(r"(?<![a-z0-9.])(a?\d+(\.\d+)?[bmt])(?![a-z])")
_VERSION_IN_NAME = re.compile(r"[a-z][a-z_-]*?v?\d+(\.\d+)?")
# The chance of a divergence is logistic in log(rate / 3e-3), log(rank / 16) and log(size / 8).
_UNSTABLE_RATE = 3e-3
_STABILITY = np.array([-2.2, 3.0, -0.5, 0.3])
_STABILITY_DEVIATIONS = np.array([1.5, 1.0, 0.5, 0.3])


@dataclass(frozen=True)
class AdapterPoint:
    """One training of an adapter, or one that is considered.

    Attributes:
        parameters_b: All parameters of the model, in billions.
        active_b: The parameters that one token uses, in billions. All, unless it is given.
        base: Whether the model was only pretrained, not tuned to follow instructions. None if that
            is not known.
        learning_rate: The highest learning rate of its schedule.
        rank: The rank of the adapter.
        model: The name of the model. Without it, rows with equal columns above are one model.
        test_nll: The test loss in nats per token. NaN or a value above 2 if it diverged. None for
            a training that is only considered.
        alpha: The alpha of the adapter. For rsLoRA, alpha times the root of the rank.
    """

    parameters_b: float
    active_b: float
    base: bool | None
    learning_rate: float
    rank: int
    model: str | None = None
    test_nll: float | None = None
    alpha: float = LAW_ALPHA

    @property
    def rate(self) -> float:
        """The learning rate that trains alike with alpha 32."""
        return self.learning_rate * (self.alpha / LAW_ALPHA) ** ALPHA_POWER

    @property
    def model_key(self) -> tuple[str | None, float, float, bool | None]:
        """What identifies its model."""
        return self.model, self.parameters_b, self.active_b, self.base

    @property
    def family(self) -> str | None:
        """The family in the name of its model: its words up to a version. None without a name.

        Example:
            >>> AdapterPoint(9.0, 9.0, True, 1e-4, 16, model="Qwen/Qwen3.5-9B-Base").family
            'qwen3.5'
        """
        return None if self.model is None else _family_of(self.model)

    @property
    def diverged(self) -> bool:
        """Whether its loss is not a number, or above 2 nats."""
        return self.test_nll is not None and not self.test_nll <= DIVERGED_NLL


class AdapterPrediction(NamedTuple):
    """What to expect of one training.

    Attributes:
        excess_nll: The test loss minus the lowest that this model reaches at any rate, at ranks up
            to the highest of its points, in nats per token.
        low: 90 % of trainings that do not diverge should be between this value and `high`.
        high: The upper end of that interval.
        diverges: The probability that the training diverges.
    """

    excess_nll: float
    low: float
    high: float
    diverges: float


class BestAdapter(NamedTuple):
    """Where to begin with a model.

    Attributes:
        learning_rate: The rate at alpha 32.
        low: The best rate is between this value and `high` in half of all cases.
        high: The upper end of that interval.
        rank: The rank of the adapter.
    """

    learning_rate: float
    low: float
    high: float
    rank: int


@dataclass(frozen=True)
class AdapterLaw:
    """The law with its uncertainty.

    Attributes:
        means: The parameters: the logarithms of four exponents, then three values for each term,
            then three differences for each model in `models`.
        covariance: Their covariance.
        spread: The standard deviation of the differences between models, for each term.
        stability: The four coefficients of the chance of a divergence.
        models: The models that were trained.
        families: For each family, how many of its models were trained, and their mean differences.
    """

    means: Array
    covariance: Array
    spread: Array
    stability: Array
    models: tuple[tuple[str | None, float, float, bool | None], ...] = ()
    families: Mapping[str, tuple[int, Array]] = field(default_factory=dict)

    def predict(self, points: Sequence[AdapterPoint]) -> list[AdapterPrediction]:
        """Predict trainings, whether or not their models were trained before.

        Args:
            points: The trainings.

        Returns:
            One prediction per training, in the same order.
        """
        predictions: list[AdapterPrediction | None] = [None] * len(points)
        groups: dict[Any, list[int]] = {}
        for index, point in enumerate(points):
            groups.setdefault(point.model_key, []).append(index)
        for indices in groups.values():
            group = [points[index] for index in indices]
            for index, prediction in zip(indices, self._predict_model(group), strict=True):
                predictions[index] = prediction
        return [prediction for prediction in predictions if prediction is not None]

    def best(self, model: AdapterPoint, ranks: Sequence[int]) -> BestAdapter:
        """Return where to begin with a model.

        Args:
            model: The model. Its rate and its rank do not count.
            ranks: The possible ranks.

        Returns:
            The rate and the rank with the lowest prediction, of rates from 1e-5 to 1e-2.
        """
        allowed = np.array(sorted(set(ranks)), dtype=float)
        rates, tried = (grid.ravel() for grid in np.meshgrid(_RATES, allowed))
        exponents, levels = self._draw(model, np.random.default_rng(0))
        excess = _excess(exponents, levels, rates, tried)
        means = np.sort(excess, axis=0)[_KEPT].mean(axis=0)
        at = int(means.argmin())
        # Each draw of the law is a model that could be this one. It has its own best rate.
        of_rank = excess[:, tried == tried[at]]
        low, high = np.quantile(_RATES[of_rank.argmin(axis=1)], [0.25, 0.75])
        return BestAdapter(float(rates[at]), float(low), float(high), int(tried[at]))

    def _draw(self, point: AdapterPoint, random: np.random.Generator) -> tuple[Array, Array]:
        """Return the exponents and the levels of the terms, [4, draws] and [3, draws]."""
        draws = random.multivariate_normal(self.means, self.covariance, size=_NUM_DRAWS)
        exponents = np.exp(draws[:, :_NUM_EXPONENTS]).T
        terms = draws[:, _NUM_EXPONENTS:NUM_SHARED].reshape(-1, _NUM_TERMS, _NUM_FEATURES)
        if point.model_key in self.models:
            start = NUM_SHARED + _NUM_TERMS * self.models.index(point.model_key)
            differences = draws[:, start : start + _NUM_TERMS]
        else:
            differences = self._differences(point.family, random)
        features = np.repeat(_features([point]), _NUM_DRAWS, axis=0)
        if point.base is None:  # half of the draws are base models
            features[:, 2] = np.arange(_NUM_DRAWS) % 2
        return exponents, (np.einsum("dtf,df->dt", terms, features) + differences).T

    def _differences(self, family: str | None, random: np.random.Generator) -> Array:
        """Return how a model that was never trained may differ, [draws, 3].

        This is the normal distribution of one more model, given the mean of others with which it is
        correlated.
        """
        own = random.normal(0.0, self.spread, size=(_NUM_DRAWS, _NUM_TERMS))
        if family is None or family not in self.families:
            return own
        num, mean = self.families[family]
        weight = num * _OF_FAMILY / (1 + (num - 1) * _OF_FAMILY)
        return weight * mean + own * np.sqrt(1 - weight * _OF_FAMILY)

    def _predict_model(self, points: Sequence[AdapterPoint]) -> list[AdapterPrediction]:
        random = np.random.default_rng(0)
        exponents, levels = self._draw(points[0], random)
        highest = max(point.rank for point in points)
        ranks = np.unique(np.append(2.0 ** np.arange(np.floor(np.log2(highest)) + 1), highest))
        rates, ranks = (grid.ravel() for grid in np.meshgrid(_RATES, ranks))
        lowest = _excess(exponents, levels, rates, ranks).min(axis=1, keepdims=True)
        excess = _excess(
            exponents,
            levels,
            np.array([point.rate for point in points]),
            np.array([float(point.rank) for point in points]),
        )
        excess = np.clip(excess - lowest, 0.0, _MOST_EXCESS)
        means = np.sort(excess, axis=0)[_KEPT].mean(axis=0)
        deviations = np.hypot(_NOISE, _RELATIVE_NOISE * excess)
        # One draw of noise for all points, so that equal points get equal intervals.
        noisy = excess + deviations * random.normal(size=(_NUM_DRAWS, 1))
        tail = (1 - _CONFIDENCE) / 2
        low, high = np.clip(np.quantile(noisy, [tail, 1 - tail], axis=0), 0.0, _MOST_EXCESS)
        chances = self._chances_of_divergence(points)
        return [
            AdapterPrediction(*map(float, values))
            for values in zip(
                means, np.minimum(low, means), np.maximum(high, means), chances, strict=True
            )
        ]

    def _chances_of_divergence(self, points: Sequence[AdapterPoint]) -> Array:
        return 1 / (1 + np.exp(-_stability_features(points) @ self.stability))


def fit_adapter_law(measured: Sequence[AdapterPoint]) -> AdapterLaw:
    """Fit the law to trainings.

    Args:
        measured: Trainings with their test losses, of at least two models.

    Returns:
        The law.

    Raises:
        DataError: If fewer than two models have at least two trainings that did not diverge.
    """
    finished = [point for point in measured if not point.diverged]
    models = tuple(dict.fromkeys(point.model_key for point in finished))
    if len(models) < 2 or len(finished) < 2 * len(models):
        raise DataError(
            f"{len(finished)} trainings of {len(models)} models that did not diverge are too few",
            allowed="at least two models, each with several rates or ranks",
            next_step="Leave out --measured to use the law that is included.",
        )
    losses = np.array([float(point.test_nll or 0.0) for point in finished])
    rates = np.array([point.rate for point in finished])
    ranks = np.array([float(point.rank) for point in finished])
    of_model = np.array([models.index(point.model_key) for point in finished])
    features = _features(finished)
    lowest = np.array([losses[of_model == index].min() for index in range(len(models))])[of_model]
    deviations = np.hypot(_NOISE, _RELATIVE_NOISE * (losses - lowest))
    num_differences = _NUM_TERMS * len(models)

    def residuals(at: Array) -> Array:
        shared = at[:NUM_SHARED]
        exponents = np.exp(shared[:_NUM_EXPONENTS])
        terms = shared[_NUM_EXPONENTS:].reshape(_NUM_TERMS, _NUM_FEATURES, *at.shape[1:])
        differences = at[NUM_SHARED : NUM_SHARED + num_differences]
        differences = differences.reshape(len(models), _NUM_TERMS, *at.shape[1:])
        below = at[NUM_SHARED + num_differences :]
        if at.ndim == 1:
            levels = terms @ features.T + differences[of_model].T
            floors = lowest + below[of_model]
        else:
            levels = np.einsum("tfs,nf->tsn", terms[..., 0], features)
            levels = levels + np.moveaxis(differences[of_model][..., 0], 0, -1)
            floors = lowest + below[of_model][..., 0].T
        left = losses - floors - _sum_of_terms(exponents, levels, rates, ranks)
        return left / deviations

    means = np.concatenate(
        [_EXPONENTS, _TERMS.ravel(), np.zeros(num_differences), np.zeros(len(models))]
    )
    believed = np.concatenate(
        [
            np.full(_NUM_EXPONENTS, 0.5),
            np.tile(_TERM_DEVIATIONS, _NUM_TERMS),
            np.tile(_MODEL_DEVIATIONS, len(models)),
            np.full(len(models), _LOWEST_DEVIATION),
        ]
    )
    at = minimise(residuals, means, believed, [means])
    _, slopes = jacobian(residuals, at)
    covariance = np.linalg.inv(slopes.T @ slopes + np.diag(believed**-2.0))
    kept = NUM_SHARED + num_differences
    differences = at[NUM_SHARED:kept].reshape(len(models), _NUM_TERMS)
    uncertain = np.diag(covariance)[NUM_SHARED:kept].reshape(len(models), _NUM_TERMS)
    spread = np.sqrt((differences**2 + uncertain).mean(axis=0))
    members: dict[str, list[int]] = {}
    for index, (name, *_) in enumerate(models):
        if name is not None:
            members.setdefault(_family_of(name), []).append(index)
    return AdapterLaw(
        means=at[:kept],
        covariance=covariance[:kept, :kept],
        spread=spread,
        stability=_fit_stability(measured),
        models=models,
        families={
            family: (len(indices), differences[indices].mean(axis=0))
            for family, indices in members.items()
        },
    )


def _family_of(model: str) -> str:
    own = _SIZE_IN_NAME.sub("", model.replace("\\", "/").rstrip("/").split("/")[-1].lower())
    versioned = _VERSION_IN_NAME.match(own)
    return (own if versioned is None else versioned.group(0)).strip("-_ ")


def _fit_stability(measured: Sequence[AdapterPoint]) -> Array:
    """Return the most probable coefficients of the chance of a divergence, by Newton's method."""
    features = _stability_features(measured)
    diverged = np.array([float(point.diverged) for point in measured])
    precision = np.diag(_STABILITY_DEVIATIONS**-2.0)
    at = _STABILITY
    for _ in range(50):
        chances = 1 / (1 + np.exp(-features @ at))
        curvature = (features.T * (chances * (1 - chances))) @ features + precision
        slope = features.T @ (diverged - chances) - precision @ (at - _STABILITY)
        at = at + np.clip(np.linalg.solve(curvature, slope), -1.0, 1.0)
    return at


def _features(points: Sequence[AdapterPoint]) -> Array:
    """Return what the terms of each point's model depend on, [points, 3].

    A model that may be a base model or not is between both.
    """
    return np.array(
        [
            [
                1.0,
                np.log(point.parameters_b / _SIZE_B),
                0.5 if point.base is None else float(point.base),
            ]
            for point in points
        ]
    )


def _stability_features(points: Iterable[AdapterPoint]) -> Array:
    return np.array(
        [
            [
                1.0,
                np.log(point.rate / _UNSTABLE_RATE),
                np.log(point.rank / _RANK),
                np.log(point.parameters_b / _SIZE_B),
            ]
            for point in points
        ]
    )


def _excess(exponents: Array, levels: Array, rates: Array, ranks: Array) -> Array:
    """Return the three terms' sum, [draws, points], of exponents and levels for each draw."""
    return _sum_of_terms(exponents[..., None], levels[..., None], rates, ranks)


def _sum_of_terms(exponents: Array, levels: Array, rates: Array, ranks: Array) -> Array:
    """Return the sum of what a low rate, a high rate and a low rank cost, in nats per token."""
    rate, rank = np.log(rates / _RATE), np.log(ranks / _RANK)
    too_low = np.exp(levels[0] - exponents[0] * rate)
    too_high = np.exp(levels[1] + exponents[1] * rate - exponents[2] * rank)
    return too_low + too_high + np.exp(levels[2] - exponents[3] * rank)


def shipped_law() -> AdapterLaw:
    """Return the law that is included.

    Source: fitted by `python -m tests.benchmarks.adapter_law` to the test losses of 18 language
    models in "LoRA without regret" (Thinking Machines Lab, 2025), published in tinker-cookbook. All
    were trained on tulu3 with batches of 128 sequences, 780 steps and alpha 32.
    """
    stored = json.loads(SHIPPED.read_text(encoding="utf-8"))
    means, covariance, spread, stability = (
        np.array(stored[name]) for name in ("means", "covariance", "spread", "stability")
    )
    families = {
        family: (known["num_models"], np.array(known["differences"]))
        for family, known in stored["families"].items()
    }
    return AdapterLaw(means, covariance, spread, stability, families=families)


def predict_adapters(points: Path, measured: Path | None) -> tuple[list[AdapterPoint], list[Any]]:
    """Predict the trainings in a CSV file.

    Args:
        points: Has the columns parameters_b, learning_rate and rank, and optionally active_b, base,
            alpha and model.
        measured: Also has the column test_nll. None to use the law that is included.

    Returns:
        The trainings and their predictions.

    Raises:
        DataError: If a file cannot be read, or has too few trainings to fit the law.
    """
    requested = check_has_plans(points, _read(points))
    law = shipped_law() if measured is None else fit_adapter_law(read_trained_adapters(measured))
    return requested, law.predict(requested)


def read_trained_adapters(path: Path) -> list[AdapterPoint]:
    """Read trainings with their test losses from a CSV file.

    Raises:
        DataError: If the file cannot be read, or a column is missing or wrong.
    """
    return _read(path, _TEST_NLL)


def _read(path: Path, *more: Column) -> list[AdapterPoint]:
    points = read_objects(path, _point_of, *_COLUMNS, *more)
    far = sorted({name for point in points for name in _extrapolated(point)})
    if far:
        warnings.warn(
            f"{path} has a {' and a '.join(far)} far outside the trainings that the law was fitted"
            " to, so do not rely on these rows",
            stacklevel=3,
        )
    notes = {note_on_size(point.parameters_b) for point in points if not _extrapolated(point)}
    for note in sorted(note for note in notes if note is not None):
        warnings.warn(f"{path}: {note}", stacklevel=3)
    return points


def note_on_size(parameters_b: float) -> str | None:
    """Return a note about a model that is smaller or larger than those of the law, or None.

    Args:
        parameters_b: Billions of parameters.
    """
    smallest, largest = _TRAINED["parameters_b"]
    if smallest <= parameters_b <= largest:
        return None
    word = "less" if parameters_b < smallest else "more"
    bound = smallest if parameters_b < smallest else largest
    return (
        f"the law was fitted to models of {smallest:,g} to {largest:,g} billion parameters. With"
        f" {word} than {bound:,g} billion, its answers are less certain"
    )


def _point_of(row: dict[str, Any]) -> AdapterPoint:
    defaults = {"active_b": row["parameters_b"], "alpha": LAW_ALPHA}
    row = {name: defaults.get(name) if value is None else value for name, value in row.items()}
    point = AdapterPoint(**row)
    if point.active_b > point.parameters_b:
        raise DataError(
            f"{point.active_b:g} is more than all {point.parameters_b:g} billion parameters",
            field="active_b",
            allowed="at most parameters_b",
        )
    return point


def _extrapolated(point: AdapterPoint) -> list[str]:
    """Return the columns of a point that are more than three times outside the public trainings."""
    values = {
        "learning_rate": point.rate,
        "rank": float(point.rank),
        "parameters_b": point.parameters_b,
    }
    return [
        name
        for name, value in values.items()
        if not _TRAINED[name][0] / 3 <= value <= 3 * _TRAINED[name][1]
    ]


def _loss(cell: str) -> float:
    if cell.lower() in ("", "nan", "inf"):
        return float("nan")
    try:
        loss = written_number(cell)
    except ValueError:
        loss = -1.0
    if loss < 0:
        raise ValueError("a number from 0, or nan for a training that diverged")
    return loss


_IN_BILLIONS = number_between(1e-6, 1e5, "billion parameters")
_ALPHA = number_between(1e-6, 1e6)
_COLUMNS = (
    Column("parameters_b", _IN_BILLIONS),
    Column("active_b", lambda cell: _IN_BILLIONS(cell) if cell else None, required=False),
    Column("base", lambda cell: truth_value(cell) if cell else None, required=False),
    Column("learning_rate", number_between(1e-12, 1e3)),
    Column("rank", whole_number_to(10**6)),
    Column("alpha", lambda cell: _ALPHA(cell) if cell else None, required=False),
    Column("model", lambda cell: cell or None, required=False),
)
_TEST_NLL = Column("test_nll", _loss)
