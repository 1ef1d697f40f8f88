from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.workers.admission import (
    BETWEEN_TRIALS_S,
    CPU_SHARE,
    Node,
    Request,
    RunsBetweenTrials,
    Shape,
    check_feasible,
    find_shortage,
    nearest,
    next_index,
    place,
    serving_order,
)
from workbench.foundation.errors import ResourcesError
from workbench.hardware.resources import Gpu

nodes = st.lists(
    st.builds(
        Node,
        node_id=st.uuids().map(str),
        cpus=st.integers(0, 16).map(float),
        gpus=st.integers(0, 4).map(float),
        leased_cpus=st.integers(0, 16).map(float),
        leased_gpus=st.integers(0, 4).map(float),
        foreign_cpus=st.floats(0, 4),
    ),
    max_size=4,
    unique_by=lambda node: node.node_id,
)
requests = st.builds(
    Request,
    run_id=st.sampled_from("abc"),
    num_workers=st.integers(1, 8),
    shape=st.builds(Shape, cpus=st.integers(1, 4), gpus=st.sampled_from([0.0, 0.5, 1.0])),
    placement=st.sampled_from(["pack", "spread"]),
    priority=st.integers(-1, 1),
)


@given(request=requests, nodes=nodes)
def test_a_gang_is_placed_whole_or_not_at_all_and_never_beyond_what_a_node_has(request, nodes):
    chosen = place(request, nodes)
    if chosen is None:
        assert sum(node.fits(request.shape) for node in nodes) < request.num_workers
        return
    assert len(chosen) == request.num_workers
    for node in nodes:
        placed = chosen.count(node.node_id)
        if placed == 0:
            continue
        assert node.leased_cpus + placed * request.shape.cpus <= node.cpus + 1e-3
        assert (
            request.shape.gpus == 0
            or node.leased_gpus + placed * request.shape.gpus <= node.gpus + 1e-3
        )
        in_ray = CPU_SHARE * (node.leased_cpus + placed * request.shape.cpus) + node.foreign_cpus
        assert in_ray <= node.cpus + 1e-3


@given(request=requests, nodes=nodes)
def test_whatever_can_be_placed_now_is_feasible(request, nodes):
    if place(request, nodes) is not None:
        check_feasible(request, nodes)


@given(
    waiting=st.lists(requests, min_size=1, max_size=8),
    held=st.dictionaries(st.sampled_from("abc"), st.floats(0, 8)),
)
def test_the_next_request_has_the_highest_priority_then_the_poorest_run_then_the_greatest_age(
    waiting, held
):
    index = next_index(waiting, held)
    chosen = waiting[index]
    for other_index, other in enumerate(waiting):
        assert other.priority <= chosen.priority
        if other.priority == chosen.priority:
            assert held.get(other.run_id, 0) >= held.get(chosen.run_id, 0)
            if held.get(other.run_id, 0) == held.get(chosen.run_id, 0):
                assert index <= other_index


def test_as_many_one_cpu_workers_fit_as_there_are_cpus():
    for cpus in (1, 2, 10, 64):
        node = Node("a", cpus=cpus, gpus=0, foreign_cpus=0.001 * cpus)
        assert node.fits(Shape(1)) == cpus


def test_pack_prefers_one_node_and_there_the_warm_workers():
    two = Request("run", num_workers=2)
    large, warm = Node("large", 8, 0), Node("warm", 2, 0, num_idle=2)
    assert place(two, [large, warm]) == ["warm", "warm"]
    assert place(two, [large, Node("small", 2, 0)]) == ["small", "small"]
    assert sorted(place(Request("run", num_workers=9), [large, warm]) or []) == ["large"] * 8 + [
        "warm"
    ]


def test_spread_takes_nodes_in_turn():
    three = Request("run", num_workers=3, placement="spread")
    assert sorted(place(three, [Node("a", 4, 0), Node("b", 4, 0)]) or []) in (
        ["a", "a", "b"],
        ["a", "b", "b"],
    )


def test_what_can_never_run_is_refused_and_the_message_says_what_there_is():
    with pytest.raises(
        ResourcesError,
        match=r"resources: 3 workers with 1 CPU and 0 GPU .* 2 CPU and 0 GPU; allowed: at most 2",
    ):
        check_feasible(Request("run", num_workers=3), [Node("a", 2, 0)])
    with pytest.raises(ResourcesError, match="1 GPU"):
        check_feasible(Request("run", shape=Shape(1, 1.0)), [Node("a", 2, 0)])
    with pytest.raises(ResourcesError, match="4 CPU"):
        check_feasible(Request("run", shape=Shape(4)), [Node("a", 2, 0), Node("b", 3, 0)])


