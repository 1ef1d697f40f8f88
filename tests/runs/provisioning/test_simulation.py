from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.foundation.errors import ResourcesError, RunError
from workbench.hardware.performance.topology import speedup
from workbench.runs.provisioning.simulation import (
    POLICIES,
    Cluster,
    SimulationResult,
    Trial,
    draw_trials,
    quantiles_ms,
    simulate,
)

clusters = st.builds(
    Cluster,
    gpus=st.integers(4, 20),
    gpus_per_node=st.sampled_from([2, 3, 4]),
    failures_per_node_hour=st.sampled_from([0.0, 0.05, 0.5]),
    overhead=st.sampled_from([0.0, 0.1]),
)
trials = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.floats(1.0, 1e4)),
    min_size=1,
    max_size=25,
)


def made(drawn: list[tuple[str, int, float]]) -> list[Trial]:
    return [
        Trial(run_id, number, workers, work_s, priority=int(run_id == "a"))
        for number, (run_id, workers, work_s) in enumerate(drawn)
    ]


def most_at_once(result: SimulationResult) -> Counter[str]:
    """Return the most GPUs that were leased on each machine at any moment."""
    moments = []
    for stretch in result.leases:
        for node_id in stretch.nodes:
            moments += [(stretch.began_s, 1, node_id), (stretch.ended_s, 0, node_id)]
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for _, begins, node_id in sorted(moments):  # what ends goes first
        held[node_id] += 1 if begins else -1
        most[node_id] = max(most[node_id], held[node_id])
    return most


@examples(60)
@given(cluster=clusters, drawn=trials, policy=st.sampled_from(POLICIES), seed=st.integers(0, 3))
def test_all_work_is_done_once_and_no_machine_ever_holds_more_than_it_has(
    cluster, drawn, policy, seed
):
    todo = made(drawn)
    result = simulate(cluster, todo, policy, seed)
    sizes = {node.node_id: node.gpus for node in cluster.nodes()}
    assert all(most <= sizes[node_id] for node_id, most in most_at_once(result).items())
    for trial in todo:
        own = [lease for lease in result.leases if lease.trial.number == trial.number]
        widths = [len(step.nodes) for step in own]
        if policy == "elastic":
            assert widths[0] == 1
            assert widths == sorted(widths)
            assert widths[-1] <= max(other.workers for other in todo)
        else:  # whole or not at all
            assert set(widths) == {1 if policy == "one-gpu" else trial.workers}
        assert sum(each.done_s for each in own) == pytest.approx(trial.work_s)
        assert all(before.ended_s <= after.began_s for before, after in pairwise(own))
    assert 0.0 < result.useful <= result.busy + 1e-9 <= 1.0 + 2e-9
    assert result.makespan_s == max(result.finished_s.values())


@examples(60)
@given(cluster=clusters, drawn=trials, policy=st.sampled_from(POLICIES))
def test_no_makespan_is_below_what_the_gpus_or_the_longest_trial_need(cluster, drawn, policy):
    todo = made(drawn)
    result = simulate(cluster, todo, policy)
    of_gpus_s = sum(trial.work_s for trial in todo) / cluster.gpus
    most = {"one-gpu": 1, "elastic": max(trial.workers for trial in todo)}
    longest_s = max(trial.work_s / most.get(policy, trial.workers) for trial in todo)
    assert result.makespan_s >= max(of_gpus_s, longest_s) * (1 - 1e-9)


def test_one_gpu_and_two_trials_follow_each_other_to_the_second() -> None:
    todo = [Trial("a", 0, 1, 100.0), Trial("a", 1, 1, 50.0)]
    result = simulate(Cluster(gpus=1, failures_per_node_hour=0.0), todo, "workbench")
    assert result.makespan_s == 150.0
    assert (result.busy, result.useful, result.lost_gpu_s) == (1.0, 1.0, 0.0)


