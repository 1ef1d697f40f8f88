"""Follow a run to its end, and print how it ended."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import psutil

from workbench.cli.errors import INTERRUPTED
from workbench.cli.options import command_line, next_commands, write_for_shell
from workbench.cli.output import echo, print_json, print_note, stream_of, waiting
from workbench.cluster.head import local_head
from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.foundation.errors import (
    PROBLEMS_VARIABLE,
    LeaseError,
    RunError,
    StoreUnavailableError,
)
from workbench.foundation.events import FINISHED_RUN_STATES, DriverStarted, Noted, RunState
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_params,
    format_value,
    printable,
)
from workbench.runs.descriptions import (
    describe_end,
    failures_of,
    format_numbers,
    leaders,
    log_file,
)
from workbench.runs.progress import note_alive
from workbench.runs.space_suggestions import how_to_widen
from workbench.runs.waiting import (
    ANSWERS_AGAIN,
    NextDriver,
    describe_silence,
    ended_like_interrupted,
)
from workbench.store.database.store import LEASE_TIMEOUT_S
from workbench.store.history import History
from workbench.store.history.certainty import certainty_lines
from workbench.store.history.compression import compressed, is_compression
from workbench.store.history.history import Reading

if TYPE_CHECKING:
    from workbench.cli.live_table import View
    from workbench.runs import Run
    from workbench.store.database import Listener, RunRow, StoredEvent
    from workbench.store.history import Trial

MakeView: TypeAlias = "Callable[[History, bool], View]"

_POLL_S = 0.1
_CHUNK_EVENTS = 2000
_STORE_PATIENCE_S = 60.0
_DRIVER_PATIENCE_S = 300.0
_STARTING_AFTER_S = 10.0
"""How long a driver may start before a line says so, if no terminal shows it."""
_HEAD_EVERY_S = 1.0
_MAX_FAILURES = 3


def follow_to_end(
    run: Run,
    *,
    as_json: bool,
    driver_after: int | None = None,
    make_view: MakeView | None = None,
    is_over: Callable[[], bool] | None = None,
) -> tuple[History, RunState]:
    """Show a run until it ends or is lost.

    Args:
        run: The run.
        as_json: Show the run on stderr, so that stdout has only the JSON document.
        driver_after: If a new driver was started, wait for its first event after this one.
        make_view: Makes the view, given the history and whether it is shown on stderr. By default
            the view shows the trials.
        is_over: Returns whether this process, which drives the run, has stopped doing so. None if
            another process drives it.

    Returns:
        Its history and its last state.

    Raises:
        RunError: If the new driver of another process does not start within five minutes.
        StoreUnavailableError: If the store cannot be read for more than a minute.
    """
    history = History(run.experiment)
    make_view = make_view or functools.partial(_make_view, run)
    view = make_view(history, as_json)
    try:
        with run.store.listen() as news:
            return history, _Watch(run, history, view, driver_after).until_end(news, is_over)
    finally:
        view.close()


def follow_while(
    drive: Callable[[], object], run: Run, *, as_json: bool, make_view: MakeView | None = None
) -> tuple[History, RunState]:
    """Show a run while this thread drives it.

    If another process starts to drive the run at the same moment, the run is only followed.

    Args:
        drive: Drives the run, and returns when it has ended.
        run: The run.
        as_json: As in `follow_to_end`.
        make_view: As in `follow_to_end`.

    Returns:
        Its history and its last state.

    Raises:
        Exception: As in `follow_to_end`, and the errors of `drive`.
    """
    is_over = threading.Event()
    with ThreadPoolExecutor(1, "view") as pool:
        followed = pool.submit(
            follow_to_end,
            run,
            as_json=as_json,
            make_view=make_view,
            is_over=is_over.is_set,
            driver_after=run.row.last_seq,
        )
        try:
            drive()
        except LeaseError:
            if not run.store.is_driven(run.run_id):
                raise
            print_note(f"another process drives run {run.run_id}, so it is only followed here")
            followed.result()
        finally:
            is_over.set()
    return followed.result()


@contextlib.contextmanager
def waiting_for_the_driver(run: Run) -> Iterator[None]:
    """Show that the driver is starting: at once on a terminal, otherwise if it takes a while.

    SIGTERM has the same effect as Ctrl-C.
    """
    activity = f"starting the driver of {run.run_id}"
    late = threading.Timer(_STARTING_AFTER_S, print_note, [f"still {activity}"])
    late.daemon = True
    if not sys.stderr.isatty() and PROBLEMS_VARIABLE not in os.environ:
        late.start()
    try:
        with ended_like_interrupted(), waiting(activity):
            yield
    finally:
        late.cancel()


def announce(run: Run) -> None:
    """Print a new run on stderr, so that another of our processes need not wait for the driver.

    Only a run that has not started yet is announced: it stores why its driver cannot start.
    """
    if PROBLEMS_VARIABLE in os.environ and run.state == "waiting":
        click.echo(json.dumps({"run_id": run.run_id}), err=True)


def detached(run: Run, *, as_json: bool, how: str = "started") -> int:
    """Print that a run is under way and how to follow it, and return the exit code."""
    if as_json:
        print_json({"run_id": run.run_id, "name": run.name, "state": run.state})
        return 0
    click.echo(f"Follow it with: {command_line('attach', run.run_id)}", err=True)
    click.echo(f"{how} {run.name} as {run.run_id}")
    return 0


def interrupted(run: Run, launcher: str = "ray") -> int:
    """Print what happens to a run that is no longer followed, and return the exit code."""
    if launcher == "inline" or run.finished:
        again = command_line("resume", run.run_id)
        click.echo(f"\nThe run ended with this process. To continue it: {again}", err=True)
    elif run.state == "waiting":
        again = command_line("resume", run.run_id)
        click.echo(f"\nThe run may not have started yet. To start or follow it: {again}", err=True)
    else:
        click.echo(
            f"\nThe run continues. To follow it: {command_line('attach', run.run_id)}\n"
            f"To stop it: {command_line('stop', run.run_id)}",
            err=True,
        )
    return INTERRUPTED


def print_end(
    run: Run, history: History, state: RunState, *, report: str | None, with_reason: bool = True
) -> None:
    """Print how a run ended, its best trial, and possible next commands.

    Args:
        run: The run.
        history: Its history.
        state: Its last state.
        report: The path of its report, or None if none was written.
        with_reason: Whether to print why the run ended.
    """
    from workbench.cli.automl_result import result_lines
    from workbench.cli.show import replay_lines

    counts = ", ".join(
        f"{len(trials)} {name}"
        for name in ("complete", "pruned", "stopped", "failed")
        if (trials := history.in_state(name))
    )
    colour = None
    if state == "failed":
        colour = "red"
    headline = f"{run.name} {state}"
    # The counts say that all trials were run.
    with_reason = with_reason and history.reason != "trials" and state != "lost"
    if with_reason and (why := describe_end(history)):
        headline += f" ({why})"
    active = format_duration(history.active_s(history.now_unix_s()))
    echo()
    echo(f"{headline} after {active}: {counts or 'no trial has ended'}", bold=True, fg=colour)
    if state == "lost":
        echo("Its driver is gone. The results are stored, and you can resume the run.")
    label = "result"
    for line in result_lines(history):
        echo(f"{label:<8}{line}")
        label = ""
    _print_leaders(history)
    _print_failures(run, history)
    for line in replay_lines(run):
        echo(line)
    if (wider := how_to_widen(run.run_id, history)) is not None:
        echo(f"note    {write_for_shell(wider)}")
    if report is not None:
        echo(f"report  {report}")
    echo(f"run     {run.run_id}")
    for line in next_commands(run.run_id, state, history, has_report=report is not None):
        echo(f"        {line}")


def _print_leaders(history: History) -> None:
    """Print the best trial, or the best of each objective, and how sure that is."""
    from workbench.cli.automl_result import result_lines

    shown: list[tuple[str, Trial, dict[str, float]]] = []
    if not result_lines(history):  # otherwise they say it
        shown = leaders(history)
        if not shown:
            why = history.why_no_best() or ""
            if is_compression(history.experiment):
                why = compressed(history).words
            echo(f"best    none: {why[:1].lower()}{why[1:].rstrip('.')}")
    for label, trial, values in shown:
        values_text = click.style(printable(format_params(values)), fg="green", bold=True)
        click.echo(f"{label:<7} {values_text}  trial {trial.number}")
        width = max((len(name) for name in trial.params), default=0)
        for name, value in trial.params.items():
            echo(f"        {name:<{width}}  {format_value(value)}")
    for line in certainty_lines(history):
        echo(f"        {line}.")
    if len(history.objectives) > 1 and len(front := history.front()) > len(shown):
        echo(f"        and {len(front) - len(shown)} more on the front of {len(front)}")


def _print_failures(run: Run, history: History) -> None:
    """Print why trials failed, each reason once, and where the first of them wrote its log."""
    failures = failures_of(history)
    for line, numbers in list(failures.items())[:_MAX_FAILURES]:
        failed = format_numbers(numbers)
        if len(numbers) == 1:
            failed += f" {format_params(history.trials[numbers[0]].params)}"
        echo(f"failed  {failed}: {line}", fg="red")
        if (log := log_file(run.folder, numbers[0])).exists():
            echo(f"        log of trial {numbers[0]}: {log}")
    if len(failures) > _MAX_FAILURES:
        echo(f"        and {format_count(len(failures) - _MAX_FAILURES, 'other reason')}", fg="red")


def _make_view(run: Run, history: History, stderr: bool) -> View:
    from workbench.cli.live_table import LinesView, LiveView

    if is_automl(run.experiment):
        from workbench.cli.automl_result import CandidatesView

        return CandidatesView(history, stderr)
    if stream_of(stderr=stderr).isatty():
        return LiveView(run.row, history, stderr=stderr)
    return LinesView(history, stderr=stderr)


class _Watch:
    """What is being shown of a run, from its first event to its end."""

    def __init__(self, run: Run, history: History, view: View, driver_after: int | None) -> None:
        self._run, self._history, self._view = run, history, view
        self._driver_after = driver_after or 0
        self._is_driven = driver_after is None
        self._is_silent = False
        self._cursor = 0
        self._read_s = time.monotonic()
        self._head = _DriversHead(run, history)

    def until_end(self, news: Listener, is_over: Callable[[], bool] | None) -> RunState:
        """Show events as they come, and return the last state of the run."""
        next_driver = NextDriver()
        # A driver in this process raises its own errors, however long it takes to start.
        give_up_s = math.inf if is_over is not None else time.monotonic() + _DRIVER_PATIENCE_S
        while True:
            # Read the state first: a run that has ended by then adds no events afterwards.
            is_last = is_over is not None and is_over()
            if (read := self._read()) is None:
                continue
            row, stored = read
            is_behind = len(stored) == _CHUNK_EVENTS and stored[-1].seq < row.last_seq
            self._history.reading = None
            if is_behind:
                self._history.reading = Reading(stored[-1].seq, row.last_seq)
            self._show(row, stored)
            is_ended = row.state in FINISHED_RUN_STATES
            is_lost = not next_driver.is_awaited(row) and row.state == "lost"
            if stored:
                if not is_behind and not is_ended:
                    # Without a pause, each event of a busy run would cost a look at the store.
                    news.wait(_POLL_S)
                continue
            if is_last or (self._is_driven and (is_ended or is_lost)):
                return row.state
            if not self._is_driven and time.monotonic() > give_up_s:
                raise RunError(
                    f"the driver of run {row.run_id} has not started within"
                    f" {_DRIVER_PATIENCE_S:g} s",
                    next_step=suggest(
                        "doctor", lead=f"See its logs in {self._run.folder}, and the output of"
                    ),
                )
            news.wait(_POLL_S)

    def _read(self) -> tuple[RunRow, list[StoredEvent]] | None:
        """Return the row of the run and its next events, or None if the store cannot be read."""
        run = self._run
        try:
            row = run.row
            stored: list[StoredEvent] = []
            if row.last_seq > self._cursor:
                stored = run.store.events(run.run_id, after=self._cursor, limit=_CHUNK_EVENTS)
        except StoreUnavailableError as error:
            if time.monotonic() - self._read_s > _STORE_PATIENCE_S:
                raise
            print_note(f"{error.problem}. Trying again")
            time.sleep(1.0)
            return None
        self._read_s = time.monotonic()
        note_alive(row, self._history)
        return row, stored

    def _show(self, row: RunRow, stored: list[StoredEvent]) -> None:
        """Show new events, and what no driver can store: a lost head, or a silent driver."""
        for seq, event in stored:
            self._cursor = seq
            self._history.apply(event)
            self._view.show(event)
            if isinstance(event, DriverStarted) and seq > self._driver_after:
                self._is_driven = True
        is_ended = row.state in FINISHED_RUN_STATES
        if (lost := self._head.describe_loss()) is not None and not is_ended:
            self._view.show(lost)
        silence = describe_silence(row)
        if silence is not None and not self._is_silent:
            self._view.show(Noted(level="warning", message=silence))
        if silence is None and self._is_silent and not is_ended:
            self._view.show(Noted(level="info", message=ANSWERS_AGAIN))
        self._is_silent = silence is not None
        self._view.refresh(row.state)


class _DriversHead:
    """The local head on which the driver of a run lives.

    If the head or the driver ends, the run would otherwise be silent for a while.
    """

    def __init__(self, run: Run, history: History) -> None:
        self._run, self._history = run, history
        self._driver: DriverStarted | None = None
        self._record: dict[str, Any] | None = None
        self._next_s = 0.0

    def describe_loss(self) -> Noted | None:
        """Return, only once, that the head or the driver has ended."""
        now_s, drivers = time.monotonic(), self._history.drivers
        if now_s < self._next_s or not drivers:
            return None
        self._next_s = now_s + _HEAD_EVERY_S
        if drivers[-1] is not self._driver:
            self._driver = drivers[-1]
            self._record = None
            if self._driver.host == socket.gethostname():
                self._record = local_head.record_of_head_of(self._driver.pid)
        if self._record is None or self._driver is None:
            return None
        if local_head.is_intact(self._record):
            return self._describe_lost_driver(self._driver)
        self._record = None
        message = (
            "the local Ray head has ended, and with it the driver and all workers of this run. All"
            f" reports are stored. {format_duration(LEASE_TIMEOUT_S)} after the last heartbeat of"
            " its driver the run is marked as lost, and you can resume it"
        )
        return Noted(level="warning", message=message)

    def _describe_lost_driver(self, driver: DriverStarted) -> Noted | None:
        if psutil.pid_exists(driver.pid) or self._run.state in FINISHED_RUN_STATES:
            return None
        self._record = None  # until the next one has started
        message = (
            f"the driver's process {driver.pid} has ended. Ray will restart it within a few"
            " seconds, and the run will continue"
        )
        return Noted(level="warning", message=message)
