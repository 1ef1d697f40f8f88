from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.number_texts import (
    MISSING_MARKERS,
    NumberText,
    is_marker,
    number_text_of,
    shows_decimal_commas,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MARKERS = st.sampled_from(sorted(MISSING_MARKERS)).flatmap(
    lambda marker: st.sampled_from([marker, marker.upper(), f" {marker} "])
)


def column(*values: object) -> pd.Series:
    return pd.Series(values, dtype=object, name="x")


@given(st.lists(NUMBERS, min_size=1), st.lists(MARKERS, min_size=1), st.randoms())
def test_markers_among_numbers_are_missing_and_the_numbers_are_kept(numbers, markers, random):
    cells = [*map(repr, numbers), *markers]
    random.shuffle(cells)
    form = number_text_of(column(*cells))
    assert form == NumberText()
    expected = [math.nan if is_marker(cell) else float(cell) for cell in cells]
    np.testing.assert_array_equal(form.parse_all(column(*cells)), expected)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.integers(1000, 10**9))
def test_thousands_separators_are_read(numbers, large):
    values = [*numbers, large]
    texts = column(*(f"{value:,}" for value in values), "n/a")
    form = number_text_of(texts)
    assert form == NumberText(has_thousands=True)
    np.testing.assert_array_equal(form.parse_all(texts), [*map(float, values), math.nan])
    assert form.parse("1200.5") == form.parse("1,200.5") == 1200.5


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.booleans())
def test_decimal_commas_are_read(hundredths, has_points):
    numbers = [value / 100 for value in [*hundredths, 123456789, 25]]
    written = [f"{value:,.2f}" if has_points else f"{value:.2f}" for value in numbers]
    texts = column(*(text.translate(str.maketrans(",.", ".,")) for text in written), "12", "n/a")
    form = number_text_of(texts)
    assert form == NumberText(has_decimal_comma=True)
    np.testing.assert_array_equal(form.parse_all(texts), [*numbers, 12.0, math.nan])


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        (("1.200,5 €", "3 €", "0,123€"), "€", [1200.5, 3.0, 0.123]),
        (("58.1%", "7 %", "-0.5%", None), "%", [58.1, 7.0, -0.5, math.nan]),
        (("$1,200.50", "-$3", "$ 950", "n/a"), "$", [1200.5, -3.0, 950.0, math.nan]),
        (("12€", "€ -4", "+1e3 €"), "€", [12.0, -4.0, 1000.0]),
        (("CHF 2,466", "CHF -950", ""), "CHF", [2466.0, -950.0, math.nan]),
        (("2257 CHF", "980CHF", "?"), "CHF", [2257.0, 980.0, math.nan]),
        (("54 m2", "60.5", "70m2", "n/a"), "m2", [54.0, 60.5, 70.0, math.nan]),
        (("1.5 km/h", "-3 km/h"), "km/h", [1.5, -3.0]),
        (("91 cu in", "146 cu in", "90cu in"), "cu in", [91.0, 146.0, 90.0]),
        (("12 miles per gallon", "30 miles per gallon"), "miles per gallon", [12.0, 30.0]),
        (("1 year", "12 years", "1.5 years", "1 year"), "years", [1.0, 12.0, 1.5, 1.0]),
    ],
)
def test_a_unit_that_stands_beside_every_number_is_left_out(values, unit, expected):
    form = number_text_of(column(*values))
    assert form is not None
    assert form.unit == unit
    np.testing.assert_array_equal(form.parse_all(column(*values)), expected)
    with pytest.raises(ValueError, match="is not a number"):
        form.parse(f"5{unit}5")


@pytest.mark.parametrize(
    "values",
    [
        ("5 kg", "3 lb"),
        ("5", "7", "3 kg"),
        ("flat 1", "flat 2"),
        ("SKU 17", "SKU 18"),
        ("12A", "7C"),
        ("58.1%", "7"),
        ("$5", "5€"),
        ("50%", "high", "low"),
        ("%", "$"),
        ("$a", "$b"),
        ("3 M", "2 M", "5"),
        ("3T", "2B"),
        ("12K", "5B", "7"),  # doors
        ("16:9", "4:3"),
        ("1:30", "01:30:00"),
        ("120 N", "7 S"),
        ("42 E", "40 W"),  # sizes of shoes
        ("42.5 E", "40.5 W"),
        ("2.50 N", "310.25 S"),
        ("12 Main Street", "7 Elm Street"),
        ("3 parts of the whole", "2 parts of the whole"),  # a sentence
        ("5 pint", "3 gallons"),
    ],
)
def test_texts_without_a_common_unit_are_no_numbers(values):
    assert number_text_of(column(*values)) is None


