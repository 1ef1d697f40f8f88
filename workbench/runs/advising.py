"""Advice as a run: stored like any other, but executed by the process that requested it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, StoreUnavailableError
from workbench.foundation.events import (
    AdviceGiven,
    AdviceRequested,
    CommandHandled,
    Event,
    Noted,
    RunStateChanged,
    Sink,
)
from workbench.foundation.formatting import duration_argument_s, format_duration
from workbench.runs.event_lines import advice_line
from workbench.runs.experiment_file import read_experiment
from workbench.runs.run import Run, open_store
from workbench.runs.waiting import ended_like_interrupted, is_shown_in_this_cell, waiting_for
from workbench.store.database import Command, RunWriter, Store
from workbench.version import VERSION

if TYPE_CHECKING:
    from workbench.advisor.advice import Advice, Goal
    from workbench.advisor.recommend import Advisor

DEFAULT_TIME_S = 60.0
_OBJECTIVES = ("time", "money", "energy", "throughput")
_VERSIONED = ("torch", "ray")


def advise(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    objective: Goal = "time",
    time: float | str = DEFAULT_TIME_S,
    store: Store | str | None = None,
    address: str | None = None,
    listener: Sink | None = None,
    max_slowdown: float | None = None,
) -> Advice:
    """Measure plans for a limited time, and recommend a plan and a learning rate.

    Args:
        experiment: An experiment, the path of its file, or a mapping of its fields. What it sets to
            `auto` or searches is recommended. Fixed settings are kept.
        objective: What to optimise: the time to the target, its cost in worker time, its energy, or
            the throughput in samples per second.
        time: The time limit in seconds, or a duration such as 5m. A measurement in progress is
            finished. While other runs hold all workers, the advice waits, and its time does not
            run.
        store: The store for measurements and advice, or None for the one that WORKBENCH_STORE
            names, or else the user's default store.
        address: The Ray cluster, or None for the local one, which is started if none is running.
        listener: Receives each event after it is stored, or None to show the live view in a
            notebook, and a line of progress in a terminal.
        max_slowdown: Also measure power limits of the GPUs, and recommend the one that saves the
            most energy while steps are longer by at most this fraction, such as 0.1. The limits are
            restored afterwards.

    Returns:
        The advice. `advice.apply(experiment)` is the experiment with its recommendations, and
        `wb.attach(advice.run_id)` is the run that measured them.

    Raises:
        ArgumentError: If the objective or the time is invalid.
        ExperimentError: If the experiment is wrong, trains no model, or no plan fits.
        ResourcesError: If the available hardware can never satisfy it.
        RunError: If it cannot be trained.

    Example:
        >>> advice = wb.advise(experiment, time="5s")
        >>> followed = advice.apply(experiment)
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    budget_s = duration_argument_s(time, field="time")
    if objective not in _OBJECTIVES:
        raise ArgumentError(
            f"{objective!r} is not an objective", field="objective", allowed=list(_OBJECTIVES)
        )
    if max_slowdown is not None and not 0 < max_slowdown <= 1:
        raise ArgumentError(
            f"{max_slowdown} is no bound for power limits",
            field="max_slowdown",
            allowed="more than 0, and at most 1 for steps that take twice as long",
        )
    from workbench.advisor.auto_priors import with_auto_priors
    from workbench.advisor.open_settings import check_advisable
    from workbench.cluster.head import attachment
    from workbench.sweeps.preflight import check

    check_advisable(experiment)
    check(experiment, on_this_machine=address is None)
    opened = open_store(store)
    with attachment.attached(address):
        run = Run(opened, opened.create_run(with_auto_priors(experiment)))
        shown: contextlib.AbstractContextManager[Sink] = _shown(run)
        if listener is not None:
            shown = contextlib.nullcontext(listener)
        with (
            opened.writer(
                run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
            ) as writer,
            shown as receive,
        ):
            advice = _advise(
                run, writer, objective, float(budget_s), receive, max_slowdown=max_slowdown
            )
            return dataclasses.replace(
                advice, run_id=run.run_id, is_shown=lambda: is_shown_in_this_cell(run.stored)
            )


