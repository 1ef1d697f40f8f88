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
DateOrder = Literal["day-first", "month-first", "year-first"]
DATE_ORDER = "date_order"
"""The attribute of columns whose dates have a known order, where they can be read in two ways."""

ISO = "ISO8601"
OR = " | "
"""Between the formats of a column that mixes several, such as 3/4/2024 and 3.4.2024."""
DAYS: dict[Cycle, float] = {"year": 365.2425, "week": 7.0, "day": 1.0}
NS_PER_DAY = 86_400e9
# The weekday of the first day of 1970, if weeks start on Monday, which is 0.
THURSDAY = 3
# Dates whose year has two digits, which pandas does not guess. Codes such as 1.2.10 do not match.
_SHORT = re.compile(
    r"(?P<numbers>\d{1,2}/\d{1,2}/\d\d|\d\d(?P<sign>[.-])\d\d(?P=sign)\d\d|\d{1,2}-[A-Za-z]{3}-\d\d)"
    r"(?P<time> \d{1,2}:\d\d(?P<seconds>:\d\d)?)?"
)
# Number of texts to guess formats from, because the first ones may not be dates, and of texts in
# which other formats are looked for.
_NUM_GUESSED_FROM, _NUM_OF_MIXED = 5, 200
_MUCH_LONGER = 3.0
# The hours of a clock with am and pm, which pandas does not guess.
_HALF_DAYS = re.compile(
    r"(?P<date>.+?) (?P<time>\d{1,2}:\d\d(?P<seconds>:\d\d)?)(?P<gap> ?)[AP]M", re.I
)
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
    is ambiguous in all values, it is the one in `DATE_ORDER` among `values.attrs`, or else the day
    comes first.

    Args:
        values: The column.
        min_share: Share of the distinct known values that must be dates of one format.
    """
    if not is_text(values):
        return None
    texts = values.dropna().astype(str).drop_duplicates()
    order = values.attrs.get(DATE_ORDER)
    if order is None and min_share == 1.0:
        return next(iter(possible_formats(values)), None)
    return next(
        (
            form
            for guess in (_guessed, _mixed)
            for form in sorted(guess(texts), key=lambda form: order_of(form) != order)
            if _read(texts, form).notna().mean() >= min_share
        ),
        None,
    )


def possible_formats(values: pd.Series) -> list[str]:
    """Return the formats in which all dates of a column can be read, if the dates then differ.

    Points follow the day in all languages, so 03.04.2024 is no question. A year of two digits is
    first or last if the dates are much closer to each other then.

    Args:
        values: The column.
    """
    if not is_text(values):
        return []
    texts = values.dropna().astype(str).drop_duplicates()
    read = _all_read(texts, _guessed(texts)) or _all_read(texts, _mixed(texts))
    if len(read) > 1 and all("%d.%m." in form or "%m.%d." in form for form in read):
        return [next(form for form in read if "%d.%m." in form)]
    spans = {form: (times.max() - times.min()).total_seconds() for form, times in read.items()}
    years_first = [form for form in read if order_of(form) == "year-first"]
    others = [form for form in read if form not in years_first]
    if years_first and others:
        first, last = spans[years_first[0]], min(spans[form] for form in others)
        if _MUCH_LONGER * first <= last:
            return years_first
        if _MUCH_LONGER * last <= first:
            return others
    return list(read)


def _all_read(texts: pd.Series, forms: list[str]) -> dict[str, pd.Series]:
    """Return the formats that read all texts, if the times then differ, and these times."""
    read: dict[str, pd.Series] = {}
    for form in forms:
        times = _read(texts, form)
        if times.notna().all() and not any(times.equals(other) for other in read.values()):
            read[form] = times
    return read


def _mixed(texts: pd.Series) -> list[str]:
    """Return formats that join several ways to write dates in one order, those day-first first."""
    if not _guessed(texts):  # the first texts are no dates
        return []
    forms = [form for form in _guessed(texts, _NUM_OF_MIXED) if form != ISO]
    mixed = []
    for order in get_args(DateOrder):
        own = [form for form in forms if order_of(form) == order]
        others = [form for form in forms if order_of(form) is None]  # such as 3 March 2024
        if len(own + others) > 1:
            mixed.append(OR.join(own + others))
    return list(dict.fromkeys(mixed))


def order_of(form: str) -> DateOrder | None:
    """Return the order of year, month and day in a format, or None if a month is a word.

    Example:
        >>> order_of("%d/%m/%Y %H:%M"), order_of("%m/%d/%y"), order_of("%d %B %Y")
        ('day-first', 'month-first', None)
    """
    parts = tuple(re.findall(r"%([dmyYbB])", form))[:3]
    orders: dict[tuple[str, ...], DateOrder] = {
        ("d", "m", "y"): "day-first",
        ("m", "d", "y"): "month-first",
        ("y", "m", "d"): "year-first",
    }
    return orders.get(tuple(part.lower() if part == "Y" else part for part in parts))


def with_date_order(
    table: pd.DataFrame, order: DateOrder | None, *, field: str = "dates", how: str = ""
) -> pd.DataFrame:
    """Return a table whose dates have a known order.

    One column whose dates can only be read in one way decides for the others.

    Args:
        table: The columns.
        order: The order that the user gave, or None.
        field: The place of the order in errors.
        how: How to give the order day-first, for the error.

    Raises:
        DataError: If dates can be read in two ways, such as 03/04/2024, and no order is known.
    """
    known: set[DateOrder] = set()
    unsure: dict[str, list[str]] = {}
    if order is None:
        for name, values in table.items():
            forms = possible_formats(values)
            if len(forms) > 1:
                unsure[str(name)] = forms
            elif forms and (shown := order_of(forms[0])) and "." not in forms[0]:
                known.add(shown)
        if unsure and len(known) == 1:
            order = known.pop()
    if order is None and not unsure:
        return table
    open_questions = {
        name: forms for name, forms in unsure.items() if order not in map(order_of, forms)
    }
    if open_questions:
        name, forms = next(iter(open_questions.items()))
        raise _two_ways(table[name], forms, field, how)
    kept = table.copy(deep=False)
    kept.attrs = {**table.attrs, DATE_ORDER: order}
    return kept


def _two_ways(values: pd.Series, forms: list[str], field: str, how: str) -> DataError:
    texts = values.dropna().astype(str).drop_duplicates()
    read = [_read(texts, form).tolist() for form in forms]
    example, days = next(
        (text, days)
        for text, *days in zip(texts, *read, strict=True)
        if any(day != days[0] for day in days)
    )
    readings = " or ".join(f"{day.day} {day.strftime('%B %Y')}" for day in days)
    orders = [order for form in forms if (order := order_of(form)) is not None]
    return DataError(
        f"the dates of {values.name!r} can be read in {len(forms)} ways: {example} is {readings}",
        field=field,
        allowed=", ".join(orders),
        next_step=how.replace("ORDER", orders[0]),
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
    form = form.replace(OR, " or ")
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
    if form == ISO:
        return 0
    as_written = _as_written(values, form)
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


def _guessed(texts: pd.Series, num_texts: int = _NUM_GUESSED_FROM) -> list[str]:
    """Return the possible formats of the first texts, those with the day before the month first."""
    forms: dict[str, None] = {}  # a set that keeps its order
    for text in texts.iloc[:num_texts]:
        for day_first in (True, False):
            form = _guessed_of(text, day_first=day_first)
            # The order year, day, month is not used.
            if form is not None and _is_whole(form) and not (day_first and form.startswith("%Y")):
                if form.startswith("%Y-%m-%d"):
                    form = ISO
                forms[form] = None
    for form in [form for form in forms if form.startswith("%d-%m-%y")]:
        forms[form.replace("%d-%m-%y", "%y-%m-%d")] = None
    return list(forms)


def _guessed_of(text: str, *, day_first: bool) -> str | None:
    from pandas.tseries.api import guess_datetime_format

    if (clock := _HALF_DAYS.fullmatch(text)) is not None:
        date = _guessed_of(clock["date"], day_first=day_first)
        time = "%I:%M:%S" if clock["seconds"] else "%I:%M"
        return None if date is None else f"{date} {time}{clock['gap']}%p"
    with warnings.catch_warnings():  # the warning that the day comes first
        warnings.simplefilter("ignore")
        form = guess_datetime_format(text, dayfirst=day_first)
    return form or _guessed_short(text, day_first=day_first)


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
    times = _as_written(values, form)
    return times if form == ISO else times.fillna(_as_written(values, ISO))


def _as_written(values: pd.Series, form: str) -> pd.Series:
    """Return times in UTC of the values that are written in a format, or in one of several."""
    import pandas as pd

    first, *others = form.split(OR)
    times = pd.to_datetime(values, format=first, utc=True, errors="coerce")
    for other in others:
        times = times.fillna(pd.to_datetime(values, format=other, utc=True, errors="coerce"))
    return times
