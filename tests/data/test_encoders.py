from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.data.category_targets import target_numbers
from workbench.data.column_encoding import learn_column, text_form_of
from workbench.data.encoders import TableEncoder, encode_train, learn_encoder
from workbench.foundation.errors import DataError

CELLS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]), st.text(max_size=3))


@given(st.lists(CELLS, min_size=1, max_size=30), st.lists(CELLS, max_size=10), st.integers(1, 5))
def test_any_text_is_encoded_as_finite_numbers_of_one_width(train, new, max_categories):
    column = learn_column(pd.Series(train, dtype=object, name="x"), max_categories=max_categories)
    for cells in (train, new):
        encoded = column.encode(pd.Series(cells, dtype=object, name="x"))
        assert encoded.shape == (len(cells), column.width)
        assert np.isfinite(encoded).all()
    if column.kind == "category":
        assert (column.encode(pd.Series(train, dtype=object, name="x")).sum(axis=1) == 1).all()


@given(arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e6, 1e6) | st.just(np.nan)))
def test_numbers_are_standardised_by_the_train_rows_and_missing_ones_are_marked(values):
    column = learn_column(pd.Series(values, name="x"), max_categories=3)
    encoded = column.encode(pd.Series(values, name="x"))
    missing = np.isnan(values)
    assert np.isfinite(encoded).all()
    assert column.width == 1 + missing.any()
    if missing.any():
        np.testing.assert_array_equal(encoded[:, 1], missing)
    if (~missing).any():
        assert abs(encoded[~missing, 0].mean()) < 1e-3


def test_an_encoder_reads_columns_by_name_and_leaves_out_what_tells_nothing():
    table = pd.DataFrame(
        {"x": [1.0, 2.0, 4.0], "same": 7, "empty": np.nan, "city": ["a", "b", "a"]}
    )
    encoder = learn_encoder("table", table)
    expected = encoder.encode(table)
    assert expected.shape == (3, 3)
    np.testing.assert_array_equal(encoder.encode(table[["city", "x"]].assign(more=1)), expected)
    with pytest.raises(DataError, match="there is no column 'city'; needed: x, city"):
        encoder.encode(table[["x"]])
    with pytest.raises(DataError, match="held numbers in the training data"):
        encoder.encode(table.assign(x="many"))
    with pytest.raises(DataError, match="constant or empty"):
        learn_encoder("table", table[["same", "empty"]])


def test_infinite_numbers_count_as_missing():
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [1, 2, 3]})
    encoder = learn_encoder("table", table)
    np.testing.assert_array_equal(
        encoder.encode(table.assign(x=[np.inf, 2.0, -np.inf])),
        encoder.encode(table.assign(x=[np.nan, 2.0, np.nan])),
    )
    assert np.isfinite(encoder.encode(table.assign(x=np.nan))).all()


def test_spans_of_time_are_numbers_of_seconds():
    hours = pd.Series(pd.to_timedelta([1, 2, 6], unit="h"), name="x")
    seconds = pd.Series([3600.0, 7200.0, 21600.0], name="x")
    learnt = learn_column(hours, max_categories=3)
    np.testing.assert_allclose(
        learnt.encode(hours), learn_column(seconds, max_categories=3).encode(seconds)
    )


def test_images_are_standardised_by_channel_and_of_one_shape():
    images = np.random.default_rng(0).integers(0, 255, (20, 6, 5, 3))
    encoder = learn_encoder("images", images)
    encoded = encoder.encode(images)
    assert encoded.shape == (20, 3, 6, 5)
    np.testing.assert_allclose(encoded.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(axis=(0, 2, 3)), 1, atol=1e-5)
    with pytest.raises(DataError, match=r"images of shape \(5, 6, 3\)"):
        encoder.encode(images.swapaxes(1, 2))


def test_texts_are_counted_by_the_words_of_the_train_part():
    encoder = learn_encoder("texts", ["rain and wind", "bread and soup"])
    known, unknown = encoder.encode(["wind", "quux"])
    assert known.any()
    assert not unknown.any()
    with pytest.raises(DataError, match="texts are empty"):
        learn_encoder("texts", ["", " "])


DAYS = pd.Series(pd.date_range("2026-01-01", periods=8, tz="UTC"), name="day")


@pytest.mark.parametrize(
    "same",
    [
        DAYS.dt.tz_localize(None),
        DAYS.dt.tz_convert("Asia/Tokyo"),
        DAYS.astype("datetime64[s, UTC]"),
        DAYS.dt.strftime("%Y-%m-%d"),
        DAYS.dt.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        DAYS.dt.date,
    ],
    ids=["no zone", "another zone", "seconds", "text", "text with a zone", "objects"],
)
def test_dates_mean_the_same_in_whatever_form_they_come(same):
    column = learn_column(DAYS, max_categories=3)
    np.testing.assert_array_equal(column.encode(same), column.encode(DAYS))
    again = learn_column(DAYS.astype("datetime64[ns, UTC]"), max_categories=3)
    np.testing.assert_allclose(again.encode(same), column.encode(DAYS))


