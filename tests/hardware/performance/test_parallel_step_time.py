from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.divided_plans import true_step_s
from tests.builders.examples import examples
from workbench.hardware.performance.parallel_plans import ModelShape, ParallelPlan, put_in_columns
from workbench.hardware.performance.parallel_step_time import (
    PARAMETERS,
    MeasuredStep,
    ParallelStepLaw,
    predict_steps,
)

SMALL = ModelShape(layers=16, hidden=1024, heads=16, sequence=1024)
ONE_WAY = [
    ParallelPlan(**{name: size}, micro_batch=batch, accumulation=accumulation, shape=SMALL)
    for name in ("replicas", "stages", "tensor")
    for size in (2, 4, 8)
    for batch, accumulation in ((1, 8), (2, 2), (2, 4), (8, 2))
]
TWO_WAYS = [
    ParallelPlan(replicas, stages, tensor, batch, 4, shape=SMALL)
    for replicas, stages, tensor in ((2, 2, 1), (2, 1, 4), (1, 2, 4), (1, 4, 2), (2, 2, 2))
    for batch in (1, 4)
]


MEASURED = [MeasuredStep(plan, true_step_s(plan)) for plan in ONE_WAY]


def errors_of(measured: list[MeasuredStep], plans: list[ParallelPlan]) -> np.ndarray:
    predicted = np.array(
        [predict_step.step_time_s for predict_step in predict_steps(measured, plans)]
    )
    return predicted / np.array([true_step_s(plan) for plan in plans]) - 1.0


def test_plans_divided_in_several_ways_follow_from_those_divided_in_one() -> None:
    assert np.abs(errors_of(MEASURED, TWO_WAYS)) == pytest.approx(0.0, abs=0.12)
    assert np.mean(np.abs(errors_of(MEASURED, TWO_WAYS))) < 0.05


def test_nine_of_ten_lie_within_the_interval_and_nothing_is_extrapolated() -> None:
    steps = predict_steps(MEASURED, TWO_WAYS)
    inside = [
        step.low_s <= true_step_s(plan) <= step.high_s
        for step, plan in zip(steps, TWO_WAYS, strict=True)
    ]
    assert np.mean(inside) >= 0.8
    assert not any(each.extrapolated for each in steps)


def test_another_model_is_predicted_less_surely_than_a_measured_one() -> None:
    plan = ParallelPlan(2, 2, 1, 2, 4, shape=SMALL)
    wide = replace(plan, shape=replace(SMALL, hidden=1536, layers=20))
    here, there = predict_steps(MEASURED, [plan, wide])
    assert there.high_s / there.low_s > here.high_s / here.low_s
    assert abs(there.step_time_s / true_step_s(wide) - 1.0) < 0.4
    assert there.low_s < true_step_s(wide) < there.high_s


def test_steps_of_other_models_on_one_node_leave_predictions_across_nodes_as_they_are() -> None:
    across = [MeasuredStep(replace(plan, nodes=2), 3.0 * true_step_s(plan)) for plan in ONE_WAY]
    other = replace(SMALL, hidden=1536, layers=20)
    wanted = [replace(plan, nodes=2, shape=other) for plan in TWO_WAYS]
    alone = predict_steps(across, wanted)
    assert predict_steps([*MEASURED, *across], wanted) == alone
    # Those of the same model say something of it.
    own = [MeasuredStep(replace(row.plan, shape=other), 2.0 * row.step_time_s) for row in MEASURED]
    assert predict_steps([*own, *across], wanted) != alone


def test_what_no_measured_plan_divides_is_extrapolated() -> None:
    replicas_only = [row for row in MEASURED if row.plan.replicas > 1]
    known, divided, far = predict_steps(
        replicas_only,
        [
            ParallelPlan(4, 1, 1, 2, 2, shape=SMALL),
            ParallelPlan(1, 4, 1, 2, 2, shape=SMALL),
            ParallelPlan(4, 1, 1, 64, 2, shape=SMALL),
        ],
    )
    assert [step.extrapolated for step in (known, divided, far)] == [False, True, True]
    assert divided.high_s / divided.low_s > known.high_s / known.low_s


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_few_rows_give_finite_intervals_around_the_estimate(num_rows: int) -> None:
    for predict_step in predict_steps(MEASURED[:num_rows], TWO_WAYS):
        assert 0.0 < predict_step.low_s < predict_step.step_time_s < predict_step.high_s < math.inf


def test_identical_rows_are_predicted_as_measured() -> None:
    step = predict_steps([MEASURED[3]] * 6, [MEASURED[3].plan])[0]
    assert step.step_time_s == pytest.approx(MEASURED[3].step_time_s, rel=0.02)


def test_a_model_of_unknown_size_is_predicted_too() -> None:
    unknown = [
        MeasuredStep(replace(row.plan, shape=ModelShape()), row.step_time_s) for row in MEASURED
    ]
    plans = [replace(plan, shape=ModelShape()) for plan in TWO_WAYS]
    predicted = np.array(
        [predict_step.step_time_s for predict_step in predict_steps(unknown, plans)]
    )
    assert np.mean(np.abs(predicted / [true_step_s(plan) for plan in TWO_WAYS] - 1.0)) < 0.08


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="one measurement"):
        predict_steps([], TWO_WAYS)
    assert predict_steps(MEASURED[:1], []) == []


