"""Tables whose population is known, to measure how often the intervals of scores are right.

A made table comes with thousands of further rows of its kind: other rows, other groups, or the rows
that follow in time. A public table is divided into a few hundred rows to learn from and the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NUM_ROWS = (60, 100, 150, 250, 400, 700, 1200)
NUM_FURTHER = 4000
MOST_PUBLIC = 4000
PUBLIC = "public"


@dataclass(frozen=True)
class DrawnTable:
    """Rows to give to AutoML, and rows of the population that they come from.

    Attributes:
        rows: The table.
        further: Rows of the population, none of which is in the table.
        target: The column to predict.
        options: Further arguments of `wb.automl`.
        metric: What is optimised, or None for the default.
    """

    rows: pd.DataFrame = field(repr=False)
    further: pd.DataFrame = field(repr=False)
    target: str = "y"
    options: dict[str, Any] = field(default_factory=dict)
    metric: str | None = None


def draw(kind: str, seed: int, tables: Path | None = None) -> DrawnTable:
    """Draw a table.

    Args:
        kind: One of `KINDS`.
        seed: Seed of everything random.
        tables: The folder with public tables, which only that kind needs.
    """
    random = np.random.default_rng([seed, KINDS.index(kind)])
    num_rows = int(random.choice(NUM_ROWS))
    if kind == PUBLIC:
        assert tables is not None
        return _public(random, tables, seed)
    return _MADE[kind](random, num_rows)


class _Signal:
    """A function of inputs: a few of them matter, alone and in pairs."""

    def __init__(self, random: np.random.Generator) -> None:
        self.num_columns = int(random.integers(3, 13))
        self._factors = random.normal(size=self.num_columns) * (
            random.random(self.num_columns) < 0.6
        )
        self._pair = random.integers(0, self.num_columns, 2)
        self._of_pair, self._of_wave = random.normal(size=2)
        self._scale = 1.0
        self._scale = 1.0 / max(0.2, float(np.std(self(self.inputs(random, 4000)))))

    def inputs(self, random: np.random.Generator, num_rows: int) -> np.ndarray:
        return random.normal(size=(num_rows, self.num_columns))

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        first, second = (inputs[:, place] for place in self._pair)
        return self._scale * (
            inputs @ self._factors
            + self._of_pair * first * second
            + self._of_wave * np.sin(2 * second)
        )


def _frame(random: np.random.Generator, inputs: np.ndarray, target: np.ndarray) -> pd.DataFrame:
    """Return a table with a column of categories and some gaps."""
    frame = pd.DataFrame(inputs, columns=[f"x{number}" for number in range(inputs.shape[1])])
    places = np.searchsorted([-1.0, -0.3, 0.3, 1.0], inputs[:, 0])
    frame["x0"] = np.array(list("abcde"))[places]
    frame.loc[random.random(len(frame)) < 0.05, "x1"] = np.nan
    return frame.assign(y=target)


def _cut(frame: pd.DataFrame, num_rows: int, **more: Any) -> DrawnTable:
    rows, further = (frame.iloc[part] for part in (slice(num_rows), slice(num_rows, None)))
    return DrawnTable(rows.reset_index(drop=True), further.reset_index(drop=True), **more)


def _classes_of(random: np.random.Generator, score: np.ndarray, num_classes: int) -> np.ndarray:
    noisy = score + random.choice([0.2, 0.5, 1.0]) * random.logistic(size=len(score))
    shares = random.dirichlet(np.full(num_classes, 4.0))
    ends = np.quantile(noisy, np.cumsum(shares)[:-1])
    return np.array([f"c{number}" for number in np.searchsorted(ends, noisy)])


def _one_of(random: np.random.Generator, *metrics: str) -> str | None:
    return str(random.choice(metrics)) if random.random() < 0.5 else None


def _binary(random: np.random.Generator, num_rows: int) -> DrawnTable:
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    target = _classes_of(random, signal(inputs), 2)
    metric = _one_of(random, "roc_auc", "f1", "accuracy", "mcc")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _imbalanced(random: np.random.Generator, num_rows: int) -> DrawnTable:
    num_rows = max(num_rows, 250)
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    noisy = signal(inputs) + 0.4 * random.logistic(size=len(inputs))
    target = np.where(noisy > np.quantile(noisy, random.uniform(0.85, 0.97)), "yes", "no")
    metric = _one_of(random, "roc_auc", "f1", "average_precision", "balanced_accuracy")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _several(random: np.random.Generator, num_rows: int) -> DrawnTable:
    num_rows = max(num_rows, 150)
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    target = _classes_of(random, signal(inputs), int(random.integers(3, 9)))
    metric = _one_of(random, "macro_f1", "roc_auc", "balanced_accuracy")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _numbers(random: np.random.Generator, num_rows: int) -> DrawnTable:
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    target = signal(inputs) + random.choice([0.2, 0.6, 1.5]) * random.normal(size=len(inputs))
    metric = _one_of(random, "mae", "r2", "median_absolute_error")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _skewed(random: np.random.Generator, num_rows: int) -> DrawnTable:
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    noise = random.choice([0.3, 0.7]) * random.normal(size=len(inputs))
    target = 100.0 * np.exp(random.uniform(0.4, 1.0) * signal(inputs) + noise)
    metric = _one_of(random, "mae", "mape")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _heavy(random: np.random.Generator, num_rows: int) -> DrawnTable:
    signal = _Signal(random)
    inputs = signal.inputs(random, num_rows + NUM_FURTHER)
    noise = random.standard_t(random.choice([3, 5]), size=len(inputs))
    target = signal(inputs) + random.choice([0.3, 0.8]) * noise
    metric = _one_of(random, "mae", "median_absolute_error")
    return _cut(_frame(random, inputs, target), num_rows, metric=metric)


def _grouped(
    random: np.random.Generator, num_rows: int, is_class: bool, **options: Any
) -> DrawnTable:
    """Rows of patients. Those of the population are other patients."""
    num_rows = max(num_rows, 150)
    signal = _Signal(random)
    size = float(random.choice([3, 8, 20]))
    num_groups = max(12, round(num_rows / size))
    num_all = num_groups + round(NUM_FURTHER / size)
    weights = random.choice([0.1, 0.4, 0.8])
    sizes = 1 + random.poisson(size - 1, num_all)
    group = np.repeat(np.arange(num_all), sizes)
    common = random.normal(size=(num_all, signal.num_columns))[group]
    inputs = weights**0.5 * common + (1 - weights) ** 0.5 * signal.inputs(random, len(group))
    share = random.choice([0.2, 0.5, 0.8])
    noise = share**0.5 * random.normal(size=num_all)[group]
    noise += (1 - share) ** 0.5 * random.normal(size=len(group))
    score = signal(inputs) + random.choice([0.5, 1.0]) * noise
    target = (
        np.where(score > np.quantile(score, random.uniform(0.3, 0.7)), "yes", "no")
        if is_class
        else score
    )
    frame = _frame(random, inputs, target).assign(patient_id=group)
    is_known = group < num_groups
    rows = frame.loc[is_known].sample(frac=1.0, random_state=int(random.integers(1 << 30)))
    return DrawnTable(
        rows.reset_index(drop=True),
        frame.loc[~is_known].reset_index(drop=True),
        options={"group_column": "patient_id"} | options,
    )


def _groups_of_numbers(random: np.random.Generator, num_rows: int) -> DrawnTable:
    return _grouped(random, num_rows, False)


def _groups_of_classes(random: np.random.Generator, num_rows: int) -> DrawnTable:
    return _grouped(random, num_rows, True)


def _series(random: np.random.Generator, num_rows: int, is_class: bool) -> DrawnTable:
    """Days with noise that changes slowly from day to day. The population is the days after."""
    num_rows = max(num_rows, 150)
    signal = _Signal(random)
    num_all = num_rows + NUM_FURTHER
    memory = random.choice([0.0, 0.5, 0.8])
    noise = random.normal(size=num_all)
    for row in range(1, num_all):
        noise[row] = memory * noise[row - 1] + (1 - memory**2) ** 0.5 * noise[row]
    inputs = signal.inputs(random, num_all)
    days = np.arange(num_all)
    season = random.choice([0.0, 0.5]) * np.sin(2 * np.pi * days / 7)
    score = signal(inputs) + season + random.choice([0.5, 1.0]) * noise
    target = np.where(score > np.quantile(score, 0.5), "yes", "no") if is_class else score
    frame = _frame(random, inputs, target).assign(
        day=pd.date_range("1990-01-01", periods=num_all).strftime("%Y-%m-%d")
    )
    return _cut(frame, num_rows, options={"time_column": "day"})


def _series_of_numbers(random: np.random.Generator, num_rows: int) -> DrawnTable:
    return _series(random, num_rows, False)


def _series_of_classes(random: np.random.Generator, num_rows: int) -> DrawnTable:
    return _series(random, num_rows, True)


def _copies(random: np.random.Generator, num_rows: int) -> DrawnTable:
    """A table in which a third of the rows repeats others."""
    signal = _Signal(random)
    num_all = num_rows + NUM_FURTHER
    inputs = signal.inputs(random, num_all)
    score = signal(inputs) + 0.6 * random.normal(size=num_all)
    target = score if random.random() < 0.5 else np.where(score > 0, "yes", "no")
    frame = _frame(random, inputs, target)
    num_kept = round(num_rows / 1.5)
    places = np.append(np.arange(num_kept), random.integers(0, num_kept, num_rows - num_kept))
    rows = frame.iloc[random.permutation(places)]
    further = frame.iloc[num_rows:]
    return DrawnTable(rows.reset_index(drop=True), further.reset_index(drop=True))


def _weighted(random: np.random.Generator, num_rows: int) -> DrawnTable:
    """Rows that count differently, in the table and in the population."""
    signal = _Signal(random)
    num_all = num_rows + NUM_FURTHER
    inputs = signal.inputs(random, num_all)
    weights = random.choice([0.5, 1.0, 2.0, 4.0], num_all)
    score = signal(inputs) + 0.3 * weights * random.normal(size=num_all)
    target = score if random.random() < 0.5 else np.where(score > 0, "yes", "no")
    frame = _frame(random, inputs, target).assign(weight=weights)
    return _cut(frame, num_rows, options={"weight_column": "weight"})


def _public(random: np.random.Generator, tables: Path, seed: int) -> DrawnTable:
    folders = sorted(folder for folder in tables.iterdir() if (folder / "about.json").exists())
    folder = folders[seed % len(folders)]
    about = json.loads((folder / "about.json").read_text())
    frame = pd.concat([pd.read_csv(folder / f"{part}.csv") for part in ("train", "test")])
    frame = frame.sample(frac=1.0, random_state=int(random.integers(1 << 30)))
    num_rows = min(int(random.integers(200, 1001)), len(frame) // 3)
    rows, further = frame.iloc[:num_rows], frame.iloc[num_rows : num_rows + MOST_PUBLIC]
    if about["task"] != "regression":  # a class that the model cannot know is no part of the kind
        counts = rows[about["target"]].value_counts()
        known = counts.index[counts >= 15]
        rows, further = (part.loc[part[about["target"]].isin(known)] for part in (rows, further))
    return DrawnTable(
        rows.reset_index(drop=True),
        further.reset_index(drop=True),
        target=about["target"],
        options={
            "task": "regression" if about["task"] == "regression" else "classification",
            "group_column": "none",
            "time_column": "none",
        },
    )


_MADE: dict[str, Callable[[np.random.Generator, int], DrawnTable]] = {
    "two classes": _binary,
    "rare class": _imbalanced,
    "several classes": _several,
    "numbers": _numbers,
    "skewed numbers": _skewed,
    "heavy tails": _heavy,
    "groups of numbers": _groups_of_numbers,
    "groups of classes": _groups_of_classes,
    "series of numbers": _series_of_numbers,
    "series of classes": _series_of_classes,
    "copies": _copies,
    "weights": _weighted,
}
KINDS = (*_MADE, PUBLIC)
