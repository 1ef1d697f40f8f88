"""Thin adapters for Ray Tune: a Searcher and a TrialScheduler that delegate to the driver.

Tune decides when a trial can start, and carries results. What to try, when to stop and what to
store is left to the driver, so the adapters keep no state beyond Tune's trial names. Tune never
pickles them: a run is resumed from the store. To Tune, all trials that a coordinator runs in a row
are one trial: ending one and starting another costs it more than many trials take.
"""

from __future__ import annotations

from typing import Any, Protocol

from workbench.foundation.events import Event
from workbench.sweeps.messages import EVENTS_KEY, ORDER_KEY, Order
from workbench.sweeps.tune_names import (
    FIFOScheduler,
    Searcher,
    TrialProgressCallback,
    TrialScheduler,
)


class Conductor(Protocol):
    """What the adapters need from the driver."""

    def next_order(self) -> Order | None:
        """Return the next trial to start, or None where there is none now."""
        ...

    def is_over(self) -> bool:
        """Return whether no further trial will start."""
        ...

    def receive(self, trial: int, events: list[Event]) -> bool:
        """Store what a trial reported, and return whether it must stop."""
        ...

    def tick(self) -> None:
        """Do periodic work; called at least once a second."""
        ...


class StudySearcher(Searcher):
    """Hands the driver's tasks to Tune as configurations."""

    def __init__(self, conductor: Conductor) -> None:
        """Take tasks from `conductor`."""
        super().__init__()
        self._conductor = conductor
        self._trials: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        """Return Tune's configuration for the next trial, None to wait, or FINISHED."""
        self._conductor.tick()
        order = self._conductor.next_order()
        if order is None:
            return Searcher.FINISHED if self._conductor.is_over() else None
        self._trials[trial_id] = order.task.trial
        return {ORDER_KEY: order}

    def note_next(self, trial_id: str, order: Order) -> None:
        """Remember that what is one trial to Tune continues with another trial of the run."""
        self._trials[trial_id] = order.task.trial

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on the last events of a trial."""
        trial = self._trials.pop(trial_id)
        if result is not None:
            self._conductor.receive(trial, result.get(EVENTS_KEY, []))

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: everything is in the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Refuse: a run is resumed from the store."""
        raise NotImplementedError("a run is resumed from the store")


class StudyScheduler(FIFOScheduler):
    """Passes results to the driver, and stops trials when the driver decides so."""

    def __init__(self, conductor: Conductor, searcher: StudySearcher) -> None:
        """Pass results to `conductor`, and tell `searcher` which trials are next."""
        super().__init__()
        self._conductor = conductor
        self._searcher = searcher

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return CONTINUE while the coordinator has something to do.

        This trial or the next, else STOP.
        """
        events = result.get(EVENTS_KEY, [])
        controller = tune_controller._tune_controller  # without the wrapper, which warns
        _forget_ended(controller)
        self._conductor.tick()
        if not self._conductor.receive(trial.config[ORDER_KEY].task.trial, events):
            return TrialScheduler.CONTINUE
        order = self._conductor.next_order()
        coordinators, actor = controller._actor_manager, controller._trial_to_actor[trial]
        if order is None:
            coordinators.schedule_actor_task(actor, "rest")
            return TrialScheduler.STOP
        coordinators.coordinator(actor).take(order)
        self._searcher.note_next(trial.trial_id, order)
        trial.config[ORDER_KEY] = order
        return TrialScheduler.CONTINUE

    def __getstate__(self) -> dict[str, Any]:
        return {}


class NoProgress(TrialProgressCallback):
    """Takes the place of Tune's output of results, which keeps every trial."""

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Print nothing."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print nothing."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print nothing, and forget the results, which the driver has received."""
        results = trial.run_metadata
        results.last_result, results.metric_analysis, results.metric_n_steps = {}, {}, {}


def _forget_ended(controller: Any) -> None:
    """Let Tune forget the trials that have ended.

    A run may have ten thousand, and the store has them.
    """
    ended = controller._stopped_trials - controller._trial_to_actor.keys()
    if not ended:
        return
    for known in ("_stopped_trials", "_trials_to_cache", "_live_trials"):
        getattr(controller, known).difference_update(ended)
    controller._trials[:] = [trial for trial in controller._trials if trial not in ended]
