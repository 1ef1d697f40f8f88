"""Where a graph of nodes is best cut in two: those on the device, and those on the last tier.

Pure: a node takes some time on either side, a value some time to be sent, and nothing comes back
but the answer. Reading graphs and writing their parts is left to `graph_cut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx
import numpy as np

_HERE, _THERE = "here", "there"


@dataclass(frozen=True)
class Value:
    """What a node, or the input of the graph, passes to nodes.

    Attributes:
        producer: The number of the node; None for an input, which is on the device.
        consumers: The numbers of the nodes that take it.
        send_s: The time to send it, in seconds; infinite where it cannot be sent.
    """

    producer: int | None
    consumers: tuple[int, ...]
    send_s: float


def time_of(
    is_there: np.ndarray, here_s: Sequence[float], there_s: Sequence[float], values: Sequence[Value]
) -> float:
    """Return the time that computing and sending take; infinite if a value would have to come back.

    Args:
        is_there: (nodes,): whether each is computed on the last tier.
        here_s: The time of each node on the device, in seconds.
        there_s: The time of each on the last tier.
        values: What they pass on.
    """
    total_s = float(np.where(is_there, there_s, here_s).sum())
    for value in values:
        is_sent = value.producer is None or not is_there[value.producer]
        places = is_there[list(value.consumers)]
        if is_sent and places.any():
            total_s += value.send_s
        elif not is_sent and not places.all():
            return float("inf")
    return total_s


def min_cut(
    here_s: Sequence[float], there_s: Sequence[float], values: Sequence[Value]
) -> np.ndarray:
    """Return which nodes are computed on the last tier so that `time_of` is smallest.

    A value counts once however many nodes take it: it has a vertex of its own between them.

    Args:
        here_s: The time of each node on the device, in seconds.
        there_s: The time of each on the last tier.
        values: What they pass on.

    Returns:
        (nodes,): whether each is there.

    Source: Hu et al., Dynamic Adaptive DNN Surgery for Inference Acceleration on the Edge (2019).
    """
    graph = networkx.DiGraph()
    for node, (here, there) in enumerate(zip(here_s, there_s, strict=True)):
        graph.add_edge(_HERE, node, capacity=there)
        graph.add_edge(node, _THERE, capacity=here)
    for number, value in enumerate(values):
        sent = ("sent", number)
        source = _HERE if value.producer is None else value.producer
        graph.add_edge(
            source, sent, **({"capacity": value.send_s} if np.isfinite(value.send_s) else {})
        )
        for consumer in value.consumers:  # an edge without a capacity is never cut
            graph.add_edge(sent, consumer)
            if value.producer is not None:
                graph.add_edge(consumer, value.producer)
    _, (_, there_side) = networkx.minimum_cut(graph, _HERE, _THERE)
    return np.array([node in there_side for node in range(len(here_s))])
