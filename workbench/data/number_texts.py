"""Numbers that a column writes as text: with separators, a unit, or markers of missing values.

How a column writes its numbers is found from all of its values, as with dates. `columns` computes
statistics.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from workbench.data.dates import is_text
from workbench.data.plain_frames import MISSING, distinct_values
from workbench.foundation.text_tables import GROUPED_DIGITS

if TYPE_CHECKING:
    import pandas as pd

MISSING_TEXTS = frozenset(
    {
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    }
)
"""The cells of a text file that pandas reads as a missing value."""
MISSING_MARKERS = frozenset({text.lower() for text in MISSING_TEXTS} | {"?", "-"})
"""Markers of a missing number in lower case: the ones of pandas, a question mark and a hyphen."""
MISSING_WORDS = frozenset(
    {
        "\u2013",  # dashes
        "\u2014",
        "#bezug!",
        "#div/0!",
        "#error",
        "#n/d",
        "#name?",
        "#null!",
        "#num!",
        "#nv",
        "#ref!",
        "#valeur!",
        "#value!",
        "#wert!",
        "(blank)",
        "(none)",
        "(null)",
        "*",
        "**",
        "--",
        "---",
        ".",
        "..",
        "...",
        "??",
        "???",
        "[null]",
        "blank",
        "desconocido",
        "empty",
        "error",
        "inconnu",
        "invalid",
        "k. a.",
        "k.a",
        "k.a.",
        "keine angabe",
        "leer",
        "missing",
        "n. a.",
        "n.a",
        "n.a.",
        "n.c.",
        "n.d.",
        "nc",
        "nd",
        "nil",
        "no data",
        "non disponible",
        "none given",
        "declined",
        "do not know",
        "don't know",
        "prefer not to answer",
        "prefer not to say",
        "refused",
        "not applicable",
        "not available",
        "not known",
        "not measured",
        "not recorded",
        "s/o",
        "sconosciuto",
        "tba",
        "tbd",
        "unbekannt",
        "undefined",
        "unk",
        "unknown",
        "void",
    }
)
"""Other words for a missing number in lower case. They count if all else are numbers."""
NEARLY_NUMBERS = 0.95
"""From this share of numbers on, the other texts of a column count as missing."""
NUMBER_WITH_SEPARATORS = rf"[+-]?(?:{GROUPED_DIGITS}|[0-9]{{1,3}})(?:[.][0-9]*)?"
"""The pattern of numbers with commas between thousands."""
NUMBER_WITH_DECIMAL_COMMA = r"[+-]?(?:[1-9][0-9]{0,2}(?:[.][0-9]{3})+|[0-9]+)(?:,[0-9]*)?"
"""The pattern of numbers with a decimal comma, and points between thousands."""
UNITS = "%‰$€£¥₩₹₽₺₪₫₴₱฿¢"
"""Signs that all numbers of a column may have before or after them."""
CURRENCIES = (
    "AUD",
    "BRL",
    "CAD",
    "CHF",
    "CNY",
    "CZK",
    "DKK",
    "EUR",
    "Fr.",
    "GBP",
    "HKD",
    "HUF",
    "ILS",
    "INR",
    "JPY",
    "KRW",
    "MXN",
    "NOK",
    "NZD",
    "PLN",
    "RON",
    "RUB",
    "SEK",
    "SGD",
    "THB",
    "TRY",
    "TWD",
    "USD",
    "ZAR",
)
"""Words that may precede a number. Other words make a code, such as SKU 123 or flat 12."""
MORE_WORDS = r"(?: [^\W\d_][^\s\d,]*[23]?){0,2}"
"""The pattern of the other words of a unit, such as in of cu in."""
WORD_FACTORS: dict[str, dict[str, float]] = {
    "factors": {
        **dict.fromkeys(("k", "tsd", "tsd.", "thousand", "\u5343"), 1e3),
        **dict.fromkeys(("m", "mn", "mio", "mio.", "million", "millions"), 1e6),
        **dict.fromkeys(("b", "bn", "mrd", "mrd.", "billion", "billions"), 1e9),
        **dict.fromkeys(("t", "tn", "trillion"), 1e12),
        **{"\u4e07": 1e4, "\u842c": 1e4, "\u5104": 1e8, "\u4ebf": 1e8},
        **{"lakh": 1e5, "crore": 1e7},
    },
    "bytes": {
        **{"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12},
        **{"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40},
    },
    "durations": {
        **dict.fromkeys(("d", "day", "days"), 86400.0),
        **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "std."), 3600.0),
        **dict.fromkeys(("m", "min", "min.", "mins", "minute", "minutes", "minuten"), 60.0),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sek."), 1.0),
        "ms": 1e-3,
    },
}
"""By what words behind a number multiply it, in small letters, by notation. Durations: seconds."""
WORD_BEHIND = r"(?<=[0-9.,])\s*([^\W\d_]+\.?)"
"""The pattern of a word behind a number. Its group is the word."""
CLOCK_TIME = (
    r"([+-]?)([0-9]+):([0-5][0-9])(?::([0-5][0-9]))?([.,][0-9]+)?(?:\s?([AaPp])\.?[Mm]\.?)?"
)
"""The pattern of a clock: sign, two or three parts, decimals of seconds, a or p of am and pm."""
ANGLE = (
    r"([+-]?)([0-9]+(?:[.,][0-9]+)?)\s*\u00b0?\s*(?:([0-9]+(?:[.,][0-9]+)?)\s*['\u2032\u2019]\s*)?"
    r"(?:([0-9]+(?:[.,][0-9]+)?)\s*(?:\x22|\u2033|\u201d|'')\s*)?([NSEW]?)"
)
"""The pattern of a latitude or longitude: sign, degrees, minutes, seconds, and the direction."""
DECIMAL_COMMA = "decimal_comma"
"""The attribute of columns whose file writes decimal commas elsewhere, so that 1,234 is 1.234."""
_CODE = re.compile(r"0[0-9]{2,}")
"""A whole number with leading zeros. They say that it is a code, such as the postal code 00501."""
_MOST_WORDS = 0.5
"""Up to this share of a column of numbers may be words for a missing one."""
_PLAIN = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?", re.IGNORECASE | re.ASCII
)
_WITH_SEPARATORS = re.compile(NUMBER_WITH_SEPARATORS)
_WITH_DECIMAL_COMMA = re.compile(NUMBER_WITH_DECIMAL_COMMA)
_WITH_POINTS = re.compile(r"[+-]?(?:[1-9][0-9]{0,2}(?:[.][0-9]{3})+|[0-9]{1,3})")
# A word behind a number may end in an exponent, as in 54 m2. A unit may have more words.
_WITH_WORD = re.compile(
    rf"[+-]?\s*({'|'.join(map(re.escape, CURRENCIES))})\s*[+-]?[\d.,]*\d[\d.,]*"
    rf"|[+-]?[\d.,]*\d[\d.,]*\s*((?:°|[^\W\d_])[^\s\d,]*[23]?{MORE_WORDS})"
)
_WORD_BEHIND = re.compile(WORD_BEHIND)
_CLEAR_ANGLE = re.compile(r"\u00b0[^NSEW]*[NSEW]$|\u00b0.*['\u2032\u2019]")
# Without the sign, 8.54 W may also be watts, and 42 E and 40 W sizes of shoes.
_LIKELY_ANGLE = re.compile(r"[+-]?(?:[0-9]{1,2}|1[0-7][0-9])[.,][0-9]{2,}\s*([NSEW])")
# What may be a number in some notation: these decide what a comma means.
_OF_DIGITS = re.compile(r"[+-]?[\d.,]*\d[\d.,]*", re.ASCII)


@dataclass(frozen=True)
class NumberText:
    """How a column writes numbers as text.

    Attributes:
        has_thousands: Whether commas separate thousands.
        has_decimal_comma: Whether a comma precedes decimals, and points separate thousands.
        unit: The sign or words next to each number, such as %, CHF, m2 or cu in, or "" for none.
            58.1% is read as 58.1, and 1 year as one of years.
        missing: Texts that count as missing besides the usual markers, in small letters.
        notation: How the size of a number is written: "factors" such as 1.2k next to 3M; "bytes"
            such as 512 MB; "durations" such as 2h 5m or 01:30:00, in seconds; "clock" for
            hours and minutes such as 14:30, also in seconds; "laps" for minutes and seconds such
            as 1:32.5, perhaps next to 1:02:10, also in seconds; "angles" such as 8.54° W, in
            degrees; or "" for plain numbers.
    """

    has_thousands: bool = False
    missing: tuple[str, ...] = ()
    unit: str = ""
    has_decimal_comma: bool = False
    notation: str = ""

    def parse(self, text: str) -> float:
        """Return the number that a text means, or NaN if it is missing.

        A word such as unknown is missing, even if training had none.

        Args:
            text: The text. Spaces around it and the case of letters do not count.

        Raises:
            ValueError: If it is not a number.

        Example:
            >>> NumberText(has_thousands=True).parse(" 1,200.5")
            1200.5
            >>> NumberText(has_decimal_comma=True).parse("1.200,5")
            1200.5
            >>> NumberText(missing=("unknown",)).parse("Unknown")
            nan
            >>> NumberText(unit="%").parse("58.1 %")
            58.1
            >>> NumberText(notation="factors").parse("2.5 bn")
            2500000000.0
        """
        bare = text.strip()
        number, factor = without_factor(plain_signs(bare), self.notation)
        number = _without_unit(number, self.unit)
        if self.has_decimal_comma and _WITH_DECIMAL_COMMA.fullmatch(number):
            return factor * float(number.replace(".", "").replace(",", "."))
        if _PLAIN.fullmatch(number):
            return factor * float(number)
        if self.has_thousands and _WITH_SEPARATORS.fullmatch(number):
            return factor * float(number.replace(",", ""))
        if is_marker(bare) or bare.lower() in self.missing or bare.lower() in MISSING_WORDS:
            return math.nan
        raise ValueError(f"{text!r} is not a number")

    def parse_all(self, values: pd.Series) -> np.ndarray:
        """Return the numbers of a column, as `parse` reads them.

        Args:
            values: Texts, or any values that are written as text. Missing ones become NaN.

        Raises:
            ValueError: If a value is not a number. The message shows the row of the first.
        """
        numbers, wrong = self._parse_each(values)
        if len(wrong):
            row, value = values.index[wrong[0]], values.iloc[wrong[0]]
            raise ValueError(f"row {row} (from 0) holds {value!r}")
        return numbers

    def unreadable(self, values: pd.Series) -> np.ndarray:
        """Return the positions of the values of a column that `parse` cannot read.

        Args:
            values: As in `parse_all`.
        """
        return self._parse_each(values)[1]

    def for_new(self, texts: Iterable[str]) -> NumberText:
        """Return how new rows write numbers, which may have a unit that training did not have.

        Args:
            texts: The texts of the new rows.
        """
        unit = self.unit if self.unit or self.notation else new_unit(texts)
        return replace(self, unit=unit) if unit != self.unit else self

    def _parse_each(self, values: pd.Series) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of a column, and the positions of those that cannot be read."""
        codes, distinct = distinct_values(values)
        numbers = np.full(len(distinct) + 1, np.nan)  # the last one is for missing values
        wrong = []
        for place, value in enumerate(distinct):
            try:
                numbers[place] = self._number(value)
            except ValueError:
                wrong.append(place)
        return numbers[codes], np.flatnonzero(np.isin(codes, wrong))

    def _number(self, value: object) -> float:
        if isinstance(value, int | float | np.number):
            return float(value)
        return self.parse(str(value))


