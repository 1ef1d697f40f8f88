"""Processes of tiers and links, started on this machine and ended by their process ids.

Each ends by itself when the process that started it is gone: its standard input ends then.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.foundation.errors import RunError
from workbench.store.history.failure_text import headline
from workbench.tiers.processes.relay import Link
from workbench.tiers.processes.tier_settings import TierSettings
from workbench.training.programs.last_error import last_error

START_S = 300.0
"""How long a process may load on a busy machine. One that ends meanwhile is noticed at once."""
_STOP_S = 5.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class StartedProcess:
    """A process that has printed its port."""

    def __init__(self, what: str, module: str, words: Sequence[str]) -> None:
        """Start a process. `wait` waits until it listens.

        Args:
            what: A description of the process, for errors.
            module: The module that it runs.
            words: Its arguments.
        """
        self.what = what
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,
        )
        self.port = 0
        self.ports: tuple[int, ...] = ()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait until it listens.

        Raises:
            RunError: If it does not.
        """
        assert self._process.stdout is not None
        line = _line_of(self._process, START_S)
        if not line:
            self.kill()
            assert self._process.stderr is not None
            error = last_error(self._process.stderr.read().decode(errors="replace"))
            raise RunError(f"{self.what} did not start: {headline(error) or 'it printed nothing'}")
        listening = json.loads(line)
        self.port = int(listening["port"])
        self.ports = tuple(listening.get("ports", (self.port,)))

    def stop(self) -> dict[str, Any]:
        """End it in order, and return its last report, which is empty if it is gone already."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            output, _ = self._process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return {}
        lines = output.decode(errors="replace").strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def start_tier(settings: TierSettings, folder: Path) -> StartedProcess:
    """Start the process of a tier.

    Args:
        settings: The settings of the tier.
        folder: Where its settings are written.
    """
    path = folder / f"{settings.name}-{settings.device}.json"
    replace(settings, ends_with_input=True).write(path)
    return StartedProcess(
        f"the tier {settings.name}", "workbench.tiers.processes.tier_process", [str(path)]
    )


def start_link(name: str, link: Link) -> StartedProcess:
    """Start the process of a link. `name` is for errors."""
    return StartedProcess(f"the link {name}", "workbench.tiers.processes.relay", link.words())


def processor_wait_s(pid: int) -> float:
    """Return how long the current threads of a process have waited for a processor, in seconds.

    It is 0 if the system does not report it. Linux does.

    Args:
        pid: The number of the process.
    """
    waited_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(
            OSError, IndexError, ValueError
        ):  # a thread that has ended meanwhile
            waited_ns += int(path.read_text(encoding="ascii").split()[1])
    return waited_ns / 1e9


def _line_of(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """Return the first line that a process prints, or nothing if it ends or the time is over."""
    assert process.stdout is not None
    deadline_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, deadline_s - time.monotonic())):
            return b""
    return process.stdout.readline()
