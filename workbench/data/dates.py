"""Dates in a column: their text format, their times, and their place in the year, week and day.

A format applies to a whole column and is detected from its values. `columns` computes statistics.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Cycle = Literal["year", "week", "day"]

ISO = "ISO8601"
DAYS: dict[Cycle, float] = {"year": 365.2425, "week": 7.0, "day": 1.0}
NS_PER_DAY = 86_400e9
# The weekday of the first day of 1970, if weeks start on Monday, which is 0.
THURSDAY = 3
# Dates whose year has two digits, which pandas does not guess. Codes such as 1.2.10 do not match.
_SHORT = re.compile(
    r"(?P<numbers>\d{1,2}/\d{1,2}/\d\d|\d\d(?P<sign>[.-])\d\d(?P=sign)\d\d|\d{1,2}-[A-Za-z]{3}-\d\d)"
    r"(?P<time> \d{1,2}:\d\d(?P<seconds>:\d\d)?)?"
)
# Number of texts to guess formats from, because the first ones may not be dates.
_NUM_GUESSED_FROM = 5
_WORDS = {
    "%Y": "year",
    "%y": "year",
    "%m": "month",
    "%b": "month",
    "%B": "month",
    "%d": "day",
    "%H": "hour",
    "%I": "hour",
    "%M": "minute",
    "%S": "second",
    "%f": "fraction",
    "%p": "am/pm",
    "%z": "zone",
    "%Z": "zone",
}


def date_format_of(values: pd.Series, *, min_share: float = 1.0) -> str | None:
    """Return the date format of a column of text, or None for other columns.

    A date has a year, a month and a day, and may have a time of day. If the order of day and month
    is ambiguous in all values, the day comes first.

    Args:
        values: The column.
        min_share: Share of the distinct known values that must be dates of one format.
    """
    if not is_text(values):
        return None
    texts = values.dropna().astype(str).drop_duplicates()
    return next(
        (form for form in _guessed(texts) if _read(texts, form).notna().mean() >= min_share),
        None,
    )


def is_text(values: pd.Series) -> bool:
    """Return whether a column contains text or objects rather than numbers or times."""
    from pandas.api import types

    return not (
        types.is_numeric_dtype(values)
        or types.is_datetime64_any_dtype(values)
        or types.is_timedelta64_dtype(values)
    )


def in_words(form: str) -> str:
    """Return a format in readable form, such as day/month/year."""
    if form == ISO:
        return "year-month-day"
    for code, word in _WORDS.items():
        form = form.replace(code, word)
    return form


def no_dates(values: pd.Series, form: str) -> np.ndarray:
    """Return the positions of values that are neither missing nor dates of a format.

    Args:
        values: Any column except one of numbers.
        form: As `date_format_of` returns it. Date objects and ISO 8601 dates always count.
    """
    return np.flatnonzero((_read(values, form).isna() & values.notna()).to_numpy())


def num_in_iso(values: pd.Series, form: str) -> int:
    """Return how many dates are written as year-month-day although their column has another format.

    Args:
        values: A column of text.
        form: As `date_format_of` returns it.
    """
    import pandas as pd

    if form == ISO:
        return 0
    as_written = pd.to_datetime(values, format=form, utc=True, errors="coerce")
    return int((as_written.isna() & _read(values, form).notna()).sum())


def as_times(values: pd.Series, form: str) -> np.ndarray:
    """Return nanoseconds since 1970 for dates of any unit and time zone. The default zone is UTC.

    Args:
        values: Dates or text. Missing values become NaN.
        form: As `date_format_of` returns it.

    Raises:
        DataError: If a value is not a date.
    """
    from pandas.api import types

    if not types.is_numeric_dtype(values):
        wrong = no_dates(values, form)
        if not len(wrong):
            # Microseconds can represent years beyond 2262.
            times = _read(values, form).astype("datetime64[us, UTC]")
            return np.where(
                times.isna(), np.nan, times.astype("int64").to_numpy(dtype=np.float64) * 1000.0
            )
        problem = f"row {values.index[wrong[0]]} (from 0) holds {values.iloc[wrong[0]]!r}"
    elif values.notna().any():
        problem = "numbers are not dates"
    else:
        return np.full(len(values), np.nan)
    allowed = f"text as {in_words(form)}"
    if form == ISO:
        allowed = "text such as 2026-01-31 or 2026-01-31T12:00"
    raise DataError(
        f"the column {values.name!r} held dates in the training data: {problem}",
        allowed=f"dates, or {allowed}",
        next_step="Convert the column to the format that it had there.",
    )


def cycles_of(times_ns: np.ndarray) -> tuple[Cycle, ...]:
    """Return the cycles that the times span at least once and in which they vary.

    Args:
        times_ns: Nanoseconds since 1970, none missing.
    """
    if not len(times_ns):
        return ()
    span_days = float(np.ptp(times_ns)) / NS_PER_DAY
    return tuple(
        cycle
        for cycle in get_args(Cycle)
        if span_days >= DAYS[cycle]
        and max(np.ptp(coordinate) for coordinate in place_in(cycle, times_ns)) > 1e-6
    )


def place_in(cycle: Cycle, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of times in a cycle as sine and cosine, which join its end to its start.

    Args:
        cycle: The cycle. A week has seven places, whereas year and day are continuous.
        times_ns: Nanoseconds since 1970.
    """
    days = times_ns / NS_PER_DAY
    if cycle == "week":
        days = np.floor(days) + THURSDAY
    angle = 2.0 * np.pi * days / DAYS[cycle]
    return np.sin(angle), np.cos(angle)


def _guessed(texts: pd.Series) -> list[str]:
    """Return the possible formats of the first texts, those with the day before the month first."""
    from pandas.tseries.api import guess_datetime_format

    forms: dict[str, None] = {}  # a set that keeps its order
    for text in texts.iloc[:_NUM_GUESSED_FROM]:
        for day_first in (True, False):
            with warnings.catch_warnings():  # the warning that the day comes first
                warnings.simplefilter("ignore")
                form = guess_datetime_format(text, dayfirst=day_first)
            form = form or _guessed_short(text, day_first=day_first)
            # The order year, day, month is not used.
            if form is not None and _is_whole(form) and not (day_first and form.startswith("%Y")):
                if form.startswith("%Y-%m-%d"):
                    form = ISO
                forms[form] = None
    return list(forms)


def _guessed_short(text: str, *, day_first: bool) -> str | None:
    """Return the format of a date whose year has two digits, or None for other texts."""
    short = _SHORT.fullmatch(text)
    if short is None:
        return None
    if short["numbers"][-4:-3].isalpha():
        form = "%d-%b-%y"
    else:
        sign = short["sign"] or "/"
        form = sign.join(("%m", "%d", "%y"))
        if day_first:
            form = sign.join(("%d", "%m", "%y"))
    time = ""
    if short["time"]:
        time = " %H:%M:%S" if short["seconds"] else " %H:%M"
    return form + time


def _is_whole(form: str) -> bool:
    parts = {_WORDS.get(form[place : place + 2]) for place in range(len(form))}
    return {"year", "month", "day"} <= parts


def _read(values: pd.Series, form: str) -> pd.Series:
    """Return times in UTC, with missing ones for values that are not dates."""
    import pandas as pd

    times = pd.to_datetime(values, format=form, utc=True, errors="coerce")
    if form == ISO:
        return times
    return times.fillna(pd.to_datetime(values, format=ISO, utc=True, errors="coerce"))
