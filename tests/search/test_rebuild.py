"""A study that is rebuilt from events goes on as the live one does."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.studies import Drive, make_experiment
from workbench.experiment import Experiment
from workbench.foundation.events import (
    PriorTrialAdded,
    TrialEnqueued,
    TrialProposed,
    from_json,
    to_json,
)
from workbench.search import Study

OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "tpe": {"n_startup_trials": 3},
    "random": {},
    "grid": {},
    "qmc": {},
    "gp": {"n_startup_trials": 3},
    "cmaes": {"n_startup_trials": 1, "popsize": 4},
    "nsga2": {"population_size": 3},
    "nsga3": {"population_size": 3},
}
NUMBERS = st.sampled_from(
    [
        {"low": 0.0, "high": 1.0},
        {"low": 1e-4, "high": 1.0, "log": True},
        {"low": 0.0, "high": 0.3, "step": 0.1},
        {"low": 1, "high": 9},
        {"low": 1, "high": 64, "log": True},
    ]
)
CHOICES = st.sampled_from(
    [{"choices": ["a", "b"]}, {"choices": [1, True, None]}, {"choices": [[1, 2], {"k": 0.5}, "a"]}]
)
STEPPED = {"low": 0.0, "high": 0.3, "step": 0.1}


@st.composite
def spaces(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw a space with a condition, in which every sampler finds enough to search."""
    if name == "grid":
        return {"kind": draw(CHOICES), "x": STEPPED, "fixed": 3}
    kind = draw(CHOICES)
    space: dict[str, Any] = {
        "x": draw(NUMBERS),
        "y": draw(NUMBERS),
        "kind": kind,
        "fixed": {"value": [1]},
    }
    if draw(st.booleans()):
        space["inner"] = {**draw(NUMBERS), "when": {"kind": kind["choices"][:1]}}
    return space


def step(drive: Drive, draw: Any, open_trials: list[int], rungs: dict[int, int]) -> None:
    """Do one thing that may happen in a run."""
    if not open_trials or (len(open_trials) < 3 and draw(st.booleans())):
        proposal = drive.study.ask()
        if proposal is None:
            return
        drive.events.append(proposal.event())
        open_trials.append(proposal.trial)
        return
    trial = draw(st.sampled_from(open_trials))
    what = draw(
        st.sampled_from(["report", "report", "complete", "oom", "diverged", "error", "lost"])
    )
    if what in ("report", "complete"):
        rungs[trial] = rungs.get(trial, 0) + 1
        value = draw(st.sampled_from([0.1, 0.2, 0.5, 0.9, float("nan")]))
        elapsed_s = draw(st.sampled_from([0.5, 1.0, 4.0])) * rungs[trial]
        share = draw(st.sampled_from([None, 0.2, 0.9]))
        if drive.report(
            trial, rungs[trial], elapsed_s=elapsed_s, memory_share=share, loss=value, cost=1 - value
        ):
            what = "pruned"
    if what == "report":
        return
    open_trials.remove(trial)
    if what == "complete" and not drive.study.result(trial):
        what = "diverged"
    if what in ("complete", "pruned"):
        drive.end(trial, what)
    else:
        drive.end(trial, "failed", reason=what)


def earlier_run(experiment: Experiment, num: int) -> list[PriorTrialAdded]:
    """Return trials of an earlier run, whose values rise with their numbers."""
    rng = random.Random(num)
    return [
        PriorTrialAdded(
            from_run_id="earlier",
            from_trial=number,
            params=experiment.search.sample(rng),
            state="complete",
            values={"loss": number / 10, "cost": number / 20},
        )
        for number in range(num)
    ]


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("auto", "tpe", "nsga2") else pytest.param(name, marks=pytest.mark.slow)
        for name in OPTIONS
    ],
)
@given(data=st.data())
@examples(4)
def test_rebuilt_study_proposes_the_same_at_any_prefix(name: str, data: st.DataObject) -> None:
    several = name != "cmaes" and data.draw(st.booleans(), label="several objectives")
    changes: dict[str, Any] = {"repeats": data.draw(st.sampled_from([1, 1, 2]), label="repeats")}
    if several:
        changes["objectives"] = [
            {"metric": "loss", "goal": "minimize"},
            {"metric": "cost", "goal": "maximize"},
        ]
        changes["early_stop"] = {
            "pruner": data.draw(st.sampled_from(["none", "curves"]), label="pruner")
        }
    else:
        pruners = [
            "none",
            "asha",
            "hyperband",
            "median",
            "percentile",
            "patience",
            "curves",
            "wilcoxon",
        ]
        pruner = data.draw(st.sampled_from(pruners), label="pruner")
        eager = {
            "median": {"startup_trials": 1},
            "percentile": {"startup_trials": 1},
            "patience": {"patience": 2},
        }
        changes["early_stop"] = {"pruner": pruner, **eager.get(pruner, {})}
    if data.draw(st.booleans(), label="constrained"):
        changes["constraints"] = [{"metric": "cost", "at_most": 0.7}]
    budgets = [{"trials": 100}, {"time": 100.0}, {"time": 20.0, "trials": 20}]
    changes["budget"] = data.draw(st.sampled_from(budgets), label="budget")
    space = data.draw(spaces(name), label="space")
    drive = Drive(
        make_experiment(search=space, sampler={"name": name, "options": OPTIONS[name]}, **changes)
    )
    for event in earlier_run(
        drive.experiment, data.draw(st.sampled_from([0, 3, 12]), label="earlier trials")
    ):
        drive.events.append(event)
        drive.study.apply(event)
    open_trials: list[int] = []
    rungs: dict[int, int] = {}
    first = data.draw(st.integers(0, 2), label="first prefix")
    for number in range({"gp": 6, "cmaes": 12}.get(name, 25)):
        step(drive, data.draw, open_trials, rungs)
        if number % 3 != first:  # to rebuild and ask twice takes most of the time
            continue
        live, rebuilt = copy.deepcopy(drive.study), drive.rebuilt()
        assert rebuilt.exhausted == live.exhausted
        assert rebuilt.ask() == live.ask()
        assert rebuilt.best_trials() == live.best_trials()