@given(request=requests, nodes=nodes, idle=st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_spread_takes_each_time_the_node_with_the_fewest_of_the_gang_then_the_warmest_and_emptiest(
    request, nodes, idle
):
    nodes = [replace(node, num_idle=count) for node, count in zip(nodes, idle, strict=False)]
    chosen = place(replace(request, placement="spread"), nodes)
    room = {node.node_id: node.fits(request.shape) for node in nodes}
    expected = []
    while len(expected) < len(chosen or []):

        def rank(node):
            count = expected.count(node.node_id)
            return count, -node.num_idle, count - room[node.node_id]

        free = [node for node in nodes if room[node.node_id] > expected.count(node.node_id)]
        expected.append(min(free, key=rank).node_id)
    # Neighbouring ranks share a node, whichever was taken in turn.
    assert (chosen or []) == sorted(expected, key=expected.index)


@given(
    waiting=st.lists(requests, max_size=12),
    held=st.dictionaries(st.sampled_from("abc"), st.floats(0, 8)),
)
def test_the_queue_is_what_asking_who_is_next_again_and_again_comes_to(waiting, held):
    left, at_work, expected = list(waiting), dict(held), []
    while left:
        request = left.pop(next_index(left, at_work))
        held_now = at_work.get(request.run_id, 0.0)
        at_work[request.run_id] = held_now + request.shape.cpus * request.num_workers
        expected.append(request)
    assert serving_order(waiting, held) == expected


@given(request=requests, nodes=nodes, data=st.data())
def test_nothing_is_placed_on_a_node_that_is_excluded(request, nodes, data):
    excluded = frozenset(
        data.draw(st.sets(st.sampled_from([node.node_id for node in nodes]))) if nodes else ()
    )
    chosen = place(replace(request, excluded=excluded), nodes)
    assert chosen == place(request, [node for node in nodes if node.node_id not in excluded])


def test_a_request_that_excludes_every_node_is_refused():
    node = Node("a", cpus=2.0, gpus=0.0)
    check_feasible(Request("r"), [node])
    with pytest.raises(ResourcesError, match="nodes have nothing"):
        check_feasible(Request("r", excluded=frozenset({"a"})), [node])


def test_a_run_between_two_trials_keeps_lower_priorities_waiting_for_a_moment_only():
    urgent, equal, low = Request("a", priority=1), Request("b", priority=1), Request("c")
    between = RunsBetweenTrials()
    between.on_lease_ended(urgent, now_s=10.0)
    assert between.outranks(low, now_s=10.0)
    assert not between.outranks(equal, now_s=10.0)
    assert not between.outranks(low, now_s=10.0 + BETWEEN_TRIALS_S)


def test_a_run_is_expected_once_for_each_of_its_trials_that_ended():
    urgent, low = Request("a", priority=1), Request("c")
    between = RunsBetweenTrials()
    between.on_lease_ended(urgent, now_s=10.0)
    between.on_lease_ended(urgent, now_s=10.1)
    between.on_requested(low)
    between.on_requested(urgent)
    assert between.outranks(low, now_s=10.2)
    between.on_requested(urgent)
    assert not between.outranks(low, now_s=10.2)


def test_whoever_lets_the_cluster_grow_is_not_told_that_it_is_too_small():
    check_feasible(Request("a", num_workers=4, autoscaling=True), [])
    with pytest.raises(ResourcesError):
        check_feasible(Request("a", num_workers=4), [])


NVLINKS = dict.fromkeys(((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)), 2)
NVLINKS |= dict.fromkeys(((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)), 1)
"""The cube of a DGX-1 with eight V100: the number of NVLinks between two GPUs."""


def cube(index: int) -> Gpu:
    """Return a GPU of it. Four of them are on each socket."""

    def link_to(other: int) -> str:
        if other == index:
            return "X"
        if number := NVLINKS.get((min(index, other), max(index, other))):
            return f"NV{number}"
        return "NODE" if index // 4 == other // 4 else "SYS"

    links = tuple(link_to(other) for other in range(8))
    return Gpu(index, "V100", 0, f"GPU-{index}", links, cpus=(index // 4,))


def drawn_gpu(index: int, sockets: list[int], links: dict[tuple[int, int], str]) -> Gpu:
    """Return a GPU of a drawn machine."""
    told = tuple(
        "X" if other == index else links[min(index, other), max(index, other)]
        for other in range(len(sockets))
    )
    return Gpu(index, "T4", 0, f"GPU-{index}", told, cpus=(sockets[index],))


@pytest.mark.parametrize(
    ("idle", "number", "chosen"),
    [
        # Two NVLinks before one, on one socket.
        (range(8), 2, {0, 3}),
        # GPU 0 and 4 have two NVLinks, but are on different sockets.
        ([0, 1, 4], 2, {0, 1}),
        ([0, 2, 4, 6], 2, {0, 2}),
        (range(8), 4, {0, 1, 2, 3}),
        ([1, 2, 3, 4, 5, 6, 7], 4, {4, 5, 6, 7}),
        # A single worker leaves the socket whole on which more are idle.
        ([0, 1, 4, 5, 6], 1, {0}),
        ([0, 1, 2, 4, 5, 6, 7], 2, {1, 2}),
    ],
)
def test_a_gang_gets_gpus_of_one_socket_with_the_fastest_links(
    idle: list[int], number: int, chosen: set[int]
) -> None:
    places = nearest([(cube(index),) for index in idle], number)
    assert {list(idle)[place] for place in places} == chosen


@given(st.data())
def test_no_other_group_is_nearer(data: st.DataObject) -> None:
    total = data.draw(st.integers(2, 8))
    sockets = data.draw(st.lists(st.integers(0, 1), min_size=total, max_size=total))
    speeds = {"SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5, "NV1": 7, "NV4": 10}
    links = {
        (one, other): data.draw(st.sampled_from(sorted(speeds)))
        for one in range(total)
        for other in range(one + 1, total)
    }
    idle = data.draw(st.permutations(range(total)))
    number = data.draw(st.integers(1, total))
    gpus = [drawn_gpu(index, sockets, links) for index in range(total)]
    found = [idle[place] for place in nearest([(gpus[index],) for index in idle], number)]
    assert len(set(found)) == number

    def quality(group: Sequence[int]) -> tuple[int, int, int]:
        between = [(min(one, other), max(one, other)) for one in group for other in group]
        pairs = {pair for pair in between if pair[0] != pair[1]}
        crossing = sum(sockets[one] != sockets[other] for one, other in pairs)
        known = [speeds[links[pair]] for pair in pairs]
        return (-crossing, min(known, default=0), sum(known))

    best = max(map(quality, itertools.combinations(range(total), number)))
    assert number == total or quality(found) == best


def test_many_gpus_are_grouped_by_socket_without_trying_all_groups() -> None:
    sockets = [0, 1] * 8
    links = {
        (one, other): "PIX" if sockets[one] == sockets[other] else "SYS"
        for one in range(16)
        for other in range(one + 1, 16)
    }
    gpus = [drawn_gpu(index, sockets, links) for index in range(16)]
    places = nearest([(gpu,) for gpu in gpus], 8)
    assert {sockets[place] for place in places} in ({0}, {1})


def test_without_links_the_first_workers_are_taken() -> None:
    unknown = [(Gpu(index, "T4", 0, f"GPU-{index}"),) for index in range(3)]
    assert nearest(unknown, 2) == [0, 1]
    assert nearest([(), (), ()], 2) == [0, 1]
    shared = [(cube(5),), (cube(5),), (cube(0),)]
    assert nearest(shared, 2) == [0, 1]


def test_ranks_next_to_each_other_have_fast_links() -> None:
    # From the first GPU: 0 and 3 have two NVLinks, then 3 and 2, then 2 and 1.
    assert nearest([(cube(index),) for index in range(5)], 4) == [0, 3, 2, 1]


PAIR = Request("holder", trial=0, num_workers=2, shape=Shape(cpus=1), speedup=1.7)


def full(**changes: Any) -> Node:
    return replace(Node("n", cpus=2.0, gpus=0.0, leased_cpus=2.0), **changes)


def test_a_holder_learns_which_run_lacks_how_many_of_its_workers() -> None:
    found = find_shortage(PAIR, [Request("waiter", trial=3)], [PAIR], [full()])
    assert found is not None
    assert (found.run_id, found.num_requested, found.num_missing) == ("waiter", 1, 1)
    assert (found.own_speedup, found.other_speedup) == (1.7, 0.0)
    wide = Request("waiter", shape=Shape(cpus=2))
    found = find_shortage(PAIR, [wide], [PAIR, Request("waiter", num_workers=3)], [full()])
    assert found is not None
    assert (found.num_missing, found.other_speedup) == (2, 3.0)


@pytest.mark.parametrize(
    ("waiting", "node"),
    [
        ([], full()),
        ([Request("holder", trial=1)], full()),  # its own next trial
        ([Request("waiter", priority=-1)], full()),
        ([Request("waiter")], full(leased_cpus=1.0)),  # it starts at once
        ([Request("waiter", shape=Shape(gpus=1.0))], full()),  # it lacks GPUs, not CPUs
    ],
)
def test_nothing_is_lacking_where_its_workers_would_not_help(
    waiting: list[Request], node: Node
) -> None:
    assert find_shortage(PAIR, waiting, [PAIR], [node]) is None


def test_gpus_are_what_is_lacking_where_a_request_needs_them() -> None:
    holder = replace(PAIR, shape=Shape(gpus=0.5))
    node = Node("n", cpus=8.0, gpus=1.0, leased_cpus=2.0, leased_gpus=1.0)
    found = find_shortage(holder, [Request("waiter", shape=Shape(gpus=1.0))], [holder], [node])
    assert found is not None
    assert found.num_missing == 2
