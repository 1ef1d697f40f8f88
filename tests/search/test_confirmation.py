"""The best configurations are trained again after the search."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.search import Proposal
from workbench.store.history import History

_SPACES = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(
        st.just({"low": 0.0, "high": 1.0}),
        st.just({"low": 1e-4, "high": 1.0, "log": True}),
        st.just({"low": 1, "high": 9}),
        st.just({"choices": ["u", "v", "w"]}),
    ),
    min_size=1,
)


def confirming(**changes: Any) -> Drive:
    return Drive(
        make_experiment(budget={"trials": 4}, **{"confirm": {"best": 2, "trainings": 4}} | changes)
    )


def finish(drive: Drive, trial: int, loss: float) -> None:
    drive.report(trial, 1, loss=loss)
    drive.end(trial)


def searched(drive: Drive, losses: list[float]) -> None:
    for loss in losses:
        finish(drive, drive.ask().trial, loss)


def test_the_best_are_trained_again_with_the_same_other_seeds_once_nothing_runs() -> None:
    drive = confirming()
    searched(drive, [0.9, 0.1, 0.2])
    last = drive.ask()
    assert not drive.study.has_confirmations
    assert drive.study.ask(repeats_only=True) is None
    finish(drive, last.trial, 0.5)
    assert drive.study.has_confirmations
    again = [drive.ask(repeats_only=True) for _ in range(2)]
    assert [(each.configuration, each.repeat, each.trial) for each in again] == [
        (1, 1, 4),
        (2, 1, 5),
    ]
    assert again[0].seed == again[1].seed != last.seed
    assert drive.study.ask(repeats_only=True) is None  # the round has not ended


def test_the_race_ends_when_one_is_clearly_better() -> None:
    drive = confirming(confirm={"best": 3, "trainings": 9})
    searched(drive, [0.5, 0.10, 0.11, 0.9])
    noise = {1: 0.10, 2: 0.30, 0: 0.50}
    trained = []
    while drive.study.has_confirmations:
        proposal = drive.ask(repeats_only=True)
        trained.append((proposal.configuration, proposal.repeat))
        finish(drive, proposal.trial, noise[proposal.configuration] + 0.001 * proposal.repeat)
    assert 6 <= len(trained) < 3 * 8
    assert drive.study.best_trials()[0] in (1, *range(4, 99))
    assert History.of(drive.experiment, drive.events).best().configuration == 1  # type: ignore[union-attr]


def test_a_race_that_stays_open_ends_after_its_last_round() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.1, 0.9])
    while drive.study.has_confirmations:
        proposal = drive.ask(repeats_only=True)
        finish(drive, proposal.trial, 0.1 + 0.1 * (proposal.repeat % 2))
    assert len(drive.events) == 3 * (4 + 2 * 3)


def test_the_lucky_one_loses_its_place_and_the_untested_do_not_take_it() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.2, 0.45])
    for loss in (0.8, 0.5, 0.8, 0.5):
        finish(drive, drive.ask(repeats_only=True).trial, loss)
    history = History.of(drive.experiment, drive.events)
    assert [trial.configuration for trial in history.ranked()] == [2, 2, 2, 1, 1, 1, 3, 0]
    assert history.trials[drive.study.best_trials()[0]].configuration == 2


def test_a_training_that_fails_again_counts_as_one_and_the_race_continues() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.2, 0.9])
    drive.end(drive.ask(repeats_only=True).trial, "failed", reason="diverged")
    finish(drive, drive.ask(repeats_only=True).trial, 0.2)
    assert drive.study.has_confirmations is False
    assert History.of(drive.experiment, drive.events).ranked()[0].configuration == 2


def test_an_extended_run_searches_on_from_the_first_outcomes_and_confirms_what_is_new() -> None:
    drive, plain = confirming(), Drive(make_experiment(budget={"trials": 4}))
    for each in (drive, plain):
        searched(each, [0.5, 0.1, 0.2, 0.9])
    while drive.study.has_confirmations:
        finish(drive, drive.ask(repeats_only=True).trial, 0.7)
    new, other = drive.ask(), plain.ask()
    assert (new.configuration, new.params) == (other.configuration, other.params)
    finish(drive, new.trial, 0.01)
    assert drive.ask(repeats_only=True).configuration == 4


def test_a_grid_that_is_used_up_is_confirmed() -> None:
    space = {"x": {"choices": [1, 2]}}
    drive = Drive(
        make_experiment(search=space, sampler="grid", confirm={"best": 1, "trainings": 3})
    )
    searched(drive, [0.5, 0.1])
    assert drive.study.exhausted
    searched(drive, [0.2, 0.3])
    assert drive.study.ask() is None
    assert not drive.study.has_confirmations


@settings(max_examples=50)
@given(_SPACES, st.integers(0, 99), st.integers(1, 3), st.data())
def test_a_study_that_is_rebuilt_anywhere_trains_the_same_again(
    space: dict[str, Any], seed: int, at_once: int, data: st.DataObject
) -> None:
    drive = Drive(
        make_experiment(
            search=space,
            seed=seed,
            budget={"trials": 5},
            confirm={"best": 2, "trainings": 4},
            sampler="random",
        )
    )
    noise = random.Random(seed)
    asked: list[Proposal] = []
    running: list[Proposal] = []
    for _ in range(data.draw(st.integers(0, 30))):
        num_configurations = len({each.configuration for each in asked})
        proposal = (
            drive.study.ask(repeats_only=num_configurations == 5)
            if len(running) < at_once
            else None
        )
        if proposal is not None:
            drive.events.append(proposal.event())
            asked.append(proposal)
            running.append(proposal)
        elif running:
            finish(drive, running.pop(noise.randrange(len(running))).trial, noise.random())
    live, rebuilt = drive.study, drive.rebuilt()
    for _ in range(3):
        assert live.ask(repeats_only=True) == rebuilt.ask(repeats_only=True)
    assert live.best_trials() == rebuilt.best_trials()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"confirm": {"trainings": 3}}, "confirm.best"),
        ({"confirm": {"best": 3, "trainings": 3}, "repeats": 3}, "confirm.trainings"),
        ({"confirm": {"best": 3}, "budget": {"time": "1h"}}, "confirm.best"),
        (
            {
                "confirm": {"best": 3},
                "objectives": [{"metric": name, "goal": "minimize"} for name in ("a", "b")],
            },
            "confirm.best",
        ),
    ],
)
def test_a_race_that_could_not_take_place_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as error:
        make_experiment(**changes)
    assert error.value.field == field
