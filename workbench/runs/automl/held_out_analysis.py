"""What the chosen model does on the held-out test part.

Whom it confuses, how far off it is, what it needs.

Nothing here takes part in the choice of the model. Drawing is left to `plots`, scores to `scores`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_count, format_number
from workbench.runs.automl.error_slices import describe_slice, error_slices
from workbench.runs.automl.partial_dependence import partial_dependence
from workbench.runs.automl.targets import Task

if TYPE_CHECKING:
    import pandas as pd

MAX_CLASSES = 20
MAX_POINTS = 600
NUM_SHUFFLES = 5
MAX_SHUFFLED_SAMPLES = 1_000
MAX_COLUMNS = 60
MAX_SECONDS = 10.0
"""How long columns are shuffled. The first is always measured."""
_OTHERS = "(others)"
_SIDES_OF_90 = 1.645  # standard errors on both sides of a mean that enclose 90 %


@dataclass(frozen=True)
class TestAnalysis:
    """What the chosen model does on the held-out test samples.

    Example:
        >>> found.analysis.importance().columns.tolist()
        ['column', 'loss_of_accuracy', 'low', 'high']
    """

    __test__ = False  # pytest would take a class called Test... for tests

    found: Mapping[str, Any]
    """As `analyse` returned it, or as it was stored."""

    def confusion(self) -> pd.DataFrame:
        """Return how often each class (rows) was predicted as each class (columns).

        Empty for numbers.
        """
        import pandas as pd

        part = self.found.get("confusion") or {"labels": [], "counts": []}
        labels = part["labels"]
        return pd.DataFrame(
            part["counts"], pd.Index(labels, name="true"), pd.Index(labels, name="predicted")
        )

    def errors(self) -> pd.DataFrame:
        """Return true and predicted numbers of test samples, in the target's unit.

        Empty for classes.
        """
        import pandas as pd

        part = self.found.get("errors") or {"true": [], "predicted": []}
        table = pd.DataFrame({"true": part["true"], "predicted": part["predicted"]}, dtype=float)
        return table.assign(error=table["predicted"] - table["true"])

    def importance(self) -> pd.DataFrame:
        """Return how much worse the model is without each column, with a 90 % interval.

        The largest comes first.

        A column is made useless by shuffling it. Columns that repeat each other share what they
        contribute. Empty for images and texts.
        """
        import pandas as pd

        part = self.found.get("importance") or {"score": "score", "columns": []}
        table = pd.DataFrame(part["columns"], columns=["column", "mean", "low", "high"])
        verb = "loss_of"
        if part["score"] == "mae":
            verb = "gain_of"  # an error grows
        return table.rename(columns={"mean": f"{verb}_{part['score']}"})

    @property
    def columns(self) -> list[str]:
        """The columns that have a partial dependence, the most important first."""
        return [part["column"] for part in self.found.get("partial_dependence") or ()]

    def partial_dependence(self, column: str) -> pd.DataFrame:
        """Return the mean prediction of test rows if a column had each of several values.

        The other columns stay as they are. For classes, it is the mean probability of each.

        Args:
            column: One of `columns`.

        Raises:
            ArgumentError: If it was not computed for this column.
        """
        import pandas as pd

        for part in self.found.get("partial_dependence") or ():
            if part["column"] == column:
                return pd.DataFrame({column: part["values"], **part["means"]})
        raise ArgumentError(
            f"no partial dependence of {column!r} was computed",
            field="column",
            allowed=self.columns,
        )

    def slices(self) -> pd.DataFrame:
        """Return the parts of the test in which the model is worse than in all of it.

        A part is a value of a column, or a quarter of a column of numbers. The worst comes first.
        `certain` tells which ones chance does not explain. Empty for images and texts.
        """
        import pandas as pd

        table = pd.DataFrame(
            self.found.get("slices") or [],
            columns=["column", "value", "num_samples", "mean", "overall", "certain"],
        )
        if "confusion" not in self.found:
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
        longest_s: For how many seconds columns are shuffled, at most. The first is always shuffled
            once.
        outputs: Returns probabilities, if `predict` weighs them.
        target_names: The names of several targets, or empty if there is one.
    """
    if predicted is None:
        predicted = predict(samples)
    until_s = time.monotonic() + min(MAX_SECONDS, longest_s)
    importance = None
    if hasattr(samples, "columns"):
        kept = _some(len(targets), MAX_SHUFFLED_SAMPLES, seed)
        importance = _importance(
            predict,
            samples.iloc[kept].reset_index(drop=True),
            targets[kept],
            predicted=predicted[kept],
            task=task,
            random=np.random.default_rng(seed),
            until_s=until_s,
        )
    if task == "classification":
        analysis: dict[str, Any] = {
            "confusion": _confusion(predicted.argmax(axis=1), targets, labels)
        }
    elif target_names:
        analysis = {}
    else:
        analysis = {"errors": _errors(predicted[:, 0], targets, target_name, target_unit, seed)}
    if importance:
        analysis["importance"] = importance
    if hasattr(samples, "columns"):
        slices = None
        if not target_names:  # a mean over targets would hide what is worst
            slices = error_slices(samples, _mistakes(predicted, targets, task))
        if slices:
            analysis["slices"] = slices
        until_s = time.monotonic() + min(MAX_SECONDS, longest_s) / 2
        columns = [row["column"] for row in (importance or {"columns": []})["columns"]]
        dependence = partial_dependence(
            outputs or predict,
            samples,
            columns,
            labels=labels,
            names=target_names,
            until_s=until_s,
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
                f"most frequent mistake: {predicted} instead of {true}, {count} of {total} times"
            )
    worst = next((each for each in analysis.get("slices") or () if each["certain"]), None)
    if worst is not None:
        unit = (errors or {}).get("written_unit") or ""
        is_classification = "confusion" in analysis
        lines.append(describe_slice(worst, is_classification=is_classification, unit=unit))
    if (importance := analysis.get("importance")) and importance["columns"]:
        needed = [column["column"] for column in importance["columns"] if column["low"] > 0.0][:5]
        if needed:
            lines.append(f"relies most on: {', '.join(needed)}")
        elif importance["num_left_out"]:
            left_out = f"{format_count(importance['num_left_out'], 'column')} not measured"
            lines.append(f"no measured column matters measurably: time was over with {left_out}")
        else:
            lines.append("no single column matters measurably")
    return lines


