from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advisor.test_plans import measure
from workbench.advisor.plan_variants import read_plan
from workbench.advisor.worker_scaling import _times, scale_of
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.topology import num_parameter_servers

PARTS_S = {"data": 0.0, "forward": 0.04, "backward": 0.06, "update": 0.0}


def timed(
    workers: int, wait_s: float, micro_batch: int = 64, computing_s: float = 0.1
) -> PlanMeasured:
    """A step that computes, and waits longer the more workers there are."""
    measured = measure(workers, micro_batch, computing_s + wait_s)
    return measured.model_copy(update={"parts_s": {**PARTS_S, "communication": wait_s}})


CHEAP = [timed(1, 0.0), timed(2, 0.005), timed(4, 0.01), timed(8, 0.02)]


def test_workers_pay_while_the_efficiency_is_reached() -> None:
    scale = scale_of(CHEAP, 0.9)
    by_count = {point.workers: point for point in scale.curve}
    assert (by_count[1].efficiency_low, by_count[1].efficiency, by_count[1].efficiency_high) == (
        1.0,
        1.0,
        1.0,
    )
    assert by_count[8].speedup == pytest.approx(8 / 1.2)
    assert by_count[8].is_measured
    assert not by_count[3].is_measured
    assert 4 <= scale.pays_up_to < 8
    assert scale_of(CHEAP, 0.8).pays_up_to >= 8
    assert scale.overhead == pytest.approx((1 - 1 / 1.2) / (8 / 1.2 - 1))
    assert scale.overhead_allowed == pytest.approx(0.1 / (0.9 * 8 - 1))


def test_the_curve_bends_where_one_more_brings_less_than_half_a_worker() -> None:
    assert scale_of(CHEAP, 0.8).bends_at is None
    scale = scale_of([timed(1, 0.0), timed(2, 0.05), timed(4, 0.2), timed(8, 0.6)], 0.8)
    assert scale.bends_at is not None
    assert scale.bends_at <= 4
    assert scale.pays_up_to == 1


def test_servers_hide_the_exchange_that_was_measured() -> None:
    scale = scale_of(CHEAP, 0.8)
    assert (scale.exchange_s, scale.exchange_workers) == (0.02, 8)
    for point in scale.curve:
        # A ring of eight moves 7/4 of the parameters over each link in 0.02 s.
        assert point.servers == num_parameter_servers(0.02 * 4 / 7, point.workers, 1.0, 0.1)
        assert point.servers is not None
        assert point.servers_used is not None
        assert point.servers_used <= 1.0
        assert point.servers == 1 or point.servers_used > (point.servers - 1) / point.servers


def test_an_exchange_that_nobody_waited_for_leaves_a_bound_on_servers() -> None:
    scale = scale_of([timed(1, 0.0), timed(2, 0.0)], 0.8)
    assert scale.exchange_s is None
    assert {point.servers for point in scale.curve} == {None}
    # The backward pass of 0.06 s hides the exchange. Two workers send all parameters once in it.
    assert [point.servers_at_most for point in scale.curve] == [
        num_parameter_servers(0.06, workers, 1.0, 0.1) for workers in (1, 2)
    ]
    unknown = [row.model_copy(update={"parts_s": PARTS_S}) for row in CHEAP]
    assert {point.servers_at_most for point in scale_of(unknown, 0.8).curve} == {None}


def test_a_measured_wait_may_hide_more_of_the_exchange() -> None:
    for point in scale_of(CHEAP, 0.8).curve:
        hidden = num_parameter_servers((0.02 + 0.06) * 4 / 7, point.workers, 1.0, 0.1)
        assert point.servers_at_most == hidden
        assert point.servers is not None
        assert point.servers <= hidden


def test_workers_more_efficient_than_one_alone_are_doubted() -> None:
    slow_alone = [timed(1, 0.0, computing_s=0.13), *CHEAP[1:]]
    scale = scale_of(slow_alone, 0.8)
    by_count = {point.workers: point for point in scale.curve}
    assert by_count[2].is_doubtful
    assert scale.pays_up_to is None
    assert not any(point.is_doubtful for point in scale_of(CHEAP, 0.8).curve)
    # A doubtful number beyond a clear loss changes nothing.
    lossy = scale_of([timed(1, 0.0), timed(2, 0.4), timed(4, -0.02)], 0.8)
    assert lossy.pays_up_to == 1


