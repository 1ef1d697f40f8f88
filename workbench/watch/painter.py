"""What one front end sees: a look turned into pictures, each with only what changed since the one before.

A part is looked at anew at its own pace, and at once when the front end shows something else. How much
goes to a front end a second is bounded here, however many trials there are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from workbench.errors import WorkbenchError
from workbench.watch.chart import ChartPainter
from workbench.watch.frames import Numbers, encode
from workbench.watch.heads import choose, head_of
from workbench.watch.one_trial import trial_picture
from workbench.watch.protocol import (
    ComparedPicture,
    LogPicture,
    Look,
    Picture,
    Problem,
    RunsLook,
    RunsPicture,
)
from workbench.watch.tail import RunTail
from workbench.watch.trials import table_picture
from workbench.watch.watch import Watch

BYTES_PER_S = 150_000
_BURST_BYTES = 600_000
_MAX_LINES = 300
_PACE_S = {"runs": 2.0, "run": 0.5, "chart": 0.0, "table": 1.0, "trial": 1.0, "log": 0.2, "compared": 2.0,
           "resources": 1.0}  # fmt: skip


class Allowance:
    """How many bytes may go out now: so many a second, and some at once after a quiet while."""

    def __init__(self, bytes_per_s: float = BYTES_PER_S, burst_bytes: float = _BURST_BYTES) -> None:
        """Begin with a full burst."""
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._left_bytes = burst_bytes
        self._at_s = time.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until something may be sent."""
        now_s = time.monotonic()
        self._left_bytes = min(self._burst_bytes, self._left_bytes + (now_s - self._at_s) * self._bytes_per_s)
        self._at_s = now_s
        return max(0.0, -self._left_bytes / self._bytes_per_s)

    def take(self, num_bytes: int) -> None:
        """Note what was sent; it may be more than was left, and the next waits for longer."""
        self._left_bytes -= num_bytes


