"""Times the stages of a bundle, and frames, on the machine where this file runs, as a tier works
there.

It is copied to other machines together with the modules of `tiers` that it measures; these need the
standard library, numpy and onnxruntime. It is called with a folder that holds request.json, the
graphs and inputs.npz, and prints one line of JSON. A second process of the same machine receives
the frames.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from workbench.deploy.device_runner import name_of_host, name_of_processor
from workbench.tiers.processes.features import Outgoing, restore
from workbench.tiers.processes.frames import Frame, Kind
from workbench.tiers.processes.node_times import node_times_s
from workbench.tiers.processes.settings import StageSettings
from workbench.tiers.processes.stage_model import StageModels
from workbench.tiers.processes.transport import Connection, Identity, Listener, bind, connect

SENDER, RECEIVER = "profile-sender", "profile-receiver"
"""The names in the certificates of both processes."""
GRAPH, IDLE = "whole.onnx", "idle.onnx"
"""The whole model, and a graph by which profiling itself is timed."""
_NUM_PROFILED = 300
_WARM_UP_S, _MAX_S = 0.5, 20.0
_NUM_WARM_UP_FRAMES, _NUM_FRAMES = 50, 400
_ANSWER = np.zeros(10, dtype=np.float32)


def main(folder: Path) -> None:
    """Measure what `request.json` names, and print the result."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "inputs.npz") as stored:
        inputs = [stored[str(number)] for number in range(len(request["stages"]))]
    found: dict[str, Any] = {
        "host": name_of_host(),
        "processor": name_of_processor(),
        "num_cores": os.cpu_count(),
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "stages": _time_stages(folder, request, inputs),
        "graphs": [],
        "frames": [],
    }
    if request["nodes"]:
        found["graphs"] = _time_graph(folder, request, inputs[0])
    for transport in ("mtls", "plain"):
        found["frames"] += asyncio.run(
            _time_frames(folder, transport, inputs[: 2 if len(inputs) > 1 else 1])
        )
    print(json.dumps(found))


def _time_stages(
    folder: Path, request: dict[str, Any], inputs: list[np.ndarray]
) -> list[dict[str, Any]]:
    """Time each stage with each batch as a tier computes it, the decision whether to go on
    included.
    """
    models = StageModels(
        [
            StageSettings(number, str(folder / stage["file"]), stage["threshold"])
            for number, stage in enumerate(request["stages"])
        ],
        threads=request["threads"],
    )
    found = []
    for number, values in enumerate(inputs):
        for batch in request["batches"]:
            rows = [(number, values, None, 0, number)] * batch
            times_s = _timed(lambda rows=rows: models.predict(rows), request["num_calls"])
            found.append({"stage": number, "batch": batch, **_summary(times_s)})
    return found


def _time_graph(folder: Path, request: dict[str, Any], values: np.ndarray) -> list[dict[str, Any]]:
    """Time the whole model and its nodes with each batch."""
    threads, num_calls = request["threads"], request["num_calls"]
    model = StageModels([StageSettings(0, str(folder / GRAPH))], threads=threads)
    found = []
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
        found.append({"batch": batch, "call_s": statistics.median(times_s), "nodes_s": nodes_s})
    return found


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
        found = []
        for what, values in zip(("inputs", "features"), inputs, strict=False):
            for features in ("float32", "uint8"):
                timing = await _time_kind(connection, values, Outgoing(features))
                found.append({"what": what, "features": features, "transport": transport, **timing})
        connection.close()
        return found
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
    found = await _there_and_back(connection, Frame(Kind.HEARTBEAT))
    return float(found.tensor[0])


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
