"""Keeps one killed coordinator from ending a whole sweep.

Ray's actor manager knows two kinds of failure, an actor that died and a task that raised, and treats any
other RayError as its own bug: a coordinator that the memory monitor kills ends `Tuner.fit`. The guard
turns those into actor failures, which Tune retries. It is tied to the Ray version that it was read from.
"""

from __future__ import annotations

from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import RayActorError, RayError, RayTaskError


def install() -> None:
    """Make Tune treat every RayError of an actor as the death of that actor; once per process."""
    original = RayActorManager._actor_task_failed
    if getattr(original, "is_workbench_guard", False):
        return

    def guarded(self: Any, tracked_actor_task: Any, exception: Exception) -> Any:
        if isinstance(exception, RayError) and not isinstance(exception, RayActorError | RayTaskError):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}"[:2000])
        return original(self, tracked_actor_task=tracked_actor_task, exception=exception)

    guarded.is_workbench_guard = True  # type: ignore[attr-defined]
    RayActorManager._actor_task_failed = guarded  # type: ignore[method-assign]
