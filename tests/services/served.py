"""Bundles with a small model each, and real servers of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue

from tests.services.waiting import wait_until
from workbench.deploy.card import MODEL, Card, Input, Output, Statistics
from workbench.foundation.files import sha256_of

CLASSES = ("low", "high")
WIDTH = 512


def write_array_bundle(folder: Path, *, scale: float = 1.0, work: int = 0, size: int = 4) -> Path:
    """Write a bundle that answers `low` or `high` by the sum of an array, and takes as long as it
    should.

    Args:
        folder: Where it goes.
        scale: What makes it another model.
        work: Products with a large matrix that only cost time.
        size: Numbers in a sample.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir(parents=True, exist_ok=True)
    constants = {
        "scale": np.array([[-scale, scale]], dtype=np.float32),
        "wide": np.ones((1, WIDTH), dtype=np.float32),
        "matrix": (
            np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        ),
        "little": np.full((WIDTH, 1), 1e-12, dtype=np.float32),
        "last axis": np.array([1]),
    }
    nodes = [
        helper.make_node("ReduceSum", ["inputs", "last axis"], ["sum"]),
        helper.make_node("Mul", ["sum", "wide"], ["work 0"]),
    ]
    for number in range(work):
        nodes.append(
            helper.make_node("MatMul", [f"work {number}", "matrix"], [f"product {number}"])
        )
        nodes.append(helper.make_node("Tanh", [f"product {number}"], [f"work {number + 1}"]))
    nodes += [
        helper.make_node("MatMul", [f"work {work}", "little"], ["nothing"]),
        helper.make_node("Add", ["sum", "nothing"], ["total"]),
        helper.make_node("Mul", ["total", "scale"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["outputs"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["batch", size])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / MODEL)
    example: list[JsonValue] = [0.5] * size
    _card(
        folder,
        inputs=(
            Input(name="inputs", kind="array", shape=(size,), dtype="float32", example=example),
        ),
        outputs=(Output(name="outputs", kind="classes", shape=(2,), classes=CLASSES),),
        statistics={"inputs": Statistics(edges=(-1.0, 0.0, 1.0), shares=(0.25, 0.25, 0.25, 0.25))},
        answers=Statistics(categories=CLASSES, shares=(0.5, 0.5, 0.0)),
    )
    return folder


def write_table_bundle(folder: Path) -> Path:
    """Write a bundle with a column of every kind.

    It adds 100 to the age of a cat and 1 without a date.
    """
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir(parents=True, exist_ok=True)

    def column(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, ["batch"])

    def encoded(name: str, **meaning: Any) -> Any:
        return helper.make_node(
            "LabelEncoder",
            [name],
            [f"{name} encoded"],
            domain="ai.onnx.ml",
            default_float=0.0,
            **meaning,
        )

    nodes = [
        encoded("animal", keys_strings=["cat"], values_floats=[100.0]),
        encoded("note", keys_strings=["purrs"], values_floats=[1000.0]),
        helper.make_node("Add", ["animal encoded", "note encoded"], ["more"]),
        helper.make_node("Cast", ["more"], ["added"], to=TensorProto.DOUBLE),
        helper.make_node("IsNaN", ["born"], ["no date"]),
        helper.make_node("Cast", ["no date"], ["one"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["age", "added"], ["older"]),
        helper.make_node("Add", ["older", "one"], ["values"]),
    ]
    graph = helper.make_graph(
        nodes,
        "table",
        [
            column("age", TensorProto.DOUBLE),
            column("animal", TensorProto.STRING),
            column("note", TensorProto.STRING),
            column("born", TensorProto.DOUBLE),
        ],
        [column("values", TensorProto.DOUBLE)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / MODEL)
    _card(
        folder,
        inputs=(
            Input(name="age", kind="number", dtype="float64", example=3.0),
            Input(
                name="animal",
                kind="category",
                dtype="string",
                categories=("cat", "dog"),
                example="cat",
            ),
            Input(name="note", kind="text", dtype="string", example="sleeps"),
            Input(
                name="born",
                kind="date",
                dtype="float64",
                date_format="ISO8601",
                has_missing=True,
                example="2020-02-01",
            ),
        ),
        outputs=(Output(name="values", kind="values", targets=("years",), unit="years"),),
        statistics={
            "age": Statistics(edges=(2.0, 4.0, 6.0), shares=(0.25, 0.25, 0.25, 0.25)),
            "animal": Statistics(categories=("cat", "dog"), shares=(0.5, 0.5, 0.0)),
        },
        answers=Statistics(edges=(50.0,), shares=(0.5, 0.5)),
    )
    return folder


def _card(folder: Path, **parts: Any) -> None:
    Card(
        name=folder.name,
        run_id="20261123-digits",
        trial=3,
        trained_on="four numbers",
        task="classification",
        model="a test",
        opset=18,
        files={MODEL: sha256_of(folder / MODEL)},
        num_train_samples=1000,
        **parts,
    ).write(folder)


class Server:
    """A server in a process of its own."""

    def __init__(
        self, folder: Path, *arguments: str | Path, token: bool = True, port: int = 0
    ) -> None:
        self.token_file = folder / "token"
        given = ["--token-file", str(self.token_file)] if token else ["--no-token"]
        command = [
            sys.executable,
            "-m",
            "workbench",
            "serve",
            *map(str, arguments),
            "--port",
            str(port),
            "--json",
            *given,
        ]
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=os.environ | {"WORKBENCH_HOME": str(folder)},
            )
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, self.log.read_text()
            text += line
        self.started = json.loads(text)
        self.url: str = self.started["url"]
        self.token = self.token_file.read_text().strip() if token else ""
        self.headers = {"Authorization": f"Bearer {self.token}"} if token else {}
        import httpx

        self.client = httpx.Client(base_url=self.url, headers=self.headers, timeout=120)
        wait_until(self._is_ready, what="the start of the server")

    def _is_ready(self) -> bool:
        import httpx

        try:
            return self.client.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def predict(self, name: str, *rows: dict[str, Any]) -> Any:
        """Send rows and return the response."""
        return self.client.post(f"/v1/{name}/predict", json={"rows": list(rows)})

    def metric(self, line: str) -> float:
        """Return the value of a line of /metrics, whatever the order of its labels; 0 for none."""
        wanted = _name_and_labels(line)
        for written in self.client.get("/metrics").text.splitlines():
            name, _, value = written.rpartition(" ")
            if _name_and_labels(name) == wanted:
                return float(value)
        return 0.0

    def stop(self) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def close(self) -> None:
        """End it in any case."""
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Connection:
    """One HTTP connection that stays open, as a client under load has it.

    Without a client library's cost.
    """

    def __init__(self, server: Server, *, peer: str | None = None) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._address = (host, int(port))
        self._peer = None if peer is None else (peer, 0)
        self._token = server.token
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request and return status, headers and body.

        Raises:
            OSError: If the server cannot be reached, or closed the connection before it answered.
        """
        if self._reader is not None and self._reader.at_eof():
            self.close()
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                *self._address, local_addr=self._peer
            )
        try:
            self._writer.write(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer"
                f" {self._token}\r\nContent-Type: application/json\r\nContent-Length:"
                f" {len(body)}\r\n\r\n".encode()
                + body
            )
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            if headers.get("transfer-encoding") == "chunked":
                answer = await self._read_chunks(self._reader)
            else:
                answer = await self._reader.readexactly(int(headers["content-length"]))
        except (asyncio.IncompleteReadError, OSError) as error:
            self.close()
            raise ConnectionResetError("closed before the answer") from error
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), headers, answer

    async def _read_chunks(self, reader: asyncio.StreamReader) -> bytes:
        answer = b""
        while size := int(await reader.readline(), 16):
            answer += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return answer

    def close(self) -> None:
        """Close it; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def memory_bytes(server: Server) -> int:
    """Return the memory that the process of a server holds."""
    import psutil

    return psutil.Process(server.process.pid).memory_info().rss


def body_of(*rows: Any) -> bytes:
    """Return the body of a request; arrays as lists."""
    return json.dumps({"rows": list(rows)}, default=np.ndarray.tolist).encode()


def _name_and_labels(line: str) -> tuple[str, frozenset[str]]:
    name, _, labels = line.rstrip("}").partition("{")
    return name, frozenset(labels.split(","))
