"""The view of a followed AutoML run: a line for each candidate, and a progress bar."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from workbench.cli.live_table import REFRESH_S
from workbench.cli.output import make_console, print_note
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    Event,
    Noted,
    RunState,
    RunStateChanged,
    TrialEnded,
)
from workbench.foundation.formatting import format_duration
from workbench.runs.automl.candidate_results import (
    CandidateResult,
    candidate,
    candidates_of,
    describe_counts,
)
from workbench.runs.progress import progress_of
from workbench.store.history import History

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 40


class CandidatesView:
    """Lines of finished candidates; in a terminal, with a progress bar below."""

    def __init__(self, history: History, as_json: bool) -> None:
        """Show `history` on stdout, or on stderr if stdout is for a JSON document."""
        from rich.live import Live

        self._history = history
        self._console = make_console(stderr=as_json)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        if self._console.is_terminal:
            self._live.start()
        self._shown: set[int] = set()
        self._best = math.inf
        self._drawn_s = -math.inf

    def show(self, event: Event) -> None:
        """Print the line of a candidate that this event completes."""
        if isinstance(event, TrialEnded):
            self._show_done(
                candidate(self._history, self._history.trials[event.trial].configuration)
            )
        elif isinstance(event, RunStateChanged) and event.state in FINISHED_RUN_STATES:
            for tried in candidates_of(self._history):
                self._show_done(tried)
        elif isinstance(event, Noted) and event.level != "info":
            print_note(event.message)

    def refresh(self, state: RunState) -> None:
        """Redraw the bar, at most four times a second."""
        now_s = time.monotonic()
        if self._live.is_started and now_s - self._drawn_s >= REFRESH_S:
            self._drawn_s = now_s
            self._live.update(self._draw(state), refresh=True)

    def close(self) -> None:
        """Remove the bar; the lines stay."""
        self._live.stop()

    def _show_done(self, tried: CandidateResult) -> None:
        from rich.text import Text

        if tried.state == "under way" or tried.number in self._shown:
            return
        self._shown.add(tried.number)
        is_best = tried.state == "complete" and tried.loss < self._best
        if is_best:
            self._best = tried.loss
        run_time = format_duration(round(self._history.active_s(self._history.now_unix_s())))
        text = (tried.line(is_best=is_best), "bold" if is_best else "")
        line = Text.assemble((f"{run_time:>11} ", "bright_black"), text)
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def _draw(self, state: RunState) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = progress_of(self._history, self._history.now_unix_s())
        words = (
            describe_counts(candidates_of(self._history)) if self._history.trials else "starting"
        )
        if (reading := self._history.reading) is not None:
            words = f"reading: {reading.describe()}"
        elif state == "stopping":
            words += ", stopping"
        elif (left := progress.describe_left()) is not None:
            words += f", {left}"
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(
                total=1.0,
                completed=reading.share if reading else progress.part or 0.0,
                width=_BAR_WIDTH,
            ),
            words,
        )
        return grid
