"""Time the stages of a bundle, and frames, on this machine, in the same way as a tier works.

It is copied to other machines together with the modules of `tiers` that it measures. These need the
standard library, numpy and onnxruntime. It is called with a folder that holds request.json, the
graphs and inputs.npz, and prints one line of JSON. A second process of the same machine receives
the frames. Nodes of a graph are timed by the profiler of ONNX Runtime. The time that it adds to
each node is measured with a graph whose nodes compute nothing, and is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from workbench.deploy.device_runner import name_of_host, name_of_processor
from workbench.tiers.processes.features import Outgoing, restore
from workbench.tiers.processes.frames import Frame, Kind
from workbench.tiers.processes.stage_model import StageModels
from workbench.tiers.processes.tier_settings import StageSettings
from workbench.tiers.processes.transport import Connection, Identity, Listener, bind, connect

SENDER, RECEIVER = "profile-sender", "profile-receiver"
"""The names in the certificates of both processes."""
GRAPH, IDLE = "whole.onnx", "idle.onnx"
"""The whole model, and a graph by which profiling itself is timed."""
_NUM_PROFILED = 300
_WARM_UP_S, _MAX_S = 0.5, 20.0
_NUM_WARM_UP_FRAMES, _NUM_FRAMES = 50, 400
_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"
"""Suffixes of outputs' names in the names of nodes, if memory is laid out in blocks."""
_NUM_WARM_UP = 50
_ANSWER = np.zeros(10, dtype=np.float32)


def main(folder: Path) -> None:
    """Measure what `request.json` names, and print the result."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "inputs.npz") as stored:
        inputs = [stored[str(number)] for number in range(len(request["stages"]))]
    measured: dict[str, Any] = {
        "host": name_of_host(),
        "processor": name_of_processor(),
        "num_cores": os.cpu_count(),
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "stages": _time_stages(folder, request, inputs),
        "graphs": [],
        "frames": [],
    }
    if request["nodes"]:
        _note(request, "measuring the nodes of the model")
        measured["graphs"] = _time_graph(folder, request, inputs[0])
    # Of what joins several devices, one sends a part.
    sent = list(zip(inputs, request["sent_sizes"], strict=False))
    for transport in ("mtls", "plain"):
        _note(request, f"measuring frames, {transport}")
        measured["frames"] += asyncio.run(
            _time_frames(folder, transport, [values[:size] for values, size in sent])
        )
    print(json.dumps(measured))


def _note(request: dict[str, Any], what: str) -> None:
    """Tell who asked what is measured now."""
    print(f"{request['progress']}{what}", file=sys.stderr, flush=True)


def _time_stages(
    folder: Path, request: dict[str, Any], inputs: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Time each stage with each batch, including the decision whether to continue."""
    models = StageModels(
        [
            StageSettings(number, str(folder / stage["file"]), stage["threshold"])
            for number, stage in enumerate(request["stages"])
        ],
        threads=request["threads"],
    )
    timings = []
    for number, values in enumerate(inputs):
        _note(request, f"measuring stage {number + 1} of {len(inputs)}")
        for batch in request["batches"]:
            rows = [(number, values, None, 0, number)] * batch
            times_s = _timed(lambda rows=rows: models.predict(rows), request["num_calls"])
            timings.append({"stage": number, "batch": batch, **_summary(times_s)})
    return timings


