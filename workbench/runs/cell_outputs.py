"""Outputs of cells that stay true: what a cell shows is drawn again while its kernel lives.

A saved notebook holds what was drawn last. No page has to be open for that, and no cell has to
wait: a thread of the kernel looks at what is shown, and updates the output when it has changed.
What an output contains is left to its owner, such as `notebook_output`.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.runs.notebook_output import output_forms
from workbench.runs.stored_run import StoredRun
from workbench.store.database import Store

Forms = dict[str, Any]
"""The forms of an output by MIME type."""

LOOK_EVERY_S = 2.0
"""How often the thread looks whether something has happened that is drawn at once."""
_FIRST_S = 5.0
_LONGEST_S = 60.0
_GROWTH = 1.5
# A drawing of a long run takes long to make. It may use this part of the time.
_PART_FOR_DRAWINGS = 0.1
_PATIENCE_S = 10.0


class Look(NamedTuple):
    """A look at what is shown."""

    mark: Hashable
    """If it differs from the look before, the output is drawn at once."""
    is_over: bool
    """Whether nothing will change any more."""


@dataclass
class Shown:
    """An output of a cell.

    Attributes:
        draw: Returns its forms. Called by a thread.
        look: Returns what decides whether to draw. It must be cheap. Called by a thread.
        handle: IPython's handle of the output.
        forms: The forms that it has.
        has_failed: Whether an error that nobody expects was shown. It is shown once.
    """

    draw: Callable[[], Forms]
    look: Callable[[], Look]
    handle: Any
    forms: Forms
    mark: Hashable = None
    is_over: bool = False
    has_failed: bool = False
    wait_s: float = _FIRST_S
    next_s: float = field(default_factory=lambda: time.monotonic() + _FIRST_S)

    def renew(self) -> bool:
        """Draw it again if it is time to, and return whether nothing will change any more."""
        seen = self.look()
        now_s = time.monotonic()
        if seen == (self.mark, self.is_over) and now_s < self.next_s:
            return False
        self.mark, self.is_over = seen
        try:
            forms = self.draw()
            if forms != self.forms:
                self.forms = forms
                self.handle.update(forms, raw=True)
        finally:
            took_s = time.monotonic() - now_s
            self.wait_s = min(_LONGEST_S, _GROWTH * self.wait_s)
            self.next_s = time.monotonic() + max(self.wait_s, took_s / _PART_FOR_DRAWINGS)
        return seen.is_over


class _Renewer:
    """The thread that renews all outputs of this kernel. It ends when there is nothing to renew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: list[Shown] = []
        self._thread: threading.Thread | None = None
        self._is_wanted = threading.Event()
        self._has_passed = threading.Event()

    def add(self, output: Shown) -> None:
        with self._lock:
            self._outputs.append(output)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew_all, name="workbench-outputs", daemon=True
                )
                self._thread.start()

    def catch_up(self) -> None:
        # A pass that is under way may have looked too early.
        for _ in range(2):
            self._has_passed.clear()
            with self._lock:
                if self._thread is None:
                    return
                self._is_wanted.set()
            self._has_passed.wait(_PATIENCE_S)

    def _renew_all(self) -> None:
        while True:
            self._is_wanted.wait(LOOK_EVERY_S)
            self._is_wanted.clear()
            for output in list(self._outputs):
                if _renew(output):
                    self._outputs.remove(output)
            with self._lock:
                if not self._outputs:
                    self._thread = None
                self._has_passed.set()
                if self._thread is None:
                    return


def _renew(output: Shown) -> bool:
    """Renew an output, and return whether nothing will change any more.

    A store that cannot be reached now may be reached later. Any other error is shown once, and does
    not keep this output or others from being drawn later.
    """
    try:
        return output.renew()
    except WorkbenchError:
        return False
    except Exception:
        if not output.has_failed:
            output.has_failed = True
            traceback.print_exc()
        return False


