"""What AutoML can optimise, the scores of predictions, and the simplest guess.

Pure functions of arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.data.row_splits import RowBlocks
from workbench.experiment.goals import Goal, sign_of
from workbench.experiment.metric_declarations import goal_of
from workbench.foundation.errors import ArgumentError
from workbench.foundation.validation_errors import closest
from workbench.models.class_scores import ClassScore, f1, macro_roc_auc, mean_score, recall
from workbench.runs.automl.class_decisions import MIN_PROBABILITY, CountScore, Decisions
from workbench.runs.automl.score_intervals import (
    Judged,
    MoreRows,
    Scale,
    Score,
    interval_of,
    parts_of,
    with_more_rows,
    within_reach,
)
from workbench.runs.automl.several_targets import loss_of_several, measures_of
from workbench.runs.automl.targets import Task

Weights = np.ndarray | None
"""The weight of each sample, or None if all are equal. A sample of weight 2 is like two samples."""


def _log_loss(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    of_target = predicted[np.arange(len(targets)), targets]
    return float(-np.average(np.log(np.maximum(of_target, MIN_PROBABILITY)), weights=weights))


def _accuracy(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    return float(np.average(predicted.argmax(axis=1) == targets, weights=weights))


def _counts(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> np.ndarray:
    """Return how often each class was right, predicted, and wanted."""
    chosen, num_classes = predicted.argmax(axis=1), predicted.shape[1]
    counted = weights if weights is not None else np.ones(len(targets))
    right = np.bincount(targets, weights=counted * (chosen == targets), minlength=num_classes)
    others = (
        np.bincount(classes, weights=counted, minlength=num_classes)
        for classes in (chosen, targets)
    )
    return np.stack([right, *others])


def _of_classes(score: ClassScore) -> CountScore:
    return functools.partial(mean_score, score)


def _of_positives(score: ClassScore) -> CountScore:
    """Return the score of the second of two classes. For more classes, it is the mean."""

    def measure(counts: np.ndarray) -> float:
        if len(counts[0]) != 2:
            return mean_score(score, counts)
        with np.errstate(invalid="ignore"):
            return float(np.nan_to_num(score(*counts)[1]))

    return measure


def _of_counts(score: CountScore) -> Score:
    def measure(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
        return score(_counts(predicted, targets, weights))

    return measure


def _precision(right: np.ndarray, predicted: np.ndarray, _wanted: np.ndarray) -> np.ndarray:
    return np.divide(right, predicted, out=np.zeros(len(right)), where=predicted > 0)


def _mcc(counts: np.ndarray) -> float:
    """Return the correlation of predicted and true classes, 0 if one of them is constant.

    Source: Matthews (1975); for several classes Gorodkin (2004).
    """
    right, chosen, wanted = counts.astype(float)
    num = chosen.sum()
    product = (num**2 - (chosen**2).sum()) * (num**2 - (wanted**2).sum())
    if product <= 0:
        return 0.0
    return float((right.sum() * num - (chosen * wanted).sum()) / product**0.5)


def _distances(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.abs(predicted.argmax(axis=1) - targets).astype(float)


def _class_distance(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    """Return by how many classes predictions are off on average."""
    return float(np.average(_distances(predicted, targets), weights=weights))


def _quadratic_kappa(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    """Return the agreement of ordered classes beyond chance, NaN if all are of one class.

    Source: Cohen (1968), with squared distances.
    """
    chosen = predicted.argmax(axis=1)
    mean = functools.partial(np.average, weights=weights)
    by_chance = _variance(chosen, weights) + _variance(targets, weights)
    by_chance += (mean(chosen) - mean(targets)) ** 2
    if not by_chance > 0:
        return float("nan")
    return float(1.0 - mean(_distances(predicted, targets) ** 2) / by_chance)


def _variance(values: np.ndarray, weights: Weights) -> float:
    mean = np.average(values, weights=weights)
    return float(np.average((values - mean) ** 2, weights=weights))


def _average_precision(
    predicted: np.ndarray, targets: np.ndarray, weights: Weights = None
) -> float:
    """Return the mean precision over the places of the positives, by falling probability.

    With more than two classes, each is compared with the rest. Equal probabilities share a place.
    """
    counted = weights if weights is not None else np.ones(len(targets))
    present = np.unique(targets[counted > 0])
    if len(present) < 2:
        return float("nan")
    numbers = [1] if predicted.shape[1] == 2 else present.tolist()
    return float(
        np.mean([_precision_at(predicted[:, at], targets == at, counted) for at in numbers])
    )


def _precision_at(scores: np.ndarray, is_class: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    own = weights * is_class
    num_found, num_all = (np.cumsum(counted[order])[last] for counted in (own, weights))
    precision = np.divide(num_found, num_all, out=np.zeros(len(last)), where=num_all > 0)
    return float((precision * np.diff(num_found, prepend=0)).sum() / own.sum())


def _mape(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    """Return the mean error as a share of the target, over targets that are not 0."""
    known = targets != 0
    if weights is not None:
        known &= weights > 0
        weights = weights[known]
    if not known.any():
        return float("nan")
    return float(np.average(np.abs(1.0 - predicted[known, 0] / targets[known]), weights=weights))


def _median_error(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    return weighted_median(np.abs(predicted[:, 0] - targets), weights)


def weighted_median(values: np.ndarray, weights: Weights) -> float:
    """Return the median of values, which is that of repeated values if weights are whole numbers.

    Args:
        values: Numbers, at least one.
        weights: The weight of each, or None if all are equal.
    """
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    tiny = 1e-12  # the shares are sums with rounding errors
    middle = [np.searchsorted(shares, 0.5 - tiny), np.searchsorted(shares, 0.5 + tiny)]
    return float(np.mean(values[order][np.minimum(middle, len(values) - 1)]))


def weighted_quantiles(values: np.ndarray, levels: Sequence[float], weights: Weights) -> np.ndarray:
    """Return quantiles of values. With weights, each quantile is one of the values.

    Args:
        values: Numbers, at least one.
        levels: Which quantiles, from 0 to 1.
        weights: The weight of each value, or None if all are equal.
    """
    if weights is None:
        return np.quantile(values, levels)
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(shares, np.asarray(levels) - 1e-12)
    return values[order][np.minimum(places, len(values) - 1)]


def _squared_error(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    return float(np.average((predicted[:, 0] - targets) ** 2, weights=weights))


def _rmse(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    return _squared_error(predicted, targets, weights) ** 0.5


def _mae(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    return float(np.average(np.abs(predicted[:, 0] - targets), weights=weights))


def pinball_of(levels: Sequence[float]) -> Score:
    """Return the mean pinball loss of some quantiles.

    Predictions are (samples, 1 + levels) numbers: the prediction, then its quantiles. If there are
    only predictions, their quantiles are as far away as the errors of these samples are.

    Args:
        levels: Which quantiles, between 0 and 1.

    Source: Koenker and Bassett (1978).
    """

    def measure(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
        quantiles = predicted[:, 1:]
        if not quantiles.size:
            steps = weighted_quantiles(targets - predicted[:, 0], levels, weights)
            quantiles = predicted[:, :1] + steps
        errors = targets[:, None] - quantiles
        losses = np.maximum(errors * levels, errors * (np.asarray(levels) - 1.0))
        return float(np.average(losses.mean(axis=1), weights=weights))

    return measure


def _r2(predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
    spread = _variance(targets, weights)
    if spread <= 0:
        return float("nan")
    return 1.0 - _squared_error(predicted, targets, weights) / spread


@dataclass(frozen=True)
class Measure:
    """What a run can optimise.

    Attributes:
        score: Measures predictions.
        goal: In which direction it is better.
        objective: The metric that trials report of it, to compare them.
        scale: Between which values it lies, as `interval_of` reads it.
        is_decided: Whether it reads only which class is predicted.
        tuned: The score of counts that is maximised by choosing the probability that is enough for
            a class, or None if the most probable class is predicted.
        distance_power: The power of the distance between ordered classes that it measures. 0 if it
            is not for ordered classes.
        is_per_class: Whether a rare class counts as much as a frequent one, so that the score rests
            on the samples of the rarest.
        of_counts: The score of how often each class was right, predicted and wanted, or None if it
            reads more than that.
    """

    score: Score
    goal: Goal
    objective: str
    scale: Scale
    is_decided: bool = False
    tuned: CountScore | None = None
    is_per_class: bool = False
    distance_power: int = 0
    of_counts: CountScore | None = None

    @property
    def is_tuned(self) -> bool:
        """Whether the class that is predicted is chosen to be good in it."""
        return self.tuned is not None or self.distance_power > 0

    @property
    def objective_goal(self) -> Goal:
        """In which direction what trials report is better."""
        goal = goal_of(self.objective)
        assert goal is not None
        return goal

    def loss(self, predicted: np.ndarray, targets: np.ndarray, weights: Weights = None) -> float:
        """Return the score as a loss.

        Less is better, and none is below 0 where the best score is 1.
        """
        value = self.score(predicted, targets, weights)
        if self.goal == "maximize":
            return 1.0 - value
        return value


QUADRATIC_KAPPA = "quadratic_kappa"
PINBALL = "pinball"
QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The quantiles that are predicted if the user asks for the pinball loss without any."""
METRICS: dict[Task, dict[str, Measure]] = {
    "classification": {
        "log_loss": Measure(_log_loss, "minimize", "val_loss", "error"),
        "accuracy": Measure(_accuracy, "maximize", "val_accuracy", "share", is_decided=True),
        "balanced_accuracy": Measure(
            _of_counts(_of_classes(recall)),
            "maximize",
            "val_balanced_accuracy",
            "share",
            is_decided=True,
            tuned=_of_classes(recall),
            is_per_class=True,
            of_counts=_of_classes(recall),
        ),
        "macro_f1": Measure(
            _of_counts(_of_classes(f1)),
            "maximize",
            "val_macro_f1",
            "share",
            is_decided=True,
            tuned=_of_classes(f1),
            is_per_class=True,
            of_counts=_of_classes(f1),
        ),
        "roc_auc": Measure(macro_roc_auc, "maximize", "val_roc_auc", "share", is_per_class=True),
        "average_precision": Measure(
            _average_precision, "maximize", "val_loss", "share", is_per_class=True
        ),
        "f1": Measure(
            _of_counts(_of_positives(f1)),
            "maximize",
            "val_loss",
            "share",
            is_decided=True,
            tuned=_of_positives(f1),
            is_per_class=True,
            of_counts=_of_positives(f1),
        ),
        "mcc": Measure(
            _of_counts(_mcc),
            "maximize",
            "val_loss",
            "correlation",
            is_decided=True,
            tuned=_mcc,
            is_per_class=True,
            of_counts=_mcc,
        ),
        QUADRATIC_KAPPA: Measure(
            _quadratic_kappa,
            "maximize",
            "val_loss",
            "correlation",
            is_decided=True,
            distance_power=2,
        ),
        "class_distance": Measure(
            _class_distance, "minimize", "val_loss", "error", is_decided=True, distance_power=1
        ),
    },
    "regression": {
        "rmse": Measure(_rmse, "minimize", "val_root_mean_squared_error", "error"),
        "mae": Measure(_mae, "minimize", "val_mean_absolute_error", "error"),
        # It orders the models of one fold as their squared error does.
        "r2": Measure(_r2, "maximize", "val_loss", "explained"),
        "mape": Measure(_mape, "minimize", "val_mean_absolute_error", "error"),
        "median_absolute_error": Measure(
            _median_error, "minimize", "val_mean_absolute_error", "median error"
        ),
        PINBALL: Measure(pinball_of(QUANTILES), "minimize", "val_mean_absolute_error", "error"),
    },
}
_ALSO_SHOWN = {
    "precision": Measure(
        _of_counts(_of_positives(_precision)),
        "maximize",
        "val_loss",
        "share",
        is_decided=True,
        is_per_class=True,
        of_counts=_of_positives(_precision),
    ),
    "recall": Measure(
        _of_counts(_of_positives(recall)),
        "maximize",
        "val_loss",
        "share",
        is_decided=True,
        is_per_class=True,
        of_counts=_of_positives(recall),
    ),
}
"""Nobody optimises these alone: predicting every row, or a single one, would be the best."""
_SHOWN_WITH = {
    "f1": ("precision", "recall"),
    QUADRATIC_KAPPA: ("class_distance",),
    "class_distance": (QUADRATIC_KAPPA,),
}
_SHOWN: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy", "balanced_accuracy", "log_loss"),
    "regression": ("r2", "rmse", "mae"),
}


