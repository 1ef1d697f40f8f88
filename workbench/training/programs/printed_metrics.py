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
import re
from collections.abc import Callable, Collection, Container
from typing import NamedTuple

from workbench.foundation.formatting import without_escapes
from workbench.training.programs.documents import MAX_DEPTH, Values, numbers_of, read_json
from workbench.training.programs.metric_names import (
    COUNTED,
    can_be_name,
    has_metric_name,
    is_count,
    is_metric,
    label_before,
    name_with_qualifiers,
    training_scope,
    with_training_named,
)
from workbench.training.programs.printed_numbers import (
    COUNT,
    NOT_INSIDE,
    NOT_READ,
    NUMBER,
    WORD,
    WRITTEN,
    has_decimal_comma,
    number_of,
    with_plain_values,
)

Reader = Callable[[bytes], Values]
MAX_LINE_BYTES = 65536
"""Longer lines are cut."""
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
"""The start of a part of a line with the best values so far."""
_OPTUNA_BEST = re.compile(r"\bBest is trial \d+ with value:")
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
_SIGNS = (b"{", b"=", b":", b"|", b"nan", b"NaN", b"NAN", b"inf", b"Inf", b" NA", b" None")
_NUMBER_AT_END = re.compile(rb"\d(?:%|m?s|x)?[ )\]'\"]*(?:[\r\n]|$)")
_PROGRESS = re.compile(
    rf"(?<![\w./-])(?<!best )({'|'.join(COUNTED)})\s{{0,3}}[:#]?\s{{0,3}}[\[(]?"
    rf"\s{{0,3}}({COUNT})(?![\w.]|[:,]\d)(?:\s{{0,3}}(?:/|of\b)\s{{0,3}}{COUNT})?(?:\s?[\])])?",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(
    r"[|;\t]|,(?!\d)|:(?=\s|$)|(?:^|(?<=\s))[-*=>#]+(?=\s|$)|\b(?:INFO|DEBUG|WARNING)\b"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
)
_IN_BRACKETS = re.compile(r"\s*[\[(][\s\d/.,:%eE+-]*(?:ms|s)?[\])]")
"""Brackets with a position, a time, or the mean of the values so far."""
_NAME_PATTERN = r"[^\W\d](?:[\w./@-]*\w)?"
_SPACED_PAIR = re.compile(
    rf"\s*({_NAME_PATTERN}(?: {_NAME_PATTERN})?)\s+({NUMBER})( ?%|ms|s|x)?(?![\w:/@]|,\d|\.\d|-\d)",
    re.IGNORECASE,
)


def may_have_metrics(data: bytes) -> bool:
    """Return whether `read_line` may find something in a text. This is a quick check."""
    return any(sign in data for sign in _SIGNS) or _NUMBER_AT_END.search(data) is not None


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
    """Return the metrics of a printed line: of a JSON object, or of pairs of name and value.

    A name of two words is joined by an underscore if only a space follows it. Before a sign, the
    first word must be one such as `train` or `best`. `3,3` means 3.3 if it is the value of a
    metric, or in a line with such a value. Elsewhere it is a list, as in `kernel=3,3`. If a library
    prints one number in its own form, such as `tensor(0.25, device='cuda:0')`, the number is read.
    If a metric has a word instead of a number, the word is kept.

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
    if not may_have_metrics(line):
        return Values()
    text = _text_of(line)
    if text.startswith("{"):
        if not text.endswith("}"):
            return Values()  # an incomplete line of a program that was killed
        document = read_json(line)
        kept = _without_booleans(document, metrics)
        if document or kept.words:
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
    values = Values(_fields(text, metrics, training) | spaced | pairs | nested, nested.words)
    for name, word in _words_for(text, frozenset(metrics)):
        if name not in values:
            values.words[name] = word
    return values


def _with_present_values(text: str) -> str:
    """Return a line in which each change, such as `0.5 --> 0.4`, is replaced by its new value."""
    if ">" in text or "\u2192" in text:
        text = _CHANGE.sub("", text)
    if "Best is" in text:
        text = _OPTUNA_BEST.sub("best_value:", text)
    return text


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
    return text[:start], _without_booleans(numbers_of(document, MAX_DEPTH), metrics)


def _named(text: str, matches: list[re.Match[str]], training: str) -> list[tuple[str, str, str]]:
    """Return the final names of pairs, their written names, and their numbers.

    If a line has several values of one name, the word before the name becomes part of it.
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


def _without_lists(
    written: list[tuple[str, str, str]], metrics: Container[str]
) -> list[tuple[str, str, str]]:
    """Return names and numbers. Decimal commas only count if a metric also has one."""
    doubtful = [name for name, _, number in written if has_decimal_comma(number)]
    if not doubtful or any(name in metrics or is_metric(name) for name in doubtful):
        return written
    return [named for named in written if not has_decimal_comma(named[2])]


class _SpacedPair(NamedTuple):
    name: str
    value: float
    is_whole: bool
    """Whether the number is written as a whole number, like a count."""


def read_spaced(text: str, *, has_others: bool, training: str = "") -> dict[str, float]:
    """Return the pairs with only space in between, and the progress.

    Args:
        text: A line without its pairs that have signs.
        has_others: Whether the line has pairs with signs, to which the progress belongs.
        training: The result of `training_scope` for the line.

    Example:
        >>> from workbench.training.programs.printed_metrics import read_spaced
        >>> read_spaced("Epoch [3/10] loss 0.25 acc 98", has_others=False)
        {'Epoch': 3.0, 'loss': 0.25, 'acc': 98.0}
        >>> read_spaced("step 3 of 10, loaded 500 images in 3 s", has_others=False)
        {}
    """
    has_name = has_metric_name(text)
    if not (has_name or has_others):
        return {}
    progress = {match[1]: float(match[2].replace(",", "")) for match in _PROGRESS.finditer(text)}
    kept: list[_SpacedPair] = []
    if has_name:
        for part in _SEPARATOR.split(_PROGRESS.sub("|", text)):
            pairs = _spaced_pairs_of(part)
            if any(
                has_metric_name(pair.name) and (progress or not pair.is_whole) for pair in pairs
            ):
                kept += pairs
    names = with_training_named([pair.name for pair in kept], training)
    values = {name: pair.value for name, pair in zip(names, kept, strict=True)}
    if not values and not has_others:
        return {}
    return progress | values


def _spaced_pairs_of(part: str) -> list[_SpacedPair]:
    """Return the pairs of a part, or none if the part has anything else."""
    pairs: list[_SpacedPair] = []
    part = part.rstrip()
    place = _after_brackets(part, 0)
    while place < len(part):
        match = _SPACED_PAIR.match(part, place)
        if match is None or not can_be_name(words := match[1].split(" ")) or match[2].endswith("_"):
            return []
        is_whole = match[2].lstrip("+-").isdecimal() and "%" not in (match[3] or "")
        pairs.append(_SpacedPair("_".join(words), float(match[2]), is_whole))
        place = _after_brackets(part, match.end())
    return pairs


def _after_brackets(part: str, place: int) -> int:
    while match := _IN_BRACKETS.match(part, place):
        place = match.end()
    return place


def _fields(text: str, metrics: Container[str], training: str) -> dict[str, float]:
    """Return names and values with only space between them, in lines of several fields."""
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


def _words_for(text: str, metrics: frozenset[str]) -> list[tuple[str, str]]:
    """Return the metrics that have something other than a number, each with its word."""
    if not any(name in text or name.replace("_", " ") in text for name in metrics):
        return []
    text = _PAIR.sub(lambda match: match[0] if number_of(match[3]) is None else "|", text)
    words: list[tuple[str, str]] = []
    for match in _word_pattern(metrics).finditer(text):
        name = name_with_qualifiers(text, match.start("name"), match["name"])
        if name not in metrics:
            name = name.replace(" ", "_")
        word = match["signed"] or match["bare"]
        is_history = match[1] and word.startswith("[")  # such as {'loss': [0.5, 0.25]}
        if name in metrics and not is_history:
            words.append((name, _AN_OBJECT if NOT_READ in word else word.rstrip(",")))
    return words


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
        text = _text_of(line)
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
    return without_escapes(text).strip()
