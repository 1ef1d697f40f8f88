"""What a user asks of `automl`: a data set, and how to read it, train on it and choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from workbench.data.dates import DateOrder
from workbench.data.table_sources import name_of_source
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s
from workbench.runs.automl.given_data import columns_of
from workbench.runs.automl.presets import DEFAULT, PRESETS, PresetName
from workbench.runs.automl.several_targets import split_targets
from workbench.runs.automl.targets import Task
from workbench.runs.automl.task_detection import Problem, read_problem, read_several

MIN_TIME_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `automl`, which explains them. How it is started is none of them."""

    data: Any
    target: str | Sequence[str] | None = None
    time: float | str = "10m"
    task: Task | Literal["ordinal"] | None = None
    metric: str | None = None
    drop: Sequence[str] = ()
    group_column: str | None = None
    time_column: str | None = None
    test: Any = None
    validation: Any = None
    weight_column: str | None = None
    query: str | None = None
    dates: DateOrder | None = None
    text_column: str | None = None
    class_weights: str | Mapping[str, float] | None = None
    quantiles: Sequence[float] = ()
    class_order: Sequence[str] = ()
    families: str | Sequence[str] = ()
    foundation_weights: Path | str | None = None
    preset: PresetName = DEFAULT
    limit: str | Mapping[str, float | str] | None = None
    seed: int = 0
    name: str | None = None

    def check_time_s(self) -> float:
        """Return the time budget in seconds.

        Raises:
            ArgumentError: If it is no duration, or too short.
        """
        time_s = duration_argument_s(self.time, field="time")
        if time_s < MIN_TIME_S:
            raise ArgumentError(
                f"{time_s:g} s is too short to train a model",
                field="time",
                allowed=f"at least {MIN_TIME_S:g} s",
                next_step='For small data, "1m" is enough.',
            )
        return time_s

    def check_choices(self) -> None:
        """Refuse a task, an order of dates or a preset that does not exist.

        Raises:
            ArgumentError: It names the argument.
        """
        tasks = (None, "classification", "regression", "ordinal")
        if self.task not in tasks:
            raise ArgumentError(
                f"{self.task!r} is not a task", field="task", allowed=", ".join(tasks[1:])
            )
        if self.dates is not None and self.dates not in get_args(DateOrder):
            raise ArgumentError(
                f"{self.dates!r} is not an order of dates",
                field="dates",
                allowed=list(get_args(DateOrder)),
            )
        if self.preset not in PRESETS:
            raise ArgumentError(
                f"{self.preset!r} is not a preset", field="preset", allowed=list(PRESETS)
            )

    def read(self) -> Problem:
        """Read the data. If the user sets no task, the target decides, and in doubt the metric.

        Raises:
            DataError: If the data cannot be read, or is not sufficient to train and test on.
            ArgumentError: If an argument does not suit the data.
        """
        problem = self._read_as(self.task)
        implied = _implied_task(self.metric, problem)
        if self.task is None and implied is not None:
            return self._read_as(implied)
        return problem

    def _read_as(self, task: Task | Literal["ordinal"] | None) -> Problem:
        """Read the data with one target or several."""
        how: dict[str, Any] = {
            "task": task,
            "drop": (self.drop,) if isinstance(self.drop, str) else tuple(self.drop),
            "group_column": self.group_column,
            "time_column": self.time_column,
            "test": self.test,
            "validation": self.validation,
            "weight_column": self.weight_column,
            "query": self.query,
            "class_order": self.class_order,
            "dates": self.dates,
            "text_column": self.text_column,
        }
        columns: list[str] = []
        if isinstance(self.target, str) and "," in self.target:
            columns = columns_of(self.data, self.query)
        names = split_targets(self.target, columns)
        if names:
            return read_several(self.data, names, **how)
        single = self.target
        if single is not None and not isinstance(single, str):
            single = str(single[0]) if len(single) else None
        return read_problem(self.data, single, **how)

    def check_metric(self, problem: Problem) -> tuple[tuple[float, ...], str | None]:
        """Return the quantiles to predict in rising order, and the metric to optimise.

        Args:
            problem: The data that was read.

        Raises:
            ArgumentError: If they do not suit the problem.
        """
        from workbench.runs.automl.scores import (
            PINBALL,
            QUADRATIC_KAPPA,
            check_metric,
            check_quantiles,
            check_several,
        )

        metric = self.metric
        if problem.target_names:
            check_several(problem.are_labels, metric, self.quantiles)
        levels = check_quantiles(self.quantiles, metric, problem.task)
        if metric is None and levels:
            metric = PINBALL
        if metric is None and problem.is_ordered:
            metric = QUADRATIC_KAPPA
        check_metric(metric, problem.task, is_ordered=problem.is_ordered)
        return levels, metric

    def name_after_data(self, problem: Problem) -> str:
        """Return a name for the run, after its data.

        Args:
            problem: The data that was read.
        """
        source = problem.target_name
        if isinstance(self.data, str | Path):
            source = name_of_source(self.data) or source
        text = re.sub(r"[^A-Za-z0-9_-]+", "-", source or problem.kind).strip("-")
        return f"automl-{text or problem.kind}"[:80]


def _implied_task(metric: str | None, problem: Problem) -> Literal["regression", "ordinal"] | None:
    """Return the task of classes that a metric takes for something else, or None.

    Whole numbers may be classes or counts. A metric of numbers says that they are counts.
    """
    from workbench.runs.automl.scores import METRICS

    if problem.task != "classification" or metric is None:
        return None
    of_classes = METRICS["classification"].get(metric)
    if of_classes is not None:
        return "ordinal" if of_classes.distance_power else None
    are_numbers = all(isinstance(label, int | float | np.number) for label in problem.labels)
    are_numbers = are_numbers and not any(isinstance(label, bool) for label in problem.labels)
    return "regression" if are_numbers and metric in METRICS["regression"] else None
