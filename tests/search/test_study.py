"""The ask, report, tell loop of the study."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import PriorTrialAdded, TrialEnded
from workbench.search import Study
from workbench.search.importance import MIN_TRIALS, negligible

TWO = [{"metric": "loss", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}]


def test_trials_and_configurations_are_numbered_in_the_order_of_asking() -> None:
    drive = Drive(make_experiment())
    proposals = [drive.ask() for _ in range(3)]
    assert [(p.trial, p.configuration, p.repeat) for p in proposals] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
    ]


def test_the_same_seed_gives_the_same_sequence_and_another_seed_another() -> None:
    def sequence(seed: int) -> list[Any]:
        drive = Drive(make_experiment(seed=seed))
        return [drive.train(lambda params, _: params["x"]).params for _ in range(15)]

    assert sequence(1) == sequence(1) != sequence(2)


def test_every_proposal_is_a_configuration_of_the_space() -> None:
    search = {
        "rate": {"low": 1e-4, "high": 1.0, "log": True},
        "step": {"low": 0.0, "high": 0.7, "step": 0.1},
        "optimizer": {"choices": ["sgd", "adam", None]},
        "momentum": {"low": 0.1, "high": 0.9, "when": {"optimizer": "sgd"}},
        "layers": {"choices": [[8], [8, 8], {"wide": True}, 1, True]},
        "fixed": 3,
    }
    for name in ("auto", "tpe", "random", "qmc", "gp", "cmaes", "nsga2", "nsga3"):
        drive = Drive(make_experiment(search=search, sampler=name))
        num_trials = 12 if name == "gp" else 25
        seen = [drive.train(lambda params, _: params["rate"]).params for _ in range(num_trials)]
        assert all(drive.experiment.search.check(params) == params for params in seen)
        assert all(("momentum" in params) == (params["optimizer"] == "sgd") for params in seen)
        assert all(params["fixed"] == 3 for params in seen)


def test_grid_proposes_every_configuration_once_and_is_exhausted() -> None:
    search = {
        "a": {"choices": [1, True, [2]]},
        "b": {"low": 0.0, "high": 0.3, "step": 0.1},
        "c": {"low": 1, "high": 2, "when": {"a": 1}},
    }
    drive = Drive(make_experiment(search=search, sampler="grid"))
    every = list(drive.experiment.search.grid())
    drive.study.enqueue(every[3])
    asked = []
    while not drive.study.exhausted:
        asked.append(drive.train(lambda params, _: params["b"]).params)
    assert drive.study.ask() is None
    assert sorted(map(repr, asked)) == sorted(map(repr, every))
    assert asked[1:] != [params for params in every if params != every[3]]


def test_enqueued_configurations_come_first_in_their_order() -> None:
    drive = Drive(make_experiment(search={"x": {"low": 0.0, "high": 1.0}, "k": 2}))
    drive.study.enqueue({"x": 0.5})
    drive.study.enqueue({"x": 0.25, "k": 2})
    first, second, third = (drive.ask() for _ in range(3))
    assert (first.params, first.source) == ({"x": 0.5, "k": 2}, "enqueued")
    assert second.params == {"x": 0.25, "k": 2}
    assert third.source == "sampler"


def test_what_is_no_configuration_is_not_enqueued() -> None:
    with pytest.raises(ExperimentError) as caught:
        Study(make_experiment()).enqueue({"x": 2.0})
    assert caught.value.field == "params.x"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_what_is_not_finite_never_wins(goal: str, bad: float) -> None:
    drive = Drive(make_experiment(objectives=[{"metric": "loss", "goal": goal}]))
    for trial, value in enumerate([bad, 0.5, bad, 0.25]):
        drive.ask()
        drive.report(trial, 1, loss=value)
        drive.end(trial, values={"loss": value})
    assert drive.study.best_trials() == [3 if goal == "minimize" else 1]
    for _ in range(20):
        drive.train(lambda params, _: params["x"])
    assert all(
        math.isfinite(drive.study.result(trial)["loss"]) for trial in drive.study.best_trials()
    )


def test_a_multi_objective_study_with_nan_goes_on() -> None:
    drive = Drive(make_experiment(objectives=TWO))
    for trial in range(30):
        x = drive.ask().params["x"]
        assert isinstance(x, float)
        loss = math.nan if trial % 5 == 0 else x
        drive.report(trial, 1, loss=loss, speed=x)
        if math.isnan(loss):
            drive.end(trial, "failed", reason="diverged")
        else:
            drive.end(trial)
    front = drive.study.best_trials()
    assert front == [trial for trial in range(30) if trial % 5]


def test_the_front_holds_what_nothing_else_beats() -> None:
    drive = Drive(make_experiment(objectives=TWO))
    for trial, (loss, speed) in enumerate(
        [(1.0, 1.0), (2.0, 3.0), (1.0, 2.0), (3.0, 3.0), (0.5, 0.0)]
    ):
        drive.ask()
        drive.report(trial, 1, loss=loss, speed=speed)
        drive.end(trial)
    assert drive.study.best_trials() == [1, 2, 4]


def test_a_result_is_read_alike_from_the_reports_of_one_objective_and_of_several() -> None:
    best = {"metric": "loss", "goal": "minimize", "value": "best"}
    single, several = (
        Drive(make_experiment(objectives=[best])),
        Drive(make_experiment(objectives=TWO)),
    )
    for drive in (single, several):
        drive.ask()
        for rung, loss in enumerate([0.5, 0.2, math.nan, 0.4], start=1):
            drive.report(0, rung, loss=loss, speed=rung)
        drive.report(0, 9, speed=9)
    assert single.study.result(0) == {"loss": 0.2, "speed": 2}
    assert several.study.result(0) == {"loss": 0.4, "speed": 9}


def test_limits_decide_what_is_best() -> None:
    constraints = [{"metric": "latency", "at_most": 1.0}, {"metric": "accuracy", "at_least": 0.5}]
    drive = Drive(make_experiment(constraints=constraints))
    reported: list[dict[str, float]] = [
        {"loss": 0.1, "latency": 2.0, "accuracy": 0.9},
        {"loss": 0.2, "latency": 0.5},
        {"loss": 0.3, "latency": 0.5, "accuracy": math.nan},
        {"loss": 0.5, "latency": 1.0, "accuracy": 0.5},
        {"loss": 0.4, "latency": 0.1, "accuracy": 0.4},
    ]
    for trial, values in enumerate(reported):
        drive.ask()
        drive.report(trial, 1, **values)
        drive.end(trial)
        assert drive.study.best_trials() == ([3] if trial >= 3 else [])


def test_where_memory_runs_out_is_avoided() -> None:
    wasted = 0
    for seed in range(3):
        search = {"batch": {"low": 0.0, "high": 100.0}, "y": {"low": -1.0, "high": 1.0}}
        drive = Drive(make_experiment(search=search, seed=seed))
        for trial in range(40):
            params = drive.ask().params
            batch, y = params["batch"], params["y"]
            assert isinstance(batch, float)
            assert isinstance(y, float)
            if 3 + 0.5 * batch > 40:
                drive.end(trial, "failed", reason="oom")
                wasted += trial >= 20
            else:
                drive.report(trial, 1, loss=-batch / 5 + y**2)
                drive.end(trial)
        best = drive.study.best_trials()[0]
        assert drive.study.result(best)["loss"] < -13
    assert wasted < 0.7 * 60


def test_failed_trials_are_neither_best_nor_in_the_way() -> None:
    drive = Drive(make_experiment())
    for trial, reason in enumerate(["error", "lost", "timeout", "oom", "diverged"]):
        drive.ask()
        drive.report(trial, 1, loss=-1.0)
        drive.end(trial, "failed", reason=reason)
    drive.ask()
    drive.report(5, 1, loss=-1.0)
    drive.end(5, "stopped")
    assert drive.study.best_trials() == []
    drive.train(lambda params, _: 1.0)
    assert drive.study.best_trials() == [6]


def test_earlier_runs_teach_the_sampler() -> None:
    def best_of_first_asks(priors: int) -> float:
        drive = Drive(
            make_experiment(search={"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}})
        )
        for i in range(priors):
            x, y = (i * 0.37) % 1, (i * 0.61) % 1
            drive.study.add_prior(
                PriorTrialAdded(
                    from_run_id="earlier",
                    from_trial=i,
                    params={"x": x, "y": y},
                    state="complete",
                    values={"loss": abs(x - 0.3) + abs(y - 0.7)},
                    reports=[(1, 0.5)],
                )
            )
        asked = [drive.train(lambda p, _: abs(p["x"] - 0.3) + abs(p["y"] - 0.7)) for _ in range(8)]
        assert [proposal.trial for proposal in asked] == list(range(8))
        return sum(drive.study.result(trial)["loss"] for trial in range(8)) / 8

    assert best_of_first_asks(60) < 0.6 * best_of_first_asks(0)


def test_a_prior_that_does_not_fit_is_refused() -> None:
    study = Study(make_experiment())
    event = PriorTrialAdded(
        from_run_id="r", from_trial=0, params={"z": 1}, state="complete", values={"loss": 1.0}
    )
    with pytest.raises(ExperimentError) as caught:
        study.add_prior(event)
    assert caught.value.field == "params.z"
    with pytest.raises(ExperimentError) as caught:
        study.add_prior(event.model_copy(update={"params": {"x": 0.5}, "values": {}}))
    assert caught.value.field == "values.loss"


def test_importance_names_what_mattered() -> None:
    search = {"much": {"low": 0.0, "high": 1.0}, "little": {"low": 0.0, "high": 1.0}}
    drive = Drive(make_experiment(search=search, sampler="random"))
    drive.train(lambda params, _: params["much"])
    assert drive.study.importance() == {}
    for _ in range(60):
        drive.train(lambda params, _: params["much"] + 0.01 * params["little"])
    importance = drive.study.importance()
    share, low, high = importance["much"]
    assert share > 0.8
    assert low <= share <= high
    assert low < high
    assert importance["little"][:2] == (0.0, 0.0)
    assert drive.study.importance(range(61)) == importance
    some = drive.study.importance(range(20, 50))
    assert some["much"][0] > 0.8
    assert some != importance
    assert drive.study.importance(range(5)) == {}


def test_importance_counts_pruned_trials_as_where_they_would_have_ended() -> None:
    search = {"much": {"low": 0.0, "high": 1.0}, "little": {"low": 0.0, "high": 1.0}}
    drive = Drive(make_experiment(search=search, sampler="random", early_stop={"pruner": "asha"}))

    def curve(params: Mapping[str, Any], rung: int) -> float:
        return (
            params["much"] + 20.0 / rung
        )  # whatever was stopped early looks far worse than all that ended

    for _ in range(40):
        drive.train(curve, rungs=16)
    ended = [event for event in drive.events if isinstance(event, TrialEnded)]
    assert sum(event.state == "complete" for event in ended) < MIN_TRIALS
    importance = drive.study.importance()
    assert importance["much"][0] > 0.9
    assert importance["little"][0] < 0.01
    reader = Study.rebuild(drive.study.experiment, drive.events, reads_only=True)
    assert reader.importance() == importance
    assert drive.importance_from_ends() == importance
    with pytest.raises(RunError, match="only read"):
        reader.ask()


def test_the_importance_of_a_long_run_reads_a_sample_of_its_reports() -> None:
    drive = Drive(make_experiment(sampler="random", search={"x": UNIT, "y": UNIT}))
    for _ in range(320):
        drive.train(lambda params, rung: params["x"] + 1.0 / rung)
    importance = drive.study.importance()
    assert drive.importance_from_ends() == importance
    assert importance["x"][0] > 0.9


@pytest.mark.parametrize("sampler", ["random", "tpe", "auto"])
def test_importance_does_not_depend_on_where_a_sampler_tries(sampler: str) -> None:
    search = {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "dropout": {"low": 0.0, "high": 0.5},
        "width": {"low": 8, "high": 256, "log": True},
        "optimizer": {"choices": ["sgd", "adam"]},
    }
    drive, rng = Drive(make_experiment(search=search, sampler=sampler)), random.Random(0)
    for _ in range(40):
        drive.train(lambda params, _: (math.log10(params["lr"]) + 2) ** 2 + rng.gauss(0, 0.05))
    importance = drive.study.importance()
    assert next(iter(importance)) == "lr"
    assert importance["lr"][0] > 0.9
    assert all(share < 0.05 for name, (share, _, _) in importance.items() if name != "lr")


UNIT = {"low": 0.0, "high": 1.0}
LOG = {"low": 1e-4, "high": 1.0, "log": True}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("search", "loss"),
    [
        ({"rate": UNIT}, lambda params: (params["rate"] - 0.3) ** 2),
        ({"rate": UNIT, "other": UNIT}, lambda params: (params["rate"] - 0.3) ** 2),
        (
            {"rate": UNIT, "kind": {"choices": ["a", "b", "c"]}},
            lambda params: (params["rate"] - 0.3) ** 2,
        ),
        (
            {"rate": LOG, "other": UNIT, "width": LOG},
            lambda params: (math.log10(params["rate"]) + 2) ** 2,
        ),
        (
            {"rate": LOG, "other": UNIT},
            lambda params: 1e8 if params["rate"] > 0.3 else params["rate"],
        ),
    ],
    ids=["alone", "ignored", "ignored choice", "two ignored", "diverging"],
)
def test_importance_names_what_matters_and_no_other_where_most_trials_lie_at_the_best_value(
    search: dict[str, Any], loss: Callable[[Mapping[str, Any]], float], seed: int
) -> None:
    drive = Drive(make_experiment(search=search, seed=seed))
    for _ in range(40):
        drive.train(lambda params, _: loss(params))
    importance = drive.study.importance()
    share, low, high = importance["rate"]
    assert share > 0.9
    assert low <= share <= high
    assert all(importance[name][0] < 0.01 for name in search if name != "rate")


@pytest.mark.parametrize("seed", range(3))
def test_the_intervals_of_shares_hold_the_true_ones_wherever_most_trials_lie(seed: int) -> None:
    drive = Drive(make_experiment(search={"rate": UNIT, "other": UNIT}, seed=seed))
    for _ in range(40):
        drive.train(
            lambda params, _: (params["rate"] - 0.3) ** 2 + 0.5 * (params["other"] - 0.6) ** 2
        )
    # The variances of the two terms over the whole space are 0.0189 and 0.0022.
    for name, true in (("rate", 0.894), ("other", 0.106)):
        share, low, high = drive.study.importance()[name]
        assert share > 0
        assert low <= true <= high


def test_nothing_is_resolved_where_chance_explains_all() -> None:
    search = {name: {"low": 0.0, "high": 1.0} for name in "abc"}
    drive, rng = Drive(make_experiment(search=search, sampler="random")), random.Random(0)
    for _ in range(20):
        drive.train(lambda params, _: rng.random())
    importance = drive.study.importance()
    assert all(low < 0.01 < high for _, low, high in importance.values()), "not resolved"
    assert negligible(importance) == []


def test_an_unknown_trial_is_an_error() -> None:
    with pytest.raises(RunError):
        Study(make_experiment()).report(0, 1, {"loss": 1.0})
