"""Metrics in lines of text.

`name=value`, `name: value`, `name value | name value`, JSON, CSV, and patterns.

Lines are bytes, because programs print anything: what is not understood is not a metric, never an
error. Pairs with nothing but space in between are left to `spaced_pairs`.
"""

from __future__ import annotations

import ast
import csv
import functools
import json
import re
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any

from workbench.foundation.formatting import without_escapes
from workbench.foundation.reported_values import NotANumber, judge
from workbench.training.programs.printed_values import (
    NOT_READ,
    WORD,
    number_of_text,
    with_plain_values,
    word_of,
)
from workbench.training.programs.spaced_pairs import (
    is_count,
    is_metric,
    label_before,
    name_with_qualifiers,
    read_spaced,
    training_scope,
    with_training_named,
)
from workbench.training.programs.written_numbers import (
    NOT_INSIDE,
    NUMBER,
    WRITTEN,
    has_decimal_comma,
    number_of,
)


class Values(dict[str, float]):
    """Numbers by name, as a program wrote them together; a boolean that it wrote as such stays one.

    Attributes:
        words: What stands in the place of a number, such as None, by name.
    """

    def __init__(self, numbers: Mapping[str, float] | None = None) -> None:
        """Begin with some numbers, and no words."""
        super().__init__(numbers or {})
        self.words: dict[str, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are neither numbers nor words."""
        return not self and not self.words


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
_CHANGE = re.compile(
    rf"(?<![\w.,])(?:{NUMBER})%?\s*(?:[-=]+>|\u2192)\s*(?=(?:{NUMBER})(?![\w.]))", re.IGNORECASE
)
"""The old value of a change."""
_OF_BEST = re.compile(r"\bbest(?: [a-z]+){0,3} ?: *(?=[^\W\d]|[{(\[]|$)[^;|]*$", re.IGNORECASE)
"""How a part of a line begins that is about the best values so far."""
_OPTUNA_BEST = re.compile(r"\bBest is trial \d+ with value:")
_ENDS = re.compile(rb"[\r\n]+")
_ABSENT = ("", "NA", "<NA>", "N/A", "None", "null", "NULL")
"""Cells of a row of CSV without a value, which are not names of columns."""
_CONTINUED = (b"{", b"[", b"(", b",", b":")
"""How a line of a mapping ends that goes on in the next one."""
_CLOSES = (b"}", b"]", b")")
_QUOTED = re.compile(rb"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_MAX_BLOCK = 500
"""The most lines of a mapping that are read as one."""
_BARE = re.compile(rf"(?<![\w'\"])([-+]?(?:nan|inf)|{NOT_READ})(?![\w'\"])")
"""What Python prints within a mapping, and does not read as a literal."""
_AN_OBJECT = "an array or another object"
_MAX_DEPTH = 4
_MAX_WORD = 80
_LISTS = ("a list", "an empty list")
_LISTED = re.compile(r"\s*[\[(].*\d.*[\])]\s*", re.DOTALL)
"""Several numbers in the place of one, as text."""
_MAX_UNREADABLE = 3
_SIGNS = (b"{", b"=", b":", b"|", b"nan", b"NaN", b"NAN", b"inf", b"Inf", b" NA", b" None")
_NUMBER_AT_END = re.compile(rb"\d(?:%|m?s|x)?[ )\]'\"]*(?:[\r\n]|$)")


def may_have_metrics(data: bytes) -> bool:
    """Return whether `read_line` may find something in the lines of a text, which is quickly
    checked.
    """
    return any(sign in data for sign in _SIGNS) or _NUMBER_AT_END.search(data) is not None


class Lines:
    """Cuts a stream of bytes into lines; carriage returns of progress bars end lines, too.

    The traceback of a Python program is left out: it shows source, not metrics.
    """

    def __init__(self, is_of_interest: Callable[[bytes], bool] | None = None) -> None:
        """Begin before the first byte.

        Args:
            is_of_interest: Returns whether some text has lines of interest; None where all lines
                are.
        """
        self._rest = b""
        self._is_of_interest = is_of_interest
        self._in_traceback = False
        self._block: list[bytes] = []
        self._num_open = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        if b"\n" not in data and b"\r" not in data:
            self._rest = (self._rest + data)[:MAX_LINE_BYTES]
            return []
        data = self._rest + data
        is_skipped = self._is_of_interest is not None and not (
            self._block or self._is_of_interest(data)
        )
        if is_skipped:  # gigabytes of other text
            self._rest = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :][:MAX_LINE_BYTES]
            return []
        *lines, self._rest = _ENDS.split(data)
        self._rest = self._rest[:MAX_LINE_BYTES]
        kept = [line for line in lines if line and not self._is_traceback(line)]
        return (
            [line for each in kept for line in self._with_blocks(each)]
            if self._block or b"{" in data
            else kept
        )

    def _with_blocks(self, line: bytes) -> list[bytes]:
        """Return the lines that can be read now.

        A mapping that is printed on several lines is one line.
        """
        if not self._block and not (line.lstrip()[:1] == b"{" and _num_open(line) > 0):
            return [line]
        if self._block and not (
            self._block[-1].rstrip()[-1:] in _CONTINUED or line.lstrip()[:1] in _CLOSES
        ):
            block, self._block = self._block, []
            return [*block, *self._with_blocks(line)]
        self._num_open = _num_open(line) + (self._num_open if self._block else 0)
        self._block.append(line)
        if self._num_open > 0 and len(self._block) < _MAX_BLOCK:
            return []
        block, self._block = self._block, []
        return block if self._num_open > 0 else [b" ".join(each.strip() for each in block)]

    def _is_traceback(self, line: bytes) -> bool:
        if line.startswith(b"Traceback (most recent call last)"):
            self._in_traceback = True
        elif not line[:1].isspace():
            self._in_traceback = False
        return self._in_traceback

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its end."""
        rest, self._rest = self._rest, b""
        lines: list[bytes] = []
        if rest:
            lines = [rest] if self._is_of_interest is None else self._with_blocks(rest)
        block, self._block = self._block, []
        return [*lines, *block]


def _num_open(text: bytes) -> int:
    """Return how many brackets of a text are not closed, without those in quotes."""
    bare = _QUOTED.sub(b"", text)
    return sum(map(bare.count, (b"{", b"[", b"("))) - sum(map(bare.count, _CLOSES))


def read_line(line: bytes, metrics: Collection[str] = ()) -> Values:
    """Return the metrics of a printed line: of a JSON object, or of pairs of name and value.

    Names of two words, where only a space stands before the value, are joined by an underscore;
    before a sign they are where the first is a word such as `train` or `best`. `3,3` is 3.3 as the
    value of a metric, and beside such a one; elsewhere it is a list, as in `kernel=3,3`. What a
    library prints as one number is that number, as in `tensor(0.25, device='cuda:0')`. A word in
    the place of the number of a metric is kept.

    Args:
        line: The line.
        metrics: Names that are metrics beside those of usual ones, such as that of the objective.

    Example:
        >>> from workbench.training.programs.printed_metrics import read_line
        >>> read_line(b"Epoch 3: loss=0.25 - val_acc: 98.5%")
        {'Epoch': 3.0, 'loss': 0.25, 'val_acc': 98.5}
        >>> read_line(b"step 20: train loss 1.5, val loss 1.75")
        {'step': 20.0, 'train_loss': 1.5, 'val_loss': 1.75}
    """
    if not may_have_metrics(line):
        return Values()
    text = _text_of(line)
    if text.startswith("{"):
        if not text.endswith("}"):
            return Values()  # half a line, of a program that was killed
        found = read_json(line)
        kept = _without_booleans(found, metrics)
        if found or kept.words:
            return kept
    text = _with_present_values(with_plain_values(text))
    text, nested = _without_nested(text, metrics)
    matches = list(_PAIR.finditer(text))
    training = training_scope(text)
    written = _without_lists(_named(text, matches, training), metrics)
    pairs = {
        name: value
        for name, bare, number in written
        if (value := number_of(number, is_count=is_count(bare))) is not None
    }
    spaced = read_spaced(
        _PAIR.sub("|", text) if matches else text,
        has_others=bool(pairs or nested),
        training=training,
    )
    values = Values(_fields(text, metrics, training) | spaced | pairs | nested)
    values.words = nested.words
    for name, word in _words_for(text, frozenset(metrics)):
        if name not in values:
            values.words[name] = word
    return values


def _with_present_values(text: str) -> str:
    """Return a line in which a change, such as `0.5 --> 0.4`, is its new value."""
    if ">" in text or "\u2192" in text:
        text = _CHANGE.sub("", text)
    return _OPTUNA_BEST.sub("best_value:", text) if "Best is" in text else text


def _without_nested(text: str, metrics: Container[str]) -> tuple[str, Values]:
    """Return a line without a mapping of mappings that ends it, and what that holds by names with
    dots.
    """
    start = text.find("{")
    if start < 0 or text.count("{") < 2 or not text.endswith("}"):
        return text, Values()
    written = text[start:]
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(_BARE.sub(r"'\1'", written))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return text, Values()
    if not isinstance(found, dict):
        return text, Values()
    return text[:start], _without_booleans(_numbers(found, _MAX_DEPTH), metrics)


def _named(text: str, matches: list[re.Match[str]], training: str) -> list[tuple[str, str, str]]:
    """Return the names of pairs as they count, as they are written, and their numbers.

    Where a line has several values of one name, those with a word before it take this word into
    their names.
    """
    names = [name_with_qualifiers(text, match.start(), match[2]) for match in matches]
    if "est" in text:
        names = [
            f"best_{name}" if name == match[2] and _OF_BEST.search(text, 0, match.start()) else name
            for name, match in zip(names, matches, strict=True)
        ]
    if len(set(names)) < len(names):
        labels = [label_before(text, match.start()) for match in matches]
        of_name = {
            name: {labels[place] for place, other in enumerate(names) if other == name}
            for name in names
        }
        names = [
            f"{label}_{name}" if label and name == match[2] and len(of_name[name]) > 1 else name
            for name, label, match in zip(names, labels, matches, strict=True)
        ]
    names = with_training_named(names, training)
    return [(name, match[2], match[3]) for name, match in zip(names, matches, strict=True)]


def _without_booleans(values: Values, metrics: Container[str]) -> Values:
    """Return the values of a printed mapping, where a boolean is a word.

    Not all that is logged is a metric.

    A list is no word here: many programs print the history of a metric at last.
    """
    kept = Values({name: value for name, value in values.items() if not isinstance(value, bool)})
    words = values.words | {
        name: str(value) for name, value in values.items() if isinstance(value, bool)
    }
    kept.words = {
        name: word for name, word in words.items() if name in metrics and word not in _LISTS
    }
    return kept


def _words_for(text: str, metrics: frozenset[str]) -> list[tuple[str, str]]:
    """Return the metrics that a line has something else for than a number that is read, with
    that.
    """
    if not any(name in text or name.replace("_", " ") in text for name in metrics):
        return []
    text = _PAIR.sub(lambda match: match[0] if number_of(match[3]) is None else "|", text)
    found: list[tuple[str, str]] = []
    for match in _word_pattern(metrics).finditer(text):
        name = name_with_qualifiers(text, match.start("name"), match["name"])
        name = name if name in metrics else name.replace(" ", "_")
        word = match["signed"] or match["bare"]
        is_history = match[1] and word.startswith("[")  # such as {'loss': [0.5, 0.25]}
        if name in metrics and not is_history:
            found.append((name, _AN_OBJECT if NOT_READ in word else word.rstrip(",")))
    return found


@functools.lru_cache(maxsize=8)
def _word_pattern(metrics: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name).replace("_", "[_ ]") for name in sorted(metrics))
    unread = (  # such as (0.5+0.1j), or 1,234
        rf"[\[(]*(?:{WORD}(?!\w)|[-+]?(?:nan|inf|\.?\d)[^\s|;}}]*)"
    )
    return re.compile(
        rf"(?<![\w./-])(['\"]?)(?P<name>{names})\1"
        rf"(?:\s*[=:]\s*['\"]?(?P<signed>{unread})|\s+(?P<bare>{WORD})(?!\w))",
    )