class Painter:
    """Turns the looks of one front end into frames."""

    def __init__(self, watch: Watch) -> None:
        """Paint what `watch` follows."""
        self._watch = watch
        self._number = -1
        self._look = Look()
        self._chart = ChartPainter()
        self._told: dict[str, Any] = {}
        self._due_s: dict[str, float] = {}
        self._log_seq = 0
        self._frame = 0
        self._problem: Problem | None = None

    def show(self, number: int, look: Look) -> None:
        """Show something else from here on; everything that differs is sent at once."""
        if look.run != self._look.run:
            # A front end forgets what it had of the run before.
            self._chart = ChartPainter()
            for part in ("run", "table", "trial", "log", "problem"):
                self._told.pop(part, None)
        if look.compared != self._look.compared:
            self._told.pop("compared", None)
        if look.log_after is not None and (look.run != self._look.run or self._look.log_after is None):
            self._log_seq = look.log_after
        self._number, self._look, self._due_s = number, look, {}

    def paint(self) -> bytes | None:
        """Return a frame with what has changed, or None where nothing has.

        A part that cannot be painted leaves the others as they are: the frame says why.
        """
        numbers, seq, tail = Numbers(), 0, None
        parts: dict[str, Any] = {}
        self._problem = None
        with self._noting_problem():
            self._watch.check()
            tail = self._watch.tail(self._look.run) if self._look.run is not None else None
        if tail is not None:
            with tail.lock:
                seq = tail.cursor
                # A run that nobody has read yet is not one without trials.
                for paint_part in self._parts_of_run() if tail.is_begun else ():
                    with self._noting_problem():
                        parts |= paint_part(tail, numbers)
                if tail.problem is not None:
                    self._problem = problem_of(tail.problem)
        for paint_other in (self._paint_runs, self._paint_resources, self._paint_compared):
            with self._noting_problem():
                parts |= paint_other(numbers)
        if not parts and self._problem == self._told.get("problem"):
            return None
        self._told["problem"] = self._problem
        self._frame += 1
        picture = Picture(look=self._number, frame=self._frame, seq=seq, problem=self._problem, **parts)
        return encode(picture, numbers)

    def _parts_of_run(self) -> tuple[Callable[[RunTail, Numbers], dict[str, Any]], ...]:
        return self._paint_head, self._paint_chart, self._paint_table, self._paint_trial, self._paint_log

    @property
    def frame(self) -> int:
        """The number of the frame that was painted last."""
        return self._frame

    @contextlib.contextmanager
    def _noting_problem(self) -> Iterator[None]:
        try:
            yield
        except WorkbenchError as error:
            self._problem = self._problem or problem_of(error)

    def _paint_head(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        return self._changed("run", lambda: tail.shared("head", lambda: head_of(tail), 0.5, while_quiet=True))

    def _paint_chart(self, tail: RunTail, numbers: Numbers) -> dict[str, Any]:
        if self._look.chart is None or not self._is_due("chart"):
            return {}
        chart = self._chart.paint(tail, self._look.chart, numbers)
        return {} if chart is None else {"chart": chart}

    def _paint_table(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        table = self._look.table
        return {} if table is None else self._changed("table", lambda: table_picture(tail, table))

    def _paint_trial(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        trial = self._look.trial
        if trial is None:
            return {}
        return self._changed("trial", lambda: trial_picture(tail, trial, tail.folder))

    def _paint_runs(self, _: Numbers) -> dict[str, Any]:
        runs = self._look.runs
        return {} if runs is None else self._changed("runs", lambda: runs_picture(self._watch, runs))

    def _paint_resources(self, _: Numbers) -> dict[str, Any]:
        look = self._look
        return self._changed("resources", lambda: self._watch.resources(look.run)) if look.resources else {}

    def _paint_compared(self, numbers: Numbers) -> dict[str, Any]:
        if not self._look.compared:
            return {}
        tails = [self._watch.tail(run_id) for run_id in self._look.compared]
        are_begun = all(tail.is_begun or tail.problem is not None for tail in tails)
        if not are_begun or not self._is_due("compared"):
            return {}
        # The columns of a frame are put in it only where the curves have changed.
        seen = tuple((tail.run_id, tail.cursor) for tail in tails)
        if self._told.get("compared") == seen:
            return {}
        self._told["compared"] = seen
        return {"compared": tuple(_compared(tail, numbers) for tail in tails)}

    def _paint_log(self, tail: RunTail, _: Numbers) -> dict[str, Any]:
        if self._look.log_after is None or not self._is_due("log"):
            return {}
        lines = [line for line in tail.log if line.seq > self._log_seq]
        if not lines:
            return {}
        self._log_seq = lines[-1].seq
        shown = tuple(lines[-_MAX_LINES:])
        return {"log": LogPicture(lines=shown, skipped=len(lines) - len(shown), last_seq=self._log_seq)}

    def _changed(self, part: str, paint: Callable[[], Any]) -> dict[str, Any]:
        if not self._is_due(part):
            return {}
        painted = paint()
        if painted is None or painted == self._told.get(part):
            return {}
        self._told[part] = painted
        return {part: painted}

    def _is_due(self, part: str) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(part, 0.0):
            return False
        self._due_s[part] = now_s + _PACE_S[part]
        return True


def runs_picture(watch: Watch, look: RunsLook) -> RunsPicture:
    """Return the runs that a look asks for."""
    rows = choose(watch.rows(), look)
    return RunsPicture(items=tuple(watch.item(row) for row in rows[: look.limit]), total=len(rows))


def problem_of(error: WorkbenchError) -> Problem:
    """Return an error as a browser is told of it."""
    return Problem.model_validate(error.to_json())


def _compared(tail: RunTail, numbers: Numbers) -> ComparedPicture:
    with tail.lock:
        objective = tail.data.experiment.objectives[0]
        data = tail.overview(objective.metric, "time", 1, ())
        return ComparedPicture(
            run_id=tail.run_id, name=tail.row.name, metric=objective.metric,
            x=numbers.add([(value or 0.0) * data.x_unit for value in data.best_x], exact=True),
            y=numbers.add(data.best_y),
        )  # fmt: skip