def check_metric(name: str | None, task: Task, *, is_ordered: bool = False) -> None:
    """Refuse a metric that cannot be optimised for a task.

    Args:
        name: The metric, or None for the default.
        task: Whether classes or numbers are predicted.
        is_ordered: Whether the classes have an order.

    Raises:
        ArgumentError: If it cannot, with the metrics that can.
    """
    known = [metric for metric, of in METRICS[task].items() if is_ordered or not of.distance_power]
    if name in METRICS[task] and name not in known:
        raise ArgumentError(
            f"{name} needs classes with an order",
            field="metric",
            next_step="Set task to ordinal.",
        )
    if name is not None and name not in known:
        allowed, meant = closest(name, known)
        if any(name in of_task for of_task in METRICS.values()):
            meant = "If the target holds classes, set task to classification."
        raise ArgumentError(
            f"{name!r} cannot be optimised in a {task}",
            field="metric",
            allowed=allowed,
            next_step=meant,
        )


def note_of_positives(
    metric: str | None, class_names: Sequence[str], classes: np.ndarray
) -> str | None:
    """Return a note that says of which of two classes a metric is, or None if it is of both.

    Args:
        metric: The metric that is optimised, or None for the default.
        class_names: The names of the classes.
        classes: The class of each sample.
    """
    if metric not in ("f1", "average_precision") or len(class_names) != 2:
        return None
    first, second = class_names
    note = f"{metric} is that of the class {second!r}, which is the second of both in order"
    if np.mean(classes == 1) > 0.5:
        note += (
            f" and the more frequent one. If {first!r} matters, write the classes as 0 and 1, or"
            " choose macro_f1 or mcc"
        )
    return note


