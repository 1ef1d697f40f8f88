"""Out of memory is knowledge: told to the study, tried in ways that need less, never a hang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.sweeps import Sweep
from workbench.experiment import Experiment
from workbench.foundation.events import AttemptEnded, Noted, TrialEnded, TrialPlanned, TrialStarted
from workbench.search import Study
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def train(store: Store, model: str, *, launcher: str = "inline", **fields: Any) -> Sweep:
    """Run a sweep of one of `sweep_models` over the digits to its end."""
    options = fields.pop("options")
    settings: dict[str, Any] = {
        "model": {"name": f"sweep_models:{model}", **options},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "training": {"epochs": 1, "global_batch": 64, "optimizer": "sgd", "lr": 0.5},
        "search": {"weight_decay": {"low": 0.0, "high": 0.001}},
        "sampler": "random",
        "budget": {"trials": 1},
        "resources": {"concurrency": 1},
    }
    sweep = Sweep(store, store.create_run(Experiment(**settings | fields)))
    sweep.launch(launcher)
    sweep.wait()
    sweep.assert_sound()
    return sweep


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        pytest.param(1, {}, id="alone"),
        pytest.param(2, {"hungry_rank": 1}, id="on rank 1 of 2", marks=pytest.mark.slow),
        pytest.param(2, {"hungry_rank": 0}, id="on rank 0 of 2", marks=pytest.mark.slow),
        pytest.param(2, {}, id="on both of 2", marks=pytest.mark.slow),
    ],
)
def test_a_trial_that_does_not_fit_goes_on_once_with_half_the_micro_batch(
    store: Store, workers: int, options: dict[str, Any]
) -> None:
    part = 64 // workers
    plan = {"workers": workers, "micro_batch": part}
    sweep = train(store, "Hungry", options={"fits": part - 1, **options}, plan=plan)
    [lost] = sweep.of(AttemptEnded)
    assert lost.reason == "oom"
    assert lost.next_plan == {"micro_batch": part // 2, "accumulation": 2}
    assert "can't allocate memory" in lost.message
    assert f"micro batches of {part // 2} instead of {part}" in lost.message
    first, second = sweep.of(TrialPlanned)
    assert first.plan == {**second.plan, "micro_batch": part, "accumulation": 1}
    assert second.plan["global_batch"] == 64
    [trial] = sweep.trials
    assert (trial.state, trial.attempts, trial.plan.micro_batch) == ("complete", 2, part // 2)
    assert sweep.history.best() == trial
    # Nobody hung: the workers that found the memory used up serve the next attempt.
    started = sweep.of(TrialStarted)
    assert sorted(started[0].worker_pids) == sorted(started[1].worker_pids)


@pytest.mark.slow
def test_the_smaller_micro_batch_trains_what_the_larger_would_have(store: Store) -> None:
    cut = train(store, "Hungry", options={"fits": 32})
    whole = train(store, "Hungry", options={"fits": 64})
    assert [trial.attempts for trial in (*cut.trials, *whole.trials)] == [2, 1]
    assert cut.trials[0].values == pytest.approx(whole.trials[0].values, rel=1e-5)


def test_a_trial_of_which_little_fits_is_divided_until_it_does(store: Store) -> None:
    sweep = train(store, "Hungry", options={"fits": 3})
    [ended] = sweep.of(TrialEnded)
    assert (ended.state, ended.attempt) == ("complete", 3)
    assert sweep.trials[0].plan.micro_batch == 2


def test_a_trial_that_never_fits_is_infeasible_and_not_a_failure_to_the_sampler(
    store: Store,
) -> None:
    search = {"weight_decay": {"low": 0.0, "high": 0.001}}
    sweep = train(store, "Hungry", options={"fits": 0}, search=search)
    [ended] = sweep.of(TrialEnded)
    assert (ended.state, ended.reason, ended.attempt) == ("failed", "oom", 4)
    assert sweep.trials[0].plan.micro_batch == 1, "64, 32, 8, 2 and 1 samples were tried"
    assert known_to_sampler(sweep) == [("PRUNED", {"fits in memory": 1.0})]


@pytest.mark.parametrize(
    ("workers", "options", "plan", "ways"),
    [
        pytest.param(1, {"until": "blocks"}, {}, [{"recompute": "blocks"}], marks=pytest.mark.slow),
        pytest.param(
            2,
            {"until": "shards", "blocks": False},
            {},
            [{"strategy": "zero1"}, {"strategy": "fsdp"}],
        ),
        pytest.param(
            2,
            {"until": "shards", "breaks": True},
            {},
            [
                {"recompute": "blocks"},
                {"recompute": "none", "strategy": "zero1"},
                {"strategy": "fsdp"},
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            {"until": "shards"},
            {"recompute": "none"},
            [{"strategy": "zero1"}, {"strategy": "fsdp"}],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["blocks", "shards", "blocks refused", "blocks not open"],
)
def test_a_trial_that_does_not_fit_moves_to_another_way_of_making_the_same_step(
    store: Store,
    workers: int,
    options: dict[str, Any],
    plan: dict[str, Any],
    ways: list[dict[str, str]],
) -> None:
    sweep = train(
        store, "Greedy", options=options, plan={"workers": workers, "micro_batch": 1, **plan}
    )
    lost = sweep.of(AttemptEnded)
    assert [loss.next_plan for loss in lost] == ways
    assert all("which gives the same result" in each.message for each in lost)
    [trial] = sweep.trials
    assert (trial.state, trial.attempts) == ("complete", len(ways) + 1)
    first, *_, last = sweep.of(TrialPlanned)
    assert last.plan == first.plan | {name: value for way in ways for name, value in way.items()}
    assert sweep.history.best() == trial, "what was searched is what was trained"


def test_a_trial_that_fits_in_no_way_names_what_was_not_open(store: Store) -> None:
    plan = {"workers": 2, "micro_batch": 1, "strategy": "ddp"}
    sweep = train(store, "Greedy", options={"until": "never"}, plan=plan)
    [lost], [ended] = sweep.of(AttemptEnded), sweep.of(TrialEnded)
    assert lost.next_plan == {"recompute": "blocks"}
    assert (ended.state, ended.reason, ended.attempt) == ("failed", "oom", 1)
    assert "plan.strategy stays ddp because it is not auto" in str(ended.message)
    assert known_to_sampler(sweep) == [("PRUNED", {"fits in memory": 1.0})]


def test_a_searched_micro_batch_that_did_not_fit_is_infeasible_though_a_smaller_one_trained(
    store: Store,
) -> None:
    sweep = train(
        store,
        "Hungry",
        options={"fits": 32},
        search={"micro_batch": {"choices": [64, 32]}},
        sampler="grid",
        budget={"trials": 2},
    )
    large, small = sweep.trial_with(micro_batch=64), sweep.trial_with(micro_batch=32)
    assert (large.state, large.attempts, large.plan.micro_batch) == ("complete", 2, 32)
    assert (large.fits, small.fits) == (False, True)
    assert [trial.number for trial in sweep.history.ranked()] == [small.number]
    assert sorted(known_to_sampler(sweep), key=str) == [
        ("COMPLETE", {"fits in memory": 1.0}),
        ("COMPLETE", {}),
    ]


def known_to_sampler(sweep: Sweep) -> list[tuple[str, dict[str, float]]]:
    """What the sampler of a run knows: state and broken limits of each trial."""
    study = Study.rebuild(sweep.experiment, sweep.events)._learner._projection._study
    return [(trial.state.name, trial.constraints) for trial in study.get_trials(deepcopy=False)]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", "error"),
        ("dies", "lost"),
        pytest.param("hangs", "timeout", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_what_befalls_another_rank_is_what_the_trial_ends_with(
    store: Store, how: str, reason: str
) -> None:
    sweep = train(
        store,
        "Faulty",
        options={"how": how},
        plan={"workers": 2},
        resources={"concurrency": 1, "max_retries": 0, "trial_time": 8 if how == "hangs" else None},
    )
    [ended] = sweep.of(TrialEnded)
    assert (ended.state, ended.reason) == ("failed", reason)
    if how == "fails":
        assert ended.message == "ValueError: rank 1 does not like this batch"
        assert "sweep_models.py" in str(ended.traceback)


@pytest.mark.slow
def test_a_worker_that_does_not_return_to_its_baseline_is_replaced_with_the_evidence(
    store: Store,
) -> None:
    sweep = train(store, "Forgetful", options={"mebibytes": 300}, budget={"trials": 4})
    notes = [event for event in sweep.of(Noted) if "baseline" in event.message]
    assert notes
    assert "replaced" in notes[0].message
    assert notes[0].trial is not None
    pids = {trial.number: trial.worker_pids for trial in sweep.trials}
    assert pids[notes[0].trial] != pids[notes[0].trial + 1]
    assert [trial.state for trial in sweep.trials] == ["complete"] * 4
    assert len({pid for trial in sweep.trials for pid in trial.worker_pids}) < 4, (
        "not after every trial"
    )
