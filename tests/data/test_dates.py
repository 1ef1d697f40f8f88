from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data import load
from workbench.data.column_encoding import learn_column
from workbench.data.dates import as_times, date_format_of, in_words, no_dates, with_date_order
from workbench.deploy.card import Input
from workbench.deploy.feeds import seconds_of
from workbench.deploy.predict_script import seconds
from workbench.foundation.errors import DataError

DAYS = pd.Series(pd.date_range("2022-01-03", periods=800), name="sold")


def column(*values: object) -> pd.Series:
    return pd.Series(values, dtype=object, name="sold")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("%Y-%m-%d", "year-month-day"),
        ("%Y-%m-%d %H:%M:%S", "year-month-day"),
        ("%Y-%m-%dT%H:%M:%S+00:00", "year-month-day"),
        ("%d/%m/%Y", "day/month/year"),
        ("%m/%d/%Y", "month/day/year"),
        ("%d.%m.%Y", "day.month.year"),
        ("%m/%d/%Y %H:%M", "month/day/year hour:minute"),
        ("%d %b %Y", "day month year"),
        ("%Y/%m/%d", "year/month/day"),
        ("%d.%m.%y", "day.month.year"),
        ("%d/%m/%y", "day/month/year"),
        ("%m/%d/%y %H:%M", "month/day/year hour:minute"),
        ("%d-%b-%y", "day-month-year"),
        ("%d-%m-%y %H:%M:%S", "day-month-year hour:minute:second"),
    ],
)
def test_dates_that_are_text_say_what_dates_say_at_learning_and_afterwards(
    written: str, words: str
) -> None:
    texts = DAYS.dt.strftime(written)
    form = date_format_of(texts)
    assert form is not None
    assert in_words(form) == words
    learnt = learn_column(texts, max_categories=32, form=form)
    expected = learn_column(DAYS, max_categories=32)
    np.testing.assert_array_equal(learnt.encode(texts), expected.encode(DAYS))
    new = pd.Series(pd.date_range("2025-02-01", periods=3), name="sold")
    np.testing.assert_array_equal(learnt.encode(new.dt.strftime(written)), expected.encode(new))
    for same in (new, new.dt.date, new.dt.strftime("%Y-%m-%d")):
        np.testing.assert_array_equal(learnt.encode(same), expected.encode(new))


@given(
    st.lists(
        st.dates(datetime.date(1950, 1, 1), datetime.date(2150, 1, 1)), min_size=1, max_size=20
    )
)
def test_whichever_dates_are_written_they_are_read_as_they_were(days: list[datetime.date]) -> None:
    texts = column(*(day.isoformat() for day in days))
    assert date_format_of(texts) is not None
    expected = [(day - datetime.date(1970, 1, 1)).days * 86_400e9 for day in days]
    assert as_times(texts, "ISO8601").tolist() == expected


@pytest.mark.parametrize(
    "values",
    [("1.2.10", "1.3.11"), ("10-40-20", "10-10-20"), ("1/2/3", "2/3/4"), ("12-13", "11-12")],
)
def test_versions_and_other_codes_are_no_dates(values: tuple[str, ...]) -> None:
    assert date_format_of(column(*values)) is None


def test_the_day_comes_first_where_both_ways_round_are_dates() -> None:
    assert date_format_of(column("01/05/2024", "02/06/2024")) == "%d/%m/%Y"
    assert date_format_of(column("01/05/2024", "02/16/2024")) == "%m/%d/%Y"


@pytest.mark.parametrize(
    "values",
    [
        ("red", "blue"),
        ("12", "13"),
        ("2024", "2023"),
        ("12345", "54321"),
        ("10-12", "11-12"),
        ("12:30", "13:45"),
        ("May", "June"),
        ("1.5", "2.5"),
        ("2024-05-01", "soon"),
        ("2024-05-01", "2024-05-32"),
        (None, None),
    ],
)
def test_what_is_no_whole_date_everywhere_stays_what_it_was(values: tuple[object, ...]) -> None:
    assert date_format_of(column(*values)) is None


def test_values_that_keep_a_column_from_being_dates_are_found() -> None:
    texts = column("soon", *(f"2024-05-{day:02}" for day in range(1, 20)), None)
    form = date_format_of(texts, min_share=0.8)
    assert form == "ISO8601"
    assert no_dates(texts, form).tolist() == [0]


