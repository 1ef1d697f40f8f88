from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.data import Split, load
from workbench.data.reading import Reading
from workbench.data.series import SeriesOptions
from workbench.foundation.errors import DataError, ExperimentError


def write(path: Path, num_rows: int = 60) -> pd.DataFrame:
    """Write a table of which each value tells its row, and return it."""
    rows = np.arange(num_rows)
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=num_rows).strftime("%Y-%m-%d"),
            "sold": rows * 1.0,
            "shop": "north",
            "rain": 1000.0 + rows,
        }
    )
    frame.to_csv(path, index=False)
    return frame


def options(path: Path, **more: object) -> dict[str, object]:
    return {
        "path": str(path),
        "time": "day",
        "targets": ["sold"],
        "lookback": 5,
        "horizon": 3,
        **more,
    }


def forecast_rows(split: Split, reading: Reading, *, atol: float) -> set[int]:
    """Return the rows that are forecast, after a check that each window is of successive rows."""
    inputs, targets = split.batch(np.arange(len(split)))
    sold = inputs[:, :, 0] * reading.scale[0] + reading.mean[0]
    wanted = targets * reading.target_scale + reading.target_mean
    np.testing.assert_allclose(
        np.diff(np.concatenate([sold, wanted], axis=1), axis=1), 1.0, atol=atol
    )
    return {round(float(value)) for value in wanted.ravel()}


def test_a_window_is_followed_by_its_targets_and_no_forecast_of_train_reaches_validation(tmp_path):
    write(tmp_path / "sales.csv")
    data = load("series", options(tmp_path / "sales.csv"))
    reading = SeriesOptions(**options(tmp_path / "sales.csv")).reading(seed=0)

    assert data.test is not None
    rows = {}
    for part, split in (
        ("train", data.train),
        ("validation", data.validation),
        ("test", data.test),
    ):
        rows[part] = forecast_rows(split, reading, atol=1e-4)
    assert rows == {
        "train": set(range(5, 42)),
        "validation": set(range(42, 54)),
        "test": set(range(54, 60)),
    }
    assert (data.input_shape, data.target_shape, data.num_outputs) == ((5, 2), (3, 1), 3)
    assert reading.array_columns == ("sold", "rain")
    assert reading.targets == ("sold +1", "sold +2", "sold +3")


def test_rows_are_sorted_by_time_and_gaps_become_the_last_known_value(tmp_path):
    frame = write(tmp_path / "sales.csv")
    frame.loc[[0, 30], "rain"] = np.nan
    frame.sample(frac=1.0, random_state=0).to_csv(tmp_path / "mixed.csv", index=False)
    made = SeriesOptions(**options(tmp_path / "mixed.csv"))._read()

    assert made.values[:, 0].tolist() == list(range(60))
    assert made.values[30, 1] == 1029.0
    known = frame["rain"].iloc[:42].mean()
    assert made.values[0, 1] == pytest.approx(known)


def test_statistics_are_those_of_train(tmp_path):
    frame = write(tmp_path / "sales.csv")
    frame.loc[50:, "rain"] = 1e6
    frame.to_csv(tmp_path / "flood.csv", index=False)
    statistics = [
        SeriesOptions(**options(tmp_path / name)).reading(seed=0)
        for name in ("sales.csv", "flood.csv")
    ]
    np.testing.assert_array_equal(statistics[0].mean, statistics[1].mean)
    np.testing.assert_array_equal(statistics[0].scale, statistics[1].scale)


