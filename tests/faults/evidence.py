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


def compare(before: Sequence[Record], after: Record, undisturbed: Record) -> Findings:
    """Hold a run that suffered faults against itself at each fault, and against one without."""
    found = Findings()
    for earlier in before:
        missing = len(set(earlier.rows) - set(after.rows))
        if after.rows[: len(earlier.rows)] != earlier.rows:
            found.wrong.append(f"{missing} stored events are gone or changed")
            found.num_lost += max(1, missing)
        for number, trial in earlier.history.trials.items():
            if trial.finished and (trial.state, trial.values) != after.results().get(number):
                found.wrong.append(
                    f"trial {number} had ended as {trial.state}, and that is no longer so"
                )
                found.num_lost += 1
    unsound = check_order(after)
    found.wrong += unsound
    found.num_lost += len(unsound)
    if after.history.state != "complete":
        found.wrong.append(f"the run ended as {after.history.state}: {after.history.message}")
    if after.proposals() != undisturbed.proposals():
        found.wrong.append(f"proposed {after.proposals()} instead of {undisturbed.proposals()}")
    for number, result in undisturbed.results().items():
        if after.results().get(number) != result:
            found.wrong.append(
                f"trial {number} ended as {after.results().get(number)} instead of {result}"
            )
    curves = after.curves()
    for number, curve in undisturbed.curves().items():
        wrong = {step: value for step, value in curves[number].items() if curve.get(step) != value}
        if wrong:
            found.wrong.append(f"trial {number} reported {wrong} instead of {curve}")
        if missing_steps := set(curve) - set(curves[number]):
            found.wrong.append(f"trial {number} never reported the steps {sorted(missing_steps)}")
            found.num_lost += len(missing_steps)
    return found


def check_order(record: Record) -> list[str]:
    """Check that each trial ends once, runs once at a time, and goes on from its checkpoint."""
    wrong: list[str] = []
    ended: set[int] = set()
    running: set[int] = set()
    saved: dict[int, int] = {}
    resumed_at: dict[int, int] = {}
    last: dict[int, int] = {}
    for event in record.events:
        trial = getattr(event, "trial", None)
        if trial is None:
            continue
        if trial in ended:
            wrong.append(f"trial {trial} had ended, and then: {event.type}")
        match event.type:
            case "trial_started":
                if trial in running:
                    wrong.append(f"trial {trial} was started while it ran")
                running.add(trial)
                last.pop(trial, None)
                resumed_at[trial] = saved.get(trial, 0)
            case "trial_reported":
                if trial not in running or event.step < last.get(trial, 0):
                    wrong.append(
                        f"trial {trial} reported step {event.step} after {last.get(trial)}"
                    )
                if event.step <= resumed_at.get(trial, 0):
                    wrong.append(
                        f"trial {trial} went back to {event.step}, saved at {resumed_at[trial]}"
                    )
                last[trial] = event.step
            case "checkpoint_saved":
                saved[trial] = event.step
            case "attempt_ended":
                running.discard(trial)
            case "trial_ended":
                running.discard(trial)
                ended.add(trial)
    numbers = sorted(record.history.trials)
    if numbers != list(range(len(numbers))):
        wrong.append(f"there are the trials {numbers}")
    return wrong
