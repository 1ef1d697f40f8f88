from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.services.waiting import wait_until
from workbench.cluster.head import attachment, local_head
from workbench.foundation.errors import RunError

pytestmark = pytest.mark.ray

STAY_CONNECTED = """
import socket, sys, time
host, port = sys.argv[1].split(":")
kept = socket.create_connection((host, int(port)))
print("connected", flush=True)
time.sleep(600)
"""
CONNECT = """
from workbench.cluster.head import attachment, local_head
attachment.connect(num_cpus=1)
import ray
print(ray.cluster_resources()["CPU"], local_head.status().pid)
"""
RUN_TASK = """
import os
import ray
from workbench.cluster.head import attachment
attachment.connect()
# Processes that idle have started without the variable.
task = ray.remote(runtime_env={"env_vars": {"NEW": "1"}})(lambda: os.getpid())
print(ray.get(task.remote()))
"""


def run_python(code: str, home: Path, **variables: str) -> str:
    environment = {**os.environ, "WORKBENCH_HOME": str(home), **variables}
    environment.pop("RAY_ADDRESS", None)
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "", "Ray is not to be heard"
    return finished.stdout


def processes_of(temp_dir: str, keeper_pid: int) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mentions = any(temp_dir in argument for argument in process.cmdline())
            if process.pid == keeper_pid or mentions:
                processes.append(process)
    return processes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    yield tmp_path
    local_head.shutdown()


def test_a_second_process_attaches_to_the_same_head(ray_head):
    known = local_head.status()
    assert known is not None
    cpus, pid = run_python(CONNECT, ray_head).split()
    assert (float(cpus), int(pid)) == (2.0, known.pid)


def test_the_token_belongs_to_us_and_only_its_owner_reads_it(ray_head):
    token = ray_head / "head" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert Path(os.environ["RAY_AUTH_TOKEN_PATH"]) == token


def test_the_address_of_another_cluster_is_refused_by_an_attached_process(ray_head):
    import ray

    attached_to = ray.get_runtime_context().gcs_address
    attachment.connect(attached_to)
    host, _, port = attached_to.rpartition(":")
    with pytest.raises(
        RunError, match=f"attached to the Ray cluster at .*:{port} and cannot switch to {host}:1"
    ):
        attachment.connect(f"{host}:1")


@pytest.mark.slow
def test_a_process_with_another_token_is_refused(ray_head, tmp_path):
    known = local_head.status()
    assert known is not None
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    code = f"""
from workbench.cluster.head import attachment
from workbench.foundation.errors import RunError
try:
    attachment.connect({known.address!r})
except RunError as error:
    print("refused")
"""
    environment = {**os.environ, "RAY_AUTH_TOKEN_PATH": str(wrong), "RAY_AUTH_MODE": "token"}
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.stdout == "refused\n", finished.stderr


