"""Attach to the head and print, as JSON, what of runs is still on it, once nothing is or time is
up.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.services.waiting import try_until


def look() -> dict[str, Any]:
    import ray
    from ray._private import state

    from workbench.cluster.workers.pool import connect_pool

    status: Any = ray.get(connect_pool().status.remote(), timeout=300)
    groups = ray.util.placement_group_table().values()
    actors = [actor for actor in state.actors().values() if actor["State"] != "DEAD"]
    return {
        "leased": status.leased,
        "waiting": status.num_waiting,
        "idle_pids": list(status.idle_pids),
        "groups": [group["placement_group_id"] for group in groups if group["state"] != "REMOVED"],
        "drivers": [actor["Name"] for actor in actors if actor["Name"].startswith("driver-")],
        "worker_pids": [actor["Pid"] for actor in actors if actor["ActorClassName"] == "Worker"],
    }


def is_clean(found: dict[str, Any]) -> bool:
    left = ("leased", "waiting", "groups", "drivers")
    return not any(found[name] for name in left) and {*found["worker_pids"]} <= {
        *found["idle_pids"]
    }


def main(timeout_s: float) -> None:
    from ray.exceptions import RayError

    from workbench.cluster.head import attachment

    attachment.connect()
    looks: dict[str, Any] = {}

    def is_left_clean() -> bool:
        nonlocal looks
        try:
            looks = look()
        except RayError as error:  # the pool may just be dying
            looks = {}
            print(error, file=sys.stderr)
        return bool(looks) and is_clean(looks)

    try_until(is_left_clean, timeout_s, every_s=0.2)
    print(json.dumps(looks | {"clean": bool(looks) and is_clean(looks)}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