def test_a_failure_costs_what_was_done_since_the_last_checkpoint_and_the_restart() -> None:
    cluster = Cluster(
        gpus=1,
        failures_per_node_hour=1.0,
        checkpoint_s=100.0,
        restart_s=7.0,
        repair_s=30.0,
        overhead=0.0,
    )
    result = simulate(cluster, [Trial("a", 0, 1, 20_000.0)], "workbench", seed=1)
    assert result.failures > 0
    ended_by_failure = result.leases[:-1]
    assert len(ended_by_failure) == result.failures
    for index, stretch in enumerate(ended_by_failure):
        trained_s = stretch.ended_s - stretch.began_s - (7.0 if index else 0.0)
        assert stretch.done_s == 100.0 * (trained_s // 100.0)
    assert result.makespan_s == pytest.approx(
        20_000.0 + result.lost_gpu_s + 30.0 * result.failures + 7.0, abs=1e-6
    )


def test_who_has_priority_ends_first_and_fifo_does_not_know_it() -> None:
    todo = [Trial("usual", number, 1, 60.0) for number in range(8)]
    todo += [Trial("urgent", 8 + number, 1, 60.0, priority=1) for number in range(8)]
    cluster = Cluster(gpus=2, gpus_per_node=2, failures_per_node_hour=0.0)
    ours, fifo = (simulate(cluster, todo, policy) for policy in ("workbench", "fifo"))
    assert ours.finished_s["urgent"] < ours.finished_s["usual"]
    assert ours.finished_s["urgent"] < fifo.finished_s["urgent"]
    assert ours.makespan_s == fifo.makespan_s


def test_gangs_are_kept_on_one_machine_where_first_fit_tears_them_apart() -> None:
    todo = [Trial("a", 0, 3, 300.0), Trial("a", 1, 2, 20_000.0), Trial("a", 2, 2, 200.0)]
    cluster = Cluster(gpus=8, gpus_per_node=4, failures_per_node_hour=0.0, overhead=0.0)
    ours, fifo = (simulate(cluster, todo, policy) for policy in ("workbench", "fifo"))
    assert all(len(set(each.nodes)) == 1 for each in ours.leases)
    assert any(len(set(each.nodes)) == 2 for each in fifo.leases)
    assert fifo.makespan_s == pytest.approx(cluster.spread_slowdown * ours.makespan_s)


def test_the_same_seed_plays_the_same_game() -> None:
    drawn = draw_trials(60, seed=3)
    assert drawn == draw_trials(60, seed=3) != draw_trials(60, seed=4)
    cluster = Cluster(gpus=64, failures_per_node_hour=0.2)
    first, second = (simulate(cluster, drawn, "workbench", seed=3) for _ in range(2))
    assert first.leases == second.leases
    assert first.failures > 0


def test_what_can_never_run_or_end_is_refused() -> None:
    with pytest.raises(ResourcesError, match="can never run"):
        simulate(Cluster(gpus=4), [Trial("a", 0, 5, 1.0)], "workbench")
    restless = Cluster(gpus=1, failures_per_node_hour=3600.0)
    with pytest.raises(ResourcesError, match=r"--failure-rate: machines fail so often"):
        simulate(restless, [Trial("a", 0, 1, 1e6)], "workbench")


def test_quantiles_are_those_of_what_was_measured() -> None:
    assert quantiles_ms([n * 1_000_000 for n in range(1, 101)]) == {
        "median": 50.0,
        "p99": 99.0,
        "max": 100.0,
    }


@pytest.mark.slow
def test_a_thousand_gpus_and_ten_thousand_trials() -> None:
    drawn, cluster = draw_trials(10_000), Cluster(repair_s=1800.0)
    result = simulate(cluster, drawn, "workbench")
    one_gpu = simulate(cluster, drawn, "one-gpu")
    assert sum(each.done_s for each in result.leases) == pytest.approx(sum(t.work_s for t in drawn))
    assert result.busy > 0.5
    assert one_gpu.useful <= one_gpu.busy <= 1.0


def test_a_trial_begins_on_one_gpu_and_grows_at_a_checkpoint_onto_those_that_idle() -> None:
    cluster = Cluster(
        gpus=8, gpus_per_node=8, failures_per_node_hour=0.0, checkpoint_s=600.0, restart_s=10.0
    )
    result = simulate(cluster, [Trial("a", 0, 8, 10_000.0)], "elastic")
    first, second = result.leases
    assert (len(first.nodes), first.began_s, first.ended_s, first.done_s) == (1, 0.0, 600.0, 600.0)
    assert len(second.nodes) == 8
    assert result.makespan_s == pytest.approx(610.0 + 9400.0 / speedup(8, cluster.overhead))
    assert result.lost_gpu_s == 0.0


def test_nobody_grows_while_somebody_waits_or_where_little_is_left() -> None:
    cluster = Cluster(gpus=2, gpus_per_node=2, failures_per_node_hour=0.0, checkpoint_s=60.0)
    todo = [Trial("a", number, 2, 75.0) for number in range(5)]
    result = simulate(cluster, todo, "elastic")
    assert all(len(each.nodes) == 1 for each in result.leases)
    assert result.makespan_s == 225.0
    longer = [*todo, Trial("a", 5, 2, 2000.0)]
    grown = [
        lease for lease in simulate(cluster, longer, "elastic").leases if len(lease.nodes) == 2
    ]
    assert [resized.trial.number for resized in grown] == [5]
    assert grown[0].began_s >= 225.0


def test_a_gang_does_not_grow_over_machines_where_that_is_slower() -> None:
    cluster = Cluster(
        gpus=4, gpus_per_node=2, failures_per_node_hour=0.0, checkpoint_s=600.0, spread_slowdown=2.0
    )
    result = simulate(cluster, [Trial("a", 0, 4, 10_000.0)], "elastic")
    assert [len(lease.nodes) for lease in result.leases] == [1, 2]
    assert all(len(set(each.nodes)) == 1 for each in result.leases)


@pytest.mark.parametrize("seed", range(3))
def test_growing_ends_all_sooner_than_either_fixed_width(seed: int) -> None:
    drawn = draw_trials(300, seed)
    cluster = Cluster(gpus=32, failures_per_node_hour=0.0)
    ended_s = {policy: simulate(cluster, drawn, policy).makespan_s for policy in POLICIES}
    assert ended_s["elastic"] < min(ended_s["workbench"], ended_s["one-gpu"])


def shortest_gang_first(waiting, nodes, held):
    """Serve the request for the fewest workers, on the first free machines."""
    index = min(range(len(waiting)), key=lambda place: waiting[place].num_workers)
    request, chosen = waiting[index], []
    for node in nodes:
        free = request.num_workers - len(chosen)
        chosen += [node.node_id] * min(node.fits(request.shape), free)
    return (index, chosen) if len(chosen) == request.num_workers else None


def test_a_rule_of_the_user_decides_the_order_and_the_size_of_a_trial() -> None:
    cluster = Cluster(gpus=2, gpus_per_node=2, failures_per_node_hour=0.0, overhead=0.0)
    todo = [Trial("a", 0, 2, 100.0), Trial("b", 1, 1, 30.0), Trial("c", 2, 1, 30.0)]
    result = simulate(cluster, todo, shortest_gang_first)
    # The two small ones run side by side, and then both GPUs share 100 s.
    assert result.makespan_s == pytest.approx(30.0 + 50.0)
    assert result.policy == "shortest_gang_first"
    assert [lease.trial.number for lease in result.leases] == [1, 2, 0]

    def one_gpu_each(waiting, nodes, held):
        return (0, [nodes[0].node_id]) if nodes[0].fits(waiting[0].shape) else None

    halved = simulate(cluster, todo, one_gpu_each)
    assert {len(lease.nodes) for lease in halved.leases} == {1}
    assert halved.makespan_s == pytest.approx(100.0)


@examples(20)
@given(cluster=clusters, drawn=trials, seed=st.integers(0, 3))
def test_a_rule_of_the_user_meets_failures_and_loses_no_work(cluster, drawn, seed):
    todo = made(drawn)
    result = simulate(cluster, todo, shortest_gang_first, seed)
    for trial in todo:
        own = [lease for lease in result.leases if lease.trial.number == trial.number]
        assert sum(lease.done_s for lease in own) == pytest.approx(trial.work_s)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (None, ResourcesError, "no trial runs at 0 s, and 1 wait"),
        ((5, ["node-0"]), RunError, "chose request 5 of 1"),
        ((0, []), RunError, "no machine for a request"),
        ((0, ["node-0"] * 3), RunError, "3 workers on node-0, where 2 fit"),
        ((0, ["node-9"]), RunError, "1 workers on node-9, where 0 fit"),
        ((0.0, ["node-0"]), RunError, r"returned \(0.0, \['node-0'\]\)"),
        ((0, "node-0"), RunError, r"returned \(0, 'node-0'\)"),
        ("node-0", RunError, "returned 'node-0'"),
    ],
)
def test_a_rule_that_chooses_what_is_not_there_is_refused_in_words(answer, error, message):
    cluster = Cluster(gpus=2, gpus_per_node=2)
    with pytest.raises(error, match=message):
        simulate(cluster, [Trial("a", 0, 1, 10.0)], lambda *_: answer)
