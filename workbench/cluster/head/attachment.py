"""Attach a process to a Ray cluster: the local head, started if there is none, or another one.

With an address (or WORKBENCH_RAY_ADDRESS, or RAY_ADDRESS), `connect` attaches to that cluster.
`local_head` starts and ends the local head. Only `connect` imports ray.

If the local head ends while a process needs it, Ray tries to reach it for ten seconds and then ends
the process with its own message. To raise our error within seconds, a thread watches the processes
of the head and interrupts the main thread. If the main thread is inside Ray and does not return,
the thread prints the error and ends the process before Ray does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import shlex
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from workbench.cluster import ray_internals
from workbench.cluster.head import local_head, ray_environment
from workbench.cluster.head.head_files import HeadFiles
from workbench.cluster.head.installation import can_attach, runtime_environment
from workbench.cluster.head.local_head import is_intact
from workbench.cluster.head.ray_startup.sitecustomize import defer_grammar, import_ray
from workbench.experiment.actions import suggest
from workbench.foundation.errors import (
    RunError,
    Suggestion,
    WorkbenchError,
    first_line_of,
    missing_part,
)
from workbench.foundation.outside_text import escaped
from workbench.hardware.resources import loaded_ray

defer_grammar()  # whatever imports ray after this module is faster

NAMESPACE = "workbench"
ANSWER_TIMEOUT_S = 3.0
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
"""How long processes of a head that has ended try to reconnect. They never succeed.

Ray's default is 60.
"""
_REGISTER = "RAY_worker_register_timeout_seconds"
REGISTER_S = 1800
"""How long a process of a head may take to start before Ray kills it and starts another.