def text_of_category(value: object, known: Container[Any]) -> str:
    """Return a category as text. A whole number is written 1 or 1.0, whichever is known.

    Args:
        value: A value that is not missing.
        known: The texts of the known categories.

    Example:
        >>> text_of_category(1.0, {"1", "2"}), text_of_category(2, {"2.0"})
        ('1', '2.0')
        >>> text_of_category(2.5, {"2.0"})
        '2.5'
    """
    text = str(value)
    if (
        text in known
        or isinstance(value, str | bool | np.bool_)
        or not isinstance(value, SupportsFloat)
    ):
        return text
    number = float(value)
    if not number.is_integer():
        return text
    return next((other for other in (str(int(number)), str(number)) if other in known), text)


def spelling_of(text: str) -> str:
    """Return a category without what people write in several ways: capitals and spaces around."""
    return text.strip().casefold()


def spellings(categories: Iterable[str]) -> dict[str, str]:
    """Return the category that each spelling means. Of several alike, it is the first.

    Args:
        categories: The categories, the most frequent first.

    Example:
        >>> spellings(["yes", "Yes", "NO"])
        {'no': 'NO', 'yes': 'yes', 'NO': 'NO', 'Yes': 'Yes'}
    """
    last_first = list(categories)[::-1]
    by_spelling = {spelling_of(category): category for category in last_first}
    # Without its spaces, a text may be a category as it is.
    return {**by_spelling, **{category.strip(): category for category in last_first}}


