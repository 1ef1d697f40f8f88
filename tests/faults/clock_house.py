"""A machine whose clock is set by an hour while a sweep is going on.

All Python processes of the campaign, those of Ray and the judge included, read a clock that a file
sets; what has passed since the boot is not changed, as on a real machine. What Ray does in C++
keeps the real clock. A time budget of minutes must not end a run, nor a lease, and no trial may
seem to last an hour.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.clock_startup.sitecustomize import VARIABLE
from tests.faults.evidence import Record
from tests.faults.house import House

HOUR_S = 3600
PASSES_S = 20.0
_AHEAD, _BACK, _PASSING = "clock ahead", "clock back", "clock ahead and back"


def enter() -> None:
    """Start this program again where its clock can be set."""
    if VARIABLE in os.environ:
        return
    path = Path(tempfile.mkdtemp(prefix="workbench-clock-")) / "clock"
    path.write_text("0")
    folders = [str(Path(__file__).with_name("clock_startup")), os.environ.get("PYTHONPATH")]
    environment = {VARIABLE: str(path), "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    os.execve(
        sys.executable,
        [sys.executable, "-m", "tests.faults", *sys.argv[1:]],
        os.environ | environment,
    )


class ClockHouse(House):
    """One machine, and its clock."""

    victims = (_AHEAD, _BACK, _PASSING)
    ends_all = frozenset()

    def __init__(self, folder: Path) -> None:
        """Open a house whose clock can be set; the process must have entered such a place."""
        self._clock = Path(os.environ[VARIABLE])
        self._ahead_s = 0
        super().__init__(folder)

    def find(self, victim: str) -> list[Any]:
        """The clock matters as soon as there is a driver."""
        return ["clock"] if super().find("driver") else []

    def strike(self, victim: str, target: Any) -> Callable[[], None] | None:
        """Set the clock."""
        self._set(self._ahead_s + (-HOUR_S if victim == _BACK else HOUR_S))
        return (lambda: self._set(0)) if victim == _PASSING else None

    def lasts_s(self, fault: Any) -> float:
        """For how long the clock is wrong."""
        return PASSES_S * fault.patience if fault.victim == _PASSING else 0.0

    def wrong_in(self, record: Record, lasted_s: float) -> list[str]:
        """Durations that cannot be right, and times that go back."""
        history = record.history
        wrong = [
            f"trial {trial.number} seems to have lasted {trial.duration_s} s of {lasted_s:.0f} s"
            for trial in history.trials.values()
            if trial.duration_s is None or not 0.0 < trial.duration_s <= lasted_s
        ]
        if not 0.0 < (active_s := history.active_s(0.0)) <= lasted_s:
            wrong.append(f"the run seems to have lasted {active_s} s of {lasted_s:.0f} s")
        times = [event.time_unix_s for event in record.events]
        if max(times) - min(times) > lasted_s:
            wrong.append(f"its events span {max(times) - min(times):.0f} s of {lasted_s:.0f} s")
        return wrong

    def tidy(self) -> None:
        """Set the clock right, which is a jump to those who are still there."""
        self._set(0)

    def _set(self, ahead_s: int) -> None:
        self._ahead_s = ahead_s
        unfinished = self._clock.with_suffix(".unfinished")
        unfinished.write_text(str(ahead_s))
        unfinished.replace(self._clock)
