"""Which tables show groups or times: one generated table for each decision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from workbench.data.row_splits import RowBlocks
from workbench.foundation.errors import ArgumentError, DataError
from workbench.runs.automl.preparation import divide
from workbench.runs.automl.row_roles import RowRoles, blocks_in, find_row_roles, with_copies
from workbench.runs.automl.task_detection import read_problem

Made = tuple[pd.DataFrame, np.ndarray]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def walk(num_rows: int) -> np.ndarray:
    return np.cumsum(rng().normal(size=num_rows))


def days(num_rows: int, start: str = "2021-01-01") -> pd.Series:
    return pd.Series(pd.date_range(start, periods=num_rows, freq="D"))


def inputs(num_rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    return {"a": random.normal(size=num_rows), "b": random.choice(["x", "y"], num_rows)}


def plain() -> Made:
    return pd.DataFrame(inputs(300)), rng().normal(size=300)


def sorted_dates() -> Made:
    return pd.DataFrame({"day": days(300), **inputs(300)}), rng().normal(size=300)


def sorted_text_dates() -> Made:
    table = pd.DataFrame({"day": days(300).dt.strftime("%d.%m.%Y"), **inputs(300)})
    return table, rng().normal(size=300)


def newest_first() -> Made:
    table, y = sorted_dates()
    return table[::-1].reset_index(drop=True), y


def shuffled_series() -> Made:
    table = pd.DataFrame({"day": days(400), **inputs(400)})
    order = rng().permutation(400)
    return table.iloc[order].reset_index(drop=True), walk(400)[order]


def shuffled_dates_without_drift() -> Made:
    table = pd.DataFrame({"signed_on": days(400), **inputs(400)})
    return table.sample(frac=1.0, random_state=1).reset_index(drop=True), rng().normal(size=400)


def birth_dates() -> Made:
    born = days(400, "1950-01-01").sample(frac=1.0, random_state=1).reset_index(drop=True)
    y = (born - born.min()).dt.days.to_numpy() / 30.0 + rng().normal(size=400)
    return pd.DataFrame({"birth_date": born, **inputs(400)}), y


def sorted_birth_dates() -> Made:
    return pd.DataFrame({"date of birth": days(300, "1960-01-01"), **inputs(300)}), walk(300)


def dates_of_a_lifetime() -> Made:
    start = pd.Timestamp("1930-01-01")
    born = pd.Series(start + pd.to_timedelta(rng().integers(0, 26_000, 500), unit="D"))
    y = -(born - start).dt.days.to_numpy() / 365.0 + rng().normal(size=500)
    return pd.DataFrame({"dated": born, **inputs(500)}), y


def sorted_target() -> Made:
    return pd.DataFrame(inputs(300)), np.sort(rng().normal(size=300))


def years_sorted() -> Made:
    year = np.repeat(np.arange(1960, 2010), 4)
    return pd.DataFrame({"year": year, **inputs(200)}), walk(200)


def few_years() -> Made:
    year = np.repeat(np.arange(2001, 2006), 60)
    return pd.DataFrame({"year": year, **inputs(300)}), rng().normal(size=300)


def running_step() -> Made:
    return pd.DataFrame({"t": np.arange(300), **inputs(300)}), walk(300)


def running_step_without_drift() -> Made:
    return pd.DataFrame({"t": np.arange(300), **inputs(300)}), rng().normal(size=300)


def durations_sorted() -> Made:
    # Follow-up of patients, as in a survival table that was sorted by it.
    time = np.sort(rng().integers(4, 290, 300)).astype(float)
    return pd.DataFrame({"time": time, **inputs(300)}), rng().random(300) < time / 400


def shops_by_day() -> Made:
    table = pd.DataFrame(
        {"shop_id": np.repeat(np.arange(30), 40), "day": list(days(40)) * 30, **inputs(1200)}
    )
    return table, np.repeat(rng().normal(size=30), 40) + 0.1 * rng().normal(size=1200)


def patients(num_patients: int = 60, visits: int = 5, name: str = "patient_id") -> Made:
    random = rng()
    who = np.repeat(np.arange(num_patients), visits)
    order = random.permutation(len(who))
    age = random.integers(20, 80, num_patients)[who]
    table = pd.DataFrame({name: who + 1000, "age": age, **inputs(len(who))}).iloc[order]
    y = (random.normal(size=num_patients)[who] + 0.3 * random.normal(size=len(who)))[order]
    return table.reset_index(drop=True), y


def patients_of_text() -> Made:
    table, y = patients(name="subject")
    return table.assign(subject=table["subject"].map("S{:05d}".format)), y


def coded_rows() -> Made:
    table, y = patients(name="ref")
    return table.assign(ref=table["ref"].map("AB-{:05d}".format)), y


def few_subjects() -> Made:
    return patients(12, 40, "subject")


def orders() -> Made:
    return patients(60, 5, "order_id")


def plots() -> Made:
    """Places that are measured again and again. Others will hardly be predicted."""
    return patients(24, 120, "plot_id")


def series_of_subjects() -> Made:
    return patients(24, 120, "subject_id")


def five_categories() -> Made:
    return patients(5, 60, "customer_id")


def ids_without_resemblance() -> Made:
    table, _ = plain()
    return table.assign(user_id=rng().integers(0, 60, 300)), rng().normal(size=300)


def unique_ids() -> Made:
    table, y = plain()
    return table.assign(customer_id=np.arange(300)), y


def cities() -> Made:
    table, y = patients(60, 5, "city")
    return table.assign(city=table["city"].map("City {}".format)), y


def zip_codes() -> Made:
    return patients(60, 5, "zip_code")


def counts() -> Made:
    return patients(60, 5, "student_age")


def counts_of_children() -> Made:
    return patients(12, 30, "child618")


def counts_of_customers() -> Made:
    return patients(60, 5, "customers")


def number_of_users() -> Made:
    return patients(60, 5, "num_user")


def products() -> Made:
    table, y = patients(60, 5, "product_id")
    return table, y


def truth_of_class() -> Made:
    table, y = patients()
    return table, np.where(y > 0, "yes", "no")


def visits_by_date() -> Made:
    # Each patient comes in one week, one patient after the other.
    table, y = patients()
    order = table["patient_id"].argsort(kind="stable")
    table = table.iloc[order].reset_index(drop=True).assign(day=days(300))
    return table, y[order]


DECISIONS: list[tuple[Callable[[], Made], str | None, str | None]] = [
    (plain, None, None),
    (sorted_dates, None, "day"),
    (sorted_text_dates, None, "day"),
    (newest_first, None, "day"),
    (shuffled_series, None, "day"),
    (shuffled_dates_without_drift, None, None),
    (birth_dates, None, None),
    (sorted_birth_dates, None, None),
    (dates_of_a_lifetime, None, None),
    (sorted_target, None, None),
    (years_sorted, None, "year"),
    (few_years, None, None),
    (running_step, None, "t"),
    (running_step_without_drift, None, None),
    (durations_sorted, None, None),
    (shops_by_day, None, "day"),
    (patients, "patient_id", None),
    (patients_of_text, "subject", None),
    (coded_rows, "ref", None),
    (few_subjects, "subject", None),
    (orders, "order_id", None),
    (plots, None, None),
    (series_of_subjects, "subject_id", None),
    (five_categories, None, None),
    (ids_without_resemblance, None, None),
    (unique_ids, None, None),
    (cities, None, None),
    (zip_codes, None, None),
    (counts, None, None),
    (counts_of_children, None, None),
    (counts_of_customers, None, None),
    (number_of_users, None, None),
    (products, None, None),
    (truth_of_class, "patient_id", None),
    (visits_by_date, "patient_id", "day"),
]


@pytest.mark.parametrize(
    ("make", "group", "time"), DECISIONS, ids=[made.__name__ for made, _, _ in DECISIONS]
)
def test_groups_and_times_are_found_where_the_table_shows_them(make, group, time):
    table, y = make()
    roles = find_row_roles(table, pd.Series(y))
    assert (roles.group, roles.time) == (group, time)
    notes = "\n".join(roles.notes)
    for option, name in (("--group-column", group), ("--time-column", time)):
        if name is not None:
            assert f"`{name}`" in notes
            assert f"{option} none" in notes, "how to override it"


@pytest.mark.parametrize("make", [sorted_dates, patients, visits_by_date])
def test_what_is_found_can_be_turned_off(make):
    table, y = make()
    roles = find_row_roles(table, pd.Series(y), group_column="none", time_column="none")
    assert (roles.group, roles.time, roles.notes) == (None, None, ())
    assert roles.blocks.groups is None
    assert roles.blocks.times is None


def test_dates_that_do_not_decide_are_mentioned():
    table, y = shuffled_dates_without_drift()
    (note,) = find_row_roles(table, pd.Series(y)).notes
    assert "--time-column signed_on" in note


@pytest.mark.parametrize("make", [shuffled_dates_without_drift, sorted_dates, patients])
def test_notes_are_about_the_rows_that_the_user_did_not_give(make):
    table, y = make()
    (note,) = find_row_roles(table, pd.Series(y), own_parts=["test"]).notes
    assert "test" not in note
    assert "the score" not in note
    (note,) = find_row_roles(table, pd.Series(y), own_parts=["validation"]).notes
    assert "chosen" not in note
    roles = find_row_roles(table, pd.Series(y), own_parts=["test", "validation"])
    assert bool(roles.notes) == (roles.group is not None), "a group is no input, but none is drawn"


def test_given_columns_need_no_sign_of_their_role():
    table, y = plain()
    table = table.assign(where=np.arange(300) % 7, when=rng().permutation(300))
    roles = find_row_roles(table, pd.Series(y), group_column="where")
    assert (roles.group, roles.time, roles.notes) == ("where", None, ())
    roles = find_row_roles(table, pd.Series(y), time_column="when")
    assert (roles.group, roles.time, roles.notes) == (None, "when", ())
    assert roles.blocks.times is not None
    assert roles.blocks.times.tolist() == table["when"].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_column": "pateint"}, "group_column: there is no column 'pateint'"),
        ({"time_column": "dya"}, "time_column: there is no column 'dya'"),
        ({"group_column": "b"}, "group_column: 'b' has 2 groups"),
        ({"time_column": "b"}, "time_column: 'b' holds 'y', which is no time"),
        ({"time_column": "gaps"}, "time_column: 1 of 300 rows have no time in 'gaps'"),
        ({"group_column": "shop", "time_column": "day"}, "group_column: the groups in 'shop'"),
    ],
)
def test_columns_that_cannot_split_are_errors(options, message):
    table, y = sorted_dates()
    table = table.assign(gaps=days(300).where(np.arange(300) != 5), shop=np.arange(300) % 10)
    with pytest.raises(DataError) as raised:
        find_row_roles(table, pd.Series(y), **options)
    assert str(raised.value).startswith(message)


def test_the_target_is_no_group():
    table, y = plain()
    with pytest.raises(ArgumentError, match="group_column: 'y' is the column to predict"):
        find_row_roles(table, pd.Series(y), group_column="y", target="y")


def test_a_group_column_is_not_an_input_and_stays_on_one_side():
    table, y = patients()
    problem = read_problem(table.assign(y=y), "y")
    assert "patient_id" not in problem.samples
    learning, test = divide(problem, seed=3)
    who = table["patient_id"].to_numpy()
    assert not set(who[learning]) & set(who[test])
    assert len(learning) + len(test) == len(table)


def test_a_dropped_date_still_orders_the_rows():
    table, y = sorted_dates()
    problem = read_problem(table.assign(y=y), "y", drop=["day"])
    assert problem.roles.time == "day"
    assert "day" not in problem.samples
    assert divide(problem, seed=0)[1].tolist() == list(range(240, 300))


def test_copies_of_a_row_belong_together():
    table, _ = plain()
    copied = pd.concat([table, table[:90]], ignore_index=True)
    blocks, num_copies = with_copies(RowBlocks(), copied)
    assert num_copies == 90
    assert blocks.groups is not None
    assert (blocks.groups[:90] == blocks.groups[300:]).all()
    assert len(set(blocks.groups)) == 300


def test_copies_join_the_groups_that_they_are_in():
    table, _ = plain()
    copied = pd.concat([table, table[:1]], ignore_index=True)
    groups = np.arange(301) // 10
    blocks, _ = with_copies(RowBlocks(groups), copied)
    assert blocks.groups is not None
    assert len(set(blocks.groups)) == 30, "the group of the first row and of its copy are one"
    assert blocks.groups[0] == blocks.groups[300]


def test_chance_copies_do_not_chain_groups_together():
    random = np.random.default_rng(0)
    groups = np.arange(1000) % 100
    rows = pd.DataFrame({"x": random.integers(0, 3000, 1000)})
    blocks, num_copies = with_copies(RowBlocks(groups), rows)
    assert num_copies == 0
    assert blocks.groups is groups


def test_rows_of_few_possible_values_are_no_copies():
    answers = pd.DataFrame(rng().integers(0, 2, (400, 3)), columns=list("abc"))
    assert with_copies(RowBlocks(), answers)[1] == 0


def test_new_samples_have_the_groups_and_times_that_they_bring():
    roles = RowRoles(RowBlocks(), "patient", "day")
    new = pd.DataFrame({"patient": ["a", "b", "a"], "day": days(3)})
    blocks = blocks_in(new, roles)
    assert blocks.groups is not None
    assert blocks.groups.tolist() == [0, 1, 0]
    assert blocks.times is not None
    for other in (new[:1], new.assign(day="soon"), new.drop(columns="day"), ["a text"]):
        assert blocks_in(other, roles).times is None


def people(num_people: int, num_same: int) -> pd.DataFrame:
    """Return three rows of each person, who are equal in some columns."""
    draws = np.random.default_rng(3)
    own = pd.DataFrame(draws.integers(0, 4, (num_people, num_same))).add_prefix("fixed")
    table = own.loc[np.repeat(np.arange(num_people), 3)].reset_index(drop=True)
    table["visit_cost"] = draws.normal(size=len(table))
    table["zper"] = np.repeat(draws.permutation(num_people) + 125_000, 3)
    return table


def test_a_number_in_whose_rows_other_columns_are_equal_is_asked_about():
    (note,) = find_row_roles(people(100, 3), pd.Series(rng().normal(size=300))).notes
    assert note.startswith(
        "rows with the same `zper` are equal in 3 other columns, such as `fixed0`"
    )
    assert "--group-column zper" in note


@pytest.mark.parametrize("name", ["zip", "zper"])
def test_other_numbers_are_not_asked_about(name):
    num_same = {"zip": 3, "zper": 2}[name]
    table = people(100, num_same).rename(columns={"zper": name})
    assert find_row_roles(table, pd.Series(rng().normal(size=300))).notes == ()