def category_in(text: str, spelled: Mapping[str, str]) -> str:
    """Return the category that a text means, or the text if it means none.

    Args:
        text: The text, which is not itself a category.
        spelled: As `spellings` returns it.

    Example:
        >>> [category_in(text, spellings(["yes", "Yes", "NO"])) for text in (" Yes", "YES", "on")]
        ['Yes', 'yes', 'on']
    """
    return spelled.get(text.strip(), spelled.get(spelling_of(text), text))


PLAIN_NUMBERS = NumberText()


def plain_signs(text):  # type: ignore[no-untyped-def]
    """Return a number without signs between thousands that are no commas, and its minus in front.

    Apostrophes and spaces may be between thousands. Negative numbers may have parentheses, as in
    accounting, a minus behind them, or a long minus. 12.- has no cents.

    Example:
        >>> plain_signs("1'200.50"), plain_signs("1 200 kg"), plain_signs("2024 100")
        ('1200.50', '1200 kg', '2024 100')
        >>> plain_signs("(12.50)"), plain_signs("12.50-"), plain_signs("12.-")
        ('-12.50', '-12.50', '12')
    """
    spaces = "'\u2019\u00a0\u2009\u202f "
    # Most texts have no sign that could change, apart from a minus in front.
    if not re.search(rf"[{spaces}(\u2013\u2014\u2212]|(?s:.)-", text):
        return text
    grouped = rf"(?<![0-9.,])([1-9][0-9]{{0,2}})(([{spaces}])[0-9]{{3}}(?:\3[0-9]{{3}})*)(?![0-9])"
    text = re.sub(grouped, lambda match: match[1] + match[2].replace(match[3], ""), text)
    text = re.sub("([0-9])[.,][-\u2013\u2014]+", r"\1", text.replace("\u2212", "-"))
    text = re.sub(r"^\u2013(?=\s*[0-9.])", "-", text)
    text = re.sub(r"^([^0-9()]*)\(([^()]*[0-9][^()0-9]*)\)$", r"-\1\2", text)
    return re.sub(r"^([0-9.,]*[0-9])\s?-$", r"-\1", text)