def test_where_in_week_and_year_a_date_lies_is_told_once_that_repeats() -> None:
    assert learn_column(DAYS, max_categories=3).cycles == ("year", "week")
    assert learn_column(DAYS[:30], max_categories=3).cycles == ("week",)
    assert learn_column(DAYS[:5], max_categories=3).cycles == ()
    assert learn_column(DAYS[::7], max_categories=3).cycles == ("year",), "always a Monday"
    hours = pd.Series(pd.date_range("2022-01-03", periods=60, freq="h"), name="sold")
    assert learn_column(hours, max_categories=3).cycles == ("day",)

    learnt = learn_column(DAYS, max_categories=3)
    assert learnt.width == 5
    encoded = learnt.encode(DAYS)
    np.testing.assert_allclose(encoded[:7, 3:], encoded[7:14, 3:], atol=1e-9)
    assert len(np.unique(encoded[:7, 3:].round(6), axis=0)) == 7
    np.testing.assert_allclose(encoded[0, 1:3], encoded[365, 1:3], atol=0.02)
    missing = learnt.encode(column(None))
    np.testing.assert_array_equal(missing, np.zeros((1, 5)))


def test_what_is_no_date_later_is_refused_with_its_column_and_row() -> None:
    form = date_format_of(DAYS.dt.strftime("%d/%m/%Y"))
    assert form is not None
    learnt = learn_column(DAYS, max_categories=3, form=form)
    with pytest.raises(
        DataError,
        match=r"'sold' held dates in the training data: row 1 \(from 0\) holds 'soon'; allowed: "
        r"dates, or text as day/month/year",
    ):
        learnt.encode(column("31/12/2024", "soon"))


def test_a_table_learns_the_seasons_from_dates_of_a_csv(tmp_path) -> None:
    path = tmp_path / "sales.csv"
    weekend = (DAYS.dt.day_of_week >= 5).map({True: "much", False: "little"})
    pd.DataFrame({"sold": DAYS.dt.strftime("%d/%m/%Y"), "sales": weekend}).to_csv(path, index=False)
    loaded = load("table", {"path": str(path), "target": "sales"}, cache=tmp_path)
    assert loaded.input_shape == (5,)
    inputs, targets = loaded.train.batch(np.arange(len(loaded.train)))
    # Sine of the place in the week: low on Saturdays and Sundays, and on no other day.
    np.testing.assert_array_equal(
        inputs[:, 3] < -0.6, np.array(loaded.class_names)[targets] == "much"
    )


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (
            ["31/01/2024", "29.02.2024", "1/3/2024", "15.3.2024"],
            ["2024-01-31", "2024-02-29", "2024-03-01", "2024-03-15"],
        ),
        (
            ["31/01/2024", "31/01/2024 12:30", "01/02/2024"],
            ["2024-01-31", "2024-01-31T12:30", "2024-02-01"],
        ),
        (["3 March 2024", "12 Apr 2024", "29/02/2024"], ["2024-03-03", "2024-04-12", "2024-02-29"]),
        (["13/04/24", "31/12/1999", "01/02/2003"], ["2024-04-13", "1999-12-31", "2003-02-01"]),
        (["04/13/2024", "12/31/2023 1:05 PM"], ["2024-04-13", "2023-12-31T13:05"]),
    ],
)
def test_a_column_may_mix_ways_to_write_dates_of_one_order(
    texts: list[str], days: list[str]
) -> None:
    values = pd.Series(texts * 2)
    form = date_format_of(values)
    assert form is not None
    expected = [at(day) for day in days]
    np.testing.assert_allclose(as_times(values, form)[: len(days)] / 1e9, expected)
    taken = Input(name="d", kind="date", dtype="float64", date_format=form)
    assert [seconds_of(taken, 0, text) for text in texts] == expected
    assert [seconds({"date_format": form}, text) for text in texts] == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["13/04/2024", "04/13/2024"],  # two orders
        ["29/02/2023", "28/02/2023", "15/03/2024"],  # no leap year
        ["31/01/2024", "soon"],
    ],
)
def test_what_no_order_reads_is_no_column_of_dates(texts: list[str]) -> None:
    assert date_format_of(pd.Series(texts * 3)) is None


def test_mixed_dates_that_can_be_read_in_two_ways_are_a_question() -> None:
    values = pd.Series(["03/04/2024", "05/06/2024 10:00", "07/08/2024"] * 3, name="d")
    with pytest.raises(DataError, match=r"'d' can be read in 2 ways: 03/04/2024 is 3 April 2024"):
        with_date_order(values.to_frame(), None)
    known = with_date_order(values.to_frame(), "month-first")
    form = date_format_of(known["d"])
    assert form is not None
    assert as_times(known["d"], form)[1] / 1e9 == at("2024-05-06T10:00")
