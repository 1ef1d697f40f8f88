"""The time of each node of a graph, by the profiler of ONNX Runtime.

What the profiler adds to a node is measured with a graph whose nodes compute nothing, and taken
away. It is copied to other machines, which need numpy and onnxruntime only.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"
"""What the name of an output is given, for the name of its node, where memory is laid out in
blocks.
"""
_NUM_WARM_UP = 50


def node_times_s(
    graph: Path,
    idle: Path,
    feeds: Mapping[str, np.ndarray],
    nodes: Sequence[Sequence[str]],
    *,
    threads: int,
    num_calls: int,
) -> dict[str, float]:
    """Return the time of each node in seconds.

    Args:
        graph: The graph.
        idle: A graph of nodes that compute next to nothing, with one input.
        feeds: The inputs of the graph.
        nodes: Each node with its output, in the order of the graph; ONNX Runtime may call it by
            either, and add nodes that change the layout of memory, which count to the node before.
        threads: Threads that compute.
        num_calls: Number of calls.
    """
    profiled = _profile(idle, None, threads, num_calls)
    added_us = float(np.mean([_typical(each) for each in profiled.values()]))
    names = {name: name for name, _ in nodes} | {
        f"{output}{_BLOCKED}": name for name, output in nodes
    }
    times_s = {name: 0.0 for name, _ in nodes}
    current = nodes[0][0]
    for called, times_us in _profile(graph, feeds, threads, num_calls).items():
        current = names.get(called, current)
        times_s[current] += max(0.0, _typical(times_us) - added_us) / 1e6
    return times_s


def _profile(
    graph: Path, feeds: Mapping[str, np.ndarray] | None, threads: int, num_calls: int
) -> dict[str, list[int]]:
    """Return the microseconds of each node in each call, in the order in which they are
    computed.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.enable_profiling, options.profile_file_prefix = True, str(graph.with_suffix(".profile"))
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    given = feeds or {session.get_inputs()[0].name: np.zeros((1, 1), dtype=np.float32)}
    for _ in range(_NUM_WARM_UP + num_calls):
        session.run(None, dict(given))
    path = session.end_profiling()
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    os.remove(path)
    found: dict[str, list[int]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.get("ts", 0)):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            found[event["name"].removesuffix(_KERNEL)].append(event["dur"])
    return {name: times[_NUM_WARM_UP:] for name, times in found.items()}


def _typical(times_us: Sequence[int]) -> float:
    """Return the mean of the middle half: a median would be a whole number of microseconds."""
    ordered = np.sort(times_us)
    return float(ordered[len(ordered) // 4 : max(1, len(ordered) * 3 // 4)].mean())
