"""Following a run to its end, and saying how it ended."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import click

from workbench.advisor.quantities import format_duration
from workbench.cli.options import command_line, complete_commands
from workbench.cli.printing import make_console, print_json, print_note
from workbench.errors import RunError, StoreUnavailableError
from workbench.events import FINISHED_RUN_STATES, DriverStarted, RunState
from workbench.history import History
from workbench.run.interruption import ended_like_interrupted
from workbench.run.words import format_params, format_value, format_values

if TYPE_CHECKING:
    from workbench.cli.views import View
    from workbench.run import Run
    from workbench.store import Listener

MakeView: TypeAlias = "Callable[[History, bool], View]"

INTERRUPTED = 130
_POLL_S = 0.1
_CHUNK_EVENTS = 2000
_STORE_PATIENCE_S = 60.0
_DRIVER_PATIENCE_S = 120.0


def follow_to_end(
    run: Run, *, as_json: bool, driver_after: int | None = None, make_view: MakeView | None = None
) -> tuple[History, RunState]:
    """Show a run until it ends or is lost.

    Args:
        run: The run.
        as_json: Keep stdout free: show on stderr.
        driver_after: A new driver was started: the run has not ended before one shows up after this event.
        make_view: Makes what it is shown in, from its history and whether that is on stderr; None for trials.

    Returns:
        Its history and its last state.

    Raises:
        RunError: If the new driver does not show up.
        StoreUnavailableError: If the store cannot be read for longer than a minute.
    """
    history = History(run.experiment)
    view = make_view(history, as_json) if make_view else _make_view(run, history, stderr=as_json)
    try:
        with run.store.listen() as news:
            return history, _watch(run, history, view, news, driver_after)
    finally:
        view.close()


@contextlib.contextmanager
def waiting_for_the_driver(run: Run) -> Iterator[None]:
    """Tell somebody who watches a terminal why nothing happens yet; SIGTERM interrupts it, too."""
    status = make_console(stderr=True).status(f"starting the driver of {run.run_id}")
    with ended_like_interrupted(), status if sys.stderr.isatty() else contextlib.nullcontext():
        yield


def detached(run: Run, *, as_json: bool, how: str = "started") -> int:
    """Say that a run is on its way, how that came, and how to follow it, and return the exit code."""
    if as_json:
        print_json({"run_id": run.run_id, "name": run.name, "state": run.state})
        return 0
    click.echo(f"Follow it with: {command_line('follow', run.run_id)}", err=True)
    click.echo(f"{how} {run.name} as {run.run_id}")
    return 0


def interrupted(run: Run, launcher: str = "ray") -> int:
    """Say on stderr what becomes of a run without its follower, and return the exit code."""
    if launcher == "inline":
        again = command_line("resume", run.run_id)
        click.echo(f"\nThe run ended with this process. Go on: {again}", err=True)
    elif run.state == "waiting":
        again = command_line("resume", run.run_id)
        click.echo(f"\nThe run was being started. Begin it, or see whether it has begun: {again}", err=True)
    else:
        _come_back(run)
    return INTERRUPTED


def _come_back(run: Run) -> None:
    click.echo(
        f"\nThe run goes on. Come back: {command_line('follow', run.run_id)}\n"
        f"Stop it: {command_line('stop', run.run_id)}",
        err=True,
    )


def exit_code_of_run(history: History, state: RunState) -> int:
    """Return the exit code that stands for how a run ended."""
    if state in ("failed", "lost"):
        return 1
    if history.in_state("failed"):
        return 5
    return 0 if history.in_state("complete") else 4


def print_end(run: Run, history: History, state: RunState, *, report: str | None) -> None:
    """Print how a run ended, its best, and what may come next.

    Args:
        run: The run.
        history: What it came to.
        state: How it ended.
        report: The path of its report, if it has one.
    """
    from workbench.cli.reading import last_line, next_commands, replay_lines

    counts = ", ".join(
        f"{len(found)} {name}"
        for name in ("complete", "pruned", "stopped", "failed")
        if (found := history.in_state(name))
    )
    why = complete_commands(history.message or history.reason or "")
    click.echo()
    click.secho(
        f"{run.name} {state}" + (f" ({why})" if why and state != "lost" else "")
        + f" after {format_duration(history.active_s(time.time()))}: {counts or 'no trials'}", bold=True,
    )  # fmt: skip
    if state == "lost":
        click.echo("Its driver is gone; what it found is stored, and the run can go on.")
    best = history.best()
    if best is None:
        click.echo(f"best    none: {history.why_no_best()}")
    else:
        values = {item.metric: best.values[item.metric] for item in history.objectives}
        click.echo(
            "best    " + click.style(format_values(values), fg="green", bold=True) + f"  trial {best.number}"
        )
        width = max((len(name) for name in best.params), default=0)
        for name, value in best.params.items():
            click.echo(f"        {name:<{width}}  {format_value(value)}")
    for trial in history.in_state("failed")[:3]:
        click.secho(
            f"failed  trial {trial.number} {format_params(trial.params)}: {last_line(trial)}", fg="red"
        )
    for line in replay_lines(run):
        click.echo(line)
    if report is not None:
        click.echo(f"report  {report}")
    click.echo(f"run     {run.run_id}")
    for line in next_commands(run.run_id, state, history, has_report=report is not None):
        click.echo(f"        {line}")


def _make_view(run: Run, history: History, *, stderr: bool) -> View:
    from workbench.cli.views import LinesView, LiveView

    row = run.row
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return LiveView(row, history, stderr=stderr)
    return LinesView(history, stderr=stderr)


def _watch(run: Run, history: History, view: View, news: Listener, driver_after: int | None) -> RunState:
    cursor, began_s, read_s = 0, time.monotonic(), time.monotonic()
    driven = driver_after is None
    while True:
        try:
            # The state first: what has ended before the events are read adds none after them.
            state = run.state
            stored = run.store.events(run.run_id, after=cursor, limit=_CHUNK_EVENTS)
        except StoreUnavailableError as error:
            if time.monotonic() - read_s > _STORE_PATIENCE_S:
                raise
            print_note(f"{error.problem}; trying again")
            time.sleep(1.0)
            continue
        read_s = time.monotonic()
        for seq, event in stored:
            cursor = seq
            history.apply(event)
            view.tell(event)
            driven = driven or (isinstance(event, DriverStarted) and seq > (driver_after or 0))
        view.refresh(state)
        if stored:
            continue
        if driven and (state in FINISHED_RUN_STATES or state == "lost"):
            return state
        if not driven and time.monotonic() - began_s > _DRIVER_PATIENCE_S:
            raise RunError(
                f"the driver of run {run.run_id} has not shown up for {_DRIVER_PATIENCE_S:g} s",
                next_step=f"Look at its logs in {run.folder}, and at: workbench doctor",
            )
        news.wait(_POLL_S)
