"""Writes quantities (numbers, durations, sizes, rates, shares, money, times), and reads them back.

Terminal, report, panel and notebook write a quantity in the same way. `extensions/src/format.ts`
does the same in TypeScript, and `tests/foundation/formatting.json` contains the cases that both
must pass. Ties are rounded up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeVar

from workbench.foundation.errors import ArgumentError, ExperimentError

Given = TypeVar("Given")

MISSING = "\u2013"  # an en dash

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHORT_UNITS = (("µs", 1e6, 1000), ("ms", 1e3, 1000), ("s", 1.0, 60))
_SETTING_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
LARGEST_WHOLE = 1e15
SMALLEST_FIXED = Decimal("0.001")
_LONGEST_S = 2**53

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i)?)?b?", re.IGNORECASE)
_STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
"""Control characters, those that change the direction of text, and halves of characters."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([numkMGTµμ]?)(.*)")
_PREFIXES = {
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "μ": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
}
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmbt]?)", re.IGNORECASE)
_PERIODS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EVENT_RATE = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*/\s*(s|min|h|d)")
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?"
    r"(?:(\d+(?:\.\d+)?)ms)?(?:(\d+(?:\.\d+)?)[uµ]s)?"
)


def printable(text: str) -> str:
    r"""Write text from outside for a terminal, with control and bidirectional characters escaped.

    Args:
        text: Any text, such as the message of an error. Line breaks and tabs are kept.

    Example:
        >>> printable("\x1b[2Jgone")
        '\\x1b[2Jgone'
    """
    return _STEERS.sub(lambda match: ascii(match[0])[1:-1], text)


def without_escapes(text: str) -> str:
    r"""Remove the sequences that color text in a terminal or steer it.

    Args:
        text: Any text, such as a line that a program printed.

    Example:
        >>> without_escapes("\x1b[1mbold\x1b[0m")
        'bold'
    """
    return _ESCAPES.sub("", text)


def format_number(value: float) -> str:
    """Write a number: whole numbers in full, others with four significant digits.

    Args:
        value: Any number, including NaN and infinity.

    Returns:
        Such as `0.9812`, `12346`, `3e-4` or `NaN`, without separators of thousands.
    """
    if isinstance(value, int):
        return str(value)
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return str(value)
    if value.is_integer() and abs(value) < LARGEST_WHOLE:
        return str(int(value))
    if 1000 <= abs(value) < 1e6:
        return str(whole(value))
    rounded = significant(value, 4)
    if SMALLEST_FIXED <= abs(rounded) < 1e6:
        return f"{rounded:f}"
    digits, exponent = f"{rounded:e}".split("e")
    return f"{digits}e{int(exponent)}"


def format_value(value: Any) -> str:
    """Write the value of a parameter as YAML would take it: `sgd`, `3e-4`, `true`, `[16, 32]`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return format_number(value)
    if isinstance(value, Mapping):
        items = (f"{name}: {format_value(item)}" for name, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    return str(value)


def format_params(params: Mapping[str, Any]) -> str:
    """Write a configuration, or metrics, as `name=value` separated by spaces."""
    return " ".join(f"{name}={format_value(value)}" for name, value in params.items())


def format_count(count: float, noun: str = "", plural: str = "") -> str:
    """Write how many there are: `5,120`, `1 trial`, `3 trials`.

    Args:
        count: A number, written whole.
        noun: The noun for one. Without it, only the number is written.
        plural: Its plural, if that is not the noun with an s.
    """
    number = whole(count)
    if not noun:
        return f"{number:,}"
    return f"{number:,} {counted_noun(number, noun, plural)}"


def joined_by_and(words: Iterable[str]) -> str:
    """Write a list in a sentence: `lr`, `lr and width`, `lr, width and depth`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted_noun(count: float, noun: str, plural: str = "") -> str:
    """Write a noun for a number, without the number: `trial` for 1, otherwise `trials`.

    See `format_count` for the arguments.
    """
    if count == 1:
        return noun
    return plural or f"{noun}s"


def compact_count(number: float) -> str:
    """Write a large number with three digits and a unit.

    Args:
        number: The number, from 0.

    Example:
        >>> compact_count(1_240_000_000), compact_count(38_912)
        ('1.24B', '38.9k')
    """
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"


def format_rate(per_s: float) -> str:
    """Write a rate without its unit: `5,120` from a hundred on, three significant digits below."""
    if not math.isfinite(per_s):
        return format_number(per_s)
    if abs(per_s) >= 100:
        return f"{whole(per_s):,}"
    return f"{significant(per_s, 3):f}"