@pytest.mark.parametrize("unit", [1e-3, 60.0])
def test_times_in_another_unit_give_predictions_in_it(unit: float) -> None:
    scaled = [MeasuredStep(row.plan, row.step_time_s * unit) for row in MEASURED]
    steps, other = predict_steps(MEASURED, TWO_WAYS), predict_steps(scaled, TWO_WAYS)
    for here, there in zip(steps, other, strict=True):
        assert there[:3] == pytest.approx([value * unit for value in here[:3]], rel=2e-3)


def test_the_order_of_the_rows_does_not_matter() -> None:
    steps, other = predict_steps(MEASURED, TWO_WAYS), predict_steps(MEASURED[::-1], TWO_WAYS)
    assert np.array(steps, float) == pytest.approx(np.array(other, float), rel=1e-9)


def test_tensor_parts_of_a_node_share_its_links_to_others() -> None:
    law = ParallelStepLaw(put_in_columns(ONE_WAY))
    fast = np.zeros(len(PARAMETERS))
    slow = fast + 3.0 * (np.array(PARAMETERS) == "replicas_across")
    # A node sends as many bytes, whether its replicas are whole or divided among its devices.
    columns = put_in_columns(
        [ParallelPlan(4, 1, tensor, nodes=2, shape=SMALL) for tensor in (1, 2, 4)]
    )
    longer_s = np.exp(law.log_step(slow, columns)) - np.exp(law.log_step(fast, columns))
    assert longer_s[0] > 0.0
    assert longer_s == pytest.approx([longer_s[0]] * 3)


def test_the_logits_wait_for_memory_as_the_layers_do() -> None:
    law = ParallelStepLaw(put_in_columns(ONE_WAY))
    quick = np.zeros(len(PARAMETERS))
    slow = quick + 2.0 * (np.array(PARAMETERS) == "move")
    few, many = (replace(SMALL, vocabulary=words) for words in (1_000, 250_000))
    columns = put_in_columns([ParallelPlan(shape=shape) for shape in (few, many)])
    longer_s = np.exp(law.log_step(slow, columns)) - np.exp(law.log_step(quick, columns))
    assert longer_s[1] > 1.5 * longer_s[0]


def test_what_does_not_grow_with_the_products_is_believed_to_count_less_beside_large_ones() -> None:
    def believed(shape: ModelShape, micro_batch: int) -> dict[str, float]:
        columns = put_in_columns([ParallelPlan(micro_batch=micro_batch, shape=shape)])
        means = ParallelStepLaw(columns).believe(columns, np.zeros(1)).means
        return dict(zip(PARAMETERS, means, strict=True))

    small, wide, long = (
        believed(SMALL, 2),
        believed(replace(SMALL, hidden=4096), 2),
        believed(SMALL, 16),
    )
    assert small["launch"] - long["launch"] == pytest.approx(np.log(8))
    assert small["ring"] - long["ring"] == pytest.approx(np.log(8))
    assert small["tensor_exchange"] - wide["tensor_exchange"] == pytest.approx(np.log(4))
    assert small["tensor_exchange"] == long["tensor_exchange"]


@given(
    st.builds(
        ParallelPlan,
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2, 8]),
        st.integers(1, 8),
        st.just(2),
        shape=st.just(SMALL),
    ),
    st.sampled_from(["micro_batch", "accumulation", "nodes"]),
    st.integers(0, 1000),
)
def test_the_law_never_shortens_a_step_by_more_work_or_slower_links(
    plan: ParallelPlan, name: str, seed: int
) -> None:
    law = ParallelStepLaw(put_in_columns(ONE_WAY))
    # Links between nodes are slower, in every draw.
    parameters = np.abs(np.random.default_rng(seed).normal(0.0, 1.0, len(PARAMETERS)))
    num_nodes = plan.num_workers
    more = replace(plan, **{name: num_nodes if name == "nodes" else getattr(plan, name) * 2})
    less_s, more_s = np.exp(law.log_step(parameters, put_in_columns([plan, more])))
    assert more_s >= less_s * (1.0 - 1e-9)


_SIZES = st.sampled_from([1, 2, 4])
_PLANS = st.builds(
    ParallelPlan,
    _SIZES,
    _SIZES,
    _SIZES,
    shape=st.just(SMALL),
    micro_batch=st.sampled_from([1, 2, 4, 8, 16]),
    accumulation=st.sampled_from([1, 2, 3, 8, 32]),
)


@given(
    st.lists(st.tuples(_PLANS, st.floats(0.95, 1.05)), min_size=1, max_size=12),
    st.lists(_PLANS, min_size=1),
)
@examples(20)
def test_no_step_is_predicted_faster_with_more_micro_batches_or_larger_ones(
    measured: list[tuple[ParallelPlan, float]], plans: list[ParallelPlan]
) -> None:
    steps = [MeasuredStep(plan, noise * true_step_s(plan)) for plan, noise in measured]
    plans = [*plans, *(plan for plan, _ in measured)]
    further = [replace(plan, accumulation=plan.accumulation + 1) for plan in plans]
    larger = [replace(plan, micro_batch=2 * plan.micro_batch) for plan in plans]
    times = np.reshape(
        [
            predict_step.step_time_s
            for predict_step in predict_steps(steps, [*plans, *further, *larger])
        ],
        (3, -1),
    )
    assert np.all(times[1:] > times[0])
