"""Run coordinators in place of Ray Tune's actors: the only use of Tune's internals.

A coordinator only waits for the workers of its trial. A separate process for it would take a second
to start, hundreds of megabytes of memory, and one more message for each report. Tune has no setting
for where trials run. Its controller therefore gets another actor manager, which runs coordinators
in threads of the driver. `coordinator` says what a coordinator does, and Tune decides what runs.

`PRIVATE_NAMES` lists each name that Ray does not document. A test compares these names, and the
calls of Tune's controller, with the lowest and the newest version of Ray that is allowed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from workbench.cluster.head.ray_startup.sitecustomize import without_ray_data
from workbench.sweeps.coordinator import Coordinator, Order

with without_ray_data():  # which no run uses: loading it takes half a second
    from ray import tune
    from ray.tune.execution import experiment_state, tune_controller
    from ray.tune.progress_reporter import TrialProgressCallback
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler
    from ray.tune.search import Searcher

__all__ = ["FIFOScheduler", "Searcher", "TrialProgressCallback", "TrialScheduler", "tune"]

PRIVATE_NAMES = {
    "ray.tune.execution.tune_controller.RayActorManager": (
        "is replaced by `CoordinatorManager`, because trials need no processes of Tune"
    ),
    "ray.tune.execution.experiment_state.out_of_band_serialize_dataset": (
        "would load Ray Data for half a second to look for data sets in Tune's saved state"
    ),
    "ray.tune.progress_reporter.TrialProgressCallback": (
        "replaces Tune's own display, which keeps every trial in memory and prints tables"
    ),
}
"""Names of Ray Tune that are not documented, each with the reason why it is used."""

logger = logging.getLogger(__name__)

ASSIGNMENT_KEY = "assignment"
"""The one parameter of Tune's trials."""
END_TIMEOUT_S = 3.0
"""How long coordinators may take to return their workers at the end: Ray may no longer answer."""

experiment_state.out_of_band_serialize_dataset = contextlib.nullcontext  # pyright: ignore[reportPrivateImportUsage]

_manager = threading.local()  # a process may drive several runs, each in a thread


class Assignment:
    """One trial in Tune's view: a coordinator, with the trial of the run that it carries out now.

    Tune copies configurations. The copy of an assignment is the assignment itself, so the scheduler
    reaches the coordinator without asking Tune.
    """

    def __init__(self, order: Order) -> None:
        """Start with a trial for which Tune has not started a coordinator yet."""
        self.order = order
        self.thread: CoordinatorThread | None = None

    def take(self, order: Order) -> None:
        """Give the idle coordinator another trial."""
        assert self.thread is not None
        self.order = order
        self.thread.coordinator.take(order)

    def rest(self) -> None:
        """Let the coordinator return its workers, because there is no trial for it now."""
        assert self.thread is not None
        self.thread.call(_Call(self.thread, "rest", is_discarded=True))

    def __deepcopy__(self, memo: object) -> Assignment:
        return self

    def __reduce__(self) -> tuple[type[Assignment], tuple[Order]]:
        return Assignment, (self.order,)  # Tune pickles its state, but threads cannot be

    def __repr__(self) -> str:
        return str(self.order)  # Tune writes configurations into names and logs


@dataclass(eq=False)
class _Call:
    """A call of Tune to a coordinator, and what Tune does with the result."""

    thread: CoordinatorThread
    method: str = ""
    arguments: tuple[Any, ...] = ()
    on_result: Callable[..., None] | None = None
    result: tuple[Any, ...] = ()
    error: Exception | None = None
    is_discarded: bool = False


class CoordinatorThread:
    """A coordinator with the thread that carries out its calls. Tune takes it for an actor."""

    def __init__(self, assignment: Assignment, done: SimpleQueue[_Call]) -> None:
        assignment.thread = self
        self.coordinator = Coordinator(assignment.order)
        self.on_stop: Callable[[CoordinatorThread], None] | None = None
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._done = done
        self._thread = threading.Thread(target=self._carry_out, name="coordinator", daemon=True)
        self._thread.start()

    def call(self, call: _Call) -> None:
        """Queue a call. A call without a method ends the coordinator."""
        self._calls.put(call)

    def join(self, until_s: float) -> None:
        """Wait for the last call, at most until a time of the monotonic clock."""
        self._thread.join(max(0.0, until_s - time.monotonic()))

    def _carry_out(self) -> None:
        methods: dict[str, Callable[..., object]] = {
            "train": self.coordinator.train,
            "reset": self.coordinator.reset,
            "rest": self.coordinator.rest,
            "stop": self.coordinator.stop,
        }
        while (call := self._calls.get()).method:
            try:
                call.result = (methods[call.method](*call.arguments),)
            except Exception as error:
                call.error = error
            self._done.put(call)
        try:
            self.coordinator.stop()
        except Exception:
            logger.exception("a coordinator did not return its workers")
        self._done.put(call)

    # What Tune's controller calls.

    def set_on_stop(self, on_stop: Callable[[CoordinatorThread], None] | None) -> None:
        """Call another function of Tune when the coordinator has ended."""
        self.on_stop = on_stop

    def set_on_error(self, on_error: object) -> None:
        """Do nothing: a coordinator has no process that could die."""


