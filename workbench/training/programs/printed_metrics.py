"""Reads metrics in printed lines.

These notations are read, in the order of `read_line`:

- a JSON object
- a mapping of mappings at the end of a line
- pairs with a sign: `name=value` or `name: value`
- pairs with only space in between: `epoch 3 loss 0.1`
- fields: `name value | name value`
- words instead of a number

To add a notation, add a function here. Which words are names is left to `metric_names`, and which
text is a number to `printed_numbers`. Lines are bytes, because programs print anything. Output that
is not understood is ignored. It is never an error.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator
from typing import NamedTuple

from workbench.foundation.formatting import without_escapes
from workbench.training.programs.documents import Values, numbers_by_split, numbers_of, read_json
from workbench.training.programs.log_prefixes import without_log_prefix
from workbench.training.programs.metric_names import (
    COUNTED,
    SPLITS,
    Scope,
    can_be_name,
    carried_label,
    echoes_options,
    has_metric_name,
    is_count,
    is_metric,
    is_option,
    labelled,
    name_of,
    scoped,
    scopes_in,
    split_of,
    split_word,
    written_scope,
)
from workbench.training.programs.printed_numbers import (
    COUNT,
    NOT_INSIDE,
    NOT_READ,
    NUMBER,
    UNIT,
    WORD,
    WRITTEN,
    has_decimal_comma,
    in_base_unit,
    number_of,
    with_pairs,
    with_plain_values,
)
from workbench.training.programs.printed_tables import Tables

Reader = Callable[[bytes], Values]
MAX_LINE_BYTES = 65536
"""Longer lines are cut."""
_NAME = r"[^\W\d](?:[\w./@^-]|%(?=\w))*"
_PAIR = re.compile(
    rf"(?<![\w./@-])(['\"]?)(?P<name>{_NAME})\1(?P<tag>\s?[\[(][^\[\]()=:|]*[\])])?"
    rf"(?P<sign>\s*[=:]|\s+(?:is|was)(?=\s+\S*[.%]))\s*['\"]?"
    rf"(?P<number>{WRITTEN})(?P<unit>{UNIT})?{NOT_INSIDE}",
    re.IGNORECASE,
)
_OTHER_PART = (
    r"\s?[/*\u00d7]\s?\d\S*|\sof\s\d\S*|\s[eE][-+]?\d+\b"
    r"|\s(?:[kKMGB]|thousand|million|billion)(?=\s*(?:[,;|)\]]|$))"
)
"""What changes the number before it, as in 3/12, 7 of 10, 1.5 * 1000, 1.5 e-3 and 1.50 k."""
_WITH_OTHER_PART = re.compile(_OTHER_PART)
_COMPARED = re.compile(r"\s*%?\s+(?:lower|higher|better|worse|less|more|above|below)\b")
_POSITION = re.compile(r"\s*\[\s*\d+\s*/")
_NOTED = re.compile(
    rf"^\W*(?P<name>[^=:@]+?)\s*@\s*\[(?P<at>[^\[\]]+)\]\s*[=:]\s*(?P<number>{NUMBER})\s*$",
    re.IGNORECASE,
)
"""A metric with its conditions in brackets, such as `Precision @[ IoU=0.5 | area=all ] = 0.4`."""
_FIELDS = re.compile(r"[|:]|,(?!\d)")
_FIELD = re.compile(
    rf"\s*([^\W\d][\w./-]*(?: [^\W\d][\w./-]*){{0,2}})\s+({WRITTEN})({UNIT})?\s*", re.IGNORECASE
)
_FEWEST_FIELDS = 2
_OF_BEST = re.compile(r"\bbest(?: [a-z]+){0,3} ?: *(?=[^\W\d]|[{(\[]|$)[^;|]*$", re.IGNORECASE)
"""The start of a part of a line with the best values so far."""
_OF_BEST_VALUE = re.compile(r"\bbest\b.*\(\s*$", re.IGNORECASE)
"""The start of the brackets after the best value, which say when it was reached."""
_MARK = re.compile(
    r"(?<=[\d%)\]s])[\s,;]*(?:\*+|(?:<[-=]+|\u2190)[^|]*|[-=]+>\s*(?:saved|saving|best)\b[^|]*"
    r"|new best\b[^|]*|best|saved|[(\[](?:new )?(?:best|saved|improved)\b[^()\[\]]*[)\]]"
    r"|[\u2713\u2714\u2605\u2b50\u2728\U0001f3c6\U0001f4be]\ufe0f?[^|\d]*)[\s!.]*(?=\||$)",
    re.IGNORECASE,
)
"""A mark behind a number that is the best so far, or whose weights were saved."""
_DEVIATION = re.compile(
    r"(?<=[\d%])(?:\s*\u00b1|\s+\+/-)\s*\d[\d.]*(?:e[-+]?\d+)?%?(?=[\s,;|)]|$)", re.IGNORECASE
)
_PLACE = re.compile(
    rf"^\s*(?:[\[(]?\s*\d+\s?/\s?\d+\s*[\])]?|0\d+)\s+(?=[^\W\d])(?!(?:{'|'.join(COUNTED)})e?s?\b)",
    re.IGNORECASE,
)
"""How far a training is, without a word that says of what: `3/10 loss 0.5`, `003 loss 0.5`."""
_ENDS = re.compile(rb"[\r\n]+")
_CONTINUED = (b"{", b"[", b"(", b",", b":")
"""End of a line of a mapping that continues in the next line."""
_CLOSES = (b"}", b"]", b")")
_QUOTED = re.compile(rb"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_MAX_BLOCK = 500
"""Maximum number of lines of a mapping that are read as one line."""
_BARE = re.compile(rf"(?<![\w'\"])([-+]?(?:nan|inf)|{NOT_READ})(?![\w'\"])")
"""Values that Python prints within a mapping but does not read as literals."""
_AN_OBJECT = "an array or another object"
_LISTS = ("a list", "an empty list")
_MAX_UNREADABLE = 3
_NAMES_SPLIT = re.compile(rf":\s*'(?:{'|'.join(SPLITS)})'")
_SIGNS = (b"{", b"=", b":", b"|", b"nan", b"NaN", b"NAN", b"inf", b"Inf", b" NA", b" None")
_NUMBER_AT_END = re.compile(
    rb"\d(?:%|m?s|x)?[ )\]'\"]*"
    rb"(?:(?:[*<(\[\xe2\xf0]|-+>|new best|best|saved)[^\r\n]{0,40})?(?:[\r\n]|$)",
    re.IGNORECASE,
)
"""A number at the end of a line, or before a mark of the best epoch."""
_TITLES = re.compile(
    rb"loss|acc|error|score|auc|f1|ppl|perpl|mse|mae|recall|metric|train|val|test|eval",
    re.IGNORECASE,
)
"""Words of titles, and of the names of columns."""
_PROGRESS = re.compile(
    rf"(?<![\w./-])(?<!best )({'|'.join(COUNTED)}|ep)\s{{0,3}}[:#]?\s{{0,3}}[\[(]?"
    rf"\s{{0,3}}({COUNT})(?![\w.]|[:,]\d)(?:\s{{0,3}}(?:/|of\b)\s{{0,3}}{COUNT})?(?:\s?[\])])?",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(
    r"[|\u2502;\t\[\]\u2190-\u21ff\u2600-\u27bf\U0001f000-\U0001faff]"
    r"|,(?!\d)|:(?=\s|$)|(?:^|(?<=\s))[-*=>#]+(?=\s|$)|\b(?:INFO|DEBUG|WARNING)\b"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
)
_BEFORE_LAST = re.compile(rf"(?<=\w)\t(?=\s*{NUMBER}\s*(?:\t|$))", re.IGNORECASE)
"""A tab between a name and its number, rather than between pairs."""
_IN_BRACKETS = re.compile(r"\s*[\[(]([^\[\]()]*)[\])]")
"""Brackets with a position, a time, or another value."""
_NAME_PATTERN = r"[^\W\d](?:[\w./@-]*\w)?"
_SPACED_PAIR = re.compile(
    rf"\s*({_NAME_PATTERN}(?: {_NAME_PATTERN}){{0,3}})\s+({NUMBER})({UNIT}|x)?"
    r"(?![\w:/@]|,\d|\.\d|-\d)",
    re.IGNORECASE,
)
_LAST_WORDS = re.compile(r"(?:\s+[^\W\d][\w./+-]*){1,2}")
_NOISE = re.compile(
    r"(?<!\w)[a-z]\w{1,9}://\S+|\(\w{1,40}:\d+\)"
    r"|(?<![^\s\[(:])[^\s:]{1,200}\.(?:py|cc|cpp|c|h|jl|R|rs|go|java):\d+\]?"
    r"|(?<![\w.-])(?:localhost|\d+\.\d+\.\d+\.\d+"
    r"|[\w-]{1,60}(?:\.[\w-]{1,60}){0,4}\.(?:com|org|net|io|edu|local|internal)):\d+"
    r"|\b\d{4}[-/]\d\d[-/]\d\d[T ]|\b\d\d?:\d\d:\d\d(?:[.,]\d+)?\b|^Signif\. codes:.*$"
    r"|^\[LightGBM\] \[\w+\].*$"
)
"""Times, addresses and places in a source file, and lines that explain others."""
_MEAN = re.compile(rf"{NUMBER}%?\s*\(\s*(?P<mean>{NUMBER}%?)\s*\)", re.IGNORECASE)
_OF_BATCHES = re.compile(r"\[\s*\d+\s*/\s*\d+")
_FEWEST_MEANS = 2
"""Programs that print meters show so many of them at once."""
_TWO_UNITS = (
    r"(?:\d+ ?(?:d(?:ays?)?,?|h(?:ours?|rs?)?|m(?:in(?:utes?)?)?) ?){1,3}"
    r"\d+(?:\.\d+)? ?(?:h(?:ours?|rs?)?|m(?:in(?:utes?)?)?|s(?:ec(?:onds?)?)?|ms)"
)
_DURATION = re.compile(
    rf"(?:(?<![\w.,=:+-]){_TWO_UNITS}"
    r"|(?:^|(?<=[\d%|\],;]\s)|(?<=[\d%|\],;]\s\s))\d+(?:\.\d+)?(?:ms|s|sec|min|m|h))"
    r"(?![\w./])(?![^()\[\]]*[)\]])"
)
"""A duration that is no value of a name, such as `3m12s`, and `12.3s` behind another number."""
_TOOK = re.compile(
    r"\(\s*(?:(?:in|took|time|elapsed|after|eta)\b[ :=]*)?(?:\d+ days?,? )?"
    rf"(?:{_TWO_UNITS}|\d+(?::\d\d){{1,2}}(?:\.\d+)?)\s*\)",
    re.IGNORECASE,
)
"""A duration in brackets of its own, such as `(took 1:23:45)`."""
_OF_MODEL = re.compile(
    r"\s+(?:of (?:the|this|our) (?:\w+ )?(?:model|network|classifier|regressor|net|agent|policy)"
    r"|so far)\b",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"\s*:?\s*\d+%\|[^|]*\|\s*[\d.]+\w?/[\d.?]+\w?\s*(?:\[[^,\]]*(?:,\s*[^,\]=]*(?:it/s|s/it|\w/s|s/\w+))?)?"
)
"""A progress bar of tqdm, up to the values at its end."""
_OPENED = re.compile(r"[({](?=\s*['\"]?[\w.]+['\"]?\s*[=:])")
_TITLE_OF_CALL = re.compile(r"(?:[^\W\d][\w.']* ?){1,2}\s?[:=]?\s?$")
"""The words in front of a bracket."""
_OPTIONS_LINE = re.compile(r"^\W*(?P<title>(?:[\w']+ ){0,3}[\w']+)\s*[:=](?=\s)")
_NUM_RECENT, _NUM_KINDS, _MAX_HEAD = 20, 2, 60
_ROUNDED = 5e-3
"""Values that are as close as this may be the same, printed with different precision."""
_CLOSING = {"(": ")", "{": "}"}
_USES = re.compile(r"\b(?:using|use|with|trying|running|loaded|got)\W*$", re.IGNORECASE)
"""Words in front of options that a program has read."""
_GIVEN = re.compile(r"([\w./-]+)['\"]?\s*[=:]")
_MAX_CALL = 4000
"""How many characters of a call are looked at. A line may have very many brackets."""


def may_have_metrics(data: bytes) -> bool:
    """Return whether `read_line` may find something in a text. This is a quick check."""
    return (
        any(sign in data for sign in _SIGNS)
        or _NUMBER_AT_END.search(data) is not None
        or _TITLES.search(data) is not None
    )


class Lines:
    """Cuts a stream of bytes into lines. Carriage returns of progress bars also end lines.

    The traceback of a Python program is skipped, because it shows source and no metrics.
    """

    def __init__(self, is_of_interest: Callable[[bytes], bool] | None = None) -> None:
        """Start before the first byte.

        Args:
            is_of_interest: Returns whether a text has lines of interest. None means that all lines
                are of interest.
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
        if is_skipped:  # a program may print gigabytes of other text
            self._rest = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :][:MAX_LINE_BYTES]
            return []
        *lines, self._rest = _ENDS.split(data)
        self._rest = self._rest[:MAX_LINE_BYTES]
        kept = [line for line in lines if line and not self._is_traceback(line)]
        if not self._block and b"{" not in data:
            return kept
        return [whole for line in kept for whole in self._with_blocks(line)]

    def _with_blocks(self, line: bytes) -> list[bytes]:
        """Return the lines that can be read now.

        A mapping that is printed on several lines becomes one line.
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
        if self._num_open > 0:
            return block
        return [b" ".join(line.strip() for line in block)]

    def _is_traceback(self, line: bytes) -> bool:
        if line.startswith(b"Traceback (most recent call last)"):
            self._in_traceback = True
        elif not line[:1].isspace():
            self._in_traceback = False
        return self._in_traceback

    def end(self) -> list[bytes]:
        """Return the last line, which may be incomplete."""
        rest, self._rest = self._rest, b""
        lines: list[bytes] = []
        if rest:
            lines = [rest] if self._is_of_interest is None else self._with_blocks(rest)
        block, self._block = self._block, []
        return [*lines, *block]


def _num_open(text: bytes) -> int:
    """Return how many brackets of a text are not closed. Brackets in quotes do not count."""
    bare = _QUOTED.sub(b"", text)
    return sum(map(bare.count, (b"{", b"[", b"("))) - sum(map(bare.count, _CLOSES))


def read_line(line: bytes, metrics: Collection[str] = ()) -> Values:
    """Return the metrics of one printed line, without the lines before it.

    Args:
        line: The line.
        metrics: Further names of metrics, such as the objective.

    Example:
        >>> from workbench.training.programs.printed_metrics import read_line
        >>> read_line(b"Epoch 3: loss=0.25 - val_acc: 98.5%")
        {'Epoch': 3.0, 'loss': 0.25, 'val_acc': 98.5}
        >>> read_line(b"step 20: train loss 1.5, val loss 1.75")
        {'step': 20.0, 'train_loss': 1.5, 'val_loss': 1.75}
    """
    return PrintedMetrics(metrics).read(line)


class PrintedMetrics:
    """Reads the metrics in the lines of a stream, in their order.

    Titles such as `Validation:` and the names of columns belong to the numbers below them.
    """

    def __init__(self, metrics: Collection[str] = ()) -> None:
        """Start before the first line.

        Args:
            metrics: Further names of metrics, such as the objective.
        """
        self._metrics = frozenset(metrics)
        self._tables = Tables()
        self._section = Section()
        self._lists = _Lists(self._metrics)
        self.sources: dict[str, Source] = {}
        """The lines that each of the given metrics was read from."""
        self.unread_row: tuple[str, str] | None = None
        """The first row of a table that was not read below the name of a given metric, and that
        name.
        """

    def read(self, line: bytes) -> Values:
        """Return the metrics of a line: of a JSON object, of a table, or pairs of name and value.

        Words before a name belong to it and are joined by underscores. `3,3` means 3.3 if it is the
        value of a metric, or in a line with such a value. Elsewhere it is a list, as in
        `kernel=3,3`. If a library prints one number in its own form, such as
        `tensor(0.25, device='cuda:0')`, the number is read. If a metric has a word instead of a
        number, the word is kept. If one of the given metrics is only printed as a list, such as
        the losses of all epochs, it is the last number of that list.

        Args:
            line: The next line.
        """
        if not (may_have_metrics(line) or self._lists.is_open):
            return Values()
        text = _without_marks(without_log_prefix(_text_of(line)))
        values = self._lists.read(text, self._read(text))
        lost = self._metrics & (self._tables.unread or set())
        if lost and not values and self.unread_row is None:
            self.unread_row = min(lost), text.strip()
        for name in self._metrics & values.keys():
            self.sources.setdefault(name, Source()).follow(text.strip(), values[name])
        return values

    def _read(self, text: str) -> Values:
        stripped = text.strip()
        if stripped.startswith("{"):
            values = self._read_mapping(stripped)
            if values is not None:
                return self._section.apply(text, values)
        if (values := self._tables.read(text)) is not None:
            return self._section.apply(text, values, is_row=True)
        # Behind a bar, what follows is a pair like any other.
        without_place = _PLACE.sub(lambda match: " " * (len(match[0]) - 1) + "|", stripped)
        values = _read_pairs(without_place, self._metrics)
        if values.is_empty:
            self._section.follow(text)
            return values
        if all(map(is_count, values)) and self._section.begins_at(text):
            return values
        return self._section.apply(text, values)

    def _read_mapping(self, text: str) -> Values | None:
        """Return the metrics of a printed mapping, or None if it must be read as text."""
        if not text.endswith("}"):
            return Values()  # an incomplete line of a program that was killed
        document = read_json(text.encode()) or _of_literal(text)
        kept = _without_booleans(document, self._metrics)
        return kept if document or kept.words else None


class _Lists:
    """Reads the last number of lists such as `val losses: [0.5, 0.25]`.

    An array may be printed on several lines.
    """

    def __init__(self, metrics: Collection[str]) -> None:
        self._starts = {
            name: re.compile(
                rf"(?<![\w.-])['\"]?{re.escape(name).replace('_', '[_ ]')}['\"]?\s*[=:]?\s*"
                r"(?:array\()?(?P<list>\[.*)"
            )
            for name in metrics
        }
        self._numbers: set[str] = set()
        self._name, self._text = "", ""

    @property
    def is_open(self) -> bool:
        """Whether a list goes on in the next line."""
        return bool(self._name)

    def read(self, text: str, values: Values) -> Values:
        """Return the values of a line with the last numbers of lists that replace a metric.

        Args:
            text: The line.
            values: What it has otherwise.
        """
        self._numbers |= self._starts.keys() & values.keys()
        if self.is_open:
            name, rest = self._name, f"{self._text} {text.strip()}"
        else:
            name = next((name for name in values.words if name in self._starts), "")
            start = self._starts[name].search(text) if name else None
            if start is None:
                return values
            rest = start["list"]
        self._name, self._text = "", ""
        inside, end, _ = rest[1:].partition("]")
        numbers = [word for word in re.split(r"[,\s]+", inside) if word]
        if not all(map(_IS_NUMBER.fullmatch, numbers)):
            return values
        last = float(numbers[-1]) if numbers else None
        if end and last is not None and not math.isfinite(last):
            return values
        if not end and len(rest) < MAX_LINE_BYTES:
            self._name, self._text = name, rest
        values.words.pop(name, None)  # the history of a number is no value of it
        if end and last is not None and name not in self._numbers:
            values[name] = last
        return values


_IS_NUMBER = re.compile(NUMBER, re.IGNORECASE)


def _without_marks(text: str) -> str:
    """Return a line without the marks of the best epoch, such as `*`, `<- best` and `(saved)`.

    A row of a table with such a mark would have a column too many. What follows a number as its
    deviation is also left out: `0.81 ± 0.02`.
    """
    for pattern in (_DEVIATION, _MARK):
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    return text


def _of_literal(text: str) -> Values:
    """Return the numbers of a printed dict of Python that names a part of the data.

    Other dicts are read as text, which also understands values that are no literals.
    """
    if not _NAMES_SPLIT.search(text):
        return Values()
    try:
        document = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return Values()
    return numbers_by_split(document) if isinstance(document, dict) else Values()


class Source:
    """The lines that a metric is read from. If they are of two kinds, it may be two numbers.

    Attributes:
        lines: An example of each kind of line.
        num_changes: How often a line of the other kind had another value than those before it.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self.lines: dict[str, str] = {}
        self.num_changes = 0
        self._kind = ""
        self._recent: deque[float] = deque(maxlen=_NUM_RECENT)

    def follow(self, line: str, value: float) -> None:
        """Take a line with the metric.

        Args:
            line: The line.
            value: The value in it.
        """
        kind = _kind_of(line)
        is_known = any(math.isclose(value, other, rel_tol=_ROUNDED) for other in self._recent)
        if self.lines and kind != self._kind and not is_known:
            self.num_changes += 1
        if (
            kind not in self.lines
            and len(self.lines) < _NUM_KINDS
            and not (self.lines and is_known)
        ):
            self.lines[kind] = line
        self._kind = kind
        self._recent.append(value)


