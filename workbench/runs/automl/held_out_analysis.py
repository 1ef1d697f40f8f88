"""What the chosen model does on the held-out test part.

Whom it confuses, how far off it is, what it needs, and how its predictions change with one column
if all other columns of the rows stay as they are.

Nothing here takes part in the choice of the model. Drawing is left to `plots`, scores to `scores`.

Source: the partial dependence of Friedman (2001), averaged over test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from workbench.foundation.errors import ArgumentError, quote_name
from workbench.foundation.formatting import (
    format_count,
    format_number,
)
from workbench.runs.automl.error_slices import describe_slice, error_slices, mean_and_error
from workbench.runs.automl.score_intervals import Score
from workbench.runs.automl.scores import weighted_median, weighted_quantiles
from workbench.runs.automl.targets import Task

if TYPE_CHECKING:
    import pandas as pd
from typing import TYPE_CHECKING

from workbench.data.plain_frames import column_of

MAX_CLASSES = 20
MAX_POINTS = 600
NUM_SHUFFLES = 5
MAX_SHUFFLED_SAMPLES = 1_000
MAX_COLUMNS = 60
MAX_SECONDS = 10.0
"""How long columns are shuffled. The first is always measured."""
_SHUFFLING_PART = 0.7
"""The part of the time in which columns are shuffled. Curves take the rest."""
_OTHERS = "(others)"
_SIDES_OF_90 = 1.645  # standard errors on both sides of a mean that enclose 90 %


_NUM_PARTS = 20
"""Into how many parts samples are divided to know how sure an importance is."""
NUM_COLUMNS = 6
_MAX_ROWS, _NUM_PLACES, _MAX_VALUES, _MAX_CLASSES = 300, 12, 10, 5


@dataclass(frozen=True)
class AskedScore:
    """The score that the user asked to optimise, which importance is measured in.

    Attributes:
        name: The metric.
        score: Measures predictions.
        is_error: Whether less is better.
        outputs: Returns the predictions of samples that `score` reads.
    """

    name: str
    score: Score
    is_error: bool
    outputs: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class TestAnalysis:
    """What the chosen model does on the held-out test samples.

    Example:
        >>> automl.analysis.importance().columns.tolist()
        ['column', 'loss_of_accuracy', 'low', 'high']
    """

    __test__ = False  # pytest would take a class called Test... for tests

    findings: Mapping[str, Any]
    """As `analyse` returned it, or as it was stored."""

    def confusion(self) -> pd.DataFrame:
        """Return how often each class (rows) was predicted as each class (columns).

        Rows with weights count by their weights. Empty for numbers.
        """
        import pandas as pd

        part = self.findings.get("confusion") or {"labels": [], "counts": []}
        labels = part["labels"]
        return pd.DataFrame(
            part["counts"], pd.Index(labels, name="true"), pd.Index(labels, name="predicted")
        )

    def errors(self) -> pd.DataFrame:
        """Return true and predicted numbers of test samples, in the target's unit.

        Empty for classes.
        """
        import pandas as pd

        part = self.findings.get("errors") or {"true": [], "predicted": []}
        table = pd.DataFrame({"true": part["true"], "predicted": part["predicted"]}, dtype=float)
        return table.assign(error=table["predicted"] - table["true"])

    def importance(self) -> pd.DataFrame:
        """Return how much worse the model is without each column, with a 90 % interval.

        The largest comes first.

        A column is made useless by shuffling it. Columns that repeat each other share what they
        contribute. It is measured in the metric that was optimised, or else in accuracy or the mean
        absolute error. Empty for images and texts.
        """
        import pandas as pd

        part = self.findings.get("importance") or {"score": "score", "columns": []}
        table = pd.DataFrame(part["columns"], columns=["column", "mean", "low", "high"])
        verb = "gain_of" if part.get("is_error") else "loss_of"  # an error grows
        return table.rename(columns={"mean": f"{verb}_{part['score']}"})

    @property
    def columns(self) -> list[str]:
        """The columns that have a partial dependence, the most important first."""
        return [part["column"] for part in self.findings.get("partial_dependence") or ()]

    def partial_dependence(self, column: str) -> pd.DataFrame:
        """Return the mean prediction of test rows if a column had each of several values.

        The other columns stay as they are. For classes, it is the mean probability of each.

        Args:
            column: One of `columns`.

        Raises:
            ArgumentError: If it was not computed for this column.
        """
        import pandas as pd

        for part in self.findings.get("partial_dependence") or ():
            if part["column"] == column:
                return pd.DataFrame({column: part["values"], **part["means"]})
        why = self.without_curve.get(column)
        raise ArgumentError(
            f"{column!r} has no partial dependence" + (f": {why}" if why else ""),
            field="column",
            allowed=self.columns,
        )

    @property
    def without_curve(self) -> dict[str, str]:
        """Why each of the other columns has no partial dependence."""
        return dict(self.findings.get("without_curve") or {})

    def slices(self) -> pd.DataFrame:
        """Return the parts of the test in which the model is worse than in all of it.

        A part is a value of a column, or a quarter of a column of numbers. The worst comes first.
        `certain` tells which ones chance does not explain. Empty for images and texts.
        """
        import pandas as pd

        table = pd.DataFrame(
            self.findings.get("slices") or [],
            columns=["column", "value", "num_samples", "mean", "overall", "certain"],
        )
        if "confusion" not in self.findings:
            return table.rename(columns={"mean": "mae", "overall": "mae_overall"})
        table[["mean", "overall"]] = 1.0 - table[["mean", "overall"]].astype(float)
        return table.rename(columns={"mean": "accuracy", "overall": "accuracy_overall"})


def analyse(
    predict: Callable[[Any], np.ndarray],
    samples: Any,
    targets: np.ndarray,
    task: Task,
    *,
    labels: Sequence[Any] = (),
    target_name: str | None = None,
    target_unit: str = "",
    seed: int = 0,
    predicted: np.ndarray | None = None,
    longest_s: float = MAX_SECONDS,
    outputs: Callable[[Any], np.ndarray] | None = None,
    target_names: Sequence[str] = (),
    weights: np.ndarray | None = None,
    asked: AskedScore | None = None,
    meant: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return what the model does on test samples, as plain values.

    Args:
        predict: Returns (samples, classes) probabilities, or (samples, 1) numbers.
        samples: Test samples as they were given. Columns are shuffled if they are a data frame.
        targets: Class numbers, or numbers in their own unit.
        task: Whether classes or numbers are predicted.
        labels: The classes.
        target_name: The name of the target, which is the unit of errors.
        target_unit: The sign or word after its numbers, such as CHF, or "" for none.
        seed: Seed of the shuffling, and of the points that are kept.
        predicted: The predictions for the samples, if they are known.
        longest_s: For how many seconds columns are changed, at most. The first is always shuffled
            once.
        outputs: Returns probabilities, if `predict` weighs them.
        target_names: The names of several targets, or empty if there is one.
        weights: The weight of each sample, or None if all are equal.
        asked: The score in which importance is measured, or None for accuracy or the mean absolute
            error.
        meant: The samples with the numbers and dates that texts mean, or None if no text does.
    """
    if predicted is None:
        predicted = predict(samples)
    if task == "classification":
        analysis: dict[str, Any] = {
            "confusion": _confusion(predicted.argmax(axis=1), targets, labels, weights)
        }
    elif target_names:
        analysis = {}
    else:
        errors = _errors(predicted[:, 0], targets, weights, seed)
        analysis = {"errors": {"unit": target_name, "written_unit": target_unit, **errors}}
    if not hasattr(samples, "columns"):
        return analysis
    began_s = time.monotonic()
    until_s = began_s + min(MAX_SECONDS, _SHUFFLING_PART * longest_s)
    kept = _some(len(targets), MAX_SHUFFLED_SAMPLES, seed)
    # Numbers in text would be read again for each shuffled column.
    read = samples if meant is None else meant
    some = read.iloc[kept].reset_index(drop=True)
    some_weights = None if weights is None else weights[kept]
    judge: _Judge = _MeanMistake(predict, task, targets[kept], some_weights, predicted[kept])
    if asked is not None:
        of_score = _ScoreLoss(asked, targets[kept], some_weights, asked.outputs(some))
        judge = of_score if of_score.is_known else judge
    importance = _importance(judge, some, random=np.random.default_rng(seed), until_s=until_s)
    if importance:
        analysis["importance"] = importance
    slices = None
    if not target_names:  # a mean over targets would hide what is worst
        slices = error_slices(read, _mistakes(predicted, targets, task), weights)
    if slices:
        analysis["slices"] = slices
    dependence, analysis["without_curve"] = partial_dependence(
        outputs or predict,
        samples,
        [row["column"] for row in (importance or {"columns": []})["columns"]],
        labels=labels,
        names=target_names,
        until_s=min(began_s + longest_s, time.monotonic() + MAX_SECONDS / 2),
        weights=weights,
        meant=meant,
    )
    if dependence:
        analysis["partial_dependence"] = dependence
    return analysis


