"""The local Ray head as a process: start it, report on it, keep it alive and end it.

The head only listens on loopback, requires its own token (mode 0600), and outlives the process that
started it. `keeper` ends it after WORKBENCH_HEAD_IDLE_S seconds (900) without use. With another
WORKBENCH_HOME, there is another head with its own files. `attachment` attaches to it. Nothing here
imports ray.

A process of Ray takes seconds to start, mostly for imports. So Ray starts a few processes ahead of
time, `ray_startup` imports the packages while they are idle, and the next actor of any run gets
one. If a version of Ray does not allow that, runs start more slowly.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from workbench.cluster.head.head_files import HeadFiles
from workbench.cluster.head.installation import ray_import_path
from workbench.cluster.head.keeper import GRACE_S, START_TIMEOUT_S
from workbench.cluster.ray_internals import start_processes
from workbench.foundation.errors import ExperimentError, RunError
from workbench.hardware.resources import loaded_ray, num_usable_cpus
from workbench.store.history.failure_text import headline
from workbench.training.programs.last_error import last_error

DEFAULT_IDLE_S = 900.0
OBJECT_STORE_BYTES = 256 * 2**20
_SOCKETS = ("raylet", "plasma_store")
"""What a process that attaches connects to."""
_DRIVER_TITLE = "ray::DriverActor"
"""How Ray titles the process of a driver."""
_DETACHED_TITLES = ("ray::JobSupervisor", "ray::ServeController", "ray::ServeReplica")
"""How it titles others that work for nobody who is attached: submitted jobs and deployments."""
_WAIT = "Wait for that process to end, or, to end it together with the head"
logger = logging.getLogger(__name__)
SPARE_PROCESSES = "WORKBENCH_SPARE_PROCESSES"
DEFAULT_SPARE = 2
"""One for the driver of the next run, one for its first trial."""
FEWEST_CPUS = 3
"""With fewer, only the driver gets one: each takes seconds of a processor that runs need."""
_IDLE_TITLE = "ray::IDLE"


@dataclass(frozen=True)
class HeadStatus:
    """What the files of the local head say about it."""

    address: str
    pid: int
    """The keeper: ending it ends the head."""
    started_unix_s: float
    idle_s: float
    """Seconds since it was last used."""
    temp_dir: str
    num_cpus: float
    num_gpus: float
    log: str


@dataclass(frozen=True)
class Tenant:
    """A run or a process that uses a head and would end with it."""

    sentence: str
    """Such as "a run lives in it"."""
    ways_out: str
    """What can be done, the last part of which is to end the head."""


def token_path() -> Path:
    """Return the file with the token of the local head, or where it would be."""
    return head_files().token


def status() -> HeadStatus | None:
    """Return what is known about the local head, or None where none is alive."""
    return status_of(head_files())


def keep_alive() -> None:
    """Record that the local head is in use. Processes with work do this every few seconds."""
    with contextlib.suppress(OSError, ExperimentError):  # there is no head, or no folder for one
        os.utime(head_files().last_used)


def shutdown() -> bool:
    """End the local head and all its processes. A process that is attached to it is detached first.

    Returns:
        Whether there was one.
    """
    files = head_files()
    with files.lock():
        head = status_of(files)
        if head is not None:
            if _is_attached_to(head):
                loaded_ray().shutdown()  # Ray ends a process that outlives its head
            end_keeper(head.pid)
        starting = files.read_starting() if head is None else None
        is_starting = starting is not None and _is_alive(*starting)  # its caller was killed
        if starting is not None and is_starting:
            end_keeper(starting[0])
        clean_up(files)
        files.starting.unlink(missing_ok=True)
    return head is not None or is_starting


def is_attached() -> bool:
    """Return whether this process is attached to the local head, or is one of its processes."""
    head = status()
    return head is not None and _is_attached_to(head)


def _is_attached_to(head: HeadStatus) -> bool:
    ray = loaded_ray()
    return (
        ray is not None
        and ray.is_initialized()
        and ray.get_runtime_context().gcs_address == head.address
    )


def end_keeper(pid: int) -> None:
    """End the keeper of a head, and with it the head."""
    keeper = psutil.Process(pid)
    keeper.terminate()
    with contextlib.suppress(psutil.TimeoutExpired):
        keeper.wait(3 * GRACE_S)


def head_files() -> HeadFiles:
    """Return the files of the head that WORKBENCH_HOME, or else the user, has."""
    home = os.environ.get("WORKBENCH_HOME")
    folder = (
        Path(home).expanduser()
        if home
        else platformdirs.user_state_path("workbench", appauthor=False)
    )
    return HeadFiles(folder.absolute() / "head")


def status_of(files: HeadFiles) -> HeadStatus | None:
    """Return what the files of a head say about it, or None if it is not alive."""
    record = files.read_record()
    if record is None or not _is_keeper_alive(record):
        return None
    try:
        used_unix_s = files.last_used.stat().st_mtime
    except FileNotFoundError:
        used_unix_s = record["started_unix_s"]
    return HeadStatus(
        address=record["address"],
        pid=record["pid"],
        started_unix_s=record["started_unix_s"],
        idle_s=max(0.0, time.time() - used_unix_s),
        temp_dir=record["temp_dir"],
        num_cpus=record.get("num_cpus", 0.0),
        num_gpus=record.get("num_gpus", 0.0),
        log=str(files.log),
    )


def _is_keeper_alive(record: dict[str, Any]) -> bool:
    """Return whether the keeper in a record is alive."""
    return _is_alive(record["pid"], record["created_unix_s"])


def is_intact(record: dict[str, Any] | None) -> bool:
    """Return whether the keeper and all essential processes of a head are alive."""
    if record is None or not _is_keeper_alive(record):
        return False
    return all(_is_alive(*item) for item in record["essential"])


def _is_alive(pid: int, created_unix_s: float) -> bool:
    """Return whether a process is alive. Its id may belong to another process by now."""
    try:
        process = psutil.Process(pid)
        return process.create_time() == created_unix_s and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_cleaned(temp_dir: str) -> bool:
    """Return whether files that are needed to attach to a head were deleted.

    Programs that clean the temporary directory delete sockets of running processes. Ray ends a
    process that tries to attach without them.

    Args:
        temp_dir: The folder, as the record of the head has it.
    """
    sockets = Path(temp_dir) / "ray" / "session_latest" / "sockets"
    try:
        names = [entry.name for entry in sockets.iterdir()]
    except OSError:
        return True
    return not all(any(name.startswith(needed) for name in names) for needed in _SOCKETS)


def find_tenant(head: HeadStatus) -> Tenant | None:
    """Return a run or an attached process that would end with a head, or None if it is unused.

    Args:
        head: The head.
    """
    try:
        below = psutil.Process(head.pid).children(recursive=True)
    except psutil.Error:
        return None
    titles = [_title(process) for process in below]
    if any(title.startswith(_DRIVER_TITLE) for title in titles):
        return Tenant(
            "a run lives in it", "Wait for the run to end, or, to resume it on a new head"
        )
    for process, title in zip(below, titles, strict=True):
        if title.startswith(_DETACHED_TITLES):
            return Tenant(f"its process {process.pid} ({title}) is working", _WAIT)
    for process in _attached_to(head, {head.pid, os.getpid(), *(process.pid for process in below)}):
        return Tenant(f"process {process.pid} ({process.name()}) is attached to it", _WAIT)
    return None


def _attached_to(head: HeadStatus, but: Collection[int]) -> Iterator[psutil.Process]:
    """Yield the processes of this user, but some, that are connected to a head."""
    for process in psutil.process_iter():
        if process.pid in but:
            continue
        with contextlib.suppress(psutil.Error):
            peers = [
                connection.raddr
                for connection in process.net_connections("tcp")
                if connection.raddr
            ]
            if any(
                f"{peer.ip.removeprefix('::ffff:')}:{peer.port}" == head.address for peer in peers
            ):
                yield process


def _title(process: psutil.Process) -> str:
    """Return the first word of a command line, in which Ray writes what a process does."""
    with contextlib.suppress(psutil.Error):
        return next(iter(process.cmdline()), "")
    return ""


def record_of_head_of(pid: int) -> dict[str, Any] | None:
    """Return the record of the local head on which a process of this machine runs, if it does."""
    record = head_files().read_record()
    with contextlib.suppress(psutil.Error):
        if record is not None and any(
            parent.pid == record["pid"] for parent in psutil.Process(pid).parents()
        ):
            return record
    return None


def await_end_of_broken(files: HeadFiles) -> None:
    """Wait for the end of a head that lost an essential process. Its keeper will notice soon."""
    record = files.read_record()
    if record is None or not _is_keeper_alive(record) or is_intact(record):
        return
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(record["pid"]).wait(3 * GRACE_S)


def keeper_arguments(
    num_cpus: int | None, num_gpus: int | None, include_dashboard: bool
) -> list[str]:
    """Return the arguments of `ray start` for a new head.

    Ray counts the processors of the machine, even if this process may only use some of them.
    """
    if num_cpus is None and (usable := num_usable_cpus()) < (os.cpu_count() or 1):
        num_cpus = usable
    options = [("--num-cpus", num_cpus), ("--num-gpus", num_gpus)]
    return [
        *(f"{name}={value}" for name, value in options if value is not None),
        f"--include-dashboard={str(include_dashboard).lower()}",
        # the usual one may be another head's: Ray would retry for 3 s
        "--dashboard-agent-listen-port=0",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--include-log-monitor=false",
        "--no-monitor",
        "--disable-usage-stats",
    ]


def start_keeper(files: HeadFiles, arguments: list[str]) -> None:
    """Start the keeper and wait until it has recorded the address of the head.

    If a keeper is already starting because its caller was killed, wait for it instead. A second
    keeper would replace its token.
    """
    if (starting := files.read_starting()) is not None and _await_record(files, *starting):
        files.starting.unlink(missing_ok=True)
        return
    pid, created_unix_s = _launch_keeper(files, arguments)
    files.write_starting(pid, created_unix_s)
    has_started = _await_record(files, pid, created_unix_s)
    files.starting.unlink(missing_ok=True)
    if not has_started:
        error = headline(last_error(files.log.read_text(errors="replace"))) or "it wrote nothing"
        raise RunError(
            f"the local Ray head did not start: {error}", next_step=f"Read its log: {files.log}"
        )


def _environment() -> dict[str, str]:
    """Return the environment of a new head.

    Ray runs drivers and workers at niceness 15. On a busy machine, a driver would then get so
    little of a processor that its run does not start for minutes.
    """
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment.setdefault("RAY_worker_niceness", "0")
    return {**environment, "PYTHONPATH": ray_import_path()}


def _launch_keeper(files: HeadFiles, arguments: list[str]) -> tuple[int, float]:
    """Start the keeper, and return its process and when that was created."""
    _write_token(files.token)
    idle_s = os.environ.get("WORKBENCH_HEAD_IDLE_S", str(DEFAULT_IDLE_S))
    with files.log.open("w") as log:
        keeper = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "workbench.cluster.head.keeper",
                str(files.folder),
                idle_s,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=files.folder,
            env=_environment(),
            start_new_session=True,
        )
    created_unix_s = psutil.Process(keeper.pid).create_time()
    threading.Thread(target=keeper.wait, name="head-reaper", daemon=True).start()
    return keeper.pid, created_unix_s


def _await_record(files: HeadFiles, pid: int, created_unix_s: float) -> bool:
    """Wait until a keeper has recorded its head, and return False if it ends or takes too long."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while files.read_record() is None:
        if not _is_alive(pid, created_unix_s):
            return files.read_record() is not None
        if time.monotonic() > deadline_s:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).terminate()
            return False
        time.sleep(0.02)
    return True