def _kind_of(line: str) -> str:
    """Return the first words of a line, which say what its numbers belong to."""
    if line.startswith(("{", "|")):
        return ""
    head = _NOISE.sub(" ", line[:_MAX_HEAD])
    first = _PAIR.search(head)
    if first is not None:
        head = head[: first.start()]
    return " ".join(re.findall(r"[^\W\d_]{3,}", head)[:2]).lower()


class Section:
    """The title above some lines, such as `Validation:`, which belongs to their numbers."""

    def __init__(self) -> None:
        """Start without a title."""
        self._scope = ""
        self._is_of_options = self._is_decorated = False
        self._indent = 0
        self._is_indented: bool | None = None

    def follow(self, text: str) -> None:
        """Take a line without metrics, which may be a title.

        Args:
            text: The line, with its indentation.
        """
        indent = len(text) - len(text.lstrip())
        may_be_title = len(text) <= _MAX_TITLE and _MAY_BE_TITLE.search(text) is not None
        if may_be_title and (title := _TITLE.fullmatch(text.strip())) is not None:
            scope = _scope_of_title(title["words"], is_marked=title["begin"] or title["end"])
            is_of_options = echoes_options(title["words"]) and bool(title["begin"] or title["end"])
            if scope or is_of_options:
                self._scope, self._is_of_options, self._indent = scope, is_of_options, indent
                self._is_decorated = bool(title["begin"])
                self._is_indented = None
                return
        if self._is_indented is None:
            self._is_indented = indent > self._indent or None
        if self._has_ended(indent, is_progress=True) and re.search(r"[^\W\d]", text):
            self._end()

    def begins_at(self, text: str) -> bool:
        """Take a line that may be a title with a count, such as `Validation results, epoch: 3`.

        Args:
            text: The line, with its indentation.

        Returns:
            Whether it is one.
        """
        title = _TITLE.fullmatch(text.strip()) if len(text) <= _MAX_TITLE else None
        if title is None or _scope_of_title(title["words"], is_marked=None) == "":
            return False
        if _OF_RESULTS.search(title["words"]) is None:  # as in `Validation epoch: 3`
            return False
        self.follow(text)
        return True

    def apply(self, text: str, values: Values, *, is_row: bool = False) -> Values:
        """Return the values of a line with the title in their names, if it belongs to them.

        Args:
            text: The line, with its indentation.
            values: Its values.
            is_row: Whether it is a row of a table.
        """
        if not (self._scope or (self._is_of_options and not is_row)):
            return values
        indent = len(text) - len(text.lstrip())
        if self._is_indented is None and values:
            self._is_indented = indent > self._indent
        is_progress = any(is_count(name) for name in values)
        if self._has_ended(indent, is_progress=is_progress and not self._is_decorated):
            self._end()
            return values
        if self._is_of_options:
            if self._is_indented or not any(is_metric(name) for name in values):
                return Values()
            self._end()
            return values
        return Values(
            {scoped(name, self._scope): value for name, value in values.items()},
            {scoped(name, self._scope): word for name, word in values.words.items()},
        )

    def _has_ended(self, indent: int, *, is_progress: bool) -> bool:
        if self._is_indented is None:
            return False
        if self._is_indented:
            return indent <= self._indent
        return is_progress

    def _end(self) -> None:
        self._scope, self._is_of_options = "", False


