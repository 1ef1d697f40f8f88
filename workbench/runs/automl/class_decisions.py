"""From probabilities to decisions: calibration, and the factor of each class.

A model that minimises log loss rarely predicts a rare class. Which probability is enough for it
follows from the metric, or from what mistakes cost. Both are learnt on validation samples, and
are used only if they help on validation samples that they were not learnt from.

With few samples of a class, the best threshold on these samples is luck. Calibrated probabilities
tell how many samples of each class to expect above a threshold, without any luck. So both kinds of
counts are mixed: the fewer samples a class has, the more the probabilities count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_percent
from workbench.foundation.validation_errors import closest

BALANCED = "balanced"
MIN_PROBABILITY = 1e-7
"""No class is less probable, so that a single surprise costs a finite log loss."""
_FEWEST_SAMPLES = 50
_NUM_FOLDS = 5
# Validation samples that are all right would make probabilities as sure as they can be.
_TEMPERATURES = (0.5, 4.0)
_NUM_HALVINGS = 30
# A smaller change is not worth another step in each prediction.
_LEAST_CHANGE = 0.05
_NUM_THRESHOLDS, _SMOOTHED = 200, 5
# With this many samples of the rarest class, they count as much as the probabilities.
_EQUAL_COUNT = 100
# Knots of a curve of calibration: few enough to be sure of each, and apart in log-odds.
_FEWEST_PER_KNOT, _MAX_KNOTS, _LEAST_STEP = 20, 20, 0.1
_FEWEST_FOR_CURVES = 200
_FACTORS = np.exp(np.linspace(math.log(0.1), math.log(10.0), 15))
_NUM_STEPS = 10
_NUM_PASSES, _MAX_CLASSES = 2, 20

CountScore = Callable[[np.ndarray], float]
"""Of (3, classes) counts: how often each class is right, predicted, and wanted."""


@dataclass(frozen=True)
class Decisions:
    """How probabilities of a model are corrected, and which class follows from them.

    Attributes:
        temperature: Probabilities are raised to the power of its inverse. Above 1 they become less
            sure.
        factors: The class with the largest probability times its factor is predicted. Empty if
            all are 1.
        curves: For each class, the log-odds at which it was predicted, and the log-odds at which it
            then occurred. They replace the temperature. Empty if there are none. Of two classes,
            only the second has a curve.
        costs: What it costs to predict a class (column) if another one (row) is true. The class
            with the least expected cost is predicted. Empty if all mistakes cost the same.
        moved: The share of the samples that the curves were learnt from whose most probable class
            differs with them. A temperature changes none.
    """

    temperature: float = 1.0
    factors: tuple[float, ...] = ()
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    costs: tuple[tuple[float, ...], ...] = ()
    moved: float = 0.0

    def calibrated(self, predicted: np.ndarray) -> np.ndarray:
        """Return corrected probabilities, all of which are above 0.

        Args:
            predicted: (samples, classes) probabilities, or other predictions, which do not change.
        """
        if self.curves:
            return above_0(_along_curves(predicted, self.curves))
        if self.temperature == 1.0:
            return predicted
        powers = np.maximum(predicted, MIN_PROBABILITY) ** (1.0 / self.temperature)
        return above_0(powers / powers.sum(axis=1, keepdims=True))

    def weighed(self, predicted: np.ndarray) -> np.ndarray:
        """Return what is largest for the class that is predicted: probabilities times factors.

        With costs, it is minus the expected cost.

        Args:
            predicted: (samples, classes) probabilities, or other predictions, which do not change.
        """
        if self.costs:
            return -predicted @ np.array(self.costs)
        if not self.factors:
            return predicted
        return predicted * np.array(self.factors)

    def describe(self, labels: tuple[object, ...]) -> str | None:
        """Return how the class follows from probabilities, in words.

        None if it is the most probable class of the models.
        """
        if self.costs:
            return "the class is predicted whose expected distance from the true one costs least"
        if not self.factors and self.moved:
            share = format_percent(self.moved)
            return f"calibration changes the predicted class of {share} of the validation samples"
        if not self.factors:
            return None
        if len(self.factors) == 2:
            threshold = self.factors[0] / (self.factors[0] + self.factors[1])
            return f"{labels[1]} is predicted from a probability of {threshold:.3g} on"
        pairs = zip(labels, self.factors, strict=True)
        named = ", ".join(f"{label} x {factor:.3g}" for label, factor in pairs)
        return f"the class with the largest probability times its factor is predicted: {named}"


def learn_decisions(
    predicted: np.ndarray,
    targets: np.ndarray,
    *,
    score: CountScore | None,
    class_factors: tuple[float, ...] = (),
    distance_power: int = 0,
    seed: int = 0,
    copies: np.ndarray | None = None,
) -> Decisions:
    """Learn the calibration, and which class follows from it, from validation samples.

    Args:
        predicted: (samples, classes) probabilities, by models that did not learn from the samples.
        targets: The class of each sample.
        score: What the factors maximise, or None if the most probable class is predicted.
        class_factors: The factors that the user gave, or empty.
        distance_power: For ordered classes, the power of distances that a metric measures, or 0.
        seed: Seed of the folds that tell whether both help.
        copies: The number of the row that each sample is a copy of, or None if all differ.

    Source: temperature scaling of Guo et al. (2017), isotonic regression as in Zadrozny and Elkan
        (2002), and thresholds from expected counts as in Ye et al. (2012).
    """
    decisions = Decisions(factors=class_factors)
    if copies is None:
        copies = np.arange(len(targets))
    num_rows = int(copies.max(initial=-1)) + 1
    folds = (np.random.default_rng(seed).permutation(num_rows) % _NUM_FOLDS)[copies]
    if num_rows >= _FEWEST_SAMPLES and predicted.shape[1] <= _MAX_CLASSES:
        calibration = _calibration(predicted, targets, folds, num_rows)
        decisions = replace(calibration, factors=class_factors)
    elif not distance_power:
        return decisions
    if distance_power and not class_factors:
        costs = _distance_costs(decisions.calibrated(predicted), targets, distance_power)
        return replace(decisions, costs=tuple(map(tuple, costs.tolist())))
    if score is None or class_factors:
        return decisions
    factors = _helpful_factors(decisions.calibrated(predicted), targets, score, folds)
    return replace(decisions, factors=factors)


def factors_of(
    class_weights: str | Mapping[str, float] | None, labels: tuple[object, ...], shares: np.ndarray
) -> tuple[float, ...]:
    """Return the factor of each class that the user asked for, or ().

    Args:
        class_weights: "balanced", the weight of each class that does not have weight 1, or None.
        labels: The classes.
        shares: The share of each class in the samples to learn from.

    Raises:
        ArgumentError: If there is no such class, or a weight is not above 0.
    """
    if class_weights is None:
        return ()
    if class_weights == BALANCED:
        factors = 1.0 / np.maximum(shares, 1e-12)
        return tuple(float(factor) for factor in factors / factors.min())
    if isinstance(class_weights, str):
        raise ArgumentError(
            f"{class_weights!r} is no weight of a class",
            field="class_weights",
            allowed="balanced, or a weight for each class such as yes=5",
        )
    names = [str(label) for label in labels]
    given = {str(name): float(weight) for name, weight in class_weights.items()}
    for name, weight in given.items():
        if name not in names:
            allowed, meant = closest(name, names)
            raise ArgumentError(
                f"{name!r} is not a class", field="class_weights", allowed=allowed, next_step=meant
            )
        if not 0 < weight < math.inf:
            raise ArgumentError(
                f"the weight of {name!r} is {weight:g}",
                field="class_weights",
                allowed="a number above 0",
            )
    return tuple(given.get(name, 1.0) for name in names)


def _calibration(
    predicted: np.ndarray, targets: np.ndarray, folds: np.ndarray, num_rows: int
) -> Decisions:
    """Return the calibration with the least log loss on samples that it was not learnt from."""
    best, losses = Decisions(), _log_losses(predicted, targets)
    learners = [_by_temperature]
    if num_rows >= _FEWEST_FOR_CURVES:
        learners.append(_by_curves)
    for learn in learners:
        learnt = learn(predicted, targets)
        if learnt == Decisions():
            continue
        others = np.empty(len(targets))
        for fold in range(_NUM_FOLDS):
            held_out = folds == fold
            decisions = learn(predicted[~held_out], targets[~held_out])
            calibrated = decisions.calibrated(predicted[held_out])
            others[held_out] = _log_losses(calibrated, targets[held_out])
        gains = losses - others
        if gains.mean() > gains.std() / num_rows**0.5:
            best, losses = learnt, others
    if not best.curves:
        return best
    is_moved = best.calibrated(predicted).argmax(axis=1) != predicted.argmax(axis=1)
    return replace(best, moved=float(is_moved.mean()))


def above_0(probabilities: np.ndarray) -> np.ndarray:
    """Return (samples, classes) probabilities, none of which is below `MIN_PROBABILITY`."""
    bounded = np.maximum(probabilities, MIN_PROBABILITY)
    return bounded / bounded.sum(axis=1, keepdims=True)


def _by_temperature(predicted: np.ndarray, targets: np.ndarray) -> Decisions:
    temperature = _best_temperature(predicted, targets)
    return Decisions(1.0 if abs(math.log(temperature)) < _LEAST_CHANGE else temperature)


def _by_curves(predicted: np.ndarray, targets: np.ndarray) -> Decisions:
    num_classes = predicted.shape[1]
    classes = [1] if num_classes == 2 else range(num_classes)
    return Decisions(
        curves=tuple(_curve(predicted[:, number], targets == number) for number in classes)
    )


def _curve(
    probabilities: np.ndarray, is_class: np.ndarray
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the log-odds of neighbouring samples, and of how often they are of the class.

    Samples are put into bins of equal size. The isotonic regression of the bins joins those that
    are not in order. A class that never occurs in a bin may occur once in twice as many samples.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(probabilities, kind="stable")
    num_bins = max(1, min(_MAX_KNOTS, len(order) // _FEWEST_PER_KNOT))
    parts = np.array_split(order, num_bins)
    sizes = np.array([len(part) for part in parts], dtype=float)
    means = np.array([probabilities[part].mean() for part in parts])
    overall = is_class.mean()
    shares = np.array([(is_class[part].sum() + overall) / (len(part) + 1.0) for part in parts])
    fitted = isotonic_regression(shares, weights=sizes).x
    _, starts = np.unique(fitted, return_index=True)
    weights = np.add.reduceat(sizes, starts)
    places = _log_odds(np.add.reduceat(means * sizes, starts) / weights)
    values = _log_odds(np.add.reduceat(fitted * sizes, starts) / weights)
    kept = [0]
    for number in range(1, len(places)):
        if places[number] - places[kept[-1]] >= _LEAST_STEP:
            kept.append(number)
    return tuple(places[kept].tolist()), tuple(values[kept].tolist())


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    bounded = np.clip(probabilities, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    return np.log(bounded) - np.log1p(-bounded)


def _along_curves(predicted: np.ndarray, curves: Sequence[Any]) -> np.ndarray:
    """Return probabilities whose log-odds follow the curves, and on both sides a line."""
    classes = [1] if predicted.shape[1] == 2 else range(predicted.shape[1])
    columns = []
    for number, (places, values) in zip(classes, curves, strict=True):
        odds = _log_odds(predicted[:, number])
        beyond = np.minimum(odds - places[0], 0.0) + np.maximum(odds - places[-1], 0.0)
        columns.append(1.0 / (1.0 + np.exp(-(np.interp(odds, places, values) + beyond))))
    if predicted.shape[1] == 2:
        return np.column_stack([1.0 - columns[0], columns[0]])
    joined = np.column_stack(columns)
    return joined / joined.sum(axis=1, keepdims=True)


def _log_losses(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(predicted[np.arange(len(targets)), targets], MIN_PROBABILITY))


def _best_temperature(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Return the temperature with the least log loss, which has one minimum, by golden section.

    One more sample of no class counts, so that samples which are all right do not mean certainty.

    Source: the targets of Platt (1999), which keep a sigmoid from perfect certainty.
    """
    golden = (5**0.5 - 1) / 2
    low, high = (math.log(bound) for bound in _TEMPERATURES)

    def loss(log_temperature: float) -> float:
        calibrated = Decisions(math.exp(log_temperature)).calibrated(predicted)
        unsure = -np.log(calibrated).mean()  # the loss of a sample that may be of any class
        return float(_log_losses(calibrated, targets).mean() + unsure / len(targets))

    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_NUM_HALVINGS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)