def addresses_listened_on(process: psutil.Process) -> list[str]:
    """Addresses of a process of Ray itself; what trainings have open in the workers is theirs."""
    try:
        if " ".join(process.cmdline()).startswith("ray::"):
            return []
        return [
            connection.laddr.ip
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
    except psutil.NoSuchProcess:  # a worker of an earlier test that ends just now
        return []


def test_all_ports_of_ray_are_on_loopback(ray_head):
    known = local_head.status()
    assert known is not None
    keeper = psutil.Process(known.pid)
    listening = [
        address
        for process in keeper.children(recursive=True)
        for address in addresses_listened_on(process)
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


@pytest.mark.slow
def test_a_head_survives_its_starter_and_shutdown_leaves_nothing(ray_head, home):
    import ray

    attached_to = ray.get_runtime_context().gcs_address
    run_python(CONNECT, home)
    known = local_head.status()
    assert known is not None
    processes = psutil.Process(known.pid).children(recursive=True)
    assert len(processes) >= 3
    assert local_head.shutdown() is True
    assert local_head.status() is None
    assert not [process for process in processes if process.is_running()]
    assert not processes_of(known.temp_dir, known.pid)
    assert not Path(known.temp_dir).exists()
    assert local_head.shutdown() is False
    assert ray.get_runtime_context().gcs_address == attached_to, (
        "it was no other cluster's business"
    )


def raylet_of(keeper_pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
        children = psutil.Process(keeper_pid).children(recursive=True)
        return next((child for child in children if child.name() == "raylet"), None)


def test_ray_is_told_to_wait_for_processes_that_start_slowly(ray_head):
    known = local_head.status()
    assert known is not None
    raylet = raylet_of(known.pid)
    assert raylet is not None
    assert int(raylet.environ()["RAY_worker_register_timeout_seconds"]) == attachment.REGISTER_S


@pytest.mark.slow
def test_a_node_and_a_process_that_take_long_to_start_are_waited_for(home):
    """Ray gives up after 15 s and after a minute."""
    starting = home / "head" / "starting.json"
    environment = {**os.environ, "WORKBENCH_HOME": str(home)}
    with subprocess.Popen([sys.executable, "-c", CONNECT], env=environment) as caller:
        wait_until(starting.exists)
        keeper = json.loads(starting.read_text())["pid"]
        node = wait_until(lambda: raylet_of(keeper))
        agents = wait_until(lambda: node.children() if len(node.children()) == 2 else None)
        for agent in agents:
            agent.suspend()
        node.wait(120)
    assert caller.returncode == 0
    raylet = raylet_of(keeper)
    assert raylet is not None
    before = {child.pid for child in raylet.children(recursive=True)}
    task = subprocess.Popen(
        [sys.executable, "-c", RUN_TASK],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )

    def started() -> list[psutil.Process]:
        children = raylet.children(recursive=True)
        return [child for child in children if child.pid not in before]

    slow = wait_until(started)
    for process in slow:
        process.suspend()
    time.sleep(65)
    for process in slow:
        process.resume()
    said, _ = task.communicate(timeout=120)
    assert int(said) in {process.pid for process in slow}


@pytest.mark.slow
def test_an_unused_head_ends_by_itself_and_a_used_one_does_not(home):
    run_python(CONNECT, home, WORKBENCH_HEAD_IDLE_S="6")
    known = local_head.status()
    assert known is not None
    for _ in range(14):
        local_head.keep_alive()
        time.sleep(0.5)
    assert local_head.status() is not None
    wait_until(lambda: not psutil.pid_exists(known.pid))
    assert local_head.status() is None
    assert not processes_of(known.temp_dir, known.pid)
    assert not Path(known.temp_dir).exists()


@pytest.mark.slow
def test_a_head_whose_workers_are_leased_is_in_use(home):
    hold = """
import time
import ray
from workbench.cluster.head import attachment, local_head
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.pool import connect_pool
attachment.connect(num_cpus=1)
ray.get(connect_pool().lease.remote(Request("run", 0, num_workers=1)))
time.sleep(10)
print(local_head.status() is not None)
"""
    assert run_python(hold, home, WORKBENCH_HEAD_IDLE_S="4").strip() == "True"


@pytest.mark.slow
def test_a_killed_keeper_takes_ray_along_and_the_next_start_clears_away(home):
    run_python(CONNECT, home)
    known = local_head.status()
    assert known is not None
    processes = psutil.Process(known.pid).children(recursive=True)
    os.kill(known.pid, signal.SIGKILL)
    wait_until(lambda: not [process for process in processes if process.is_running()])
    assert local_head.status() is None
    run_python(CONNECT, home)
    renewed = local_head.status()
    assert renewed is not None
    assert renewed.pid != known.pid
    assert not Path(known.temp_dir).exists()


def start_and_kill(home: Path) -> psutil.Process:
    """Kill a process while the head starts that it wants; return the keeper."""
    starting = home / "head" / "starting.json"
    caller = subprocess.Popen(
        [sys.executable, "-c", CONNECT],
        env={**os.environ, "WORKBENCH_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(starting.exists)
    caller.kill()
    caller.wait()
    assert local_head.status() is None
    return psutil.Process(json.loads(starting.read_text())["pid"])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """The home of a head that three processes wanted at once, one of them was killed, and what they
    print.
    """
    home = tmp_path_factory.mktemp("started")
    environment = {**os.environ, "WORKBENCH_HOME": str(home)}
    callers = [
        subprocess.Popen(
            [sys.executable, "-c", CONNECT], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    starting = home / "head" / "starting.json"
    wait_until(starting.exists)
    keeper = psutil.Process(json.loads(starting.read_text())["pid"])
    next(caller for caller in callers if caller.pid == keeper.ppid()).kill()
    yield home, [str(keeper.pid), *(caller.communicate(timeout=120)[0] for caller in callers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_HOME", str(home))
        local_head.shutdown()


@pytest.mark.slow
def test_processes_that_want_a_head_at_once_share_one_also_if_the_one_that_starts_it_is_killed(
    started, monkeypatch
):
    home, (keeper_pid, *printed) = started
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    assert [answer.split() for answer in printed if answer] == [["1.0", keeper_pid]] * 2
    known = local_head.status()
    assert known is not None
    assert str(known.pid) == keeper_pid
    assert not (home / "head" / "starting.json").exists()


def test_shutdown_ends_a_head_that_is_still_starting(home):
    keeper = start_and_kill(home)
    local_head.shutdown()
    wait_until(lambda: not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE)
    assert local_head.status() is None
    assert not (home / "head" / "starting.json").exists()


ATTACH_AND_LOSE = """
import os, signal, time
from workbench.foundation.errors import RunError
from workbench.cluster.head import attachment, local_head
try:
    with attachment.attached(if_lost="Try again."):
        written = local_head.head_files().read_record()
        record = local_head.record_of_head_of(written["essential"][0][0])
        os.kill(record["essential"][0][0], signal.SIGKILL)
        while True:
            time.sleep(0.05)
except RunError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_head_that_ends_while_it_is_needed_is_an_error_in_words(started):
    finished = subprocess.run(
        [sys.executable, "-c", ATTACH_AND_LOSE],
        capture_output=True,
        text=True,
        env={**os.environ, "WORKBENCH_HOME": str(started[0])},
        timeout=120,
        check=False,
    )
    # The block ends with the error, unless leaving it takes so long that Ray would end the process.
    printed = finished.stdout + finished.stderr
    assert printed.removeprefix("error: ") == "the local Ray head ended unexpectedly. Try again.\n"


def test_knowing_the_head_needs_no_ray(ray_head):
    code = (
        "import sys\nfrom workbench.cluster.head import local_head\n"
        "print(local_head.status().num_cpus, 'ray' in sys.modules)"
    )
    assert run_python(code, ray_head).split() == ["2.0", "False"]


@pytest.mark.slow
def test_a_head_whose_folder_was_cleaned_is_replaced_unless_something_lives_in_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pid = run_python(CONNECT, home).split()
    status = local_head.status()
    assert status is not None
    assert not local_head.is_cleaned(status.temp_dir)
    shutil.rmtree(Path(status.temp_dir) / "ray")
    assert local_head.is_cleaned(status.temp_dir)

    with monkeypatch.context() as patched:
        patched.setattr(
            local_head, "_DRIVER_TITLE", sys.executable
        )  # as if one of its processes drove a run
        with pytest.raises(RunError, match=r"was cleaned: .*, and a run lives in it"):
            attachment._attach_or_start(local_head.head_files(), [])
    assert psutil.pid_exists(int(pid))

    # Advice has no driver in the head: the process that asked for it is attached from outside.
    with subprocess.Popen(
        [sys.executable, "-c", STAY_CONNECTED, status.address], stdout=subprocess.PIPE, text=True
    ) as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == "connected\n"
        try:
            with pytest.raises(
                RunError, match=rf"and process {attached.pid} \(.*\) is attached to it"
            ):
                attachment._attach_or_start(local_head.head_files(), [])
        finally:
            attached.kill()
    assert psutil.pid_exists(int(pid))
    assert local_head.find_tenant(status) is None

    finished = subprocess.run(
        [sys.executable, "-c", CONNECT], capture_output=True, text=True, timeout=240, check=True
    )
    assert finished.stdout.split()[1] != pid
    assert (
        finished.stderr
        == f"the folder of the local Ray head, {status.temp_dir}, was cleaned: no process can"
        " attach to it. A new head replaces it.\n"
    )
