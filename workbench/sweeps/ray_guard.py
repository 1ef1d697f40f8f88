"""Changes to Ray Tune: killed coordinators end no sweep, coordinators start fast, ended trials are forgotten.

Ray's actor manager knows two kinds of failure, an actor that died and a task that raised, and treats any
other RayError as its own bug: a coordinator that the memory monitor kills ends `Tuner.fit`. And Tune starts
its class of trainables, with a configuration and settings of its own, in an environment for which Ray starts
a process. All are tied to the Ray versions that they were read from.
"""

from __future__ import annotations

from typing import Any

import ray
from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.execution import tune_controller

from workbench.sweeps.coordinator import Coordinator
from workbench.sweeps.messages import ORDER_KEY


class Trainable(tune.Trainable):
    """What Tune knows a coordinator as; no process has one."""


class CoordinatorManager(RayActorManager):
    """Starts coordinators for Tune; any RayError of one is its death, after which Tune tries again."""

    _coordinators: Any = None
    _latest: CoordinatorManager | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Manage the coordinators of the run that begins."""
        super().__init__(*arguments, **options)
        CoordinatorManager._latest = self

    @classmethod
    def end_all(cls) -> None:
        """End the coordinators of a run that Tune left in the middle; their workers are returned."""
        if cls._latest is not None:
            cls._latest.cleanup()
            cls._latest = None

    def add_actor(  # type: ignore[override]
        self, cls: Any, kwargs: dict[str, Any], **others: Any
    ) -> Any:
        """Start a coordinator, which needs nothing of what Tune gives a trainable but its order."""
        if self._coordinators is None:
            self._coordinators = ray.remote(Coordinator)
        return super().add_actor(self._coordinators, {"order": kwargs["config"][ORDER_KEY]}, **others)

    def schedule_actor_task(  # type: ignore[override]
        self, tracked_actor: Any, method_name: str, args: Any = None, kwargs: Any = None, **others: Any
    ) -> Any:
        """Call a coordinator, as it expects it."""
        if method_name == "reset":
            args, kwargs = (args[0][ORDER_KEY],), None
        return super().schedule_actor_task(tracked_actor, method_name, args, kwargs, **others)

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(exception, RayActorError | RayTaskError):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}"[:2000])
        super()._actor_task_failed(tracked_actor_task, exception)


def install() -> None:
    """Let Tune manage its actors with `CoordinatorManager`."""
    tune_controller.RayActorManager = CoordinatorManager  # type: ignore[misc]


def release_ended(controller: Any, handled: Any) -> None:
    """Let Tune forget the trials that have ended: a run may have ten thousand, and the store has them.

    Args:
        controller: What Tune gives a scheduler; a trial whose actor is still there is kept.
        handled: The trial that Tune is handling, kept too: one whose actor died before it began is marked
            as failed for a moment, and is then tried again.
    """
    ended = controller._stopped_trials | controller._failed_trials
    ended.difference_update(controller._trial_to_actor)
    ended.discard(handled)
    if not ended:
        return
    for known in ("_stopped_trials", "_failed_trials", "_trials_to_cache", "_live_trials"):
        getattr(controller, known).difference_update(ended)
    controller._trials[:] = [trial for trial in controller._trials if trial not in ended]
