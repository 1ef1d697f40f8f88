"""Real servers in processes of their own, used as clients and operators use them."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from tests.deploy.trained import exported
from tests.services.served import (
    Connection,
    Server,
    body_of,
    memory_bytes,
    write_array_bundle,
    write_table_bundle,
)
from tests.services.waiting import wait_until
from workbench.cli.entry import run_command
from workbench.data.bundled import DigitsOptions
from workbench.deploy.serving.app import MAX_REQUESTS
from workbench.foundation.errors import install_command

ROW: dict[str, Any] = {"age": 3, "animal": "cat", "note": "x", "born": "2020-01-01"}
HIGH = body_of({"inputs": [1, 2, 3, 4]})
WORK = 60
"""Layers of a model that takes milliseconds, so that it and not HTTP limits the server."""
MAX_GROWTH_BYTES = 150 * 2**20


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    write_table_bundle(folder / "animals")
    write_array_bundle(folder / "sum")
    write_array_bundle(folder / "newer", scale=2.0)
    write_array_bundle(folder / "wider", size=5)
    write_array_bundle(folder / "slow", work=WORK)
    return folder


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    given = [bundles / "animals", bundles / "sum", "--max-body", "20kB", "--queue", "100"]
    server = Server(tmp_path_factory.mktemp("server"), *given)
    yield server
    server.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start servers that end with the test."""
    started: list[Server] = []

    def start(*arguments: Any, **options: Any) -> Server:
        started.append(Server(tmp_path, *arguments, **options))
        return started[-1]

    yield start
    for server in started:
        server.close()


def test_rows_of_every_kind_are_answered(server: Server) -> None:
    answer = server.predict("animals", ROW, ROW | {"animal": "bird"})
    assert answer.status_code == 200
    first, second = answer.json()["answers"]
    assert first == {"values": {"years": 103.0}}
    assert second == {
        "values": {"years": 3.0},
        "notes": ["column 'animal': 'bird' did not occur in training"],
    }
    [answer] = server.predict("sum", {"inputs": [-1, -2, 0, 0]}).json()["answers"]
    assert answer["class"] == "low"


def test_the_description_is_true(server: Server) -> None:
    document = server.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    description = server.predict("animals", ROW).json()
    schema = {"$ref": "#/components/schemas/animals.Answer", "components": document["components"]}
    Draft202012Validator(schema).validate(description["answers"][0])
    for path, methods in document["paths"].items():
        for method in methods:
            assert server.client.request(method, path).status_code not in (404, 405), path


@pytest.mark.parametrize(
    ("path", "content", "kind", "status"),
    [
        ("animals", b'{"rows": [{"age": "old"}]}', "application/json", 422),
        ("animals", b'{"rows": 3}', "application/json", 400),
        ("animals", b"{", "application/json", 400),
        ("animals", body_of(ROW), "text/plain", 415),
        ("animals", b" " * 30_000, "application/json", 413),
        ("sum", body_of(*[{"inputs": [0, 0, 0, 0]}] * 101), "application/json", 413),
        ("nothing", body_of(ROW), "application/json", 404),
    ],
)
def test_a_wrong_request_is_refused_in_words(
    server: Server, path: str, content: bytes, kind: str, status: int
) -> None:
    answer = server.client.post(
        f"/v1/{path}/predict", content=content, headers={"Content-Type": kind}
    )
    assert answer.status_code == status
    assert answer.json()["problem"]
    if status == 415:
        assert "Content-Type: application/json" in answer.json()["next_step"]
    if status == 422:
        places = {(problem["row"], problem["column"]) for problem in answer.json()["problems"]}
        assert places == {(0, name) for name in ROW}


def test_a_body_without_a_length_is_limited_too(server: Server) -> None:
    parts = (b" " * 1000 for _ in range(100))
    headers = {"Content-Type": "application/json"}
    assert server.client.post("/v1/sum/predict", content=parts, headers=headers).status_code == 413