def unit_pattern(unit):  # type: ignore[no-untyped-def]
    """Return the pattern of a number with a unit before or after it. Its groups are the number.

    One of years is 1 year.

    Example:
        >>> re.fullmatch(unit_pattern("years"), "1 year").groups()
        (None, None, '1')
    """
    written = re.escape(unit)
    if len(unit) > 2 and unit.endswith("s"):
        written += "?"
    return rf"([+-]?)\s*{written}\s*(.+)|(.+?)\s*{written}"


def without_factor(text, notation):  # type: ignore[no-untyped-def]
    """Return a number without the word that multiplies it, and by what. See `NumberText.notation`.

    Durations and angles are returned as a plain number. Other texts are returned as they are.

    Example:
        >>> without_factor("$1.2k", "factors"), without_factor("14:30", "clock")
        (('$1.2', 1000.0), ('52200.0', 1.0))
        >>> without_factor("2h 5m", "durations"), without_factor("8\u00b030'W", "angles")
        (('7500.0', 1.0), ('-8.5', 1.0))
    """
    factors = WORD_FACTORS.get(notation, {})
    if notation in ("factors", "bytes"):
        match = re.search(WORD_BEHIND, text)
        if match and match[1].lower() in factors:
            return text[: match.start()] + text[match.end() :], factors[match[1].lower()]
    size = None
    if notation == "angles":
        size = degrees_of(text)
    elif notation in ("durations", "clock", "laps"):
        size = clock_seconds(text, notation)
        if size is None and notation == "durations":
            size = added_seconds(text, factors)
    return text if size is None else str(size), 1.0


def degrees_of(text):  # type: ignore[no-untyped-def]
    """Return an angle such as 8\u00b030'W in degrees, or None."""
    match = re.fullmatch(ANGLE, text)
    if match is None:
        return None
    parts = [float((part or "0").replace(",", ".")) for part in match.groups()[1:4]]
    size = parts[0] + parts[1] / 60 + parts[2] / 3600
    return -size if match[1] == "-" or match[5] in ("S", "W") else size


def clock_seconds(text, notation):  # type: ignore[no-untyped-def]
    """Return a time of day, a duration or a lap with colons in seconds, or None."""
    match = re.fullmatch(CLOCK_TIME, text)
    if match is None:
        return None
    parts = [int(part) for part in match.groups()[1:4] if part]
    is_read = {
        "clock": len(parts) == 2 and not match[5],
        "durations": len(parts) == 3,
        "laps": not match[6],
    }
    if not is_read[notation]:
        return None
    if match[6]:
        parts[0] = parts[0] % 12 + 12 * (match[6] in "pP")
    parts = [*parts, 0] if notation == "clock" else [0, *parts]
    size = 3600.0 * parts[-3] + 60.0 * parts[-2] + parts[-1]
    size += float("0" + (match[5] or "").replace(",", "."))
    return -size if match[1] == "-" else size


def added_seconds(text, factors):  # type: ignore[no-untyped-def]
    """Return a duration such as 2h 5m in seconds, or None."""
    amount = r"([0-9]+(?:[.,][0-9]+)?)\s*([^\W\d_]+\.?)"
    if re.fullmatch(rf"[+-]?(?:{amount}[\s,]*)+", text) is None:
        return None
    # A single letter keeps its case, as M and m may differ.
    parts = [
        (float(number.replace(",", ".")), word if len(word) == 1 else word.lower())
        for number, word in re.findall(amount, text)
    ]
    if not all(word in factors for _, word in parts):
        return None
    size = sum(number * factors[word] for number, word in parts)
    return -size if text[0] == "-" else size