def describe_analysis(analysis: Mapping[str, Any]) -> list[str]:
    """Return what stands out, in sentences."""
    lines = []
    errors = analysis.get("errors")
    if errors:
        of = ""
        written = ""
        if errors["unit"]:
            of = f" of {errors['unit']}"
        if errors.get("written_unit"):
            written = f" {errors['written_unit']}"
        half, most = (f"{format_number(errors[key])}{written}" for key in ("median", "p90"))
        lines.append(f"errors{of}: half are below {half}, nine in ten below {most}")
    if confusion := analysis.get("confusion"):
        pairs = [
            (count, true, predicted)
            for true, counts in zip(confusion["labels"], confusion["counts"], strict=True)
            for predicted, count in zip(confusion["labels"], counts, strict=True)
            if true != predicted and count
        ]
        if pairs:
            count, true, predicted = max(pairs, key=lambda pair: pair[0])
            total = sum(confusion["counts"][confusion["labels"].index(true)])
            lines.append(
                f"most frequent mistake: {_as_word(predicted)} instead of {_as_word(true)},"
                f" {format_number(count)} of {format_number(total)} times"
            )
    worst = next((each for each in analysis.get("slices") or () if each["certain"]), None)
    if worst is not None:
        unit = (errors or {}).get("written_unit") or ""
        is_classification = "confusion" in analysis
        lines.append(describe_slice(worst, is_classification=is_classification, unit=unit))
    if (importance := analysis.get("importance")) and importance["columns"]:
        needed = [column["column"] for column in importance["columns"] if column["low"] > 0.0][:5]
        if needed:
            lines.append(f"relies most on: {', '.join(map(quote_name, needed))}")
        elif importance["num_left_out"]:
            num_measured = format_count(len(importance["columns"]), "column")
            lines.append(
                f"{num_measured} measured, without a clear difference. There was no time for"
                f" {importance['num_left_out']} more"
            )
        else:
            lines.append("no single column makes a clear difference")
    return lines


