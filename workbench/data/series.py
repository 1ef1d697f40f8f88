"""Time series as windows: rows of a table in the order of time, each with the values that follow.

The table is divided by time, so validation and test come after everything that is trained with. A
forecast uses `lookback` rows of all columns for the next `horizon` rows of some of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.data.dates import ISO, as_times, date_format_of
from workbench.data.options import DatasetOptions, existing_path
from workbench.data.plain_frames import column_of
from workbench.data.reading import Reading, some_of
from workbench.data.splits import Datasets, divisor
from workbench.data.table_files import check_columns, read_columns, read_table
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, ExperimentError

if TYPE_CHECKING:
    import pandas as pd

_NUM_HOURS = 4_000
_SIMULATED = ("load", "temperature")


class SeriesOptions(DatasetOptions):
    """A table whose rows are points in time, to forecast the next values of some columns.

    Rows are sorted by the column `time`. The last rows are the test part and the rows before them
    validation, so no forecast value was trained with. Columns are standardised with the train
    rows, and a missing value becomes the last known one. Without a path, the series is the hourly
    electric load of a simulated town.
    """

    path: Path | None = Field(
        None,
        description=(
            "A .csv, .tsv or .parquet file. By default, the electric load of a simulated town."
        ),
    )
    time: str | None = Field(
        None,
        min_length=1,
        description="The column of times. By default, the rows are already in order.",
        json_schema_extra={"column_of": "path"},
    )
    targets: tuple[str, ...] = Field(
        (), description="The columns to forecast. By default, all columns that are used."
    )
    columns: tuple[str, ...] = Field(
        (), description="The columns to forecast from. By default, all columns of numbers."
    )
    lookback: int = Field(48, ge=1, le=65_536, description="Rows that a forecast is made from.")
    horizon: int = Field(12, ge=1, le=4_096, description="Rows that are forecast.")
    stride: int = Field(1, ge=1, description="Rows from one window of train to the next.")
    validation_fraction: float = Field(
        0.2,
        gt=0.0,
        lt=1.0,
        description="Share of the rows that is validated. They follow the train rows.",
    )
    test_fraction: float = Field(
        0.1,
        ge=0.0,
        lt=1.0,
        description="Share of the rows at the end that no decision uses. 0 for none.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is None and self.time is not None:
            raise ExperimentError("needs a table", field="time", next_step="Set path to a file.")
        return self

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "regression"

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read the table and cut it into windows. The seed changes nothing."""
        made = self._read()
        values = ((made.values - made.mean) / made.scale).astype(np.float32)
        parts = {
            part: WindowSplit(values, starts, self.lookback, self.horizon, made.num_targets)
            for part, starts in made.starts.items()
        }
        return Datasets(
            name="series",
            task="regression",
            train=parts["train"],
            validation=parts["validation"],
            test=parts.get("test"),
            input_shape=(self.lookback, values.shape[1]),
            num_outputs=self.horizon * made.num_targets,
            target_shape=(self.horizon, made.num_targets),
        )

    def reading(self, *, seed: int) -> Reading:
        """Return how windows are standardised. Forecasts are not standardised."""
        made = self._read()
        starts = made.starts["train"]
        indices = some_of(min(len(starts), 500))
        windows = WindowSplit(made.values, starts, self.lookback, self.horizon, made.num_targets)
        targets = made.names[: made.num_targets]
        return Reading(
            {"inputs": windows.batch(indices)[0]},
            indices,
            mean=made.mean,
            scale=made.scale,
            array_columns=made.names,
            targets=tuple(
                f"{name} +{step}" for step in range(1, self.horizon + 1) for name in targets
            ),
            target_mean=np.tile(made.mean[: made.num_targets], self.horizon),
            target_scale=np.tile(made.scale[: made.num_targets], self.horizon),
        )

    def check_source(self) -> None:
        """Reject a table without the columns in the options."""
        if self.path is not None:
            check_columns(read_columns(self.path), self._named_columns)

    def _read(self) -> _Series:
        table = _simulate() if self.path is None else read_table(existing_path(self.path))
        table = table.rename(columns=str)
        targets, names = self._names(table)
        if self.time is not None:
            table = table.iloc[np.argsort(_times(table, self.time), kind="stable")]
        values = np.stack([_numbers(table, name) for name in names], axis=1)
        num_train, starts = self._starts(len(values))
        values = _filled(values, num_train)
        known = values[:num_train]
        mean = known.mean(axis=0)
        return _Series(names, len(targets), values, mean, divisor(mean, known.std(axis=0)), starts)

    @property
    def _named_columns(self) -> dict[str, Iterable[str]]:
        columns: dict[str, Iterable[str]] = {"targets": self.targets, "columns": self.columns}
        if self.time is not None:
            columns["time"] = [self.time]
        return columns

    def _names(self, table: pd.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns to forecast, and all that are used, those to forecast first."""
        from pandas.api import types

        names = [str(name) for name in table.columns]
        check_columns(names, self._named_columns)
        used = list(self.columns) or [
            name
            for name in names
            if name != self.time and types.is_numeric_dtype(column_of(table, name))
        ]
        targets = self.targets or tuple(used)
        if not targets:
            raise DataError("no column holds numbers", field="data.path")
        return targets, (*targets, *(name for name in used if name not in targets))

    def _starts(self, num_rows: int) -> tuple[int, dict[str, np.ndarray]]:
        """Return the number of rows of train, and by part the first rows of its forecasts."""
        num_test = round(num_rows * self.test_fraction)
        num_validation = round(num_rows * self.validation_fraction)
        num_train = num_rows - num_validation - num_test
        # A forecast needs `lookback` rows before it. For validation and test, these may be rows of
        # the part before.
        ends = {
            "train": (self.lookback, num_train, self.stride),
            "validation": (num_train, num_train + num_validation, 1),
            "test": (num_train + num_validation, num_rows, 1),
        }
        starts: dict[str, np.ndarray] = {}
        for part, (first, end, stride) in ends.items():
            if part == "test" and not num_test:
                continue
            starts[part] = np.arange(first, end - self.horizon + 1, stride)
            if not len(starts[part]):
                raise DataError(
                    f"the rows of {part}, some of {num_rows}, are too few for a forecast of"
                    f" {self.horizon}",
                    field="data.horizon",
                    allowed="at least horizon rows in each part, and lookback more in train",
                    next_step="Shorten lookback or horizon, or add rows.",
                )
        return num_train, starts


@dataclass(frozen=True)
class _Series:
    """A table as numbers, (rows, columns) with those to forecast first, and the first rows."""

    names: tuple[str, ...]
    num_targets: int
    values: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    starts: dict[str, np.ndarray]


@dataclass(frozen=True)
class WindowSplit:
    """Windows on rows in the order of time.

    Attributes:
        values: (rows, columns), the columns to forecast first.
        starts: The first row that each sample forecasts.
        lookback: Rows of a sample, which end before that row.
        horizon: Rows that it forecasts.
        num_targets: Columns that it forecasts.
    """

    values: np.ndarray = field(repr=False)
    starts: np.ndarray = field(repr=False)
    lookback: int
    horizon: int
    num_targets: int

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (batch, lookback, columns) and (batch, horizon * targets), row by row."""
        starts = self.starts[np.asarray(indices)][:, None]
        inputs = self.values[starts + np.arange(-self.lookback, 0)]
        targets = self.values[starts + np.arange(self.horizon), : self.num_targets]
        return inputs, targets.reshape(len(inputs), -1)


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    try:
        values = column_of(table, name).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the column {name!r} is not numeric: {error}",
            field="data.columns",
            next_step="Leave it out.",
        ) from error
    if np.isinf(values).any():
        raise DataError(f"{name!r} holds infinite values", field="data.path")
    return values