def test_only_the_token_opens_what_shows_models(server: Server) -> None:
    import httpx

    for path in ("/metrics", "/openapi.json", "/v1", "/v1/sum", "/nothing"):
        for wrong in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": f"Basic {server.token}"},
        ):
            answer = httpx.get(server.url + path, headers=wrong)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/health", "/ready", "/"):
        assert httpx.get(server.url + path).status_code == 200
    assert httpx.post(f"{server.url}/v1/sum/predict", content=HIGH).status_code == 401
    assert server.token_file.stat().st_mode & 0o777 == 0o600
    assert server.token not in server.log.read_text()
    command = Path(f"/proc/{server.process.pid}/cmdline")
    assert not command.exists() or server.token not in command.read_text()


def test_the_page_may_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/page.js", "/page.css"):
        answer = server.client.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http" not in answer.text


def test_metrics_count_what_happened(server: Server) -> None:
    before = server.metric('workbench_rows_total{model="sum"}')
    refused = server.metric('workbench_rejected_total{model="sum",reason="invalid"}')
    server.predict("sum", *[{"inputs": [0, 0, 0, 0]}] * 5)
    server.predict("sum", {"inputs": 1})
    assert server.metric('workbench_rows_total{model="sum"}') == before + 5
    assert server.metric('workbench_rejected_total{model="sum",reason="invalid"}') == refused + 1
    assert server.metric('workbench_queue_rows{model="sum"}') == 0
    count = server.metric('workbench_request_seconds_count{model="sum"}')
    assert server.metric('workbench_request_seconds_bucket{model="sum",le="+Inf"}') == count > 0
    assert server.metric('workbench_batch_rows_sum{model="sum"}') >= 5


def test_without_a_token_only_names_of_this_machine_are_served(start: Any, bundles: Path) -> None:
    server = start(bundles / "sum", token=False)
    assert server.predict("sum", {"inputs": [0, 0, 0, 0]}).status_code == 200
    assert server.client.get("/v1", headers={"Host": "evil.example:80"}).status_code == 421