def test_dates_that_are_missing_or_far_away_are_read_and_others_refused_as_dates():
    known = learn_column(DAYS, max_categories=3)
    assert known.encode(pd.Series([None, "9999-12-31"], name="day"))[0].tolist() == [0, 0, 0]
    assert known.encode(pd.Series([np.nan, np.nan], name="day")).tolist() == [[0, 0, 0], [0, 0, 0]]
    for wrong in ("soon", 20260101):
        with pytest.raises(
            DataError, match=r"'day' held dates in the training data: .*text such as 2026-01-31 or "
        ):
            known.encode(pd.Series([wrong], name="day"))
    numbers = learn_column(pd.Series([1.0, 2.0], name="x"), max_categories=3)
    with pytest.raises(DataError, match="'x' held numbers in the training data"):
        numbers.encode(DAYS.rename("x"))


@pytest.mark.parametrize("cells", [["?"], ["1,200", "N/A"], ["unknown"] * 2])
def test_an_encoder_reads_numbers_written_as_text_as_it_learnt_them(cells):
    numbers = np.arange(100.0)
    written = pd.Series([*(f"{number:g}" for number in numbers), *cells], dtype=object, name="x")
    form = text_form_of(written)
    column = learn_column(written, max_categories=3, form=form)
    assert column.kind == "number"
    assert column.marks_missing
    encoded = column.encode(written)
    np.testing.assert_array_equal(
        encoded[:100, 0], column.encode(pd.Series(numbers, name="x"))[:, 0]
    )
    np.testing.assert_array_equal(encoded[-1], [0, 1])
    with pytest.raises(
        DataError, match=r"'x' held numbers in the training data: row 0 \(from 0\) holds"
    ):
        column.encode(pd.Series(["a few"], name="x"))


def test_markers_are_missing_numbers_also_where_training_had_none():
    column = learn_column(pd.Series([1.0, 2.0, 3.0], name="x"), max_categories=3)
    np.testing.assert_array_equal(
        column.encode(pd.Series(["?", "2", "n/a"], name="x")), [[0], [0], [0]]
    )


def test_many_categories_are_encoded_by_their_count_and_their_mean_target():
    names = [f"town {number}" for number in range(40)]
    towns = np.repeat(names, 30)
    targets = np.repeat(np.arange(40.0), 30)[:, None]
    table = pd.DataFrame({"town": towns})
    encoder = learn_encoder("table", table, targets=targets)
    encoded = encoder.encode(pd.DataFrame({"town": [*names, "unknown", None]}))
    assert encoded.shape == (42, 2)
    assert (np.diff(encoded[:40, 1]) > 0).all()
    # An unknown town has never occurred, and counts as the mean of all.
    assert (encoded[40:, 0] < encoded[:40, 0].min()).all()
    np.testing.assert_allclose(encoded[40:, 1], 0.0, atol=0.05)
    assert isinstance(encoder, TableEncoder)
    assert len(encoder.columns) == 1
    assert encoder.columns[0].width == 2


@pytest.mark.parametrize(
    ("num_categories", "num_rows", "num_classes", "width"),
    [
        (4, 100, 2, 4),
        (5, 40, 2, 5 + 1),
        (5, 39, 2, 5),
        (32, 100, 2, 32 + 1),
        (32, 100, 3, 32),
        (33, 20, 2, 1 + 1),
        (33, 20, 3, 1 + 3),
    ],
)
def test_few_categories_have_a_column_each_and_at_most_one_mean_target(
    num_categories, num_rows, num_classes, width
):
    numbers = np.tile(np.arange(num_categories), num_rows)
    table = pd.DataFrame({"town": [f"town {number}" for number in numbers]})
    targets = target_numbers(numbers % num_classes, num_classes)
    encoder = learn_encoder("table", table, targets=targets)
    encoded = encode_train(encoder, table, targets)
    assert encoded.shape == (len(table), width)
    if num_categories <= 32:
        own = encoded[:, :num_categories]
        assert (own.sum(axis=1) == 1).all()
        elsewhere = encoder.encode(pd.DataFrame({"town": ["elsewhere"]}))
        assert not elsewhere[:, :num_categories].any()


def test_few_categories_are_in_the_order_of_their_targets_and_rare_ones_hide_them():
    random = np.random.default_rng(0)
    names = np.array(["d", "b", "a", "c", "e", *"rstuv"])
    places = np.concatenate([np.repeat(np.arange(5), 400), np.repeat(np.arange(5, 10), 2)])
    targets = (places.astype(float) + random.normal(size=len(places)))[:, None]
    table = pd.DataFrame({"grade": names[places]})
    encoder = learn_encoder("table", table, targets=targets)
    train, later = encode_train(encoder, table, targets)[:, -1], encoder.encode(table)[:, -1]
    frequent = places < 5
    np.testing.assert_array_equal(train[frequent], later[frequent])
    assert (np.diff([later[places == place][0] for place in range(5)]) > 0).all()
    assert (train[~frequent] != later[~frequent]).all()


def test_an_encoder_says_whether_features_tell_the_targets_of_few_rows():
    numbers = np.arange(120) % 40
    table = pd.DataFrame({"shop": [f"shop {number}" for number in numbers], "x": numbers * 1.0})
    table["grade"] = np.where(numbers % 2, "high", "low")
    targets = target_numbers(numbers % 3, 3)
    for names, expected in ((["x", "grade"], False), (["x", "shop"], True)):
        encoder = learn_encoder("table", table[names], targets=targets)
        assert isinstance(encoder, TableEncoder)
        assert encoder.shows_few_rows is expected