def _notation_of(counts: Mapping[str, int]) -> str:
    """Return the notation of a column of numbers, or "" for plain ones. See `NumberText.notation`.

    Words that could also be a unit, such as m, count only next to clear ones, and a word that all
    numbers have is a unit.

    Args:
        counts: How often each text occurs, as `known_texts` returns it.
    """
    known = {text: count for text, count in counts.items() if text.lower() not in MISSING_WORDS}
    words = {word for text in known for word in _WORD_BEHIND.findall(text)}
    kinds = {word.lower() for word in words}
    has_bare = any(_WORD_BEHIND.search(text) is None for text in known)
    may_be = {
        "laps": _are_laps(known),
        "clock": any(":" in text for text in known),
        "durations": any(":" in text for text in known) or len(kinds) > 1,
        "angles": any(map(_CLEAR_ANGLE.search, known)) or _have_opposite_directions(known),
        "bytes": len(kinds) > 1 and kinds <= WORD_FACTORS["bytes"].keys() != {"b"},
        "factors": len(kinds & WORD_FACTORS["factors"].keys()) + has_bare > 1
        and _are_clear_factors(words, known),
    }
    for notation in (name for name, is_possible in may_be.items() if is_possible):
        num_read = 0
        for text, count in known.items():
            noted, _ = without_factor(text, notation)
            number = _without_unit(noted, _unit_in(noted))
            is_number = _OF_DIGITS.fullmatch(number) or _PLAIN.fullmatch(number)
            num_read += count * bool(is_number and (noted != text or notation == "factors"))
        if num_read >= NEARLY_NUMBERS * sum(known.values()):
            return notation
    return ""


def _are_laps(texts: Iterable[str]) -> bool:
    """Return whether texts are minutes and seconds, such as 1:32.5, and no hours and minutes.

    Either seconds have decimals, or minutes go beyond the 23 of a day and not beyond the 59 of an
    hour, from where on there are hours, if any: 59:30 next to 1:02:10.
    """
    clocks = [match for text in texts if (match := re.fullmatch(CLOCK_TIME, text))]
    short = [match for match in clocks if not match[4]]
    if any(match[6] for match in clocks) or not short:
        return False
    longest = max(int(match[2]) for match in short)
    return any(match[5] for match in short) or 23 < longest < 60


def _have_opposite_directions(texts: Iterable[str]) -> bool:
    """Return whether texts are angles with the two directions of an axis, such as N and S."""
    matches = [_LIKELY_ANGLE.fullmatch(text) for text in texts]
    directions = {match[1] for match in matches if match is not None}
    return all(matches) and (directions == {"N", "S"} or directions == {"E", "W"})


def _are_clear_factors(words: Iterable[str], texts: Iterable[str]) -> bool:
    """Return whether some words can only multiply: k, bn, or M behind decimals, but not 5 m.

    Letters of whole numbers that skip one, such as 12K and 5B without any M, are rather parts of
    codes, such as doors of a house.
    """
    factors = {word.lower() for word in words} & WORD_FACTORS["factors"].keys()
    if any(re.search(r"[0-9][.,][0-9]+\s*[KMBT]\b", text, re.IGNORECASE) for text in texts):
        return True
    letters = "".join(sorted(factors, key=lambda word: WORD_FACTORS["factors"][word]))
    if factors <= set("kmbt") and letters not in "kmbt":
        return False
    return any(word not in ("m", "b", "t") for word in factors)


def has_leading_zeros(texts: Iterable[str]) -> bool:
    """Return whether some whole numbers have leading zeros, which makes them codes.

    Numbers of two digits, such as the hours 00 to 23, are numbers.

    Example:
        >>> has_leading_zeros(["12345", "00501"]), has_leading_zeros(["01", "12", "0.50"])
        (True, False)
    """
    return any(_CODE.fullmatch(text.strip()) for text in texts)


def is_marker(text: str) -> bool:
    """Return whether a text is one of the usual markers of a missing value, such as ? or n/a."""
    return text.strip().lower() in MISSING_MARKERS