def check_quantiles(given: Sequence[float], metric: str | None, task: Task) -> tuple[float, ...]:
    """Return the quantiles to predict of each row in rising order, or () for none.

    Args:
        given: The quantiles that the user asks for, or empty.
        metric: The metric to optimise, or None.
        task: Whether classes or numbers are predicted.

    Raises:
        ArgumentError: If classes are predicted, or a level is not between 0 and 1 or comes twice.
    """
    levels = tuple(float(level) for level in given)
    if task != "regression":
        if levels:
            raise ArgumentError(
                "classes have no quantiles",
                field="quantiles",
                next_step="Remove it, or set task to regression if the target is a number.",
            )
        return ()
    for level in levels:
        if not 0 < level < 1:
            raise ArgumentError(
                f"{level:g} is not a quantile",
                field="quantiles",
                allowed="numbers between 0 and 1, such as 0.1,0.5,0.9",
            )
    if len(set(levels)) < len(levels):
        raise ArgumentError("a quantile is listed twice", field="quantiles")
    if metric == PINBALL and not levels:
        return QUANTILES
    return tuple(sorted(levels))


def loss_of(
    predicted: np.ndarray,
    targets: np.ndarray,
    task: Task,
    metric: str | None = None,
    quantiles: Sequence[float] = (),
) -> float:
    """Return the loss by which models are chosen.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, or None for the mean negative log-likelihood in nats, or the
            squared error. If the decisions are tuned for a metric later, good probabilities are
            what matters until then.
        quantiles: The quantiles that the user wants, for the pinball loss.
    """
    if metric is not None and not METRICS[task][metric].is_tuned:
        loss = measure_of(metric, task, quantiles).loss
        return (
            loss_of_several(predicted, targets, loss)
            if targets.ndim > 1
            else loss(predicted, targets)
        )
    if targets.ndim > 1:
        return loss_of_several(predicted, targets, _squared_error)
    if task == "regression":
        return _squared_error(predicted, targets)
    return _log_loss(predicted, targets)