@pytest.mark.parametrize(
    ("values", "notation", "numbers"),
    [
        (("2.8k", "3.1k", "950"), "factors", (2800, 3100, 950)),
        (("1,2 Mio", "3,4 Mio", "900"), "factors", (1_200_000, 3_400_000, 900)),
        (("1.2万", "5.1万", "8000"), "factors", (12_000, 51_000, 8000)),
        (("$1.2k", "$3M", "$2,500"), "factors", (1200, 3_000_000, 2500)),
        (("950 Tsd. €", "-1,5 Mrd. €"), "factors", (950_000, -1.5e9)),
        (("12K", "5M", "7"), "factors", (12_000, 5_000_000, 7)),
        (("1.2k", "5B", "7"), "factors", (1200, 5e9, 7)),
        (("(1.5k)", "2M", "unknown"), "factors", (-1500, 2_000_000, np.nan)),
        (("512 MB", "1.5 GB", "1 TB"), "bytes", (5.12e8, 1.5e9, 1e12)),
        (("512 B", "1 KiB"), "bytes", (512, 1024)),
        (("2h 5m", "45m", "1 h"), "durations", (7500, 2700, 3600)),
        (("2h 5m", "1h 30m", "3h 0m"), "durations", (7500, 5400, 10_800)),
        (("5m 3s", "1h 30m 5s"), "durations", (303, 5405)),
        (("01:30:00", "-00:10:05.5"), "durations", (5400, -605.5)),
        (("1 day, 3 hours", "90 sec"), "durations", (97_200, 90)),
        (("2 Std. 5 Min.", "45 Min."), "durations", (7500, 2700)),
        (("1:30", "12:45", "?"), "clock", (5400, 45_900, np.nan)),
        (("2:35 PM", "12:05 am"), "clock", (52_500, 300)),
        (("0:00", "23:59"), "clock", (0, 86_340)),
        (("38:30", "160:00"), "clock", (138_600, 576_000)),  # of work in a month
        (("1:32.5", "1:31,456", "-0:02.25"), "laps", (92.5, 91.456, -2.25)),
        (("24:30", "59:59", "7:05"), "laps", (1470, 3599, 425)),
        (("59:30", "1:02:10", "1:10:05.5"), "laps", (3570, 3730, 4205.5)),
        (("47.3769\u00b0 N", "46.25 S"), "angles", (47.3769, -46.25)),
        (("8\u00b030'36\"E", "7\u00b015'W"), "angles", (8.51, -7.25)),
        (("47.38 N", "46.25 S"), "angles", (47.38, -46.25)),
    ],
)
def test_numbers_of_a_notation_have_their_size(values, notation, numbers):
    form = number_text_of(column(*values))
    assert form is not None
    assert form.notation == notation
    assert form.parse_all(column(*values)) == pytest.approx(numbers, nan_ok=True)


@pytest.mark.parametrize("letter", ["W", "E", "S", "N"])
def test_one_letter_behind_all_numbers_is_a_unit_and_no_direction(letter):
    texts = column(f"66.95 {letter}", f"100.0 {letter}", f"12 {letter}")
    form = number_text_of(texts)
    assert form is not None
    assert (form.notation, form.unit) == ("", letter)
    assert form.parse_all(texts) == pytest.approx((66.95, 100.0, 12.0))


def test_a_clock_of_other_parts_than_in_training_is_not_read():
    with pytest.raises(ValueError, match="14:30:10"):
        NumberText(notation="clock").parse("14:30:10")
    with pytest.raises(ValueError, match="14:30"):
        NumberText(notation="durations").parse("14:30")
    with pytest.raises(ValueError, match="2:30 pm"):
        NumberText(notation="laps").parse("2:30 pm")
    with pytest.raises(ValueError, match=r"14:30\.5"):
        NumberText(notation="clock").parse("14:30.5")


