"""Requests per second and latency of served models.

Ours, also on Ray, a FastAPI handler, and Ray Serve.

Run `python -m tests.benchmarks.serving [--quick]`; FastAPI and what needs Ray Serve are left out
where they are not installed. `on ray` is `workbench serve --on ray`, `ray serve` a deployment
written by hand, each with one replica on a Ray head of its own. Servers start before the clock,
each with one process for the model, and take turns under the same clients, which share the machine
with them. Each request has one row; a client sends the next one when it has the answer. Ours also
checks a token, and counts. `CPU ms` is the processor time of the server's first process for a
request: other programs disturb it less.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.services.ports import free_port
from tests.services.served import Connection, Server, body_of
from workbench.deploy.card import MODEL, Card, Input, Output
from workbench.foundation.files import sha256_of

RESULTS = Path(__file__).parent / "results" / "serving.json"
SHAPES = {"mlp": (64,), "resnet": (1, 8, 8)}
CLIENTS = (1, 32)
PERCENTILES = (50, 99)


class Rival:
    """A server of another library in a process of its own; has what `Connection` needs."""

    token = ""

    def __init__(self, side: str, bundle: Path, home: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.serving_rivals",
            side,
            str(bundle),
            str(port),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "WORKBENCH_HOME": str(home)},
        )

    def close(self) -> None:
        """End it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=3 if "fastapi" in str(self.process.args) else 60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)


def write_model(name: str, folder: Path) -> Path:
    """Write a bundle with a model of the zoo."""
    import torch

    from workbench.deploy.onnx_export import write_onnx
    from workbench.models.adapters import build_model

    shape = SHAPES[name]
    folder.mkdir()
    model = build_model(name, {}, input_shape=shape, num_outputs=10, vocabulary_size=None).eval()
    write_onnx(model, torch.zeros(2, *shape), folder / MODEL)
    Card(
        name=name,
        run_id="benchmark",
        trained_on="nothing",
        task="classification",
        model=name,
        opset=18,
        inputs=(Input(name="inputs", kind="array", shape=shape, dtype="float32"),),
        outputs=(Output(name="outputs", kind="classes", shape=(10,), classes=tuple("0123456789")),),
        files={MODEL: sha256_of(folder / MODEL)},
    ).write(folder)
    return folder


def processor_time_s(server: Any) -> float:
    """Return the processor time that the process of a server has used, in seconds.

    Without its children's.
    """
    times = psutil.Process(server.process.pid).cpu_times()
    return times.user + times.system


async def wait_for(server: Any, path: str, body: bytes) -> None:
    """Wait until a server answers."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        try:
            status, _, _ = await Connection(server).post(path, body)
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.2)
    raise TimeoutError(path)


async def measure(server: Any, path: str, body: bytes, clients: int, seconds: float) -> list[float]:
    """Return how long each request took, in seconds."""
    waits: list[float] = []
    end_s = time.perf_counter() + seconds

    async def send(connection: Connection) -> None:
        while (started_s := time.perf_counter()) < end_s:
            status, _, answer = await connection.post(path, body)
            assert status == 200, answer
            waits.append(time.perf_counter() - started_s)
        connection.close()

    await asyncio.gather(*(send(Connection(server)) for _ in range(clients)))
    return waits


def compare(model: str, folder: Path, *, seconds: float, num_turns: int) -> dict[str, Any]:
    """Measure all sides in turns, print the table and return it."""
    bundle = write_model(model, folder / model)
    home = folder / f"{model}-home"
    home.mkdir()
    ours = Server(home, f"{model}={bundle}")
    servers: dict[str, tuple[Any, str]] = {"workbench": (ours, f"/v1/{model}/predict")}
    head = folder / f"{model}-ray"
    if importlib.util.find_spec("fastapi"):
        head.mkdir()
        on_ray = Server(head, f"{model}={bundle}", "--on", "ray", port=free_port())
        servers["on ray"] = (on_ray, f"/v1/{model}/predict")
        servers["fastapi"] = (Rival("fastapi", bundle, home), "/predict")
        servers["ray serve"] = (Rival("ray", bundle, home), "/predict")
    numbers = np.random.default_rng(0).normal(size=64).round(4).tolist()
    body = body_of({"inputs": numbers})
    taken: dict[tuple[str, int], list[list[float]]] = {}
    cpu_s: dict[tuple[str, int], float] = {}
    try:
        for server, path in servers.values():
            asyncio.run(wait_for(server, path, body))
        for clients in CLIENTS:
            for turn in range(num_turns + 1):
                for side, (server, path) in servers.items():
                    length_s = seconds if turn else 1.0  # the first turn warms up
                    before_s = processor_time_s(server)
                    done = asyncio.run(measure(server, path, body, clients, length_s))
                    if turn:
                        spent_s = (
                            cpu_s.get((side, clients), 0.0) + processor_time_s(server) - before_s
                        )
                        cpu_s[side, clients] = spent_s
                        taken.setdefault((side, clients), []).append(done)
    finally:
        for server, _ in servers.values():
            server.close()
        if head.exists():
            subprocess.run(
                [sys.executable, "-m", "workbench", "shutdown"],
                check=True,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"WORKBENCH_HOME": str(head)},
            )
    print(f"\n{model}: one row a request, medians of {num_turns} turns of {seconds:g} s")
    print(f"  {'':<12}{'clients':>8}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}")
    table = []
    for (side, clients), turns in taken.items():
        rate = statistics.median(len(turn) / seconds for turn in turns)
        p50, p99 = (
            statistics.median(float(np.percentile(turn, each)) for turn in turns)
            for each in PERCENTILES
        )
        # Ray Serve computes in other processes than the first.
        cpu = (
            None if side in ("on ray", "ray serve") else cpu_s[side, clients] / sum(map(len, turns))
        )
        table.append(
            {
                "side": side,
                "clients": clients,
                "requests_per_s": rate,
                "p50_s": p50,
                "p99_s": p99,
                "cpu_s": cpu,
            }
        )
        shown = f"{p50 * 1e3:>9.2f}{p99 * 1e3:>9.2f}{'-' if cpu is None else f'{cpu * 1e3:.2f}':>9}"
        print(f"  {side:<12}{clients:>8}{rate:>12,.0f}{shown}", flush=True)
    return {"model": model, "table": table}


def main() -> None:
    """Measure all sides, print the tables, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn of one second")
    arguments = parser.parse_args()
    seconds, num_turns = (1.0, 1) if arguments.quick else (3.0, 3)
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as folder:
        report = {
            "machine": {
                "processor": platform.processor() or platform.machine(),
                "cpus": os.cpu_count(),
            },
            "load_average_at_start": os.getloadavg()[0],
            "models": [
                compare(model, Path(folder), seconds=seconds, num_turns=num_turns)
                for model in SHAPES
            ],
        }
    if not arguments.quick:
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
