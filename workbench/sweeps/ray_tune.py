"""Let Ray Tune run the trials of a driver, through thin adapters and without Tune's output.

Tune decides when a trial can start, and transports results. The driver decides what to try, when to
stop and what to store, so the adapters keep no state except Tune's trial names. Tune sees all
trials that a coordinator runs in a row as one trial, because ending one and starting another takes
Tune longer than many trials need.

Tune's own folders are temporary. Loggers, experiment snapshots and restore are switched off, and
the adapters are never pickled: runs are resumed from the store only.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, Protocol

from workbench.cluster import ray_internals
from workbench.foundation.events import Event
from workbench.sweeps import tune_internals
from workbench.sweeps.coordinator import EVENTS_KEY, Order
from workbench.sweeps.tune_internals import (
    ASSIGNMENT_KEY,
    Assignment,
    FIFOScheduler,
    Searcher,
    TrialProgressCallback,
    TrialScheduler,
    tune,
)

NEVER_S = "1000000000"
UNLIMITED = "1000000"
_TRAINABLE = "workbench"
"""The trainable's name in Tune's registry. It never runs, because coordinators replace it."""
_REGISTERING = threading.Lock()
"""Tune's registry is not thread-safe, and a process may drive several runs in threads."""


class Conductor(Protocol):
    """What the adapters need from the driver."""

    def next_order(self) -> Order | None:
        """Return the next trial to start, or None if there is none now."""
        ...

    def is_over(self) -> bool:
        """Return whether no further trial will start."""
        ...

    def receive(self, trial: int, events: list[Event]) -> bool:
        """Store what a trial reported, and return whether it must stop."""
        ...

    def tick(self) -> None:
        """Do periodic work. It is called at least once a second."""
        ...


def fit(conductor: Conductor, name: str) -> None:
    """Let Tune run trials until there are none left.

    Args:
        conductor: Decides which trials to start and when to stop them.
        name: Name of the run in Tune's own folders.
    """
    # The conductor decides how many trials may start, and is called also while some of them wait.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = UNLIMITED
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = NEVER_S
    # Tune's own handler would treat an interruption as the end of the run.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    tune_internals.install()
    # This logger warns once per trial that the files of Tune's loggers are missing.
    logging.getLogger("ray.tune.analysis").setLevel(logging.ERROR)
    # This one warns if handling a result takes long, but that includes proposing the next trial.
    logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)
    prefix, session_folder = _clear_scratch(name)
    with _REGISTERING:
        tune.register_trainable(_TRAINABLE, tune.Trainable)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=session_folder) as scratch:
        tuner = tune.Tuner(
            _TRAINABLE,
            tune_config=tune.TuneConfig(
                search_alg=StudySearcher(conductor),
                scheduler=StudyScheduler(conductor),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=scratch,
                verbose=0,
                progress_reporter=tune.CLIReporter(),
                callbacks=[NoProgress()],
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        try:
            tuner.fit()
        finally:
            tune_internals.end_all()


def _clear_scratch(name: str) -> tuple[str, str]:
    """Remove the folders of a killed driver, and return the prefix and parent of the next folder.

    The parent is Ray's own session folder, so that leftovers disappear with the cluster.
    """
    folder = ray_internals.session_folder()
    prefix = f"workbench-tune-{name}-"
    for left_over in Path(folder).glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    return prefix, folder


class StudySearcher(Searcher):
    """Hands the driver's tasks to Tune as configurations."""

    def __init__(self, conductor: Conductor) -> None:
        """Take tasks from `conductor`."""
        super().__init__()
        self._conductor = conductor
        self._assignments: dict[str, Assignment] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        """Return Tune's configuration for the next trial, None to wait, or FINISHED."""
        self._conductor.tick()
        order = self._conductor.next_order()
        if order is None:
            return Searcher.FINISHED if self._conductor.is_over() else None
        self._assignments[trial_id] = Assignment(order)
        return {ASSIGNMENT_KEY: self._assignments[trial_id]}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on the last events of a trial."""
        assignment = self._assignments.pop(trial_id)
        if result is not None:
            self._conductor.receive(assignment.order.task.trial, result.get(EVENTS_KEY, []))

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: everything is in the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Refuse: a run is resumed from the store."""
        raise NotImplementedError("a run is resumed from the store")


class StudyScheduler(FIFOScheduler):
    """Passes results to the driver, and stops trials when the driver decides so."""

    def __init__(self, conductor: Conductor) -> None:
        """Pass results to `conductor`."""
        super().__init__()
        self._conductor = conductor

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return CONTINUE while the coordinator has something to do: this trial or the next."""
        assignment: Assignment = trial.config[ASSIGNMENT_KEY]
        _forget_ended(tune_controller.get_trials())
        self._conductor.tick()
        if not self._conductor.receive(assignment.order.task.trial, result.get(EVENTS_KEY, [])):
            return TrialScheduler.CONTINUE
        order = self._conductor.next_order()
        if order is None:
            assignment.rest()
            return TrialScheduler.STOP
        assignment.take(order)
        return TrialScheduler.CONTINUE

    def __getstate__(self) -> dict[str, Any]:
        return {}


class NoProgress(TrialProgressCallback):
    """Takes the place of Tune's output of results."""

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Print nothing."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print nothing."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print nothing, and forget the results, which the driver has received."""
        for results in (trial.last_result, trial.metric_analysis, trial.metric_n_steps):
            results.clear()


def _forget_ended(trials: list[Any]) -> None:
    """Remove ended trials from Tune's own list, which it goes through at every step."""
    if any(trial.is_finished() for trial in trials):
        trials[:] = [trial for trial in trials if not trial.is_finished()]