@pytest.mark.parametrize(
    ("measured", "room", "limit", "why"),
    [
        (CHEAP[:2], None, 8, "at most 2 workers were measured"),
        (CHEAP[:2], 2, 2, "more than 2 workers need another machine"),
        (CHEAP[:2], 6, 6, "more than 6 workers need another machine"),
        (CHEAP, 64, 32, "at most 8 workers were measured"),
    ],
)
def test_no_more_workers_are_predicted_than_the_measurements_can_speak_about(
    measured: list[PlanMeasured], room: int | None, limit: int, why: str
) -> None:
    scale = scale_of(measured, 0.8, up_to=1024, room=room)
    assert (scale.limit, scale.curve[-1].workers) == (limit, limit)
    assert scale.why_limited is not None
    assert why in scale.why_limited
    assert scale_of(measured, 0.8, up_to=2, room=room).why_limited is None


def test_machines_that_were_measured_together_limit_less_than_one_machine() -> None:
    apart = [row.model_copy(update={"workers_per_node": [1] * 2}) for row in CHEAP[1:2]]
    assert scale_of([CHEAP[0], *apart], 0.8, up_to=8, room=4).limit == 8


def test_the_plan_that_the_advice_chose_is_preferred() -> None:
    other = [timed(workers, 0.01, 16, 0.03) for workers in (1, 2)]
    chosen = read_plan(other[0].plan)
    scale = scale_of([*CHEAP, *other], 0.8, chosen=chosen)
    assert (scale.micro_batch, scale.is_of_choice) == (16, True)
    assert scale_of([*CHEAP, *other], 0.8).micro_batch == 64
    lost = scale_of(CHEAP, 0.8, chosen=chosen)
    assert (lost.micro_batch, lost.is_of_choice) == (64, False)


def test_the_curve_ends_where_the_measurements_do() -> None:
    # Two workers say nothing of a ring of three.
    assert [point.workers for point in scale_of(CHEAP[:2], 0.8).curve] == [1, 2]
    assert [point.workers for point in scale_of(CHEAP, 0.8).curve][-1] == 16


def test_what_was_measured_beyond_a_gap_is_shown() -> None:
    far = timed(8, 0.02).model_copy(update={"workers_per_node": [4, 4]})
    scale = scale_of([*CHEAP[:2], far], 0.8)
    assert [point.workers for point in scale.curve if point.is_measured] == [1, 2, 8]
    assert scale.measured_up_to == 8
    assert scale.pays_up_to >= 8


def test_trials_show_it_where_no_probe_does() -> None:
    trials = [row.model_copy(update={"by_trial": number}) for number, row in enumerate(CHEAP)]
    scale = scale_of(trials, 0.8)
    assert scale.by_trials
    assert [point.speedup for point in scale.curve] == [
        point.speedup for point in scale_of(CHEAP, 0.8).curve
    ]
    disturbed = [trial.model_copy(update={"step_time_s": 9.0}) for trial in trials]
    assert scale_of([*CHEAP, *disturbed], 0.8) == scale_of(CHEAP, 0.8)


def test_what_is_extrapolated_on_request_is_marked() -> None:
    curve = scale_of(CHEAP, 0.8, up_to=32).curve
    assert [point.workers for point in curve] == list(range(1, 33))
    assert {point.workers for point in curve if not point.extrapolated} >= {1, 2, 4, 8}
    assert curve[-1].extrapolated
    assert curve[-1].efficiency < curve[7].efficiency
    assert [round(point.exchange_share or 0, 3) for point in curve if point.is_measured] == [
        0,
        round(0.005 / 0.105, 3),
        round(0.01 / 0.11, 3),
        round(0.02 / 0.12, 3),
    ]


def test_one_worker_alone_does_not_show_how_a_plan_scales() -> None:
    for measured in ([], [timed(1, 0.0)], [timed(1, 0.0), timed(2, 0.1, micro_batch=32)]):
        with pytest.raises(RunError, match="one worker and on several"):
            scale_of(measured, 0.8)


def test_one_worker_is_predicted_between_the_micro_batches_that_it_was_timed_with() -> None:
    # 0.02 s, and 0.001 s a sample.
    measured = [timed(1, 0.0, 32, 0.052), timed(1, 0.0, 128, 0.148), timed(2, 0.0211, 64, 0.084)]
    scale = scale_of(measured, 0.5)
    alone, two = scale.curve[:2]
    assert (scale.micro_batch, alone.workers, alone.is_measured, two.is_measured) == (
        64,
        1,
        False,
        True,
    )
    assert alone.step_time_s == pytest.approx(0.084, rel=0.05)
    assert two.efficiency == pytest.approx(0.084 / 0.1051, rel=0.05)
    assert "communication" not in scale.parts_s
    with pytest.raises(RunError, match=r"Or run a sweep that searches plan\.workers"):
        scale_of([measured[0], measured[2]], 0.5)