def _as_word(name: str) -> str:
    """Return a class in quotes if it has several words, which could be those of a sentence."""
    return repr(name) if " " in name else quote_name(name)


def _confusion(
    predicted: np.ndarray, targets: np.ndarray, labels: Sequence[Any], weights: np.ndarray | None
) -> dict[str, Any]:
    names = [str(label) for label in labels]
    counted = np.bincount(targets, minlength=len(names))
    kept = sorted(range(len(names)), key=lambda number: -counted[number])[:MAX_CLASSES]
    shown = [names[number] for number in sorted(kept)]
    if len(kept) < len(names):
        shown.append(_OTHERS)
    place = np.full(len(names), len(shown) - 1)
    place[sorted(kept)] = np.arange(len(kept))
    counts = np.zeros((len(shown), len(shown)), dtype=int if weights is None else float)
    np.add.at(counts, (place[targets], place[predicted]), 1 if weights is None else weights)
    return {"labels": shown, "counts": counts.tolist()}


def _errors(
    predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, seed: int
) -> dict[str, Any]:
    off = np.abs(predicted - targets)
    kept = _some(len(targets), MAX_POINTS, seed)
    return {
        "median": weighted_median(off, weights),
        "p90": float(weighted_quantiles(off, [0.9], weights)[0]),
        "num_samples": len(targets),
        "true": [float(value) for value in targets[kept]],
        "predicted": [float(value) for value in predicted[kept]],
    }


class _Judge(Protocol):
    """Tells how much worse predictions are for shuffled samples."""

    name: str
    is_error: bool
    predict: Callable[[Any], np.ndarray]
    """Returns what `worse` compares."""

    def worse(self, shuffled: Sequence[np.ndarray]) -> tuple[float, float]:
        """Return the mean change for the worse, and its standard error."""
        ...


