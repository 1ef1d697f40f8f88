"""Start the local Ray head, attach to it, report on it and end it.

The head listens on loopback only, requires a token of its own (mode 0600), and outlives the process that
started it; `keeper` ends it after WORKBENCH_HEAD_IDLE_S seconds (900) without use. WORKBENCH_HOME names
another folder for its files and so another head. With an address (or WORKBENCH_RAY_ADDRESS, or RAY_ADDRESS)
`connect` attaches to that cluster instead. Only `connect` imports ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from workbench.actions import suggest
from workbench.errors import ExperimentError, RunError
from workbench.head import ray_environment
from workbench.head.installation import can_attach, import_path, runtime_environment
from workbench.head.keeper import GRACE_S, START_TIMEOUT_S, HeadFiles
from workbench.resources import loaded_ray

_LOGGER = logging.getLogger(__name__)
NAMESPACE = "workbench"
DEFAULT_IDLE_S = 900.0
ANSWER_TIMEOUT_S = 3.0
OBJECT_STORE_BYTES = 256 * 2**20
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
RECONNECT_S = 10
"""How long processes of a local head that ended try to reconnect, which is in vain; Ray's default is 60."""
_ATTACHED_LOCK = threading.Lock()
_num_attached = 0
_attached_here = False
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray binds to loopback, on Linux too


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


def connect(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    include_dashboard: bool = False,
) -> None:
    """Attach this process to a Ray cluster; without an address to the local head, started if necessary.

    A process that is attached already stays so, which lets workers and drivers call this, too; only the
    address of another cluster is refused.

    Args:
        address: "host:port" of a cluster; None for WORKBENCH_RAY_ADDRESS, RAY_ADDRESS or the local head.
        num_cpus: CPUs that a newly started head offers; None for all that Ray detects.
        num_gpus: GPUs that a newly started head offers; None for all that Ray detects.
        include_dashboard: Whether a newly started head also serves Ray's dashboard and job submission on
            loopback, which takes two seconds longer.

    Raises:
        RunError: If the cluster cannot be reached, the local head cannot be started, or this process is
            attached to another cluster than `address`.
    """
    os.environ.update(QUIET)
    given = ray_environment.cluster_address(address)
    loaded = loaded_ray()
    if loaded is not None and loaded.is_initialized():
        if address is not None:
            _check_same_cluster(address, loaded.get_runtime_context().gcs_address)
        return
    if given:
        _check_reachable(given)
        _attach(given)
        return
    files = _files()
    _prepare_environment(files)
    arguments = _arguments(num_cpus, num_gpus, include_dashboard)
    if _attach_or_start(files, arguments):
        return
    _attach_or_start(files, arguments)  # the head that was running has just ended


@contextlib.contextmanager
def attached(address: str | None = None) -> Iterator[None]:
    """Attach this process within a `with` block; one that was attached before stays so.

    Ray ends a process that outlives its head, and a head ends when it idles: a process that only starts a
    run, such as a notebook's kernel, must not stay attached longer than that takes.

    Args:
        address: As in `connect`.

    Raises:
        RunError: As `connect` does.
    """
    global _num_attached, _attached_here
    with _ATTACHED_LOCK:
        if _num_attached == 0:
            _attached_here = not _is_attached()
        connect(address)
        _num_attached += 1
    try:
        yield
    finally:
        with _ATTACHED_LOCK:
            _num_attached -= 1
            if _num_attached == 0 and _attached_here and _is_attached():
                loaded_ray().shutdown()


def _is_attached() -> bool:
    loaded = loaded_ray()
    return loaded is not None and bool(loaded.is_initialized())


def _attach_or_start(files: HeadFiles, arguments: list[str]) -> bool:
    """Attach to the local head, started if there is none; return False if it ended meanwhile."""
    with files.lock():
        _await_end_of_broken(files)
        found, record = _status(files), files.read_record() or {}
        if found is not None and not can_attach(record, found.idle_s):
            _end_keeper(found)
            found = None
        if found is None:
            _clean_up(files)
            _start_keeper(files, arguments)
            _attach_first(files)
            return True
        files.last_used.touch()
    try:
        _attach(found.address, runtime_environment(record))
    except RunError:
        if _is_intact(files.read_record()):
            raise
        return False
    return True


def _await_end_of_broken(files: HeadFiles) -> None:
    """Wait for the end of a head that lost an essential process: its keeper is about to notice."""
    record = files.read_record()
    if record is None or not _is_keeper_alive(record) or _is_intact(record):
        return
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(record["pid"]).wait(3 * GRACE_S)


def _check_same_cluster(address: str, attached_to: str) -> None:
    """Refuse the address of another cluster; only ports are compared, as a host may have several names."""
    port = address.rpartition(":")[2]
    if port.isdigit() and port != attached_to.rpartition(":")[2]:
        raise RunError(
            f"this process is attached to the Ray cluster at {attached_to} and cannot switch to {address}",
            field="address",
            next_step="Use another process: restart the kernel, and pass the address to its first run.",
        )


