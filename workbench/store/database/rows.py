"""The values that the store returns: runs, stored events and commands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workbench.foundation.events import Event, RunState
from workbench.store.database.owner_process import is_alive

_DRIVEN_STATES = ("running", "stopping", "waiting")
SILENCE_PATIENCE_S = 120.0
"""How long a driver on another machine may be silent after its lease has expired."""
START_PATIENCE_S = 330.0
"""How long a new run may wait for its first driver if its creator is not known to be alive."""
EventRow = tuple[int, str, int | None, float, str]
"""seq, type, trial, time in Unix seconds, payload as JSON text."""


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