def measure_of(name: str, task: Task, quantiles: Sequence[float] = ()) -> Measure:
    """Return how a score is measured.

    Args:
        name: A metric that can be optimised or is shown.
        task: Whether classes or numbers are predicted.
        quantiles: The quantiles that the user wants, for the pinball loss.
    """
    measure = METRICS[task].get(name) or _ALSO_SHOWN.get(name) or METRICS["classification"][name]
    if name == PINBALL and quantiles:
        return replace(measure, score=pinball_of(quantiles))
    return measure


def scores_of(
    predicted: np.ndarray,
    targets: np.ndarray,
    task: Task,
    metric: str | None = None,
    decisions: Decisions | None = None,
    *,
    quantiles: Sequence[float] = (),
    several: Mapping[str, tuple[Score, Scale]] | None = None,
    weights: Weights = None,
) -> dict[str, float]:
    """Return the scores to show, the most important one first.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, which comes first, or None for the default.
        decisions: How the class follows from probabilities, if not the most probable one.
        quantiles: The quantiles that follow each predicted number.
        several: The scores of several targets, as `several_scores` returns them, or None for one.
        weights: The weight of each sample, or None if all are equal.
    """
    if several is not None:
        return {name: score(predicted, targets, weights) for name, (score, _) in several.items()}
    decided = predicted if decisions is None else decisions.weighed(predicted)
    scores = {}
    for name in _shown_names(task, metric):
        measure = measure_of(name, task, quantiles)
        answers = decided if measure.is_decided else predicted
        scores[name] = measure.score(answers, targets, weights)
    return scores


