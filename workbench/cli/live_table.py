"""The view of a followed run: plain lines in a log, a live table in a terminal."""

from __future__ import annotations

import math
import re
import textwrap
import time
from typing import TYPE_CHECKING, Protocol

from workbench.cli.output import colour_of, echo, make_console
from workbench.foundation.events import Event, Noted, RunState, TrialEnded, TrialStarted
from workbench.foundation.formatting import format_duration, format_params
from workbench.runs.descriptions import format_numbers, leaders
from workbench.runs.event_lines import Narrator
from workbench.runs.progress import describe_trial, format_epoch, progress_of
from workbench.store.history import History, Trial
from workbench.store.history.trial_columns import NUMBER, SPEED, STEP, metric

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from workbench.store.database import RunRow

REFRESH_S = 0.25
_QUIET_REFRESH_S = 1.0
"""How often the table is drawn while nothing happens. Drawing many trials takes long."""
_LINES_AROUND_TABLE = 8
_MIN_ROWS = 3
_MAX_SHOWN_TRIALS = 12
"""In a terminal, a run with more trials does not get a line for each of them."""
_BAR_WIDTH = 40
_PROGRESS_EVERY_S = 30.0
_MAX_PROGRESS_LINES = 60
_MAX_IN_LINE = 3
"""How many running trials a line of progress describes."""
_BELOW_LINE = " " * 12