def test_the_setting_with_the_most_workers_counts_alone() -> None:
    other = [row.model_copy(update={"setting": "other", "step_time_s": 9.0}) for row in CHEAP[:2]]
    assert scale_of([*other, *CHEAP], 0.8) == scale_of(CHEAP, 0.8)


def test_one_global_batch_is_divided_so_that_no_worker_takes_more_at_once_than_was_measured() -> (
    None
):
    curve = scale_of(CHEAP, 0.8, global_batch=256).curve
    divided = {point.workers: point.divided for point in curve if point.divided is not None}
    assert {
        workers: (plan.micro_batch, plan.accumulation) for workers, plan in divided.items()
    } == {
        1: (64, 4),
        2: (64, 2),
        4: (64, 1),
        8: (32, 1),
        16: (16, 1),
    }
    # Four steps of 64 samples take one worker 0.4 s; four workers were measured with 64 samples
    # each.
    assert divided[1].step_time_s == pytest.approx(0.4, rel=0.05)
    assert divided[4].step_time_s == curve[3].step_time_s
    assert divided[4].speedup == pytest.approx(0.4 / 0.11, rel=0.05)
    # Other micro batches than 64 were never measured, which the interval shows.
    assert divided[8].efficiency_high > 1.5 * divided[8].efficiency_low
    assert (divided[8].extrapolated, divided[16].extrapolated) == (False, True)
    assert all(point.divided is None for point in scale_of(CHEAP, 0.8).curve)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_the_parts_of_a_batch_are_equal_and_as_few_as_can_be(share: int, most: int) -> None:
    times = _times(share, most)
    assert share % times == 0
    assert share // times <= most
    assert not [fewer for fewer in range(1, times) if share % fewer == 0 and share // fewer <= most]


@pytest.mark.slow
@given(
    st.lists(st.floats(1e-4, 0.5), min_size=2, max_size=4),
    st.sampled_from([16, 64, 256]),
)
def test_no_step_is_predicted_faster_than_one_of_fewer_workers(
    steps_s: list[float], other_batch: int
) -> None:
    """However far measured steps are from any law.

    Every worker has as much to do, and waits for more.
    """
    measured = [measure(2**power, 64, step_s) for power, step_s in enumerate(steps_s)]
    measured.append(measure(2, other_batch, 0.01))
    longest_s = 0.0
    for point in scale_of(measured, 0.8, up_to=16).curve:
        if point.is_measured:
            longest_s = max(longest_s, point.step_time_s)
        else:
            assert point.step_time_s >= longest_s
            assert point.efficiency_low <= point.efficiency <= point.efficiency_high


def test_more_workers_than_were_measured_are_on_more_such_nodes() -> None:
    placed = [
        (1, 0.1, [1]),
        (2, 0.11, [2]),
        (4, 0.12, [4]),
        (8, 0.3, [4, 4]),
        (12, 0.22, [4, 4, 4]),
    ]
    measured = [measure(workers, 64, step_s, nodes=nodes) for workers, step_s, nodes in placed]
    step_s = {point.workers: point.step_time_s for point in scale_of(measured, 0.8, up_to=16).curve}
    assert min(step_s[workers] for workers in range(9, 17)) > 0.18
    # Rings of three nodes and more share no link, so they need not be as slow as those of two.
    assert max(step_s[workers] for workers in range(9, 17)) < 0.28


def test_a_slow_step_on_two_workers_is_not_forgotten_on_four() -> None:
    # Seen on two cores: a law through all micro batches would have taken four workers for faster
    # than two.
    measured = [
        measure(1, 4, 0.00031),
        measure(1, 64, 0.00047),
        measure(1, 256, 0.00085),
        measure(2, 2, 0.00246),
        measure(2, 16, 0.00253),
        measure(2, 128, 0.00488),
    ]
    curve = scale_of(measured, 0.8, up_to=8).curve
    assert [point.step_time_s >= 0.00488 for point in curve] == [False, *[True] * 7]
    assert max(point.efficiency for point in curve[2:]) <= curve[1].efficiency
