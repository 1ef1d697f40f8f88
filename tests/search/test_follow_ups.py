"""Known configurations are trained at the next level of the fidelity, and the best ones again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    PriorTrialAdded,
    ReplayPlanned,
    SettingsChanged,
    TrialEnqueued,
    TrialProposed,
)
from workbench.search import Proposal
from workbench.store.history import History

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


def test_a_training_that_fails_at_a_low_level_goes_no_further_and_full_ones_keep_limits() -> None:
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
    with pytest.raises(
        ExperimentError, match="cannot change the search space of a run with a fidelity"
    ):
        make_drive().study.change_search({"x": 0.5})


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


def finish_with(drive: Drive, trial: int, loss: float) -> None:
    drive.report(trial, 1, loss=loss)
    drive.end(trial)


def searched(drive: Drive, losses: list[float]) -> None:
    for loss in losses:
        finish_with(drive, drive.ask().trial, loss)


def test_the_best_are_trained_again_with_the_same_other_seeds_once_nothing_runs() -> None:
    drive = confirming()
    searched(drive, [0.9, 0.1, 0.2])
    last = drive.ask()
    assert not drive.study.has_confirmations
    assert drive.study.ask(repeats_only=True) is None
    finish_with(drive, last.trial, 0.5)
    assert drive.study.has_confirmations
    again = [drive.ask(repeats_only=True) for _ in range(2)]
    assert [(trial.configuration, trial.repeat, trial.trial) for trial in again] == [
        (1, 1, 4),
        (2, 1, 5),
    ]
    assert again[0].seed == again[1].seed != last.seed
    assert drive.study.ask(repeats_only=True) is None  # the round has not ended


def test_a_configuration_that_was_proposed_twice_races_once() -> None:
    drive = confirming()
    best = {"x": 0.25}
    for params, loss in ((best, 0.1), ({"x": 0.5}, 0.2), (best, 0.1), ({"x": 0.75}, 0.3)):
        drive.study.enqueue(params)
        finish_with(drive, drive.ask().trial, loss)
    again = [drive.ask(repeats_only=True) for _ in range(2)]
    assert [(proposal.configuration, proposal.repeat) for proposal in again] == [(0, 1), (1, 1)]


def test_a_study_may_be_asked_later_to_confirm_its_best() -> None:
    drive = confirming(confirm={})
    searched(drive, [0.9, 0.1, 0.2])
    assert not drive.study.has_confirmations
    drive.study.apply(SettingsChanged(settings={"confirm.best": 2}))
    again = [drive.ask(repeats_only=True) for _ in range(2)]
    assert [(proposal.configuration, proposal.repeat) for proposal in again] == [(1, 1), (2, 1)]


def test_the_race_ends_when_one_is_clearly_better() -> None:
    drive = confirming(confirm={"best": 3, "trainings": 9})
    searched(drive, [0.5, 0.10, 0.11, 0.9])
    noise = {1: 0.10, 2: 0.30, 0: 0.50}
    trained = []
    while drive.study.has_confirmations:
        proposal = drive.ask(repeats_only=True)
        trained.append((proposal.configuration, proposal.repeat))
        finish_with(drive, proposal.trial, noise[proposal.configuration] + 0.001 * proposal.repeat)
    assert 6 <= len(trained) < 3 * 8
    assert drive.study.best_trials()[0] in (1, *range(4, 99))
    assert History.of(drive.experiment, drive.events).best().configuration == 1  # type: ignore[union-attr]


def test_a_race_that_stays_open_ends_after_its_last_round() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.1, 0.9])
    while drive.study.has_confirmations:
        proposal = drive.ask(repeats_only=True)
        finish_with(drive, proposal.trial, 0.1 + 0.1 * (proposal.repeat % 2))
    assert len(drive.events) == 3 * (4 + 2 * 3)


def test_the_lucky_one_loses_its_place_and_the_untested_do_not_take_it() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.2, 0.45])
    for loss in (0.8, 0.5, 0.8, 0.5):
        finish_with(drive, drive.ask(repeats_only=True).trial, loss)
    history = History.of(drive.experiment, drive.events)
    assert [trial.configuration for trial in history.ranked()] == [2, 2, 2, 1, 1, 1, 3, 0]
    assert history.trials[drive.study.best_trials()[0]].configuration == 2


def test_a_training_that_fails_again_counts_as_one_and_the_race_continues() -> None:
    drive = confirming()
    searched(drive, [0.5, 0.1, 0.2, 0.9])
    drive.end(drive.ask(repeats_only=True).trial, "failed", reason="diverged")
    finish_with(drive, drive.ask(repeats_only=True).trial, 0.2)
    assert drive.study.has_confirmations is False
    assert History.of(drive.experiment, drive.events).ranked()[0].configuration == 2


def test_an_extended_run_searches_on_from_the_first_outcomes_and_confirms_what_is_new() -> None:
    drive, plain = confirming(), Drive(make_experiment(budget={"trials": 4}))
    for driver in (drive, plain):
        searched(driver, [0.5, 0.1, 0.2, 0.9])
    while drive.study.has_confirmations:
        finish_with(drive, drive.ask(repeats_only=True).trial, 0.7)
    new, other = drive.ask(), plain.ask()
    assert (new.configuration, new.params) == (other.configuration, other.params)
    finish_with(drive, new.trial, 0.01)
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
        num_configurations = len({trial.configuration for trial in asked})
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
            finish_with(drive, running.pop(noise.randrange(len(running))).trial, noise.random())
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
        ({"confirm": {"best": 7}, "budget": {"trials": 6}}, "confirm.best"),
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
