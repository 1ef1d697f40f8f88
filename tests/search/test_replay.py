"""A replay proposes what was recorded, in that order, whatever the sampler would say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import ReplayPlanned, TrialEnqueued, TrialProposed
from workbench.search import Study


def record(drive: Drive) -> list[TrialProposed]:
    return [event for event in drive.events if isinstance(event, TrialProposed)]


def side_by_side(drive: Drive, num_trials: int) -> None:
    """Train three at a time, the newest of them first."""
    running: list[int] = []
    for number in range(num_trials):
        proposal = drive.study.ask(repeats_only=number > num_trials - 3)
        if proposal is not None:
            drive.events.append(proposal.event())
            running.append(proposal.trial)
            drive.report(proposal.trial, 1, loss=float(proposal.params["x"]) + proposal.repeat)  # type: ignore[arg-type]
        if len(running) == 3:
            drive.end(running.pop())
    while running:
        drive.end(running.pop())


def replayed(drive: Drive) -> Drive:
    again = Drive(drive.experiment)
    again.events.append(ReplayPlanned(of_run_id="first", proposals=record(drive)))
    again.study.apply(again.events[0])
    return again


def same(first: list[TrialProposed], second: list[TrialProposed]) -> bool:
    return [event.model_dump(exclude={"time_unix_s"}) for event in first] == [
        event.model_dump(exclude={"time_unix_s"}) for event in second
    ]


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "cmaes", "nsga2"])
@pytest.mark.parametrize("repeats", [1, 3])
def test_recorded_proposals_come_again_in_their_order(sampler: str, repeats: int) -> None:
    search: dict[str, Any] = {"x": {"low": 0.0, "high": 1.0}}
    if sampler == "cmaes":
        search["y"] = {"low": 1e-3, "high": 1.0, "log": True}
    if sampler == "grid":
        search = {"x": {"choices": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}
    first = Drive(make_experiment(sampler=sampler, search=search, repeats=repeats, seed=4))
    wanted = {"x": 0.2, "y": 0.1} if sampler == "cmaes" else {"x": 0.2}
    first.study.enqueue(wanted)
    first.events.append(TrialEnqueued(params=wanted))
    side_by_side(first, 12)
    assert record(first)[0].source == "enqueued"

    again = replayed(first)
    while not again.study.exhausted:  # one after another, and every one much worse
        proposal = again.ask()
        again.report(proposal.trial, 1, loss=1e6 - proposal.trial)
        again.end(proposal.trial)

    assert same(record(again), record(first))
    assert again.study.ask() is None


def test_a_replay_goes_on_after_a_restart_where_it_was() -> None:
    first = Drive(make_experiment(repeats=2))
    side_by_side(first, 8)
    again = replayed(first)
    for _ in range(3):
        again.ask()
    again.report(0, 1, loss=0.5)
    again.end(0)

    again.study = again.rebuilt()
    again.end(1, "failed", values={})
    while not again.study.exhausted:
        again.ask()
    assert same(record(again), record(first))


def test_repeats_that_were_forgone_are_not_asked_for() -> None:
    first = Drive(make_experiment(repeats=3))
    first.ask()
    first.end(0, "failed", values={})
    first.train(lambda params, rung: 0.5)
    again = replayed(first)
    for _ in record(first):
        again.train(lambda params, rung: 0.5)
    assert again.study.exhausted
    assert not again.study.has_waiting_repeats


def test_a_replay_takes_nothing_else_and_begins_with_nothing() -> None:
    first = Drive(make_experiment())
    first.ask()
    with pytest.raises(ExperimentError, match="only repeats recorded trials"):
        replayed(first).study.enqueue({"x": 0.5})
    with pytest.raises(RunError, match="already proposed a trial"):
        first.study.replay(record(first))


def test_what_was_left_out_for_want_of_room_is_no_repeat() -> None:
    first = Drive(make_experiment())
    first.ask()
    first.ask()
    study: Study = replayed(first).study
    study.ask()
    assert study.ask(repeats_only=True) is None
