"""An advice as a run: it is stored like any other, but lives and ends with the process that asked for it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ExperimentError, StoreUnavailableError
from workbench.events import AdviceGiven, AdviceRequested, CommandHandled, Event, RunStateChanged, Sink
from workbench.experiment import Experiment
from workbench.experiment.sections import parse_duration_s
from workbench.run.attached import Run, open_store
from workbench.run.experiment_file import read_experiment
from workbench.run.interruption import ended_like_interrupted
from workbench.store import Command, RunWriter, Store

if TYPE_CHECKING:
    from workbench.advisor.advice import Advice, Goal

DEFAULT_TIME_S = 60.0
_OBJECTIVES = ("time", "money", "energy", "throughput")
_VERSIONED = ("torch", "ray", "workbench")


def advise(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    objective: Goal = "time",
    time: float | str = DEFAULT_TIME_S,
    store: Store | str | None = None,
    address: str | None = None,
    listener: Sink | None = None,
) -> Advice:
    """Measure for a while, and recommend a plan and a learning rate.

    Args:
        experiment: What is to be trained: an experiment, the path of its file, or a mapping of its fields.
            What it leaves `auto` or searches is recommended; what is written stays.
        objective: Best for what: the time to the target, its price in workers, its energy, or samples per
            second whatever they teach.
        time: How long it may take, in seconds or such as 5m; what is under way then is finished.
        store: Where measurements and advice are kept; None for what WORKBENCH_STORE names, or else the
            user's own store.
        address: The Ray cluster; None for the one of this machine, which is started where there is none.
        listener: Told of each event once it is stored.

    Returns:
        The advice; `advice.apply(experiment)` is the experiment that follows it.

    Raises:
        ExperimentError: If the experiment is wrong, trains no model, or no plan fits.
        ResourcesError: If the hardware there is can never satisfy it.
        RunError: If it cannot be trained.
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    budget_s = parse_duration_s(time)
    if objective not in _OBJECTIVES:
        raise ExperimentError(f"{objective!r} is no objective", field="objective", allowed=list(_OBJECTIVES))
    is_number = isinstance(budget_s, float | int) and not isinstance(budget_s, bool)
    if not is_number or not 0 < budget_s < math.inf:
        raise ExperimentError(f"{time!r} is no duration", field="time", allowed="such as 90s or 5m")
    from workbench.advisor.choices import check_advisable
    from workbench.sweeps.preflight import check
    from workbench.workers import head

    check_advisable(experiment)
    check(experiment, on_this_machine=address is None)
    opened = open_store(store)
    with head.attached(address):
        run = Run(opened, opened.create_run(experiment))
        with opened.writer(run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
            return _advise(run, writer, objective, float(budget_s), listener)


def _advise(run: Run, writer: RunWriter, objective: Goal, budget_s: float, listener: Sink | None) -> Advice:
    from workbench.sweeps.ledger import STORE_PATIENCE_S, write

    last_seq, last_command = 0, 0

    def store(*events: Event) -> None:
        nonlocal last_seq
        last_seq = write(writer, events, after=last_seq, patience_s=STORE_PATIENCE_S)
        for event in events:
            if listener is not None:
                listener(event)

    def new_commands() -> list[Command]:
        with contextlib.suppress(StoreUnavailableError):  # they are read after the next measurement
            return run.store.commands(run.run_id, after=last_command)
        return []

    def hear(event: Event) -> None:
        """Store what was found, and do what somebody else asks for meanwhile."""
        nonlocal last_command
        store(event)
        for command in new_commands():
            last_command = command.number
            stops = command.kind == "stop"
            message = "the advice ends" if stops else "an advice cannot be changed, only stopped"
            store(CommandHandled(command=command.number, kind=command.kind, done=stops, message=message))
            if stops:
                raise KeyboardInterrupt

    versions = {name: importlib.metadata.version(name) for name in _VERSIONED}
    request = AdviceRequested(objective=objective, host=socket.gethostname(), versions=versions)
    store(request, RunStateChanged(state="running"))
    try:
        from workbench.advisor.recommend import advisor_for

        with ended_like_interrupted():
            advice = advisor_for(
                run.store, run.run_id, objective=objective, budget_s=budget_s, sink=hear
            ).advise()
    except KeyboardInterrupt:
        store(RunStateChanged(state="stopped", reason="person"))
        raise
    except Exception as error:
        store(RunStateChanged(state="failed", reason="error", message=str(error)))
        raise
    store(
        AdviceGiven(advice=advice.to_json()),
        RunStateChanged(state="complete", reason="advice", message=f"{advice.choice.written}"),
    )
    return advice