_TITLE = re.compile(
    r"(?P<begin>[-=*#~>+\[\u2500-\u257f ]*[-=*#~>+\[\u2500-\u257f])?\s*"
    r"(?P<words>[^\W\d](?:[^:=|{}]|:(?=\s\S))*?[\w)])\s*(?P<end>:|\.\.\.|\u2026|[-=*#~<+\]\u2500-\u257f][-=*#~<+\]\u2500-\u257f:]*)?\s*"
)
_MAX_TITLE_WORDS, _MAX_TITLE = 5, 80
_OF_RESULTS = re.compile(r"\b(?:results?|metrics|scores?|performance|summary)\b", re.IGNORECASE)
_MAY_BE_TITLE = re.compile(
    r"train|val|test|eval|dev|hold|config|arg|param|option|setting|flag", re.IGNORECASE
)
_IN_PAST = re.compile(
    r"\b(?:finish\w*|complet\w*|done|start\w*|stop\w*|ended|end|sav\w*|load\w*|until|best)\b",
    re.IGNORECASE,
)
_SPLIT_WORD = re.compile(
    r"(?<![\w./-])(?:train|training|val|valid|validation|validating|test|testing|eval|evaluation|evaluating|dev"
    r"|holdout)(?![\w./-])",
    re.IGNORECASE,
)