Ray's default is 60. On a busy machine, each of them would then be killed before it is ready.
"""
_ATTACHED_LOCK = threading.Lock()
_num_attached = 0
_attached_here = False
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray binds to loopback, on Linux too
_CHECK_S = 0.1
_PATIENCE_S = 4.0
"""How long the main thread may take to react: Ray writes its first message after 5 s."""
_FAILED = 1
"""The exit status of a command that fails."""
_AGAIN = "Run the command again: it starts a new head."


def connect(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    include_dashboard: bool = False,
) -> None:
    """Attach this process to a Ray cluster, or to the local head if there is no address.

    The local head is started if necessary. Nothing happens if the process is already attached, so
    workers and drivers can also call this. Only the address of another cluster is an error.

    Args:
        address: "host:port" of a cluster, or None for WORKBENCH_RAY_ADDRESS, RAY_ADDRESS or the
            local head.
        num_cpus: CPUs that a newly started head offers, or None for all that Ray detects.
        num_gpus: GPUs that a newly started head offers, or None for all that Ray detects.
        include_dashboard: Whether a newly started head also serves Ray's dashboard and job
            submission on loopback, which takes two seconds longer.

    Raises:
        RunError: If the cluster cannot be reached, the local head cannot be started, or this
            process is attached to another cluster than `address`.
        MissingDependencyError: If Ray is not installed.
    """
    os.environ.update(QUIET)
    _check_installed()
    cluster = ray_environment.cluster_address(address)
    loaded = loaded_ray()
    if loaded is not None and loaded.is_initialized():
        if address is not None:
            _check_same_cluster(address, loaded.get_runtime_context().gcs_address)
        return
    if cluster:
        _check_reachable(cluster)
        _attach(cluster)
        return
    files = local_head.head_files()
    _prepare_environment(files)
    arguments = local_head.keeper_arguments(num_cpus, num_gpus, include_dashboard)
    if _attach_or_start(files, arguments):
        return
    _attach_or_start(files, arguments)  # the head that was running has just ended


@contextlib.contextmanager
def attached(
    address: str | None = None, *, if_lost: str | Suggestion | None = None
) -> Iterator[None]:
    """Attach this process within a `with` block. One that was attached before stays so.

    Ray ends a process that outlives its head, and an idle head ends. So a process that only starts
    a run, such as a notebook's kernel, must not stay attached.

    Args:
        address: As in `connect`.
        if_lost: The next step if the local head ends within the block. None for running the command
            again.

    Raises:
        RunError: As `connect`, and if the local head ends within the block.
    """
    global _num_attached, _attached_here
    with guarded(if_lost):
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


def _check_installed() -> None:
    """Raise an error if the installation can only submit runs."""
    if importlib.util.find_spec("ray") is None:
        part = missing_part(ModuleNotFoundError(name="ray"))
        assert part is not None
        raise part


def _is_attached() -> bool:
    loaded = loaded_ray()
    return loaded is not None and bool(loaded.is_initialized())


def _attach_or_start(files: HeadFiles, arguments: list[str]) -> bool:
    """Attach to the local head, starting it if needed, and return False if it ended meanwhile."""
    with files.lock():
        local_head.await_end_of_broken(files)
        head, record = local_head.status_of(files), files.read_record() or {}
        if head is not None and not can_attach(record, head.idle_s):
            local_head.end_keeper(head.pid)
            head = None
        if head is not None and local_head.is_cleaned(head.temp_dir):
            _end_cleaned(head)
            head = None
        if head is None:
            local_head.clean_up(files)
            loading = threading.Thread(target=import_ray, daemon=True)
            # this process needs it next, and has nothing to do until the head answers
            loading.start()
            local_head.start_keeper(files, arguments)
            loading.join()
            need(files.read_record() or {})
            _attach_first(files)
            return True
        files.last_used.touch()
    try:
        _attach(head.address, runtime_environment(record))
    except RunError:
        if local_head.is_intact(files.read_record()):
            raise
        return False
    need(record)
    return True


def _end_cleaned(head: local_head.HeadStatus) -> None:
    """End a head to which no process can attach any more, unless it is still in use."""
    problem = (
        f"the folder of the local Ray head, {head.temp_dir}, was cleaned: no process can attach"
        " to it"
    )
    if (tenant := local_head.find_tenant(head)) is not None:
        raise RunError(
            f"{problem}, and {tenant.sentence}",
            next_step=suggest("shutdown", lead=tenant.ways_out),
        )
    sys.stderr.write(f"{problem}. A new head replaces it.\n")
    local_head.end_keeper(head.pid)


def _check_same_cluster(address: str, attached_to: str) -> None:
    """Reject the address of another cluster. Only ports count: hosts may have several names."""
    port = address.rpartition(":")[2]
    if port.isdigit() and port != attached_to.rpartition(":")[2]:
        raise RunError(
            f"this process is attached to the Ray cluster at {attached_to} and cannot switch to"
            f" {address}",
            field="address",
            next_step=(
                "Use another process: restart the kernel, and pass the address to its first run."
            ),
        )


def _check_reachable(address: str) -> None:
    """Try a plain connection first, because Ray would retry for minutes if nothing listens."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S).close()
    except OSError as error:
        raise RunError(
            f"nothing answers at {address}: {error}",
            field="address",
            next_step="Check the address. Without one, the local Ray head is used.",
        ) from error


def _attach_first(files: HeadFiles) -> None:
    """Attach to the head that was just started and record its resources."""
    record = files.read_record() or {}
    _attach(record["address"])
    import ray

    offered = ray.cluster_resources()
    record.update(num_cpus=offered.get("CPU", 0.0), num_gpus=offered.get("GPU", 0.0))
    files.write_record(record)


def _prepare_environment(files: HeadFiles) -> None:
    """Make Ray, loaded or not, use the head's token and loopback here and in child processes."""
    ray_environment.use_head_token(files.token)
    os.environ[_LOOPBACK] = "0"
    os.environ.setdefault(_RECONNECT, str(RECONNECT_S))
    os.environ.setdefault(_REGISTER, str(REGISTER_S))