def _helpful_factors(
    predicted: np.ndarray, targets: np.ndarray, score: CountScore, folds: np.ndarray
) -> tuple[float, ...]:
    """Return the best factors, or () if they do not help on samples they were not learnt from."""
    wanted = _mixed(predicted, targets)
    chosen = np.empty(len(targets), dtype=np.int64)
    for fold in range(_NUM_FOLDS):
        held_out = folds == fold
        factors = _best_factors(predicted[~held_out], wanted[~held_out], score)
        chosen[held_out] = (predicted[held_out] * factors).argmax(axis=1)
    if not score(_counts(chosen, wanted)) > score(_counts(predicted.argmax(axis=1), wanted)):
        return ()
    return tuple(float(factor) for factor in _best_factors(predicted, wanted, score))


def _distance_costs(predicted: np.ndarray, targets: np.ndarray, power: int) -> np.ndarray:
    """Return the costs of mistakes by which a metric of ordered classes is the best.

    The quadratic kappa is 1 minus the squared distance divided by the one by chance. The latter is
    larger for predictions far from the mean class, so these cost less. How much less depends on the
    kappa itself, which is found in a few steps.

    Source: the method of Dinkelbach (1967) for ratios.
    """
    places = np.arange(predicted.shape[1], dtype=float)
    distances = np.abs(places[:, None] - places) ** power
    if power < 2:
        return distances
    wanted = _mixed(predicted, targets)
    shares = wanted.mean(axis=0)
    mean = shares @ places
    spread = (places - mean) ** 2
    costs = distances
    for _ in range(_NUM_STEPS):
        chosen = (predicted @ costs).argmin(axis=1)
        observed = (wanted * distances[:, chosen].T).sum() / len(chosen)
        by_chance = spread[chosen].mean() + shares @ spread
        if not by_chance > 0:
            break
        costs = distances - observed / by_chance * spread
    return costs


