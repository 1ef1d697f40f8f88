"""The pools of other installations on the same cluster, whose idle workers hold what this one's
need.
"""

from __future__ import annotations

import contextlib

import ray

POOL_NAME = "workbench-pool-"
"""The beginning of the names of pools; each installation has its own."""


def ask_to_give_way() -> None:
    """Ask all pools but the one that is this actor to end their idle workers, without waiting for
    it.
    """
    own = ray.get_runtime_context().get_actor_name()
    for name in ray.util.list_named_actors():
        if name.startswith(POOL_NAME) and name != own:
            with contextlib.suppress(ValueError, AttributeError):  # it has just ended
                ray.get_actor(name).give_way.remote()
