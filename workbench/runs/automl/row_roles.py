"""Find which rows of a table belong together, whether they follow in time, and what they weigh.

A model of patients is tested on new patients, and a model of sales on later days. If a table shows
such groups or times, they decide how it is split. The user can name the columns, or say that there
are none. Weights are only read from a column that the user names. Splitting is left to
`workbench.data.row_splits`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.column_encoding import text_form_of
from workbench.data.dates import ISO, as_times, date_format_of, is_text
from workbench.data.number_texts import number_text_of
from workbench.data.plain_frames import column_of
from workbench.data.row_splits import RowBlocks, hold_out
from workbench.data.table_files import check_columns
from workbench.data.tables import MAX_DETECTED_CLASSES
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.formatting import format_count

if TYPE_CHECKING:
    import pandas as pd
from typing import TYPE_CHECKING

from workbench.data.encoders import SampleKind
from workbench.data.number_texts import PLAIN_NUMBERS

TEST_FRACTION = 0.2
NONE = "none"
"""Instead of the name of a column: rows are independent, or time does not matter."""
_FEWEST_TIMES = 20
# Rows are sorted by time if at most this share of the steps goes back: a table of shops may start
# over with each shop.
_STEPS_BACK = 0.05
# How much the targets of neighbours in time resemble each other before unsorted rows count as a
# series: the correlation, and the number of its standard errors.
_DRIFT, _DRIFT_ERRORS = 0.3, 5.0
_LONGEST_YEARS = 40.0
_NS_PER_YEAR = 365.2425 * 86_400e9
_BIRTH = re.compile(r"birth|born|(^|[^a-z])(dob|bday)([^a-z]|$)|geburt|naissance", re.IGNORECASE)
_STEP = {"t", "time", "step", "period", "day", "week", "month", "quarter", "hour", "minute"}
_YEAR = {"year", "yr", "yyyy", "jahr"}
_STAMP = {"timestamp", "epoch", "unixtime", "time", "ts", "date", "datetime"}
_YEARS = (1700, 2200)
_FIRST_STAMP = 1e8  # seconds since 1970, in 1973
_BEINGS = re.compile(
    r"animal|athlete|author|borrower|client|customer|device|donor|dog|driver|"
    r"employee|engine|family|guest|household|kunde|machine|member|mouse|participant|"
    r"patient|person|player|pupil|rat|respondent|speaker|student|subject|twin|unit|user|voter|"
    r"worker|writer"
)
_FEWEST_BEINGS, _FEWEST_GROUPS = 8, 20
# Things of which each has more rows are rather places that are measured again, such as plots, than
# ones that are new in each table, such as orders.
_MOST_ROWS_OF_THING = 100
_NUMBERING = re.compile(r"id|uuid|guid|no|nr|num|number|name|code|key|hash|index|ref|#")
# A number of things, which is not the number of a thing.
_COUNTING = re.compile(r"n|no|nr|num|number|count")
_IDENTIFYING = {"id", "uuid", "guid", "hash"}
_KINDS = re.compile(
    r"airport|area|brand|campaign|carrier|category|channel|city|class|color|colour|country|"
    r"county|currency|department|district|group|item|job|language|level|location|make|model|"
    r"neighborhood|neighbourhood|origin|plan|plz|post|postal|product|province|region|route|"
    r"sku|state|station|status|street|team|town|type|version|zip|zone"
)
_NEARLY_NUMBERS = 0.8
"""From this share of numbers on, a column of texts is not one of codes."""
_CODE = re.compile(
    r"[A-Za-z]{0,12}[-_ #]?\d{2,}|[0-9a-f]{8}(-?[0-9a-f]{4}){0,4}[0-9a-f]*", re.ASCII
)
_FEWEST_EQUAL = 3
"""In so many other columns the rows of one person are equal, at least."""
_NEARLY_ALL = 0.99
_NUM_COMPARED = 30
_MAX_ROWS = 200_000
_RARE_MISSING = 0.05
# Resemblance: the share of the variance between groups, and how unlikely it is by chance.
_LEAST_SHARE, _CHANCE = 0.1, 1e-4
_PANEL = 0.5
# Numbers that agree in so many digits are equal.
_NUM_DIGITS = 9
_LEAST_LEFT = 0.2


@dataclass(frozen=True)
class RowRoles:
    """The groups and times by which the rows of a table are split.

    Attributes:
        blocks: The group and the time of each row.
        group: The column with the groups, or None.
        time: The column with the times, or None.
        notes: What was found, why it counts, and how to override it.
    """

    blocks: RowBlocks = field(default_factory=RowBlocks)
    group: str | None = None
    time: str | None = None
    notes: tuple[str, ...] = ()


def find_row_roles(
    table: pd.DataFrame,
    targets: pd.Series,
    *,
    group_column: str | None = None,
    time_column: str | None = None,
    target: str | None = None,
    own_parts: Collection[str] = (),
) -> RowRoles:
    """Find the groups and the times of the rows of a table.

    Args:
        table: All columns but the target.
        targets: The target of each row, none missing.
        group_column: The column with the groups, "none" if rows are independent, or None to look.
        time_column: The column with the times, "none" if time does not matter, or None to look.
        target: The name of the target.
        own_parts: The parts that the user gave, "test" or "validation". Notes are about the others.

    Raises:
        DataError: If a column does not exist, or the rows cannot be split by it.
        ArgumentError: If the target was given as a group or a time.
    """
    for option, name in (("group_column", group_column), ("time_column", time_column)):
        if name is None or name == NONE:
            continue
        if name == target and name not in table.columns:
            raise ArgumentError(
                f"{name!r} is the column to predict", field=option, next_step="Name another one."
            )
        check_columns(table.columns, {option: [name]}, section="")
    numbers = _numbers_of(targets)
    group, groups, why_group = _groups(table, numbers, group_column, own_parts)
    time, times, why_time = _times(table, numbers, time_column, groups, own_parts)
    blocks = RowBlocks(groups, times)
    if groups is not None and times is not None:
        return _both(
            blocks,
            (str(group), str(time)),
            (why_group, why_time),
            (group_column is not None, time_column is not None),
            own_parts,
        )
    notes: tuple[str, ...] = tuple(why for why in (why_group, why_time) if why)
    return RowRoles(blocks, group, time, notes)


def target_follows(targets: pd.Series, numbers: np.ndarray) -> bool:
    """Return whether rows with similar numbers have similar targets.

    Args:
        targets: The target of each row, none missing.
        numbers: A number for each row, such as a time.
    """
    return _follows(_numbers_of(targets), numbers)


def blocks_in(samples: Any, roles: RowRoles) -> RowBlocks:
    """Return which of other samples belong together, as far as they have the columns that say so.

    Args:
        samples: Samples as they were given.
        roles: The columns.
    """
    names = set(map(str, getattr(samples, "columns", ())))
    groups = times = None
    if roles.group in names:
        groups = _codes(column_of(samples, roles.group))
    if roles.time in names:
        # Samples of one moment, or some without a time, can be scored as well.
        with contextlib.suppress(DataError):
            times = _given_times(column_of(samples, roles.time), roles.time)
    return RowBlocks(groups, times)


def with_copies(blocks: RowBlocks, samples: pd.DataFrame) -> tuple[RowBlocks, int]:
    """Return blocks in which rows that are equal in all columns belong together.

    Rows of few possible values are equal by chance, so copies count only if most rows differ, or
    one column tells most of the different ones apart.

    Args:
        blocks: The groups so far.
        samples: The columns that the model sees.

    Returns:
        The blocks, and the number of rows that repeat an earlier one, 0 if copies do not count or
        would chain most groups together.
    """
    if len(samples) == 0 or len(samples.columns) == 0:
        return blocks, 0
    compared = _without_float_noise(samples)
    same = compared.groupby(list(compared.columns), dropna=False, sort=False, observed=True)
    groups = same.ngroup().to_numpy()
    num_different = int(groups.max()) + 1
    num_copies = len(samples) - num_different
    if not num_copies:
        return blocks, 0
    tells_apart = max(samples[name].nunique(dropna=False) for name in samples) >= num_different / 2
    if num_different < _FEWEST_GROUPS or not (num_different >= num_copies or tells_apart):
        return blocks, 0
    if blocks.groups is not None:
        groups = _joined(blocks.groups, groups)
        largest = np.bincount(groups).max()
        if largest > max(len(samples) / 5, np.unique(blocks.groups, return_counts=True)[1].max()):
            return blocks, 0  # rows of many groups are equal by chance, and chain them together
    return RowBlocks(groups, blocks.times), num_copies


def _without_float_noise(samples: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which numbers are equal that differ by rounding only, such as 0.1 + 0.2."""
    return samples.assign(
        **{
            name: _rounded(samples[name].to_numpy(dtype=np.float64, na_value=np.nan))
            for name in samples
            if samples[name].dtype.kind == "f"
        }
    )


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """Return numbers with `_NUM_DIGITS` digits. Those that are tiny for their column are 0."""
    finite = np.isfinite(numbers)
    sizes = np.abs(numbers[finite])
    least = 10.0**-_NUM_DIGITS * float(np.median(sizes)) if len(sizes) else 0.0
    known = finite & (np.abs(np.where(finite, numbers, 0.0)) > least)
    rounded = np.where(finite, 0.0, numbers)
    places = 10.0 ** (_NUM_DIGITS - 1 - np.floor(np.log10(np.abs(numbers[known]))))
    rounded[known] = np.round(numbers[known] * places) / places
    return rounded


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return groups that contain both rows of one first and rows of one second group."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    num_first = int(first.max()) + 1
    size = num_first + int(second.max()) + 1
    links = coo_matrix((np.ones(len(first)), (first, num_first + second)), shape=(size, size))
    return np.unique(connected_components(links, directed=False)[1][first], return_inverse=True)[1]


