"""Two columns together as the mean target of the rows that share both values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.category_pairs import MANY_CATEGORIES, MAX_PAIRS
from workbench.data.category_targets import target_numbers
from workbench.data.encoders import TableEncoder, encode_train, learn_encoder

NUM_ROWS, NUM_SHOPS, NUM_YEARS = 4_000, 60, 8


def shops(seed: int = 0, num_rows: int = NUM_ROWS) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows whose target depends on the shop and the year together, and on neither alone."""
    random = np.random.default_rng(seed)
    effects = np.random.default_rng(1).normal(size=(NUM_SHOPS, NUM_YEARS))
    effects -= effects.mean(axis=1, keepdims=True)
    shop, year = (
        random.integers(NUM_SHOPS, size=num_rows),
        random.integers(NUM_YEARS, size=num_rows),
    )
    target = effects[shop, year] + random.normal(scale=0.5, size=num_rows)
    frame = pd.DataFrame(
        {
            "shop": [f"shop {number}" for number in shop],
            "year": 2010 + year,
            "weekday": random.choice(["mon", "tue", "wed"], size=num_rows),
            "area": random.normal(size=num_rows),
        }
    )
    return frame, target


def learnt(frame: pd.DataFrame, target: np.ndarray) -> TableEncoder:
    encoder = learn_encoder("table", frame, targets=target_numbers(target, None))
    assert isinstance(encoder, TableEncoder)
    return encoder


def names_of(encoder: TableEncoder) -> list[set[str]]:
    return [{side.column.name for side in pair.sides} for pair in encoder.pairs]


def test_a_pair_that_tells_more_than_its_columns_is_encoded() -> None:
    frame, target = shops()
    encoder = learnt(frame, target)
    assert names_of(encoder) == [{"shop", "year"}]
    new, of_new = shops(seed=2)
    means: Any = frame.assign(target=target).groupby(["shop", "year"])["target"].mean()
    expected = means.loc[list(zip(new["shop"], new["year"], strict=True))].to_numpy()
    encoded = encoder.encode(new)[:, -1]
    assert np.corrcoef(encoded, expected)[0, 1] > 0.99
    assert np.corrcoef(encoded, of_new)[0, 1] > 0.8


def test_pairs_that_tell_nothing_more_are_left_out() -> None:
    frame, _ = shops()
    random = np.random.default_rng(0)
    of_shop = frame["shop"].str.len().to_numpy() + random.normal(size=NUM_ROWS)
    for target in (of_shop, random.normal(size=NUM_ROWS), np.zeros(NUM_ROWS)):
        assert learnt(frame, target).pairs == ()
    few, target = shops()
    few["shop"] = few["shop"].map({f"shop {number}": number % 3 for number in range(NUM_SHOPS)})
    assert few["shop"].nunique() <= MANY_CATEGORIES
    assert learnt(few.astype({"shop": str}), target).pairs == ()


def test_several_classes_have_no_pairs() -> None:
    frame, target = shops()
    classes = np.digitize(target, np.quantile(target, [0.3, 0.6]))
    assert learn_encoder("table", frame, targets=target_numbers(classes == 0, 2)).pairs  # type: ignore[union-attr]
    several = learn_encoder("table", frame, targets=target_numbers(classes, 3))
    assert isinstance(several, TableEncoder)
    assert several.pairs == ()


def test_train_rows_do_not_show_their_own_target_through_a_pair() -> None:
    random = np.random.default_rng(0)
    frame, target = shops()
    encoder = learnt(frame, target)
    noise = random.normal(size=(NUM_ROWS, 1))
    # Learnt from noise, an encoding that holds the own target would be correlated with it.
    fitted = encode_train(encoder, frame, noise)[:, -1]
    assert abs(np.corrcoef(fitted, noise[:, 0])[0, 1]) < 0.05


def test_unknown_and_missing_values_have_the_mean_of_all_rows() -> None:
    frame, target = shops()
    frame.loc[:300, "year"] = np.nan
    frame.loc[200:500, "shop"] = None
    encoder = learnt(frame, target)
    (pair,) = encoder.pairs
    rows = frame.iloc[:4].assign(
        shop=["shop 1", "nowhere", None, "shop 1"], year=[1900.0, 2011.0, 2012.0, np.nan]
    )
    unknown, nowhere, no_shop, no_year = encoder.encode(rows)[:, -1]
    mean, scale = pair.target_scales[0]
    assert unknown == nowhere == pytest.approx((target.mean() - mean) / scale, abs=1e-5)
    for selected, encoded in (
        (frame["shop"].isna() & (frame["year"] == 2012), no_shop),
        ((frame["shop"] == "shop 1") & frame["year"].isna(), no_year),
    ):
        # Rows without a value are a group of their own.
        count, mean_there = selected.sum(), target[selected].mean()
        assert count > 0
        shrunk = sorted([target.mean(), mean_there])
        assert shrunk[0] - 1e-6 <= encoded * scale + mean <= shrunk[1] + 1e-6


def test_there_are_not_too_many_pairs() -> None:
    frame, target = shops()
    copies = {f"shop {letter}": frame["shop"] + letter for letter in "abcdef"}
    copies |= {f"year {letter}": frame["year"] for letter in "abc"}
    encoder = learnt(frame.assign(**copies), target)
    assert len(encoder.pairs) == MAX_PAIRS
    assert encoder.encode(frame.assign(**copies)).shape[1] == sum(
        part.width for part in (*encoder.columns, *encoder.pairs)
    )