def _times(table: pd.DataFrame, name: str) -> np.ndarray:
    from pandas.api import types

    values = column_of(table, name)
    form = date_format_of(values)
    is_ordered = types.is_numeric_dtype(values) or types.is_datetime64_any_dtype(values)
    if bool(values.isna().any()) or not (is_ordered or form):
        raise DataError(
            f"the column {name!r} is not a time in every row",
            field="data.time",
            allowed="numbers, or dates of one form",
        )
    times = values.to_numpy() if is_ordered else as_times(values, form or ISO)
    if len(np.unique(times)) < len(times):
        raise DataError(
            f"several rows have the same {name!r}",
            field="data.time",
            next_step="Write one row for each time, and give each series its own column.",
        )
    return times


def _filled(values: np.ndarray, num_train: int) -> np.ndarray:
    """Return values without gaps: the last known value, or the mean of train before the first."""
    import pandas as pd

    if not np.isnan(values).any():
        return values
    mean = np.nan_to_num(pd.DataFrame(values[:num_train]).mean().to_numpy())
    filled = pd.DataFrame(values).ffill().to_numpy()
    return np.where(np.isnan(filled), mean, filled)


def _simulate() -> pd.DataFrame:
    """Return the hourly electric load of a town: daily and weekly cycles, weather and noise."""
    import pandas as pd

    random = np.random.default_rng(0)
    # Weather is a slow random walk that returns to its mean, so it cannot be learnt from the clock.
    hours = np.arange(_NUM_HOURS)
    weather = np.zeros(_NUM_HOURS)
    for hour in range(1, _NUM_HOURS):
        weather[hour] = 0.98 * weather[hour - 1] + random.normal(0.0, 0.6)
    temperature = (
        12
        + 8 * np.sin(2 * np.pi * hours / 8_766)
        + 4 * np.sin(2 * np.pi * (hours - 9) / 24)
        + weather
    )
    is_weekend = (hours // 24) % 7 >= 5
    day = np.sin(2 * np.pi * (hours - 7) / 24) + 0.5 * np.sin(4 * np.pi * (hours - 4) / 24)
    cold = np.maximum(0.0, 18 - temperature)
    load = (
        60
        + (8 - 3 * is_weekend) * day
        - 6 * is_weekend
        + 1.2 * cold
        + random.normal(0.0, 1.0, _NUM_HOURS)
    )
    return pd.DataFrame(dict(zip(_SIMULATED, (load, temperature), strict=True)))
