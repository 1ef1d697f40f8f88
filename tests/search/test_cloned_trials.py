"""A trial with the weights of another one teaches neither sampler nor pruner."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Clone, ReplayPlanned, TrialEnqueued, TrialProposed
from workbench.search import Proposal


def clone(
    drive: Drive, of: int, x: float, begins_from: Literal["weights", "start"] = "weights"
) -> Proposal:
    source = Clone(of=of, begins_from=begins_from, step=2, branch=2)
    drive.study.enqueue({"x": x}, source)
    drive.events.append(TrialEnqueued(params={"x": x}, clone=source))
    return drive.ask()


def proposals_after_clones(
    sampler: str, begins_from: Literal["weights", "start"], value: float
) -> list[dict[str, Any]]:
    """What a sampler proposes after clones near x = 0.9 that ended with a value."""
    drive = Drive(make_experiment(sampler=sampler, seed=3))
    for _ in range(12):
        drive.train(lambda params, rung: (params["x"] - 0.3) ** 2 + 1 / rung, rungs=3)
    for number in range(6):
        cloned = clone(drive, number, 0.9 + number / 100, begins_from)
        drive.report(cloned.trial, 3, loss=value)
        drive.end(cloned.trial)
    return [
        dict(drive.train(lambda params, rung: (params["x"] - 0.3) ** 2 + 1 / rung).params)
        for _ in range(4)
    ]


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_the_sampler_does_not_learn_from_inherited_weights(sampler: str) -> None:
    good, bad = (proposals_after_clones(sampler, "weights", value) for value in (-50.0, 50.0))
    assert good == bad
    if sampler == "tpe":
        good, bad = (proposals_after_clones(sampler, "start", value) for value in (-50.0, 50.0))
        assert good != bad, "from its start, a clone is a configuration like any other"


def test_no_pruner_stops_a_clone_or_compares_others_with_it() -> None:
    def others_are_pruned(value: float) -> list[bool]:
        drive = Drive(
            make_experiment(early_stop={"pruner": "median", "grace": 1}, sampler="random", seed=2)
        )
        for _ in range(6):
            drive.train(lambda params, rung: params["x"] + 1 / rung, rungs=3)
        for number in range(6):
            cloned = clone(drive, number, 0.5)
            for rung in (3, 4, 5):
                assert not drive.report(cloned.trial, rung, loss=value + rung)
            drive.end(cloned.trial)
        pruned: list[bool] = []
        for _ in range(6):
            proposal = drive.ask()
            stops = [
                drive.report(proposal.trial, rung, loss=float(proposal.params["x"]) + 1 / rung)  # type: ignore[arg-type]
                for rung in (1, 2, 3)
            ]
            drive.end(proposal.trial, "pruned" if any(stops) else "complete")
            pruned.append(any(stops))
        return pruned

    low, high = others_are_pruned(-1e6), others_are_pruned(1e6)
    assert low == high
    assert True in low
    assert False in low


def test_a_clone_can_be_the_best_but_has_no_say_in_what_matters() -> None:
    drive = Drive(make_experiment(seed=1))
    for _ in range(10):
        drive.train(lambda params, _rung: float(params["x"]))
    before = drive.study.importance()
    cloned = clone(drive, 0, 0.9)
    drive.report(cloned.trial, 1, loss=-7.0)
    drive.end(cloned.trial)
    assert drive.study.best_trials() == [cloned.trial]
    assert drive.study.importance() == before


def test_a_clone_has_the_seed_of_its_parent_and_no_repeats() -> None:
    drive = Drive(make_experiment(repeats=3, seed=5))
    for _ in range(3):
        proposal = drive.ask()
        drive.report(proposal.trial, 1, loss=1.0)
        drive.end(proposal.trial)
    repeat = 2
    assert drive.study._record(repeat).proposal.repeat == 2
    cloned = clone(drive, repeat, 0.4)
    assert cloned.seed == drive.study._record(repeat).proposal.seed
    drive.report(cloned.trial, 3, loss=0.5)
    drive.end(cloned.trial)
    assert not drive.study.has_waiting_repeats


def test_a_resumed_run_proposes_what_it_would_have_proposed() -> None:
    drive = Drive(make_experiment(sampler="tpe", seed=9))
    for number in range(14):
        drive.train(lambda params, _rung: abs(float(params["x"]) - 0.2))
        if number % 4 == 2:
            cloned = clone(drive, number, 0.25 + number / 100)
            drive.report(cloned.trial, 4, loss=-1.0)
            drive.end(cloned.trial)
    rebuilt = drive.rebuilt()
    for _ in range(3):
        wanted, proposed = drive.study.ask(), rebuilt.ask()
        assert wanted is not None
        assert proposed == wanted


def test_an_enqueued_clone_outlives_a_restart() -> None:
    drive = Drive(make_experiment(seed=9))
    drive.train(lambda params, _rung: float(params["x"]))
    source = Clone(of=0, begins_from="weights", step=2, branch=2)
    drive.study.enqueue({"x": 0.5}, source)
    drive.events.append(TrialEnqueued(params={"x": 0.5}, clone=source))
    rebuilt = drive.rebuilt()
    assert rebuilt.enqueued_clones() == [source]
    proposal = rebuilt.ask()
    assert proposal is not None
    assert (proposal.clone, proposal.source) == (source, "enqueued")
    assert rebuilt.enqueued_clones() == []


def test_a_replay_repeats_clones_after_the_trials_that_they_continue() -> None:
    first = Drive(make_experiment(seed=4))
    parent = first.ask()
    first.report(parent.trial, 1, loss=1.0)
    weights, start = clone(first, 0, 0.5), clone(first, 0, 0.75, "start")
    for trial in (parent, weights, start):
        first.report(trial.trial, 3, loss=0.5)
        first.end(trial.trial)

    proposals = [event for event in first.events if isinstance(event, TrialProposed)]
    again = Drive(first.experiment)
    again.events.append(ReplayPlanned(of_run_id="first", proposals=proposals))
    again.study.apply(again.events[0])
    assert again.study.branches(0) == [2]
    repeated = again.ask()
    assert again.study.ask() is None, "its checkpoint is not there yet"
    again.report(repeated.trial, 3, loss=1.0)
    again.end(repeated.trial)
    assert [again.ask().clone, again.ask().clone] == [weights.clone, start.clone]
    with pytest.raises(ExperimentError, match="a replay only repeats"):
        again.study.enqueue({"x": 0.1}, weights.clone)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"sampler": {"name": "pbt", "options": {"population": 4, "length": 8}}},
            "a population already decides",
        ),
        ({"fidelity": {"x": [1, 2]}, "search": {"y": {"low": 0, "high": 1}}}, "with a fidelity"),
    ],
)
def test_some_runs_have_no_place_for_inherited_weights(fields: dict[str, Any], why: str) -> None:
    drive = Drive(make_experiment(**fields))
    with pytest.raises(ExperimentError, match=why):
        drive.study.enqueue({"x": 0.1}, Clone(of=0, begins_from="weights"))


def test_values_of_a_clone_are_its_own() -> None:
    drive = Drive(make_experiment())
    parent = drive.ask()
    drive.report(parent.trial, 1, loss=-9.0)
    cloned = clone(drive, 0, 0.5)
    assert math.isnan(drive.study.result(cloned.trial).get("loss", math.nan))
    drive.report(cloned.trial, 3, loss=2.0)
    assert drive.study.result(cloned.trial) == {"loss": 2.0}