def format_percent(share: float, *, has_tenths: bool = False) -> str:
    """Write a share of 1 in percent: `45%`, `4.5%`, `<0.1%`.

    Args:
        share: The share.
        has_tenths: Whether to write tenths from 10 % on as well, so that shares of a whole add up:
            `50.5%`.
    """
    if not math.isfinite(share):
        return MISSING
    if 0 < share < 1e-3:
        return "<0.1%"
    number, tenths = divmod(whole(abs(share) * 1000), 10)
    sign = ""
    if share < 0 and (number or tenths):  # not -0%
        sign = "-"
    if tenths and (has_tenths or number < 10):
        return f"{sign}{number}.{tenths}%"
    return f"{sign}{whole(abs(share) * 100)}%"


def format_money(amount: float, currency: str = "USD") -> str:
    """Write a sum such as `$12.50` or `12.50 EUR`.

    Whole units from a hundred, else cents. Below ten cents two significant digits, because 0.01 for
    half a cent would be twice as much.
    """
    if amount < 0.1:
        rounded = significant(amount, 2)
        written = max(f"{rounded:f}", f"{rounded:.2f}", key=len)
    elif amount < 99.995:
        written = f"{amount:,.2f}"
    else:
        written = f"{whole(amount):,}"
    if currency == "USD":
        return f"${written}"
    return f"{written} {currency}"