@pytest.mark.parametrize(
    ("marks", "malformed"),
    [
        (",.", ["1,2,3", "12..5", "1.2.3", "12,5", "1234,5"]),
        (".,", ["1,2,3", "12..5", "1.2.3", "12,34.5"]),
        ("", ["1,2,3", "12..5", "1.2.3", "12,5", "1.234,5"]),
    ],
)
def test_one_malformed_cell_of_a_hundred_is_missing_and_the_numbers_are_kept(
    marks: str, malformed: list[str]
) -> None:
    numbers = [round(17.25 * number, 2) for number in range(1, 100)]
    if marks:
        signs = str.maketrans(",.", marks)
        written = [f"{number:,.2f}".translate(signs) for number in numbers]
    else:
        written = [f"{number:.2f}" for number in numbers]
    for text in malformed:
        texts = column(*written, text)
        form = number_text_of(texts)
        assert form is not None
        assert form.missing == (text,)
        np.testing.assert_array_equal(form.parse_all(texts), [*numbers, math.nan])


def test_a_plain_decimal_among_decimal_commas_is_read_as_it_is_in_new_rows() -> None:
    written = [f"{number},25" for number in range(99)]
    form = number_text_of(column(*written, "12.5"))
    assert form == NumberText(has_decimal_comma=True)
    assert form.parse_all(column("7,25", "12.5")).tolist() == [7.25, 12.5]


def test_one_number_with_a_comma_turns_no_decimals_into_thousands() -> None:
    decimals = [f"{number}.{number:03}" for number in range(1, 99)]
    form = number_text_of(column(*decimals, "0.5", "3,5"))
    assert form is not None
    assert form.parse("7.007") == 7.007
    assert number_text_of(column(*decimals, "1,234.5", "3,5")).parse("7.007") == 7.007


def test_a_malformed_cell_does_not_hide_that_a_file_has_decimal_commas() -> None:
    written = [f"{number},25" for number in range(99)]
    assert shows_decimal_commas([[*written, "1,2,3"], ["1,234", "2,345"]]) is True
    assert shows_decimal_commas([[*written, "unknown"], ["1,234", "2,345"]]) is True


@pytest.mark.parametrize(
    "values",
    [
        ("1,200", "1,5", "2,300"),
        ("1,200", "1200", "3,000"),
        ("12,34", "1,200"),
        ("1,5", "2.5"),
        ("1,5", "1,2,3"),
    ],
)
def test_commas_of_which_some_separate_thousands_and_some_do_not_leave_text(values):
    assert number_text_of(column(*values)) is None


@pytest.mark.parametrize(
    "values",
    [
        ("a", "b", "?"),
        ("?", "-", None),
        (None, None),
        ("01234", "98765"),
        (True, None, "?"),
        ("1", "2", "three"),
        ("2026-01-31", "?"),
    ],
)
def test_other_columns_hold_no_numbers(values):
    assert number_text_of(column(*values)) is None


def test_a_column_that_was_made_one_of_categories_stays_so():
    assert number_text_of(column("1", "2", "?").astype("category")) is None
    assert number_text_of(pd.Series([1.0, 2.0])) is None


def test_a_few_other_texts_among_numbers_are_missing_and_no_further_ones():
    form = number_text_of(column(*map(str, range(95)), *["Unknown "] * 5, "?"))
    assert form == NumberText(missing=("unknown",))
    assert math.isnan(form.parse("unknown"))
    with pytest.raises(ValueError, match="'many' is not a number"):
        form.parse("many")
    assert number_text_of(column(*map(str, range(94)), *["large"] * 6)) is None
    form = number_text_of(column(*map(str, range(60)), *["Unknown "] * 40))
    assert form == NumberText(missing=("unknown",))


def test_one_number_with_another_unit_is_missing_and_more_of_them_leave_text():
    form = number_text_of(column(*(f"{value} €" for value in range(39)), "12 $"))
    assert form == NumberText(missing=("12 $",), unit="€")
    assert (form.parse("7 €"), form.parse("7")) == (7.0, 7.0)
    assert math.isnan(form.parse("12 $"))
    assert (
        number_text_of(column(*(f"{value} €" for value in range(37)), "1 $", "2 $", "3 $")) is None
    )
    # 0.5 may be the same share as 50%.
    assert number_text_of(column(*(f"{value}%" for value in range(39)), "0.5")) is None


def test_a_text_that_is_no_number_is_refused_with_its_row():
    values = pd.Series(["1", "?", "many"], index=[4, 5, 9])
    with pytest.raises(ValueError, match=r"row 9 \(from 0\) holds 'many'"):
        NumberText().parse_all(values)
