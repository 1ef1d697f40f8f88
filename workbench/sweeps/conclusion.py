"""Conclude a run whose last trial has ended: why it ended and, for some runs, the result.

The result is stored before the run is shown as ended, so that no view has to compute it. The
package that created the run chooses the model. It is imported by name, because it depends on
`sweeps`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from workbench.experiment import Experiment
from workbench.experiment.populations import num_parts
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Event, Noted, RunStateChanged
from workbench.foundation.formatting import format_count
from workbench.store.database import Store
from workbench.store.history import History
from workbench.store.history.compression import BASE_RUN
from workbench.sweeps.budget import NOTHING_TO_PROPOSE

if TYPE_CHECKING:
    from workbench.cluster.workers.admission import Request

logger = logging.getLogger(__name__)

# The key is an option of the data or of the train function that only such a run has.
_CONCLUDED_BY = {
    "held_out": "workbench.runs.automl.conclusion:conclude",
    BASE_RUN: "workbench.deploy.compression.search:conclude",
}
# How long to wait for a worker. All trials have ended: one is free unless other runs use it.
_WORKER_S = 2.0


def natural_end(
    history: History,
    is_exhausted: bool,
    num_enqueued: int = 0,
    *,
    is_stopped_by_sampler: bool = False,
) -> RunStateChanged:
    """Return how a run ends that was not ended early by a user or a limit.

    Args:
        history: The run.
        is_exhausted: Whether nothing is left to try, whatever the budget allows.
        num_enqueued: Configurations that users enqueued and that were not tried.
        is_stopped_by_sampler: Whether its sampler ended the run, with nothing left to propose.
    """
    if history.replay_of is not None:
        reason, message = "trials", f"all proposals of {history.replay_of} have been tried"
    elif is_exhausted:
        reason, message = "exhausted", _why_exhausted(history, is_stopped_by_sampler)
    else:
        reason, message = "trials", _what_was_tried(history)
    if num_enqueued:
        were = "was" if num_enqueued == 1 else "were"
        enqueued = format_count(num_enqueued, "enqueued configuration")
        message += f". {enqueued} {were} not tried"
    return RunStateChanged(state="complete", reason=reason, message=message)


def _why_exhausted(history: History, is_stopped_by_sampler: bool) -> str:
    """Return why no configuration is left, whatever the budget allows."""
    if is_stopped_by_sampler:
        return NOTHING_TO_PROPOSE
    if num_parts(history.experiment.sampler, history.experiment.training.epochs) is None:
        return "every combination was tried"
    return "the population was trained to its end"


def _what_was_tried(history: History) -> str:
    """Return what a run has tried if its budget allows no further configuration."""
    num_tried = history.num_configurations()
    needed = num_parts(history.experiment.sampler, history.experiment.training.epochs)
    if needed is not None and num_tried < needed:
        missing = f"{num_tried} of the {needed} trials that train the population to its end"
        return f"its budget ran out after {missing}, so the best one may not be fully trained"
    allowed = history.in_force.max_configurations()
    tried = format_count(num_tried, "configuration")
    if allowed is not None and num_tried > allowed:
        return f"its budget was lowered to {allowed} when {tried} had already started"
    if not history.in_force.search.has_choice and num_tried == 1:
        return "tried its only configuration"
    num_different = history.num_different_configurations()
    if num_different < num_tried:
        different = format_count(num_different, "configuration")
        return f"tried {different} in {num_tried} proposals"
    return f"tried {tried}, its whole budget"


def result_of(
    store: Store,
    run_id: str,
    experiment: Experiment,
    ending: RunStateChanged,
    *,
    request: Request | None = None,
) -> list[Event]:
    """Return the result of a run as events, or none if the result is its best trial.

    A worker that has trained has loaded what choosing needs, which takes seconds of a processor. So
    the choice is made there if a worker on this node is free.

    Args:
        store: The store of the run.
        run_id: Its id.
        experiment: What it runs.
        ending: How it is about to end.
        request: What a trial requests from the pool, or None to choose in this process.
    """
    named = _concluded_by(experiment)
    if named is None:
        return []
    try:
        event = None
        if request is not None:
            event = _concluded_in_worker(store, run_id, ending, named, request)
        return [_call(named, store, run_id, ending) if event is None else event]
    # The trials are stored: a result can still be chosen from them later.
    except Exception as error:
        logger.warning("no model could be chosen", exc_info=error)
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, WorkbenchError):
            problem = error.problem
        return [Noted(level="warning", message=f"no model could be chosen: {problem}")]


def _call(named: str, store: Store, run_id: str, ending: RunStateChanged) -> Event:
    module, _, function = named.partition(":")
    return getattr(import_module(module), function)(store, run_id, ending)


def _concluded_in_worker(
    store: Store, run_id: str, ending: RunStateChanged, named: str, request: Request
) -> Event | None:
    """Return the result that a worker on this node chose, or None if none could."""
    import ray  # a result can be chosen without
    from ray.exceptions import RayError

    from workbench.cluster.workers.gang import Gang

    try:
        gang = Gang.lease(replace(request, trial=None, num_workers=1), _WORKER_S)
    except WorkbenchError as error:
        logger.warning("no worker can choose a model, so the driver does: %s", error)
        return None
    where = (store.url, store.artifacts.url)
    try:
        if gang.workers[0].node != ray.get_runtime_context().get_node_id():
            return None
        return gang.call(f"{__name__}:conclude_at", *where, run_id, named, ending)
    except RayError as error:
        logger.warning("the worker that chose a model was lost: %s", error)
        return None
    finally:
        gang.release()


def conclude_at(
    url: str, artifacts: str, run_id: str, named: str, ending: RunStateChanged
) -> Event:
    """Return the result of a run in another process than its driver.

    Args:
        url: The address of the store.
        artifacts: Path or URL under which the runs' files are kept.
        run_id: The run.
        named: What chooses, as `module:name`.
        ending: How the run is about to end.
    """
    with Store.open(url, artifacts) as store:
        return _call(named, store, run_id, ending)


def _concluded_by(experiment: Experiment) -> str | None:
    components = [part for part in (experiment.data, experiment.train) if part is not None]
    options = {name for component in components for name in component.options}
    return next((target for option, target in _CONCLUDED_BY.items() if option in options), None)
