"""What the driver's limits read at every look is held against its plain definition over all
trials.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.store.history.test_history import experiment, trial
from workbench.experiment import Objective
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    Event,
    RunStateChanged,
    TrialEnded,
)
from workbench.store.history import History, Trial
from workbench.sweeps.budget import ending_now

VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 1.0, math.nan, math.inf])
TARGETS: dict[str, Any] = {
    "objectives": [
        {"metric": "accuracy", "goal": "maximize", "target": 0.75},
        {"metric": "cost", "goal": "minimize", "target": 0.5},
    ]
}


def plain_best(history: History) -> Trial | None:
    ranked = history.ranked()
    return ranked[0] if ranked else None


def is_met(objective: Objective, value: float) -> bool:
    assert objective.target is not None
    return value >= objective.target if objective.goal == "maximize" else value <= objective.target


def plain_target_reached(history: History) -> bool:
    targets = [item for item in history.objectives if item.target is not None]
    return bool(targets) and any(
        all(is_met(item, each.values[item.metric]) for item in targets)
        for each in history.trials.values()
        if each.state == "complete" and history.is_feasible(each)
    )


def plain_without_improvement(history: History) -> int:
    best = plain_best(history)
    if best is None or best.ended_unix_s is None:
        return 0
    later = [
        trial.configuration
        for trial in history.trials.values()
        if trial.finished and (trial.ended_unix_s or 0.0) > best.ended_unix_s
    ]
    return len(set(later) - {best.configuration})


@st.composite
def events_of_runs(draw: Any) -> list[Event]:
    """Events of trials that overlap, end in any state, at times of clocks that differ, some of them
    twice.
    """
    num_trials, repeats = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    events: list[Event] = []
    proposed = 0
    for _ in range(draw(st.integers(1, 40))):
        number = draw(st.integers(0, num_trials - 1))
        while proposed <= number:
            place = {"configuration": proposed // repeats, "repeat": proposed % repeats}
            events += trial(proposed, {}, **place)[:2]
            proposed += 1
        now_unix_s = draw(st.integers(0, 30)) / 2
        state = draw(st.sampled_from(["complete", "complete", "pruned", "stopped", "failed"]))
        values = {"accuracy": draw(VALUES), "cost": draw(VALUES)}
        ended = TrialEnded(
            trial=number,
            attempt=0,
            state=state,
            values=values,
            time_unix_s=now_unix_s,
            fits=draw(st.integers(0, 4)) > 0,
        )
        other = [
            AttemptEnded(
                trial=number, attempt=0, reason="lost", message="gone", time_unix_s=now_unix_s
            ),
            CheckpointSaved(trial=number, attempt=0, step=1, path="a", time_unix_s=now_unix_s),
            RunStateChanged(state="stopped", reason="person", time_unix_s=now_unix_s),
            RunStateChanged(state="running", time_unix_s=now_unix_s),
        ]
        events.append(draw(st.sampled_from([ended, ended, ended, *other])))
    return events


@given(events_of_runs(), st.integers(1, 3), st.booleans(), st.integers(1, 4))
def test_the_standings_are_what_a_look_at_all_trials_gives(
    events: list[Event], repeats: int, has_targets: bool, every: int
) -> None:
    history = History(experiment(repeats=repeats, **(TARGETS if has_targets else {})))
    for number, event in enumerate(events):
        history.apply(event)
        if number % every == 0 or number == len(events) - 1:
            assert history.best() is plain_best(history)
            assert history.target_reached() == plain_target_reached(history)
            assert history.num_configurations_without_improvement() == plain_without_improvement(
                history
            )


def test_a_look_at_the_limits_sees_only_trials_that_ended_since_the_last_one(
    monkeypatch: Any,
) -> None:
    goal = {"metric": "accuracy", "goal": "maximize", "target": 2.0}
    limited = experiment(objectives=[goal], budget={"plateau": 10_000})
    history = History(limited)
    for number in range(300):
        for event in trial(number, {"accuracy": number * 7 % 13 / 13}):
            history.apply(event)
    assert ending_now(history, 1e9) is None
    seen: list[int] = []
    is_feasible = history.is_feasible
    monkeypatch.setattr(
        history, "is_feasible", lambda each: seen.append(each.number) or is_feasible(each)
    )
    for number in range(300, 310):
        for event in trial(number, {"accuracy": 0.5}):
            history.apply(event)
        assert ending_now(history, 1e9) is None
    assert set(seen) == set(range(300, 310))
