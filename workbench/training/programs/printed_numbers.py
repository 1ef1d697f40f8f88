"""Reads numbers in text, as programs and libraries print them.

Numbers are plain, have separators between thousands, or have a decimal comma. Ambiguous text such
as `1,234` is not read, because users notice a missing value but not a wrong one. Values of
libraries, such as `np.float64(0.25)` or `tensor(0.25, device='cuda:0')`, are replaced by their
number, or by a sign if they are not a single number. Otherwise their parts, such as `cuda:0`, would
look like metrics. Words instead of a number, such as `None`, are reported. Which number belongs to
which name is left to `printed_metrics`.

Ways to print a value that are not a name and a number become such pairs: a share
(`812/1000 = 81.2%`), a change (`improved from 0.5 to 0.4`), the values of two parts of the data
(`loss (train/val): 0.5/0.6`) and a name in words (`Key: loss, Value: 0.5`).
"""

from __future__ import annotations

import re

from workbench.foundation.text_tables import GROUPED_DIGITS
from workbench.training.programs.metric_names import (
    COUNTED,
    SPLITS,
    has_metric_name,
    is_count,
    is_metric,
)

NUMBER = (
    r"[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
)
"""The pattern of a number as Python writes it."""
COUNT = rf"(?:{GROUPED_DIGITS}|\d+)"
"""The pattern of a whole number. Commas may separate thousands."""
_BETWEEN = ",'\u2019\u00a0\u202f"
"""Separators between digits, other than a dot. The last two are non-breaking spaces."""
WRITTEN = (
    r"[-+]?[1-9]\d{0,2}(?: \d{3})+(?:[.,]\d+)?(?=\s*(?:$|[|,;)\]]|[^\W\d][\w./-]*\s*[=:]))"
    rf"|[-+]?\d+(?:[.{_BETWEEN}]\d+)*[{_BETWEEN}]\d+(?:\.\d+)?\.?(?:[eE][-+]?\d+)?"
    rf"|{NUMBER}"
)
"""The pattern of text that `number_of` can read."""
_IMAGINARY = r"[-+](?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?[ij]\b"
_POWER = r"\^|\*[*^]|\s?[*\u00d7\u00b7]\s?10"
_DATE = r"(?:-\d|[/.]\d+[/.]\d)"
NOT_INSIDE = rf"(?![\w:]|[.{_BETWEEN}\u066b\u066c]\d|{_IMAGINARY}|{_POWER}|{_DATE})"
"""The end of a number: it does not continue, and is not part of a complex one, a product or a date.
"""
UNIT = (
    r"\s?(?:%|[num\u00b5]?s|secs?|seconds?|mins?|minutes?|hrs?|hours?|[KMGT]i?B|bytes|dB)(?!\w)"
    r"|[mhx](?!\w|\s\d)"
)
"""The pattern of a unit after a number."""
_SECONDS = {"n": 1e9, "u": 1e6, "\u00b5": 1e6, "m": 1e3}
"""How many nanoseconds, microseconds and milliseconds make a second."""
_LONGER = {"m": 60.0, "h": 3600.0}
_BYTES = {"k": 1, "m": 2, "g": 3, "t": 4}
_OF_TIME = re.compile(r"time|eta|elapsed|duration|took|remaining|latency", re.IGNORECASE)
_COUNT = re.compile(COUNT)
_BLANKS = re.compile(r"[-+]?[1-9]\d{0,2}(?:(['\u2019\u00a0\u202f])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")
_COMMAS = re.compile(r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3})+\.\d*|(?:,\d{3}){2,})(?:[eE][-+]?\d+)?")
_DOTS = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3}){2,},\d+")
_DECIMAL_COMMA = re.compile(r"[-+]?(?![1-9]\d{0,2},\d{3}(?!\d))\d+,\d+(?:[eE][-+]?\d+)?")
_LIST = re.compile(r"(?![-+]?[1-9]\d{0,2}\.\d{3},\d+$)([-+]?\d+\.\d+),\d")
NOT_READ = "\u2026"
"""The sign for a value that is not a single number."""
_NUMBERS = (
    r"(?:b?float\d*(?:_\w+)?|bfloat16|longdouble|half|single|double|u?int\d*|u?byte|u?short|u?intc|u?longlong|"
    r"u?long|intp|uintp|bool_?|complex\d*|clongdouble|str_|mpf|Decimal|Fraction|Float|Integer)"
)
"""Types of numbers that print their type before the value."""
_ARRAYS = (
    r"(?:tensor|Tensor|EagerTensor|Parameter|Variable|MaskedTensor|DTensor|DeviceArray|ArrayImpl|Array|array|"
    r"asarray|masked_array|matrix|ndarray|Series|Index)"
)
_OTHERS = (
    r"(?:timedelta64|datetime64|timedelta|datetime|date|Timestamp|Timedelta|Period|device|dtype|Size|slice|"
    r"PosixPath|WindowsPath|CudaDevice|CpuDevice|TpuDevice)"
)
"""Objects that print numbers in brackets which are not their value."""
_OPENS = re.compile(
    rf"(?<![\w.])(?:[A-Za-z_]\w*\.)*(?:(?P<number>{_NUMBERS})|{_ARRAYS}|(?P<other>{_OTHERS}))\("
)
_CALL, _NUMBERED = re.compile(r"\w\("), re.compile(r":[\d/A-Z]|/job")
_TENSORFLOW = re.compile(r"<tf\.\w+\b[^>]*?\bnumpy=([^>,]*)[^>]*>?")
_DEVICE = re.compile(
    r"/(?:job|replica|task|device):[\w:/]+"
    r"|(?<![\w./-])(?:cuda|cpu|gpu|mps|xpu|xla|hpu|npu|tpu|ipu|hip|rocm|mtia|vulkan|meta|CUDA|CPU|GPU|TPU):"
    r"\d+\b(?![.,]\d)"
)
_END_OF_ARRAY = re.compile(
    r"^\s+(?:fill_value|mask)=[^\s,)]*\)?|(?<=\])(?:,\s*\w+=[^\s,)]+)+\)|^\s*\w+=[^\s,)]+\)$"
)
"""The end of a printed array of several lines."""
_NOT_FINITE = re.compile(r"(-?)1\.#(QNAN|SNAN|IND|INF)\d*\b")
"""Infinite numbers and NaN, as Microsoft's C library prints them."""
_END_OF_SERIES = re.compile(r"^(?:Name: .*, )?(?:Length: \d+, )?dtype: \S+$")
"""The end of a printed column of pandas."""
_R_TEXT = re.compile(r'\s*\[\d+\]\s+"([^"]*)"\s*')
"""A string, as R prints it."""
_SINGLE = re.compile(r"[\s\[(]*([^\s\[\](),]*)[\s\])]*")
_ONE_NUMBER = re.compile(NUMBER, re.IGNORECASE)
_FRACTION = re.compile(r"(-?\d+)\s*,\s*(\d+)")
_MASKED = re.compile(r"\bmask=(?!False|\[False\])")
_MAX_OPEN = 20
WORD = (
    r"(?:None|NULL|null|nil|NA(?:_(?:real|integer|character)_)?|[nN]/[aA]|n\.a\.|<NA>|NaT|undefined|missing|"
    r"masked|[-\u2013\u2014](?=\s*(?:$|[,;|)\]}]))|"
    rf"(?:np\.)?(?:True|False)_?|TRUE|FALSE|true|false|--(?=\s|$|[,;|)\]}}])|{NOT_READ})"
)
"""The pattern of a word instead of a number."""
_WORD = re.compile(WORD)
_JULIA = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+)f([-+]?\d+)\b")
"""A number with 32 bits, as Julia prints it."""
_CHANGE = re.compile(
    rf"(?<![\w.,])(?:{NUMBER})%?\s*(?:[-=]+>|\u2192)\s*(?=(?:{NUMBER})(?![\w.]))", re.IGNORECASE
)
"""The old value of a change."""
_VERB = re.compile(
    r"(?<![\w./@-])(?P<name>[\w./@-]+)['\"]?:?\s+(?:has\s+|was\s+|is\s+)?"
    r"(?:improved|decreased|increased|reduced|dropped|fell|rose|went|changed|moved|updated)(?:\s+(?:up|down))?"
    rf"(?:\s+by\s+{NUMBER}%?)?\s*:?\s*(?:from|\(|\[)?\s*(?P<old>{NUMBER})?%?\s*(?:to\b|[-=]+>|\u2192)"
    rf"\s*(?P<new>{NUMBER})(?P<unit>%?)\s*[)\]]?(?![\w]|\.\d)",
    re.IGNORECASE,
)
_REACHED = re.compile(
    r"(?<![\w./@-])(?P<name>[\w./@-]+)['\"]?:? (?:has )?reached "
    rf"(?P<new>{NUMBER})(?P<unit>%?)(?!\w|\.\d)",
    re.IGNORECASE,
)
_OPTUNA_BEST = re.compile(r"\bBest is trial \d+ with value:")
_RESULT = re.compile(
    rf"(?<![\w./-])(?P<part>\d[\d,]*(?:\.\d+)?)\s?/\s?(?P<all>\d[\d,]*(?:\.\d+)?)\s*=\s*"
    rf"(?=(?:{NUMBER})(?!\w|\s*/))"
)
"""A share in front of its value, such as the `812/1000 =` of `812/1000 = 0.812`."""
_AFTER_COUNT = re.compile(rf"\b(?:{'|'.join(COUNTED)})s?\W*$", re.IGNORECASE)
_SHARE = re.compile(
    r"(?<![\w.@-])(?P<name>[^\W\d][\w.@-]*)(?P<sign>['\"]?\s*[=:]\s*|\s+)(?P<part>\d+)\s?/\s?(?P<all>\d+)"
    r"(?![\w./:-]|\s*/)(?P<percent>\s*\(\s*\d+(?:\.\d+)?\s?%\s*\))?"
)
_IS_SHARE = re.compile(
    r"acc|top.?\d|precision|recall|sensitivity|specificity|rate$|@\d|hits?$|\berr(?:or)?s?$", re.I
)
"""Metrics whose value is a share of all examples."""
_PART = rf"(?:{'|'.join(sorted(SPLITS, key=len, reverse=True))})"
_PARTS = rf"{_PART}(?:\s?[/,|&]\s?{_PART}){{1,2}}"
_VALUES = rf"(?:{NUMBER})%?(?:\s*[/,|]\s*(?:{NUMBER})%?){{1,2}}"
_NAME = r"(?:[^\W\d][\w@.-]* )?[^\W\d][\w@.-]*"
_OF_PARTS = re.compile(
    rf"(?<![\w/@.-])(?:(?P<before>{_NAME})\s*[(\[]?\s?(?P<parts>{_PARTS})\s?[)\]]?"
    rf"|(?P<first>{_PARTS})\s+(?P<after>{_NAME}))"
    rf"\s*[:=]?\s*[(\[]?(?P<values>{_VALUES})[)\]]?(?![\w/]|\.\d)",
    re.IGNORECASE,
)
_TUPLES = re.compile(
    r"\((?P<names>[^\W\d][\w./@-]*(?:, ?[^\W\d][\w./@-]*)+),?\)\s*[=:]\s*"
    rf"\((?P<values>{NUMBER}(?:,\s*{NUMBER})+),?\)",
    re.IGNORECASE,
)
_WITH_CURRENCY = re.compile(r"(?<=[=:(\s])[$\u20ac\u00a3\u00a5~\u2248]\s?(?=[-+]?\.?\d)")
"""A sign of a currency, or for a rounded value, in front of a number."""
_MINUS = re.compile(r"\u2212(?=\.?\d)")
_STEP_BEFORE_SIGN = re.compile(
    rf"(?<![\w./-])(?P<name>(?:{_PART}[ _])?[^\W\d][\w./@-]*) (?P<place>\d+)"
    rf"(?:\s*:\s+(?={NUMBER})|\s(?=[-+]?\d*\.\d))",
    re.IGNORECASE,
)
"""A metric with the step where it was measured, such as `Validation loss 1000: 0.5`."""
_AT_STEP = re.compile(
    rf"(?<![\w./-])(?P<name>(?:[^\W\d][\w./-]* )?[^\W\d][\w./@-]*) (?:@|at|after|in) "
    rf"(?P<place>(?:{'|'.join(COUNTED)})s?\s*\d+)\s*[:=]\s*(?={NUMBER})",
    re.IGNORECASE,
)
"""A metric with the place where it was measured, such as `val loss @ step 500: 0.5`."""
_ARROW = re.compile(r"(?<=[^\W\d])\s*(?:[-=]+>|\u2192|\u00bb)\s*(?=[^\W\d]|[-+]?\.?\d)")
"""An arrow behind a word, which is no change: `train -> loss 0.5`, `val_loss -> 0.34`."""
_DASHES = re.compile(r"(?<=\s)(?:--+|\u2013|\u2014)(?=\s+[^\W\d])")
"""A long dash before words, which is one between pairs: `Validation -- loss: 0.4`."""
_RANGE = re.compile(r"(?<=@)(\d*\.\d+):(\d*\.\d+)(?=\s*[:=])")
"""The thresholds of a mean, as in `mAP@0.5:0.95: 0.4`."""
_BULLETS = re.compile(r"\s[\u00b7\u2022\u25aa\u25b8\u25b6\u25ba\u203a]\s+(?=[^\W\d])")
_SLASHES = re.compile(r"(?<=\d)\s/\s(?=[^\W\d][\w./-]*[ =:]\s?[-+]?\.?\d)")
"""A slash between pairs, as in `score 12.3 / length 512`."""
_IN_WORDS = re.compile(
    r"\b(?:key|name|metric|param|parameter|option|setting|argument|hyperparameter)\s*[:=]\s*['\"]?"
    r"(?P<name>[^\W\d][\w./@-]*)['\"]?\s*[,;|]?\s*value\s*[:=]\s*",
    re.IGNORECASE,
)