def _without_lists(
    written: list[tuple[str, str, str]], metrics: Container[str]
) -> list[tuple[str, str, str]]:
    """Return names and numbers without those with a decimal comma, unless a metric has one, too."""
    doubtful = [name for name, _, number in written if has_decimal_comma(number)]
    if not doubtful or any(name in metrics or is_metric(name) for name in doubtful):
        return written
    return [each for each in written if not has_decimal_comma(each[2])]


def _fields(text: str, metrics: Container[str], training: str) -> dict[str, float]:
    """Return names and values with only space between them, where a line has several such
    fields.
    """
    if "," not in text and "|" not in text:
        return {}
    matches = [match for field in _FIELDS.split(text) if (match := _FIELD.fullmatch(field))]
    if len(matches) < _FEWEST_FIELDS:
        return {}
    names = with_training_named([match[1].replace(" ", "_") for match in matches], training)
    written = [(name, match[1], match[2]) for name, match in zip(names, matches, strict=True)]
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
        return Values()
    return _numbers(found, _MAX_DEPTH) if isinstance(found, dict) else Values()


def pattern_reader(patterns: tuple[str, ...]) -> Reader:
    """Return a function that reads the named groups of the patterns that a line matches.

    Args:
        patterns: Valid regular expressions.
    """
    compiled = [re.compile(pattern) for pattern in patterns]

    def read(line: bytes) -> Values:
        text = _text_of(line)
        found = Values()
        for pattern in compiled:
            if (match := pattern.search(text)) is None:
                continue
            values = _numbers(match.groupdict(), 1)
            if len(values) < len(
                match.groupdict()
            ):  # it may have caught half of what a library prints
                match = pattern.search(with_plain_values(text))
                values = values if match is None else _numbers(match.groupdict(), 1)
            found |= values
            found.words |= values.words
        return found

    return read


