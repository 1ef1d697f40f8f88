"""What must hold after a fault.

Read off the events of a run and of the same run without a fault.
"""

from __future__ import annotations

import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.foundation.events import Event, from_json
from workbench.store.database import Store
from workbench.store.history import History


def count_error(ends: Counter[str], error: Exception, source: str) -> None:
    """Count an error that a person would have seen as a traceback.

    Print each kind once, with its source.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    known = f"{type(error).__name__} in {frame.filename}:{frame.lineno}"
    ends[known] += 1
    if ends[known] == 1:
        text = "".join(traceback.format_exception(error))
        print(f"\n{source}:\n{text[-3500:]}", flush=True)


@dataclass
class Record:
    """All events of a run, as they are stored."""

    rows: list[tuple[Any, ...]]
    history: History

    @classmethod
    def read(cls, store: Store, run_id: str) -> Record:
        rows = [tuple(row) for chunk in store.event_rows(run_id) for row in chunk]
        events = [from_json(str(row[4])) for row in rows]
        return cls(rows, History.of(store.experiment(run_id), events))

    @property
    def events(self) -> list[Event]:
        return [from_json(str(row[4])) for row in self.rows]

    def proposals(self) -> list[Any]:
        return [
            (event.trial, event.params, event.configuration, event.seed)
            for event in self.events
            if event.type == "trial_proposed"
        ]

    def results(self) -> dict[int, Any]:
        return {
            number: (trial.state, trial.values) for number, trial in self.history.trials.items()
        }

    def curves(self) -> dict[int, dict[int, float]]:
        """The objective by step, by trial."""
        metric = self.history.objectives[0].metric
        curves: dict[int, dict[int, float]] = defaultdict(dict)
        for event in self.events:
            if event.type == "trial_reported" and metric in event.values:
                curves[event.trial][event.step] = event.values[metric]
        return curves


@dataclass
class Findings:
    """What a fault did to a run."""

    wrong: list[str] = field(default_factory=list)
    num_lost: int = 0
    """Stored events and reports that are gone, and trials that were lost or run twice."""

    def add(self, other: Findings) -> None:
        self.wrong += other.wrong
        self.num_lost += other.num_lost


def compare(
    before: Sequence[Record],
    after: Record,
    undisturbed: Record,
    *,
    checkpoints_were_removed: bool = False,
) -> Findings:
    """Hold a run that suffered faults against itself at each fault, and against one without.

    Args:
        before: The run at each fault.
        after: The run when it had ended.
        undisturbed: The same run without a fault.
        checkpoints_were_removed: Whether a fault took the checkpoints of trials, which then have to
            start from the beginning.
    """
    findings = Findings()
    for earlier in before:
        findings.add(_what_is_gone(earlier, after))
    unsound = check_order(after, checkpoints_were_removed=checkpoints_were_removed)
    findings.add(Findings(unsound, len(unsound)))
    if after.history.state != "complete":
        findings.wrong.append(f"the run ended as {after.history.state}: {after.history.message}")
    if after.proposals() != undisturbed.proposals():
        findings.wrong.append(f"proposed {after.proposals()} instead of {undisturbed.proposals()}")
    for number, result in undisturbed.results().items():
        if after.results().get(number) != result:
            findings.wrong.append(
                f"trial {number} ended as {after.results().get(number)} instead of {result}"
            )
    findings.add(_other_curves(after.curves(), undisturbed.curves()))
    return findings


def _what_is_gone(earlier: Record, after: Record) -> Findings:
    """Return which events and ends of trials were stored and no longer are."""
    gone = Findings()
    missing = len(set(earlier.rows) - set(after.rows))
    if after.rows[: len(earlier.rows)] != earlier.rows:
        gone.wrong.append(f"{missing} stored events are gone or changed")
        gone.num_lost += max(1, missing)
    for number, trial in earlier.history.trials.items():
        if trial.finished and (trial.state, trial.values) != after.results().get(number):
            gone.wrong.append(
                f"trial {number} had ended as {trial.state}, and that is no longer so"
            )
            gone.num_lost += 1
    return gone


def _other_curves(
    curves: dict[int, dict[int, float]], undisturbed: dict[int, dict[int, float]]
) -> Findings:
    """Return which trials reported something else than without faults, or less."""
    other = Findings()
    for number, curve in undisturbed.items():
        wrong = {step: value for step, value in curves[number].items() if curve.get(step) != value}
        if wrong:
            other.wrong.append(f"trial {number} reported {wrong} instead of {curve}")
        if missing_steps := set(curve) - set(curves[number]):
            other.wrong.append(f"trial {number} never reported the steps {sorted(missing_steps)}")
            other.num_lost += len(missing_steps)
    return other


def check_order(record: Record, *, checkpoints_were_removed: bool = False) -> list[str]:
    """Check that each trial ends once, runs once at a time, and goes on from its checkpoint."""
    order = _Order(checkpoints_were_removed)
    for event in record.events:
        if getattr(event, "trial", None) is not None:
            order.take(event)
    numbers = sorted(record.history.trials)
    if numbers != list(range(len(numbers))):
        order.wrong.append(f"there are the trials {numbers}")
    return order.wrong


@dataclass
class _Order:
    """What the events of trials allow next, and what they did against it."""

    checkpoints_were_removed: bool = False
    wrong: list[str] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    saved: dict[int, int] = field(default_factory=dict)
    resumed_at: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        """Hold the next event against those before it."""
        trial = event.trial
        if trial in self.ended:
            self.wrong.append(f"trial {trial} had ended, and then: {event.type}")
        match event.type:
            case "trial_started":
                self._start(trial, event.resumed_from)
            case "trial_reported":
                self._report(trial, event.step)
            case "checkpoint_saved":
                self.saved[trial] = event.step
            case "attempt_ended":
                self.running.discard(trial)
            case "trial_ended":
                self.running.discard(trial)
                self.ended.add(trial)

    def _start(self, trial: int, resumed_from: str | None) -> None:
        if trial in self.running:
            self.wrong.append(f"trial {trial} was started while it ran")
        self.running.add(trial)
        self.last.pop(trial, None)
        if resumed_from is None and self.checkpoints_were_removed:
            self.saved.pop(trial, None)
        self.resumed_at[trial] = self.saved.get(trial, 0)

    def _report(self, trial: int, step: int) -> None:
        last = self.last.get(trial)
        if trial not in self.running or step < (last or 0):
            self.wrong.append(f"trial {trial} reported step {step} after {last}")
        if step <= self.resumed_at.get(trial, 0):
            saved = self.resumed_at[trial]
            self.wrong.append(f"trial {trial} went back to {step}, saved at {saved}")
        self.last[trial] = step