def _confusion(predicted: np.ndarray, targets: np.ndarray, labels: Sequence[Any]) -> dict[str, Any]:
    names = [str(label) for label in labels]
    counted = Counter(targets.tolist())
    kept = sorted(range(len(names)), key=lambda number: -counted[number])[:MAX_CLASSES]
    place = {number: at for at, number in enumerate(sorted(kept))}
    shown = [names[number] for number in sorted(kept)]
    if len(kept) < len(names):
        shown.append(_OTHERS)
    counts = np.zeros((len(shown), len(shown)), dtype=int)
    others = len(shown) - 1
    for true, guess in zip(targets.tolist(), predicted.tolist(), strict=True):
        counts[place.get(true, others), place.get(guess, others)] += 1
    return {"labels": shown, "counts": counts.tolist()}


def _errors(
    predicted: np.ndarray, targets: np.ndarray, name: str | None, unit: str, seed: int
) -> dict[str, Any]:
    off = np.abs(predicted - targets)
    kept = _some(len(targets), MAX_POINTS, seed)
    return {
        "unit": name,
        "written_unit": unit,
        "median": float(np.median(off)),
        "p90": float(np.quantile(off, 0.9)),
        "num_samples": len(targets),
        "true": [float(value) for value in targets[kept]],
        "predicted": [float(value) for value in predicted[kept]],
    }


def _importance(
    predict: Callable[[Any], np.ndarray],
    table: pd.DataFrame,
    wanted: np.ndarray,
    *,
    predicted: np.ndarray,
    task: Task,
    random: np.random.Generator,
    until_s: float,
) -> dict[str, Any] | None:
    """Shuffle one column at a time, and measure how much worse each sample is then predicted."""
    before = _mistakes(predicted, wanted, task)
    rows = []
    for name in list(table.columns)[:MAX_COLUMNS]:
        differences = []
        for _ in range(NUM_SHUFFLES):
            order = random.permutation(len(wanted))
            shuffled = table.copy()
            shuffled[name] = table[name].take(order).array
            differences.append(_mistakes(predict(shuffled), wanted, task) - before)
            if time.monotonic() > until_s:
                break
        worse = np.mean(differences, axis=0)
        margin = 0.0
        if len(wanted) > 1:
            margin = _SIDES_OF_90 * float(worse.std(ddof=1)) / len(wanted) ** 0.5
        mean = float(worse.mean())
        rows.append(
            {"column": str(name), "mean": mean, "low": mean - margin, "high": mean + margin}
        )
        if time.monotonic() > until_s:
            break
    if not any(row["mean"] for row in rows):  # the simplest guess reads no column
        return None
    rows.sort(key=lambda row: -row["mean"])
    score = "mae"
    if task == "classification":
        score = "accuracy"
    return {"score": score, "columns": rows, "num_left_out": len(table.columns) - len(rows)}


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
