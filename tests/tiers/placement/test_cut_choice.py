"""The minimum cut of a graph beside all ways to cut it."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.tiers.placement.cut_choice import Value, min_cut, time_of

TIMES_S = st.floats(min_value=0.0, max_value=1.0).map(lambda value: round(value, 3))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[float], list[Value]]:
    """Graphs of up to 12 nodes, each of which takes what earlier ones or the input pass on."""
    num_nodes = draw(st.integers(1, 12))
    here_s, there_s = (
        draw(st.lists(TIMES_S, min_size=num_nodes, max_size=num_nodes)) for _ in range(2)
    )
    taken = [
        draw(st.sets(st.integers(-1, node - 1), min_size=1, max_size=3))
        for node in range(num_nodes)
    ]
    values = []
    for producer in range(-1, num_nodes):
        consumers = tuple(node for node, given in enumerate(taken) if producer in given)
        send_s = draw(st.one_of(TIMES_S, st.just(float("inf"))) if producer >= 0 else TIMES_S)
        if consumers:
            values.append(Value(None if producer < 0 else producer, consumers, send_s))
    return here_s, there_s, values


@examples(60)
@given(graphs())
def test_no_way_to_cut_is_faster_than_the_minimum_cut(
    graph: tuple[list[float], list[float], list[Value]],
) -> None:
    here_s, there_s, values = graph

    cut = min_cut(here_s, there_s, values)

    every = (
        time_of(np.array(places), here_s, there_s, values)
        for places in itertools.product([False, True], repeat=len(here_s))
    )
    assert np.isclose(time_of(cut, here_s, there_s, values), min(every), rtol=0, atol=1e-9)


def test_a_value_that_several_nodes_take_is_sent_once() -> None:
    values = [Value(None, (0,), 10.0), Value(0, (1, 2), 1.5)]

    cut = min_cut([0.1, 1.0, 1.0], [0.0, 0.0, 0.0], values)

    assert cut.tolist() == [False, True, True]  # sent twice, it would not pay


def test_what_cannot_be_sent_keeps_its_nodes_together() -> None:
    values = [Value(None, (0,), 0.5), Value(0, (1,), float("inf"))]

    assert min_cut([0.0, 1.0], [1.0, 0.1], values).tolist() == [False, False]
    assert min_cut([0.9, 1.0], [0.1, 0.1], values).tolist() == [True, True]
