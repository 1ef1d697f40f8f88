from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.errors import DataError
from workbench.hardware.performance.topology import Topology


@given(st.lists(st.integers(1, 16), min_size=1, max_size=8))
def test_a_topology_counts_what_it_was_made_of_in_any_order(gpus: list[int]) -> None:
    made = Topology.of(len(gpus), sum(gpus), gpus)
    assert (made.num_nodes, made.num_gpus, made.most_gpus_per_node) == (
        len(gpus),
        sum(gpus),
        max(gpus),
    )
    assert made == Topology.of(len(gpus), sum(gpus), gpus[::-1])


@given(st.integers(1, 20), st.integers(0, 200))
def test_gpus_are_spread_as_evenly_as_can_be_where_nothing_is_said(
    num_nodes: int, more: int
) -> None:
    made = Topology.of(num_nodes, num_nodes + more)
    assert made.num_gpus == num_nodes + more
    assert made.num_nodes == num_nodes
    assert made.gpus_per_node[-1] - made.gpus_per_node[0] <= 1


@pytest.mark.parametrize(
    ("gpus", "kind", "placement"),
    [
        ((1,), "one GPU", "1x1"),
        ((4,), "one node", "4x1"),
        ((1, 1), "two nodes", "1x2"),
        ((4, 2, 2), "more nodes", "2x2 4x1"),
        ((8,) * 16, "more nodes", "8x16"),
    ],
)
def test_kinds_and_placements(gpus: tuple[int, ...], kind: str, placement: str) -> None:
    made = Topology.of(len(gpus), sum(gpus), gpus)
    assert (made.kind, made.placement) == (kind, placement)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((0, 1), "nodes"),
        ((3, 2), "gpus"),
        ((1, 100_001), "gpus"),
        ((2, 8, (4, 3)), "gpus_per_node"),
        ((2, 8, (8,)), "gpus_per_node"),
        ((2, 8, (8, 0)), "gpus_per_node"),
    ],
)
def test_contradictions_are_refused_where_they_are(arguments: tuple[int, ...], field: str) -> None:
    with pytest.raises(DataError) as refused:
        Topology.of(*arguments)
    assert refused.value.field == field
