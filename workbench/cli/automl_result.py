"""An AutoML run as text: its result, its candidates in place of trials, and the view of both.

A candidate is trained on several folds, each of them a trial of its own. Numpy is loaded for such
runs only.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

from workbench.cli.live_table import REFRESH_S
from workbench.cli.options import next_commands, write_for_shell
from workbench.cli.output import make_console, print_note
from workbench.experiment.automl import MIN_TRIAL_TIME_S, concluding_s, is_automl
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    Event,
    Noted,
    RunState,
    RunStateChanged,
    TrialEnded,
)
from workbench.foundation.formatting import format_count, format_duration, format_number
from workbench.runs.descriptions import describe_end, failures_of, first_line
from workbench.runs.progress import progress_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from workbench.runs import Run
    from workbench.runs.automl.candidate_results import CandidateResult
    from workbench.store.history import History

_TOLERATED_S = 1.0
"""How much longer than allowed a run may take without a reason being shown."""
_BAR_WIDTH = 40


def result_lines(history: History) -> list[str]:
    """Return the result of a run in a few lines; none before it has one.

    Its next steps are commands. The summary that is stored with it has them in Python.
    """
    if history.result is not None and is_automl(history.experiment):
        from workbench.runs.automl.result_summary import summary_lines

        # A result that another version has written may lack what this one reads.
        with contextlib.suppress(KeyError, StopIteration):
            return summary_lines(history.result, history, write_for_shell, has_notes=True)
    lines = (history.result or {}).get("summary")
    return [str(line) for line in lines] if isinstance(lines, list) else []


def time_lines(history: History, whole_s: float) -> list[str]:
    """Return how long a run took, and by how much and why that is longer than the user allowed.

    The parts of a run that an earlier command has started are those of both.

    Args:
        history: The run, which has ended.
        whole_s: Seconds since the command was entered.
    """
    ends_s = [trial.last_event_unix_s for trial in history.trials.values() if trial.attempts]
    ended_s = history.ended_unix_s or history.now_unix_s()
    if history.stopping_unix_s is not None:  # trials that had no worker yet just end then
        ends_s.append(history.stopping_unix_s)
    if not ends_s:  # there was no time for trials
        ends_s.append(ended_s - max(0.0, history.active_s(ended_s) - history.waited_s))
    choose_s = max(0.0, ended_s - max(ends_s))
    unserved_s = history.active_s(ended_s) - history.limited_s(ended_s)
    try_s = max(0.0, history.active_s(ended_s) - history.waited_s - choose_s - unserved_s)
    since_command = ""
    if history.active_s(ended_s) > whole_s + _TOLERATED_S:
        since_command = f", {format_duration(round(whole_s))} of it since this command"
        whole_s = history.active_s(ended_s)
    parts_s = {
        "to start": whole_s - try_s - choose_s - unserved_s,
        "to try": try_s,
        "to choose and test": choose_s,
    }
    if unserved_s >= 0.5:
        parts_s = {"to wait for workers": unserved_s, **parts_s}
    parts = [
        f"{format_duration(round(max(0.0, part_s)))} {name}" for name, part_s in parts_s.items()
    ]
    lines = [f"time    {format_duration(round(whole_s))}{since_command}: {', '.join(parts)}"]
    limit_s = history.in_force.budget.time
    if limit_s is None or whole_s < limit_s + _TOLERATED_S:
        return lines
    kept_s = concluding_s(history.in_force)
    starts_s = max(0.0, limit_s - kept_s - MIN_TRIAL_TIME_S)
    planned_s = {
        "to wait for workers": 0.0,
        "to start": starts_s,
        "to try": limit_s - kept_s - min(starts_s, max(0.0, parts_s["to start"])),
        "to choose and test": kept_s,
    }
    excess_s = {name: part_s - planned_s[name] for name, part_s in parts_s.items()}
    longest = max(excess_s, key=lambda name: excess_s[name])
    why = {
        "to wait for workers": "other runs held them meanwhile",
        "to start": (
            "reading the data and starting processes left little, and models are tried for some "
            "seconds in any case"
        ),
        "to try": "trials that were under way took that long to end",
        "to choose and test": "one model is chosen and tested in any case",
    }[longest]
    over = format_duration(round(whole_s - limit_s))
    return [
        *lines,
        f"        {over} longer than the {format_duration(limit_s)} that you allowed: {why}",
    ]


def lines_without_result(run: Run, history: History, state: RunState) -> list[str]:
    """Return how a run ended that has no result.

    What became of its models, the first error, what to do.

    Args:
        run: The run.
        history: Its history.
        state: Its last state.
    """
    why = "its driver is gone" if state == "lost" else describe_end(history)
    num_trained = len(history.in_state("complete"))
    missing = "no model was trained"
    if num_trained:
        missing = f"no model was chosen yet from {format_count(num_trained, 'training')}"
    lines = [f"{run.name} {state}{f' ({why})' if why else ''}: {missing}"]
    setbacks = (setback for trial in history.trials.values() for setback in trial.setbacks)
    errors = [
        *failures_of(history),
        *(f"{setback.reason}: {first_line(setback.message)}" for setback in setbacks),
    ]
    if errors:
        lines.append(f"failed  {errors[0]}")
    if state == "lost":
        lines.append(f"logs    {run.folder}")
    lines.append(f"run     {run.run_id}")
    offers = next_commands(run.run_id, state, history, has_report=True)
    return [*lines, *(f"        {offer}" for offer in offers)]


def describe_candidates(history: History) -> str:
    """Return the number of candidates by state, in words."""
    from workbench.runs.automl.candidate_results import candidates_of, describe_counts

    return describe_counts(candidates_of(history))


def candidates_table(history: History, most: int) -> tuple[Table, int]:
    """Return a table of the candidates, best first, and the number of those left out.

    Args:
        history: The run.
        most: Maximum number of rows.
    """
    from rich.text import Text

    from workbench.cli.output import colour_of, make_table
    from workbench.runs.automl.candidate_results import ranked_candidates, score_labels
    from workbench.runs.automl.model_selection import describe

    candidates = ranked_candidates(history)
    scores = score_labels(candidates)
    table = make_table(
        "candidate", "state", "model", *scores.values(), "folds", "training time", "params"
    )
    colours = {"complete": "complete", "failed": "failed", "under way": "running"}
    for candidate in candidates[:most]:
        table.add_row(
            str(candidate.number),
            Text(candidate.state, style=colour_of(colours.get(candidate.state, "stopped"))),
            candidate.family,
            *(
                format_number(candidate.values[name]) if name in candidate.values else ""
                for name in scores
            ),
            f"{candidate.num_folds} of {candidate.of_folds}",
            format_duration(candidate.trained_s),
            Text(describe(candidate.params, candidate.family)),
        )
    return table, max(0, len(candidates) - most)


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
        from workbench.runs.automl.candidate_results import candidate, candidates_of

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

    def _show_done(self, candidate: CandidateResult) -> None:
        from rich.text import Text

        if candidate.state == "under way" or candidate.number in self._shown:
            return
        self._shown.add(candidate.number)
        is_best = candidate.state == "complete" and candidate.loss < self._best
        if is_best:
            self._best = candidate.loss
        # A run that has ended is shown as it was.
        ended_unix_s = max(
            (
                trial.ended_unix_s
                for trial in self._history.trials.values()
                if trial.configuration == candidate.number - 1 and trial.ended_unix_s is not None
            ),
            default=self._history.now_unix_s(),
        )
        run_time = format_duration(round(self._history.clock.at(ended_unix_s)))
        text = (candidate.line(is_best=is_best), "bold" if is_best else "")
        line = Text.assemble((f"{run_time:>11} ", "bright_black"), text)
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def _draw(self, state: RunState) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = progress_of(self._history, self._history.now_unix_s())
        words = describe_candidates(self._history) if self._history.trials else "starting"
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