def _both(
    blocks: RowBlocks,
    names: tuple[str, str],
    why: tuple[str | None, str | None],
    given: tuple[bool, bool],
    own_parts: Collection[str],
) -> RowRoles:
    """Decide for rows that have groups and times.

    A shop that sells on all days is in the test and before it. Either it is new in the test, or the
    days are later.
    """
    assert blocks.groups is not None
    assert blocks.times is not None
    group, time = names
    num_rows = len(blocks.groups)
    before = hold_out(
        num_rows, TEST_FRACTION, 0, classes=None, blocks=RowBlocks(None, blocks.times)
    )
    seen = float(np.isin(blocks.groups[before[1]], blocks.groups[before[0]]).mean())
    if seen < _PANEL:
        return RowRoles(blocks, group, time, tuple(note for note in why if note))
    left = hold_out(num_rows, TEST_FRACTION, 0, classes=None, blocks=blocks)[0]
    if all(given):
        if len(left) < _LEAST_LEFT * num_rows:
            raise DataError(
                f"the groups in {group!r} are in early and in late rows: only {len(left)} of"
                f" {num_rows} rows would remain to learn from",
                field="group_column",
                next_step="Use the groups or the times, and set the other one to none.",
            )
        return RowRoles(blocks, group, time)
    if given[0]:
        note = (
            f"`{time}` holds times, but the groups in `{group}` are in early and in late rows: the"
            f" model is {_first_use(own_parts)} on new groups, not on later rows. For later rows:"
            f" {_way('group_column', NONE)}"
        )
        return RowRoles(RowBlocks(blocks.groups), group, None, (note,))
    hold = "models are chosen" if "test" in own_parts else "scores hold"
    note = (
        f"the same `{group}` are in early and in late rows: {hold} for known ones at later"
        f" times. For new ones: {_way('group_column', group)}"
    )
    notes = tuple(text for text in (why[1], note) if text)
    return RowRoles(RowBlocks(None, blocks.times), None, time, notes)