def number_text_of(values: pd.Series, *, min_share: float = NEARLY_NUMBERS) -> NumberText | None:
    """Return how a column of text writes numbers, or None for other columns.

    Commas separate thousands if every value of digits has them in all of these places: 950 and
    1,200, but not also 1200 or 1,5. Otherwise they precede decimals if every value of digits has at
    most one, and points only separate thousands: 1.200,5 and 1,25. If the file of the column has
    decimal commas (`DECIMAL_COMMA` among `values.attrs`), that is tried first, since 1,234 could be
    either. A few values may be written in another way if most of the others can only mean one
    thing: 12.5 next to 1.200,5 is a plain number, and 1,2,3 counts as missing. A sign is a unit
    only if no number is without one. A word is a unit if at least half of the numbers have it and
    the others have none. A few numbers with another unit, such as one in dollars among euros, count
    as missing. Whole numbers alone are text on purpose, such as codes, because a text file would
    have read them as numbers. So are numbers with leading zeros.

    Args:
        values: The column. Columns of the type category are left alone.
        min_share: Share of the known values that must be numbers. Others count as missing. Below 1,
            half is enough if all others are words such as unknown.
    """
    from pandas import CategoricalDtype

    if not is_text(values) or isinstance(values.dtype, CategoricalDtype):
        return None
    counts = known_texts(values)
    if has_leading_zeros(counts):
        return None
    notation = _notation_of(counts)
    plain = {text: without_factor(text, notation)[0] for text in counts}
    without, unit = without_units(_counts(plain.values(), counts.values()))
    bare = {text: without[plain[text]] for text in counts}
    of_digits = {
        text: count
        for text, count in _counts(bare.values(), counts.values()).items()
        if _OF_DIGITS.fullmatch(text)
    }
    form = _form_of(of_digits, has_decimal_commas=bool(values.attrs.get(DECIMAL_COMMA)))
    has_thousands, has_decimal_comma = form is _WITH_SEPARATORS, form is _WITH_DECIMAL_COMMA
    others = {
        text: count
        for text, count in counts.items()
        if not (form.fullmatch(bare[text]) or _PLAIN.fullmatch(bare[text]))
    }
    total = sum(counts.values())
    num_numbers = total - sum(others.values())
    has_separators = has_thousands or has_decimal_comma
    is_plain = not (others or has_separators or unit or notation) and total == int(
        values.notna().sum()
    )
    if is_plain and all(text.isdigit() for text in values.dropna().astype(str).unique()):
        return None
    if min_share < 1.0 and all(text.lower() in MISSING_WORDS for text in others):
        min_share = _MOST_WORDS
    if not num_numbers or num_numbers < min_share * total:
        return None
    missing = tuple(sorted({text.lower() for text in others}))
    return NumberText(has_thousands, missing, unit, has_decimal_comma, notation)


def shows_decimal_commas(
    columns: Iterable[Sequence[str]], *, are_usual: bool = False
) -> bool | None:
    """Return whether the columns of a file show that it writes decimal commas.

    Args:
        columns: The texts of each column.
        are_usual: Whether files of this form usually have decimal commas, as those with semicolons
            between columns: then 12.5 in another column, such as a version, does not count against
            12,5 in one.

    Returns:
        True if a column writes numbers such as 12,5, False if one has numbers such as 1,234,567 or
        12.5, and None if all could be either.

    Example:
        >>> shows_decimal_commas([["1,234", "2,345"], ["12,5", "3,25"]])
        True
        >>> shows_decimal_commas([["1,234", "2,345"], ["12.5", "3.25"]])
        False
        >>> shows_decimal_commas([["1,234", "2,345"]]) is None
        True
    """
    has_others, has_points = False, False
    has_decimal_commas = False
    for texts in columns:
        if not any("," in text or "." in text for text in texts):
            continue
        bare, _ = without_units(_counts(texts))
        numbers = [text for text in bare.values() if _is_readable(text)]
        if not numbers or len(numbers) < NEARLY_NUMBERS * len(bare):
            continue
        if not _have_thousands(numbers) and _have_decimal_commas(numbers):
            has_decimal_commas = True
        else:
            others = [number for number in numbers if not _WITH_DECIMAL_COMMA.fullmatch(number)]
            has_others |= any("," in number for number in others)
            has_points |= any("." in number for number in others)
        if has_others or (has_points and not are_usual):
            return False  # a table of thousands of columns need not be read to its end
    if has_points and not has_decimal_commas:
        return False
    return has_decimal_commas or None


def has_decimal_points(texts: Iterable[str], separator: str) -> bool:
    """Return whether a file writes decimal points in columns that had decimal commas in training.

    A program that reads a table and writes it again may turn 1,234 into 1.234.

    Args:
        texts: The cells of these columns.
        separator: What separates the columns of the file.

    Example:
        >>> has_decimal_points(["1.234"], ","), has_decimal_points(["1.234"], ";")
        (True, False)
        >>> has_decimal_points(["1.234", "12.5"], ";"), has_decimal_points(["1.234", "12,5"], ",")
        (True, False)
    """
    known = [text.strip() for text in texts]
    if any("," in text for text in known):
        return False
    return separator != ";" or any(
        "." in text and _PLAIN.fullmatch(text) and not _WITH_DECIMAL_COMMA.fullmatch(text)
        for text in known
    )


