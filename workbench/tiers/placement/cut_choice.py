"""Decide where a bundle's model is cut for a file of tiers: at the minimum cut of measured times.

Each node takes some time on either side, sending a value takes some time, and only the answer comes
back. `cut_bundle` writes the parts, and `policies` computes how they do under load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx
import numpy as np

from workbench.deploy.card import MODEL
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.graph_cut import CuttableGraph, Passed, cuttable
from workbench.tiers.placement.sending_costs import ANSWER_BYTES, Sending
from workbench.tiers.placement.system import Cut

_HERE, _THERE = "here", "there"


def best_cut(bundle: Path, sending: Sending, *, at: np.ndarray | None = None) -> Cut | None:
    """Return the cut with the fastest answer to one request, or None if nodes were not measured.

    Fixed times of each side (a call, an answer, a frame) do not move a cut between nodes. They are
    added afterwards, when the minimum cut is compared with the two ways without a cut.

    Args:
        bundle: The bundle.
        sending: The ways between tiers.
        at: (nodes,): whether each node is computed on the last tier, if the cut is already known.

    Raises:
        ExperimentError: If frames were not timed, or a trace cannot be read.
        RunError: If the model cannot be read.
    """
    measured = _measured(bundle, sending)
    if measured is None:
        return None
    nodes_s, num_nodes = measured.nodes_s, len(measured.graph.nodes)
    values = [
        Value(
            value.producer,
            value.consumers,
            _send_s(value, sending) if value.can_be_sent else np.inf,
        )
        for value in measured.graph.passed
    ]
    ways = {
        "end": np.zeros(num_nodes, bool),
        "cloud": np.ones(num_nodes, bool),
        "cut": min_cut(nodes_s[0], nodes_s[-1], values) if at is None else at,
    }
    alone_s = {name: measured.alone_s(is_there, sending) for name, is_there in ways.items()}
    possible = [
        name
        for name, is_there in ways.items()
        if name == "cloud"  # takes no memory of the device, and sends only the inputs
        or (
            np.isfinite(time_of(is_there, nodes_s[0], nodes_s[-1], values))
            and _fits(measured.graph, is_there, sending)
        )
    ]
    way = "cut"
    if at is None:
        way = min(possible, key=alone_s.__getitem__)
    is_there = ways[way]
    parts = [np.ones(num_nodes, bool)]
    if is_there.all():
        scheduler = "cloud"
    elif is_there.any():
        scheduler = "end-cloud"
        parts = [~is_there, is_there]
    else:
        scheduler = "end"
    sent = sending.frame(_bytes_of(measured.graph, is_there, sending))
    return Cut(
        scheduler=scheduler,
        is_there=is_there,
        sent=tuple(value.name for value in measured.graph.sent(is_there)),
        stage_s=np.stack([nodes_s @ part + measured.calls_s for part in parts], axis=1),
        row_s=np.stack(
            [measured.row_nodes_s @ part + measured.row_calls_s for part in parts], axis=1
        ),
        send_s=sent.send_s,
        received_s=sent.received_s,
        sent_bytes=sent.num_bytes,
        send_j=sent.energy_j,
        alone_s={**alone_s, "cut": measured.alone_s(is_there, sending)},
        links_s=sent.links_s,
    )


@dataclass(frozen=True)
class Value:
    """A value that a node, or the input of the graph, passes to other nodes.

    Attributes:
        producer: The number of the node, or None for an input, which is on the device.
        consumers: The numbers of the nodes that use it.
        send_s: The time to send it, in seconds, or infinite if it cannot be sent.
    """

    producer: int | None
    consumers: tuple[int, ...]
    send_s: float


def time_of(
    is_there: np.ndarray, here_s: Sequence[float], there_s: Sequence[float], values: Sequence[Value]
) -> float:
    """Return the time of computing and sending, or infinity if a value would have to come back.

    Args:
        is_there: (nodes,): whether each node is computed on the last tier.
        here_s: The time of each node on the device, in seconds.
        there_s: The time of each node on the last tier, in seconds.
        values: The values that they pass on.
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
    """Return which nodes to compute on the last tier so that `time_of` is smallest.

    A value has its own vertex, so it counts only once even if several nodes use it.

    Args:
        here_s: The time of each node on the device, in seconds.
        there_s: The time of each node on the last tier, in seconds.
        values: The values that they pass on.

    Returns:
        (nodes,): whether each node is on the last tier.

    Source: Hu et al., Dynamic Adaptive DNN Surgery for Inference Acceleration on the Edge (2019).
    """
    # A node on the side of the device costs its time there, which is the capacity of its edge to
    # the sink, and vice versa. Edges without a capacity keep values from coming back.
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