def score_intervals(
    predicted: np.ndarray,
    targets: np.ndarray,
    task: Task,
    metric: str | None = None,
    *,
    blocks: RowBlocks,
    decisions: Decisions | None = None,
    quantiles: Sequence[float] = (),
    validation: Judged | None = None,
    several: Mapping[str, tuple[Score, Scale]] | None = None,
    weights: Weights = None,
) -> dict[str, tuple[float, float]]:
    """Return the 90 % interval of each score that `scores_of` returns, if the samples allow it.

    Args:
        predicted: (samples, classes) probabilities, or (samples, 1) numbers.
        targets: Class numbers, or numbers.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, or None for the default.
        blocks: Which samples belong together, and their times.
        decisions: How the class follows from probabilities, if not the most probable one.
        quantiles: The quantiles that follow each predicted number.
        validation: The validation samples, or None if there are none.
        several: As in `scores_of`.
        weights: As in `scores_of`.
    """
    decided = predicted if decisions is None else decisions.weighed(predicted)
    parts = parts_of(len(targets), blocks)
    more = None
    if validation is not None:
        more = with_more_rows(Judged(predicted, targets, blocks, weights), validation)
    intervals = {}
    for name, (score, scale) in (several or {}).items():
        interval = interval_of(
            score, predicted, targets, scale=scale, parts=parts, more=more, weights=weights
        )
        if interval is not None:
            intervals[name] = interval
    for name in _shown_names(task, metric) if several is None else ():
        measure = measure_of(name, task, quantiles)
        num_decisive = None
        if measure.is_per_class:
            num_decisive = int(_num_independent(targets, blocks).min())
        interval = interval_of(
            measure.score,
            decided if measure.is_decided else predicted,
            targets,
            scale=measure.scale,
            parts=parts,
            num_decisive=num_decisive,
            hidden_error=_hidden_error(decided, targets, blocks)
            if name == "balanced_accuracy"
            else 0.0,
            more=_decided(more, decisions) if measure.is_decided else more,
            weights=weights,
        )
        if interval is None:
            continue
        if measure.of_counts is not None:
            interval = within_reach(
                interval,
                measure.of_counts,
                _confusion(decided, targets, weights),
                _num_independent_of(targets, blocks, decided.shape[1]),
                are_independent=blocks.times is None,
            )
        intervals[name] = interval
    return intervals


def _confusion(decided: np.ndarray, targets: np.ndarray, weights: Weights) -> np.ndarray:
    """Return how often each class, by row, got each answer, by column."""
    confusion = np.zeros((decided.shape[1],) * 2)
    np.add.at(confusion, (targets, decided.argmax(axis=1)), 1.0 if weights is None else weights)
    return confusion