class _MeanMistake:
    """The mean mistake of a sample: whether its class is wrong, or how far off a number is."""

    def __init__(
        self,
        predict: Callable[[Any], np.ndarray],
        task: Task,
        targets: np.ndarray,
        weights: np.ndarray | None,
        predicted: np.ndarray,
    ) -> None:
        self.name = "accuracy" if task == "classification" else "mae"
        self.is_error = task != "classification"
        self.predict = predict
        self._task: Task = task
        self._targets, self._weights = targets, weights
        self._before = _mistakes(predicted, targets, task)

    def worse(self, shuffled: Sequence[np.ndarray]) -> tuple[float, float]:
        differences = [_mistakes(rows, self._targets, self._task) for rows in shuffled]
        worse = np.mean(differences, axis=0) - self._before
        return mean_and_error(worse, self._weights)


class _ScoreLoss:
    """The score that the user asked for, of all samples together."""

    def __init__(
        self,
        asked: AskedScore,
        targets: np.ndarray,
        weights: np.ndarray | None,
        predicted: np.ndarray,
    ) -> None:
        self.name, self.is_error, self.predict = asked.name, asked.is_error, asked.outputs
        self._score, self._targets, self._weights = asked.score, targets, weights
        num_parts = min(_NUM_PARTS, len(targets))
        part = np.random.default_rng(0).permutation(len(targets)) % max(1, num_parts)
        everything = np.ones(len(targets), dtype=bool)
        self._kept = [everything, *(part != number for number in range(num_parts))]
        self._before = self._scores(predicted)
        self.is_known = bool(np.isfinite(self._before[0]))

    def _scores(self, predicted: np.ndarray) -> np.ndarray:
        """Return the score of all samples, then those without one part of them."""
        weights = self._weights
        return np.array(
            [
                self._score(
                    predicted[kept], self._targets[kept], None if weights is None else weights[kept]
                )
                for kept in self._kept
            ]
        )

    def worse(self, shuffled: Sequence[np.ndarray]) -> tuple[float, float]:
        """Return the mean change for the worse and its error, by the jackknife of the parts."""
        changes = np.mean([self._scores(rows) for rows in shuffled], axis=0) - self._before
        changes = changes if self.is_error else -changes
        without = changes[1:][np.isfinite(changes[1:])]
        error = 0.0
        if len(without) > 1:
            error = float(without.std() * (len(without) - 1) ** 0.5)
        return float(changes[0]), error


def _importance(
    judge: _Judge, table: pd.DataFrame, *, random: np.random.Generator, until_s: float
) -> dict[str, Any] | None:
    """Shuffle one column at a time, and measure how much worse samples are then predicted."""
    rows = []
    for name in list(table.columns)[:MAX_COLUMNS]:
        predictions = []
        for _ in range(NUM_SHUFFLES):
            order = random.permutation(len(table))
            shuffled = table.copy()
            shuffled[name] = table[name].take(order).array
            predictions.append(judge.predict(shuffled))
            if time.monotonic() > until_s:
                break
        mean, error = judge.worse(predictions)
        margin = _SIDES_OF_90 * error
        rows.append(
            {"column": str(name), "mean": mean, "low": mean - margin, "high": mean + margin}
        )
        if time.monotonic() > until_s:
            break
    if not any(row["mean"] for row in rows):  # the simplest guess reads no column
        return None
    rows.sort(key=lambda row: -row["mean"])
    return {
        "score": judge.name,
        "is_error": judge.is_error,
        "columns": rows,
        "num_left_out": len(table.columns) - len(rows),
    }


def _mistakes(predicted: np.ndarray, targets: np.ndarray, task: Task) -> np.ndarray:
    """Return the error of each sample.

    1 for a wrong class, or the distance in the target's unit.
    """
    if task == "classification":
        return (predicted.argmax(axis=1) != targets).astype(float)
    if targets.ndim > 1:  # in standard deviations, as units differ
        scale = targets.std(axis=0)
        return np.abs((predicted - targets) / np.where(scale > 0, scale, 1.0)).mean(axis=1)
    return np.abs(predicted[:, 0] - targets)


def _some(count: int, most: int, seed: int) -> np.ndarray:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))