def test_what_the_store_gives_back_rebuilds_the_same_study() -> None:
    search = {
        "x": {"low": 0.0, "high": 0.7, "step": 0.1},
        "kind": {"choices": [[1], {"a": None}, True, 1]},
    }
    drive = Drive(make_experiment(search=search))
    for _ in range(20):
        drive.train(lambda params, _: params["x"])
    stored = [from_json(to_json(event)) for event in drive.events]
    assert Study.rebuild(drive.experiment, stored).ask() == drive.study.ask()


def test_enqueued_and_prior_trials_are_replayed() -> None:
    drive = Drive(make_experiment())
    drive.events += [
        PriorTrialAdded(
            from_run_id="r",
            from_trial=i,
            params={"x": i / 20},
            state="complete",
            values={"loss": i / 20},
        )
        for i in range(12)
    ]
    drive.events += [TrialEnqueued(params={"x": 0.25}), TrialEnqueued(params={"x": 0.75})]
    for event in drive.events:
        drive.study.apply(event)
    assert drive.ask().params == {"x": 0.25}
    rebuilt = drive.rebuilt()
    for _ in range(3):
        assert rebuilt.ask() == drive.ask()


def test_the_record_wins_where_a_sampler_would_now_propose_something_else() -> None:
    for name in ("tpe", "cmaes", "nsga2", "qmc"):
        search = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
        experiment = make_experiment(search=search, sampler=name)
        recorded = [
            TrialProposed(trial=i, params={"x": 0.125, "y": i / 4}, configuration=i, seed=0)
            for i in range(4)
        ]
        study = Study.rebuild(experiment, recorded)
        for i in range(4):
            study.report(i, 1, {"loss": 0.5})
        proposal = study.ask()
        assert proposal is not None
        assert proposal.trial == 4


@pytest.mark.slow
def test_proposals_do_not_depend_on_the_process() -> None:
    code = """
from tests.builders.studies import Drive, make_experiment
search = {"x": {"low": 0.0, "high": 1.0}, "kind": {"choices": ["a", "b"]},
          **{f"p{i}": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}} for i in range(4)}}
drive = Drive(make_experiment(search=search))
print([drive.train(lambda params, _: params["x"]).params for _ in range(25)])
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.slow
def test_rebuilding_takes_as_many_calls_a_trial_with_many_trials_as_with_few() -> None:
    drive = Drive(make_experiment(sampler="random"))
    num_calls = []
    for _ in range(2):
        for _ in range(200):
            drive.train(lambda params, _: params["x"])
        drive.experiment = make_experiment()
        num_calls.append(0)

        def count(_frame: object, event: str, _argument: object) -> None:
            num_calls[-1] += event == "call"

        sys.setprofile(count)
        try:
            drive.rebuilt()
        finally:
            sys.setprofile(None)
    assert num_calls[1] < 2.5 * num_calls[0]


def test_a_trial_that_failed_first_does_not_change_what_a_rebuilt_study_proposes() -> None:
    """It counts as the median of others, which later results change.

    What is fitted to the first stays.
    """
    drive = Drive(
        make_experiment(search={"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}})
    )
    for number in range(7):
        proposal = drive.ask()
        if number == 1:
            drive.end(proposal.trial, "failed", reason="error")
            continue
        x, y = (float(proposal.params[name]) for name in ("x", "y"))  # type: ignore[arg-type]
        drive.report(
            proposal.trial, 1, loss=(x - 0.7) ** 2 + (y - 0.3) ** 2 + (10.0 if number == 6 else 0.0)
        )
        drive.end(proposal.trial)
    rebuilt, live = drive.rebuilt().ask(), drive.study.ask()
    assert rebuilt is not None
    assert rebuilt == live
