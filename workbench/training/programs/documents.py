"""Reads numbers by name from JSON objects and rows of CSV.

Other values are skipped, or kept as words that show why a metric is missing.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from typing import Any

from workbench.foundation.reported_values import NotANumber, judge
from workbench.training.programs.metric_names import scoped, split_word
from workbench.training.programs.printed_numbers import has_decimal_comma, number_of_text, word_of

MAX_DEPTH = 4
_KINDS = ("event", "phase", "type", "stage", "mode", "split", "kind", "msg", "message", "tag")
"""Names of values that say what a document is about, such as `validation_end`."""
_ABSENT = ("", "NA", "<NA>", "N/A", "None", "null", "NULL")
"""Cells of a CSV row that mean a missing value. They cannot be names of columns."""
_MEAN = "mean"
_STATISTICS = frozenset(
    (_MEAN, "std", "var", "sem", "min", "max", "median", "sum", "num", "n", "count", "last")
)
"""Names of the values of a summary of several numbers."""
_MAX_WORD = 80
_LISTED = re.compile(r"\s*[\[(].*\d.*[\])]\s*", re.DOTALL)
"""Several numbers instead of one, as text."""


class Values(dict[str, float]):
    """Numbers by name that a program wrote together. Booleans stay booleans.

    Attributes:
        words: Words instead of numbers, such as None, by name.
    """

    def __init__(
        self, numbers: Mapping[str, float] | None = None, words: Mapping[str, str] | None = None
    ) -> None:
        """Start with some numbers and words."""
        super().__init__(numbers or {})
        self.words: dict[str, str] = dict(words or {})

    def merge(self, other: Values) -> None:
        """Add other values. They replace values of the same name."""
        self.update(other)
        self.words |= other.words

    @property
    def is_empty(self) -> bool:
        """Whether there are neither numbers nor words."""
        return not self and not self.words


def read_json(line: bytes) -> Values:
    """Return the numbers of a JSON object by name. Nested objects give names with dots."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return Values()
    if not isinstance(document, dict):
        return Values()
    return numbers_by_split(document)


def read_history(content: bytes) -> dict[str, float]:
    """Return the last numbers of a JSON document that a program writes again in each epoch.

    Args:
        content: An object with lists of numbers, as the history of Keras, or with numbers, or a
            list of such objects. Anything else has none.

    Example:
        >>> from workbench.training.programs.documents import read_history
        >>> read_history(b'{"val_loss": [0.5, 0.25]}')
        {'val_loss': 0.25}
        >>> read_history(b'[{"acc": 0.1}, {"acc": 0.2}]')
        {'acc': 0.2}
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, list):
        document = document[-1] if document else {}
    if not isinstance(document, dict):
        return {}
    last = {
        name: value[-1] if isinstance(value, list) and value else value
        for name, value in document.items()
    }
    return dict(numbers_by_split(last))


def numbers_by_split(document: Mapping[str, Any]) -> Values:
    """Return the numbers of a document. If it names a part of the data, that is in their names.

    Args:
        document: What a program wrote at once, such as `{"split": "val", "loss": 0.5}`.
    """
    values = numbers_of(document, MAX_DEPTH)
    split = next((word for item in document.items() if (word := _split_in(*item))), "")
    if not split:
        return values
    return Values(
        {scoped(name, split): value for name, value in values.items()},
        {scoped(name, split): word for name, word in values.words.items()},
    )


def _split_in(name: str, value: object) -> str:
    """Return the part of the data that a value of a document names, such as `valid`, or ""."""
    if not isinstance(value, str):
        return ""
    first = value
    if name in _KINDS:
        first = re.split(r"[\W_]", value, maxsplit=1)[0]
    return first if split_word(first) else ""


class Rows:
    """Reads rows of CSV with commas, semicolons or tabs. The first row holds the column names."""

    def __init__(self) -> None:
        """Start before the row of names."""
        self._names: list[str] | None = None
        self._separator = ","

    def read(self, line: bytes) -> Values:
        """Return the numbers of a row by name. The row of names and a torn row have none."""
        text = line.decode(errors="replace").removeprefix("\ufeff")
        if self._names is None:
            self._separator = next((sign for sign in ",;\t" if sign in text), ",")
        cells = _cells_of(text, self._separator)
        has_value = any(
            cell in _ABSENT or number_of_text(self._number_in(cell)) is not None for cell in cells
        )
        if self._names is None or not has_value:
            self._names = cells
            return Values()
        if len(cells) != len(self._names):
            return Values()
        row = {
            name: self._number_in(cell)
            for name, cell in zip(self._names, cells, strict=True)
            if self._names.count(name)
            == 1  # if several columns have the same name, it is unclear which one is meant
        }
        return numbers_of(row, 1)

    def _number_in(self, cell: str) -> str:
        """Return a cell with a decimal point instead of a comma, unless commas separate columns."""
        if self._separator == "," or not has_decimal_comma(cell):
            return cell
        return cell.replace(",", ".")


def _cells_of(row: str, separator: str) -> list[str]:
    try:
        cells = next(csv.reader([row], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:  # the row is torn, or it is not a row
        cells = row.split(separator)
    return [cell.strip() for cell in cells]


def numbers_of(document: Mapping[str, Any], depth: int, prefix: str = "") -> Values:
    """Return the numbers of a document, and the words and lists that replace numbers.

    If a value has only statistics, such as `{"num": 8, "mean": 0.2, "std": 0.1}`, its mean has the
    name of the value as well.

    Example:
        >>> from workbench.training.programs.documents import numbers_of
        >>> numbers_of({"loss": {"mean": 0.2, "std": 0.1}}, 1)
        {'loss.mean': 0.2, 'loss.std': 0.1, 'loss': 0.2}
    """
    values = Values()
    for name, value in document.items():
        name = f"{prefix}{name}"
        if isinstance(value, Mapping):
            if depth > 0:
                values.merge(numbers_of(value, depth - 1, f"{name}."))
                if _MEAN in value and value.keys() <= _STATISTICS:
                    values.merge(numbers_of({name: value[_MEAN]}, 0))
            continue
        number, word = _number_or_word(value)
        if number is not None:
            values[name] = number
        elif word is not None:
            values.words[name] = word
    return values


def _number_or_word(value: Any) -> tuple[float | None, str | None]:
    """Return a value of a document as a number, or else as a word."""
    if isinstance(value, str):
        number = number_of_text(value)
        if number is not None:
            return number, None
        if _LISTED.fullmatch(value):
            return None, value.strip()[:_MAX_WORD]
        return None, word_of(value)
    judged = judge(value)
    if not isinstance(judged, NotANumber):
        return judged, None
    if value is None:
        return None, "null"
    return None, judged.what if isinstance(value, list) else None
