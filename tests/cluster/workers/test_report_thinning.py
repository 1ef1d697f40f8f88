"""Reports that arrive too fast are thinned, and nothing that is decided by them changes."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.cluster.workers.worker import NUM_FREE, ReportThinning
from workbench.experiment import Experiment
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.events import (
    CheckpointSaved,
    Event,
    TrialEnded,
    TrialProposed,
    TrialReported,
)
from workbench.runs.descriptions import describe_reports
from workbench.search import Study
from workbench.store.history import History
from workbench.store.history.reports import Reports


def make_experiment(**fields: Any) -> Experiment:
    settings: dict[str, Any] = {
        "train": "loop:train",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
    }
    return Experiment(**settings | fields)


def report(step: int, **values: float) -> TrialReported:
    return TrialReported(trial=0, step=step, values=values)


class Clock:
    """A time that passes when a test adds to it."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def thin(
    experiment: Experiment, events: list[Event], tick_s: float, num_free: int = NUM_FREE
) -> list[Event]:
    """Send events, one per tick, and return those that passed."""
    clock = Clock()
    thinning = ReportThinning(experiment, clock, num_free)
    passed: list[Event] = []
    for event in events:
        clock.now_s += tick_s
        passed += thinning.take(event)
    return [*passed, *thinning.flush()]


def test_the_first_the_last_and_the_extremes_of_many_reports_are_kept():
    chance = random.Random(0)
    losses = [chance.random() for _ in range(100_000)]
    losses[12_345], losses[65_432] = -7.0, 9.0
    made: list[Event] = [report(step, loss=loss) for step, loss in enumerate(losses)]
    reports = [
        event for event in thin(make_experiment(), made, 5e-5) if isinstance(event, TrialReported)
    ]
    assert NUM_FREE < len(reports) < 1_050
    assert {event.step for event in reports} > {0, NUM_FREE - 1, 12_345, 65_432, 99_999}
    assert [event.step for event in reports] == sorted(event.step for event in reports)
    assert len(reports) + sum(event.left_out for event in reports) == 100_000


def test_reports_that_come_slowly_all_pass():
    events: list[Event] = [report(step, loss=1 / (1 + step)) for step in range(3 * NUM_FREE)]
    assert thin(make_experiment(), events, 10.0) == events


def test_a_report_that_no_other_follows_passes_soon():
    clock = Clock()
    thinning = ReportThinning(make_experiment(), clock)
    for step in range(NUM_FREE):
        thinning.take(report(step, loss=1.0))
    assert thinning.take(report(NUM_FREE, loss=0.5)) == []
    assert thinning.overdue() == []
    clock.now_s = 0.6
    assert [event.step for event in thinning.overdue() if isinstance(event, TrialReported)] == [
        NUM_FREE
    ]


def test_other_events_pass_at_once_and_after_what_waits():
    fast: list[Event] = [report(step, loss=float(-step)) for step in range(NUM_FREE + 50)]
    saved = CheckpointSaved(trial=0, attempt=0, step=NUM_FREE + 50, path="last.pt")
    passed = thin(make_experiment(), [*fast, saved], 0.0)
    assert passed[-1] == saved
    assert passed[-2].model_dump()["step"] == NUM_FREE + 49


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_report_that_is_not_finite_passes_at_once(value: float):
    thinning = ReportThinning(make_experiment(), Clock())
    for step in range(NUM_FREE + 3):
        thinning.take(report(step, loss=1.0))
    assert thinning.take(report(NUM_FREE + 3, loss=value))[-1].model_dump()["step"] == NUM_FREE + 3


_KINDS = st.sampled_from([("loss",), ("cost",), ("loss", "cost"), ("other",), ("loss", "other")])
_REPORTS = st.lists(
    st.tuples(_KINDS, st.integers(0, 1), st.sampled_from([0, 1, 2, 3, math.nan])), max_size=60
)


@examples(300)
@given(
    _REPORTS,
    st.lists(
        st.sampled_from(["returned", "last", "best", {"mean_last": 3}]), min_size=2, max_size=2
    ),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.booleans(),
)
def test_the_value_of_a_trial_is_that_of_all_its_reports(drawn, modes, tick_s, returns):
    objectives = [
        {"metric": "loss", "goal": "minimize", "value": modes[0]},
        {"metric": "cost", "goal": "maximize", "value": modes[1]},
    ]
    experiment = make_experiment(objectives=objectives)
    events: list[Event] = []
    step = 0
    for place, (names, forward, value) in enumerate(drawn):
        step += forward
        events.append(
            report(step, **{name: float(value) + (name == "other") * place for name in names})
        )
    if returns:
        events.append(
            TrialReported(trial=0, step=step, values={"loss": 3.0, "cost": 3.0}, returned=True)
        )
    assert value_of(experiment, thin(experiment, events, tick_s, num_free=1)) == value_of(
        experiment, events
    )


def value_of(experiment: Experiment, events: list[Event]) -> dict[str, float]:
    value = TrialValue(experiment)
    for event in events:
        if isinstance(event, TrialReported):
            value.report(event.values, step=event.step, returned=event.returned)
    return value.result()


@pytest.mark.parametrize(
    "early_stop",
    [
        {"pruner": "median", "startup_trials": 1, "grace": 5},
        {"pruner": "asha", "grace": 64, "unit": "samples"},
    ],
)
def test_a_pruner_decides_at_the_same_report(early_stop: dict[str, Any]):
    experiment = make_experiment(early_stop=early_stop, sampler="random")
    chance = random.Random(1)
    studies, ends = [Study(experiment), Study(experiment)], []
    for level in (0.0, 3.0, -3.0, 9.0):
        made: list[Event] = [
            report(step, loss=chance.random() + level, samples=7.0 * step) for step in range(1, 300)
        ]
        sent = [made, thin(experiment, made, 0.0, num_free=10)]
        ends.append([ended_at(study, events) for study, events in zip(studies, sent, strict=True)])
    assert [whole for whole, _ in ends] == [thinned for _, thinned in ends]
    assert any(whole is not None for whole, _ in ends)


def ended_at(study: Study, events: list[Event]) -> int | None:
    """Run a trial of a study, and return the step at which it is pruned."""
    proposal = study.ask()
    assert proposal is not None
    for event in events:
        assert isinstance(event, TrialReported)
        if study.take_report(event.model_copy(update={"trial": proposal.trial})):
            ending = TrialEnded(trial=proposal.trial, attempt=0, state="pruned", step=event.step)
            study.tell(proposal.trial, ending)
            return event.step
    study.tell(proposal.trial, TrialEnded(trial=proposal.trial, attempt=0, state="complete"))
    return None


def test_how_many_reports_are_stored_is_written_down():
    experiment = make_experiment()
    made = [report(step, loss=1.0) for step in range(5 * NUM_FREE)]
    passed = [event for event in thin(experiment, [*made], 0.0) if isinstance(event, TrialReported)]
    proposed = TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=0)
    one_by_one, in_columns = (History.of(experiment, [proposed]) for _ in range(2))
    for event in passed:
        one_by_one.apply(event)
    in_columns.take_reports(0, Reports.of([event.model_dump() for event in passed]))
    for history in (one_by_one, in_columns):
        assert describe_reports(history.trials.values()).startswith(
            f"{len(passed):,} of 5,000 reports are stored"
        )
    assert describe_reports([]) == ""