def _time_graph(folder: Path, request: dict[str, Any], values: np.ndarray) -> list[dict[str, Any]]:
    """Time the whole model and its nodes with each batch."""
    threads, num_calls = request["threads"], request["num_calls"]
    model = StageModels([StageSettings(0, str(folder / GRAPH))], threads=threads)
    timings = []
    for batch in request["batches"]:
        rows = [(0, values, None, 0, 0)] * batch
        times_s = _timed(lambda rows=rows: model.predict(rows), num_calls)
        nodes_s = node_times_s(
            folder / GRAPH,
            folder / IDLE,
            {request["input"]: np.stack([values] * batch)},
            request["nodes"],
            threads=threads,
            num_calls=min(num_calls, _NUM_PROFILED),
        )
        timings.append({"batch": batch, "call_s": statistics.median(times_s), "nodes_s": nodes_s})
    return timings


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
        nodes: Each node with its output, in the order of the graph. ONNX Runtime may use either
            name. It may also add nodes that change the memory layout, which count towards the node
            before.
        threads: Threads that compute.
        num_calls: Number of calls.
    """
    profiled = _profile(idle, None, threads, num_calls)
    added_us = float(np.mean([_typical(times_us) for times_us in profiled.values()]))
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
    """Return the microseconds of each node in each call, in the order of computation."""
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
    durations_us: dict[str, list[int]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.get("ts", 0)):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            durations_us[event["name"].removesuffix(_KERNEL)].append(event["dur"])
    return {name: times_us[_NUM_WARM_UP:] for name, times_us in durations_us.items()}


def _typical(times_us: Sequence[int]) -> float:
    """Return the mean of the middle half: a median would be a whole number of microseconds."""
    ordered = np.sort(times_us)
    return float(ordered[len(ordered) // 4 : max(1, len(ordered) * 3 // 4)].mean())


def _timed(call: Callable[[], Any], num_calls: int) -> list[float]:
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < _WARM_UP_S:
        call()
    times_s: list[float] = []
    began_s = time.perf_counter()
    while len(times_s) < num_calls and time.perf_counter() - began_s < _MAX_S:
        started_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - started_s)
    return times_s


def _summary(times_s: list[float]) -> dict[str, float]:
    p50_s, p95_s = np.percentile(times_s, [50, 95])
    return {"mean_s": float(np.mean(times_s)), "p50_s": float(p50_s), "p95_s": float(p95_s)}


async def _time_frames(
    folder: Path, transport: str, inputs: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Time frames with inputs, and with features, to another process and an answer back."""
    is_encrypted = transport == "mtls"
    receiver = subprocess.Popen(
        [sys.executable, __file__, str(folder), transport],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert receiver.stdout is not None
    try:
        port = int(receiver.stdout.readline())
        identity = Identity.in_folder(folder, SENDER) if is_encrypted else None
        connection = await connect("127.0.0.1", port, identity=identity, name=RECEIVER)
        timings = []
        for what, values in zip(("inputs", "features"), inputs, strict=False):
            for features in ("float32", "uint8"):
                timing = await _time_kind(connection, values, Outgoing(features))
                timings.append(
                    {"what": what, "features": features, "transport": transport, **timing}
                )
        connection.close()
        return timings
    finally:
        receiver.kill()
        receiver.wait()


async def _time_kind(
    connection: Connection, values: np.ndarray, outgoing: Outgoing
) -> dict[str, float]:
    for number in range(_NUM_WARM_UP_FRAMES):
        await _there_and_back(connection, outgoing.request(number, values, sender=0, stage=0))
    times_s = []
    receiver_s, own_s = await _processor_time_s(connection), time.process_time()
    for number in range(_NUM_FRAMES):
        began_s = time.perf_counter()
        await _there_and_back(connection, outgoing.request(number, values, sender=0, stage=0))
        times_s.append(time.perf_counter() - began_s)
    own_s = time.process_time() - own_s
    receiver_s = await _processor_time_s(connection) - receiver_s
    return {
        **_summary(times_s),
        "sender_busy_s": own_s / _NUM_FRAMES,
        "receiver_busy_s": receiver_s / _NUM_FRAMES,
    }


async def _there_and_back(connection: Connection, frame: Frame) -> Frame:
    connection.send(frame)
    return await connection.receive()


async def _processor_time_s(connection: Connection) -> float:
    answer = await _there_and_back(connection, Frame(Kind.HEARTBEAT))
    return float(answer.tensor[0])


async def _receive(folder: Path, transport: str) -> None:
    """Answer frames until the process is ended."""

    async def serve(connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            if frame.kind is Kind.HEARTBEAT:
                connection.send(Frame(Kind.ALIVE, tensor=np.array([time.process_time()])))
            else:
                restore(frame)
                connection.send(Frame(Kind.ANSWER, frame.request, _ANSWER))
            await connection.drain()

    identity = Identity.in_folder(folder, RECEIVER) if transport == "mtls" else None
    bound = bind("127.0.0.1", 0)
    listener = Listener(serve, identity=identity, accepts=(SENDER,))
    listening = asyncio.ensure_future(listener.listen(bound))
    await asyncio.sleep(0)
    print(bound.getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(
        None, sys.stdin.buffer.read
    )  # its parent is gone
    listening.cancel()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(_receive(Path(sys.argv[1]), sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
