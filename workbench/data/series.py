"""Time series as windows: rows of a table in the order of time, each with the values that follow.

The table is divided by time, so validation and test come after everything that is trained with. A
forecast uses `lookback` rows of all columns for the next `horizon` rows of some of them. A table
may hold several series, one for each group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.data.dates import ISO, as_times, date_format_of
from workbench.data.number_texts import NEARLY_NUMBERS, number_text_of
from workbench.data.options import DatasetOptions, existing_path, normalisation_field
from workbench.data.plain_frames import column_of
from workbench.data.reading import Reading, some_of
from workbench.data.splits import Datasets, Normalisation, moments
from workbench.data.table_files import check_columns, read_columns, read_table
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.formatting import format_number

if TYPE_CHECKING:
    import pandas as pd

_NUM_HOURS = 4_000
_SIMULATED = ("load", "temperature")
_MAX_SEASONS = 200
_NUM_COMPARED, _NUM_JUDGED = 100_000, 2_000_000
"""The most numbers by which a season is chosen, and by which it is judged."""
_USUAL_SEASONS = (7, 12, 24, 48, 52, 96, 144, 168, 288, 336, 365, 1440)
"""Rows of a day, a week or a year, for lookbacks in which not every season is tried."""


class SeriesOptions(DatasetOptions):
    """A table whose rows are points in time, to forecast the next values of some columns.

    Rows are sorted by the column `time`. The last rows are the test part and the rows before them
    validation, so no forecast value was trained with. If there are groups, this holds for the rows
    of each. Columns are standardised with the train rows, and a missing value becomes the last
    known one. Without a path, the series is the hourly electric load of a simulated town.
    """

    searchable = {
        "lookback": {},
        "stride": {},
        "normalisation": {},
    }

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
    known: tuple[str, ...] = Field(
        (),
        description=(
            "Columns that are known in advance, such as holidays or prices. A forecast also reads"
            " their values in the rows that it forecasts."
        ),
        json_schema_extra={"column_of": "path"},
    )
    group: str | None = Field(
        None,
        min_length=1,
        description=(
            "The column that tells several series apart, such as shops. No forecast mixes them."
        ),
        json_schema_extra={"column_of": "path"},
    )
    unit: str | None = Field(
        None, min_length=1, description="The unit of the targets, such as kWh, for people."
    )
    normalisation: Normalisation = normalisation_field()
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
        for option in ("time", "group"):
            if self.path is None and getattr(self, option) is not None:
                raise ExperimentError(
                    "needs a table", field=option, next_step="Set path to a file."
                )
        for option in ("targets", "columns", "known"):
            names = getattr(self, option)
            if len(set(names)) < len(names):
                raise ExperimentError("a column is named twice", field=option)
        if both := [name for name in self.known if name in self.targets]:
            raise ExperimentError(
                f"{both[0]!r} is a target, and what is to be forecast is not known in advance",
                field="known",
                next_step="Leave it out there.",
            )
        if self.known and self.lookback < self.horizon:
            raise ExperimentError(
                "the values that are known in advance are read with the rows of lookback",
                field="lookback",
                allowed=f"at least the horizon, {self.horizon}",
            )
        return self

    def find_task(self) -> Task:
        """Return the task, as DatasetOptions.find_task does."""
        return "regression"

    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Read the table and cut it into windows. The seed changes nothing."""
        made = self._read()
        values = ((made.values - made.mean) / made.scale).astype(np.float32)
        targets = ((made.targets - made.target_mean) / made.target_scale).astype(np.float32)
        parts = {
            part: WindowSplit(values, targets, starts, self.lookback, self.horizon)
            for part, starts in made.starts.items()
        }
        num_targets = targets.shape[1]
        return Datasets(
            name="series",
            task="regression",
            train=parts["train"],
            validation=parts["validation"],
            test=parts.get("test"),
            input_shape=(self.lookback, values.shape[1]),
            num_outputs=self.horizon * num_targets,
            target_shape=(self.horizon, num_targets),
            target_scale=made.unit_scale,
        )

    def reading(self, *, seed: int) -> Reading:
        """Return how windows are standardised. Forecasts are not standardised."""
        made = self._read()
        starts = made.starts["train"]
        indices = some_of(min(len(starts), 500))
        windows = WindowSplit(made.values, made.targets, starts, self.lookback, self.horizon)
        targets = made.names[: made.targets.shape[1]]
        return Reading(
            {"inputs": windows.batch(indices)[0]},
            indices,
            mean=made.mean,
            scale=made.scale,
            array_columns=made.names,
            group=self.group,
            targets=tuple(
                f"{name} +{step}" for step in range(1, self.horizon + 1) for name in targets
            ),
            target_mean=np.tile(made.target_mean, self.horizon),
            target_scale=np.tile(made.target_scale, self.horizon),
            unit=self.unit,
        )

    def notes(self) -> tuple[str, ...]:
        """Return how far off forecasts without a model are, in the unit of the reported errors."""
        made = self._read()
        unit = "standard deviations"
        if made.targets.shape[1] == 1:
            unit = self.unit or f"units of {made.names[0]}"
        errors = made.naive_errors(self.lookback, self.horizon)
        last = format_number(errors.pop(1))
        note = f"Repeating the last value has a mean absolute error of {last} {unit}"
        if errors:
            season, error = min(errors.items(), key=lambda item: item[1])
            note += f", and repeating the last {season} values one of {format_number(error)}"
        notes = [f"{note}. A model should be better on the same validation rows."]
        if made.left_out:
            notes.append(f"Not used, because they are not numbers: {', '.join(made.left_out)}.")
        return tuple(notes)

    def check_source(self) -> None:
        """Reject a table without the columns in the options."""
        if self.path is not None:
            check_columns(read_columns(self.path), self._named_columns)

    def _read(self) -> _Series:
        table = _simulate() if self.path is None else read_table(existing_path(self.path))
        if not len(table):
            raise DataError(f"{self.path} has no rows", field="data.path")
        table = self._with_numbers(table.rename(columns=str))
        targets, names = self._names(table)
        left_out = () if self.columns else tuple(self._others(table, names))
        parts: list[np.ndarray] = []
        starts: dict[str, list[np.ndarray]] = {}
        known: list[np.ndarray] = []
        num_before = 0
        for name, rows in self._groups(table):
            if self.time is not None:
                rows = rows.iloc[np.argsort(_times(rows, self.time), kind="stable")]
            values = np.stack([_numbers(rows, column) for column in names], axis=1)
            num_train, of_group = self._starts_of(name, len(values))
            values = _filled(values, num_train)
            # The known value of `horizon` rows later stands in each row. A window never reaches
            # the last rows, for which there is none.
            places = [names.index(column) for column in self.known]
            later = np.roll(values[:, places], -self.horizon, axis=0)
            parts.append(np.concatenate([values, later], axis=1))
            known.append(np.arange(num_before, num_before + num_train))
            for part, first_rows in of_group.items():
                starts.setdefault(part, []).append(num_before + first_rows)
            num_before += len(values)
        values, train = np.concatenate(parts), np.concatenate(known)
        mean, scale = moments(values, train, axis=0, how=self.normalisation)
        wanted = values[:, : len(targets)]
        target_mean, target_scale = moments(wanted, train, axis=0)
        return _Series(
            names=(*names, *(f"{name} +{self.horizon}" for name in self.known)),
            values=values,
            mean=mean,
            scale=scale,
            targets=wanted,
            target_mean=target_mean,
            target_scale=target_scale,
            starts={part: np.concatenate(of_groups) for part, of_groups in starts.items()},
            left_out=left_out,
        )

    def _with_numbers(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with numbers that are written as text, such as 1.024,5, as numbers."""
        import pandas as pd

        changed: dict[str, pd.Series] = {}
        for name in self._others(table):
            column = column_of(table, name)
            # Every value of a target must be a number.
            form = number_text_of(column, min_share=1.0 if name in self.targets else NEARLY_NUMBERS)
            if form is not None:
                changed[name] = pd.Series(form.parse_all(column), index=table.index)
        return table.assign(**changed)

    def _others(self, table: pd.DataFrame, used: Collection[str] = ()) -> Iterator[str]:
        """Yield the columns that are neither the time, nor the group, nor used."""
        for name in map(str, table.columns):
            if name not in (self.time, self.group) and name not in used:
                yield name

    def _groups(self, table: pd.DataFrame) -> Iterator[tuple[str | None, pd.DataFrame]]:
        """Yield the rows of each series with its name, in the order of the table."""
        if self.group is None:
            yield None, table
            return
        of_row = column_of(table, self.group)
        if bool(of_row.isna().any()):
            raise DataError(
                f"some rows have no {self.group!r}",
                field="data.group",
                next_step="Fill it in, or remove these rows.",
            )
        for name, rows in table.groupby(of_row.to_numpy(), sort=False):
            yield str(name), rows

    def _starts_of(self, group: str | None, num_rows: int) -> tuple[int, dict[str, np.ndarray]]:
        try:
            return self._starts(num_rows)
        except DataError as error:
            if group is None:
                raise
            raise DataError(
                f"in the group {group!r}, {error.problem}",
                field=error.field,
                allowed=error.allowed,
                next_step=error.next_step,
            ) from error

    @property
    def _named_columns(self) -> dict[str, Iterable[str]]:
        columns: dict[str, Iterable[str]] = {
            "targets": self.targets,
            "columns": self.columns,
            "known": self.known,
        }
        for option in ("time", "group"):
            if (name := getattr(self, option)) is not None:
                columns[option] = [name]
        return columns

    def _names(self, table: pd.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns to forecast, and all that are used, those to forecast first."""
        from pandas.api import types

        names = [str(name) for name in table.columns]
        check_columns(names, self._named_columns)
        used = list(self.columns) or [
            name for name in self._others(table) if types.is_numeric_dtype(column_of(table, name))
        ]
        used += [name for name in self.known if name not in used]
        targets = self.targets or tuple(name for name in used if name not in self.known)
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
    """A table as numbers, the rows of a group in order.

    Attributes:
        names: The columns of `values`, those to forecast first.
        values: (rows, columns).
        mean: What is subtracted from the columns of inputs.
        scale: What they are divided by.
        targets: (rows, targets).
        target_mean: The mean of each target in train.
        target_scale: Its standard deviation.
        starts: The first row of each forecast, by part.
        left_out: Columns that are not numbers.
    """

    names: tuple[str, ...]
    values: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    targets: np.ndarray
    target_mean: np.ndarray
    target_scale: np.ndarray
    starts: dict[str, np.ndarray]
    left_out: tuple[str, ...] = ()

    @property
    def unit_scale(self) -> float:
        """The factor from standardised errors to the unit of the target, 1 for several targets."""
        return float(self.target_scale[0]) if len(self.target_scale) == 1 else 1.0

    def naive_errors(self, lookback: int, horizon: int) -> dict[int, float]:
        """Return the mean absolute validation error of repeating the last values, by their number.

        These are the last value, and the season of at most `lookback` values with the least error
        on train. Errors are in the unit of the reported ones.

        Args:
            lookback: Rows that a forecast is made from.
            horizon: Rows that are forecast.
        """
        values = (self.targets - self.target_mean) / self.target_scale * self.unit_scale

        def error(part: str, season: int, most: int) -> float:
            starts = self.starts[part]
            spread = np.linspace(0, len(starts) - 1, min(len(starts), max(1, most // horizon)))
            chosen = starts[spread.astype(np.int64)][:, None]
            same = chosen - season + np.arange(horizon) % season
            return float(np.abs(values[chosen + np.arange(horizon)] - values[same]).mean())

        seasons = range(2, lookback + 1)
        if len(seasons) > _MAX_SEASONS:
            seasons = [season for season in _USUAL_SEASONS if season <= lookback]
        best = min(seasons, key=lambda season: error("train", season, _NUM_COMPARED), default=1)
        return {season: error("validation", season, _NUM_JUDGED) for season in (1, best)}


@dataclass(frozen=True)
class WindowSplit:
    """Windows on rows in the order of time.

    Attributes:
        values: (rows, columns), what a forecast is made from.
        targets: (rows, targets), what is forecast.
        starts: The first row that each sample forecasts.
        lookback: Rows of a sample, which end before that row.
        horizon: Rows that it forecasts.
    """

    values: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)
    starts: np.ndarray = field(repr=False)
    lookback: int
    horizon: int

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (batch, lookback, columns) and (batch, horizon * targets), row by row."""
        starts = self.starts[np.asarray(indices)][:, None]
        inputs = self.values[starts + np.arange(-self.lookback, 0)]
        targets = self.targets[starts + np.arange(self.horizon)]
        return inputs, targets.reshape(len(inputs), -1)


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    try:
        values = column_of(table, name).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the column {name!r} is not numeric: {error}",
            field="data.columns",
            next_step="Correct or empty these cells in the file, or leave the column out.",
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
            next_step=(
                "Write one row for each time, or set data.group to the column that tells several"
                " series apart."
            ),
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
