from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.divided_plans import true_peak_gb
from workbench.hardware.performance.parallel_plans import ModelShape, ParallelPlan, put_in_columns
from workbench.hardware.performance.plan_memory import (
    PARAMETERS,
    MeasuredPeak,
    log_peak,
    predict_memory,
)

SMALL = ModelShape(layers=16, hidden=2048, feed_forward=8192, vocabulary=128_000, sequence=2048)
LARGE = replace(SMALL, layers=28, hidden=3072, feed_forward=9216)
PLANS = [
    ParallelPlan(replicas, stages, tensor, batch, accumulation, zero=zero, shape=SMALL)
    for replicas, stages, tensor in (
        (1, 1, 8),
        (2, 1, 4),
        (8, 1, 1),
        (1, 4, 2),
        (4, 2, 1),
        (2, 2, 2),
        (1, 8, 1),
    )
    for batch, accumulation in ((1, 16), (2, 8), (8, 2))
    for zero in (0, 1)
]


MEASURED = [MeasuredPeak(plan, true_peak_gb(plan)) for plan in PLANS]


def test_a_model_that_was_never_run_is_predicted() -> None:
    plans = [replace(plan, shape=LARGE) for plan in PLANS]
    truth = np.array([true_peak_gb(plan) for plan in plans])
    predicted = np.array([row[:3] for row in predict_memory(MEASURED, plans)])
    assert np.mean(np.abs(predicted[:, 0] / truth - 1.0)) < 0.1
    assert np.mean((predicted[:, 1] <= truth) & (truth <= predicted[:, 2])) >= 0.8


def test_a_plan_that_was_not_measured_is_predicted() -> None:
    for index in range(0, len(MEASURED), 9):
        others = MEASURED[:index] + MEASURED[index + 1 :]
        predicted = predict_memory(others, [MEASURED[index].plan])[0]
        assert predicted.memory_gb == pytest.approx(MEASURED[index].memory_gb, rel=0.2)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_few_rows_give_finite_intervals_around_the_estimate(num_rows: int) -> None:
    for predicted in predict_memory(MEASURED[:num_rows], PLANS):
        assert 0.0 < predicted.low_gb < predicted.memory_gb < predicted.high_gb < math.inf
        assert predicted.memory_gb < 500.0


def test_a_model_of_unknown_size_takes_its_bytes_from_the_measurements() -> None:
    measured = [
        MeasuredPeak(replace(row.plan, shape=ModelShape()), 7.0 * row.memory_gb) for row in MEASURED
    ]
    memory = predict_memory(measured[::2], [row.plan for row in measured[1::2]])
    truth = np.array([row.memory_gb for row in measured[1::2]])
    assert np.mean(np.abs(np.array([row.memory_gb for row in memory]) / truth - 1.0)) < 0.15


def test_a_much_larger_model_is_extrapolated_and_less_sure() -> None:
    plan = PLANS[0]
    near, far = predict_memory(
        MEASURED,
        [replace(plan, shape=LARGE), replace(plan, shape=replace(SMALL, layers=80, hidden=16384))],
    )
    assert [near.extrapolated, far.extrapolated] == [False, True]
    assert far.high_gb / far.low_gb > near.high_gb / near.low_gb


def test_the_order_of_the_rows_does_not_matter() -> None:
    predicted = np.array(predict_memory(MEASURED, PLANS[:4]), float)
    assert np.array(predict_memory(MEASURED[::-1], PLANS[:4]), float) == pytest.approx(
        predicted, rel=1e-9
    )


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="one measurement"):
        predict_memory([], PLANS)
    assert predict_memory(MEASURED[:2], []) == []


@given(
    st.sampled_from(PLANS),
    st.sampled_from(["micro_batch", "layers", "hidden", "feed_forward", "vocabulary", "sequence"]),
    st.integers(0, 1000),
)
def test_the_law_never_needs_less_for_more(plan: ParallelPlan, name: str, seed: int) -> None:
    parameters = np.random.default_rng(seed).normal(0.0, 1.0, len(PARAMETERS))
    if name == "micro_batch":
        more = replace(plan, micro_batch=2 * plan.micro_batch)
    else:
        more = replace(plan, shape=replace(plan.shape, **{name: 2 * getattr(plan.shape, name)}))
    smaller, larger = log_peak(parameters, put_in_columns([plan, more]))
    assert larger >= smaller - 1e-9


@given(st.sampled_from(PLANS), st.integers(0, 1000))
def test_what_is_shared_further_needs_no_more(plan: ParallelPlan, seed: int) -> None:
    parameters = np.random.default_rng(seed).normal(0.0, 1.0, len(PARAMETERS))
    peaks = log_peak(parameters, put_in_columns([replace(plan, zero=zero) for zero in range(4)]))
    assert np.all(np.diff(peaks) <= 1e-9)


def test_a_small_model_predicts_with_the_table_that_embeds_and_a_large_one_with_its_own() -> None:
    parameters = np.zeros(len(PARAMETERS))
    parameters[PARAMETERS.index("tied_share")] = math.log(0.09)
    small = replace(SMALL, vocabulary=128_000, sequence=1)
    large = replace(small, hidden=8192, feed_forward=28_672, layers=80)
    for shape, num_tables in ((small, 1.0), (large, 2.0)):
        plans = [ParallelPlan(stages=stages, shape=shape) for stages in (1, 2)]
        one, two = np.exp(log_peak(parameters, put_in_columns(plans)))
        words, hidden, wide = shape.vocabulary or 0, shape.hidden or 0, shape.feed_forward or 0
        block = (shape.layers or 0) * (4.0 * hidden**2 + 3.0 * hidden * wide)
        # With factors of 1 a parameter takes two bytes, and what is beside them is a GB.
        assert one == pytest.approx(1.0 + 2e-9 * (block + num_tables * words * hidden), rel=0.02)
        assert two < one


def test_a_width_that_is_unknown_is_as_usual_or_as_that_of_the_measured_models() -> None:
    def of(shape: ModelShape, feed_forward: int | None) -> list[ParallelPlan]:
        return [
            replace(plan, shape=replace(shape, feed_forward=feed_forward)) for plan in PLANS[:4]
        ]

    def measured(feed_forward: int | None) -> list[MeasuredPeak]:
        return [MeasuredPeak(plan, 10.0 + at) for at, plan in enumerate(of(LARGE, feed_forward))]

    usual = predict_memory(measured(None), of(LARGE, None))
    assert usual == predict_memory(measured(3 * 3072), of(LARGE, 3 * 3072))
    alike = predict_memory(measured(4 * 3072), of(SMALL, None))
    assert alike == predict_memory(measured(4 * 3072), of(SMALL, 4 * 2048))