def partial_dependence(
    predict: Callable[[Any], np.ndarray],
    table: pd.DataFrame,
    columns: Sequence[str],
    *,
    labels: Sequence[Any] = (),
    names: Sequence[str] = (),
    until_s: float,
    weights: np.ndarray | None = None,
    meant: pd.DataFrame | None = None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the mean prediction at several values of each column, and columns without any.

    Args:
        predict: Returns (rows, classes) probabilities, or (rows, 1) numbers.
        table: Rows of the test.
        columns: The columns whose importance is known, the most important first.
        labels: The classes, or empty for numbers.
        names: The names of several numbers, or empty if there is one.
        until_s: When to stop, by `time.monotonic`.
        weights: The weight of each row, or None if all are equal.
        meant: The same rows with the numbers and dates that texts of the table mean, or None if no
            text does.

    Returns:
        For each column its name, `column`, the `values`, and the `means` by class, or by
        "prediction" for a number. Of two classes, only the second is there.
        Then why each other column of the table has no such values, by name.
    """
    meant = table if meant is None else meant
    rows = meant
    if len(table) > _MAX_ROWS:
        places = np.sort(np.random.default_rng(0).choice(len(table), _MAX_ROWS, replace=False))
        rows = meant.iloc[places]
        weights = None if weights is None else weights[places]
    curves = []
    why = {str(name): "its importance was not measured" for name in table.columns}
    why |= dict.fromkeys(columns, f"only the {NUM_COLUMNS} most important columns have one")
    for name in columns[:NUM_COLUMNS]:
        values = _values_of(column_of(meant, name), column_of(table, name))
        if isinstance(values, str):
            why[name] = values
            continue
        if time.monotonic() > until_s:
            why[name] = "there was no time left to compute it"
            continue
        del why[name]
        kind = table[name].dtype
        predicted = (predict(_changed(rows, name, value, kind)) for _, value in values)
        means = np.array([np.average(curve, axis=0, weights=weights) for curve in predicted])
        kept = range(means.shape[1])
        shown_names = [str(label) for label in labels] or list(names) or ["prediction"]
        if len(labels) == 2:
            kept = range(1, 2)
        by_class = {
            shown_names[number]: means[:, number].tolist() for number in list(kept)[:_MAX_CLASSES]
        }
        shown = [_shown(value) for value, _ in values]
        curves.append({"column": name, "values": shown, "means": by_class})
    return curves, why


def _values_of(column: pd.Series, written: pd.Series) -> list[tuple[Any, Any]] | str:
    """Return values and how the table writes each of them, or why there are none.

    They are the most frequent ones, or many numbers or times at equal shares of the rows.

    Args:
        column: The column.
        written: The column as it is in the table, perhaps numbers or dates as text.
    """
    known = column.dropna()
    if known.nunique() < 2:
        return "it has fewer than two different values in the test rows"
    is_number = known.dtype.kind in "iuf"
    if is_number or known.dtype.kind == "M":
        if known.dtype.kind != written.dtype.kind or known.dtype.kind == "M":
            return _written_values(known, written)
        if known.nunique() > _MAX_VALUES:
            shares = np.linspace(0.02, 0.98, _NUM_PLACES)
            ends = np.quantile(known.to_numpy(dtype=np.float64), shares)
            ends = np.round(ends) if known.dtype.kind in "iu" else ends
            return [(float(value), float(value)) for value in np.unique(ends)]
    elif known.dtype.kind not in "bO" and known.dtype.name not in ("str", "string", "category"):
        return "it holds neither numbers, dates nor categories"
    elif known.dtype.kind != "b" and known.nunique() > max(_MAX_VALUES, len(known) / 2):
        return "it has too many different texts, none of which is typical"
    values = known.value_counts().index[:_MAX_VALUES].tolist()
    if is_number:
        return [(float(value), float(value)) for value in sorted(values)]
    return [(value, value) for value in values]


def _written_values(known: pd.Series, written: pd.Series) -> list[tuple[Any, Any]]:
    """Return numbers or times at equal shares of the rows, each as one of the rows writes it."""
    rising = known.sort_values(kind="stable").drop_duplicates()
    if len(rising) > _MAX_VALUES:
        shares = np.linspace(0.02, 0.98, _NUM_PLACES)
        nearest = known.quantile(shares, interpolation="nearest").drop_duplicates()
        rising = rising.loc[rising.isin(nearest)]
    values = rising.tolist()
    if known.dtype.kind != "M":
        values = [float(value) for value in values]
    return list(zip(values, written.loc[rising.index].tolist(), strict=True))


def _shown(value: Any) -> float | str:
    if isinstance(value, float):
        return value
    return str(value).removesuffix(" 00:00:00")


def _changed(rows: pd.DataFrame, name: str, value: Any, kind: Any) -> pd.DataFrame:
    """Return rows that all have one value in a column of a kind."""
    import pandas as pd

    if kind.kind in "iu":
        value = int(value)
    return rows.assign(**{name: pd.Series([value] * len(rows), rows.index, kind)})
