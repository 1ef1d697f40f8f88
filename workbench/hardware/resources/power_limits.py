"""Change the power limits of GPUs for a while, and restore them after any end.

Three things restore a limit: the code that changed it, a process beside it that waits for its end
(kill -9 included), and, if both were killed, the next change, by a note on disk. The note is
written before the first change. Measuring under limits is left to `training.probes`.

Source: You et al., Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training
(2023).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

from workbench.foundation.errors import ResourcesError
from workbench.foundation.files import write_atomically
from workbench.foundation.processes import boot_id, start_of
from workbench.hardware.resources.nvml import Holder, holders_of, session

_GUARD = "from workbench.hardware.resources.power_limits import guard; guard()"
_ATTEMPTS, _PAUSE_S = 100, 0.1
_NEEDS_ROOT = (
    "Run it as root, or ask an administrator to measure it once. Otherwise omit --max-slowdown."
)


class PowerRange(NamedTuple):
    """The power limit of a GPU, and what its driver allows, in watts."""

    limit_w: float
    default_w: float
    least_w: float
    most_w: float


class PowerLimits:
    """The power limits of some GPUs while they are changed."""

    def __init__(self, ranges: Mapping[str, PowerRange]) -> None:
        """Remember the limits. See `changeable_limits`.

        Args:
            ranges: By the UUID of each GPU.
        """
        self.ranges = dict(ranges)

    def steps_w(self, number: int) -> list[float]:
        """Return limits to try, from the present one down to the lowest, evenly spaced, in watts.

        Args:
            number: How many, at least 2.
        """
        highest_w = min(allowed.limit_w for allowed in self.ranges.values())
        lowest_w = min(highest_w, max(allowed.least_w for allowed in self.ranges.values()))
        step_w = (highest_w - lowest_w) / (number - 1)
        return [round(highest_w - place * step_w, 3) for place in range(number)]

    def set(self, limit_w: float) -> None:
        """Set one limit for all GPUs.

        Args:
            limit_w: The limit in watts.

        Raises:
            ResourcesError: If the driver does not allow it.
        """
        for uuid in self.ranges:
            _set(uuid, limit_w)

    def restore(self) -> None:
        """Set the limits of before."""
        for uuid, allowed in self.ranges.items():
            _set(uuid, allowed.limit_w)


@contextlib.contextmanager
def changeable_limits(gpus: Collection[str], own_pids: Collection[int]) -> Iterator[PowerLimits]:
    """Make the power limits of GPUs changeable inside the block. They are restored afterwards.

    Args:
        gpus: The UUIDs of the GPUs.
        own_pids: The processes that may use them. Any other is slowed down without being asked, so
            nothing is changed then.

    Raises:
        ResourcesError: If a limit cannot be read or changed, or another process uses a GPU.
    """
    restore_left()
    ranges = {uuid: _range_of(uuid) for uuid in sorted(gpus)}
    for uuid in ranges:
        if others := [holder for holder in holders_of(uuid) if holder.pid not in own_pids]:
            raise _used_by_others(uuid, others)
    limits = PowerLimits(ranges)
    limits.restore()  # the same as they are: shows whether they may be changed at all
    note = _note_of(os.getpid())
    _write_note(note, ranges)
    guarding = _start_guard(note)
    try:
        yield limits
    finally:
        try:
            limits.restore()
        finally:
            assert guarding.stdin is not None
            guarding.stdin.close()  # it restores them again, and removes the note
            assert guarding.stdout is not None
            guarding.stdout.read()
            guarding.wait()


def restore_left() -> list[str]:
    """Restore the limits that a process left behind, and return the UUIDs of their GPUs.

    That is only necessary if the process and its guard were both killed.
    """
    restored: list[str] = []
    for note in sorted(_folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, ResourcesError):
            kept: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
            if kept["boot"] == boot_id():  # a reboot has reset all limits
                if any(start_of(pid) == start for pid, start in kept["processes"]):
                    continue
                for uuid, limit_w in kept["limits_w"].items():
                    _set(uuid, limit_w)
                    restored.append(uuid)
            note.unlink()
    return restored


def guard() -> None:
    """Wait for the end of the standard input, then restore the limits of a note.

    The input ends with the process that holds its other end, however that ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    note = Path(sys.stdin.readline().rstrip("\n"))
    if os.fork():  # without a parent, it is not ended with the children of a worker
        os._exit(0)
    kept: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
    processes = [*kept["processes"], (os.getpid(), start_of(os.getpid()))]
    write_atomically(note, json.dumps({**kept, "processes": processes}))
    print("ready", flush=True)
    sys.stdin.read()
    for _ in range(_ATTEMPTS):
        try:
            for uuid, limit_w in kept["limits_w"].items():
                _set(uuid, limit_w)
        except ResourcesError:
            time.sleep(_PAUSE_S)
            continue
        note.unlink(missing_ok=True)
        return


def _start_guard(note: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{note}\n")
    process.stdin.flush()
    if process.stdout.readline() != "ready\n":
        process.kill()
        note.unlink(missing_ok=True)
        raise ResourcesError(
            "power limits are not changed, because the process that restores them did not start"
        )
    return process


def _write_note(note: Path, ranges: Mapping[str, PowerRange]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "boot": boot_id(),
        "processes": [(os.getpid(), start_of(os.getpid()))],
        "limits_w": {uuid: allowed.limit_w for uuid, allowed in ranges.items()},
    }
    write_atomically(note, json.dumps(kept))


def _note_of(pid: int) -> Path:
    return _folder() / f"{pid}.json"


def _folder() -> Path:
    """Return the folder of notes: of the user, not of a head, as GPUs belong to the machine."""
    return platformdirs.user_state_path("workbench", appauthor=False) / "power-limits"


def _range_of(uuid: str) -> PowerRange:
    with session() as (nvml, _, reason):
        if nvml is None:
            raise ResourcesError(f"power limits cannot be read: {reason}")
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            least, most = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            now = nvml.nvmlDeviceGetPowerManagementLimit(handle)
            default = nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
        except nvml.NVMLError as error:
            raise ResourcesError(
                f"the power limit of GPU {uuid} cannot be read: {error}",
                next_step="Omit --max-slowdown.",
            ) from error
    return PowerRange(now * 1e-3, default * 1e-3, least * 1e-3, most * 1e-3)


def _set(uuid: str, limit_w: float) -> None:
    with session() as (nvml, _, reason):
        if nvml is None:
            raise ResourcesError(f"power limits cannot be changed: {reason}")
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w * 1e3))
        except nvml.NVMLError as error:
            raise ResourcesError(
                f"the power limit of GPU {uuid} cannot be changed: {error}", next_step=_NEEDS_ROOT
            ) from error


def _used_by_others(uuid: str, others: Sequence[Holder]) -> ResourcesError:
    return ResourcesError(
        f"power limits would also slow down other programs, and GPU {uuid} is used by"
        f" {', '.join(map(str, others))}",
        next_step="Wait until they have ended, or omit --max-slowdown.",
    )