_renewer = _Renewer()
_shown_runs: set[str] = set()
"""The runs that this notebook has shown, by id."""
_free: dict[int, Any] = {}
"""The handle of an output that the next one of its cell may replace, by the cell's execution."""


def catch_up() -> None:
    """Wait until all outputs show what has happened so far, but not for long.

    A kernel that runs a notebook without a page may end right after a run, and the notebook is
    saved as it is then.
    """
    _renewer.catch_up()


def kernel_shell() -> Any:
    """Return the shell of the notebook that this process is the kernel of, or None."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if not hasattr(shell, "kernel"):
        return None
    return shell


def show(
    forms: Forms,
    draw: Callable[[], Forms],
    look: Callable[[], Look],
    *,
    metadata: dict[str, Any] | None = None,
) -> bool:
    """Show something below the running cell, and keep it true.

    Args:
        forms: Its forms now.
        draw: Returns its forms later. Called by a thread.
        look: Returns what decides whether to draw. Called by a thread every two seconds.
        metadata: The metadata of the forms, by MIME type.

    Returns:
        Whether it is shown: False outside kernels of notebooks.
    """
    if kernel_shell() is None:
        return False
    from IPython.display import display

    handle: Any = display(forms, metadata=metadata or {}, raw=True, display_id=True)
    _renewer.add(Shown(draw, look, handle, forms, mark=look().mark))
    return True


def show_run(run: StoredRun, draw: Callable[[StoredRun], Forms] = output_forms) -> bool:
    """Show a run below the running cell until it has ended. Result as of `show`.

    Args:
        run: The run.
        draw: Returns the forms of a run.
    """
    if kernel_shell() is None:
        return False
    forms = draw(run)
    handle = display_run(run, forms)
    if not run.finished:
        keep_run(run, draw, handle, forms)
    return True


def display_run(run: StoredRun, forms: Forms) -> Any:
    """Show a run below the running cell. It replaces the line that said that the run starts.

    Args:
        run: The run.
        forms: Its forms.

    Returns:
        IPython's handle of the output.
    """
    from IPython.display import display

    _shown_runs.add(run.run_id)
    handle = _free.pop(kernel_shell().execution_count, None)
    if handle is not None:
        handle.update(forms, raw=True)
        return handle
    return display(forms, raw=True, display_id=True)


def was_shown(run: StoredRun) -> bool:
    """Return whether this notebook has shown a run, in any of its cells."""
    return run.run_id in _shown_runs


def free(handle: Any) -> None:
    """Let the next run that the running cell shows take the place of an output.

    Args:
        handle: IPython's handle of the output.
    """
    _free.clear()  # other cells are over
    _free[kernel_shell().execution_count] = handle


def keep_run(run: StoredRun, draw: Callable[[StoredRun], Forms], handle: Any, forms: Forms) -> None:
    """Keep an output of a run true until the run has ended.

    Args:
        run: The run.
        draw: Returns the forms of a run.
        handle: IPython's handle of the output.
        forms: The forms that it has.
    """
    again = RunAgain(run)
    _renewer.add(Shown(lambda: draw(again.run), again.look, handle, forms, mark=run.state))


class RunAgain:
    """A run as a thread reads it. Its store is opened again there."""

    def __init__(self, run: StoredRun) -> None:
        """Remember where the run is.

        Args:
            run: The run, as the kernel's main thread reads it.
        """
        self._url = run.store.url
        self._artifacts = str(run.store.artifacts)
        self._run_id = run.run_id
        self._run: StoredRun | None = None

    @property
    def run(self) -> StoredRun:
        """The run. The store is opened when it is first read."""
        if self._run is None:
            self._run = StoredRun(Store.open(self._url, self._artifacts), self._run_id)
        return self._run

    def look(self) -> Look:
        """Return the state of the run, and whether that is its last."""
        state = self.run.state
        return Look(state, state in FINISHED_RUN_STATES)