def _write_token(path: Path) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def clean_up(files: HeadFiles) -> None:
    """End the processes and remove the files of a head whose keeper was killed."""
    record = files.read_record()
    if record is None:
        return
    temp_dir = record["temp_dir"]
    leftover = []
    for process in psutil.process_iter(["cmdline", "username"]):
        if any(temp_dir in argument for argument in process.info["cmdline"] or ()):
            leftover.append(process)
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()
    psutil.wait_procs(leftover, timeout=GRACE_S)
    shutil.rmtree(temp_dir, ignore_errors=True)
    files.record.unlink(missing_ok=True)


def replenish_processes(number: int | None = None) -> None:
    """Let the local head start processes until enough are idle. Other clusters are not changed.

    Args:
        number: The number of idle processes, or None for the WORKBENCH_SPARE_PROCESSES with which
            the head was started, or 2, or 1 with fewer than three CPUs.
    """
    try:
        if not is_attached():
            return
        missing = (_number_of_user() if number is None else number) - len(idle_processes())
        if missing > 0:
            start_processes(missing)
    except Exception as error:  # the head has just ended, gRPC fails, or Ray renamed something
        logger.warning("Ray starts no processes ahead: %s", error)


def idle_processes() -> list[psutil.Process]:
    """Return the processes of the local head that have no work."""
    head = status()
    if head is None:
        return []
    processes = psutil.Process(head.pid).children(recursive=True)
    return [process for process in processes if _title(process).startswith(_IDLE_TITLE)]


def _number_of_user() -> int:
    written = os.environ.get(SPARE_PROCESSES, "")
    if written.isdecimal():
        return int(written)
    usual = DEFAULT_SPARE if num_usable_cpus() >= FEWEST_CPUS else 1
    if written:
        logger.warning("%s is not a number: %r. Using %d", SPARE_PROCESSES, written, usual)
    return usual
