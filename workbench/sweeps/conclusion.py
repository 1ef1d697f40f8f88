"""Conclude a run whose last trial has ended: why it ended and, for some runs, the result.

The result is stored before the run is shown as ended, so that no view has to compute it. The
package that created the run chooses the model. It is imported by name, because it depends on
`sweeps`.
"""

from __future__ import annotations

import logging
import math
import time
from importlib import import_module

from workbench.experiment import Experiment
from workbench.experiment.populations import num_parts
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Event, Noted, RunStateChanged
from workbench.foundation.formatting import format_count
from workbench.store.database import Store
from workbench.store.history import History
from workbench.store.history.compression import BASE_RUN
from workbench.sweeps.budget import NOTHING_TO_PROPOSE

logger = logging.getLogger(__name__)

# The key is an option of the data or of the train function that only such a run has.
_CONCLUDED_BY = {
    "held_out": "workbench.runs.automl.conclusion:conclude",
    BASE_RUN: "workbench.deploy.compression.search:conclude",
}
# When the modules for the end are loaded: after at most so many seconds, or this part of the time.
_LOADED_AFTER = (10.0, 0.2)
# Without a complete trial, this part of the time.
_LATEST_PART = 0.5


class Preparation:
    """Loads what `result_of` needs while trials run, so that it can start at once.

    It loads in the thread that proposes trials: SciPy looks at torch, and would fail if another
    thread had loaded half of it.
    """

    def __init__(self, experiment: Experiment) -> None:
        """Find out what is needed.

        Args:
            experiment: What the run does.
        """
        self._named = _concluded_by(experiment)
        self._due_s = self._latest_s = math.inf
        if experiment.budget.time is not None:
            longest_s, part = _LOADED_AFTER
            self._due_s = time.monotonic() + min(longest_s, part * experiment.budget.time)
            self._latest_s = time.monotonic() + _LATEST_PART * experiment.budget.time

    def tick(self, *, has_result: bool) -> None:
        """Load it once when it is due. A first trial on a single processor should not wait for it.

        Args:
            has_result: Whether a trial is complete.
        """
        due_s = self._due_s if has_result else self._latest_s
        if self._named is None or time.monotonic() < due_s:
            return
        named, self._named = self._named, None
        _load(named)


def _load(named: str) -> None:
    try:
        module = import_module(named.partition(":")[0])
        for needed in getattr(module, "NEEDED", ()):
            import_module(needed)
    except Exception as error:  # choosing will meet it again, and report it
        logger.warning("the choice of a model could not be prepared", exc_info=error)


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
    if num_tried == 1:
        return "tried its only configuration"
    return f"tried all {tried}"


def result_of(
    store: Store, run_id: str, experiment: Experiment, ending: RunStateChanged
) -> list[Event]:
    """Return the result of a run as events, or none if the result is its best trial.

    Args:
        store: The store of the run.
        run_id: Its id.
        experiment: What it runs.
        ending: How it is about to end.
    """
    named = _concluded_by(experiment)
    if named is None:
        return []
    module, _, function = named.partition(":")
    try:
        return [getattr(import_module(module), function)(store, run_id, ending)]
    # The trials are stored: a result can still be chosen from them later.
    except Exception as error:
        logger.warning("no model could be chosen", exc_info=error)
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, WorkbenchError):
            problem = error.problem
        return [Noted(level="warning", message=f"no model could be chosen: {problem}")]


def _concluded_by(experiment: Experiment) -> str | None:
    components = [part for part in (experiment.data, experiment.train) if part is not None]
    options = {name for component in components for name in component.options}
    return next((target for option, target in _CONCLUDED_BY.items() if option in options), None)
