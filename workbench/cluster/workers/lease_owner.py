"""Who holds a lease, and whether that process is still alive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray._private import state as cluster_state


@dataclass(frozen=True)
class Owner:
    """The process whose end ends a lease: an actor, or the driver process of a Ray job."""

    job_id: str
    pid: int
    actor_id: str | None = None
    node_id: str = ""
    handle: Any = field(default=None, compare=False)
    """The actor, so that it can be killed when its node is silent."""


def find_dead(owners: set[Owner]) -> set[Owner]:
    """Return the owners that are dead, as the cluster knows them.

    Args:
        owners: Owners of leases.
    """
    ended_jobs = {job["JobID"] for job in cluster_state.jobs() if job["IsDead"]}
    return {owner for owner in owners if _is_dead(owner, ended_jobs)}


def _is_dead(owner: Owner, ended_jobs: set[str]) -> bool:
    if owner.actor_id is None:
        return owner.job_id in ended_jobs
    actor = cluster_state.actors(owner.actor_id)
    # An actor that was restarted has the same id but another process.
    return actor.get("State", "DEAD") in ("DEAD", "RESTARTING") or actor["Pid"] not in (
        0,
        owner.pid,
    )