def test_a_server_that_cannot_start_states_why(
    bundles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    open_file = tmp_path / "open"
    open_file.write_text("a token that others can read")
    open_file.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for arguments, words in {
            (bundles / "sum", "--host", "0.0.0.0", "--no-token"): "others can reach 0.0.0.0",
            (bundles / "sum", "--port", port): "--port 0 for any free port",
            (bundles / "sum", "--port", "0", "--token-file", open_file): f"chmod 600 {open_file}",
            (bundles / "sum", bundles / "sum"): "NAME=",
            (tmp_path,): "card.json",
        }.items():
            assert run_command(["serve", *map(str, arguments)]) in (1, 2)
            assert words in capsys.readouterr().err


def test_a_package_that_is_missing_is_named_with_its_installation(
    bundles: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run_command(["serve", str(bundles / "sum")]) == 1
    assert install_command("deploy") in capsys.readouterr().err


def test_a_newer_bundle_takes_over_under_load_without_a_failed_request(
    start: Any, bundles: Path, tmp_path: Path
) -> None:
    link = tmp_path / "current"
    link.symlink_to(bundles / "sum")
    server = start(f"model={link}")
    versions: Counter[str] = Counter()

    def point_to(name: str) -> None:
        (tmp_path / "next").symlink_to(bundles / name)
        (tmp_path / "next").rename(link)

    async def send(connection: Connection, done: asyncio.Event) -> None:
        while not done.is_set():
            status, _, body = await connection.post("/v1/model/predict", HIGH)
            assert status == 200, body
            versions[body.split(b'"version":"')[1][:12].decode()] += 1

    async def swap_twice() -> None:
        point_to("newer")
        other = Connection(server)
        status, _, body = await other.post("/v1/model/swap", b"")
        assert (status, b'"swapped":true' in body) == (200, True)
        status, _, body = await other.post("/v1/model/swap", b"")
        assert b'"swapped":false' in body
        point_to("sum")
        server.process.send_signal(signal.SIGHUP)
        while "now version" not in server.log.read_text():
            await asyncio.sleep(0.05)
        point_to("wider")
        status, _, body = await other.post("/v1/model/swap", b"")
        assert status == 409
        assert b"other inputs" in body

    async def main() -> None:
        done = asyncio.Event()
        tasks = [asyncio.create_task(send(Connection(server), done)) for _ in range(8)]
        await swap_twice()
        done.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(versions) == 2
    assert min(versions.values()) > 0
    assert server.metric('workbench_swaps{model="model"}') == 2
    assert server.predict("model", {"inputs": [0, 0, 0, 0]}).status_code == 200


async def find_capacity(server: Server, seconds: float) -> float:
    """Return the requests that are answered per second when four clients always wait for an
    answer.
    """
    end_s = time.monotonic() + seconds

    async def send(connection: Connection) -> int:
        count = 0
        while time.monotonic() < end_s:
            status, _, _ = await connection.post("/v1/slow/predict", REQUEST)
            count += status == 200
        return count

    return sum(await asyncio.gather(*(send(Connection(server)) for _ in range(4)))) / seconds


REQUEST = body_of(*[{"inputs": [1, 2, 3, 4]}] * 8)


async def overload(
    server: Server, rate_per_s: float, seconds: float
) -> tuple[Counter[int], list[int]]:
    """Send requests at random times; return the statuses, and when the refused may try again."""
    statuses: Counter[int] = Counter()
    waits: list[int] = []
    idle: list[Connection] = []
    tasks: set[asyncio.Task[None]] = set()

    async def send() -> None:
        connection = idle.pop() if idle else Connection(server)
        try:
            status, headers, _ = await connection.post("/v1/slow/predict", REQUEST)
        except (
            ConnectionResetError
        ):  # after 75 idle seconds; the server's counts show whether any was lost
            status, headers, _ = await connection.post("/v1/slow/predict", REQUEST)
        idle.append(connection)
        statuses[status] += 1
        if status == 429:
            waits.append(int(headers["retry-after"]))

    draw = random.Random(0)
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    end_s = next_s + seconds
    while loop.time() < end_s:
        await asyncio.sleep(next_s - loop.time())
        task = asyncio.create_task(send())
        tasks.add(task)
        next_s += draw.expovariate(rate_per_s)
    await asyncio.gather(*tasks)
    return statuses, waits


@pytest.mark.parametrize("seconds", [1.5, pytest.param(60.0, marks=pytest.mark.slow)])
def test_four_times_its_capacity_is_refused_in_part_and_loses_nothing(
    start: Any, bundles: Path, seconds: float
) -> None:
    server = start(bundles / "slow", "--max-batch", "16", "--queue", "64")
    counted = 'workbench_requests_total{model="slow",code="200"}'

    async def main() -> tuple[Counter[int], list[int], float, int]:
        capacity = await find_capacity(server, 1.0)
        before = await asyncio.to_thread(server.metric, counted)
        memory = memory_bytes(server)
        return *await overload(server, 4 * capacity, seconds), before, memory

    statuses, waits, before, memory = asyncio.run(main())
    assert set(statuses) == {200, 429}
    assert min(waits) >= 1
    assert server.metric(counted) == before + statuses[200]
    rejected = 'workbench_rejected_total{{model="slow",reason="{}"}}'
    num_rejected = sum(
        server.metric(rejected.format(reason)) for reason in ("queue_full", "too_many")
    )
    assert num_rejected == statuses[429]
    assert memory_bytes(server) < memory + MAX_GROWTH_BYTES
    assert server.predict("slow", {"inputs": [1, 1, 1, 1]}).status_code == 200
    assert server.stop() == 0


def test_more_requests_at_once_than_it_holds_are_refused_in_words(
    start: Any, bundles: Path
) -> None:
    server = start(bundles / "slow", "--queue", "100000")
    num_sent = MAX_REQUESTS + 200

    async def main() -> list[tuple[int, dict[str, str], bytes]]:
        sent = [Connection(server).post("/v1/slow/predict", REQUEST) for _ in range(num_sent)]
        return await asyncio.gather(*sent)

    responses = asyncio.run(main())
    refused = [(headers, body) for status, headers, body in responses if status == 429]
    assert Counter(status for status, _, _ in responses) == {
        200: num_sent - len(refused),
        429: len(refused),
    }
    assert refused, "none was too many"
    assert all(
        headers["retry-after"] == "1" and b"are being answered" in body for headers, body in refused
    )


def test_sigterm_under_load_answers_what_was_accepted_and_refuses_the_rest(
    start: Any, bundles: Path
) -> None:
    server = start(bundles / "slow", "--max-batch", "4", "--queue", "400")
    statuses: Counter[int] = Counter()

    async def send(connection: Connection) -> None:
        while True:
            try:
                status, headers, _ = await connection.post("/v1/slow/predict", REQUEST)
            except OSError:  # the server no longer listens
                return
            statuses[status] += 1
            if status == 503:
                assert "retry-after" in headers

    async def main() -> None:
        tasks = [asyncio.create_task(send(Connection(server))) for _ in range(40)]
        while statuses[200] < 20:
            await asyncio.sleep(0.01)
        assert statuses[503] == 0
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert server.process.wait(timeout=120) == 0
    assert set(statuses) <= {200, 503}
    wait_until(lambda: "stopped after" in server.log.read_text())
    log = server.log.read_text()
    assert f"stopped after {statuses[200]:,} answered requests" in log


def test_what_was_served_is_kept_and_compared_with_the_training_data(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_table_bundle(tmp_path / "animals")
    alerted, settings = tmp_path / "alerted.json", tmp_path / "settings.yaml"
    settings.write_text(
        f"sinks: {{desk: {{kind: command, command: [cp, /dev/stdin, '{alerted}']}}}}\nalerts:"
        " [{on: drift}]"
    )
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(settings))
    server = start(bundle, "--keep", "1")
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    (tmp_path / "serve-token").symlink_to(server.token_file)
    assert server.client.get("/v1/animals/drift").json()["num_rows"] == 0
    server.predict("animals", *[ROW | {"animal": "bird"}] * 100)
    found = server.client.get("/v1/animals/drift").json()
    assert (found["num_rows"], found["drifted"]) == (100, True)
    assert server.metric('workbench_drift{model="animals",column="animal"}') > 1
    assert server.metric('workbench_drifted{model="animals"}') == 1
    assert run_command(["drift", server.url]) == 1
    assert "animal" in capsys.readouterr().out
    assert server.stop() == 0
    alert = json.loads(alerted.read_text())
    assert alert["text"].startswith(
        "animals (20261123-digits): drift from the training data in animal"
    )
    assert (alert["on"], alert["look"]) == ("drift", f"workbench drift {server.url}")
    assert "alert: animals: drift from the training data" in server.log.read_text()
    assert run_command(["drift", str(bundle)]) == 1
    assert "100 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    "model", ["tests.deploy.trained:build_own", pytest.param("convnet", marks=pytest.mark.slow)]
)
def test_what_an_export_wrote_is_answered_as_its_model_does(
    model: str, start: Any, tmp_path: Path
) -> None:
    trained, data, _ = exported(tmp_path / "bundle", model, "digits")
    server = start(tmp_path / "bundle")
    samples = data.validation.batch(np.arange(3))[0]
    with torch.no_grad():
        expected = trained(torch.from_numpy(samples)).softmax(dim=1).numpy()
    reading = DigitsOptions.model_validate({}).reading(seed=0)
    pixels = np.round(samples * reading.scale + reading.mean)

    answer = server.predict("bundle", *({"inputs": one.tolist()} for one in pixels))

    assert answer.status_code == 200, answer.text
    probabilities = [
        list(answered["probabilities"].values()) for answered in answer.json()["answers"]
    ]
    assert np.array(probabilities) == pytest.approx(expected, abs=1e-5)