def _first_use(own_parts: Collection[str]) -> str:
    """Return what the rows that are held out first are for."""
    return "chosen" if "test" in own_parts else "tested"


def _way(argument: str, value: str) -> str:
    option = argument.replace("_", "-")
    return f'--{option} {shlex.quote(value)}, or {argument}="{value}" in Python'


def _numbers_of(targets: pd.Series) -> np.ndarray:
    """Return targets as columns: the numbers, or one indicator for each of few classes."""
    if targets.dtype.kind in "iuf" and targets.nunique() > MAX_DETECTED_CLASSES:
        return targets.to_numpy(dtype=np.float64)[:, None]
    names = targets.astype(str)
    kept = names.value_counts().index[:_NUM_COMPARED]
    return np.stack([(names == name).to_numpy(dtype=np.float64) for name in kept], axis=1)


# Groups.


def _groups(
    table: pd.DataFrame, targets: np.ndarray, given: str | None, own_parts: Collection[str]
) -> tuple[str | None, np.ndarray | None, str | None]:
    if given == NONE:
        return None, None, None
    if given is not None:
        groups = _codes(column_of(table, given))
        if (num_groups := int(groups.max()) + 1) < 3:
            raise DataError(
                f"{given!r} has {format_count(num_groups, 'group')}",
                field="group_column",
                allowed="at least 3, to train, validate and test on different ones",
                next_step="Name another column, or leave it out.",
            )
        return given, groups, None
    if len(table) > _MAX_ROWS:
        table = table.iloc[:0]
    candidates = []
    for name in table.columns:
        column = column_of(table, name)
        kind = _kind_of_group(str(name), column)
        if kind is None:
            continue
        groups = _codes(column)
        others = table.drop(columns=[name])
        if _resemble(groups, targets, others, is_certain=kind < 2):
            candidates.append((kind, int(groups.max()) + 1, str(name), groups))
    if not candidates:
        return None, None, _note_of_owners(table)
    _, num_groups, name, groups = min(candidates, key=lambda candidate: candidate[:2])
    purpose = "models are chosen" if "test" in own_parts else "the score holds"
    why = (
        f"`{name}` has {num_groups} values in {len(table)} rows, and rows with the same value"
        f" resemble each other: they are kept on one side of every split, so that {purpose}"
        f" for new ones. `{name}` is not an input. Predicted numbers add what is known of the same"
        f" ones. Will you predict for no others? Then it may be the best input:"
        f" {_way('group_column', NONE)}"
    )
    return name, groups, why


