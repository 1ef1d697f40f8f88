"""A stopped trial is continued once the others show that it may end as the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.experiment import Experiment
from workbench.foundation.events import TrialEnded, TrialProposed, TrialReported
from workbench.search import Proposal, Study
from workbench.search.importance import MIN_TRIALS
from workbench.search.pruners import CurvePruner

RUNGS = 16
NUM_FLAT = 2


def late_bloomers(train: str | None = None, **options: Any) -> Experiment:
    """Return an experiment with early stopping by curves, of a model unless a function is named."""
    model = {"model": "mlp", "data": "digits", "train": None, "training": {"epochs": RUNGS}}
    return make_experiment(
        **model if train is None else {"train": train},
        sampler="random",
        search={"weight_decay": {"low": 0.0, "high": 1.0}},
        early_stop={"pruner": "curves", "grace": 2, "options": {"chance": 0.1, **options}},
    )


def flat(params: Mapping[str, Any], rung: int) -> float:
    return 1.0 + params["weight_decay"] + 0.01 / rung


def falling(level: float, rung: int) -> float:
    return level - 0.2 * max(rung - 2, 0)


def train_next(drive: Drive) -> Proposal:
    """Train the next trial until it ends or is stopped.

    Flat ones first, then ever worse ones that fall.
    """
    proposal = drive.ask()
    before = [event for event in drive.events if isinstance(event, TrialReported)]
    begun = max((event.step for event in before if event.trial == proposal.resumes), default=0)
    for rung in range(begun + 1, RUNGS + 1):
        flat_one = proposal.configuration < NUM_FLAT
        level = 2.2 + 0.1 * proposal.configuration
        loss = flat(proposal.params, rung) if flat_one else falling(level, rung)
        # Those that follow end before they can be stopped.
        if drive.report(proposal.trial, rung, loss=loss) and proposal.configuration == NUM_FLAT:
            drive.end(proposal.trial, "pruned")
            return proposal
    drive.end(proposal.trial)
    return proposal


def test_a_trial_that_was_stopped_is_continued_once_others_have_shown_how_curves_go_on() -> None:
    drive = Drive(late_bloomers())
    proposals = [train_next(drive) for _ in range(NUM_FLAT + 1)]
    first = proposals[-1]
    assert drive.study.needed() == {first.trial}, (
        "it looks hopeless as long as nothing else has fallen so"
    )
    while len(proposals) < 20 and (
        proposals[-1].resumes is None or drive.study.best_trials() != [proposals[-1].trial]
    ):
        proposals.append(train_next(drive))
    resumed = [proposal for proposal in proposals if proposal.resumes is not None]
    assert resumed[0].resumes == first.trial
    last = resumed[-1]
    assert drive.study.best_trials() == [last.trial]
    assert (last.configuration, last.params, last.seed) == (
        first.configuration,
        first.params,
        first.seed,
    )
    assert not {first.trial, last.trial} & drive.study.needed()
    for _ in range(MIN_TRIALS):
        train_next(drive)
    assert drive.importance_from_ends() == drive.study.importance() != {}, (
        "its reports begin with those of the trial that it continues"
    )


def test_a_rebuilt_study_and_a_replay_continue_the_same_trials() -> None:
    drive = Drive(late_bloomers())
    while (proposal := drive.ask()).resumes is None:
        for rung in range(1, RUNGS + 1):
            loss = flat(proposal.params, rung) if proposal.trial < NUM_FLAT else falling(2.2, rung)
            if drive.report(proposal.trial, rung, loss=loss):
                drive.end(proposal.trial, "pruned")
                break
        else:
            drive.end(proposal.trial)
    drive.report(proposal.trial, RUNGS, loss=0.0)
    assert proposal.resumes in drive.study.needed(), (
        "its checkpoint must be there until the trial has ended"
    )
    assert drive.rebuilt().ask() == drive.study.ask()
    again = Study(drive.experiment)
    again.replay([event for event in drive.events if isinstance(event, TrialProposed)])
    for event in drive.events:
        if isinstance(event, TrialProposed):
            proposed = again.ask(repeats_only=event.resumes is not None)
            assert proposed is not None
            assert (proposed.params, proposed.resumes) == (event.params, event.resumes)
        else:
            again.apply(event)


def test_it_can_be_left_out_and_a_function_without_a_folder_is_never_continued() -> None:
    for experiment in (
        late_bloomers(resume=False),
        late_bloomers(train="tests.search.test_continued_trials:flat"),
    ):
        drive = Drive(experiment)
        for _ in range(NUM_FLAT + 1):
            train_next(drive)
        ended = drive.events[-1]
        assert isinstance(ended, TrialEnded)
        assert ended.state == "pruned"
        assert drive.study.needed() == set()


def test_their_chances_are_forecast_once_until_something_new_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drive, forecasts = Drive(late_bloomers()), []
    chance_of_best = CurvePruner.chance_of_best

    def count(pruner: CurvePruner, study: Any, trial: Any) -> float:
        forecasts.append(trial.number)
        return chance_of_best(pruner, study, trial)

    for _ in range(NUM_FLAT + 1):
        train_next(drive)
    monkeypatch.setattr(CurvePruner, "chance_of_best", count)
    for _ in range(5):
        assert not drive.study.has_confirmations
    assert forecasts == [NUM_FLAT]
    assert train_next(drive).resumes is None, "its proposal reads what is known"
    num_forecasts = len(forecasts)
    again = drive.rebuilt().ask()
    assert again is not None
    assert drive.study.has_confirmations == (again.resumes is not None)
    assert NUM_FLAT in forecasts[num_forecasts:], "what that trial reported counts"