def format_bytes(num_bytes: float) -> str:
    """Write a size with three significant digits in binary units: `512 B`, `3.4 GiB`."""
    size = num_bytes
    for unit in _SIZE_UNITS[:-1]:
        # Compare the rounded size, or 999.6 KiB would be written as 1000 KiB.
        rounded = significant(size, 3)
        if rounded < 1000:
            return f"{rounded:f} {unit}"
        size /= 1024
    return f"{significant(size, 3):f} {_SIZE_UNITS[-1]}"


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units, or with three significant digits below a minute.

    Args:
        seconds: Seconds. A negative number counts as 0.

    Returns:
        Such as `850 µs`, `12.3 ms`, `4.5 s`, `4 min 5 s`, `2 h 7 min` or `3 d 4 h`.
    """
    if not math.isfinite(seconds):
        return MISSING
    if seconds <= 0:
        return "0 s"
    for unit, per_s, limit in _SHORT_UNITS:
        rounded = significant(seconds * per_s, 3)
        if rounded < limit:
            return f"{rounded:f} {unit}"
    if (whole_s := whole(seconds)) < 3600:
        return _two_units(whole_s, "min", 60, "s")
    if (minutes := whole(seconds / 60)) < 48 * 60:
        return _two_units(minutes, "h", 60, "min")
    return _two_units(whole(seconds / 3600), "d", 24, "h")


def format_age(seconds: float) -> str:
    """Write how long ago something was: `just now`, `10 min ago`, `2 h ago`, `3 d ago`."""
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h ago"
    return f"{int(seconds // 86400)} d ago"


def format_range(low: float, high: float, write: Callable[[float], str]) -> str:
    """Write an interval such as `4 min 5 s to 2 h`, or one value if both ends read the same.

    Args:
        low: The lower end.
        high: The upper end.
        write: Writes one end.
    """
    first, last = write(low), write(high)
    if first == last:
        return first
    return f"{first} to {last}"


def format_time(unix_s: float) -> str:
    """Write a moment in UTC: `2026-11-22 18:52:07 UTC`."""
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def compact_duration(seconds: Any) -> Any:
    """Write a duration as a setting or a command-line option takes it, such as `1h30m`.

    Args:
        seconds: A number of seconds, or anything else.

    Returns:
        Text that `parse_duration_s` reads, or `seconds` itself if it is not a whole, positive
        number.
    """
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < _LONGEST_S
    ):
        return seconds
    if seconds != int(seconds):
        return seconds
    written = ""
    rest_s = int(seconds)
    for unit, unit_s in _SETTING_UNITS:
        count, rest_s = divmod(rest_s, unit_s)
        if count:
            written += f"{count}{unit}"
    return written


def parse_duration_s(given: str | Given) -> float | Given:
    """Return the seconds of a duration such as `1h30m`, `90s`, `90`, `20ms`, `2d` or `4 min 5 s`.

    Args:
        given: Text with a number of seconds, or with days, hours, minutes, seconds, milliseconds
            and microseconds in this order. Or a value of another type.

    Returns:
        Seconds, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not a duration.
    """
    if not isinstance(given, str):
        return given
    text = "".join(given.split())
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not match or not any(match.groups()):
        raise ExperimentError(
            f"{given!r} is not a duration",
            allowed="such as 90s, 10m, 1h30m, or a number of seconds",
        )
    days, hours, minutes, seconds, milliseconds, microseconds = (
        float(part or 0) for part in match.groups()
    )
    return (
        ((days * 24 + hours) * 60 + minutes) * 60
        + seconds
        + milliseconds / 1e3
        + microseconds / 1e6
    )


def duration_argument_s(given: Any, *, field: str, may_be_zero: bool = False) -> float:
    """Return the seconds of a duration that is an argument of a function or a command.

    Args:
        given: Seconds, or the text of a duration.
        field: The name of the argument, for the error.
        may_be_zero: Whether zero is allowed.

    Raises:
        ArgumentError: If it is not a finite duration above 0, or 0 although that is not allowed.
    """
    try:
        seconds = parse_duration_s(given)
    except ExperimentError:
        seconds = math.nan
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        seconds = math.nan
    if not 0 <= seconds < math.inf or (seconds == 0 and not may_be_zero):
        problem = f"{given!r} is not a duration"
        if not may_be_zero:
            problem += " greater than 0"
        raise ArgumentError(
            problem, field=field, allowed="such as 90s, 10m, 1h30m, or a number of seconds"
        )
    return float(seconds)


def parse_bytes(given: str | Given) -> int | Given:
    """Return the bytes of a size such as `500MB` (powers of 1000) or `1.5TiB` (powers of 1024).

    Args:
        given: Text with a number and a unit, or a value of another type.

    Returns:
        Bytes, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not a size.
    """
    if not isinstance(given, str):
        return given
    match = _SIZE.fullmatch(given.strip())
    if not match:
        raise ExperimentError(
            f"{given!r} is not a size", allowed="such as 500MB, 10GB, 1.5TiB, or a number of bytes"
        )
    number, prefix, binary = match.groups()
    exponent = 0
    if prefix:
        exponent = " kmgtp".index(prefix.lower())
    size = float(number) * (1024 if binary else 1000) ** exponent
    if math.isinf(size):
        raise ExperimentError(
            f"{given[:40]!r}... is too large", allowed="a size that a disk can have"
        )
    return round(size)


def parse_count(given: str | Given) -> int | Given:
    """Return a number of things such as 20000000 for `20M`. k, M, B and T are powers of 1000.

    Args:
        given: Text with a number and perhaps a letter, or a value of another type.

    Returns:
        The number, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not such a number.
    """
    if not isinstance(given, str):
        return given
    match = _COUNT.fullmatch(given.strip())
    if not match:
        raise ExperimentError(
            f"{given[:40]!r} is not a number", allowed="such as 500k, 20M or 1.5B"
        )
    return round(float(match[1]) * 1000.0 ** " kmbt".index(match[2].lower() or " "))


def parse_quantity(given: str | Given, units: Collection[str], *, allowed: str) -> float | Given:
    """Return a quantity in its plain unit, such as 20000000.0 for `20Mbit` or 5e-7 for `0.5uJ/B`.

    Args:
        given: Text with a number, perhaps a prefix from n to T (powers of 1000), and a unit. Or a
            value of another type.
        units: Spellings of the plain unit.
        allowed: Examples, for the error.

    Returns:
        The number, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not such a quantity.

    Example:
        >>> parse_quantity("20Mbit", ("bit", "bit/s"), allowed="such as 20Mbit")
        20000000.0
    """
    if not isinstance(given, str):
        return given
    text = given.strip()
    if match := _QUANTITY.fullmatch(text):
        number, prefix, unit = match.groups()
        if unit.strip() in units:
            return float(number) * _PREFIXES[prefix]
    raise ExperimentError(f"{given!r} cannot be read", allowed=allowed)


def parse_rate_per_s(given: str | Given) -> float | Given:
    """Return events per second of a rate such as `0.1/s`, `6/min` or `100/h`.

    Args:
        given: Text with a number and a period, or a value of another type.

    Returns:
        Events per second, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not a rate.

    Example:
        >>> parse_rate_per_s("6/min")
        0.1
    """
    if not isinstance(given, str):
        return given
    match = _EVENT_RATE.fullmatch(given.strip())
    if not match:
        raise ExperimentError(f"{given!r} is not a rate", allowed="such as 0.1/s, 6/min, 100/h")
    return float(match[1]) / _PERIODS_S[match[2]]


def _two_units(count: int, unit: str, per_unit: int, rest_unit: str) -> str:
    whole, rest = divmod(count, per_unit)
    if not rest:
        return f"{whole:,} {unit}"
    return f"{whole:,} {unit} {rest} {rest_unit}"


def significant(value: float, digits: int) -> Decimal:
    """Return a number with some significant digits."""
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal_from_float(value)
    if not rounded:
        return Decimal(0)
    return rounded.normalize()


def whole(value: float) -> int:
    """Return the nearest whole number. A half is rounded up."""
    return math.floor(value + 0.5)