def _check_reachable(address: str) -> None:
    """Try a plain connection first: Ray retries for minutes where nothing listens."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S).close()
    except OSError as error:
        raise RunError(
            f"nothing answers at {address}: {error}",
            field="address",
            next_step="Check the address; without one, the local Ray head is used.",
        ) from error


def token_path() -> Path:
    """Return the file with the token of the local head, or where it would be."""
    return _files().token


def status() -> HeadStatus | None:
    """Return what is known about the local head, or None where none is alive."""
    return _status(_files())


def keep_alive() -> None:
    """Record that the local head is in use; processes with work to do call this every few seconds."""
    with contextlib.suppress(OSError, ExperimentError):  # there is no head, or no folder for one
        os.utime(_files().last_used)


def shutdown() -> bool:
    """End the local head and all its processes; this process is detached from it first.

    Returns:
        Whether there was one.
    """
    files = _files()
    with files.lock():
        found = _status(files)
        if found is not None:
            ray = loaded_ray()
            if ray is not None and ray.is_initialized():
                ray.shutdown()  # Ray ends a process that outlives its head
            _end_keeper(found)
        _clean_up(files)
    return found is not None


def _end_keeper(found: HeadStatus) -> None:
    keeper = psutil.Process(found.pid)
    keeper.terminate()
    with contextlib.suppress(psutil.TimeoutExpired):
        keeper.wait(3 * GRACE_S)


def _files() -> HeadFiles:
    home = os.environ.get("WORKBENCH_HOME")
    place = Path(home).expanduser() if home else platformdirs.user_state_path("workbench", appauthor=False)
    return HeadFiles(place.absolute() / "head")


def _status(files: HeadFiles) -> HeadStatus | None:
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


def _is_intact(record: dict[str, Any] | None) -> bool:
    """Return whether the keeper and all essential processes of a head are alive."""
    if record is None or not _is_keeper_alive(record):
        return False
    return all(_is_alive(*item) for item in record["essential"])


def _is_alive(pid: int, created_unix_s: float) -> bool:
    """Return whether a process is alive; its id may belong to another process by now."""
    try:
        process = psutil.Process(pid)
        return process.create_time() == created_unix_s and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _arguments(num_cpus: int | None, num_gpus: int | None, include_dashboard: bool) -> list[str]:
    given = [("--num-cpus", num_cpus), ("--num-gpus", num_gpus)]
    return [
        *(f"{name}={value}" for name, value in given if value is not None),
        f"--include-dashboard={str(include_dashboard).lower()}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--include-log-monitor=false",
        "--no-monitor",
        "--disable-usage-stats",
    ]


def _start_keeper(files: HeadFiles, arguments: list[str]) -> None:
    """Start the keeper and wait until it has recorded where the head is."""
    _write_token(files.token)
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    idle_s = os.environ.get("WORKBENCH_HEAD_IDLE_S", str(DEFAULT_IDLE_S))
    with files.log.open("w") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "workbench.head.keeper", str(files.folder), idle_s, *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=files.folder, env={**environment, "PYTHONPATH": import_path()}, start_new_session=True,
        )  # fmt: skip
    threading.Thread(target=keeper.wait, name="head-reaper", daemon=True).start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while files.read_record() is None:
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.terminate()
            lines = files.log.read_text().strip().splitlines() or ["it wrote nothing"]
            raise RunError(
                f"the local Ray head did not start: {lines[-1]}", next_step=f"Read its log: {files.log}"
            )
        time.sleep(0.02)


def _attach_first(files: HeadFiles) -> None:
    """Attach to the head that was just started and record its resources."""
    record = files.read_record() or {}
    _attach(record["address"])
    import ray

    offered = ray.cluster_resources()
    record.update(num_cpus=offered.get("CPU", 0.0), num_gpus=offered.get("GPU", 0.0))
    files.write_record(record)


def _write_token(path: Path) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def _prepare_environment(files: HeadFiles) -> None:
    """Make Ray, loaded or not, use the head's token and loopback in this process and its children."""
    ray_environment.use_head_token(files.token)
    os.environ[_LOOPBACK] = "0"
    os.environ.setdefault(_RECONNECT, str(RECONNECT_S))


def _attach(address: str, runtime_environment: dict[str, Any] | None = None) -> None:
    import ray
    from ray import _raylet
    from ray._private import ray_constants, worker
    from ray.exceptions import RayError

    # Ray read its environment when it was imported, maybe before it was prepared.
    ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(_LOOPBACK) != "0"
    raylet: Any = _raylet  # a compiled module without types
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    ray_environment.drop_job_folder()
    # Ray prints its raylet's messages about dead workers even with log_to_driver=False.
    worker.print_to_stdstream = _log_message
    try:
        ray.init(
            address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR,
            configure_logging=True, runtime_env=runtime_environment,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        raise RunError(
            f"cannot attach to Ray at {address}: {str(error).splitlines()[0]}",
            next_step=suggest("doctor", lead="To check the local head"),
        ) from error


def _log_message(message: dict[str, Any], ignore_prefix: bool) -> None:
    _LOGGER.debug("%s: %s", message["pid"], "\n".join(message["lines"]))


def _clean_up(files: HeadFiles) -> None:
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
