"""The result of an AutoML run as the driver stores it when the last trial has ended.

On a busy machine, a run gets its result without a driver. Choosing and testing is left to
`result`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

from workbench.experiment import Experiment
from workbench.experiment.automl import concluding_s
from workbench.foundation.errors import PROBLEMS_VARIABLE, RunError
from workbench.foundation.events import (
    DriverStarted,
    ModelChosen,
    Noted,
    RunState,
    RunStateChanged,
    SettingsChanged,
    steady_unix_s,
)
from workbench.foundation.python_values import plain
from workbench.hardware.resources import num_usable_cpus
from workbench.runs.automl.result import AutoML
from workbench.runs.automl.trials_here import Ending, train_here
from workbench.runs.run import Run
from workbench.runs.stored_run import StoredRun
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.code_versions import write_origin
from workbench.sweeps.conclusion import result_of

# If trials took longer than planned, choosing makes up for it, but not entirely.
_LEAST_S, _LEAST_PART = 2.0, 0.5
_POLL_S = 0.1


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


_ENDINGS: dict[Ending, dict[str, str]] = {
    "stopped": {"state": "stopped", "reason": "person", "message": "by the user"},
    "late": {"state": "complete", "reason": "time", "message": "its time is used up"},
    "tried": {
        "state": "complete",
        "reason": "time",
        "message": "all first configurations were tried",
    },
}


def conclude_here(store: Store, run_id: str, why: str, *, waited_s: float) -> None:
    """Train the candidates of a run that was not driven in this process, choose one, and end it.

    It needs neither Ray nor other processes, which take most of a short time on a busy machine.
    Extending the run continues it with further trials.

    Args:
        store: The store of the run.
        run_id: Its id.
        why: Why it is not driven.
        waited_s: How long the user has waited before, in seconds.

    Raises:
        LeaseError: If another process drives the run.
        KeyboardInterrupt: If the user stopped it. The run is stored as stopped.
    """
    owner_pid, owner_host = os.getpid(), socket.gethostname()
    ending = RunStateChanged(state="stopped", reason="person", message="interrupted")
    experiment = store.experiment(run_id)
    with store.writer(run_id, owner_pid=owner_pid, owner_host=owner_host) as writer:
        # A driver that continues the run, such as after a kill, looks for it next to checkpoints.
        write_origin(store.artifacts_of(run_id), experiment=experiment)
        writer.append(
            DriverStarted(pid=owner_pid, host=owner_host, num_cpus=num_usable_cpus()),
            RunStateChanged(state="running"),
            SettingsChanged(settings={}, waited_s=round(waited_s, 1)),
            Noted(level="info", message=why),
        )
        result = []
        try:
            left_s = _left_for_trials_s(experiment, waited_s)
            why_ended = train_here(store, run_id, writer, left_s=left_s)
            # It is made now, since its time tells how much is left to choose and test.
            ended = RunStateChanged.model_validate(
                {"time_unix_s": steady_unix_s(), **_ENDINGS[why_ended]}
            )
            result = result_of(store, run_id, experiment, ended)
            ending = ended
        finally:
            ending = ending.model_copy(update={"time_unix_s": steady_unix_s()})
            writer.append(*result, ending)


def _left_for_trials_s(experiment: Experiment, waited_s: float) -> float:
    """Return how much of a run's time trials may take, in seconds."""
    time_s = experiment.budget.time
    return 0.0 if time_s is None else time_s - waited_s - concluding_s(experiment)


def conclude_elsewhere(run: Run, why: str, *, waited_s: float) -> None:
    """Do the same as `conclude_here` in a process of its own, and return once it has begun.

    It continues if this process ends.

    Args:
        run: The run.
        why: As in `conclude_here`.
        waited_s: As in `conclude_here`.

    Raises:
        RunError: If it ended before it began.
    """
    log = run.folder / "driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    code = "from workbench.runs.automl.conclusion import conclude_given; conclude_given()"
    # The address of the store may contain a password, which a command line would show.
    environment = os.environ | {
        "WORKBENCH_STORE": run.store.url,
        "WORKBENCH_ARTIFACTS": str(run.store.artifacts),
        PROBLEMS_VARIABLE: "1",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code, run.run_id, why, str(time.time() - waited_s)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()
    while run.row.state == "waiting":
        if process.poll() is not None and run.row.state == "waiting":
            raise RunError(
                f"the process that fits a model ended with {process.returncode}",
                next_step=f"Read {log}.",
            )
        time.sleep(_POLL_S)


def conclude_given() -> None:
    """Conclude the run of the command line: its id, why it is not driven, and since when."""
    run_id, why, began_unix_s = sys.argv[1:]
    with Store.open() as store:
        conclude_here(store, run_id, why, waited_s=max(0.0, time.time() - float(began_unix_s)))