class View(Protocol):
    """The view of a run that is being followed."""

    def show(self, event: Event) -> None:
        """Show an event that was applied to the history."""
        ...

    def refresh(self, state: RunState) -> None:
        """Show the current state."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class LinesView:
    """One plain line for each trial and each change of state, from the start of the run.

    Lines in between show how far long trials are. They come at most every 30 s, and later at most
    60 times in a run so far, so that a run of days does not fill a log.
    """

    def __init__(self, history: History, *, stderr: bool) -> None:
        """Show `history` on stdout or stderr."""
        self._narrator = Narrator(history)
        self._history = history
        self._clock = _Clock()
        self._stderr = stderr
        self._printed_s = time.monotonic()
        self._introduced: set[int] = set()
        self._has_begun = False

    def show(self, event: Event) -> None:
        """Print the line of an event if it changes a state.

        Trials after the first are shown at their end.
        """
        line = self._narrator.line_of(event)
        if line is not None and not self._is_usual_start(event):
            self._print(line, self._clock.time_of(event))
        if (traceback := self._narrator.traceback_of(event)) is not None:
            echo(textwrap.indent(traceback, _BELOW_LINE), err=self._stderr)

    def refresh(self, state: RunState) -> None:
        """Print how far the run is if nothing was printed for a while."""
        history = self._history
        if history.reading is not None:  # trials that seem to run may have ended
            return
        now_unix_s = history.now_unix_s()
        pause_s = max(_PROGRESS_EVERY_S, history.active_s(now_unix_s) / _MAX_PROGRESS_LINES)
        if time.monotonic() - self._printed_s < pause_s:
            return
        if (line := self._describe_progress(state, now_unix_s)) is not None:
            self._print(line, now_unix_s)

    def _describe_progress(self, state: RunState, now_unix_s: float) -> str | None:
        """Return what runs, or what keeps the run from training, or None if there is neither."""
        history, running = self._history, self._history.in_state("running")
        if not running:
            if state == "waiting":
                return "still waiting for the driver to start"
            waiting = [trial.number for trial in history.in_state("waiting")]
            if state == "running" and waiting:
                return f"still waiting for the workers of {format_numbers(waiting)}"
            return None
        shown = [self._describe(trial) for trial in running[:_MAX_IN_LINE]]
        if len(running) > _MAX_IN_LINE:
            shown.append(f"and {len(running) - _MAX_IN_LINE} more")
        if (left := progress_of(history, now_unix_s).describe_left()) is not None:
            shown.append(left)
        return f"running: {'; '.join(shown)}"

    def close(self) -> None:
        """Do nothing."""

    def _is_usual_start(self, event: Event) -> bool:
        """Return whether an event starts a new trial that is not the first of the run."""
        if not isinstance(event, TrialStarted):
            return False
        has_begun, self._has_begun = self._has_begun, True
        trial = self._history.trials[event.trial]
        is_new = trial.resumes is None and trial.clone is None
        return has_begun and not event.attempt and is_new

    def _describe(self, trial: Trial) -> str:
        """Describe how far a trial is. The first time, add its configuration."""
        label = f"trial {trial.number}"
        if trial.params and trial.number not in self._introduced:
            label += f" ({format_params(trial.params)})"
        self._introduced.add(trial.number)
        return f"{label} {describe_trial(self._history, trial)}"

    def _print(self, line: str, at_unix_s: float) -> None:
        echo(f"{_run_time(self._history, at_unix_s):>11} {line}", err=self._stderr)
        self._printed_s = time.monotonic()


class _Clock:
    """The times at which events became known.

    A trial may report its start late. Its time is then the time of the event before it.
    """

    def __init__(self) -> None:
        self._last_unix_s = 0.0

    def time_of(self, event: Event) -> float:
        """Return when the next event became known."""
        self._last_unix_s = max(self._last_unix_s, event.time_unix_s)
        return self._last_unix_s


def _run_time(history: History, at_unix_s: float) -> str:
    """Return the run time at a moment, in milliseconds. It stops when the run has ended."""
    if history.ended_unix_s is not None:
        at_unix_s = min(at_unix_s, history.ended_unix_s)
    return format_duration(round(history.clock.at(at_unix_s), 3))


class LiveView:
    """A table of running trials, redrawn in place below the lines of new events."""

    def __init__(self, row: RunRow, history: History, *, stderr: bool) -> None:
        """Show `history` of the run `row`, on the terminal behind stdout or stderr."""
        from rich.live import Live

        self._title = (row.name, row.run_id)
        self._history = history
        self._narrator = Narrator(history)
        self._clock = _Clock()
        self._console: Console = make_console(stderr=stderr)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._since_unix_s = time.time()
        self._drawn_s = float("-inf")
        self._has_news = True

    def show(self, event: Event) -> None:
        """Print the line of a new event. Running trials are in the table."""
        from rich.text import Text

        self._has_news = True
        line = self._narrator.line_of(event)
        is_old = event.time_unix_s < self._since_unix_s - self._history.clock_ahead_s
        if (
            line is None
            or isinstance(event, TrialStarted)
            or is_old
            or self._is_one_of_many(event, line)
        ):
            return
        # "trial 3 complete ..." or "run complete: ..."
        state = re.sub(r"^(trial \d+|\S+) ", "", line).split(" ")[0].rstrip(":")
        run_time = _run_time(self._history, self._clock.time_of(event))
        text = Text.assemble((f"{run_time:>11} ", "bright_black"), line)
        if colour_of(state) != "default":
            text.highlight_words([state], style=colour_of(state))
        if isinstance(event, Noted) and event.level == "warning":  # its end says what to do
            self._console.print(text, overflow="fold")
        else:
            self._console.print(text, no_wrap=True, overflow="ellipsis")
        if (traceback := self._narrator.traceback_of(event)) is not None:
            self._console.print(Text(textwrap.indent(traceback, _BELOW_LINE), style="bright_black"))

    def _is_one_of_many(self, event: Event, line: str) -> bool:
        """Return whether a line is about one of many trials that neither failed nor improved."""
        history = self._history
        has_best = len(history.objectives) == 1 and history.experiment.repeats == 1
        if not has_best or (history.max_trials() or math.inf) <= _MAX_SHOWN_TRIALS:
            return False
        return (
            isinstance(event, TrialEnded)
            and event.state != "failed"
            and "(best so far)" not in line
        )

    def refresh(self, state: RunState) -> None:
        """Redraw at most four times a second, and less often while nothing happens."""
        now_s, pause_s = time.monotonic(), _QUIET_REFRESH_S
        if self._has_news:
            pause_s = REFRESH_S
        if now_s - self._drawn_s >= pause_s:
            self._drawn_s, self._has_news = now_s, False
            self._live.update(self._draw(state), refresh=True)

    def close(self) -> None:
        """Remove the table, but not the lines."""
        self._live.stop()

    def _draw(self, state: RunState) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        name, run_id = self._title
        run_time = _run_time(self._history, self._history.now_unix_s())
        title = Text.assemble(
            (name, "bold"),
            f"  {run_id}  ",
            (state, colour_of(state)),
            (f"  {run_time}", "bright_black"),
        )
        if (reading := self._history.reading) is not None:
            return Group(
                Text(""), title, Text(f"reading: {reading.describe()}", style="bright_black")
            )
        parts: list[RenderableType] = [Text(""), title, self._draw_progress()]
        for label, trial, values in leaders(self._history):
            parts.append(
                Text.assemble(
                    (f"{label}  ", "bright_black"),
                    f"trial {trial.number}  ",
                    (format_params(values), "bold green"),
                    f"  {format_params(trial.params)}",
                    no_wrap=True,
                    overflow="ellipsis",
                )
            )
        running = self._history.in_state("running")
        if running:
            parts += [Text(""), self._draw_running(running)]
        return Group(*parts)

    def _draw_progress(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        history = self._history
        finished = sum(trial.finished for trial in history.trials.values())
        progress = progress_of(history, history.now_unix_s())
        done = progress.part
        total = history.max_trials()
        counts = "  ".join(
            f"[{colour_of(state)}]{len(trials)} {state}[/]"
            for state in ("running", "waiting", "complete", "pruned", "stopped", "failed")
            if (trials := history.in_state(state))
        )
        words = f"{finished} trials  {counts}"
        if total:
            words = f"{finished}/{total} trials  {counts}"
        if (left := progress.describe_left()) is not None:
            words += f"  [bright_black]{left}[/]"
        if done is None:
            from rich.text import Text

            return Text.from_markup(words)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=1.0, completed=done, width=min(_BAR_WIDTH, self._console.width // 3)),
            words,
        )
        return grid

    def _draw_running(self, running: list[Trial]) -> Table:
        from workbench.cli.output import make_table

        history = self._history
        metrics = [metric(history, item.metric) for item in history.objectives]
        unit = STEP.heading
        if any(trial.last_epoch is not None for trial in running):
            unit = "epoch"
        headings = [column.heading for column in (*metrics, SPEED)]
        table = make_table(NUMBER.heading, unit, *headings, "params")
        room = max(_MIN_ROWS, self._console.height - _LINES_AROUND_TABLE)
        for trial in running[:room]:
            step = str(trial.last_step)
            if trial.last_epoch is not None:
                step = format_epoch(history, trial)
            numbers = (column.text(history, trial) for column in (*metrics, SPEED))
            table.add_row(str(trial.number), step, *numbers, format_params(trial.params))
        if len(running) > room:
            table.add_row("...", f"and {len(running) - room} more")
        *numbers_shown, params = table.columns
        for column in numbers_shown:
            column.no_wrap = True
            column.min_width = len(str(column.header))
            column.justify = "right"
        params.no_wrap = True
        params.overflow = "ellipsis"
        return table
