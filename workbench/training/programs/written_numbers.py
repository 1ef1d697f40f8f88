"""Numbers as programs print them.

Plain, with separators between thousands, or with a decimal comma.

What may mean two numbers, such as `1,234`, is none: a missing value is noticed, a wrong one is not.
Which parts of a line are numbers, and whether `3,3` is one, is left to `printed_metrics`.
"""

from __future__ import annotations

import re

from workbench.foundation.separators import GROUPED_DIGITS

NUMBER = (
    r"[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
)
"""The pattern of a number as Python writes it."""
COUNT = rf"(?:{GROUPED_DIGITS}|\d+)"
"""The pattern of a whole number, of which commas may separate thousands."""
_BETWEEN = ",'\u2019\u00a0\u202f"
"""What may stand between digits beside a dot; the last two are blanks that do not end a line."""
WRITTEN = (
    r"[-+]?[1-9]\d{0,2}(?: \d{3})+(?:[.,]\d+)?(?=\s*(?:$|[|,;)\]]|[^\W\d][\w./-]*\s*[=:]))"
    rf"|[-+]?\d+(?:[.{_BETWEEN}]\d+)*[{_BETWEEN}]\d+(?:\.\d+)?\.?(?:[eE][-+]?\d+)?"
    rf"|{NUMBER}"
)
"""The pattern of what `number_of` is to judge."""
_IMAGINARY = r"[-+](?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?[ij]\b"
_POWER = r"\^|\*[*^]|\s?[*\u00d7\u00b7]\s?10"
_DATE = r"(?:-\d|[/.]\d+[/.]\d)"
NOT_INSIDE = rf"(?![\w:]|[.{_BETWEEN}\u066b\u066c]\d|{_IMAGINARY}|{_POWER}|{_DATE})"
"""What must follow a number.

It does not go on, and is not part of a complex one, of a product or a date.
"""
_COUNT = re.compile(COUNT)
_BLANKS = re.compile(r"[-+]?[1-9]\d{0,2}(?:(['\u2019\u00a0\u202f])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")
_COMMAS = re.compile(r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3})+\.\d*|(?:,\d{3}){2,})(?:[eE][-+]?\d+)?")
_DOTS = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3}){2,},\d+")
_DECIMAL_COMMA = re.compile(r"[-+]?(?![1-9]\d{0,2},\d{3}(?!\d))\d+,\d+(?:[eE][-+]?\d+)?")
_LIST = re.compile(r"(?![-+]?[1-9]\d{0,2}\.\d{3},\d+$)([-+]?\d+\.\d+),\d")


def number_of(text: str, *, is_count: bool = False) -> float | None:
    """Return the number that a text stands for; None where it may be another one.

    Args:
        text: What `WRITTEN` matches.
        is_count: Whether it counts something, such as steps: then `1,234` has no decimal comma.

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


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is read as a number with a decimal comma.

    `3,3` may be a list of two, too.

    Example:
        >>> has_decimal_comma("3,3"), has_decimal_comma("1,234.5")
        (True, False)
    """
    return "," in text and _DECIMAL_COMMA.fullmatch(text) is not None


def _with_separators(text: str) -> float | None:
    if _COMMAS.fullmatch(text):
        return float(text.replace(",", ""))
    if _DOTS.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    if _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if _BLANKS.fullmatch(text):
        return float(re.sub(r"['\u2019\u00a0\u202f]", "", text).replace(",", "."))
    first = _LIST.match(text)  # of several numbers with dots the first one counts
    return float(first[1]) if first else None
