"""Changes to Ray Tune: killed coordinators end no sweep, coordinators start fast, ended trials are forgotten.

Ray's actor manager knows two kinds of failure, an actor that died and a task that raised, and treats any
other RayError as its own bug: a coordinator that the memory monitor kills ends `Tuner.fit`. The guard
turns those into actor failures, which Tune retries. And Tune gives each of its actors an environment, for
which Ray then starts a process. Both are tied to the Ray versions that they were read from.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.execution.class_cache import _ActorClassCache


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


def use_spare_processes() -> None:
    """Let Tune start coordinators in processes that Ray has started ahead, which have no variables of a run.

    To be called on the local head, whose processes have the variables that Tune would set.
    """

    def actor_class(self: Any, trainable_cls: Any) -> Any:
        if trainable_cls not in self._cache:
            self._cache[trainable_cls] = ray.remote(trainable_cls)
        return self._cache[trainable_cls]

    _ActorClassCache.get = actor_class


def release_ended(tune_controller: Any, handled: Any) -> None:
    """Let Tune forget the trials that have ended: a run may have ten thousand, and the store has them.

    Args:
        tune_controller: What Tune gives a scheduler; a trial whose actor is still there is kept.
        handled: The trial that Tune is handling, kept too: one whose actor died before it began is marked
            as failed for a moment, and is then tried again.
    """
    ended = tune_controller._stopped_trials | tune_controller._failed_trials
    ended.difference_update(tune_controller._trial_to_actor)
    ended.discard(handled)
    if not ended:
        return
    for known in ("_stopped_trials", "_failed_trials", "_trials_to_cache", "_live_trials"):
        getattr(tune_controller, known).difference_update(ended)
    tune_controller._trials[:] = [trial for trial in tune_controller._trials if trial not in ended]