def _note_of_owners(table: pd.DataFrame) -> str | None:
    """Return a note on a column of numbers that may say whose rows these are, whatever its name is.

    Rows of one person are equal in what does not change, such as sex, place and education.
    """
    codes = functools.cache(lambda name: _codes(column_of(table, name)))
    for name in table.columns:
        column = column_of(table, name)
        if column.dtype.kind not in "iu" or not _has_repeats(column):
            continue
        if any(map(_KINDS.fullmatch, _words_of(str(name)))):
            continue
        if _possible_times(str(name), column)[0] is not None:
            continue
        groups = codes(name)
        if int(groups.max()) + 1 < _FEWEST_GROUPS:
            continue
        others = [other for other in table.columns if other != name][:_NUM_COMPARED]
        equal = [f"`{other}`" for other in others if _is_same_in(groups, codes(other))]
        if len(equal) >= _FEWEST_EQUAL:
            return (
                f"rows with the same `{name}` are equal in {len(equal)} other columns, such as"
                f" {equal[0]} and {equal[1]}. Does it say whose rows these are, and will you"
                f" predict for new ones? Then keep them on one side of every split:"
                f" {_way('group_column', str(name))}"
            )
    return None


def _is_same_in(groups: np.ndarray, values: np.ndarray) -> bool:
    """Return whether values that vary are the same in nearly all groups of several rows."""
    if not np.ptp(values):
        return False
    num_values = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    pairs = np.unique(np.stack([groups, values]), axis=1)
    np.add.at(num_values, pairs[0], 1)
    several = np.bincount(groups) > 1
    return bool((num_values[several] == 1).mean() >= _NEARLY_ALL)


def _codes(column: pd.Series) -> np.ndarray:
    """Return the group of each row by number. A row without a value is a group by itself."""
    if column.dtype.kind == "f":
        column = column.set_axis(range(len(column))).astype(np.float64)
        column = column.where(column.isna(), _rounded(column.to_numpy()))
    elif is_text(column):
        column = column.map(lambda value: value.strip() if isinstance(value, str) else value)
    codes, values = column.astype(object).factorize()
    gaps = codes < 0
    codes = codes.astype(np.int64)
    codes[gaps] = len(values) + np.arange(int(gaps.sum()))
    return codes


def _words_of(name: str) -> list[str]:
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()
    return [word for word in re.split(r"[^a-z0-9äöüé#]+", parts) if word]