@contextlib.contextmanager
def _shown(run: Run) -> Iterator[Sink]:
    """Show advice while it is measured. Yields the sink of its events."""
    latest = f"{run.name}  measuring plans"

    def receive(event: Event) -> None:
        nonlocal latest
        latest = advice_line(event) or latest
        show_progress(None)

    with waiting_for(run.stored, lambda: latest) as show_progress:
        yield receive


class _Session:
    """Advice under way: stores its events, and carries out the commands of its run.

    Raises KeyboardInterrupt where the user stops it.
    """

    def __init__(self, run: Run, writer: RunWriter, budget_s: float, listener: Sink) -> None:
        self._run = run
        self._writer = writer
        self._budget_s = budget_s
        self._listener = listener
        self._last_seq = 0
        self._last_command = 0
        self._is_late_noted = False

    def store(self, *events: Event) -> None:
        """Store events, then show them."""
        from workbench.sweeps.ledger import STORE_PATIENCE_S, write

        self._last_seq = write(
            self._writer, events, after=self._last_seq, patience_s=STORE_PATIENCE_S
        )
        for event in events:
            self._listener(event)

    def store_measured(self, event: Event) -> None:
        """Store what the advisor measured, and see what the user wants meanwhile."""
        self.store(event)
        self._handle_commands()

    def look_around(self, advisor: Advisor) -> None:
        """See what the user wants, and note once that the time for the advice is over."""
        self._handle_commands()
        if advisor.is_late and not self._is_late_noted:
            self._is_late_noted = True
            over = f"the {format_duration(self._budget_s)} time limit is up"
            message = f"{over}. Measurements in progress are finished first"
            self.store(Noted(level="info", message=message))

    def _handle_commands(self) -> None:
        for command in self._new_commands():
            self._last_command = command.number
            stops = command.kind == "stop"
            message = "advice cannot be changed, only stopped"
            if stops:
                message = "the advice ends"
            self.store(
                CommandHandled(
                    command=command.number, kind=command.kind, done=stops, message=message
                )
            )
            if stops:
                raise KeyboardInterrupt

    def _new_commands(self) -> list[Command]:
        # Where the store cannot be read, they are read after the next measurement.
        with contextlib.suppress(StoreUnavailableError):
            return self._run.store.commands(self._run.run_id, after=self._last_command)
        return []


def _advise(
    run: Run,
    writer: RunWriter,
    objective: Goal,
    budget_s: float,
    listener: Sink,
    *,
    max_slowdown: float | None,
) -> Advice:
    session = _Session(run, writer, budget_s, listener)
    versions = {name: importlib.metadata.version(name) for name in _VERSIONED}
    versions["workbench"] = VERSION
    request = AdviceRequested(
        objective=objective, host=socket.gethostname(), budget_s=budget_s, versions=versions
    )
    session.store(request, RunStateChanged(state="running"))
    try:
        from workbench.advisor.recommend import advisor_for

        with ended_like_interrupted():
            advisor = advisor_for(
                run.store,
                run.run_id,
                objective=objective,
                budget_s=budget_s,
                sink=session.store_measured,
                poll=lambda: session.look_around(advisor),
                max_slowdown=max_slowdown,
            )
            advice = advisor.advise()
    except KeyboardInterrupt:
        session.store(RunStateChanged(state="stopped", reason="person"))
        raise
    except Exception as error:
        session.store(RunStateChanged(state="failed", reason="error", message=str(error)))
        raise
    session.store(
        AdviceGiven(advice=advice.to_json()),
        RunStateChanged(state="complete", reason="advice", message=f"{advice.choice.written}"),
    )
    return advice
