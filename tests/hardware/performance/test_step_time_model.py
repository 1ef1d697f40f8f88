from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.hardware.performance.step_time import Measurement, Point, Prediction, fit
from workbench.hardware.performance.topology import Topology

Truth = Callable[[Topology, float], float]
BATCHES = (8.0, 16.0, 32.0, 64.0, 128.0)


def ring_cluster(topology: Topology, micro_batch: float) -> float:
    """A law that is not ours.

    Bytes over the narrowest link of a ring, three quarters of it hidden.
    """
    gpus, compute_s = topology.num_gpus, 0.02 + 0.002 * micro_batch
    if gpus == 1:
        return compute_s
    exchange_s = 2.0 * (gpus - 1) / gpus * (0.02 if topology.num_nodes == 1 else 0.12)
    return max(0.75 * compute_s, exchange_s) + 0.25 * compute_s


def server_cluster(topology: Topology, micro_batch: float) -> float:
    """One server that all workers send to, one after the other, nothing hidden."""
    gpus, compute_s = topology.num_gpus, 0.02 + 0.002 * micro_batch
    return compute_s + (0.0 if gpus == 1 else 0.03 * gpus)


def spread(
    nodes: Sequence[int] = (1, 2, 3, 4), per_node: Sequence[int] = (1, 2, 4)
) -> list[Topology]:
    return [Topology.of(num, num * count) for num in nodes for count in per_node]


def measure(
    truth: Truth,
    topologies: Sequence[Topology],
    batches: Sequence[float] = BATCHES,
    noise: float = 0.03,
    seed: int = 0,
) -> list[Measurement]:
    random = np.random.default_rng(seed)
    return [
        Measurement(
            topology,
            batch,
            truth(topology, batch) * float(np.exp(noise * random.standard_normal())),
        )
        for topology in topologies
        for batch in batches
    ]


def errors(found: Sequence[Prediction], points: Sequence[Point], truth: Truth) -> np.ndarray:
    times = np.array([truth(point.topology, point.micro_batch) for point in points])
    return np.abs(np.array([row.step_time_s for row in found]) - times) / times


def coverage(found: Sequence[Prediction], times: Sequence[float]) -> float:
    return float(
        np.mean([row.low_s <= time <= row.high_s for row, time in zip(found, times, strict=True)])
    )


@pytest.mark.parametrize("truth", [ring_cluster, server_cluster])
def test_rows_in_between_are_predicted_on_clusters_of_different_laws(truth: Truth) -> None:
    rows = measure(truth, spread())
    order = np.random.default_rng(1).permutation(len(rows))
    seen = [rows[index] for index in order[:24]]
    unseen = [rows[index] for index in order[24:]]
    points = [Point(row.topology, row.micro_batch) for row in unseen]
    predicted = fit(seen).predict(points)
    assert np.mean(errors(predicted, points, truth)) < 0.08


def test_twelve_rows_on_four_placements_say_much_about_a_cluster() -> None:
    placements = [Topology.of(1, 1), Topology.of(1, 4), Topology.of(2, 4), Topology.of(4, 12)]
    model = fit(measure(ring_cluster, placements, (8.0, 32.0, 128.0)))
    points = [Point(topology, batch) for topology in spread() for batch in BATCHES]
    assert np.mean(errors(model.predict(points), points, ring_cluster)) < 0.16


def test_the_law_of_communication_is_the_one_that_held_out_placements_follow() -> None:
    rows = measure(server_cluster, spread((1, 2), (1, 2, 4)), noise=0.01)
    assert fit(rows).law.communication == "linear in the group"


def test_nine_of_ten_rows_lie_in_their_intervals() -> None:
    predictions: list[Prediction] = []
    times: list[float] = []
    for draw in range(8):
        rows = measure(ring_cluster, spread(), noise=0.05, seed=draw)
        order = np.random.default_rng(draw).permutation(len(rows))
        unseen = [rows[index] for index in order[30:]]
        model = fit([rows[index] for index in order[:30]])
        predictions += model.predict([Point(row.topology, row.micro_batch) for row in unseen])
        times += [row.step_time_s for row in unseen]
    assert 0.82 <= coverage(predictions, times) <= 0.97


@pytest.mark.parametrize(
    ("measured", "asked", "beyond"),
    [
        ([(1, 1)], (1, 1), False),
        ([(1, 1)], (1, 2), True),
        ([(1, 1), (1, 2)], (1, 4), True),
        ([(1, 1), (1, 3)], (1, 4), False),
        ([(1, 1), (1, 3)], (1, 8), True),
        ([(1, 1), (1, 4)], (2, 4), True),
        ([(1, 1), (1, 4), (2, 4)], (2, 8), False),
        ([(1, 1), (1, 4), (2, 8)], (3, 6), True),
        ([(1, 1), (1, 4), (2, 8), (3, 6)], (4, 16), False),
        ([(1, 1), (1, 4), (2, 8), (3, 6)], (8, 16), True),
        ([(2, 4)], (1, 1), True),
    ],
)
def test_beyond_a_boundary_that_was_not_measured_it_says_so_and_is_unsure(
    measured: list[tuple[int, int]], asked: tuple[int, int], beyond: bool
) -> None:
    rows = measure(ring_cluster, [Topology.of(*placement) for placement in measured])
    model = fit(rows)
    predicted, known = model.predict(
        [Point(Topology.of(*asked), 32.0), Point(rows[0].topology, 32.0)]
    )
    assert predicted.extrapolated is beyond
    assert not known.extrapolated
    if beyond:
        assert np.log(predicted.high_s / predicted.low_s) > 2 * np.log(known.high_s / known.low_s)


