"""Ray Serve answers as the plain server does, while copies are replaced and when it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.served import Server, write_array_bundle, write_table_bundle
from tests.services.waiting import wait_until
from workbench.cli.entry import run_command

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROW: dict[str, Any] = {"age": 3, "animal": "cat", "note": "x", "born": "2020-01-01"}
HIGH, LOW = {"inputs": [1, 2, 3, 4]}, {"inputs": [-1, -2, 0, 0]}


@pytest.fixture(scope="module", autouse=True)
def _needs_serve() -> None:
    pytest.importorskip("fastapi", reason="needs ray[serve]")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """The same bundles on Ray, in two copies, and in a process."""
    bundles = [write_table_bundle(tmp_path / "animals"), write_array_bundle(tmp_path / "sum")]
    for name in ("ray", "plain"):
        (tmp_path / name).mkdir()
    limits = ["--queue", "100", "--max-body", "20kB"]
    plain = Server(tmp_path / "plain", *bundles, *limits)
    on_ray = Server(
        tmp_path / "ray", *bundles, *limits, "--on", "ray", "--replicas", "2", port=free_port()
    )
    yield on_ray, plain
    for server in (on_ray, plain):
        server.close()
    home = {"WORKBENCH_HOME": str(tmp_path / "ray")}
    subprocess.run(
        [sys.executable, "-m", "workbench", "shutdown"], env=os.environ | home, check=True
    )


def asked(server: Server, method: str, path: str, **options: Any) -> tuple[int, Any]:
    answer = server.client.request(method, path, **options)
    kind = answer.headers["content-type"]
    body = answer.json() if kind == "application/json" else answer.text
    if isinstance(body, dict):  # what is measured differs
        for part in [body, *body.get("models", [])]:
            part.pop("one_row_s", None)
            part.pop("batch_rows", None)
    return answer.status_code, body


def test_routes_and_answers_are_those_of_the_plain_server(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    pages = ("/v1", "/v1/sum", "/health", "/ready", "/openapi.json", "/", "/page.js", "/v1/nothing")
    bodies: list[Any] = [[ROW, ROW | {"animal": "bird"}], [{"age": "old"}], [], "x", [ROW] * 101]
    as_json = {"Content-Type": "application/json"}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        *(("GET", page, {}) for page in pages),
        ("GET", "/v1/sum/drift", {}),
        ("POST", "/v1", {}),
        ("GET", "/v1", {"headers": {"Authorization": "Bearer wrong"}}),
        *(("POST", "/v1/animals/predict", {"json": {"rows": rows}}) for rows in bodies),
        ("POST", "/v1/sum/predict", {"json": {"rows": [HIGH, LOW]}}),
        ("POST", "/v1/sum/predict", {"content": b" " * 30_000, "headers": as_json}),
    ]
    on_ray, plain = servers
    on_ray.client.headers["Host"] = plain.client.headers["Host"] = "127.0.0.1"
    statuses = set()
    for method, path, options in requests:
        got, wanted = (asked(server, method, path, **options) for server in servers)
        assert got == wanted, path
        statuses.add(got[0])
    assert statuses == {200, 400, 401, 404, 405, 409, 413, 422}

    failed: list[Any] = []
    answered: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answer = on_ray.predict("sum", HIGH)
            if answer.status_code != 200:
                failed.append(answer.text)
            else:
                answered.append(answer.json()["version"])

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    wait_until(lambda: len(answered) > 20, what="answers")
    write_array_bundle(tmp_path / "sum", scale=2.0)
    on_ray.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "now version" in on_ray.log.read_text(), what="the newer bundle")
    at = len(answered)
    wait_until(lambda: len(answered) > at + 50, what="more answers")
    stop.set()
    for client in clients:
        client.join()
    assert failed == []
    assert len(set(answered)) == 2
    assert len(set(answered[-20:])) == 1

    assert on_ray.client.post("/v1/sum/swap").json()["next_step"].startswith("Send SIGHUP")
    assert on_ray.stop() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas", "2"], "--replicas needs --on ray"),
        (["--address", "x:1"], "--address needs --on ray"),
        (["--on", "ray", "--port", "0"], "needs a port"),
        (["--on", "ray", "--keep", "0.1"], "you cannot combine --keep and --on ray"),
    ],
)
def test_options_that_a_place_would_ignore_are_refused(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_array_bundle(tmp_path / "sum")
    assert run_command(["serve", str(bundle), *options]) == 2
    assert message in capsys.readouterr().err