def _scope_of_title(words: str, *, is_marked: str | None) -> str:
    """Return the part of the data in a title, or "" if it is none."""
    split = _SPLIT_WORD.search(words)
    plain = _PROGRESS.sub("", words)
    num_words = len(re.findall(r"[^\W\d]\w*", plain))
    if split is None or num_words > _MAX_TITLE_WORDS or _IN_PAST.search(words):
        return ""
    has_progress = plain != words
    if is_marked or num_words <= 2 - (not has_progress) or words.endswith(")"):
        return split[0]
    return ""


class _Pair(NamedTuple):
    """A name and a number in a line.

    Attributes:
        place: Where the name begins.
        end: Where the number ends.
        name: The name, with its words joined by underscores.
        spaced: The name, with spaces where the line has them.
        number: The number as it is written, with its unit.
        value: What it means, or None if that is unclear.
        is_signed: Whether there is a sign between both.
    """

    place: int
    end: int
    name: str
    spaced: str
    number: str
    value: float | None
    is_signed: bool = True


def _read_pairs(text: str, metrics: frozenset[str]) -> Values:
    """Return the metrics of a line with names and values."""
    text = _with_means(with_pairs(with_plain_values(text)))
    text, nested = _without_nested(text, metrics)
    if (noted := _NOTED.match(text)) is not None:
        at = re.sub(r"[^\w.:=/-]+", "_", f"{noted['name']} {noted['at'].replace('= ', '=')}").strip(
            "_"
        )
        return Values({re.sub(r"=_+", "=", at): float(noted["number"])})
    text = _BAR.sub(_after_bar, _NOISE.sub("|", _TOOK.sub("|", text)))
    text = _OF_MODEL.sub("", _DURATION.sub("|", text))
    text = _without_options(text)
    signed = list(_signed_pairs(text))
    rest = _blanked(text, signed)
    progress = _progress_of(rest)
    others = [*_fields(rest), *_spaced_pairs(rest, has_progress=bool(progress))]
    places = {pair.place for pair in signed}
    pairs = signed + [pair for pair in others if pair.place not in places]
    pairs = _without_lists(sorted(set(pairs)), metrics)
    values = _named(text, pairs, metrics, has_others=bool(progress or nested))
    if progress and (values or nested):
        values = Values(progress | values)
    values |= nested
    values.words |= nested.words
    for name, word in _words_for(text, metrics):
        if name not in values:
            values.words[name] = word
    return values


