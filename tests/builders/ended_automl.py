"""AutoML runs without a driver: only stored, or trained to the end in this process."""

from __future__ import annotations

from typing import Any

import workbench as wb
from tests.builders.recorded_runs import append, begin
from workbench.foundation.events import Event, RunStateChanged, TrialProposed
from workbench.runs.automl import launch
from workbench.runs.automl.request import Request
from workbench.store.database import Store
from workbench.sweeps.conclusion import result_of
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ENDED = RunStateChanged(state="complete", reason="time")


def create_automl(
    data: Any,
    target: str | None = None,
    *,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    **options: Any,
) -> wb.AutoML:
    """Store an AutoML run that waits for a driver.

    Args:
        data: The data set.
        target: The column to predict.
        store: The store.
        launcher: As in `sweep`.
        address: As in `sweep`.
        **options: The other arguments of `automl`.
    """
    request = Request(data=data, target=target, **options)
    return launch.create(request, store=store, launcher=launcher, address=address)


def end(found: wb.AutoML, *configurations: dict[str, Any]) -> wb.AutoML:
    """Train configurations on all folds, store the result, and return a handle that reads it.

    Args:
        found: A run that `create_automl` made.
        configurations: What is tried.
    """
    store, run_id = found.run.store, found.run.run_id
    append(store, run_id, [*begin(), *trained(found, *configurations)])
    conclude(found)
    return wb.AutoML.attach(run_id, store=store)


def trained(found: wb.AutoML, *configurations: dict[str, Any], first: int = 0) -> list[Event]:
    """Return the events of training configurations on all folds.

    Args:
        found: The run.
        configurations: What is tried.
        first: The number of the first trial.
    """
    run_id, experiment = found.run.run_id, found.run.experiment
    artifacts, events = found.run.store.artifacts_of(run_id), list[Event]()
    number = first
    for params in configurations:
        configuration = number
        for repeat, seed in enumerate(found._learning.training_seeds):
            events.append(
                TrialProposed(
                    trial=number,
                    params=params,
                    configuration=configuration,
                    repeat=repeat,
                    seed=seed,
                )
            )
            task = TrialTask(
                run_id,
                number,
                0,
                experiment.model_dump_json(),
                objects=artifacts.below("objects").url,
                params=params,
                seed=seed,
                folder=artifacts.below(f"trials/{number}").url,
            )
            events.append(run_trial(task, lambda event: events.append(event) or False))
            number += 1
    return events


def conclude(found: wb.AutoML) -> None:
    """Choose, test and store the model of a run whose trials have ended, as its driver does."""
    store, run_id = found.run.store, found.run.run_id
    stored = result_of(store, run_id, found.run.experiment, ENDED)
    append(store, run_id, [*stored, ENDED])