@dataclass(frozen=True)
class _Measured:
    """A graph with the times of one request: of nodes, (tiers, nodes), and of calls, (tiers,).

    And by how much it makes these longer in a batch.
    """

    graph: CuttableGraph
    nodes_s: np.ndarray
    calls_s: np.ndarray
    row_nodes_s: np.ndarray
    row_calls_s: np.ndarray

    def alone_s(self, is_there: np.ndarray, sending: Sending) -> float:
        """Return the time of one request on an idle system."""
        total_s = float(np.where(is_there, self.nodes_s[-1], self.nodes_s[0]).sum())
        if not is_there.all():
            total_s += float(self.calls_s[0])
        if is_there.any():
            sent = sending.frame(_bytes_of(self.graph, is_there, sending))
            there_s = self.calls_s[-1] + sent.received_s[-1]
            total_s += float(there_s + sent.send_s[-1] + sending.ways(ANSWER_BYTES)[-1])
        return total_s


def _measured(bundle: Path, sending: Sending) -> _Measured | None:
    """Return the model's measured times, or None if tiers or nodes were not measured."""
    tiers = sending.file.tiers
    if len(tiers) == 1 or not (bundle / MODEL).exists():
        return None
    sha256 = sha256_of(bundle / MODEL)
    graph = cuttable(bundle / MODEL)
    if graph is None:
        return None
    names, measured = [name for name, _ in graph.nodes], []
    for name, tier in tiers.items():
        profile = sending.profiles[name]
        alone, full = (profile.graph(sha256, batch) for batch in (1, tier.batch))
        if alone is None or full is None:
            return None
        if set(names) - set(alone.nodes_s) or set(names) - set(full.nodes_s):
            return None  # another version of ONNX Runtime fuses other nodes
        nodes_s = np.array([alone.nodes_s[node] for node in names])
        times = [(nodes_s, alone.beyond_nodes_s), (nodes_s, alone.beyond_nodes_s)]
        if tier.batch > 1:
            full_s = np.array([full.nodes_s[node] for node in names])
            added = tier.batch - 1
            rows_s = np.clip((full_s - nodes_s) / added, 0.0, nodes_s)
            calls_s = (full.beyond_nodes_s - alone.beyond_nodes_s) / added
            times[1] = (rows_s, float(np.clip(calls_s, 0.0, alone.beyond_nodes_s)))
        measured.append(times)
    (nodes_s, calls_s), (row_nodes_s, row_calls_s) = (
        tuple(np.array([times[which][part] for times in measured]) for part in (0, 1))
        for which in (0, 1)
    )
    return _Measured(graph, nodes_s, calls_s, row_nodes_s, row_calls_s)


def _bytes_of(graph: CuttableGraph, is_there: np.ndarray, sending: Sending) -> int:
    sent = graph.sent(is_there)
    dtype = sent[0].dtype.name if sent else "float32"
    return sending.bytes_of(sum(value.num_values for value in sent), dtype)


def _send_s(value: Passed, sending: Sending) -> float:
    """Return the time that the value adds to a frame over all links."""
    num_bytes = sending.bytes_of(value.num_values, value.dtype.name)
    return float(
        sending.ways(num_bytes)[-1] - sending.ways(sending.bytes_of(0, value.dtype.name))[-1]
    )


def _fits(graph: CuttableGraph, is_there: np.ndarray, sending: Sending) -> bool:
    memory = next(iter(sending.file.tiers.values())).memory
    return memory is None or graph.weight_bytes(~is_there) <= memory