class Rows:
    """Reads rows of CSV, of which the first names the columns.

    Commas, semicolons or tabs separate them.
    """

    def __init__(self) -> None:
        """Begin before the names."""
        self._names: list[str] | None = None
        self._separator = ","

    def read(self, line: bytes) -> Values:
        """Return the numbers of a row by name; none of the row of names, or of one that is torn."""
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
            == 1  # which of several columns of a name is meant is unknown
        }
        return _numbers(row, 1)

    def _number_in(self, cell: str) -> str:
        """Return a cell; where no comma separates the columns, it may be a decimal comma."""
        return (
            cell.replace(",", ".") if self._separator != "," and has_decimal_comma(cell) else cell
        )


def _text_of(line: bytes) -> str:
    """Return a line without the sequences that color it; nothing where it is not text."""
    text = line[:MAX_LINE_BYTES].decode(errors="replace")
    return "" if text.count("\ufffd") > _MAX_UNREADABLE else without_escapes(text).strip()


def _cells_of(row: str, separator: str) -> list[str]:
    try:
        cells = next(csv.reader([row], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:  # it is torn, or not a row
        cells = row.split(separator)
    return [cell.strip() for cell in cells]


def _numbers(found: Mapping[str, Any], depth: int, prefix: str = "") -> Values:
    """Return the numbers of a document, and the words and lists that stand in the place of one."""
    values = Values()
    for name, value in found.items():
        name = f"{prefix}{name}"
        if isinstance(value, Mapping):
            inner = _numbers(value, depth - 1, f"{name}.") if depth > 0 else Values()
            values |= inner
            values.words |= inner.words
            continue
        number, word = _number_or_word(value)
        if number is not None:
            values[name] = number
        elif word is not None:
            values.words[name] = word
    return values


def _number_or_word(value: Any) -> tuple[float | None, str | None]:
    """Return the number that a value of a document is, or what it is in the place of one."""
    if isinstance(value, str):
        number = number_of_text(value)
        listed = value.strip()[:_MAX_WORD] if number is None and _LISTED.fullmatch(value) else None
        return number, listed or (word_of(value) if number is None else None)
    judged = judge(value)
    if not isinstance(judged, NotANumber):
        return judged, None
    if value is None:
        return None, "null"
    return None, judged.what if isinstance(value, list) else None
