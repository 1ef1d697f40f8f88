"""The result of an AutoML run as the driver stores it when the last trial has ended.

Choosing and testing is left to `result`.
"""

from __future__ import annotations

import json

from workbench.experiment.automl import concluding_s
from workbench.foundation.events import ModelChosen, RunState, RunStateChanged
from workbench.foundation.python_values import plain
from workbench.runs.automl.result import AutoML
from workbench.runs.run import Run
from workbench.runs.stored_run import StoredRun
from workbench.store.database import Store
from workbench.store.history import History

# If trials took longer than planned, choosing makes up for it, but not entirely.
_LEAST_S, _LEAST_PART = 2.0, 0.5


class _EndingRun(StoredRun):
    """A run as it will be once its end is stored."""

    def __init__(self, store: Store, run_id: str, ending: RunStateChanged) -> None:
        super().__init__(store, run_id)
        self._ending = ending
        self._ended = super().history
        self._ended.apply(ending)

    @property
    def state(self) -> RunState:
        return self._ending.state

    @property
    def history(self) -> History:
        return self._ended


def conclude(store: Store, run_id: str, ending: RunStateChanged) -> ModelChosen:
    """Choose the model of a run, test it, and return the result.

    Args:
        store: The store of the run.
        run_id: Its id. No trial may be under way.
        ending: How the run is about to end.

    Raises:
        RunError: If models failed, and none was trained.
    """
    run = Run(store, run_id)
    run.stored = _EndingRun(store, run_id, ending)
    automl = AutoML(run)
    history = automl.run.history
    if (limit_s := history.in_force.budget.time) is not None:
        left_s = limit_s - history.limited_s(history.now_unix_s())
        planned_s = concluding_s(history.in_force)
        least_s = min(planned_s, max(_LEAST_S, _LEAST_PART * planned_s))
        automl.longest_s = max(left_s, least_s)
    automl.refit()
    automl.store_model()
    return ModelChosen(result=json.loads(json.dumps(plain(automl.to_json()))))