def _kind_of_group(name: str, column: pd.Series) -> int | None:
    """Return how a column may say whose rows these are, the surest first.

    0 is a person or a thing, 1 an identifier, 2 a code, and None no group.
    """
    if not _has_repeats(column):
        return None
    num_groups = column.nunique()
    words = _words_of(name)
    if column.dtype.kind in "iu":
        if words and _COUNTING.fullmatch(words[0]):
            return None
    else:
        words = [word.removesuffix("s") if len(word) > 3 else word for word in words]
    beings = [word for word in words if _BEINGS.fullmatch(word)]
    is_being = bool(beings) and all(
        _NUMBERING.fullmatch(word) for word in words if word not in beings
    )
    if is_being and num_groups >= _FEWEST_BEINGS:
        return 0
    if num_groups < _FEWEST_GROUPS or any(map(_KINDS.fullmatch, words)):
        return None
    if words and words[-1] in _IDENTIFYING:
        is_place = len(words) > 1 and not beings and len(column) > _MOST_ROWS_OF_THING * num_groups
        return None if is_place else 1
    if is_text(column) and date_format_of(column) is None:
        values = column.dropna().astype(str).drop_duplicates()
        is_number = number_text_of(column, min_share=_NEARLY_NUMBERS) is not None
        if not is_number and values.str.fullmatch(_CODE).mean() > 0.95:
            return 2
    return None


def _has_repeats(column: pd.Series) -> bool:
    """Return whether most values of a column are there several times, none of them too often."""
    if column.dtype.kind in "fMmb" or column.isna().mean() > _RARE_MISSING:
        return False
    counts = column.value_counts().to_numpy()
    counts = counts[counts > 0]  # a categorical column also lists values that it does not have
    num_known = int(counts.sum())
    return 0 < 1.5 * len(counts) <= num_known and bool(counts.max() <= num_known / 2)


def _resemble(
    groups: np.ndarray, targets: np.ndarray, others: pd.DataFrame, *, is_certain: bool
) -> bool:
    """Return whether rows of one group resemble each other in the target, or in other columns."""
    if any(_share_between(groups, targets[:, place]) for place in range(targets.shape[1])):
        return True
    shares = [
        _share_between(groups, numbers)
        for name in list(others.columns)[:_NUM_COMPARED]
        if (numbers := _numbers_to_compare(column_of(others, name))) is not None
    ]
    needed = max(1.0, (0.2 if is_certain else 0.4) * len(shares))
    return sum(share >= 0.3 for share in shares) >= needed


def _numbers_to_compare(column: pd.Series) -> np.ndarray | None:
    """Return a column as numbers, or None if it says nothing about a row."""
    if column.dtype.kind in "iufb":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.where(np.isfinite(numbers), numbers, np.nanmean(numbers)) if len(column) else None
    texts = column.astype(str)
    counts = texts.value_counts()
    if len(counts) > len(texts) / 2:
        return None
    return (texts == counts.index[0]).to_numpy(dtype=np.float64)