def _with_means(text: str) -> str:
    """Return a line of meters with the means so far, in brackets, instead of the last batch.

    In `Test: [78/78] Loss: 5.6 (5.7) Acc@1: 10.0 (11.2)` the accuracy is 11.2.
    """
    if _OF_BATCHES.search(text) is None or len(_MEAN.findall(text)) < _FEWEST_MEANS:
        return text
    return _MEAN.sub(lambda match: match["mean"], text)


def _after_bar(match: re.Match[str]) -> str:
    """Return what replaces a progress bar: the end of its title, or of a number."""
    return " | " if match.string[match.start() - 1 : match.start()].isdigit() else ": | "


def _named(text: str, pairs: list[_Pair], metrics: Container[str], *, has_others: bool) -> Values:
    """Return the values of pairs by their final names.

    A line that has neither a metric nor a position may be an echo of the options.
    """
    values = Values()
    for pair, name in zip(pairs, _names_of(text, pairs), strict=True):
        if pair.value is not None:
            values[name] = pair.value
    is_echo = not has_others and not any(
        is_metric(name) or is_count(name) or name in metrics for name in values
    )
    if is_echo:
        return Values({name: value for name, value in values.items() if not is_option(name)})
    return values


def _names_of(text: str, pairs: list[_Pair]) -> list[str]:
    """Return the names of pairs, with the words of the line that belong to several of them."""
    scopes = scopes_in(text)
    written = frozenset(pair.name for pair in pairs)
    words = _WordsOfLine(written)
    names: list[str] = []
    for pair in pairs:
        while scopes and scopes[0].start <= pair.place:
            words.take(scopes.pop(0))
        words.drop_before(pair.place)
        names.append(words.name_of(pair))
    return _told_apart(pairs, names)