class _NoRayActors:
    """Tells Tune, which looks up the Ray actor behind each of its actors, that there is none."""

    def __getitem__(self, thread: CoordinatorThread) -> tuple[None]:
        return (None,)


class CoordinatorManager:
    """Starts and calls the coordinators of one run for Tune, which takes them for actors."""

    def __init__(self, resource_manager: object) -> None:
        """Manage the coordinators of the run that starts.

        Args:
            resource_manager: What Tune reserves resources with. A coordinator needs none.
        """
        self._done: SimpleQueue[_Call] = SimpleQueue()
        self._threads: set[CoordinatorThread] = set()
        self._calls: defaultdict[CoordinatorThread, set[_Call]] = defaultdict(set)
        _manager.of_this_thread = self

    def end(self) -> None:
        """End all coordinators. What they have leased is returned."""
        threads = list(self._threads)
        for thread in threads:
            self.remove_actor(thread)
        until_s = time.monotonic() + END_TIMEOUT_S
        for thread in threads:
            thread.join(until_s)
        self._threads.clear()

    # What Tune's controller reads and calls.

    _live_actors_to_ray_actors_resources = _NoRayActors()

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
        on_start: Callable[[CoordinatorThread], None],
        on_stop: Callable[[CoordinatorThread], None],
        on_error: object,
    ) -> CoordinatorThread:
        """Start a coordinator. It needs only the assignment from Tune's arguments."""
        thread = CoordinatorThread(kwargs["config"][ASSIGNMENT_KEY], self._done)
        thread.set_on_stop(on_stop)
        self._threads.add(thread)
        started = _Call(thread, on_result=on_start)
        self._calls[thread].add(started)
        self._done.put(started)
        return thread

    def schedule_actor_task(
        self,
        tracked_actor: CoordinatorThread,
        method_name: str,
        args: tuple[Any, ...] = (),
        *,
        kwargs: dict[str, Any] | None = None,
        on_result: Callable[..., None] | None = None,
        on_error: object = None,
        _return_future: bool = False,
    ) -> None:
        """Call a coordinator. The result is handled by `next`."""
        if method_name == "reset":  # Tune starts another trial, in the same thread
            assignment: Assignment = args[0][ASSIGNMENT_KEY]
            assignment.thread = tracked_actor
            args = (assignment.order,)
        call = _Call(tracked_actor, method_name, args, on_result)
        self._calls[tracked_actor].add(call)
        tracked_actor.call(call)

    def clear_actor_task_futures(self, tracked_actor: CoordinatorThread) -> None:
        """Ignore the results of the calls that have not been handled."""
        for call in self._calls.pop(tracked_actor, ()):
            call.is_discarded = True

    def remove_actor(
        self, tracked_actor: CoordinatorThread, kill: bool = False, stop_future: object = None
    ) -> bool:
        """End a coordinator after its current call, and return whether it existed.

        Args:
            tracked_actor: The coordinator.
            kill: Whether Tune has given up waiting for its end.
            stop_future: Ignored, because a coordinator always returns its workers when it ends.
        """
        if tracked_actor not in self._threads:
            return False
        self.clear_actor_task_futures(tracked_actor)
        if kill:
            self._forget(tracked_actor)
        else:
            tracked_actor.call(_Call(tracked_actor, on_result=self._forget))
        return True

    def is_actor_started(self, tracked_actor: CoordinatorThread) -> bool:
        """Return whether there is such a coordinator."""
        return tracked_actor in self._threads

    def is_actor_failed(self, tracked_actor: CoordinatorThread) -> bool:
        """Return whether its process died: it has none."""
        return False

    def get_live_actors_resources(self) -> dict[str, float]:
        """Return the resources that coordinators reserve: none."""
        return {}

    def next(self, timeout: float | None = None) -> bool:
        """Handle the result of one call.

        Args:
            timeout: How long to wait for a result, in seconds. None means without limit.

        Returns:
            Whether there was one.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                call = self._done.get(timeout=left_s)
            except Empty:
                return False
            if not call.is_discarded:
                break
        self._calls.get(call.thread, set()).discard(call)
        if call.error is not None:
            raise call.error  # a bug of the coordinator: it reports the errors of its trial
        if call.on_result is not None:
            call.on_result(call.thread, *call.result)
        return True

    def cleanup(self) -> None:
        """End all coordinators."""
        self.end()

    def _forget(self, thread: CoordinatorThread) -> None:
        self._threads.remove(thread)
        self._calls.pop(thread, None)
        if thread.on_stop is not None:
            thread.on_stop(thread)


def install() -> None:
    """Let Tune run its trials in `CoordinatorManager`."""
    tune_controller.RayActorManager = CoordinatorManager  # type: ignore[assignment, misc]


def end_all() -> None:
    """End the coordinators that are left if Tune failed while this thread drove a run."""
    manager: CoordinatorManager | None = _manager.__dict__.pop("of_this_thread", None)
    if manager is not None:
        manager.end()