def _share_between(groups: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the variance that lies between groups, 0 if it may be chance.

    Source: the intraclass correlation ICC(1) of Shrout and Fleiss (1979).
    """
    from scipy.stats import f as f_distribution

    counts = np.bincount(groups).astype(float)
    num_groups, num_rows = len(counts), len(values)
    if num_rows <= num_groups or not np.ptp(values) > 0:
        return 0.0
    centred = values - values.mean()
    means = np.bincount(groups, centred) / counts
    between = float((counts * means**2).sum()) / (num_groups - 1)
    within = float(((centred - means[groups]) ** 2).sum()) / (num_rows - num_groups)
    if within <= 1e-12 * between:
        return 1.0
    if f_distribution.sf(between / within, num_groups - 1, num_rows - num_groups) > _CHANCE:
        return 0.0
    size = (num_rows - float((counts**2).sum()) / num_rows) / (num_groups - 1)
    share = (between - within) / (between + (size - 1.0) * within)
    return share if share >= _LEAST_SHARE else 0.0


# Times.


def _times(
    table: pd.DataFrame,
    targets: np.ndarray,
    given: str | None,
    groups: np.ndarray | None,
    own_parts: Collection[str],
) -> tuple[str | None, np.ndarray | None, str | None]:
    if given == NONE:
        return None, None, None
    if given is not None:
        return given, _given_times(column_of(table, given), given), None
    name, times, note = _detected_times(table, targets, groups, own_parts)
    if len(set(own_parts)) == 2:
        note = None  # nothing is drawn
    return name, times, note


def _detected_times(
    table: pd.DataFrame,
    targets: np.ndarray,
    groups: np.ndarray | None,
    own_parts: Collection[str],
) -> tuple[str | None, np.ndarray | None, str | None]:
    dated = []
    for name in table.columns:
        times, is_date = _possible_times(str(name), column_of(table, name))
        if times is None:
            continue
        if _is_sorted(times) and (is_date or _follows(targets, np.arange(len(times)))):
            if _has_classes_before(targets, times):
                return str(name), times, _note_of_sorted(str(name), own_parts)
            return None, None, _note_of_classes(str(name), own_parts)
        if is_date:
            dated.append((str(name), times))
    for name, times in dated:
        if (
            _is_recent(times)
            and _drifts(targets, times, groups)
            and _has_classes_before(targets, times)
        ):
            return name, times, _note_of_drift(name, own_parts)
    return None, None, _note_of_dates(dated[0][0], own_parts) if dated else None


def _is_recent(times: np.ndarray) -> bool:
    """Return whether dates may say when rows were measured, unlike dates of birth."""
    span_years = float(np.ptp(times)) / _NS_PER_YEAR
    return span_years <= _LONGEST_YEARS and len(np.unique(times)) >= _FEWEST_TIMES


def _on_the_last(own_parts: Collection[str]) -> str:
    """Return what the last rows in time are for."""
    text = f"the model is {_first_use(own_parts)} on the last rows in time"
    return text if own_parts else f"{text}, and chosen on the last ones before them"


def _note_of_drift(name: str, own_parts: Collection[str]) -> str:
    return (
        f"the target changes with `{name}`: {_on_the_last(own_parts)}. For rows drawn at random:"
        f" {_way('time_column', NONE)}"
    )


def _note_of_dates(name: str, own_parts: Collection[str]) -> str:
    rows = use = "test"
    if "test" in own_parts:
        rows = "validation"
        use = "choose"
    return (
        f"`{name}` holds dates, but rows are not sorted by it and the target does not follow it,"
        f" so the {rows} rows are drawn at random. To {use} on the last rows in time:"
        f" {_way('time_column', name)}"
    )


def _note_of_sorted(name: str, own_parts: Collection[str]) -> str:
    return (
        f"the rows are sorted by `{name}`: {_on_the_last(own_parts)}. For rows drawn at random:"
        f" {_way('time_column', NONE)}"
    )


def _note_of_classes(name: str, own_parts: Collection[str]) -> str:
    rows = "test"
    scores = "Scores"
    if "test" in own_parts:
        rows = "validation"
        scores = "Scores of validation"
    return (
        f"the rows are sorted by `{name}`, but a class occurs in the last rows only, so the"
        f" {rows} rows are drawn at random. {scores} say little about later rows"
    )


def _given_times(column: pd.Series, name: str) -> np.ndarray:
    form = text_form_of(column) if is_text(column) else None
    if isinstance(form, str) or column.dtype.kind == "M":
        times = as_times(column, form if isinstance(form, str) else ISO)
    elif column.dtype.kind in "iuf":
        times = column.to_numpy(dtype=np.float64)
    else:
        known = column.dropna()
        raise DataError(
            f"{name!r} holds {known.iloc[0]!r}, which is no time"
            if len(known)
            else f"{name!r} is empty",
            field="time_column",
            allowed="dates in one form, or numbers",
            next_step="Name another column, or write the dates as 2024-03-31.",
        )
    if gaps := int(np.isnan(times).sum()):
        raise DataError(
            f"{gaps} of {len(times)} rows have no time in {name!r}",
            field="time_column",
            next_step="Fill them in, or remove these rows.",
        )
    if (num_times := len(np.unique(times))) < 3:
        raise DataError(
            f"{name!r} has {format_count(num_times, 'time')}",
            field="time_column",
            allowed="at least 3, to train, validate and test on different ones",
            next_step="Name another column, or leave it out.",
        )
    return times


def _possible_times(name: str, column: pd.Series) -> tuple[np.ndarray | None, bool]:
    """Return when rows were measured if a column may say so, and whether it holds dates."""
    if _BIRTH.search(name) or not len(column):
        return None, False
    if column.dtype.kind == "M" or is_text(column):
        form: str | None = ISO
        if column.dtype.kind != "M":
            form = date_format_of(column)
        if form is None:
            return None, False
        times = as_times(column, form)
        gaps = np.isnan(times)
        if gaps.mean() > _RARE_MISSING:
            return None, False
        return _filled(times), True
    if column.dtype.kind not in "iuf" or column.isna().any():
        return None, False
    return _time_in_numbers(name, column.to_numpy(dtype=np.float64))


def _time_in_numbers(name: str, numbers: np.ndarray) -> tuple[np.ndarray | None, bool]:
    """Return numbers as times if their name and their form say so. They count only if sorted."""
    words = set(_words_of(name))
    least, most = float(numbers.min()), float(numbers.max())
    if words & _YEAR and _YEARS[0] <= least and most <= _YEARS[1]:
        return numbers, False
    if words & _STAMP and least >= _FIRST_STAMP:
        return numbers, False
    steps = np.diff(np.unique(numbers))
    if words and words <= _STEP and len(steps) and np.allclose(steps, steps[0]):
        return numbers, False
    return None, False


def _filled(times: np.ndarray) -> np.ndarray:
    """Return times in which a missing one is the time of the row before."""
    known = np.flatnonzero(~np.isnan(times))
    places = np.maximum(np.searchsorted(known, np.arange(len(times)), side="right") - 1, 0)
    return times[known[places]]


def _is_sorted(times: np.ndarray) -> bool:
    """Return whether rows are in the order of time, in either direction or in a few runs."""
    steps = np.diff(times)
    num_up, num_down = int((steps > 0).sum()), int((steps < 0).sum())
    num_changes = num_up + num_down
    if num_changes < _FEWEST_TIMES or len(np.unique(times)) < _FEWEST_TIMES:
        return False
    return min(num_up, num_down) <= _STEPS_BACK * num_changes


def _drifts(targets: np.ndarray, times: np.ndarray, groups: np.ndarray | None) -> bool:
    """Return whether rows that are close in time have similar targets.

    With groups, these are compared: rows of one group resemble each other anyway.
    """
    if groups is not None:
        counts = np.bincount(groups)
        targets = np.stack([np.bincount(groups, column) / counts for column in targets.T], axis=1)
        times = np.bincount(groups, times) / counts
    return _follows(targets, times)


def _follows(targets: np.ndarray, times: np.ndarray) -> bool:
    """Return whether the target of a row resembles the target of the row before it in time."""
    shuffled = np.random.default_rng(0).permutation(len(times))  # rows of one time have no order
    order = shuffled[np.argsort(times[shuffled], kind="stable")]
    for column in targets.T:
        values = column[order] - column.mean()
        variance = float((values**2).mean())
        if variance <= 0:
            continue
        correlation = float((values[1:] * values[:-1]).mean()) / variance
        if correlation >= _DRIFT and correlation * len(values) ** 0.5 >= _DRIFT_ERRORS:
            return True
    return False


def _has_classes_before(targets: np.ndarray, times: np.ndarray) -> bool:
    """Return whether each class of a target occurs in the first three fifths of the time."""
    if targets.shape[1] == 1:
        return True
    early = times <= np.quantile(times, 0.6)
    counts = targets.sum(axis=0)
    return bool(((targets[early].sum(axis=0) >= 1) | (counts < 3)).all())


def weights_of(
    kind: SampleKind, samples: Any, weight_column: str, *, target: str | None
) -> np.ndarray:
    """Return the weight of each sample."""
    if kind != "table":
        raise ArgumentError(
            f"{kind} have no columns", field="weight_column", next_step="Remove it."
        )
    if weight_column == target and weight_column not in samples.columns:
        raise ArgumentError(f"{weight_column!r} is the column to predict", field="weight_column")
    check_columns(samples.columns, {"weight_column": [weight_column]}, section="")
    return weights_in(samples, weight_column)


def weights_in(samples: pd.DataFrame, weight_column: str) -> np.ndarray:
    """Return the weight of each row of a table.

    Args:
        samples: The table.
        weight_column: The column with the weights.

    Raises:
        DataError: If they are not numbers from 0, or all 0.
    """
    column = column_of(samples, weight_column)
    numbers = np.full(len(column), np.nan)
    if column.dtype.kind in "iufb":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif is_text(column):  # such as 0,5 or 1'200
        form = number_text_of(column, min_share=1.0) or PLAIN_NUMBERS
        with contextlib.suppress(ValueError):
            numbers = form.parse_all(column)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise DataError(
            f"the weight in row {wrong[0]} (from 0) is {column.iloc[wrong[0]]!r}",
            field="weight_column",
            allowed="numbers from 0 in each row",
        )
    if not numbers.any():
        raise DataError("all weights are 0", field="weight_column")
    return numbers
