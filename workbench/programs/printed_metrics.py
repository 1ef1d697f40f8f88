"""Metrics in lines of text: `name=value`, `name: value`, `name value | name value`, JSON, CSV, and patterns.

Lines are bytes, because programs print anything: what is not understood is not a metric, never an error.
Pairs with nothing but space in between are left to `spaced_pairs`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from workbench.formatting import without_escapes
from workbench.programs.spaced_pairs import is_count, is_metric, name_with_qualifiers, read_spaced
from workbench.programs.written_numbers import NOT_INSIDE, WRITTEN, has_decimal_comma, number_of

Values = dict[str, float]
Reader = Callable[[bytes], Values]

MAX_LINE_BYTES = 65536
"""The most that is kept of a line."""
_PAIR = re.compile(
    rf"(?<![\w./-])(['\"]?)([^\W\d][\w./-]*)\1\s*[=:]\s*['\"]?({WRITTEN})(?:%|ms|s|x)?{NOT_INSIDE}",
    re.IGNORECASE,
)
_FIELDS = re.compile(r"[|:]|,(?!\d)")
_FIELD = re.compile(
    rf"\s*([^\W\d][\w./-]*(?: [^\W\d][\w./-]*)?)\s+({WRITTEN})(?:%|ms|s|x)?\s*", re.IGNORECASE
)
_FEWEST_FIELDS = 2
_ENDS = re.compile(rb"[\r\n]+")
_MAX_DEPTH = 4
_MAX_UNREADABLE = 3
_SIGNS = (b"=", b":", b"|", b"nan", b"NaN", b"inf")
_NUMBER_AT_END = re.compile(rb"\d(?:%|m?s|x)?[ )\]]*(?:[\r\n]|$)")


def may_have_metrics(data: bytes) -> bool:
    """Return whether `read_line` may find something in the lines of a text, which is quickly checked."""
    return any(sign in data for sign in _SIGNS) or _NUMBER_AT_END.search(data) is not None


class Lines:
    """Cuts a stream of bytes into lines; carriage returns of progress bars end lines, too.

    The traceback of a Python program is left out: it shows source, not metrics.
    """

    def __init__(self, is_of_interest: Callable[[bytes], bool] | None = None) -> None:
        """Begin before the first byte.

        Args:
            is_of_interest: Returns whether some text has lines of interest; None where all lines are.
        """
        self._rest = b""
        self._is_of_interest = is_of_interest
        self._in_traceback = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        if b"\n" not in data and b"\r" not in data:
            self._rest = (self._rest + data)[:MAX_LINE_BYTES]
            return []
        data = self._rest + data
        if self._is_of_interest is not None and not self._is_of_interest(data):  # gigabytes of other text
            self._rest = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :][:MAX_LINE_BYTES]
            return []
        *lines, self._rest = _ENDS.split(data)
        self._rest = self._rest[:MAX_LINE_BYTES]
        return [line for line in lines if line and not self._is_traceback(line)]

    def _is_traceback(self, line: bytes) -> bool:
        if line.startswith(b"Traceback (most recent call last)"):
            self._in_traceback = True
        elif not line[:1].isspace():
            self._in_traceback = False
        return self._in_traceback

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def read_line(line: bytes, metrics: Container[str] = ()) -> Values:
    """Return the metrics of a printed line: of a JSON object, or of pairs of name and value.

    Names of two words, where only a space stands before the value, are joined by an underscore; before a sign
    they are where the first is a word such as `train` or `best`. `3,3` is 3.3 as the value of a metric, and
    beside such a one; elsewhere it is a list, as in `kernel=3,3`.

    Args:
        line: The line.
        metrics: Names that are metrics beside those of usual ones, such as that of the objective.

    Example:
        >>> from workbench.programs.printed_metrics import read_line
        >>> read_line(b"Epoch 3: loss=0.25 - val_acc: 98.5%")
        {'Epoch': 3.0, 'loss': 0.25, 'val_acc': 98.5}
        >>> read_line(b"step 20: train loss 1.5, val loss 1.75")
        {'step': 20.0, 'train_loss': 1.5, 'val_loss': 1.75}
    """
    if not may_have_metrics(line):
        return {}
    text = _text_of(line)
    if text.startswith("{"):
        if not text.endswith("}"):
            return {}  # half a line, of a program that was killed
        if found := read_json(line):
            return found
    matches = list(_PAIR.finditer(text))
    written = [(name_with_qualifiers(text, match.start(), match[2]), match[2], match[3]) for match in matches]
    written = _without_lists(written, metrics)
    pairs = {
        name: value
        for name, bare, number in written
        if (value := number_of(number, is_count=is_count(bare))) is not None
    }
    spaced = read_spaced(_PAIR.sub("|", text) if matches else text, has_others=bool(pairs))
    return _fields(text, metrics) | spaced | pairs


def _without_lists(
    written: list[tuple[str, str, str]], metrics: Container[str]
) -> list[tuple[str, str, str]]:  # fmt: skip
    """Return names and numbers without those with a decimal comma, unless a metric has one, too."""
    doubtful = [name for name, _, number in written if has_decimal_comma(number)]
    if not doubtful or any(name in metrics or is_metric(name) for name in doubtful):
        return written
    return [each for each in written if not has_decimal_comma(each[2])]


def _fields(text: str, metrics: Container[str]) -> Values:
    """Return names and values with only space between them, where a line has several such fields."""
    if "," not in text and "|" not in text:
        return {}
    matches = [match for field in _FIELDS.split(text) if (match := _FIELD.fullmatch(field))]
    if len(matches) < _FEWEST_FIELDS:
        return {}
    written = [(match[1].replace(" ", "_"), match[1], match[2]) for match in matches]
    return {
        name: value
        for name, _, number in _without_lists(written, metrics)
        if (value := number_of(number)) is not None
    }


def read_json(line: bytes) -> Values:
    """Return the numbers of a JSON object by name; those of nested objects by names with dots."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return dict(_numbers(found, "", _MAX_DEPTH)) if isinstance(found, dict) else {}


