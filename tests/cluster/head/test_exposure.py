from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.cli.doctor import find_exposures
from workbench.cli.entry import run_command
from workbench.cluster.head import local_head
from workbench.cluster.head.exposure import Listener, listeners, readable_by_others
from workbench.experiment import Experiment
from workbench.foundation.artifacts import open_artifacts
from workbench.store.database import Store


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Let files be readable by everybody unless somebody sees to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def open_folder(usual_umask: None) -> Iterator[Path]:
    """A folder that everybody on this machine can go to, of this test alone.

    It is not in pytest's own folder: that is closed, and opening it for one test would be seen
    by those that run beside it.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def make_run(place: Path, artifacts: str | None = None) -> str:
    with Store.open(str(place / "store.sqlite"), artifacts) as store:
        experiment = Experiment(train="a:b", objectives=[{"metric": "loss", "goal": "minimize"}])
        run_id = store.create_run(experiment)
        store.artifacts_of(run_id).write("trials/00000/best.pt", b"weights")
        return run_id


def test_whatever_a_run_keeps_is_for_its_owner_only(open_folder: Path) -> None:
    run_id = make_run(open_folder / "mine")
    paths = [open_folder / "mine", *(open_folder / "mine").rglob("*")]
    assert open_folder / "mine" / "artifacts" / run_id / "trials" / "00000" / "best.pt" in paths
    assert readable_by_others(paths) == []


def test_in_a_folder_that_is_open_the_store_and_its_files_are_not(open_folder: Path) -> None:
    make_run(open_folder)
    readable = readable_by_others(open_folder.rglob("*"))
    assert [(path.name, path.stat().st_size) for path in readable] == [("store.sqlite.lock", 0)]


def test_the_doctor_makes_no_folder_that_it_then_warns_of(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(open_folder / "store.sqlite"))
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", str(open_folder / "kept" / "artifacts"))
    monkeypatch.setenv("WORKBENCH_HOME", str(open_folder / "home"))
    Store.open().close()
    run_command(["doctor", "--json"])
    texts = [finding["message"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert any(text.startswith(str(open_folder / "kept" / "artifacts")) for text in texts)
    assert not [text for text in texts if f"can read {open_folder}" in text]
    assert (open_folder / "kept" / "artifacts").stat().st_mode & 0o777 == 0o700


def test_a_place_that_somebody_made_for_a_team_keeps_its_rights(open_folder: Path) -> None:
    (open_folder / "team").mkdir(mode=0o755)
    run_id = make_run(open_folder / "mine", str(open_folder / "team"))
    assert open_folder / "team" / run_id / "trials/00000/best.pt" in readable_by_others(
        (open_folder / "team").rglob("*")
    )


def test_a_file_behind_a_closed_door_is_open_to_nobody(open_folder: Path) -> None:
    (open_folder / "home").mkdir(mode=0o700)
    secret = open_folder / "home" / "secret"
    secret.write_text("s3cret")
    assert readable_by_others([secret, open_folder / "nothing"]) == []
    (open_folder / "home").chmod(0o710)
    assert readable_by_others([secret]) == [secret]
    secret.chmod(0o600)
    assert readable_by_others([secret]) == []


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_loopback_is_known_in_every_form(host: str, is_local: bool) -> None:
    assert Listener("raylet", 1, host, 80).is_local is is_local


def test_what_a_process_listens_on_is_found_with_that_of_its_children() -> None:
    code = (
        "import socket, subprocess, sys; s = socket.create_server(('0.0.0.0', 0)); c ="
        " len(sys.argv) < 2 and subprocess.Popen([sys.executable, *sys.orig_argv[1:], 'child']);"
        " print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ports = {int(process.stdout.readline()) for _ in range(2)}
        listening = listeners(process.pid)
    finally:
        process.communicate()
    assert {listener.port for listener in listening} == ports
    assert not any(listener.is_local for listener in listening)
    assert listeners(process.pid) == []


def test_doctor_names_what_others_could_reach_and_how_to_close_it(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORKBENCH_RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    token, settings = open_folder / "token", open_folder / "settings.yaml"
    token.write_text("t0ken")
    settings.write_text("sinks: {}")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_ADDRESS", "cluster:6379")
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(settings))
    monkeypatch.setenv("WORKBENCH_STORE", str(open_folder / "mine" / "store.sqlite"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(open_folder / "cache"))
    monkeypatch.setenv("WORKBENCH_HOME", str(open_folder / "home"))
    monkeypatch.delenv("WORKBENCH_ARTIFACTS", raising=False)
    with socket.create_server(("0.0.0.0", 0)) as server:
        running = local_head.HeadStatus("127.0.0.1:1", os.getpid(), 0.0, 0.0, "", 2.0, 0.0, "")
        monkeypatch.setattr(local_head, "status", lambda: running)
        said = [(finding.state == "broken", finding.text) for finding in find_exposures()]
        port = server.getsockname()[1]
    assert any(is_bad and f"0.0.0.0:{port}" in text for is_bad, text in said)
    assert (True, f"others on this machine can read the token in {token}") in said
    assert (False, f"others on this machine can read {settings}") in said
    assert [text for _, text in said if "without a token" in text] == [
        "the cluster at cluster:6379 is used without a token: anyone who can reach it can run code"
        " there"
    ]
    assert not any("store.sqlite" in text or "artifacts" in text for _, text in said)
    token.chmod(0o600)
    settings.chmod(0o600)
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(local_head, "status", lambda: None)
    assert find_exposures() == []


@pytest.mark.ray
def test_the_head_listens_on_loopback_only_and_its_files_are_private(
    ray_head: Path, usual_umask: None
) -> None:
    known = local_head.status()
    assert known is not None
    listening = listeners(known.pid)
    assert {"gcs_server", "raylet"} <= {listener.process for listener in listening}
    assert [listener for listener in listening if not listener.is_local] == []
    assert stat.S_IMODE(Path(known.temp_dir).stat().st_mode) == 0o700
    assert stat.S_IMODE(local_head.token_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(local_head.token_path().parent.stat().st_mode) == 0o700


def test_artifacts_on_a_url_are_left_to_whoever_keeps_them(tmp_path: Path) -> None:
    open_artifacts(f"mock:///{tmp_path.name}").claim()