def number_of(text: str, *, is_count: bool = False) -> float | None:
    """Return the number that a text means, or None if it is ambiguous.

    Args:
        text: A match of `WRITTEN`.
        is_count: Whether it counts something, such as steps. Then `1,234` has no decimal comma.

    Example:
        >>> [number_of(text) for text in ("1,234.5", "0,3", "1'000", "1,234,567")]
        [1234.5, 0.3, 1000.0, 1234567.0]
        >>> number_of("1,234"), number_of("1,234", is_count=True)
        (None, 1234.0)
    """
    try:
        return float(text)
    except ValueError:
        if is_count and _COUNT.fullmatch(text):
            return float(text.replace(",", ""))
        return _with_separators(text)


def in_base_unit(value: float, unit: str, name: str) -> float | None:
    """Return a number in seconds or bytes, so that `950ms` and `1.2s` can be compared.

    A name that has the unit, such as `time_ms`, keeps its number. Percentages and decibels stay as
    they are.

    Args:
        value: The number.
        unit: What follows it, a match of `UNIT`, or "".
        name: Its name.

    Returns:
        The number. None if the unit is unclear.

    Example:
        >>> in_base_unit(950, "ms", "latency"), in_base_unit(950, "ms", "latency_ms")
        (0.95, 950)
        >>> in_base_unit(2, "GiB", "memory"), in_base_unit(98, "%", "accuracy")
        (2147483648, 98)
    """
    unit = unit.strip()
    if unit.lower() == "db":
        return value
    if not unit or unit in ("%", "x", "X") or re.split(r"[_ /]", name)[-1].lower() == unit.lower():
        return value
    if unit[-1:] == "B":
        factor = 1024 if "i" in unit else 1000
        return value * factor ** _BYTES[unit[0].lower()]
    unit = unit.lower()
    if unit == "bytes" or unit in ("s", "sec", "secs", "second", "seconds"):
        return value
    if unit in ("m", "h") and not _OF_TIME.search(name):
        return None
    if unit[-1] == "s" and unit[0] in _SECONDS and unit not in ("mins", "minutes"):
        return value / _SECONDS[unit[0]]
    return value * _LONGER[unit[0]]