def pattern_reader(patterns: tuple[str, ...]) -> Reader:
    """Return a function that reads the named groups of the patterns that a line matches.

    Args:
        patterns: Valid regular expressions.
    """
    compiled = [re.compile(pattern) for pattern in patterns]

    def read(line: bytes) -> Values:
        text = _text_of(line)
        found: Values = {}
        for pattern in compiled:
            if (match := pattern.search(text)) is not None:
                found |= dict(_numbers(match.groupdict(), "", 1))
        return found

    return read


class Rows:
    """Reads rows of CSV, of which the first names the columns."""

    def __init__(self) -> None:
        """Begin before the names."""
        self._names: list[str] | None = None

    def read(self, line: bytes) -> Values:
        """Return the numbers of a row by name; none of the row of names, or of one that is torn."""
        cells = [cell.strip().strip('"') for cell in line.decode(errors="replace").split(",")]
        if self._names is None or not any(map(_is_number, cells)):
            self._names = cells
            return {}
        if len(cells) != len(self._names):
            return {}
        return {name: float(cell) for name, cell in zip(self._names, cells, strict=True) if _is_number(cell)}


def _text_of(line: bytes) -> str:
    """Return a line without the sequences that color it; nothing where it is not text."""
    text = line[:MAX_LINE_BYTES].decode(errors="replace")
    return "" if text.count("\ufffd") > _MAX_UNREADABLE else without_escapes(text).strip()


def _numbers(found: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, str):
            value = float(value) if _is_number(value) else None
        if isinstance(value, Mapping) and depth > 0:
            yield from _numbers(value, f"{prefix}{name}.", depth - 1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                yield f"{prefix}{name}", float(value)
            except OverflowError:
                yield f"{prefix}{name}", math.inf


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
