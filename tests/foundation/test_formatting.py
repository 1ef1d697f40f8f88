from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation import formatting
from workbench.foundation.errors import ArgumentError, ExperimentError

# The panel's tests read the same file. In numbers, "NaN", "Infinity" and "-Infinity" stand for
# themselves.
CASES = json.loads((Path(__file__).parent / "formatting.json").read_text())
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
UNITS_S = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
numbers = st.floats(allow_nan=False, allow_infinity=False)
measured = numbers.filter(lambda value: not value.is_integer())
durations = st.floats(0, 1e9)
sizes = st.integers(0, 2**55)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['function']} {case['input']}")
def test_every_surface_writes_the_same_text(case: dict[str, Any]) -> None:
    write = getattr(formatting, f"format_{case['function']}")
    given_ = case["input"]
    if case["function"] != "value" and isinstance(given_, str):
        given_ = NOT_FINITE[given_]
    assert (write(*given_) if case["function"] == "count" else write(given_)) == case["text"]


def test_every_function_has_cases() -> None:
    written = {
        name.removeprefix("format_") for name in vars(formatting) if name.startswith("format_")
    }
    assert {case["function"] for case in CASES} == written - {"range"}


def test_a_range_is_one_value_where_both_ends_read_the_same() -> None:
    assert formatting.format_range(1.0, 3.0, formatting.format_money) == "$1.00 to $3.00"
    assert formatting.format_range(60.1, 60.2, formatting.format_duration) == "1 min"


@given(measured)
def test_a_number_is_read_back_with_four_significant_digits(value: float) -> None:
    assert float(formatting.format_number(value)) == pytest.approx(value, rel=5.001e-4)


@given(st.integers())
def test_a_whole_number_is_written_in_full(value: int) -> None:
    assert formatting.format_number(value) == str(value)


@given(measured, measured)
def test_the_larger_number_is_never_written_as_the_smaller_one(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert float(formatting.format_number(low)) <= float(formatting.format_number(high))


def seconds_of(text: str) -> float:
    parts = text.replace(",", "").split()
    return sum(
        float(number) * UNITS_S[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True)
    )


@given(durations, durations)
def test_the_longer_duration_is_never_written_as_the_shorter_one(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert seconds_of(formatting.format_duration(low)) <= seconds_of(
        formatting.format_duration(high)
    )


@given(st.floats(1e-6, 1e9))
def test_a_written_duration_is_within_a_hundredth(seconds: float) -> None:
    assert seconds_of(formatting.format_duration(seconds)) == pytest.approx(seconds, rel=0.0101)


@given(st.integers(1, 3599))
def test_a_duration_below_an_hour_is_read_back_exactly(seconds: int) -> None:
    assert formatting.parse_duration_s(formatting.format_duration(seconds)) == seconds


@given(st.integers(1, 2**53 - 1))
def test_a_duration_of_a_setting_is_read_back_exactly(seconds: int) -> None:
    assert formatting.parse_duration_s(formatting.compact_duration(seconds)) == seconds


@pytest.mark.parametrize("seconds", [0, -1, 0.5, True, None, "1h", math.inf])
def test_what_is_not_a_duration_in_whole_seconds_stays_a_number(seconds: Any) -> None:
    assert formatting.compact_duration(seconds) is seconds


@given(sizes, sizes)
def test_the_larger_size_is_never_written_as_the_smaller_one(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert formatting.parse_bytes(formatting.format_bytes(low)) <= formatting.parse_bytes(
        formatting.format_bytes(high)
    )


@given(sizes)
def test_a_size_is_read_back_with_three_significant_digits(size: int) -> None:
    assert formatting.parse_bytes(formatting.format_bytes(size)) == pytest.approx(
        size, rel=5.001e-3, abs=0.5
    )


@given(st.floats(0, 10), st.floats(0, 10))
def test_the_larger_share_is_never_written_as_the_smaller_one(one: float, other: float) -> None:
    low, high = (
        float(formatting.format_percent(share).replace("<0.1%", "0.05").rstrip("%"))
        for share in sorted((one, other))
    )
    assert low <= high


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("90", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        ("4 min 5 s", 245),
        ("20ms", 0.02),
        ("50us", 50e-6),
        ("1 ms 30 µs", 1.03e-3),
        ("1s500ms", 1.5),
        (12, 12),
    ],
)
def test_durations_are_read_as_people_write_them(text: Any, seconds: float) -> None:
    assert formatting.parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "given", ["soon", "", None, True, [], -1, 0, "0", float("nan"), float("inf")]
)
def test_an_argument_that_is_no_duration_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"time: .* is not a duration greater than 0; allowed: such as"
    ):
        formatting.duration_argument_s(given, field="time")


def test_an_argument_may_be_a_duration_of_zero_where_that_makes_sense() -> None:
    assert formatting.duration_argument_s("0s", field="start_up", may_be_zero=True) == 0
    assert formatting.duration_argument_s("2m", field="start_up", may_be_zero=True) == 120


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 500_000_000),
        ("10 GB", 10**10),
        ("1.5TiB", 3 * 2**39),
        ("7", 7),
        ("12 b", 12),
        (12, 12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, size: int) -> None:
    assert formatting.parse_bytes(text) == size


@pytest.mark.parametrize("read", [formatting.parse_duration_s, formatting.parse_bytes])
@pytest.mark.parametrize("text", ["", "3 bananas", "-1h", "1e3s", "m"])
def test_other_text_is_refused_with_what_is_allowed(read: Any, text: str) -> None:
    with pytest.raises(ExperimentError, match=r"is not a \w+; allowed: such as"):
        read(text)


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("20Mbit", ("bit",), 2e7),
        ("0.5uJ/B", ("J/B",), 5e-7),
        ("2 W", ("W",), 2.0),
        ("1e3 kbit", ("bit",), 1e6),
    ],
)
def test_a_quantity_is_read_with_its_prefix(
    text: str, units: tuple[str, ...], value: float
) -> None:
    assert formatting.parse_quantity(text, units, allowed="") == pytest.approx(value)


@pytest.mark.parametrize(("text", "per_s"), [("0.1/s", 0.1), ("6/min", 0.1), ("36/h", 0.01)])
def test_a_rate_is_read_with_its_period(text: str, per_s: float) -> None:
    assert formatting.parse_rate_per_s(text) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["fast", "3", "-1/s", "1/year", ""])
def test_text_without_a_known_period_is_not_a_rate(text: str) -> None:
    with pytest.raises(ExperimentError, match="is not a rate"):
        formatting.parse_rate_per_s(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["lr"], "lr"),
        (["lr", "width"], "lr and width"),
        (["lr", "width", "depth", "seed"], "lr, width, depth and seed"),
    ],
)
def test_a_list_has_one_and(words: list[str], text: str) -> None:
    assert formatting.joined_by_and(iter(words)) == text
