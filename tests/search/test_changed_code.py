"""A study whose function changes: what it saw before is related, and never compared."""

from __future__ import annotations

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, ProgramKept, TrialEnded, TrialReported
from workbench.search import Study
from workbench.store.history import History


def experiment_of(**fields: object) -> Experiment:
    return Experiment(
        **{
            "train": "mine:train",
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "search": {"x": {"low": 0.0, "high": 1.0}},
            **fields,
        }
    )


def change(version: int = 2, continued: tuple[int, ...] = ()) -> ProgramKept:
    return ProgramKept(version=version, why="current", continued=list(continued))


def train(study: Study, events: list[Event], *, offset: float, num: int) -> None:
    for _ in range(num):
        proposal = study.ask()
        assert proposal is not None
        events.append(proposal.event())
        end(study, events, proposal.trial, offset + float(str(proposal.params["x"])))


def end(study: Study, events: list[Event], trial: int, value: float) -> None:
    ended = TrialEnded(trial=trial, attempt=0, state="complete", step=1, values={"loss": value})
    study.tell(trial, ended)
    events.append(ended)


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random"])
def test_the_best_and_the_importance_are_those_of_the_code_in_force(sampler: str) -> None:
    study, events = Study(experiment_of(sampler=sampler)), list[Event]()
    train(study, events, offset=0.0, num=6)
    study.change_program(change())
    events.append(change())
    assert study.best_trials() == []
    train(study, events, offset=1000.0, num=6)
    assert study.best_trials()[0] >= 6
    expected = study.ask()
    again = Study.rebuild(experiment_of(sampler=sampler), events).ask()
    assert expected is not None
    assert again is not None
    assert expected.params == again.params


def test_old_code_prunes_nothing_of_the_new() -> None:
    experiment = experiment_of(early_stop={"pruner": "median", "grace": 1})
    study, events = Study(experiment), list[Event]()

    def train_steps(offset: float) -> bool:
        proposal = study.ask()
        assert proposal is not None
        stops = [
            study.take_report(
                TrialReported(
                    trial=proposal.trial, step=step, epoch=None, values={"loss": offset + step}
                )
            )
            for step in range(1, 6)
        ]
        end(study, events, proposal.trial, offset)
        return any(stops)

    for _ in range(8):
        train_steps(0.0)
    study.change_program(change())
    assert not any(train_steps(1000.0) for _ in range(3))


def test_a_trial_that_continues_with_old_code_is_related_when_it_ends() -> None:
    study, events = Study(experiment_of()), list[Event]()
    train(study, events, offset=0.0, num=4)
    running, waiting = study.ask(), study.ask()
    assert running is not None
    assert waiting is not None
    study.change_program(change(continued=(running.trial,)))
    end(study, events, running.trial, -5.0)
    assert study.best_trials() == []
    end(study, events, waiting.trial, 1000.0)
    assert study.best_trials() == [waiting.trial]


def test_a_grid_tries_its_points_again_with_changed_code() -> None:
    experiment = experiment_of(sampler="grid", search={"x": {"choices": [0.0, 1.0]}})
    study, events = Study(experiment), list[Event]()
    train(study, events, offset=0.0, num=2)
    assert study.exhausted
    study.change_program(change())
    assert not study.exhausted
    train(study, events, offset=10.0, num=2)
    assert study.exhausted


def test_a_history_ranks_the_code_in_force_first_and_averages_within_it() -> None:
    from workbench.foundation.events import TrialProposed, TrialStarted

    history = History(experiment_of())
    history.apply(ProgramKept(version=1, why="start"))
    values = {0: (1, 0.5), 1: (1, 0.1), 2: (2, 7.0), 3: (2, 6.0)}
    for number, (program, value) in values.items():
        if number == 2:
            history.apply(change())
        history.apply(TrialProposed(trial=number, params={"x": 0.1}, configuration=number, seed=1))
        history.apply(TrialStarted(trial=number, attempt=0, worker_pids=[1], program=program))
        history.apply(
            TrialEnded(trial=number, attempt=0, state="complete", step=1, values={"loss": value})
        )
    assert [trial.number for trial in history.ranked()] == [3, 2, 1, 0]
    best = history.best()
    assert best is not None
    assert best.number == 3
    assert [trial.number for trial in history.front()] == [3]


def test_members_of_a_population_keep_their_code() -> None:
    study = Study(experiment_of(sampler={"name": "pbt", "options": {"length": 8}}))
    with pytest.raises(ExperimentError, match="cannot change the code of a population"):
        study.check_program()
