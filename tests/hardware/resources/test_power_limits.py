"""Power limits that processes change and restore, with a stand-in for NVIDIA's library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.services.fake_nvml import H100, FakeNvml
from tests.services.waiting import wait_until

ROOT = Path(__file__).parents[3]
LIMITED = {**H100, "power_limit_mw": 700_000, "power_least_mw": 200_000}
UUIDS = ("GPU-00000000-fake", "GPU-00000001-fake")
CHANGE = f"""
import os, sys
from workbench.hardware.resources.power_limits import changeable_limits
with changeable_limits({UUIDS!r}, [os.getpid()]) as limits:
    print(limits.steps_w(6), flush=True)
    limits.set(300.0)
    print("changed", flush=True)
    for line in sys.stdin:
        exec(line)
"""
RESTORE = (
    "from workbench.hardware.resources.power_limits import restore_left; print(restore_left())"
)


class Machine:
    """Two GPUs whose limits are changed by a process."""

    def __init__(self, nvml: FakeNvml, home: Path) -> None:
        self._nvml, self._home = nvml, home
        self.processes: list[subprocess.Popen[str]] = []
        for index in (0, 1):
            self._limit_of(index).unlink(missing_ok=True)

    def _limit_of(self, index: int) -> Path:
        return self._nvml.state.with_name(f"{self._nvml.state.name}.limit_of_{index}")

    def limits_w(self) -> list[float]:
        """Return the limits that were set, or 0 if none was."""
        paths = [self._limit_of(index) for index in (0, 1)]
        return [int(path.read_text()) / 1e3 if path.exists() else 0.0 for path in paths]

    def start(self, program: str = CHANGE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.processes.append(process)
        return process

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self._nvml.environment,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(self._home),
        }

    def notes(self) -> list[Path]:
        return list(self._home.rglob("power-limits/*.json"))

    def changed(self) -> subprocess.Popen[str]:
        """Start a process and return it when it has changed the limits."""
        process = self.start()
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines == ["[700.0, 600.0, 500.0, 400.0, 300.0, 200.0]\n", "changed\n"]
        assert self.limits_w() == [300.0, 300.0]
        return process

    def guard_of(self, process: subprocess.Popen[str]) -> psutil.Process:
        """Return the process that waits for the end of another."""
        words = "power_limits import guard"
        [guard] = [
            candidate
            for candidate in psutil.process_iter(["cmdline", "environ"])
            if words in " ".join(candidate.info["cmdline"] or [])
            and (candidate.info["environ"] or {}).get("XDG_STATE_HOME") == str(self._home)
        ]
        assert guard.pid != process.pid
        return guard


@pytest.fixture
def machine(fake_nvml_library: FakeNvml, tmp_path: Path) -> Iterator[Machine]:
    fake_nvml_library.play(LIMITED, LIMITED)
    machine = Machine(fake_nvml_library, tmp_path)
    yield machine
    for process in machine.processes:
        process.kill()
        process.communicate()
    fake_nvml_library.play()


def write(process: subprocess.Popen[str], line: str) -> tuple[str, str]:
    return process.communicate(line + "\n", timeout=120)


@pytest.mark.parametrize("line", ["pass", "raise KeyError", "sys.exit(3)"])
def test_limits_are_restored_when_the_block_ends(machine: Machine, line: str) -> None:
    process = machine.changed()
    write(process, line)
    assert machine.limits_w() == [700.0, 700.0]
    assert machine.notes() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_limits_are_restored_after_any_signal(machine: Machine, number: signal.Signals) -> None:
    process = machine.changed()
    # Like a person who ends all that a worker has started, gently.
    machine.guard_of(process).send_signal(signal.SIGTERM)
    process.send_signal(number)
    wait_until(lambda: machine.limits_w() == [700.0, 700.0])
    wait_until(lambda: machine.notes() == [])


def test_the_next_change_restores_what_two_killed_processes_left(machine: Machine) -> None:
    process = machine.changed()
    guard = machine.guard_of(process)
    guard.kill()
    process.kill()
    process.wait()
    wait_until(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE)
    assert machine.limits_w() == [300.0, 300.0]
    assert len(machine.notes()) == 1
    printed, _ = machine.start(RESTORE).communicate(timeout=120)
    assert printed == f"{list(UUIDS)}\n"
    assert machine.limits_w() == [700.0, 700.0]
    assert machine.notes() == []


def left_note(home: Path, **changes: Any) -> Path:
    """Write the note of a process that has ended, with the number of one that lives."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    kept = {
        "boot": boot,
        "processes": [(os.getpid(), "1")],
        "limits_w": dict.fromkeys(UUIDS, 500.0),
        **changes,
    }
    note = home / "workbench" / "power-limits" / "7.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps(kept))
    return note


@pytest.mark.parametrize(("changes", "limit_w"), [({}, 500.0), ({"boot": "before"}, 0.0)])
def test_limits_of_a_number_that_another_process_has_are_restored_but_not_after_a_reboot(
    machine: Machine, tmp_path: Path, changes: dict[str, Any], limit_w: float
) -> None:
    note = left_note(tmp_path, **changes)
    machine.start(RESTORE).communicate(timeout=120)
    assert machine.limits_w() == [limit_w, limit_w]
    assert not note.exists()


def test_limits_of_a_process_whose_end_nobody_noted_are_restored(
    machine: Machine, tmp_path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
    start = Path(f"/proc/{ended.pid}/stat").read_text().split()[21]
    left_note(tmp_path, processes=[(ended.pid, start)])
    machine.start(RESTORE).communicate(timeout=120)
    ended.wait()
    assert machine.limits_w() == [500.0, 500.0]


def test_limits_that_a_living_process_has_changed_are_left_alone(machine: Machine) -> None:
    machine.changed()
    printed, _ = machine.start(RESTORE).communicate(timeout=120)
    assert printed == "[]\n"
    assert machine.limits_w() == [300.0, 300.0]


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({**LIMITED, "processes": "1 4096"}, "is used by process 1"),
        ({**LIMITED, "power_set": 4}, "cannot be changed"),
        (H100, "cannot be read"),
    ],
)
def test_nothing_changes_where_it_may_not(
    machine: Machine, fake_nvml_library: FakeNvml, card: dict[str, Any], reason: str
) -> None:
    fake_nvml_library.play(LIMITED, card)
    _, error = machine.start().communicate(timeout=120)
    assert f"GPU {UUIDS[1]}" in error
    assert reason in error
    assert set(machine.limits_w()) <= {0.0, 700.0}
    assert machine.notes() == []
