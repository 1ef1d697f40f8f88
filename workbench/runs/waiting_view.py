"""What a user sees while a call waits for a run.

The live view in a notebook, one line in a terminal.

In a notebook the stored snapshot is renewed meanwhile, for hosts that draw no live view. Elsewhere,
such as where the output of a script is a file, nothing is shown.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from workbench.foundation.errors import WorkbenchError
from workbench.foundation.formatting import format_count, format_duration, format_number
from workbench.runs.descriptions import describe_mean, format_counts
from workbench.runs.notebook_output import bundle
from workbench.runs.progress import progress_of

if TYPE_CHECKING:
    from workbench.runs.view import RunView
    from workbench.store.database import RunRow
    from workbench.store.history import History

_LINE_EVERY_S = 0.5
_SNAPSHOT_EVERY_S = 5.0
# A snapshot of a long run takes long to make; it may use this part of the time.
_PART_FOR_SNAPSHOTS = 0.1
ANSWERS_AGAIN = "the driver answers again"
_CLEAR_LINE = "\r\x1b[2K"


@contextlib.contextmanager
def waiting_for(
    run: RunView, describe: Callable[[], str] | None = None
) -> Iterator[Callable[[str | None], None]]:
    """Show a run while the block waits for it.

    In one cell a run is shown once, however often it is awaited.

    Args:
        run: The run.
        describe: Returns its progress in one line; None to count its trials.

    Yields:
        A function that shows what is new, with a warning if there is one; it may be called as often
        as the caller looks at the run.
    """
    view = _view_of(run, describe or (lambda: progress_line(run.history)))
    if view is None or view.is_waiting:
        yield _Lines().update if view is None else view.update
        return
    run.shown_in, view.is_waiting = view, True
    view.update()
    try:
        yield view.update
    finally:
        view.is_waiting = False
        view.close()


@contextlib.contextmanager
def starting(run: RunView) -> Iterator[None]:
    """State in a notebook that the driver of a run starts, which takes seconds where Ray starts
    first.

    The line goes away, because the value of the cell may show the run itself.

    Args:
        run: The run.
    """
    if _kernel_shell() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    from IPython.display import display

    line = f"starting the driver of {run.run_id} …"
    shown: Any = display(
        {"text/plain": line, "text/html": f"<p>{line}</p>"}, raw=True, display_id=True
    )
    try:
        yield
    finally:
        shown.update({"text/plain": "", "text/html": ""}, raw=True)


def describe_silence(row: RunRow) -> str | None:
    """Return for how long the driver of a run has given no sign; None where it has, or is gone.

    Args:
        row: The run, as it is now.
    """
    if row.silent_s is None:
        return None
    since = format_duration(int(row.silent_s))
    return f"no sign of the driver of {row.run_id} for {since}; still waiting for it"


def progress_line(history: History) -> str:
    """Return the progress of a run in one line."""
    parts = [history.experiment.name, history.state, format_counts(history)]
    best, metric = history.best(), history.objectives[0].metric
    if len(history.objectives) > 1:
        parts += (
            [f"{format_count(len(front), 'trial')} on the front"]
            if (front := history.front())
            else []
        )
    elif best is not None:
        value = format_number(history.best_values()[metric])
        parts.append(f"best {metric} {value}{describe_mean(history, best)} (trial {best.number})")
    progress = progress_of(history, history.now_unix_s())
    if progress.part is not None and history.state == "running":
        parts += [f"{100 * progress.part:.0f} %", progress.describe_left() or ""]
    return "  ".join(text for text in parts if text)


def is_shown_in_this_cell(run: RunView) -> bool:
    """Return whether the cell that is being executed shows a run already."""
    shown = run.shown_in
    return isinstance(shown, _InNotebook) and shown.cell == _cell_of(_kernel_shell())


def _view_of(run: RunView, describe: Callable[[], str]) -> _InNotebook | _InTerminal | None:
    if threading.current_thread() is not threading.main_thread():
        return None  # its output would appear anywhere
    shell, shown = _kernel_shell(), run.shown_in
    if shown is not None and (shown.is_waiting or is_shown_in_this_cell(run)):
        return shown
    if shell is not None:
        return _InNotebook(run, _cell_of(shell))
    stream = sys.stderr
    return _InTerminal(describe) if stream is not None and stream.isatty() else None


def _kernel_shell() -> Any:
    """Return the shell of the notebook that this process is the kernel of; None elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell if hasattr(shell, "kernel") else None


def _cell_of(shell: Any) -> int | None:
    return None if shell is None else shell.execution_count


class _InNotebook:
    """The output of a run in a cell, renewed while the cell waits."""

    def __init__(self, run: RunView, cell: int | None) -> None:
        from IPython.display import display

        self.cell = cell
        self.is_waiting = False
        self._run = run
        self._handle: Any = display(bundle(run), raw=True, display_id=True)
        self._next_s = time.monotonic() + _SNAPSHOT_EVERY_S
        self._lines = _Lines()

    def update(self, warning: str | None = None) -> None:
        """Renew the snapshot, if it is old, and print a new warning below it."""
        self._lines.update(warning)
        if time.monotonic() >= self._next_s:
            self.close()

    def close(self) -> None:
        """Renew the snapshot."""
        began_s = time.monotonic()
        with contextlib.suppress(
            WorkbenchError
        ):  # the caller learns of a store that cannot be read
            self._handle.update(bundle(self._run), raw=True)
        took_s = time.monotonic() - began_s
        self._next_s = time.monotonic() + max(_SNAPSHOT_EVERY_S, took_s / _PART_FOR_SNAPSHOTS)


class _Lines:
    """Where no line can be written again, a warning is printed once, and withdrawn when it has
    passed.
    """

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