class _WordsOfLine:
    """The words of a line that belong to the numbers after them, up to the next such words."""

    def __init__(self, written: frozenset[str]) -> None:
        """Start without words.

        Args:
            written: The names of the line as they are written.
        """
        self._written = written
        self._split: Scope | None = None
        self._label: Scope | None = None
        self._carried = ""
        self._is_of_all = False

    def take(self, scope: Scope) -> None:
        """Take the words that belong to the next numbers."""
        if scope.is_split:
            self._split, self._is_of_all = scope, True
        else:
            self._label, self._carried = scope, ""

    def drop_before(self, place: int) -> None:
        """Leave out the words whose part of the line ends before a place."""
        if self._split is not None and self._split.end <= place:
            self._split = None
        if self._label is not None and self._label.end <= place:
            self._label = None

    def name_of(self, pair: _Pair) -> str:
        """Return the name of a pair with the words that belong to it, in their order."""
        words, _, bare = pair.spaced.rpartition(" ")
        if own := carried_label(words, bare):
            self._carried = own
        name = pair.name
        if not own:
            name = labelled(name, self._carried)
        is_inner = self._split is None or (
            self._label is not None and self._label.begin > self._split.begin
        )
        if is_inner:
            name = self._with_split(self._with_label(name), pair)
        else:
            name = self._with_label(self._with_split(name, pair))
        if split_of(pair.name) and is_metric(pair.name):
            self._follow(pair, written_scope(pair.spaced))
        return name

    def _with_label(self, name: str) -> str:
        return labelled(name, self._label.word if self._label is not None else "")

    def _with_split(self, name: str, pair: _Pair) -> str:
        if self._split is None or not (self._is_of_all or is_metric(pair.name)):
            return name
        with_split = scoped(name, self._split.word)
        return name if with_split in self._written else with_split

    def _follow(self, pair: _Pair, split: str) -> None:
        """Take the part of the data that the name of a pair gives to the next numbers."""
        self._is_of_all = False
        if split:
            self._split = Scope(pair.place, pair.place, sys.maxsize, split, is_split=True)
        else:
            self._split = None


def _told_apart(pairs: list[_Pair], names: list[str]) -> list[str]:
    """Return names in which equal ones have the last words in front of a number before them.

    In `teacher acc1: 78 acc5: 93 student acc1: 71 acc5: 90` the words belong to both numbers.
    """
    if len(set(names)) == len(names):
        return names
    told: list[str] = []
    words = ""
    for pair, name in zip(pairs, names, strict=True):
        own = [word for word in re.split("[ _]", pair.spaced)[:-1] if not split_word(word)]
        if own and " " in pair.spaced:
            words = "_".join(own)
        other = labelled(name, words)
        is_doubtful = names.count(name) > 1 and not own and other not in names
        told.append(other if is_doubtful else name)
    return told


def _signed_pairs(text: str) -> Iterator[_Pair]:
    """Yield the pairs with a sign such as `=` between name and number."""
    begin = 0
    for match in _PAIR.finditer(text):
        bare, sign = match["name"], match["sign"].strip()
        name = name_of(text, match.start(), bare, begin=begin)
        name = _with_tag(name.rstrip("."), match["tag"])
        begin = match.end()
        if bare.lower() == split_word(bare) and _POSITION.match(text, match.end()):
            continue
        if sign not in ("=", ":") and not (is_metric(name) and not _COMPARED.match(text, begin)):
            continue
        if name == bare and _OF_BEST.search(text, 0, match.start()):
            name = f"best_{name}"
        value = None if _goes_on(match) else number_of(match["number"], is_count=is_count(bare))
        if value is not None:
            value = in_base_unit(value, match["unit"] or "", name)
        spaced = " ".join((name.removesuffix(bare).rstrip("_"), bare)).strip()
        yield _Pair(
            place=match.start("name"),
            end=match.end(),
            name=name,
            spaced=spaced,
            number=match["number"],
            value=value,
        )


def _goes_on(pair: re.Match[str]) -> bool:
    """Return whether the number of a metric is only a part of what is written."""
    return is_metric(pair["name"]) and _WITH_OTHER_PART.match(pair.string, pair.end()) is not None