def may_be_thousands(texts: Iterable[str]) -> bool:
    """Return whether numbers may have points between thousands, and at least one has.

    Args:
        texts: The values of a column. Markers of missing values are ignored.
    """
    known = [text.strip() for text in texts if not is_marker(text)]
    return any("." in text for text in known) and all(map(_WITH_POINTS.fullmatch, known))


def _form_of(numbers: Mapping[str, int], *, has_decimal_commas: bool) -> re.Pattern[str]:
    """Return the form that numbers have in common, apart from a few that are written otherwise.

    Args:
        numbers: How often each text of digits, points and commas occurs.
        has_decimal_commas: Whether their file has decimal commas.
    """
    readable = [text for text in numbers if _is_readable(text)]
    if has_decimal_commas and _may_have_decimal_commas(readable):
        return _WITH_DECIMAL_COMMA
    if _have_thousands(readable):
        return _WITH_SEPARATORS
    if _have_decimal_commas(readable):
        return _WITH_DECIMAL_COMMA
    for form, other, signs in (
        (_WITH_SEPARATORS, _WITH_DECIMAL_COMMA, ","),
        (_WITH_DECIMAL_COMMA, _WITH_SEPARATORS, ",."),
    ):
        fitting = [text for text in readable if form.fullmatch(text)]
        signed = [text for text in fitting if any(sign in text for sign in signs)]
        num_clear = sum("," in text and not other.fullmatch(text) for text in signed)
        num_fitting = sum(numbers[text] for text in fitting)
        # Plain decimals such as 1.234 must not become thousands because of a single 3,5.
        if num_fitting >= NEARLY_NUMBERS * sum(numbers.values()) and 2 * num_clear > len(signed):
            return form
    return _PLAIN


def _is_readable(text: str) -> bool:
    """Return whether a text is a number in any of the forms, unlike 1,2,3 or 12..5."""
    return any(form.fullmatch(text) for form in (_PLAIN, _WITH_SEPARATORS, _WITH_DECIMAL_COMMA))


def _have_thousands(texts: Sequence[str]) -> bool:
    return any("," in text for text in texts) and all(map(_WITH_SEPARATORS.fullmatch, texts))


def _may_have_decimal_commas(texts: Sequence[str]) -> bool:
    has_signs = any("," in text or "." in text for text in texts)
    return has_signs and all(map(_WITH_DECIMAL_COMMA.fullmatch, texts))


def _have_decimal_commas(texts: Sequence[str]) -> bool:
    """Return whether all numbers may have decimal commas, and most commas can only be these."""
    with_comma = [text for text in texts if "," in text]
    num_others = sum(_WITH_SEPARATORS.fullmatch(text) is not None for text in with_comma)
    return 2 * num_others < len(with_comma) and all(map(_WITH_DECIMAL_COMMA.fullmatch, texts))


_SHORT_MULTIPLIERS = ("k", "K", "T", "M", "G", "B", "mn", "bn", "tn", "千", "万", "萬", "億", "亿")
_MULTIPLIERS = frozenset(
    (*_SHORT_MULTIPLIERS, "Tsd", "Tsd.", "Mio", "Mio.", "Mrd", "Mrd.", "thousand", "million")
)
"""Words that multiply the number before them."""


def without_units(counts: Mapping[str, int]) -> tuple[dict[str, str], str]:
    """Return texts without the common unit of the numbers among them, and that unit.

    Args:
        counts: How often each text occurs.

    Returns:
        The texts, and the unit as in `number_text_of`, or "" for none.
    """
    units = units_of(counts)
    unit = max(units, key=lambda name: (units[name], name), default="")
    # 54 and 54 m2 are the same quantity, but 0.5 and 50% may mean the same share, and 950 and 2.8k
    # differ by a factor.
    changes_value = unit in UNITS or unit in _MULTIPLIERS
    num_others = sum(units.values()) - units.get(unit, 0) - units.get("", 0)
    has_few_others = num_others <= (1.0 - NEARLY_NUMBERS) * sum(units.values())
    if not has_few_others or (changes_value and "" in units):
        unit = ""
    return {text: _without_unit(text, unit) for text in counts}, unit


