from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from workbench.data.encoders import learn_encoder
from workbench.deploy.exported_model import Member, Quantiles, add_quantiles
from workbench.deploy.graph import Graph
from workbench.models.trees import MAX_FACTOR
from workbench.runs.automl.error_bands import ErrorBands, SizeRows, learn_bands


def drawn(seed: int, num_rows: int, growth: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    predicted = random.uniform(1.0, 10.0, num_rows)
    return predicted, predicted + predicted**growth * random.standard_t(5, num_rows)


@pytest.mark.parametrize("growth", [0.0, 1.0])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_ranges_hold_the_wanted_share_of_new_rows(growth, level):
    held = []
    for seed in range(20):
        bands = learn_bands(*drawn(seed, 200, growth))
        predicted, targets = drawn(100 + seed, 2000, growth)
        low, high = bands.around(predicted, level)
        held.append(((low <= targets) & (targets <= high)).mean())
    assert np.mean(held) == pytest.approx(level, abs=0.02)


def test_ranges_follow_the_size_of_the_prediction_where_errors_do():
    predicted = np.array([1.0, 10.0])
    low, high = learn_bands(*drawn(0, 600, 1.0)).around(predicted, 0.9)
    assert (high - low)[1] > 3 * (high - low)[0]
    low, high = learn_bands(*drawn(0, 600, 0.0)).around(predicted, 0.9)
    assert (high - low)[1] == pytest.approx((high - low)[0])


def test_ranges_of_skewed_errors_are_skewed():
    random = np.random.default_rng(0)
    predicted = np.full(300, 5.0)
    low, high = learn_bands(predicted, 5.0 + random.exponential(1.0, 300)).around(
        predicted[:1], 0.9
    )
    assert 5.0 <= low[0] < 5.2
    assert high[0] > 7.0


def test_few_rows_give_the_widest_range_that_was_seen():
    predicted = np.zeros(5)
    low, high = learn_bands(predicted, np.array([-1.0, 0.0, 2.0, 1.0, -0.5])).around(
        predicted[:1], 0.99
    )
    assert (low[0], high[0]) == (-1.0, 2.0)


def test_a_model_without_errors_has_ranges_without_width():
    predicted = np.arange(100.0)
    low, high = learn_bands(predicted, predicted).around(predicted, 0.9)
    np.testing.assert_array_equal(low, high)


def uneven(num_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return rows whose errors are ten times as large for some values of their columns."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"age": random.uniform(0, 10, num_rows), "kind": random.choice(["x", "z"], num_rows)}
    )
    deviation = 0.3 + 0.3 * table.age + np.where(table.kind == "z", 3.0, 0.0)
    predicted = 5.0 * random.normal(size=num_rows)
    return table, predicted, predicted + deviation.to_numpy() * random.normal(size=num_rows)


def bands_of(num_rows: int) -> ErrorBands:
    table, predicted, targets = uneven(num_rows, 0)
    encoder = learn_encoder("table", table)
    known = SizeRows(encoder, encoder.encode(table), np.arange(num_rows))
    return learn_bands(predicted, targets, known)


def test_ranges_follow_the_columns_where_errors_do():
    bands = bands_of(1000)
    table, predicted, targets = uneven(10_000, 1)
    low, high = bands.around(predicted, 0.9, table)
    held = (low <= targets) & (targets <= high)
    assert held.mean() == pytest.approx(0.9, abs=0.02)
    is_calm = (table.kind == "x") & (table.age < 3)
    is_wild = (table.kind == "z") & (table.age > 7)
    assert held[is_calm].mean() == pytest.approx(0.9, abs=0.06)
    assert held[is_wild].mean() == pytest.approx(0.9, abs=0.06)
    assert (high - low)[is_wild].mean() > 4 * (high - low)[is_calm].mean()


def test_quantiles_of_a_row_never_cross_and_each_has_its_share_of_new_rows():
    levels = [0.05, 0.1, 0.5, 0.9, 0.95]
    bands = bands_of(1000)
    table, predicted, targets = uneven(10_000, 1)
    quantiles = bands.quantiles(predicted, levels, table)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    shares = (targets[:, None] <= quantiles).mean(axis=0)
    np.testing.assert_allclose(shares, levels, atol=0.025)


def test_a_graph_computes_the_same_quantiles():
    bands = replace(
        bands_of(1000), places=np.array([-5.0, 0.0, 4.0]), sizes=np.array([1.0, 3.0, 0.5])
    )
    table, predicted, _ = uneven(500, 2)
    levels = (0.1, 0.5, 0.9)
    assert bands.encoder is not None
    assert bands.trees is not None
    sizes = Member(bands.trees, columns=bands.encoder.columns)
    graph = Graph()
    given = {
        "age": graph.input("age", np.dtype("float64"), (1,)),
        "kind": graph.input("kind", np.dtype(object), (1,)),
    }
    number = graph.input("predicted", np.dtype("float32"), (1,))
    parts = Quantiles(bands.places, bands.sizes, bands.steps(levels), MAX_FACTOR, sizes)
    answer = add_quantiles(graph, number, parts, given)
    model = graph.model(answer, "values", np.dtype("float32"), (3,))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {
        "age": table[["age"]].to_numpy(),
        "kind": table[["kind"]].to_numpy(dtype=object),
        "predicted": predicted[:, None].astype(np.float32),
    }
    np.testing.assert_allclose(
        session.run(None, feeds)[0], bands.quantiles(predicted, levels, table), rtol=1e-4, atol=1e-4
    )


def test_ranges_hold_the_wanted_weight_of_new_rows():
    """Rows of large weight have large errors, and copies stand for weights, as in validation."""
    held = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        weights = random.choice([1.0, 8.0], 160, p=[0.8, 0.2])
        errors = random.normal(0, 1, 160) * np.where(weights > 1, 6.0, 1.0)
        copies = np.repeat(np.arange(60), np.maximum(1, weights[:60].astype(int)))
        share = 1.0 / np.bincount(copies)[copies]
        bands = learn_bands(
            np.zeros(len(copies)), errors[:60][copies], weights=weights[:60][copies] * share
        )
        low, high = bands.around(np.zeros(100), 0.9)
        new = errors[60:]
        held.append(np.average((low <= new) & (new <= high), weights=weights[60:]))
    assert 0.88 <= np.mean(held) <= 0.97


def test_equal_weights_of_copies_are_the_rows_themselves():
    predicted, targets = drawn(3, 150, 1.0)
    rows = np.repeat(np.arange(150), 3)
    plain = learn_bands(predicted, targets)
    copied = learn_bands(predicted[rows], targets[rows], weights=np.full(450, 1 / 3))
    np.testing.assert_allclose(copied.errors, plain.errors)
    np.testing.assert_array_equal(copied.sizes, plain.sizes)