def _with_tag(name: str, tag: str | None) -> str:
    """Return a name with the words in brackets after it, such as `loss (val)`."""
    words = re.findall(r"[^\W\d][\w./@-]*", tag or "")
    if not words or any(is_count(word) for word in words):
        return name
    inside = "_".join(words)
    if split_of(inside):
        return f"{inside}_{name}"
    return f"{name}_{inside}"


def _blanked(text: str, pairs: list[_Pair]) -> str:
    """Return a line with a bar instead of its pairs. What follows keeps its place."""
    for pair in pairs:
        text = f"{text[: pair.place]}|{' ' * (pair.end - pair.place - 1)}{text[pair.end :]}"
    return text


def _without_options(text: str) -> str:
    """Return a line without the options that it repeats, as in `Namespace(lr=0.1)`."""
    if (title := _OPTIONS_LINE.match(text)) is not None and _is_of_options(title["title"]):
        rest = text[title.end() :]
        has_brackets = rest.lstrip().startswith(("{", "(", "["))
        if not has_brackets and re.search(r"[\w\s][=:]", rest):
            return ""
    if "(" not in text and "{" not in text:
        return text
    place, parts = 0, []
    ends = _ends_of_brackets(text)
    while (match := _OPENED.search(text, place)) is not None:
        title = _TITLE_OF_CALL.search(text, max(place, match.start() - _MAX_TITLE), match.start())
        end = ends.get(match.start(), len(text))
        is_dropped = title is not None and _is_call_of_options(
            title[0], text[match.start() : min(end, match.start() + _MAX_CALL)]
        )
        stop = end if is_dropped else match.end()
        parts.append(text[place : match.start() if is_dropped else stop])
        place = stop + is_dropped
    return "".join((*parts, text[place:]))


def _is_call_of_options(title: str, call: str) -> bool:
    """Return whether a bracket holds options: those of a title, or of an object."""
    if _is_of_options(title):
        return True
    if call.startswith("{") and _USES.search(title) is not None:
        return not any(is_metric(match[1]) for match in _GIVEN.finditer(call))
    if not call.startswith("(") or not title.strip()[:1].isupper():
        return False
    return not any(is_metric(match[1]) for match in _GIVEN.finditer(call))


def _is_of_options(title: str) -> bool:
    return echoes_options(" ".join(title.split()[-2:]))


def _ends_of_brackets(text: str) -> dict[int, int]:
    """Return where each bracket closes, by where it opens. One that stays open has no end."""
    ends: dict[int, int] = {}
    opened: dict[str, list[int]] = {closing: [] for closing in _CLOSING.values()}
    for place, character in enumerate(text):
        if character in _CLOSING:
            opened[_CLOSING[character]].append(place)
        elif opened.get(character):
            ends[opened[character].pop()] = place
    return ends


def _progress_of(text: str) -> dict[str, float]:
    """Return where the program is, such as its epoch."""
    return {
        match[1]: float(match[2].replace(",", ""))
        for match in _PROGRESS.finditer(text)
        if not _OF_BEST_VALUE.search(text, 0, match.start())
    }


def _without_nested(text: str, metrics: Container[str]) -> tuple[str, Values]:
    """Return a line without a mapping of mappings at its end, and the values of that mapping.

    The names have dots.
    """
    start = text.find("{")
    if start < 0 or text.count("{") < 2 or not text.endswith("}"):
        return text, Values()
    written = text[start:]
    try:
        document = json.loads(written)
    except (ValueError, RecursionError):
        try:
            document = ast.literal_eval(_BARE.sub(r"'\1'", written))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return text, Values()
    if not isinstance(document, dict):
        return text, Values()
    title = _TITLE_OF_CALL.search(text, max(0, start - _MAX_TITLE), start)
    if title is not None and _is_call_of_options(title[0], written[:_MAX_CALL]):
        return text[:start], Values()
    return text[:start], _without_booleans(numbers_by_split(document), metrics)


def _without_lists(pairs: list[_Pair], metrics: Container[str]) -> list[_Pair]:
    """Return the pairs that count. Decimal commas only count if a metric also has one."""
    doubtful = [pair.name for pair in pairs if has_decimal_comma(pair.number)]
    if not doubtful or any(name in metrics or is_metric(name) for name in doubtful):
        return pairs
    return [pair for pair in pairs if not has_decimal_comma(pair.number)]


def _spaced_pairs(text: str, *, has_progress: bool) -> list[_Pair]:
    """Return the pairs with only space in between.

    Args:
        text: A line without its pairs that have signs.
        has_progress: Whether the line says where the program is.
    """
    if not (has_metric_name(text) or _OF_SPLIT.search(text)):
        return []
    text = _PROGRESS.sub(lambda match: "|" + " " * (len(match[0]) - 1), text)
    text = _BEFORE_LAST.sub(" ", text)
    kept: list[_Pair] = []
    place = 0
    for separator in [*_SEPARATOR.finditer(text), None]:
        end = len(text) if separator is None else separator.start()
        has_more = separator is not None and separator[0] in (":", "|")
        pairs = _spaced_pairs_of(text[place:end], place, has_more=has_more)
        if any(_may_be_metric(pair, has_progress=has_progress) for pair in pairs):
            kept += pairs
        place = end if separator is None else separator.end()
    return kept


_OF_SPLIT = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(SPLITS)})[_/]\w[\w./-]*\s+[-+]?\d*\.\d", re.IGNORECASE
)
"""A name that begins with a part of the data, before a fraction: `eval_R_avg 12.5`."""


