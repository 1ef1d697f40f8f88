"""What follows when the last trial of a run has ended: why it ended and, of some, its result.

The result is stored before the run is shown as ended, so that nobody who looks at it has to compute
it. How a model is chosen is left to the package that created the run, which is only named here.
"""

from __future__ import annotations

import logging
from importlib import import_module

from workbench.experiment import Experiment
from workbench.experiment.populations import num_parts
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Event, Noted, RunStateChanged
from workbench.foundation.formatting import format_count
from workbench.store.database import Store
from workbench.store.history import History
from workbench.store.history.compression import BASE_RUN

logger = logging.getLogger(__name__)

# By the option of the data or of the train function that marks such a run.
_CONCLUDED_BY = {
    "held_out": "workbench.runs.automl.conclusion:conclude",
    BASE_RUN: "workbench.deploy.compression.conclusion:conclude",
}


def natural_end(history: History, is_exhausted: bool, num_enqueued: int = 0) -> RunStateChanged:
    """Return the end of a run that nobody and no limit ended early.

    Args:
        history: The run.
        is_exhausted: Whether every configuration has been tried.
        num_enqueued: Configurations that users enqueued and that were not tried.
    """
    ending = _end_of_trials(history, is_exhausted)
    if not num_enqueued:
        return ending
    left_out = (
        "1 that was enqueued was not"
        if num_enqueued == 1
        else f"{num_enqueued} that were enqueued were not"
    )
    return ending.model_copy(update={"message": f"{ending.message}; {left_out}"})


def _end_of_trials(history: History, is_exhausted: bool) -> RunStateChanged:
    num_tried, needed = history.num_configurations(), num_parts(history.experiment)
    if history.replay_of is not None:
        reason, message = "trials", f"all proposals of {history.replay_of} have been tried"
    elif is_exhausted:
        tried = (
            "every combination was tried"
            if needed is None
            else "the population was trained to its end"
        )
        reason, message = "exhausted", tried
    elif needed is not None and num_tried < needed:
        missing = f"{num_tried} of the {needed} trials that train the population to its end"
        reason, message = (
            "trials",
            f"its budget ended after {missing}: the best may be trained in part only",
        )
    elif (allowed := history.in_force.max_configurations()) is not None and num_tried > allowed:
        begun = format_count(num_tried, "configuration")
        reason, message = (
            "trials",
            f"its budget was lowered to {allowed} when {begun} had begun, which were tried",
        )
    elif num_tried == 1:
        reason, message = "trials", "its only configuration was tried"
    else:
        reason, message = (
            "trials",
            f"all {format_count(num_tried, 'configuration')} of its budget were tried",
        )
    return RunStateChanged(state="complete", reason=reason, message=message)


def result_of(
    store: Store, run_id: str, experiment: Experiment, ending: RunStateChanged
) -> list[Event]:
    """Return the result of a run as events: none for a run whose result is its best trial.

    Args:
        store: The store of the run.
        run_id: Its id.
        experiment: What it runs.
        ending: How it is about to end.
    """
    components = [each for each in (experiment.data, experiment.train) if each is not None]
    options = {name for component in components for name in component.options}
    named = next((target for option, target in _CONCLUDED_BY.items() if option in options), None)
    if named is None:
        return []
    module, _, function = named.partition(":")
    try:
        return [getattr(import_module(module), function)(store, run_id, ending)]
    except (
        Exception
    ) as error:  # the trials are stored: a result can still be chosen from them later
        logger.warning("no model could be chosen", exc_info=error)
        problem = (
            error.problem
            if isinstance(error, WorkbenchError)
            else f"{type(error).__name__}: {error}"
        )
        return [Noted(level="warning", message=f"no model could be chosen: {problem}")]
