"""Runs coordinators in threads of the driver, in the place of the actors that Ray Tune would start.

A coordinator only waits for the workers of its trial: a process of its own would take a second to
start, hundreds of megabytes, and one more message for each report. What a coordinator does is left
to `coordinator`, what to run to Tune, whose controller calls the manager by the names of Ray's
`RayActorManager`, as they are in Ray 2.52 to 2.60.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from workbench.sweeps.coordinator import Coordinator
from workbench.sweeps.messages import ORDER_KEY
from workbench.sweeps.tune_names import TrackedActor, tune_controller

logger = logging.getLogger(__name__)

END_TIMEOUT_S = 3.0
"""How long coordinators may take to return their workers once they are ended.

Ray may not answer any more.
"""

_manager = threading.local()  # a process may drive several runs, each in a thread


@dataclass(eq=False)
class _Call:
    """A call of Tune to a coordinator, and what Tune does with the result."""

    actor: TrackedActor
    method: str = ""
    arguments: tuple[Any, ...] = ()
    on_result: Callable[..., None] | None = None
    result: tuple[Any, ...] = ()
    error: Exception | None = None
    is_discarded: bool = False


class _CoordinatorThread:
    """A coordinator, and the thread that carries out its calls in their order."""

    def __init__(self, coordinator: Coordinator, done: SimpleQueue[_Call]) -> None:
        self.coordinator = coordinator
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._done = done
        self._thread = threading.Thread(target=self._carry_out, name="coordinator", daemon=True)
        self._thread.start()

    def call(self, call: _Call) -> None:
        """Carry out a call after those before; one without a method is the last."""
        self._calls.put(call)

    def join(self, until_s: float) -> None:
        """Wait for the last call, at most until a time of the monotonic clock."""
        self._thread.join(max(0.0, until_s - time.monotonic()))

    def _carry_out(self) -> None:
        while (call := self._calls.get()).method:
            try:
                call.result = (getattr(self.coordinator, call.method)(*call.arguments),)
            except Exception as error:
                call.error = error
            self._done.put(call)
        try:
            self.coordinator.stop()
        except Exception:
            logger.exception("a coordinator did not return its workers")
        self._done.put(call)


class CoordinatorManager:
    """Starts and calls the coordinators of one run for Tune, which takes them for actors."""

    def __init__(self, resource_manager: object) -> None:
        """Manage the coordinators of the run that begins.

        Args:
            resource_manager: What Tune reserves resources with; a coordinator needs none.
        """
        self._done: SimpleQueue[_Call] = SimpleQueue()
        self._threads: dict[TrackedActor, _CoordinatorThread] = {}
        self._calls: defaultdict[TrackedActor, set[_Call]] = defaultdict(set)
        self._live_actors_to_ray_actors_resources: dict[TrackedActor, tuple[None]] = {}
        _manager.of_this_thread = self

    def coordinator(self, actor: TrackedActor) -> Coordinator:
        """Return a coordinator, which must not be carrying out a call.

        Args:
            actor: What Tune knows it as.
        """
        return self._threads[actor].coordinator

    def end(self) -> None:
        """End all coordinators; what they have leased is returned."""
        threads = list(self._threads.values())
        for actor in list(self._threads):
            self.remove_actor(actor)
        until_s = time.monotonic() + END_TIMEOUT_S
        for thread in threads:
            thread.join(until_s)
        self._threads.clear()

    # What Tune's controller calls.

    @property
    def num_live_actors(self) -> int:
        """How many coordinators there are."""
        return len(self._threads)

    @property
    def num_pending_actors(self) -> int:
        """How many coordinators wait for resources: none."""
        return 0

    @property
    def num_total_actors(self) -> int:
        """How many coordinators there are."""
        return len(self._threads)

    @property
    def num_actor_tasks(self) -> int:
        """How many calls have not been handled."""
        return sum(map(len, self._calls.values()))

    def add_actor(
        self,
        cls: object,
        kwargs: dict[str, Any],
        resource_request: object,
        *,
        on_start: Callable[[TrackedActor], None],
        on_stop: Callable[[TrackedActor], None],
        on_error: Callable[[TrackedActor, Exception], None],
    ) -> TrackedActor:
        """Start a coordinator, which needs nothing of what Tune gives a trainable but its order."""
        actor = TrackedActor(uuid.uuid4().int, on_stop=on_stop, on_error=on_error)
        self._threads[actor] = _CoordinatorThread(
            Coordinator(kwargs["config"][ORDER_KEY]), self._done
        )
        self._live_actors_to_ray_actors_resources[actor] = (None,)
        started = _Call(actor, on_result=on_start)
        self._calls[actor].add(started)
        self._done.put(started)
        return actor

    def schedule_actor_task(
        self,
        tracked_actor: TrackedActor,
        method_name: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        on_result: Callable[..., None] | None = None,
        on_error: Callable[..., None] | None = None,
        _return_future: bool = False,
    ) -> None:
        """Call a coordinator; the result is handled by `next`."""
        if method_name == "reset":
            args = (args[0][ORDER_KEY],)
        call = _Call(tracked_actor, method_name, args, on_result)
        self._calls[tracked_actor].add(call)
        self._threads[tracked_actor].call(call)

    def clear_actor_task_futures(self, tracked_actor: TrackedActor) -> None:
        """Ignore the results of the calls that have not been handled."""
        for call in self._calls.pop(tracked_actor, ()):
            call.is_discarded = True

    def remove_actor(
        self, tracked_actor: TrackedActor, kill: bool = False, stop_future: object = None
    ) -> bool:
        """End a coordinator after its present call; return whether there was one.

        Args:
            tracked_actor: What Tune knows it as.
            kill: Whether Tune has given up waiting for its end.
            stop_future: Ignored, since a coordinator that is ended returns its workers anyway.
        """
        if tracked_actor not in self._threads:
            return False
        self.clear_actor_task_futures(tracked_actor)
        if kill:
            self._forget(tracked_actor)
        else:
            self._threads[tracked_actor].call(_Call(tracked_actor, on_result=self._forget))
        return True

    def is_actor_started(self, tracked_actor: TrackedActor) -> bool:
        """Return whether there is such a coordinator."""
        return tracked_actor in self._threads

    def is_actor_failed(self, tracked_actor: TrackedActor) -> bool:
        """Return whether its process died: it has none."""
        return False

    def get_live_actors_resources(self) -> dict[str, float]:
        """Return the resources that coordinators reserve: none."""
        return {}

    def next(self, timeout: float | None = None) -> bool:
        """Handle the result of one call.

        Args:
            timeout: How long to wait for one, in seconds; None for as long as it takes.

        Returns:
            Whether there was one.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                call = self._done.get(
                    timeout=None if until_s is None else max(0.0, until_s - time.monotonic())
                )
            except Empty:
                return False
            if not call.is_discarded:
                break
        self._calls.get(call.actor, set()).discard(call)
        if call.error is not None:
            raise call.error  # a coordinator reports what its trial does; this is its own mistake
        if call.on_result is not None:
            call.on_result(call.actor, *call.result)
        return True

    def cleanup(self) -> None:
        """End all coordinators."""
        self.end()

    def _forget(self, actor: TrackedActor) -> None:
        del self._threads[actor], self._live_actors_to_ray_actors_resources[actor]
        self._calls.pop(actor, None)
        if actor._on_stop is not None:
            actor._on_stop(actor)


def install() -> None:
    """Let Tune run its trials in `CoordinatorManager`."""
    tune_controller.RayActorManager = CoordinatorManager  # type: ignore[assignment, misc]


def end_all() -> None:
    """End the coordinators of the run that this thread drove, where Tune left it in the middle."""
    manager: CoordinatorManager | None = _manager.__dict__.pop("of_this_thread", None)
    if manager is not None:
        manager.end()
