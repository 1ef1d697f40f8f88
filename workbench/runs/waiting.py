"""Waiting for a run: until it ends or is lost, and what a user sees meanwhile.

A notebook shows the live view, and renews the stored snapshot for hosts that draw no live view. A
terminal shows one line. Elsewhere, such as where the output of a script is a file, nothing is
shown.
"""

from __future__ import annotations

import contextlib
import html
import math
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from workbench.cluster.head import local_head
from workbench.experiment.actions import suggest
from workbench.foundation.errors import (
    RunError,
    StoreUnavailableError,
    Suggestion,
    WorkbenchError,
)
from workbench.foundation.events import FINISHED_RUN_STATES, Event
from workbench.foundation.formatting import format_count, format_duration, format_number
from workbench.runs import cell_outputs
from workbench.runs.descriptions import (
    describe_mean,
    format_tried,
    has_nothing_left,
    how_to_extend,
)
from workbench.runs.notebook_output import output_forms
from workbench.runs.progress import progress_of
from workbench.runs.stored_run import StoredRun
from workbench.store.database import RunRow
from workbench.store.database.rows import Owner
from workbench.store.history import History
from workbench.store.history.failures import began_nothing

POLL_S = 0.2
STORE_PATIENCE_S = 60.0
"""How long a store may be out of reach before a wait gives up."""
PATIENCE_S = 300.0
"""How long Ray may take to start another driver: seconds, and minutes on a busy machine."""
AWAITED = "the driver's process has ended. Ray will restart it within a few seconds"
ANSWERS_AGAIN = "the driver answers again"
_LINE_EVERY_S = 0.5
_SNAPSHOT_EVERY_S = 5.0
# A snapshot of a long run takes long to make. It may use this part of the time.
_PART_FOR_SNAPSHOTS = 0.1
_CLEAR_LINE = "\r\x1b[2K"


def await_end(run: StoredRun, timeout_s: float | None = None) -> None:
    """Wait for the end of a run, and show it meanwhile. Arguments and errors as in `Run.wait`."""
    with waiting_for(run) as show_progress:
        read_s = time.monotonic()
        next_driver = NextDriver()
        until_s = math.inf
        if timeout_s is not None:
            until_s = read_s + timeout_s
        while True:
            try:
                row = run.row
            except StoreUnavailableError:
                now_s = time.monotonic()
                is_over = now_s >= until_s
                if is_over or now_s - read_s > STORE_PATIENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            read_s = time.monotonic()
            is_awaited = next_driver.is_awaited(row)
            warning = describe_silence(row)
            if is_awaited:
                warning = AWAITED
            show_progress(warning)
            if row.state == "failed" or (row.state == "lost" and not is_awaited):
                raise _error_of(run, row)
            if row.state in FINISHED_RUN_STATES:
                return
            if time.monotonic() >= until_s:
                return
            time.sleep(POLL_S)


def follow(run: StoredRun, after: int = 0) -> Iterator[Event]:
    """Yield the events of a run as they happen, until it ends or is lost.

    Args:
        run: The run.
        after: Skip this many of the oldest events.
    """
    next_driver = NextDriver()
    cursor = after
    while True:
        next_driver.is_awaited(run.row)
        for stored in run.store.follow(run.run_id, after=cursor):
            cursor = stored.seq
            yield stored.event
        if not next_driver.is_awaited(run.row):
            return
        time.sleep(POLL_S)


def _error_of(run: StoredRun, row: RunRow) -> RunError:
    """Return what is raised for a run that failed or was lost, with the way to continue it."""
    history = run.history
    if row.state == "lost" and not history.drivers:
        problem = "was lost: its driver did not start"
    elif row.state == "lost":
        problem = "was lost: its driver is gone"
    elif history.message:
        problem = f"failed: {history.message}"
    else:
        problem = "failed"
    return RunError(f"run {run.run_id} {problem}", next_step=_how_to_continue(run.run_id, history))


def _how_to_continue(run_id: str, history: History) -> Suggestion:
    """Return the command that continues a run that failed or was lost."""
    if not has_nothing_left(history):
        return suggest("resume", run_id, lead="Its results are stored. To continue it")
    more = how_to_extend(history)  # it cannot be resumed
    if more is None:
        return suggest("sweep", "FILE", lead="Once your code is fixed, to run it again")
    if began_nothing(history):
        return suggest("extend", run_id, lead="To continue it", **more)
    return suggest("extend", run_id, lead="Once your code is fixed, to try more", **more)