@given(
    lookback=st.integers(1, 20),
    horizon=st.integers(1, 10),
    stride=st.integers(1, 7),
    validation=st.floats(0.1, 0.4),
    test=st.floats(0.0, 0.3),
)
@examples(40)
def test_forecasts_of_parts_never_share_a_row(lookback, horizon, stride, validation, test):
    made = SeriesOptions(
        lookback=lookback,
        horizon=horizon,
        stride=stride,
        validation_fraction=validation,
        test_fraction=test,
    )
    num_rows = 300
    assume(test == 0 or round(num_rows * test) >= horizon)
    _, starts = made._starts(num_rows)
    forecast = {
        part: {*np.add.outer(start, np.arange(horizon)).ravel()} for part, start in starts.items()
    }
    assert all(min(each) - lookback >= 0 for each in starts.values())
    assert max(map(max, forecast.values())) < num_rows
    assert sum(map(len, forecast.values())) == len(set.union(*forecast.values()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": ["shop"]}, "the column 'shop' is not numeric"),
        ({"targets": ["ice"]}, "there is no column 'ice'"),
        ({"time": "shop"}, "the column 'shop' is not a time in every row"),
        ({"lookback": 41}, "too few for a forecast of 3"),
        ({"horizon": 20}, "too few for a forecast of 20"),
        ({"known": ["sold"]}, "what is to be forecast is not known in advance"),
        ({"targets": ["sold", "sold"]}, "a column is named twice"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_words(tmp_path, change, message):
    write(tmp_path / "sales.csv")
    with pytest.raises((DataError, ExperimentError)) as caught:
        load("series", {**options(tmp_path / "sales.csv"), **change})
    assert message in str(caught.value)


@pytest.mark.parametrize("others", [("", ""), (";x", ";0,5")])
def test_numbers_are_read_as_in_tables(tmp_path, others):
    sold = [950 + 37 * day for day in range(60)]
    lines = [f"{day};{number:,}".replace(",", ".") for day, number in enumerate(sold)]
    path = tmp_path / "sales.csv"
    path.write_text("\n".join([f"day;sold{others[0]}", *(f"{line}{others[1]}" for line in lines)]))
    made = SeriesOptions(path=path, time="day", targets=("sold",), lookback=5, horizon=2)
    np.testing.assert_array_equal(made._read().targets[:, 0], sold)
    assert "mean absolute error of 55.5 units of sold" in made.notes()[0]  # of 37 and 74


def test_a_marker_among_numbers_is_a_gap_and_other_texts_are_named(tmp_path):
    frame = write(tmp_path / "sales.csv").astype({"rain": str})
    frame.loc[7, "rain"] = "?"
    frame.to_csv(tmp_path / "sales.csv", index=False)
    made = SeriesOptions(**options(tmp_path / "sales.csv"))
    series = made._read()
    assert series.names == ("sold", "rain")
    assert series.values[6:9, 1].tolist() == [1006.0, 1006.0, 1008.0]
    assert "Not used, because they are not numbers: shop." in made.notes()[1]


def test_several_rows_of_one_time_are_refused(tmp_path):
    frame = write(tmp_path / "sales.csv")
    frame.loc[3, "day"] = frame.loc[2, "day"]
    frame.to_csv(tmp_path / "twice.csv", index=False)
    with pytest.raises(DataError, match="several rows have the same 'day'"):
        load("series", options(tmp_path / "twice.csv"))


def test_parts_that_leave_nothing_for_train_are_refused():
    with pytest.raises(ExperimentError, match="nothing is left for train"):
        load("series", {"validation_fraction": 0.6, "test_fraction": 0.4})


def test_columns_known_in_advance_are_read_in_the_rows_that_are_forecast(tmp_path):
    write(tmp_path / "sales.csv")
    given = options(tmp_path / "sales.csv", known=["rain"])
    data, reading = load("series", given), SeriesOptions(**given).reading(seed=0)
    assert reading.array_columns == ("sold", "rain", "rain +3")
    for split in (data.train, data.validation, data.test):
        assert split is not None
        inputs, targets = split.batch(np.arange(len(split)))
        wanted = (targets * reading.target_scale + reading.target_mean)[:, -1]
        later = inputs[:, -1, 2] * reading.scale[2] + reading.mean[2]
        # Rain is 1,000 more than the number of the row, and the last forecast is of the last row.
        np.testing.assert_allclose(later, wanted + 1000.0, atol=1e-2)

    with pytest.raises(ExperimentError, match="at least the horizon, 3"):
        load("series", {**given, "lookback": 2})


def test_windows_never_mix_groups_and_each_group_is_divided_by_time(tmp_path):
    frame = write(tmp_path / "sales.csv")
    south = frame.assign(shop="south", sold=frame["sold"] + 500.0)
    mixed = pd.concat([frame, south]).sample(frac=1.0, random_state=0)
    mixed.to_csv(tmp_path / "shops.csv", index=False)
    given = options(tmp_path / "shops.csv", group="shop", columns=["sold"])
    data, reading = load("series", given), SeriesOptions(**given).reading(seed=0)
    rows = {}
    for part, split in (("train", data.train), ("validation", data.validation)):
        rows[part] = forecast_rows(split, reading, atol=1e-3)  # groups differ by 500
    assert rows["train"] == {*range(5, 42), *range(505, 542)}
    assert rows["validation"] == {*range(42, 54), *range(542, 554)}


def test_a_group_that_is_too_short_is_named(tmp_path):
    frame = write(tmp_path / "sales.csv")
    frame.loc[50:, "shop"] = "kiosk"
    frame.to_csv(tmp_path / "shops.csv", index=False)
    with pytest.raises(DataError, match="in the group 'kiosk', the rows of train"):
        load("series", options(tmp_path / "shops.csv", group="shop"))


def test_the_note_compares_with_forecasts_without_a_model_in_the_unit_of_the_target(tmp_path):
    rows = np.arange(400)
    wave = pd.DataFrame({"load": 100.0 + 10.0 * (rows % 6)})
    wave.to_csv(tmp_path / "wave.csv", index=False)
    given = {"path": str(tmp_path / "wave.csv"), "lookback": 24, "horizon": 6, "unit": "MW"}
    made = SeriesOptions(**given)
    (note,) = made.notes()
    # The next six values are a permutation of the wave. Seen from its value v, they are off by
    # the mean of |v - w|, whose mean over v is 350 / 18.
    assert note.startswith("Repeating the last value has a mean absolute error of 19.4")
    assert "MW, and repeating the last 6 values one of 0." in note
    data = load("series", given)
    assert data.target_scale == pytest.approx(wave["load"][:280].std(ddof=0))
    assert made.reading(seed=0).unit == "MW"


def test_normalisation_changes_inputs_only(tmp_path):
    write(tmp_path / "sales.csv")
    plain, ranged = (
        load("series", options(tmp_path / "sales.csv", normalisation=how))
        for how in ("standard", "range")
    )
    every = np.arange(len(plain.train))
    (first, same), (second, targets) = plain.train.batch(every), ranged.train.batch(every)
    np.testing.assert_array_equal(same, targets)
    assert not np.allclose(first, second)
    assert (second.min(), second.max()) == (pytest.approx(-1.0), pytest.approx(1.0, abs=0.2))
