"""The keeper of the local Ray head: a small process that owns it and ends it.

It starts `ray start --head --block` by `head_start` as its child, records its address, and ends it
on SIGTERM or when it has not been used for a while. Every process that Ray leaves behind becomes a
child of the keeper and is killed with it. The temporary folder is removed.

Everything else waits for `ray start`, so this module only imports the standard library before that,
and never imports ray. `local_head` starts the keeper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.cluster.head.head_files import HeadFiles

START_TIMEOUT_S = 300.0
"""A head takes seconds to start, and minutes on a machine that starts many processes at once."""
POLL_S = 0.2
GRACE_S = 5.0
_TOO_SLOW = "timed out during startup"
"""Ray's words where its node did not start in time."""
_LAST_WORDS = 1000
"""The part of the log in which a head says why it ended."""
ESSENTIAL = frozenset({"gcs_server", "raylet"})
"""Processes without which the head ends, soon after them."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """Owns one head from its start to its end."""

    def __init__(self, folder: Path, idle_s: float, arguments: list[str]) -> None:
        """Take over the folder of a head.

        Args:
            folder: The folder of the files that describe it.
            idle_s: Seconds without use after which it ends.
            arguments: Additional arguments of `ray start`.
        """
        self._folder = folder
        self._files: HeadFiles
        self._idle_s = idle_s
        self._arguments = arguments
        self._stop_requested = False
        self._touched_ns, self._touched_s = 0, 0.0
        place = "/tmp" if os.path.isdir("/tmp") else None  # a socket's path has room for 107 bytes
        self._temp_dir = Path(tempfile.mkdtemp(prefix="workbench-", dir=place))
        # Ray makes its own folder readable for everybody. The one around it is private.
        self._ray_dir = self._temp_dir / "ray"

    def keep(self) -> int:
        """Start the head, wait until it is no longer needed, and end it.

        Returns:
            The exit status: 0 when it was ended on purpose.
        """
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _adopt_orphans()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        try:
            while True:
                head = self._start()
                try:
                    # imported while the head loads
                    from workbench.cluster.head.head_files import HeadFiles

                    self._files = HeadFiles(self._folder)
                    if self._wait_until_started(head, deadline_s):
                        return self._keep(head)
                    if not self._was_too_slow(head, deadline_s):
                        return 1
                finally:
                    self._end(head)
                shutil.rmtree(self._ray_dir, ignore_errors=True)
        finally:
            shutil.rmtree(self._temp_dir, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "workbench.cluster.head.head_start", "start", "--head"]
        return subprocess.Popen(
            [*command, "--block", "--port=0", f"--temp-dir={self._ray_dir}", *self._arguments],
            stdin=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,
        )

    def _was_too_slow(self, head: subprocess.Popen[bytes], deadline_s: float) -> bool:
        """Return whether Ray gave up only because the machine is busy, so it may start again.

        Ray's node waits 15 s for two processes that it starts, and no setting changes that.
        """
        if self._stop_requested or head.poll() is None or time.monotonic() > deadline_s:
            return False
        return _TOO_SLOW in self._files.log.read_text(errors="replace")[-_LAST_WORDS:]

    def _keep(self, head: subprocess.Popen[bytes]) -> int:
        try:
            while not self._stop_requested and head.poll() is None and not self._is_idle():
                time.sleep(POLL_S)
            return 0 if head.poll() is None else 1
        finally:
            self._files.record.unlink(missing_ok=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_requested = True

    def _wait_until_started(self, head: subprocess.Popen[bytes], deadline_s: float) -> bool:
        address_file = self._ray_dir / "ray_current_cluster"  # written once all processes run
        while head.poll() is None and time.monotonic() < deadline_s and not self._stop_requested:
            address = address_file.read_text().strip() if address_file.exists() else ""
            if address:
                self._files.last_used.touch()
                self._files.write_record(self._record(address))
                return True
            time.sleep(0.02)
        return False

    def _record(self, address: str) -> dict[str, Any]:
        import psutil

        from workbench.cluster.head.installation import PACKAGE, ray_and_python

        this_process = psutil.Process()
        essential = [
            child for child in this_process.children(recursive=True) if child.name() in ESSENTIAL
        ]
        return {
            "address": address,
            "pid": os.getpid(),
            "created_unix_s": this_process.create_time(),
            "essential": [(child.pid, child.create_time()) for child in essential],
            "started_unix_s": time.time(),
            "temp_dir": str(self._temp_dir),
            "python": sys.executable,
            "package": str(PACKAGE),
            "versions": ray_and_python(),
        }

    def _is_idle(self) -> bool:
        """Return whether the head has been idle for too long. If so, keep others from attaching."""
        if self._unused_s() < self._idle_s:
            return False
        lock = self._files.try_lock()
        if lock is None:
            return False
        try:
            if self._unused_s() < self._idle_s:
                return False
            self._files.record.unlink(missing_ok=True)
            return True
        finally:
            lock.release()

    def _unused_s(self) -> float:
        """Return for how long nobody has touched the file, by a clock that nobody can set."""
        try:
            touched_ns = self._files.last_used.stat().st_mtime_ns
        except FileNotFoundError:
            return self._idle_s
        if touched_ns != self._touched_ns:
            self._touched_ns, self._touched_s = touched_ns, time.monotonic()
        return time.monotonic() - self._touched_s

    def _end(self, head: subprocess.Popen[bytes]) -> None:
        import psutil

        descendants = psutil.Process().children(recursive=True)
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(GRACE_S)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            alive = {*descendants, *psutil.Process().children(recursive=True)}
            alive = {process for process in alive if process.is_running()}
            if not alive:
                break
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(list(alive), timeout=0.5)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(Keeper(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).keep())