class NextDriver:
    """Whether to continue waiting for a run of this machine though its driver is gone.

    Ray starts another driver in place of one that was killed. Until then nobody gives the run up.
    """

    def __init__(self) -> None:
        """Start before the run was looked at."""
        self._owner: Owner | None = None
        self._head: dict[str, Any] | None = None  # that the process of the owner belongs to
        self._until_s: float | None = None

    def is_awaited(self, row: RunRow) -> bool:
        """Return whether Ray may still start another driver in place of one that was killed.

        Args:
            row: The run, as it is now. Call this as often as you look at the run.
        """
        if row.owner != self._owner:
            self._owner = row.owner
            self._head = None
            if row.owner is not None and row.owner.host == socket.gethostname():
                self._head = local_head.record_of_head_of(row.owner.pid)
        if row.state != "lost" or row.was_left or self._head is None:
            self._until_s = None
            return False
        if self._until_s is None:
            self._until_s = time.monotonic() + PATIENCE_S
        return time.monotonic() < self._until_s and local_head.is_intact(self._head)


def describe_silence(row: RunRow) -> str | None:
    """Return for how long the driver of a run has given no sign, or None if it has, or is gone.

    Args:
        row: The run, as it is now.
    """
    if row.silent_s is None:
        return None
    since = format_duration(int(row.silent_s))
    return f"the driver of {row.run_id} has not reported for {since}. Still waiting for it"


@contextlib.contextmanager
def ended_like_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does to a process that stays with a run.

    Otherwise Ray, if it was used, would write its stack to the terminal. Only the first thread of a
    process receives signals, so this does nothing in others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def waiting_for(
    run: StoredRun, describe: Callable[[], str] | None = None
) -> Iterator[Callable[[str | None], None]]:
    """Show a run while the block waits for it.

    In one cell a run is shown once, however often it is awaited.

    Args:
        run: The run.
        describe: Returns its progress in one line, or None to count its trials.

    Yields:
        A function that shows what is new, with a warning if there is one. It may be called as often
        as the caller looks at the run.
    """
    view = _view_of(run, describe or (lambda: progress_line(run.history)))
    if view is None:
        yield _Lines().update
        return
    if view.is_waiting:  # an outer wait shows the run already, and closes the view
        yield view.update
        return
    run.shown_in = view
    view.is_waiting = True
    view.update()
    try:
        yield view.update
    finally:
        view.is_waiting = False
        view.close()