def _refuse_folder() -> None:
    """Raise an error if Ray cannot handle the name of the working folder."""
    folder = str(Path.cwd())
    if escaped(folder) != folder:
        raise RunError(
            f"the name of the folder {escaped(folder)} is not UTF-8, which Ray cannot handle",
            next_step="Rename the folder, or start from another one.",
        )


def _attach(address: str, runtime_environment: dict[str, Any] | None = None) -> None:
    _refuse_folder()
    import_ray()
    import ray
    from ray.exceptions import RayError

    # Ray read its environment when it was imported, maybe before it was prepared.
    on_loopback = os.environ.get(_LOOPBACK) == "0"
    _load_token(ray_internals.read_environment_again(on_loopback=on_loopback))
    ray_environment.drop_job_folder()
    ray_internals.ignore_messages()
    try:
        with warnings.catch_warnings(), _termination_kept():
            # Some versions of Ray announce a default of later ones whenever a process attaches.
            warnings.filterwarnings("ignore", ".*accelerator visible devices", FutureWarning)
            ray.init(
                address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=True,
                runtime_env=runtime_environment,
            )
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        raise RunError(
            f"cannot attach to Ray at {address}: {first_line_of(error)}",
            next_step=suggest("doctor", lead="To check the local head"),
        ) from error


@contextlib.contextmanager
def _termination_kept() -> Iterator[None]:
    """Keep this process's SIGTERM handler. Ray's handler writes a stack trace to the terminal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _load_token(loader: Any) -> None:
    """Let Ray read the token. Its first versions with tokens report that on the standard error."""
    loader.reset_cache()
    stderr_copy = os.dup(2)
    silent = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(silent, 2)
        loader.has_token()
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(silent)


class _Guard:
    """Waits for the end of the head that the process needs."""

    def __init__(self, next_step: str | Suggestion) -> None:
        self.error = RunError("the local Ray head ended unexpectedly", next_step=next_step)
        self.needed: dict[str, Any] | None = None
        """The record of the head, or None while another one may still be started."""
        self.is_lost = False
        self._is_over = threading.Event()
        self._before = signal.getsignal(signal.SIGINT)
        self._thread = threading.Thread(target=self._watch, name="head-guard", daemon=True)

    def begin(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        signal.signal(signal.SIGINT, self._before)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_lost:
            raise self.error
        if callable(self._before):
            self._before(number, frame)
        elif self._before is signal.SIG_DFL:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self._is_over.wait(_CHECK_S):
            if self.needed is not None and not is_intact(self.needed):
                break
        else:
            return
        self.is_lost = True
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        if not self._is_over.wait(_PATIENCE_S):
            message = self.error.describe(
                lambda step: step.write(shlex.join(["workbench", *step.words]))
            )
            sys.stderr.write(f"error: {message}\n")
            sys.stderr.flush()
            os._exit(_FAILED)


_guard: _Guard | None = None


@contextlib.contextmanager
def guarded(next_step: str | Suggestion | None = None) -> Iterator[None]:
    """Raise a RunError within the block if the local head that it needs ends. See `need`.

    Nested blocks and blocks outside of the main thread have no effect.

    Args:
        next_step: The next step, or None for running the command again.

    Raises:
        RunError: If the head ends.
    """
    global _guard
    if _guard is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    guard = _guard = _Guard(next_step or _AGAIN)
    guard.begin()
    try:
        yield
    except Exception as error:
        is_own = isinstance(error, WorkbenchError) and not isinstance(error, RunError)
        if error is guard.error or is_own or not (guard.is_lost or _is_lost(guard)):
            raise
        raise guard.error from error  # what Ray raises then is not always an error of Ray
    finally:
        guard.end()
        _guard = None


def need(record: dict[str, Any]) -> None:
    """Make the current guarded block, if any, depend on the head with this record."""
    if _guard is not None:
        _guard.needed = record


def _is_lost(guard: _Guard) -> bool:
    return guard.needed is not None and not is_intact(guard.needed)
