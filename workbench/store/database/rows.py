"""The values that the store returns: runs, their ids and owners, stored events and commands.

Nothing is known about drivers on other machines except their heartbeat, so it decides.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workbench.foundation.errors import StoreError
from workbench.foundation.events import Event, RunState
from workbench.foundation.processes import is_alive

_DRIVEN_STATES = ("running", "stopping", "waiting")
SILENCE_PATIENCE_S = 120.0
"""How long a driver on another machine may be silent after its lease has expired."""
START_PATIENCE_S = 330.0
"""How long a new run may wait for its first driver if its creator is not known to be alive."""
EventRow = tuple[int, str, int | None, float, str]
"""seq, type, trial, time in Unix seconds, payload as JSON text."""
NEWEST = ("last", "latest")
# Seven base-36 digits count 36^7 ticks: at 32 per second, enough until the year 2101.
_TICKS_PER_S = 32
_EPOCH_UNIX_S = 1_704_067_200
_NUM_DIGITS = 7
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class Owner(NamedTuple):
    """The process that holds the lease of a run, or held it last."""

    pid: int
    host: str


@dataclass(frozen=True)
class RunRow:
    """What is known of a run without reading its events."""

    run_id: str
    name: str
    state: RunState
    experiment_hash: str
    created_unix_s: float
    changed_unix_s: float
    """When the state last changed."""
    last_seq: int
    """The number of the newest event, or 0 if there is none."""
    owner: Owner | None
    heartbeat_unix_s: float | None
    tags: tuple[str, ...] = ()
    notes: str = ""
    pinned: bool = False
    """Whether lists show it first."""
    archived: bool = False
    """Whether lists hide it."""
    chosen_trial: int | None = None
    """The trial that a user chose by hand."""
    silent_s: float | None = None
    """Seconds since its driver's last sign of life, if its lease has expired but it is not lost."""
    sign_age_s: float | None = field(default=None, compare=False)
    """Seconds since its driver's last sign of life, or None before the first.

    It is negative if a clock was set back. Comparisons ignore it, because it changes all the time.
    """
    was_left: bool = False
    """Whether its driver gave up the unfinished run, so no other driver continues it by itself."""
    has_dead_driver: bool = field(default=False, compare=False)
    """Whether the process of its driver has certainly ended, although its lease has not expired."""


class StoredEvent(NamedTuple):
    """An event and its number in the run, counted from 1 without gaps."""

    seq: int
    event: Event


@dataclass(frozen=True)
class Command:
    """A request to the driver of a run."""

    number: int
    kind: str
    arguments: Mapping[str, Any]
    time_unix_s: float
    by: str = ""
    """The agent that sent it. Empty for a person."""


def to_run(
    row: Any, now_unix_s: float, deaf_unix_s: float = -math.inf, *, was_renewed: bool = False
) -> RunRow:
    """Convert a row of the table of runs.

    Args:
        row: The row.
        now_unix_s: The time by the clock of the store.
        deaf_unix_s: When the store was last unavailable. Until then, no driver could send a
            heartbeat.
        was_renewed: Whether this process has recently seen the lease being renewed. This counts
            more than the times of clocks.
    """
    state, silent_s = row.state, None
    if state in _DRIVEN_STATES and row.heartbeat_unix_s is not None:
        since_s = abs(now_unix_s - max(row.heartbeat_unix_s, deaf_unix_s))
        if since_s > row.lease_timeout_s and not was_renewed:
            silent_s = since_s
            state = "lost" if _is_gone(row, since_s) else state
    elif (
        state == "waiting"
        and now_unix_s - row.created_unix_s > START_PATIENCE_S
        and not _is_created(row)
    ):
        state = "lost"  # its creator ended before a driver took it
    # A restored run has a heartbeat but no driver.
    owner = None
    if row.heartbeat_unix_s is not None and row.owner_host is not None:
        owner = Owner(row.owner_pid, row.owner_host)
    return RunRow(
        run_id=row.run_id,
        name=row.name,
        state=state,
        experiment_hash=row.experiment_hash,
        created_unix_s=row.created_unix_s,
        changed_unix_s=row.changed_unix_s,
        last_seq=row.last_seq,
        owner=owner,
        heartbeat_unix_s=row.heartbeat_unix_s,
        tags=tuple(json.loads(row.tags or "[]")),
        notes=row.notes or "",
        pinned=row.pinned_unix_s is not None,
        archived=row.archived_unix_s is not None,
        chosen_trial=row.chosen_trial,
        silent_s=None if state == "lost" else silent_s,
        sign_age_s=None if row.heartbeat_unix_s is None else now_unix_s - row.heartbeat_unix_s,
        was_left=state == "lost" and row.lease_token is None,
        has_dead_driver=state in _DRIVEN_STATES
        and row.lease_token is not None
        and row.owner_host is not None
        and is_alive(row.owner_pid, row.owner_host, row.owner_process) is False,
    )


def _is_created(row: Any) -> bool:
    """Return whether the creator of a run without a driver is alive, so it may be starting one."""
    return row.owner_pid is not None and bool(
        is_alive(row.owner_pid, row.owner_host, row.owner_process)
    )


def _is_gone(row: Any, since_s: float) -> bool:
    """Return whether the driver of a run with an expired lease is gone.

    A late driver is not gone: on a busy or suspended machine, everything is late. On this machine,
    its process therefore decides. On other machines, only its silence is known.

    Args:
        row: The row of the run.
        since_s: Seconds since the driver's last sign of life.
    """
    if row.lease_token is None:
        return True  # it gave up its run
    alive = is_alive(row.owner_pid, row.owner_host, row.owner_process)
    if alive is None:
        return since_s > row.lease_timeout_s + SILENCE_PATIENCE_S
    return not alive


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


def hint(run_id: str, run_ids: Sequence[str]) -> str:
    """Return a hint for a run id that does not exist.

    Args:
        run_id: The requested run id.
        run_ids: The existing runs, newest first.
    """
    near = difflib.get_close_matches(run_id, run_ids, n=3)
    newest = f"The newest: {', '.join(run_ids[:3])}." if run_ids else "The store has no runs yet."
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return newest