@contextlib.contextmanager
def starting(run: StoredRun) -> Iterator[None]:
    """State in a notebook that the driver of a run starts.

    That takes seconds where Ray starts first. If the cell then shows the run, that takes the place
    of the line.

    Args:
        run: The run.
    """
    if (
        cell_outputs.kernel_shell() is None
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    from IPython.display import display

    line = f"starting the driver of {run.run_id} …"
    shown: Any = display(_forms_of_line(line), raw=True, display_id=True)
    try:
        yield
    finally:
        shown.update(_forms_of_line(f"started {run.run_id}"), raw=True)
        cell_outputs.free(shown)


def progress_line(history: History) -> str:
    """Return the progress of a run in one line."""
    parts = [history.experiment.name, history.state, format_tried(history)]
    best = history.best()
    metric = history.objectives[0].metric
    if len(history.objectives) > 1:
        if front := history.front():
            parts.append(f"{format_count(len(front), 'trial')} on the front")
    elif best is not None:
        value = format_number(history.best_values()[metric])
        parts.append(f"best {metric} {value}{describe_mean(history, best)} (trial {best.number})")
    progress = progress_of(history, history.now_unix_s())
    if progress.part is not None and history.state == "running":
        parts += [f"{100 * progress.part:.0f} %", progress.describe_left() or ""]
    return "  ".join(text for text in parts if text)


def is_shown_in_this_cell(run: StoredRun) -> bool:
    """Return whether the cell that is being executed shows a run already."""
    shown = run.shown_in
    return isinstance(shown, _InNotebook) and shown.cell == _cell_of(cell_outputs.kernel_shell())


def is_whole_in_this_cell(run: StoredRun) -> bool:
    """Return whether the cell that is being executed shows more of a run than its progress."""
    shown = run.shown_in
    return isinstance(shown, _InNotebook) and shown.is_whole and is_shown_in_this_cell(run)


def _view_of(run: StoredRun, describe: Callable[[], str]) -> _InNotebook | _InTerminal | None:
    if threading.current_thread() is not threading.main_thread():
        return None  # its output would appear anywhere
    shell = cell_outputs.kernel_shell()
    shown = run.shown_in
    if shown is not None and (shown.is_waiting or is_shown_in_this_cell(run)):
        return shown
    if shell is not None:
        # A second view of a run in one notebook would show the same.
        return _InNotebook(run, _cell_of(shell), describe if cell_outputs.was_shown(run) else None)
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None
    return _InTerminal(describe)


def _cell_of(shell: Any) -> int | None:
    if shell is None:
        return None
    return shell.execution_count


def _forms_of_line(line: str) -> dict[str, Any]:
    # HTML shows two spaces as one.
    return {"text/plain": line, "text/html": f"<p>{html.escape(line).replace('  ', ' · ')}</p>"}


def _draw_progress(run: StoredRun) -> dict[str, Any]:
    return _forms_of_line(progress_line(run.history))


class _InNotebook:
    """The output of a run in a cell, renewed while the cell waits, and later until the run ends."""

    def __init__(
        self, run: StoredRun, cell: int | None, describe: Callable[[], str] | None
    ) -> None:
        """Show the run, or only its progress in one line if `describe` returns that."""
        self.cell = cell
        self.is_waiting = False
        self._run = run
        self._describe = describe
        self.is_whole = describe is None
        self._forms = self._draw()
        self._handle: Any = cell_outputs.display_run(run, self._forms)
        self._next_s = time.monotonic() + _SNAPSHOT_EVERY_S
        self._warning: str | None = None

    def update(self, warning: str | None = None) -> None:
        """Renew the snapshot, if it is old, and show a warning with it while it holds."""
        self._warn(warning)
        if time.monotonic() >= self._next_s:
            self._renew()

    def close(self) -> None:
        """Renew the snapshot. If the run goes on, a thread renews it from now on."""
        self._warn(None)
        self._renew()
        with contextlib.suppress(WorkbenchError):
            if self._run.finished:
                cell_outputs.catch_up()  # other cells may show it as well
                return
            draw = output_forms if self._describe is None else _draw_progress
            cell_outputs.keep_run(self._run, draw, self._handle, self._forms)

    def _draw(self) -> dict[str, Any]:
        if self._describe is None:
            return output_forms(self._run)
        return _forms_of_line(self._describe())

    def _renew(self) -> None:
        began_s = time.monotonic()
        # The caller learns of a store that cannot be read.
        with contextlib.suppress(WorkbenchError):
            self._forms = self._draw()
            self._show()
        took_s = time.monotonic() - began_s
        every_s = _SNAPSHOT_EVERY_S if self._describe is None else _LINE_EVERY_S
        self._next_s = time.monotonic() + max(every_s, took_s / _PART_FOR_SNAPSHOTS)

    def _warn(self, warning: str | None) -> None:
        """Show a warning. A saved notebook does not keep one that has passed."""
        if warning != self._warning:
            self._warning = warning
            self._show()

    def _show(self) -> None:
        """Update the output. A warning has none of its own, which would stay behind, empty."""
        forms = self._forms
        if self._warning is not None:
            line = _forms_of_line(self._warning)
            forms = {**forms, **{kind: f"{line[kind]}\n{forms[kind]}" for kind in line}}
        self._handle.update(forms, raw=True)


class _Lines:
    """Prints a warning once, and once when it has passed, if no line can be written again."""

    def __init__(self) -> None:
        self._is_printed = False

    def update(self, warning: str | None = None) -> None:
        """Print a warning, unless the one before still holds."""
        if warning is not None and not self._is_printed:
            print(warning, file=sys.stderr, flush=True)
        if warning is None and self._is_printed:
            print(ANSWERS_AGAIN, file=sys.stderr, flush=True)
        self._is_printed = warning is not None


class _InTerminal:
    """One line on stderr, which is removed at the end."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self.is_waiting = False
        self._describe = describe
        self._next_s = 0.0

    def update(self, warning: str | None = None) -> None:
        """Write the line again, at most twice a second, the warning first."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LINE_EVERY_S
        with contextlib.suppress(WorkbenchError):
            line = "  ".join(filter(None, (warning, self._describe())))
            line = line[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write(f"{_CLEAR_LINE}{line}")
            sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()