def number_of_text(text: str) -> float | None:
    """Return a text as a number, or None if it is not a number.

    Numbers in the form of a library are read as well.

    Example:
        >>> from workbench.training.programs.printed_numbers import number_of_text
        >>> [number_of_text(text) for text in ("0.25", "np.float64(0.25)", "[0.25]", "high")]
        [0.25, 0.25, None, None]
    """
    try:
        return float(text)
    except ValueError:
        if not any(sign in text for sign in "(<#"):
            return None
        plain = with_plain_values(text).strip()
        if not _ONE_NUMBER.fullmatch(plain):
            return None
        return float(plain)


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is a number with a decimal comma.

    `3,3` may also be a list of two numbers.

    Example:
        >>> has_decimal_comma("3,3"), has_decimal_comma("1,234.5")
        (True, False)
    """
    return "," in text and _DECIMAL_COMMA.fullmatch(text) is not None


def word_of(text: str) -> str | None:
    """Return a text if it is a word or a value that may replace a number, or else None.

    Example:
        >>> from workbench.training.programs.printed_numbers import word_of
        >>> word_of("NA"), word_of("array([0.1, 0.2])"), word_of("high")
        ('NA', 'array([0.1, 0.2])', None)
    """
    if not _WORD.fullmatch(with_plain_values(text).strip()):
        return None
    return text.strip()


def with_plain_values(text: str) -> str:
    """Return a line with plain numbers instead of library values, or a sign for other values.

    Example:
        >>> from workbench.training.programs.printed_numbers import with_plain_values
        >>> with_plain_values("loss: tensor(0.25, device='cuda:0') x: array([1., 2.])")
        'loss: 0.25 x: …'
    """
    if (match := _R_TEXT.fullmatch(text)) is not None:
        text = match[1]
    if "#" in text:
        text = _NOT_FINITE.sub(
            lambda match: f"{match[1]}{'inf' if match[2] == 'INF' else 'nan'}", text
        )
    if "dtype: " in text:
        text = _END_OF_SERIES.sub(NOT_READ, text)
    if "<tf." in text:
        text = _TENSORFLOW.sub(lambda match: _number_in(match[1], is_closed=True) or NOT_READ, text)
    if _CALL.search(text) is not None:  # a quick check, because most lines have no such value
        text = _without_calls(text)
    if ")" in text and "=" in text:
        text = _END_OF_ARRAY.sub(NOT_READ, text)
    if _NUMBERED.search(text) is not None:
        text = _DEVICE.sub(NOT_READ, text)
    return text


def _with_separators(text: str) -> float | None:
    if _COMMAS.fullmatch(text):
        return float(text.replace(",", ""))
    if _DOTS.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    if _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if _BLANKS.fullmatch(text):
        return float(re.sub(r"['\u2019\u00a0\u202f]", "", text).replace(",", "."))
    first = _LIST.match(text)  # of several numbers with dots, the first one counts
    if not first:
        return None
    return float(first[1])


def _without_calls(text: str) -> str:
    parts = []
    place = 0
    for _ in range(_MAX_OPEN):
        match = _OPENS.search(text, place)
        if match is None:
            break
        end = _end_of_call(text, match.end())
        content = text[match.end() : end]
        number = None
        if not match["other"]:
            number = _number_in(content, is_closed=end < len(text))
        parts += [text[place : match.start()], number or NOT_READ]
        place = end + 1
    return "".join((*parts, text[place:]))


def _end_of_call(text: str, place: int) -> int:
    """Return the end of a bracket that was opened before a place.

    If it is never closed, this is the end of the line.
    """
    depth = 1
    for index in range(place, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index
    return len(text)


def _number_in(content: str, *, is_closed: bool) -> str | None:
    """Return the number in a printed value as text, or None if it is not a single number."""
    if not is_closed or _MASKED.search(content):
        return None
    if (match := _FRACTION.fullmatch(content)) is not None and int(match[2]):
        return repr(int(match[1]) / int(match[2]))
    first = (
        re.split(r",(?=\s*[a-z_]+=)", content.removeprefix("data="), maxsplit=1)[0]
        .strip()
        .strip("'\"")
    )
    match = _SINGLE.fullmatch(first)
    if match is None or not _ONE_NUMBER.fullmatch(match[1]):
        return None
    if match[1].endswith("."):
        return f"{match[1]}0"
    return match[1]


def with_pairs(text: str) -> str:
    """Return a line in which other forms of a value are pairs of a name and a number.

    Args:
        text: A line.

    Example:
        >>> with_pairs("Accuracy: 812/1000 = 81.2%"), with_pairs("Validation loss: 0.5 --> 0.4")
        ('Accuracy: 81.2%', 'Validation loss: 0.4')
        >>> with_pairs("val_loss improved from 0.5 to 0.4")
        'val_loss: 0.4'
        >>> with_pairs("loss (train/val): 0.5/0.6")
        ' | train_loss: 0.5 ; val_loss: 0.6 ; '
        >>> with_pairs("loss=0.5 (val: 0.6)")
        'loss=0.5 ; val_loss: 0.6 ; '
        >>> with_pairs("accuracy train: 0.9 test: 0.8"), with_pairs("Return over 10 episodes: 7")
        ('accuracy_train: 0.9 ; accuracy_test: 0.8 ; ', 'Return: 7')
        >>> with_pairs("Validation loss 1000: $0.5"), with_pairs("loss: \u22120.5")
        ('step 1000 | Validation loss: 0.5', 'loss: -0.5')
    """
    if "]:" in text or "] :" in text or "]=" in text:
        text = _BRACKETED.sub(_bracketed, text)
    if " (" in text:
        text = _COUNTED_SET.sub(r"\g<count> \g<number> | \g<split> set:", text)
    if ", set " in text:
        text = _OF_SET.sub(_of_set, text)
    text = _with_steps(_AT_STEP.sub(_at_step, _with_plain_signs(_with_counts_apart(text))))
    if "f" in text:
        text = _JULIA.sub(r"\1e\2", text)
    text = _with_present_values(text)
    if "/" in text or "," in text or "|" in text:
        text = _OF_PARTS.sub(_of_parts, text)
    if "/" in text:
        text = _RESULT.sub(_result, text)
        text = _SHARE.sub(_share, text)
    if "(" in text:
        text = _TUPLES.sub(_of_tuples, _SPLIT_BEHIND.sub(_split_behind, text))
    text = _OVER_COUNT.sub("", _SEVERAL_SPLITS.sub(_several_splits, text))
    if " - " in text:
        text = _DASHED.sub(_dashed, text)
    if "alue" in text:
        text = _IN_WORDS.sub(r"\g<name>: ", text)
    return text


_BRACKETED = re.compile(r"\[(?P<name>[^\W\d][^\[\]:=|]{2,40})\]\s*[:=]\s*(?=[-+]?\.?\d)")
_COUNTED_SET = re.compile(
    rf"\b(?P<split>{'|'.join(SPLITS)})(?: (?:set|data))? "
    rf"\((?P<count>{'|'.join(COUNTED)})[ :=]\s*(?P<number>\d+)(?:/\d+)?\)\s*:",
    re.IGNORECASE,
)
"""A part of the data with its step in brackets: `Test set (epoch 3): loss: 0.5`."""


_SPLIT_BEHIND = re.compile(
    rf"(?<![\w./@-])(?P<name>[^\W\d][\w./@-]*)(?P<value>(?:\s*[=:]\s*|\s+){NUMBER}(?:{UNIT})?)"
    rf"\s*\((?P<split>{'|'.join(SPLITS)}|held[ -]out)\s*[=:]?\s*(?P<number>{NUMBER}(?:{UNIT})?)\)",
    re.IGNORECASE,
)
"""A metric with its value of other data in brackets: `loss=0.5 (val: 0.6)`."""
_SPLIT_IN_FRONT = re.compile(rf"(?:{'|'.join(SPLITS)})[_./-]", re.IGNORECASE)


def _split_behind(match: re.Match[str]) -> str:
    """Return a metric and its value of other data as two pairs."""
    if not is_metric(match["name"]):
        return match[0]
    split = match["split"].lower()
    if split.startswith("held"):
        split = "holdout"
    metric = _SPLIT_IN_FRONT.sub("", match["name"], count=1)
    return f"{match['name']}{match['value']} ; {split}_{metric}: {match['number']} ; "


_SPLIT_AND_NUMBER = (
    rf"(?:{'|'.join(SPLITS)}|tr|va|te|vl)\s*[:=]?\s*[-+]?\d*\.\d+(?:[eE][-+]?\d+)?%?"
)
_SEVERAL_SPLITS = re.compile(
    rf"(?<![\w./@-])(?P<name>(?:[^\W\d][\w.@-]*\s)?[^\W\d][\w.@-]*)?(?P<sign>\s*[:=]\s*|\s+-?\s*|)"
    rf"(?<![\w./@-])(?P<values>{_SPLIT_AND_NUMBER}(?:\s*[,;|/]?\s*{_SPLIT_AND_NUMBER}){{1,2}})"
    r"(?![\w.]|\s*\()",
    re.IGNORECASE,
)
"""The values of several parts of the data: `accuracy train: 0.9 test: 0.8`, `tr 0.3 va 0.4`."""


def _several_splits(match: re.Match[str]) -> str:
    """Return the values of several parts of the data as pairs with the metric in front of them."""
    name = match["name"] or ""
    metric = name.replace(" ", "_") if is_metric(name.split(" ")[-1]) else ""
    pairs = re.findall(
        r"([a-z]+)\s*[:=]?\s*([-+]?\d*\.\d[^\s,;|/]*)", match["values"], re.IGNORECASE
    )
    if len({split.lower() for split, _ in pairs}) < len(pairs):
        return match[0]
    if metric:
        return "".join(f"{metric}_{split}: {number} ; " for split, number in pairs)
    before = f"{name}{match['sign']}"
    return f"{before}{'| ' if before.strip() else ''}" + "".join(
        f"{split}: {number} ; " for split, number in pairs
    )


_OVER_COUNT = re.compile(
    r"(?<=\w) (?:averaged )?(?:over|after|across|for|in|from) (?:the )?(?:last |first )?\d[\d.,]*"
    r" (?:[^\W\d]\w* )?(?:episodes?|epochs?|runs?|trials?|seeds?|games?|folds?|rollouts?"
    r"|evaluations?|iterations?|repeats?)(?=\s?[:=])",
    re.IGNORECASE,
)
"""How many values a mean is of, which is no part of its name: `Return over 10 episodes: 7`."""
_COUNTED_WORD = re.compile(
    rf"(?<![\w./@-])(?P<count>{'|'.join(COUNTED)}|ep)(?P<number>\d+)(?=[:\])]?\s+[^\W\d])",
    re.IGNORECASE,
)


def _with_counts_apart(text: str) -> str:
    """Return a line with a bar after `EP12`, which only says when its metrics were measured.

    Several of them, as in `step1 loss 0.5 step2 loss 0.4`, say which value each one is.
    """
    counted = list(_COUNTED_WORD.finditer(text))
    if len(counted) != 1:
        return text
    (match,) = counted
    before, rest = text[: match.start()], text[match.end() :]
    bar = "" if rest[0] in ")]" else " |"
    return f"{before}{match['count']} {match['number']}{bar}{rest.removeprefix(':')}"


def _bracketed(match: re.Match[str]) -> str:
    """Return a metric without its brackets: `[Valid loss]: 0.5`. Other words are labels."""
    return f"{match['name']}: " if has_metric_name(match["name"]) else match[0]


_OF_SET = re.compile(
    r"(?P<name>(?:[^\W\d]\w*\s)*?)(?:for|at)\s+step\s+(?P<step>\d+), set (?P<set>[^\W\d]\w*)"
    r"(?:,\s*(?P<inner>[^\W\d]\w*)\s*)?\s*[:=]\s*(?=[-+]?\.?\d)"
)


def _of_set(match: re.Match[str]) -> str:
    """Return a metric of one of several sets by a name of its own."""
    name = match["inner"] or "_".join(match["name"].split())
    return f"step {match['step']} | {name}_{match['set']}: " if name else match[0]


_DASHED = re.compile(r"(?P<name>[^\W\d][\w@-]*(?: [^\W\d][\w@-]*)?) - (?=\d+(?:\.\d|%))")


def _dashed(match: re.Match[str]) -> str:
    """Return a colon for the dash in `BLEU-4 - 0.23`. Other dashes are between pairs."""
    return f"{match['name']}: " if has_metric_name(match["name"]) else match[0]


def _with_steps(text: str) -> str:
    """Return a line with the step before its metrics if it is between name and colon.

    Several metrics may have the same one. Different numbers, as in `loss 1: 0.5 loss 2: 0.6`, say
    which value each one is. Without a part of the data, a single digit does so as well: `acc 5`.
    """
    matches = [m for m in _STEP_BEFORE_SIGN.finditer(text) if is_metric(m["name"])]
    names, places = {m["name"] for m in matches}, {m["place"] for m in matches}
    if len(places) != 1 or len(names) != len(matches):
        return text
    (place,) = places
    has_part = any(" " in name or "_" in name for name in names)
    if not has_part and len(place) < _FEWEST_DIGITS:
        return text
    for match in reversed(matches):
        text = f"{text[: match.start()]}{match['name']}: {text[match.end() :]}"
    start = matches[0].start()
    return f"{text[:start]}step {place} | {text[start:]}"


_FEWEST_DIGITS = 2


def _with_present_values(text: str) -> str:
    """Return a line in which each change is replaced by its new value."""
    if ">" in text or "\u2192" in text or " to " in text:
        text = _CHANGE.sub("", _VERB.sub(_present, text))
    if " reached " in text:
        text = _REACHED.sub(_present, text)
    if "Best is" in text:
        text = _OPTUNA_BEST.sub("best_value:", text)
    return text


def _with_plain_signs(text: str) -> str:
    """Return a line with bars between pairs, and colons instead of arrows between words."""
    is_ascii = text.isascii()
    if not is_ascii:
        text = _MINUS.sub("-", _BULLETS.sub(" | ", text))
    if not is_ascii or "$" in text or "~" in text:
        text = _WITH_CURRENCY.sub("", text)
    if ">" in text or not is_ascii:
        text = _ARROW.sub(": ", text)
    if " --" in text or not is_ascii:
        text = _DASHES.sub("-", text)
    if "@" in text:
        text = _RANGE.sub(r"\1-\2", text)
    if " / " in text:
        text = _SLASHES.sub(" | ", text)
    return text


def _present(match: re.Match[str]) -> str:
    """Return the new value of a metric that changed."""
    if not is_metric(match["name"]):
        return match[0]
    return f"{match['name']}: {match['new']}{match['unit']}"


def _at_step(match: re.Match[str]) -> str:
    """Return the place before the metric that was measured there."""
    if not is_metric(match["name"].split(" ")[-1]):
        return match[0]
    return f"{match['place']} | {match['name']}: "


def _result(match: re.Match[str]) -> str:
    if _AFTER_COUNT.search(match.string[: match.start()]):
        return match[0]
    return ""


def _share(match: re.Match[str]) -> str:
    """Return a share of all examples as a number. With a percentage it is one, too."""
    name, part, total = match["name"], int(match["part"]), int(match["all"])
    sign = match["sign"]
    is_share = is_metric(name) and _IS_SHARE.search(name) is not None
    is_named = bool(match["percent"]) and bool(sign.strip()) and not is_count(name)
    if not ((is_share or is_named) and 0 < total >= part):
        return match[0]
    if match["percent"]:
        return f"{name}{sign}{100 * part / total}%"
    return f"{name}{sign}{part / total}"


def _of_parts(match: re.Match[str]) -> str:
    """Return the values of several parts of the data under names of their own."""
    words = (match["before"] or match["after"]).split(" ")
    parts = re.split(r"\s?[/,|&]\s?", match["parts"] or match["first"])
    values = re.split(r"\s*[/,|]\s*", match["values"])
    if not is_metric(words[-1]) or len(parts) != len(values):
        return match[0]
    before = ""
    if len(words) > 1 and not is_metric("_".join(words)):
        before = f"{words[0]} "
    name = words[-1]
    pairs = (f"{part}_{name}: {value} ; " for part, value in zip(parts, values, strict=True))
    return f"{before} | {''.join(pairs)}"


def _of_tuples(match: re.Match[str]) -> str:
    """Return pairs for the names and the values of two tuples, such as `(a, b) = (1.0, 2.0)`."""
    names = re.split(r",\s*", match["names"])
    values = re.split(r",\s*", match["values"])
    if len(names) != len(values):
        return match[0]
    return "; ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
