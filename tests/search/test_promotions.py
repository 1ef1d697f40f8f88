"""Configurations begin at the lowest level of the fidelity, and the best ones are trained at the
next.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PriorTrialAdded, ReplayPlanned, TrialEnqueued, TrialProposed
from workbench.search import Proposal

FIDELITY = {"size": [1, 9]}


def make_drive(**changes: Any) -> Drive:
    return Drive(make_experiment(**{"fidelity": FIDELITY, "sampler": "random", **changes}))


def loss(params: Any) -> float:
    """The smaller a training, the worse it ends, so that values of different levels must not be
    compared.
    """
    return abs(params["x"] - 0.3) + 1.0 / params["size"]


def train(drive: Drive, **options: bool) -> Proposal:
    proposal = drive.ask(**options)
    finish(drive, proposal)
    return proposal


def finish(drive: Drive, proposal: Proposal) -> None:
    drive.report(
        proposal.trial, 1, elapsed_s=float(proposal.params["size"]), loss=loss(proposal.params)
    )  # type: ignore[arg-type]
    drive.end(proposal.trial)


def test_the_better_half_is_trained_at_the_next_level_and_no_level_is_left_out() -> None:
    drive = make_drive()
    proposals = [train(drive) for _ in range(60)]
    sizes = [proposal.params["size"] for proposal in proposals]
    assert {1, 3, 9} == set(sizes)
    assert sizes.count(1) > sizes.count(3) > sizes.count(9) > 0
    for proposal in proposals:
        assert (proposal.fidelity is None) == (proposal.params["size"] == 9)
        if proposal.resumes is not None:
            before = proposals[proposal.resumes]
            assert before.configuration == proposal.configuration
            assert {**before.params, "size": 0} == {**proposal.params, "size": 0}
            assert before.params["size"] == proposal.params["size"] / 3  # type: ignore[operator]
        else:
            assert proposal.params["size"] == 1


def test_only_full_trainings_can_be_the_best() -> None:
    drive = make_drive()
    first = drive.ask()
    drive.report(first.trial, 1, loss=-100.0)
    drive.end(first.trial)
    assert drive.study.best_trials() == []
    for _ in range(40):
        train(drive)
    [best] = drive.study.best_trials()
    assert drive.study.result(best)["loss"] > -100.0
    proposed = [event for event in drive.events if isinstance(event, TrialProposed)]
    assert proposed[best].fidelity is None


def test_when_no_configuration_may_begin_promising_ones_go_on_until_one_is_complete() -> None:
    drive = make_drive()
    for _ in range(2):
        while drive.study.has_confirmations:
            train(drive, repeats_only=True)
        train(drive)
    while drive.study.has_confirmations:
        train(drive, repeats_only=True)
    assert drive.study.ask(repeats_only=True) is None
    assert drive.study.best_trials()


def test_a_training_that_fails_at_a_low_level_goes_no_further_and_limits_are_those_of_full_ones() -> (
    None
):
    drive = make_drive(constraints=[{"metric": "latency", "at_most": 1.0}])
    failed = drive.ask()
    drive.end(failed.trial, "failed", reason="oom", values={})
    slow, other = drive.ask(), drive.ask()
    drive.report(slow.trial, 1, loss=0.5, latency=5.0)
    drive.end(slow.trial)
    drive.report(other.trial, 1, loss=0.6, latency=0.5)
    drive.end(other.trial)
    following = drive.ask()
    assert (following.configuration, following.params["size"]) == (slow.configuration, 3)


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random", "qmc"])
@pytest.mark.parametrize("num_at_once", [1, 3])
def test_a_rebuilt_study_proposes_the_same_at_any_moment(sampler: str, num_at_once: int) -> None:
    search = {"x": {"low": 0.0, "high": 1.0}, "kind": {"choices": ["a", "b"]}}
    drive, rng, running = (
        make_drive(sampler=sampler, search=search),
        random.Random(0),
        list[Proposal](),
    )
    wanted = {"x": 0.31, "kind": "a"}
    drive.study.enqueue(wanted)
    drive.events.append(TrialEnqueued(params=wanted))
    for number in range(16):
        while len(running) < num_at_once:
            rebuilt = drive.rebuilt() if number % 4 == 0 else None
            running.append(drive.ask())
            assert rebuilt is None or rebuilt.ask() == running[-1]
        finish(drive, running.pop(rng.randrange(len(running))))
    assert drive.rebuilt().num_enqueued == 0


def test_a_replay_trains_the_same_configurations_at_the_same_levels() -> None:
    first = make_drive()
    for _ in range(20):
        train(first)
    again = make_drive()
    recorded = [event for event in first.events if isinstance(event, TrialProposed)]
    again.study.apply(ReplayPlanned(of_run_id="first", proposals=recorded))
    for event in recorded:
        proposal = again.ask()
        assert (proposal.params, proposal.configuration, proposal.fidelity, proposal.resumes) == (
            event.params,
            event.configuration,
            event.fidelity,
            event.resumes,
        )
        again.report(proposal.trial, 1, loss=-float(proposal.trial))
        again.end(proposal.trial)
    assert again.study.exhausted


def test_the_sampler_learns_from_low_levels_how_good_a_full_training_would_be() -> None:
    drive = make_drive(sampler="auto")
    proposals = [train(drive) for _ in range(30)]
    late = [proposal for proposal in proposals[15:] if proposal.resumes is None]
    assert sum(abs(proposal.params["x"] - 0.3) < 0.15 for proposal in late) > len(late) / 2  # type: ignore[operator]


def test_what_earlier_runs_reported_at_their_epochs_is_no_level() -> None:
    drive = make_drive(sampler="auto")
    for number in range(12):
        event = PriorTrialAdded.model_validate(
            {
                "from_run_id": "earlier",
                "from_trial": number,
                "state": "pruned" if number == 5 else "complete",
                "params": {"x": number / 11},
                "values": {"loss": abs(number / 11 - 0.3)},
                "reports": [(number + 1, 0.5)],
            }
        )
        drive.events.append(event)
        drive.study.apply(event)
    proposals = [train(drive) for _ in range(8)]
    assert proposals[0].params["size"] == 1
    assert abs(proposals[0].params["x"] - 0.3) < 0.1, (
        "the first one is what the earlier run recommends"
    )  # type: ignore[operator]


def test_its_space_is_kept() -> None:
    with pytest.raises(ExperimentError, match="keeps its space"):
        make_drive().study.change_search({"x": 0.5})
