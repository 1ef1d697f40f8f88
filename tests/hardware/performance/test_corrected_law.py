from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.performance.corrected_law import (
    Array,
    Belief,
    Columns,
    CorrectedLaw,
    Part,
    order_of,
)


def line(parameters: Array, columns: Columns) -> Array:
    return parameters[0] + parameters[1] * columns["x"]


BELIEF = Belief(np.zeros(2), np.full(2, 3.0), [np.zeros(2)])
PARTS = (Part(0.1, {"x": 1.0}), Part(0.1, {"kind": 0.0}))


def fit(x: Array, kind: Array, logs: Array, *, settles: bool = True) -> CorrectedLaw:
    columns = {"x": x, "kind": kind}
    order = order_of(columns, logs, 1000)
    chosen = {name: values[order] for name, values in columns.items()}
    return CorrectedLaw(
        line,
        BELIEF,
        PARTS,
        noise=0.03,
        measured=chosen,
        logs=logs[order],
        groups=list(chosen["kind"]),
        settles=settles,
    )


def test_what_is_alike_for_a_kind_is_found_beside_the_law() -> None:
    random = np.random.default_rng(0)
    x, kind = np.tile(np.arange(12.0), 3), np.repeat([0.0, 1.0, 2.0], 12)
    logs = (
        1.0 + 0.2 * x + np.array([0.3, 0.0, -0.3])[kind.astype(int)] + random.normal(0.0, 0.01, 36)
    )
    seen = ~((kind == 0.0) & (x > 5.0))
    fitted, deviations = fit(x[seen], kind[seen], logs[seen]).predict(
        {"x": x[~seen], "kind": kind[~seen]}
    )
    assert np.abs(fitted - logs[~seen]) == pytest.approx(0.0, abs=0.06)
    assert np.all(np.abs(fitted - logs[~seen]) < 3.0 * deviations)


def test_a_row_that_is_far_off_hardly_moves_the_others() -> None:
    x = np.arange(20.0)
    logs = 1.0 + 0.1 * x
    odd = logs.copy()
    odd[7] += 2.0
    wanted = {"x": np.array([7.0, 12.0]), "kind": np.zeros(2)}
    plain, _ = fit(x, np.zeros(20), logs).predict(wanted)
    beside, _ = fit(x, np.zeros(20), odd).predict(wanted)
    moved = np.abs(beside - plain)
    assert moved[0] < 0.4
    assert moved[1] < 0.1


def test_rows_that_are_odd_alike_hardly_move_a_law_that_carries_further() -> None:
    x, kind = np.arange(24.0), np.repeat([0.0, 1.0, 2.0, 3.0], 6)
    logs = 1.0 + 0.1 * x
    odd = logs.copy()
    odd[14:18] += 0.6
    wanted = {"x": np.array([40.0]), "kind": np.array([4.0])}
    plain, _ = fit(x, kind, logs, settles=False).predict(wanted)
    beside, _ = fit(x, kind, odd, settles=False).predict(wanted)
    assert beside == pytest.approx(plain, abs=0.01)


def test_a_part_can_be_left_out_of_rows() -> None:
    part = Part(0.5, {"x": 1.0}, "busy")
    rows = {"x": np.array([1.0, 1.0]), "busy": np.array([0.0, 1.0])}
    assert part.correlation(rows, rows).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert part.share(rows).tolist() == [0.0, 1.0]


def test_intervals_grow_with_the_distance_from_what_was_measured() -> None:
    random = np.random.default_rng(1)
    x = np.arange(10.0)
    _, deviations = fit(x, np.zeros(10), 0.1 * x + random.normal(0.0, 0.05, 10)).predict(
        {"x": np.array([5.0, 12.0, 20.0]), "kind": np.array([0.0, 0.0, 1.0])}
    )
    assert np.all(np.diff(deviations) > 0.0)


@given(st.integers(0, 10_000), st.booleans())
def test_the_order_of_the_rows_does_not_matter(seed: int, settles: bool) -> None:
    random = np.random.default_rng(seed)
    x, kind = np.arange(8.0), np.repeat([0.0, 1.0], 4)
    logs = 0.3 * x + random.normal(0.0, 0.1, 8)
    shuffled = random.permutation(8)
    wanted = {"x": np.array([2.5, 9.0]), "kind": np.array([1.0, 2.0])}
    predicted = fit(x, kind, logs, settles=settles).predict(wanted)
    other = fit(x[shuffled], kind[shuffled], logs[shuffled], settles=settles).predict(wanted)
    assert predicted[0] == pytest.approx(other[0], abs=1e-9)
    assert predicted[1] == pytest.approx(other[1], abs=1e-9)
