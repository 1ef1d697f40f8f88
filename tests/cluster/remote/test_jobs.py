from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.services.clusters import Cluster
from workbench.cluster.head import ray_environment
from workbench.cluster.remote import jobs
from workbench.cluster.remote.jobs import Job, Jobs, jobs_address, read_token
from workbench.foundation.errors import RunError


@pytest.fixture(autouse=True)
def _no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "RAY_AUTH_TOKEN",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_AUTH_MODE",
        "RAY_API_SERVER_ADDRESS",
    ):
        monkeypatch.delenv(name, raising=False)


class Server(ThreadingHTTPServer):
    """Answers what a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, str]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Answering)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        answers = self.server.answers[self.path]
        status, text = answers.pop(0) if len(answers) > 1 else answers[0]
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", text)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_lines_are_told_once_and_whole_and_the_end_comes_last(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.01)
    monkeypatch.setattr(jobs, "_REST_FACTOR", 0.0)
    states = ["PENDING", "RUNNING", "RUNNING", "FAILED"]
    server.answers["/api/jobs/j"] = [
        (200, json.dumps({"submission_id": "j", "status": state, "driver_exit_code": 4}))
        for state in states
    ]
    logs = ["one\ntw", "one\ntwo\nthree\n", "one\ntwo\nthree\nend without a newline"]
    server.answers["/api/jobs/j/logs"] = [(200, json.dumps({"logs": text})) for text in logs]
    told = list(Jobs(server.address, "secret").follow("j"))
    assert told[:-1] == ["one", "two", "three", "end without a newline"]
    assert told[-1] == Job("j", "FAILED", 4, "", {})
    assert {token for _, token in server.asked} == {"Bearer secret"}


def test_a_token_is_not_carried_to_where_an_answer_points(server: Server) -> None:
    other = Server()
    server.answers["/api/version"] = [(302, f"{other.address}/api/version")]
    with pytest.raises(RunError, match="does not take jobs: it is not a Ray dashboard"):
        Jobs(server.address, "secret").check()
    assert other.asked == []
    other.server_close()


@pytest.mark.parametrize(
    ("answer", "token", "said"),
    [
        ((401, "Unauthorized"), None, "requires a token, and none was given"),
        ((403, "Forbidden"), "secret", r"rejects the token \(403\)"),
        ((404, ""), None, "does not take jobs"),
        ((200, "<html>"), None, "does not take jobs"),
        (
            (500, "Traceback\nValueError: no room"),
            None,
            r"refused the request \(500\): ValueError: no room",
        ),
    ],
)
def test_every_refusal_is_translated(server: Server, answer, token: str | None, said: str) -> None:
    server.answers["/api/version"] = [answer]
    with pytest.raises(RunError, match=said) as caught:
        Jobs(server.address, token).check()
    assert "secret" not in str(caught.value)


def test_a_connection_that_breaks_is_tried_again_for_a_while(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RETRY_S", 0.01)
    server.answers["/api/jobs/j"] = [
        (0, ""),
        (200, json.dumps({"submission_id": "j", "status": "STOPPED"})),
    ]
    server.answers["/api/jobs/j/logs"] = [(200, json.dumps({"logs": "one\n"}))]
    assert next(Jobs(server.address).follow("j")) == "one"
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    server.answers["/api/jobs/j"] = [(0, "")]
    with pytest.raises(RunError, match="nothing answers"):
        next(Jobs(server.address).follow("j"))


@pytest.mark.parametrize(
    "given",
    [
        "head:8265",
        "ray://head:1",
        "http://",
        "http://me:secret@head:8265",
        "http://head:8265?x=1",
        "http://[x",
        "http://head:no",
        "",
    ],
)
def test_an_address_that_takes_no_jobs_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(RunError, match="address") as caught:
        jobs_address(given)
    assert "secret" not in str(caught.value)


def test_an_address_is_given_or_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://other/ray/")
    assert jobs_address(None) == "https://other/ray"
    assert jobs_address("http://head:8265/") == "http://head:8265"


def test_a_token_is_looked_for_where_ray_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_token() is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of the home\n")
    assert read_token() == "of the home"
    (tmp_path / "file").write_text("of a file")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "file"))
    assert read_token() == "of a file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the environment")
    assert read_token() == "of the environment"
    (tmp_path / "named").write_text("named")
    assert read_token(tmp_path / "named") == "named"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert read_token() is None


@pytest.mark.parametrize("content", [b"", b"  \n", b"two\nlines", b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_refused_without_showing_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(RunError, match="token") as caught:
        read_token(tmp_path / "token")
    assert "lines" not in str(caught.value)


def test_the_token_of_the_local_head_is_for_no_other_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, ours = tmp_path / "given", tmp_path / "ours"
    given.write_text("given")
    ours.write_text("ours")
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "WORKBENCH_HEAD_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
    for name in ("WORKBENCH_GIVEN_RAY_AUTH_MODE", "WORKBENCH_GIVEN_RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
    ray_environment.use_head_token(ours)
    assert read_token() is None
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(given))
    ray_environment.use_head_token(ours)
    assert read_token() == "given"
    ray_environment.use_head_token(ours)
    assert read_token() == "given"


def test_actors_are_not_given_the_folder_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"runtime_env": {"working_dir": "gcs://x.zip", "pip": ["a"]}, "metadata": {"job": "j"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(config))
    ray_environment.drop_job_folder()
    kept = json.loads(ray_environment.os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])
    assert kept == {"runtime_env": {"pip": ["a"]}, "metadata": {"job": "j"}}


def test_the_folder_of_a_job_is_the_one_that_ray_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "working_dir_files" / "_ray_pkg_1"
    (package / "sub").mkdir(parents=True)
    monkeypatch.chdir(package / "sub")
    assert ray_environment.job_folder() is None
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert ray_environment.job_folder() == package
    monkeypatch.chdir(tmp_path)
    assert ray_environment.job_folder() is None


def status_of(
    address: str, method: str, path: str, token: str | None, body: bytes | None = None
) -> int:
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    request = urllib.request.Request(f"{address}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.ray
def test_a_cluster_lets_nobody_ask_for_anything_without_its_token(cluster: Cluster) -> None:
    before = cluster.jobs.jobs()
    mark = cluster.folder / "a stranger was here"
    job = json.dumps({"entrypoint": f"touch '{mark}'", "submission_id": "strange"}).encode()
    asked: list[tuple[str, str, bytes | None]] = [
        ("GET", "/api/version", None),
        ("GET", "/api/jobs/", None),
        ("POST", "/api/jobs/", job),
        ("GET", "/api/jobs/strange/logs", None),
        ("POST", "/api/jobs/strange/stop", b"{}"),
        ("DELETE", "/api/jobs/strange", None),
        ("PUT", "/api/packages/gcs/_ray_pkg_strange.zip", b"PK"),
        ("GET", "/api/packages/gcs/_ray_pkg_strange.zip", None),
        ("GET", "/nodes?view=summary", None),
        ("GET", "/logical/actors", None),
        ("GET", "/api/v0/actors", None),
        ("GET", "/api/v0/logs", None),
    ]
    for token, refusal in ((None, 401), ("not-the-token-of-this-cluster", 403)):
        told = {
            (method, path): status_of(cluster.jobs_address, method, path, token, body)
            for method, path, body in asked
        }
        assert set(told.values()) == {refusal}, told
    assert status_of(cluster.jobs_address, "GET", "/api/version", cluster.secret) == 200
    assert cluster.jobs.jobs() == before
    assert not mark.exists()
