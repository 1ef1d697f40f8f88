"""The ids of runs: short, readable, sorted by time, and valid as names of folders."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from workbench.foundation.errors import StoreError

NEWEST = ("last", "latest")

# Seven base-36 digits count 36^7 ticks: at 32 per second, enough until the year 2101.
_TICKS_PER_S = 32
_EPOCH_UNIX_S = 1_704_067_200
_NUM_DIGITS = 7
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def can_name_run(run_id: str) -> bool:
    """Return whether a text can be a run id.

    It must be valid as the name of a folder, and must not mean the newest run.
    """
    return _ALLOWED.fullmatch(run_id) is not None and run_id not in NEWEST


def check_run_id(run_id: str) -> None:
    """Raise an error if a text cannot be a run id.

    Raises:
        StoreError: If it cannot be one.
    """
    if not can_name_run(run_id):
        raise StoreError(
            f"{run_id!r} cannot be a run id",
            field="run_id",
            allowed="letters, digits, '.', '_' and '-'",
        )


def count_ticks(unix_s: float) -> int:
    """Return a time in 1/32 s since the start of 2024."""
    return int((unix_s - _EPOCH_UNIX_S) * _TICKS_PER_S)


def make_run_id(name: str, ticks: int) -> str:
    """Make the run id of a name and a time.

    Args:
        name: Name of the run. Only its letters and digits are kept.
        ticks: The result of `count_ticks`. It is written with a fixed number of digits, so that run
            ids sort by time.
    """
    digits = ""
    for _ in range(_NUM_DIGITS):
        ticks, digit = divmod(ticks, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return f"{words_of(name)}-{digits}"


def words_of(name: str) -> str:
    """Return the part of a name that can start a run id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"


def hint(run_id: str, known: Sequence[str]) -> str:
    """Return a hint for a run id that does not exist.

    Args:
        run_id: The requested run id.
        known: The existing runs, newest first.
    """
    near = difflib.get_close_matches(run_id, known, n=3)
    newest = f"The newest: {', '.join(known[:3])}." if known else "The store has no runs yet."
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return newest