@pytest.mark.parametrize(
    ("batch", "beyond"), [(5.0, False), (3.0, True), (256.0, False), (257.0, True)]
)
def test_batches_far_outside_are_extrapolated(batch: float, beyond: bool) -> None:
    model = fit(measure(ring_cluster, [Topology.of(1, 1)]))
    assert model.predict([Point(Topology.of(1, 1), batch)])[0].extrapolated is beyond


def test_one_row_is_enough_for_an_answer_and_says_little() -> None:
    model = fit([Measurement(Topology.of(1, 1), 32.0, 0.1)])
    same, elsewhere = model.predict(
        [Point(Topology.of(1, 1), 32.0), Point(Topology.of(2, 8), 32.0)]
    )
    assert same.step_time_s == pytest.approx(0.1, rel=0.02)
    assert elsewhere.low_s < 0.1 < elsewhere.high_s
    assert elsewhere.high_s > 5 * elsewhere.low_s
    assert model.predict([]) == []
    with pytest.raises(ValueError, match="one measurement"):
        fit([])


def test_a_row_that_went_wrong_does_not_spoil_the_others() -> None:
    placements = [Topology.of(1, 1), Topology.of(1, 4), Topology.of(2, 4), Topology.of(4, 12)]
    rows = measure(ring_cluster, placements)
    points = [Point(row.topology, row.micro_batch) for row in rows]
    spoilt = list(rows)
    spoilt[7] = Measurement(rows[7].topology, rows[7].micro_batch, 4 * rows[7].step_time_s)
    assert np.mean(errors(fit(spoilt).predict(points), points, ring_cluster)) < 0.06


def test_micro_steps_before_the_last_only_compute() -> None:
    topology = Topology.of(2, 2)
    alone = fit(measure(ring_cluster, spread((1,), (1,)), noise=0.0)).predict(
        [Point(Topology.of(1, 1), 32.0, accumulation) for accumulation in (1, 4)]
    )
    assert alone[1].step_time_s == pytest.approx(4 * alone[0].step_time_s, rel=1e-6)
    model = fit(measure(ring_cluster, spread(), noise=0.0))
    once, twice, thrice = model.predict(
        [Point(topology, 32.0, accumulation) for accumulation in (1, 2, 3)]
    )
    further_s = twice.step_time_s - once.step_time_s
    assert thrice.step_time_s - twice.step_time_s == pytest.approx(further_s)
    assert further_s == pytest.approx(0.02 + 0.002 * 32, rel=0.2)


@examples(10)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(spread((1, 2, 3), (1, 2))),
            st.sampled_from(BATCHES),
            st.floats(1e-4, 10.0),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_more_micro_steps_never_make_a_step_faster(
    rows: list[tuple[Topology, float, float]],
) -> None:
    model = fit([Measurement(*row) for row in rows])
    for topology in spread((1, 2, 4), (1, 2)):
        points = [
            Point(topology, batch, times) for batch in (8.0, 100.0) for times in (1, 2, 3, 16)
        ]
        found = np.reshape([step.step_time_s for step in model.predict(points)], (2, 4))
        assert np.all(np.diff(found, axis=1) > 0.0)


def test_synchronisation_times_separate_computing_from_communicating() -> None:
    topology = Topology.of(2, 4)
    rows = measure(server_cluster, [topology], noise=0.0)
    told = [
        Measurement(
            row.topology, row.micro_batch, row.step_time_s, sync_time_s=0.03 * topology.num_gpus
        )
        for row in rows
    ]
    truth_s = 0.02 + 0.002 * 32
    asked = [Point(Topology.of(1, 1), 32.0)]
    blind, knowing = fit(rows).predict(asked)[0], fit(told).predict(asked)[0]
    assert abs(knowing.step_time_s - truth_s) < 0.15 * truth_s < abs(blind.step_time_s - truth_s)
    assert knowing.high_s / knowing.low_s < blind.high_s / blind.low_s


def test_the_same_rows_give_the_same_answers() -> None:
    rows = measure(ring_cluster, spread())
    points = [Point(Topology.of(2, 6), 48.0), Point(Topology.of(16, 64), 1.0)]
    assert fit(rows).predict(points) == fit(rows).predict(points)


rows_of_tables = st.lists(
    st.builds(
        Measurement,
        st.builds(
            lambda nodes, each: Topology.of(nodes, nodes * each),
            st.integers(1, 9),
            st.integers(1, 9),
        ),
        st.floats(1.0, 1e5),
        st.floats(1e-6, 1e5),
        st.none() | st.just(0.0) | st.floats(1e-7, 1e-6),
    ),
    min_size=1,
    max_size=8,
)


@examples(10)
@given(rows_of_tables)
def test_any_table_has_an_answer(rows: list[Measurement]) -> None:
    points = [
        Point(Topology.of(*placement), batch)
        for placement in ((1, 1), (1, 4), (3, 7))
        for batch in (1.0, 1e4)
    ]
    predicted = np.array(fit(rows).predict(points))
    assert np.all(np.isfinite(predicted))
    assert np.all(
        (predicted[:, 1] > 0)
        & (predicted[:, 1] <= predicted[:, 0])
        & (predicted[:, 0] <= predicted[:, 2])
    )


@pytest.mark.parametrize("factor", [1e-3, 60.0])
def test_the_unit_of_time_does_not_matter(factor: float) -> None:
    rows = measure(ring_cluster, spread())[::3]
    scaled = [Measurement(row.topology, row.micro_batch, factor * row.step_time_s) for row in rows]
    points = [Point(topology, 24.0) for topology in spread()]
    once, again = (np.array(fit(each).predict(points))[:, :3] for each in (rows, scaled))
    # Only the prior of a hop is in seconds. It matters little next to so many measurements.
    np.testing.assert_allclose(again, factor * once, rtol=4e-2)
