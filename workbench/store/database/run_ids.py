"""The names of runs: short, readable, sorted by time, and fit to name a folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from workbench.foundation.errors import StoreError

NEWEST = ("last", "latest")

_TICKS_PER_S = 32
_EPOCH_UNIX_S = 1_704_067_200
_NUM_DIGITS = 7
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def can_name_run(run_id: str) -> bool:
    """Return whether a text can be a run id.

    A name for a folder that does not mean the newest run.
    """
    return _ALLOWED.fullmatch(run_id) is not None and run_id not in NEWEST


def check_run_id(run_id: str) -> None:
    """Refuse what cannot be a run id.

    Raises:
        StoreError: If it cannot name a run.
    """
    if not can_name_run(run_id):
        raise StoreError(
            f"{run_id!r} cannot name a run",
            field="run_id",
            allowed="letters, digits, '.', '_' and '-'",
        )


def count_ticks(unix_s: float) -> int:
    """Return a time in 32nds of a second since the start of 2024."""
    return int((unix_s - _EPOCH_UNIX_S) * _TICKS_PER_S)


def make_run_id(name: str, ticks: int) -> str:
    """Make the run id of a name and a time.

    Args:
        name: Name of the run. Only its letters and digits are kept.
        ticks: The result of `count_ticks`. Seven digits to the base 36 hold it until the year 2101,
            and texts of equal length sort like the numbers.
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
        known: The runs that there are, the newest first.
    """
    near = difflib.get_close_matches(run_id, known, n=3)
    newest = f"The newest: {', '.join(known[:3])}." if known else "The store has no runs yet."
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return newest