def _may_be_metric(pair: _Pair, *, has_progress: bool) -> bool:
    """Return whether a pair of a line without signs is a metric rather than words of prose."""
    if has_metric_name(pair.name):
        return has_progress or not _is_whole(pair.number)
    return _OF_SPLIT.match(f"{pair.name} {pair.number}") is not None and not is_option(pair.name)


def _is_whole(number: str) -> bool:
    return number.lstrip("+-").isdecimal()


def _spaced_pairs_of(part: str, begin: int, *, has_more: bool) -> list[_Pair]:
    """Return the pairs of a part, or none if the part has anything else.

    Args:
        part: The part.
        begin: Where it begins in the line.
        has_more: Whether a colon or another pair follows, so that the words at the end of the part
            belong to what follows.
    """
    pairs: list[_Pair] = []
    part = part.rstrip()
    place = _after_brackets(part, 0)
    while place < len(part):
        match = _SPACED_PAIR.match(part, place)
        if match is None and has_more and _LAST_WORDS.fullmatch(part, place):
            return pairs
        if match is None or match[2].endswith("_"):
            return []
        words, is_apart = match[1].split(" "), match.start(2) - match.end(1) > 2
        if not can_be_name(words, is_apart=is_apart):
            return []
        pairs.append(_pair_of(match, "_".join(words), begin))
        place = _after_brackets(part, match.end())
    return pairs


def _pair_of(match: re.Match[str], name: str, begin: int) -> _Pair:
    unit = match[3] or ""
    value = number_of(match[2], is_count=is_count(name))
    if value is not None:
        value = in_base_unit(value, unit, name)
    number = match[2] + ("%" if "%" in unit else "")
    place, end = begin + match.start(1), begin + match.end()
    return _Pair(
        place=place,
        end=end,
        name=name,
        spaced=match[1],
        number=number,
        value=value,
        is_signed=False,
    )


def _after_brackets(part: str, place: int) -> int:
    while (match := _IN_BRACKETS.match(part, place)) and not has_metric_name(match[1]):
        place = match.end()
    return place


def _fields(text: str) -> list[_Pair]:
    """Return names and values with only space between them, in lines of several fields."""
    if "," not in text and "|" not in text:
        return []
    pairs, place = [], 0
    for separator in [*_FIELDS.finditer(text), None]:
        end = len(text) if separator is None else separator.start()
        match = _FIELD.fullmatch(text[place:end])
        if match is not None and can_be_name(match[1].split(" ")):
            pairs.append(_pair_of(match, match[1].replace(" ", "_"), place))
        place = end if separator is None else separator.end()
    if len(pairs) < _FEWEST_FIELDS:
        return []
    return pairs


def _words_for(text: str, metrics: frozenset[str]) -> list[tuple[str, str]]:
    """Return the metrics that have something other than a number, each with its word."""
    if not any(name in text or name.replace("_", " ") in text for name in metrics):
        return []
    text = _PAIR.sub(_if_unread, text)
    words: list[tuple[str, str]] = []
    for match in _word_pattern(metrics).finditer(text):
        name = name_of(text, match.start("name"), match["name"])
        if name not in metrics:
            name = name.replace(" ", "_")
        word = match["signed"] or match["bare"]
        is_history = match[1] and word.startswith("[")  # such as {'loss': [0.5, 0.25]}
        if name in metrics and not is_history:
            words.append((name, _AN_OBJECT if NOT_READ in word else word.rstrip(",")))
    return words


def _if_unread(pair: re.Match[str]) -> str:
    is_unread = number_of(pair["number"]) is None or _goes_on(pair)
    return pair[0] if is_unread else "|"


@functools.lru_cache(maxsize=8)
def _word_pattern(metrics: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name).replace("_", "[_ ]") for name in sorted(metrics))
    unread = (  # such as (0.5+0.1j), 1,234 or <0.001
        rf"[\[(]*(?:{WORD}(?!\w)|(?:[<>]=?|[\u2264\u2265])?\s?[-+]?(?:nan|inf|\.?\d)[^\s|;}}]*"
        rf"(?:{_OTHER_PART})?)"
    )
    return re.compile(
        rf"(?<![\w./-])(['\"]?)(?P<name>{names})\1"
        rf"(?:\s*[=:]\s*['\"]?(?P<signed>{unread})|\s+(?P<bare>{WORD})(?!\w))",
    )


def _without_booleans(values: Values, metrics: Container[str]) -> Values:
    """Return the values of a printed mapping, with booleans as words.

    A list does not become a word, because many programs print the history of a metric at the end.
    """
    booleans = {name: str(value) for name, value in values.items() if isinstance(value, bool)}
    words = values.words | booleans
    return Values(
        {name: value for name, value in values.items() if name not in booleans},
        {name: word for name, word in words.items() if name in metrics and word not in _LISTS},
    )


def pattern_reader(patterns: tuple[str, ...]) -> Reader:
    """Return a function that reads the named groups of the patterns that a line matches.

    Args:
        patterns: Valid regular expressions.
    """
    compiled = [re.compile(pattern) for pattern in patterns]

    def read(line: bytes) -> Values:
        text = _text_of(line).strip()
        values = Values()
        for pattern in compiled:
            if (match := pattern.search(text)) is None:
                continue
            numbers = numbers_of(match.groupdict(), 1)
            # A pattern may match only a part of a library's form of a number.
            if len(numbers) < len(match.groupdict()):
                match = pattern.search(with_plain_values(text))
                if match is not None:
                    numbers = numbers_of(match.groupdict(), 1)
            values.merge(numbers)
        return values

    return read


def _text_of(line: bytes) -> str:
    """Return a line without color sequences, or "" if it is not text."""
    text = line[:MAX_LINE_BYTES].decode(errors="replace")
    if text.count("\ufffd") > _MAX_UNREADABLE:
        return ""
    return without_escapes(text).rstrip()