def _num_independent_of(targets: np.ndarray, blocks: RowBlocks, num_classes: int) -> np.ndarray:
    """Return `_num_independent` with a 0 for each class without samples."""
    counts = np.zeros(num_classes)
    counts[np.unique(targets)] = _num_independent(targets, blocks)
    return counts


def _num_independent(targets: np.ndarray, blocks: RowBlocks) -> np.ndarray:
    """Return how many samples of each class there are. Those that belong together count once."""
    classes, of_class = np.unique(targets, return_inverse=True)
    if blocks.groups is None:
        return np.bincount(of_class, minlength=len(classes))
    pairs = np.unique(np.stack([of_class, blocks.groups], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=len(classes))


def _hidden_error(decided: np.ndarray, targets: np.ndarray, blocks: RowBlocks) -> float:
    """Return the error of the mean recall that the samples cannot show.

    If none or all samples of a class are right, its recall does not vary between them, although it
    is known from these few only.

    Source: the variance of a share after adding one success and one failure, Agresti and Coull
        (1998).
    """
    right = decided.argmax(axis=1) == targets
    of_class = np.unique(targets, return_inverse=True)[1]
    recalls = np.bincount(of_class, weights=right) / np.bincount(of_class)
    is_hidden = (recalls == 0.0) | (recalls == 1.0)
    counts = _num_independent(targets, blocks)
    share = 1.0 / (counts + 2.0)  # and as much less than 1 if all are right
    variance = (share * (1.0 - share) / (counts + 2.0))[is_hidden].sum()
    return float(variance**0.5 / len(counts))


def _decided(more: MoreRows | None, decisions: Decisions | None) -> MoreRows | None:
    if more is None or decisions is None:
        return more
    return replace(more, predicted=decisions.weighed(more.predicted))


def _shown_names(task: Task, metric: str | None) -> tuple[str, ...]:
    first = () if metric is None else (metric, *_SHOWN_WITH.get(metric, ()))
    return (*first, *(name for name in _SHOWN[task] if name not in first))


def check_several(are_labels: bool, metric: str | None, quantiles: Sequence[float]) -> None:
    """Reject options that need a single target.

    Args:
        are_labels: Whether the targets are labels.
        metric: The metric to optimise, or None.
        quantiles: The quantiles that the user asks for, or empty.

    Raises:
        ArgumentError: If there is such an option.
    """
    if quantiles or metric == PINBALL:
        raise ArgumentError(
            "several targets have no quantiles",
            field="quantiles",
            next_step="Predict each target in its own run.",
        )
    if are_labels and metric is not None:
        raise ArgumentError(
            "the metric of several labels cannot be chosen",
            field="metric",
            next_step="Remove it, or predict each label in its own run.",
        )


def several_scores(
    names: Sequence[str], *, are_labels: bool, metric: str | None
) -> dict[str, tuple[Score, Scale]] | None:
    """Return the scores of several targets, or None if there is one.

    Args:
        names: The targets, or empty if there is one.
        are_labels: Whether they are labels.
        metric: The optimised metric, or None for the default.
    """
    if not names:
        return None

    def measure(kind: str) -> tuple[Score, Scale]:
        measured = measure_of(kind, "regression")
        return measured.score, measured.scale

    return measures_of(names, are_labels=are_labels, metric=metric, measure=measure)


def is_better(name: str, task: Task, value: float, other: float) -> bool:
    """Return whether a value of a metric is better than another one."""
    return sign_of(measure_of(name, task).goal) * (value - other) > 0


def simplest_guess(
    train_targets: np.ndarray, num_classes: int | None, weights: Weights = None
) -> np.ndarray:
    """Return the prediction of a model that knows only the train targets.

    Class frequencies, or the mean.

    Args:
        train_targets: Class numbers, or numbers.
        num_classes: Number of classes, or None for a regression.
        weights: The weight of each sample, or None if all are equal.

    Returns:
        One prediction: (classes,) probabilities, or (targets,) numbers.
    """
    if num_classes is None:
        return np.atleast_1d(np.average(train_targets, axis=0, weights=weights))
    counts = np.bincount(train_targets, weights=weights, minlength=num_classes)
    return counts / counts.sum()