def _mixed(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the share of each sample that is of each class, from its class and probabilities."""
    true = np.eye(predicted.shape[1])[targets]
    fewest = true.sum(axis=0).min()
    part = _EQUAL_COUNT / (_EQUAL_COUNT + fewest)
    return part * predicted + (1.0 - part) * true


def _counts(chosen: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return how often each class is right, predicted, and wanted."""
    num_classes = wanted.shape[1]
    right = np.bincount(
        chosen, weights=wanted[np.arange(len(chosen)), chosen], minlength=num_classes
    )
    return np.stack([right, np.bincount(chosen, minlength=num_classes), wanted.sum(axis=0)])


def _best_factors(predicted: np.ndarray, wanted: np.ndarray, score: CountScore) -> np.ndarray:
    if predicted.shape[1] == 2:
        return _best_threshold(predicted, wanted, score)
    factors = np.ones(predicted.shape[1])
    best = score(_counts(predicted.argmax(axis=1), wanted))
    for _ in range(_NUM_PASSES):
        for number in range(len(factors)):
            for factor in _FACTORS:
                tried = factors.copy()
                tried[number] = factor
                value = score(_counts((predicted * tried).argmax(axis=1), wanted))
                if value > best + 1e-12:
                    best, factors = value, tried
    return factors / factors.min()


def _best_threshold(predicted: np.ndarray, wanted: np.ndarray, score: CountScore) -> np.ndarray:
    """Return the factors of the best threshold of two classes.

    Thresholds lie between neighbouring probabilities. Half of them are spread over the samples that
    are of the second class, which may be few. Scores of neighbouring thresholds are averaged,
    because a single one may be the best by chance.
    """
    order = np.argsort(-predicted[:, 1], kind="stable")
    falling = predicted[order, 1]
    num_all = np.arange(1, len(order) + 1, dtype=float)
    num_second = np.cumsum(wanted[order, 1])
    total = wanted.sum(axis=0)
    shares = np.linspace(0.0, 1.0, _NUM_THRESHOLDS // 2 + 2)[1:-1]
    at = np.concatenate([num_all[-1] * shares, np.interp(shares * total[1], num_second, num_all)])
    places = np.unique(np.clip(at.astype(int), 1, len(order) - 1))
    # Equal probabilities are on one side of any threshold.
    places = places[falling[places - 1] > falling[places]]
    thresholds = (falling[places - 1] + falling[places]) / 2
    usual = int((falling > 0.5).sum())
    if not np.isin(usual, places):
        places, thresholds = np.append(places, usual), np.append(thresholds, 0.5)
    rising = np.argsort(thresholds, kind="stable")
    places, thresholds = places[rising], thresholds[rising]
    kept = (thresholds > MIN_PROBABILITY) & (thresholds < 1 - MIN_PROBABILITY)
    places, thresholds = places[kept], thresholds[kept]
    if not len(thresholds):
        return np.ones(2)
    scores = []
    for number in places:
        second = num_second[number - 1] if number else 0.0
        num_first = len(order) - number
        right = (total[0] - (number - second), second)
        scores.append(score(np.array([right, (num_first, number), total])))
    half = _SMOOTHED // 2
    smooth = [
        np.mean(scores[max(0, place - half) : place + half + 1]) for place in range(len(scores))
    ]
    threshold = float(thresholds[int(np.argmax(smooth))])
    return np.array([1.0, (1.0 - threshold) / threshold])
