"""Reads metrics in tables that a program prints: names in a line, and numbers below them.

These tables are read: columns with space, tabs, bars or commas in between, boxes of names and
numbers such as those of Stable-Baselines3 and Lightning, and reports with a name in front of each
row. A table is recognised by the name of a usual metric in its first line.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from workbench.training.programs.documents import Values
from workbench.training.programs.metric_names import (
    has_metric_name,
    is_count,
    is_metric,
    is_option,
    scoped,
    split_of,
    written_scope,
)
from workbench.training.programs.printed_numbers import NUMBER

_BARS = re.compile(r"[|\u2502\u2503]")
_RULE = re.compile(
    r"[\s|+:=\u2500-\u257f_-]*(?:--|==|\u2500|\u2501|\u2550|__)[\s|+:=\u2500-\u257f_-]*"
)
_BAR_OF_PROGRESS = re.compile(r"\)?:?\s*\d+%\|.*$")
_GAP = re.compile(r"\s{2,}|\t")
_VALUE = re.compile(rf"(?P<number>{NUMBER})(?P<unit>%|m?s)?", re.IGNORECASE)
_POSITION = re.compile(r"(\d+)/\d+")
_COEFFICIENTS = re.compile(r"\b(?:estimate|std\.? err\w*|coef\w*|t.value|z.value|p.value)\b", re.I)
"""Columns of a table of a statistical model, in which each row is a coefficient."""
_TITLE = re.compile(r"(?:^|\s)metrics?$|^metric\b", re.IGNORECASE)
"""The first column of a box whose rows are metrics."""
_OF_NAMES = re.compile(r"metrics?|measure", re.IGNORECASE)
_OF_VALUES = re.compile(r"values?|scores?|results?|mean", re.IGNORECASE)
_OF_ROW = re.compile(
    r"all|total|overall|avg|mean|average|running|pending|terminated|error|done|ok", re.IGNORECASE
)
"""Words in front of a row that are no part of its names."""
_HAS_VALUE = re.compile(r"(?<!@)(?<![\w.-])[-+]?\d+(?![\w-])|[:=]\s*[-+.\d]|(?<![@\d])\d\.\d")
_LOSS = re.compile(r"(?:^|[_\W])loss$", re.IGNORECASE)
_TAG = re.compile(r"^\s*\w+: (?=\S+,\S+$)")
_FEWEST, _MAX_COLUMNS, _MAX_CELL = 2, 40, 32
_MAX_CHARS = 1000
_OF_RULE = frozenset(
    " \t|+:=-_\u2500\u2501\u2550\u250c\u251c\u2514\u250f\u2521\u2517\u2554\u2560\u255a"
)
_QUICK = re.compile(r"[,|\t\u2502\u2503]|\s\s|\w \w")


@dataclass(frozen=True)
class _Column:
    """A column: its name, and the places where it begins and ends."""

    name: str
    begin: int
    end: int

    def distance(self, other: _Column) -> int:
        """Return the number of characters between two columns. Below 0 they overlap."""
        return max(self.begin, other.begin) - min(self.end, other.end)


class Tables:
    """Follows the tables in the lines of a program."""

    def __init__(self) -> None:
        """Start outside of any table."""
        self._columns: list[_Column] = []
        self._words: list[_Column] = []
        self._kind = ""
        self._previous: list[_Column] = []
        self._prefix = ""
        self._labels: list[str] = []
        self._is_box = False
        self._is_adjacent = False
        self.unread: set[str] | None = None
        """The names of the columns above the last line, if it looks like a row but was not read."""

    def read(self, text: str) -> Values | None:
        """Return the metrics in a line of a table, or None if the line is not in a table.

        Args:
            text: A line without color sequences, with its indentation.
        """
        self.unread = None
        if len(text) > _MAX_CHARS or not _QUICK.search(text):
            self._previous = []
            return None
        if text[:1] in _OF_RULE and _RULE.fullmatch(text):
            return Values()
        cut = _BAR_OF_PROGRESS.sub("", text) if "%|" in text else text
        if not _HAS_VALUE.search(cut):
            return self._read_names(cut)
        self._previous = []
        if not self._columns and _BARS.search(cut) is None:
            return None
        kind, cells = _cells_of(cut)
        if (box := self._read_box(kind, cells)) is not None:
            return box
        if not self._columns:
            return None
        values = self._row(cut, kind, cells)
        if values is None and self._is_adjacent and _is_row(cut):
            self.unread = {_joined(column.name) for column in self._columns}
        self._is_adjacent = values is not None
        return values

    def _read_names(self, text: str) -> Values | None:
        """Read a line without numbers, which may begin a table or a part of a box."""
        kind, cells = _cells_of(text)
        if (box := self._read_box(kind, cells)) is not None:
            return box
        return self._begin(text, kind, cells)

    def _begin(self, text: str, kind: str, cells: list[_Column]) -> Values | None:
        """Begin a table, if a line without numbers has the names of its columns."""
        words = _words_of(text)
        above, self._previous = self._previous, words if _GAP.search(text.strip()) else []
        if kind == "bar" and (groups := _columns_of_groups(text)):
            kind, cells = "space", groups
        if kind == "space" and len(cells) < _FEWEST:
            kind, cells = "word", words
        if not (has_metric_name(text) and _is_header(kind, cells, text)):
            self._is_adjacent = False
            return None
        if len(above) == len(words) and kind == "space":  # names of two lines
            cells = [
                _Column(f"{up.name} {low.name}", low.begin, low.end)
                for up, low in zip(above, words, strict=True)
            ]
        self._columns, self._words, self._kind, self._prefix = cells, words, kind, ""
        self._labels = []
        self._is_box = len(cells) == _FEWEST and _TITLE.search(cells[0].name) is not None
        self._is_adjacent = True
        return Values()

    def _read_box(self, kind: str, cells: list[_Column]) -> Values | None:
        """Return the metric in a row with a name and a number, such as `| loss | 0.5 |`."""
        if len(cells) != _FEWEST or (kind != "bar" and not (self._is_box and kind == self._kind)):
            return None
        name, value = cells[0].name, cells[1].name
        if kind == "bar" and name.endswith("/") and not value:
            self._prefix = name
            return Values()
        number = _number(value)
        if number is None or _VALUE.fullmatch(name) or not name:
            return None
        if self._columns and not self._is_box and kind == self._kind:
            return None
        if self._prefix or self._is_box:
            return Values({f"{self._prefix}{_joined(name)}": number})
        if is_option(_joined(name)):
            return Values()
        return Values({_joined(name): number})

    def _row(self, text: str, kind: str, cells: list[_Column]) -> Values | None:
        """Return the numbers of a row below the names of their columns."""
        columns = self._columns
        if self._kind in ("bar", "comma", "tab"):
            if kind != self._kind or len(cells) != len(columns):
                return None
            return _named(list(zip(columns, self._with_labels_above(cells), strict=True)))
        words = _words_of(_BARS.sub(" ", text))
        numbers = [word for word in words if _VALUE.fullmatch(word.name)]
        if len(words) == len(columns):
            pairs = list(zip(columns, words, strict=True))
            return _named(pairs) if len(numbers) * 2 >= len(words) else None
        if not self._is_adjacent or len(numbers) < _FEWEST:
            return None
        if self._kind == "space" and words == numbers and len(words) > len(columns):
            above = _columns_above(numbers, self._words)
            if above:
                self._columns = above
                return _named(list(zip(above, words, strict=True)))
        return _report_row(columns, words) or _aligned(columns, words)

    def _with_labels_above(self, cells: list[_Column]) -> list[_Column]:
        """Return the cells of a row. A label that is left out is that of the row above."""
        if cells[0].name:
            self._labels = [cell.name for cell in cells if _is_word(cell)][:1]
        elif self._labels and any(_is_word(cell) for cell in cells):
            return [_Column(self._labels[0], cells[0].begin, cells[0].begin), *cells[1:]]
        return cells


def _is_header(kind: str, cells: list[_Column], text: str) -> bool:
    """Return whether cells are the names of columns."""
    names = [cell.name for cell in cells if cell.name]
    if not _FEWEST <= len(names) <= _MAX_COLUMNS or any(len(name) > _MAX_CELL for name in names):
        return False
    if (
        any(sign in text for sign in "={}?!")
        or ": " in _TAG.sub("", text)
        or _COEFFICIENTS.search(text)
    ):
        return False
    if _TITLE.search(names[0]) and len(names) == _FEWEST and kind != "word":
        return True
    metrics = [name for name in names if is_metric(_joined(name))]
    if not metrics:
        return False
    if kind == "word":  # words with one space in between may be prose
        return is_count(names[0]) or (len(metrics) >= len(names) / 2 and len(metrics) > 1)
    if kind == "comma":
        return all(re.fullmatch(r"[\w./@ -]+", name) and name.count(" ") <= 1 for name in names)
    return True


def _columns_of_groups(text: str) -> list[_Column]:
    """Return the columns of a line whose bars separate groups of them, or none.

    The first word of a group, such as that of `Val loss   acc`, belongs to all of its columns.
    """
    groups = [group for group in _split(text.strip().strip("|\u2502\u2503"), _BARS) if group.name]
    if not any(_GAP.search(group.name) for group in groups):
        return []
    columns: list[_Column] = []
    for group in groups:
        names = _split(group.name, _GAP)
        scope = written_scope(names[0].name)
        columns += [
            _Column(
                scoped(_joined(cell.name), scope), group.begin + cell.begin, group.begin + cell.end
            )
            for cell in names
        ]
    return columns


def _cells_of(text: str) -> tuple[str, list[_Column]]:
    """Return how the cells of a line are separated, and the cells."""
    stripped = text.strip()
    if _BARS.search(stripped):
        cells = _split(text, _BARS)
        if _BARS.match(stripped):
            cells = cells[1:]
        if _BARS.match(stripped[-1]):
            cells = cells[:-1]
        return "bar", cells
    if "," in stripped and not _GAP.search(stripped):
        return "comma", _split(_TAG.sub("", text), re.compile(","))
    if "\t" in stripped:
        return "tab", _split(text, re.compile(r"\t"))
    begin = len(text) - len(text.lstrip())
    cells = _split(text.rstrip()[begin:], _GAP)
    return "space", [
        _Column(cell.name, cell.begin + begin, cell.end + begin) for cell in cells if cell.name
    ]


def _split(text: str, separator: re.Pattern[str]) -> list[_Column]:
    cells, place = [], 0
    for match in [*separator.finditer(text), None]:
        end = len(text) if match is None else match.start()
        cell = text[place:end]
        begin = place + len(cell) - len(cell.lstrip())
        cells.append(_Column(cell.strip(), begin, begin + len(cell.strip())))
        place = end if match is None else match.end()
    return cells


def _words_of(text: str) -> list[_Column]:
    return [_Column(match[0], match.start(), match.end()) for match in re.finditer(r"\S+", text)]


def _number(cell: str) -> float | None:
    match = _VALUE.fullmatch(cell)
    if match is None:
        return None
    number = float(match["number"])
    if match["unit"] == "ms":
        return number / 1000
    return number


def _joined(name: str) -> str:
    return re.sub(r"\s+", "_", name.strip().rstrip("."))


def _named(pairs: list[tuple[_Column, _Column]]) -> Values | None:
    """Return the numbers of cells by the names of their columns.

    Words in the first cells say what the row is about.
    """
    measured = _measured(pairs)
    first = itertools.takewhile(lambda pair: _is_word(pair[1]), pairs)
    labels = [
        cell.name
        for column, cell in first
        if measured is None or not _OF_NAMES.fullmatch(column.name)
    ]
    label = "".join(f"{_joined(word)}_" for word in labels if not _OF_ROW.fullmatch(word))
    if measured is not None:
        name, number = measured
        return Values({_with_label(name, label): number})
    columns = [column.name for column, _ in pairs]
    values = Values()
    for column, cell in pairs:
        number = _number(cell.name)
        if number is None and is_count(column.name) and (of := _POSITION.fullmatch(cell.name)):
            number = float(of[1])
        if number is not None and column.name and columns.count(column.name) == 1:
            values[_with_label(_joined(column.name), label)] = number
    return values or None


def _measured(pairs: list[tuple[_Column, _Column]]) -> tuple[str, float] | None:
    """Return the metric of a row that has its name in one column and its value in another."""
    named = [cell.name for column, cell in pairs if _OF_NAMES.fullmatch(column.name)]
    numbers = [
        number
        for column, cell in pairs
        if _OF_VALUES.fullmatch(column.name) and (number := _number(cell.name)) is not None
    ]
    if len(named) != 1 or len(numbers) != 1 or _number(named[0]) is not None or not named[0]:
        return None
    return _joined(named[0]), numbers[0]


def _is_word(cell: _Column) -> bool:
    return (
        _number(cell.name) is None
        and not _POSITION.fullmatch(cell.name)
        and re.search(r"[^\W\d]", cell.name) is not None
    )


def _with_label(name: str, label: str) -> str:
    if not label or is_count(name):
        return name
    return f"{label}{name}"


def _report_row(columns: list[_Column], words: list[_Column]) -> Values | None:
    """Return the numbers of a row with a name in front, as in reports of scikit-learn."""
    numbers = [word for word in words if _number(word.name) is not None]
    is_labelled = len(numbers) == len(columns) + 1 and words[-len(numbers) :] == numbers
    if is_labelled and columns[0].begin > words[0].end:  # the name is a number, such as a class
        label = "" if _have_index(columns) else f"{words[0].name}_"
        return Values(
            {
                f"{label}{_joined(column.name)}": float(_number(word.name) or 0.0)
                for column, word in zip(columns, words[1:], strict=True)
            }
        )
    label_words = words[: len(words) - len(numbers)]
    if not label_words or words[len(label_words) :] != numbers:
        return None
    label = "_".join(word.name for word in label_words)
    if len(numbers) == len(columns):
        return Values(
            {
                f"{label}_{_joined(column.name)}": float(_number(word.name) or 0.0)
                for column, word in zip(columns, numbers, strict=True)
            }
        )
    if is_metric(label):
        return Values({label: float(_number(numbers[0].name) or 0.0)})
    return None


def _is_row(text: str) -> bool:
    """Return whether most words of a line are numbers."""
    words = _words_of(_BARS.sub(" ", text).replace(",", " "))
    numbers = [word for word in words if _VALUE.fullmatch(word.name)]
    return len(numbers) >= _FEWEST and len(numbers) * 2 > len(words)


def _have_index(columns: list[_Column]) -> bool:
    """Return whether a number in front of a row counts rows, rather than being a class.

    pandas prints a data frame like this. A table of classes has neither losses nor epochs.
    """
    names = [_joined(column.name) for column in columns]
    return any(is_count(name) or split_of(name) or _LOSS.search(name) for name in names)


def _columns_above(numbers: list[_Column], words: list[_Column]) -> list[_Column]:
    """Return the columns of words that end where the numbers below them end, or none.

    A column as wide as its name has one space in front of it, like the words of a name.
    """
    ends = [number.end for number in numbers]
    if not set(ends) <= {word.end for word in words} or words[-1].end != ends[-1]:
        return []
    columns, begin = [], -1
    for end in ends:
        name = [word for word in words if begin < word.end <= end]
        columns.append(_Column(" ".join(word.name for word in name), name[0].begin, end))
        begin = end
    return columns


def _aligned(columns: list[_Column], words: list[_Column]) -> Values | None:
    """Return the numbers of a row in which cells are empty, by the place of their columns."""
    values, last = Values(), -1
    for word in words:
        nearest = min(range(len(columns)), key=lambda place: columns[place].distance(word))
        if nearest <= last:
            return None
        last, number = nearest, _number(word.name)
        if number is not None:
            values[_joined(columns[nearest].name)] = number
    return values or None