def units_of(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many of some texts are numbers with each unit, where "" means no unit.

    Args:
        counts: How often each text occurs.
    """
    units: dict[str, int] = {}
    for text, count in counts.items():
        unit = _unit_in(text)
        if _OF_DIGITS.fullmatch(number := _without_unit(text, unit)) or _PLAIN.fullmatch(number):
            units[unit] = units.get(unit, 0) + count
    for unit in [name for name in units if len(name) > 1 and f"{name}s" in units]:
        units[f"{unit}s"] += units.pop(unit)
    return units


def _unit_in(text: str) -> str:
    """Return the sign in a text, or the word next to a number, or "" without either."""
    if (sign := next((sign for sign in UNITS if sign in text), "")) or _PLAIN.fullmatch(text):
        return sign
    match = _WITH_WORD.fullmatch(text)
    if match is None:
        return ""
    return match[1] or match[2]


def _without_unit(text: str, unit: str) -> str:
    """Return a text without the unit before or after it, if it has the unit."""
    match = unit and re.fullmatch(unit_pattern(unit), text)
    if not match:
        return text
    return "".join(filter(None, match.groups()))


NEW_FACTORS = _MULTIPLIERS
"""Words next to a number that change it, so that it cannot be read without them."""
_SIGNS = UNITS.replace("%", "").replace("‰", "")
NEW_UNIT = (
    rf"[+-]?\s*({'|'.join(map(re.escape, (*_SIGNS, *CURRENCIES)))})?\s*[+-]?[\d.,]*\d[\d.,]*"
    rf"\s*(?![eE][\d+-])((?:[{_SIGNS}°]|[^\W\d_])[^\s\d,+-]*[23]?{MORE_WORDS})?"
)
"""The pattern of a number with a unit before or after it, which are its groups."""


def new_unit(texts):  # type: ignore[no-untyped-def]
    """Return the unit that new rows write next to a number that had none in training, or nothing.

    At least half of the numbers have it, and most of those with a unit. If only a few have one,
    such as $ among plain numbers, they may be other quantities. A share in % or a word such as k
    changes the number.

    Args:
        texts: The texts. Repeated ones count once.

    Example:
        >>> new_unit(["12 €", "7"]), new_unit(["12 €", "$7"]), new_unit(["12k"])
        ('€', '', '')
        >>> new_unit(["12 €", "15 €", "12 $"]), new_unit(["12 €", "15", "7"])
        ('€', '')
    """
    matches = [re.fullmatch(NEW_UNIT, plain_signs(text.strip())) for text in set(texts)]
    num_numbers = sum(match is not None for match in matches)
    units = [match[1] or match[2] for match in matches if match and (match[1] or match[2])]
    unit = max(sorted(set(units)), key=units.count, default="")
    is_of_most = num_numbers <= 2 * units.count(unit) > len(units)
    return unit if is_of_most and unit not in NEW_FACTORS else ""


def new_decimal_comma(texts, is_usual):  # type: ignore[no-untyped-def]
    """Return a number with a decimal comma if new rows write these and training had points.

    Every number must be readable so, and most with a comma unlike 1,234, maybe a thousand.
    Otherwise nothing is returned.

    Args:
        texts: The texts of the columns of numbers, of all rows.
        is_usual: Whether 1,234 is also taken to have a decimal comma.

    Example:
        >>> new_decimal_comma(["0,4", "1.200,5", "n/a"], False), new_decimal_comma(["1,234"], True)
        ('0,4', '1,234')
        >>> new_decimal_comma(["1,234"], False), new_decimal_comma(["0,4", "12.5"], True)
        ('', '')
    """
    found = [re.search("[+-]?[0-9.,]*[0-9][0-9.,]*", plain_signs(text.strip())) for text in texts]
    numbers = [match[0] for match in found if match]
    if not all(re.fullmatch(NUMBER_WITH_DECIMAL_COMMA, number) for number in numbers):
        return ""
    with_comma = [number for number in numbers if "," in number]
    clear = [text for text in with_comma if not re.fullmatch(NUMBER_WITH_SEPARATORS, text)]
    is_shown = is_usual or 2 * len(clear) > len(with_comma)
    return next(iter(clear or with_comma), "") if is_shown else ""


def known_texts(values: pd.Series) -> dict[str, int]:
    """Return how often each known text of a column occurs, as `plain_signs` writes it."""
    codes, distinct = distinct_values(values)
    times = np.bincount(codes[codes != MISSING], minlength=len(distinct)).tolist()
    return _counts(map(str, distinct), times)


def _counts(texts: Iterable[str], times: Iterable[int] = itertools.repeat(1)) -> dict[str, int]:
    counts: dict[str, int] = {}
    plain = map(plain_signs, map(str.strip, texts))
    for text, count in zip(plain, times):  # noqa: B905  (one may be endless)
        counts[text] = counts.get(text, 0) + count
    return {text: count for text, count in counts.items() if not is_marker(text)}
