"""What the advisor decides of a sweep's plans.

From measured laws, and in a sweep that really measures.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.sweeps import Sweep
from workbench.advisor.open_settings import choices_of
from workbench.advisor.plan_variants import plan_with
from workbench.advisor.plans import Knowledge
from workbench.advisor.recommend import measurement_context_of
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.foundation.events import AdviceGiven, Noted, PlanMeasured, TrialPlanned
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.sweep_advisor import (
    AdvisedPlans,
    fills,
    is_wanted,
    read_advised_plans,
    split_workers,
)

PLAIN = PartialPlan.of(precision="fp32", strategy="ddp", recompute="none")
SAMPLES = 4096


def make_experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"lr": {"low": 1e-4, "high": 1e-1, "log": True}},
        "training": {"epochs": 1},
        "resources": {"advice": "always"},
        "budget": {"trials": 2},
    }
    return Experiment(**(settings | changes))


def advised(
    experiment: Experiment, *, gain: float, num_places: int = 4
) -> tuple[AdvisedPlans, int, list[str]]:
    """Answer for workers that each bring `gain` times the samples of one, where 1 is no loss at
    all.
    """
    question = experiment.replace(training={"global_batch": 128})
    choices = choices_of(
        question, num_train_samples=SAMPLES, max_workers=num_places, hardware=Hardware()
    )
    measured = [
        PlanMeasured(
            setting="s",
            plan=plan_with(PLAIN, workers, micro_batch).to_json(),
            workers_per_node=[workers],
            step_time_s=1e-3 * micro_batch / (gain if workers > 1 else 1.0),
        )
        for workers in (1, 2, 4)
        for micro_batch in (16, 32, 64, 128)
    ]
    knowledge = Knowledge(measured, [num_places], limit_bytes=None)
    workers, said = split_workers(experiment, choices, knowledge, SAMPLES, num_places)
    return AdvisedPlans(experiment, choices, knowledge, SAMPLES, workers), workers, said


def test_more_trials_at_once_are_preferred_where_workers_do_not_add_up() -> None:
    _, workers, said = advised(make_experiment(budget={"trials": 40}), gain=0.7)
    assert workers == 1
    assert len(said) == 3


def test_a_trial_gets_all_workers_where_there_is_only_one_trial_to_run() -> None:
    plans, workers, _ = advised(make_experiment(budget={"trials": 1}), gain=0.7)
    assert workers == 4
    decided = plans.plan_for({"lr": 0.01})
    assert (decided.workers, decided.global_batch) == (4, 128)


def test_the_last_round_counts_three_trials_on_two_places_leave_one_idle() -> None:
    # Three rounds of one trial on both workers beat two rounds of which the second is half empty.
    _, workers, _ = advised(make_experiment(budget={"trials": 3}), gain=0.95, num_places=2)
    assert workers == 2


def test_what_a_person_or_the_search_decides_is_never_decided_again() -> None:
    experiment = make_experiment(plan={"accumulation": 2, "workers": 1})
    plans, _, _ = advised(experiment, gain=0.7)
    decided = plans.plan_for({"lr": 0.01})
    assert "accumulation" not in decided
    assert "workers" not in decided
    assert decided.micro_batch == 64
    searched = make_experiment(search={"micro_batch": {"choices": [16, 32]}})
    assert "micro_batch" not in advised(searched, gain=0.7)[0].plan_for({"micro_batch": 16})


def test_trees_get_one_worker_whatever_networks_of_the_same_sweep_get() -> None:
    kinds = make_experiment(
        model="one_of", search={"family": {"choices": ["forest", "mlp"]}}, budget={"trials": 1}
    )
    plans, _, _ = advised(kinds, gain=0.7)
    assert plans.plan_for({"family": "mlp"}).workers == 4
    assert plans.plan_for({"family": "forest"}) == PartialPlan.of(workers=1)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"resources": {}}, False),
        ({"resources": {}, "budget": {"time": "9m"}}, False),
        ({"resources": {}, "budget": {"time": "1h"}}, True),
        ({"resources": {"advice": "never"}, "budget": {"time": "1h"}}, False),
        ({"budget": {"trials": 1}}, True),
        ({"resources": {"advice": "always", "elastic": True}}, False),
        ({"model": "forest", "search": {}}, False),
        ({"model": "one_of", "search": {"family": {"choices": ["forest", "mlp"]}}}, True),
    ],
)
def test_it_measures_where_a_run_is_long_or_somebody_asks_for_it(
    changes: Any, wanted: bool
) -> None:
    assert is_wanted(make_experiment(**changes)) is wanted


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_measures_first_and_its_trials_follow(store: Store, free_pool: None) -> None:
    sweep = Sweep(store, store.create_run(make_experiment())).launch("inline").wait("complete")
    kinds = [type(event) for event in sweep.events]
    assert kinds.index(AdviceGiven) < kinds.index(TrialPlanned)
    assert kinds.count(PlanMeasured) >= 4
    [advice] = [event.advice for event in sweep.of(AdviceGiven)]
    settings: Any = advice["settings"]
    for planned in sweep.of(TrialPlanned):
        for path, value in settings.items():
            assert planned.plan[path.removeprefix("plan.")] == value
        assert planned.plan["global_batch"] == 128
    assert any("at once. The steps of one take about" in event.message for event in sweep.of(Noted))
    assert any("Checkpoints take up to" in event.message for event in sweep.of(Noted))

    ledger = Ledger(store, sweep.run_id)
    again = read_advised_plans(store, ledger)
    assert again is not None
    assert dict(again.plan_for({"lr": 0.01}).applicable().values) == {
        path.removeprefix("plan."): value for path, value in settings.items()
    }


@pytest.mark.ray
@pytest.mark.slow
def test_how_fast_plans_trained_is_kept_once_and_the_next_advice_begins_with_it(
    store: Store, free_pool: None
) -> None:
    experiment = make_experiment(
        resources={"advice": "never"},
        training={"epochs": 6},
        budget={"trials": 4},
        search={
            "lr": {"low": 1e-4, "high": 1e-2, "log": True},
            "micro_batch": {"choices": [16, 64]},
        },
        early_stop={"pruner": "none"},
        sampler="random",
    )
    sweep = Sweep(store, store.create_run(experiment)).launch("inline").wait("complete")
    kept = sweep.of(PlanMeasured)
    batches = [event.plan["micro_batch"] for event in kept]
    assert len(batches) == len(set(batches)), "once for each plan"
    assert {event.plan["micro_batch"] for event in sweep.of(TrialPlanned)} == set(batches)
    for event in kept:
        assert event.by_trial is not None
        assert event.step_time_s is not None
        assert 1e-5 < event.step_time_s < 10.0
        assert event.workers_per_node == [1]
    around = measurement_context_of(store, experiment)
    assert {event.plan["micro_batch"] for event in around.known} == set(batches)


def test_later_trials_follow_what_earlier_ones_have_shown() -> None:
    experiment = make_experiment(plan={"workers": 1}, training={"global_batch": 128})
    choices = choices_of(experiment, num_train_samples=SAMPLES, max_workers=1, hardware=Hardware())

    def measured(micro_batch: int, factor: float = 1.0, trial: int | None = None) -> PlanMeasured:
        """Return a plan whose micro steps have a floor, so that few large ones are faster alone."""
        return PlanMeasured(
            setting="s",
            plan=plan_with(PLAIN, 1, micro_batch).to_json(),
            by_trial=trial,
            workers_per_node=[1],
            step_time_s=factor * (0.02 + 1e-3 * micro_batch),
        )

    alone = [measured(size) for size in (16, 32, 64, 128)]
    plans = AdvisedPlans(experiment, choices, Knowledge(alone, [1], limit_bytes=None), SAMPLES, 1)
    assert plans.plan_for({"lr": 0.01}).micro_batch == 128

    # Beside others the largest micro batch takes five times as long, and nothing else does.
    said = [
        plans.learn(measured(size, 5.0 if size == 128 else 1.0, trial=1))
        for size in (16, 32, 64, 128)
    ]
    assert plans.plan_for({"lr": 0.01}).micro_batch != 128
    assert any(
        text is not None and "instead of 128 samples = 128 x 1 accumulated x 1 worker" in text
        for text in said
    )


def test_what_trials_of_another_setting_show_changes_nothing() -> None:
    plans, _, _ = advised(make_experiment(), gain=0.7)
    other = PlanMeasured(
        setting="another", plan=plan_with(PLAIN, 1, 64).to_json(), by_trial=1, step_time_s=9.0
    )
    before = plans.plan_for({"lr": 0.01})
    assert plans.learn(other) is None
    assert plans.plan_for({"lr": 0.01}) == before


@pytest.mark.parametrize(
    ("changes", "workers", "filled"),
    [
        ({"budget": {"trials": 40}}, 2, True),
        ({"budget": {"trials": 1}}, 2, False),
        ({"budget": {"trials": 1}, "repeats": 2}, 2, True),
        ({"budget": {"trials": 40}, "resources": {"concurrency": 1}}, 2, False),
        ({"budget": {"trials": 1}}, 1, True),
    ],
)
def test_where_workers_go_matters_only_where_trials_leave_places_idle(
    changes: Any, workers: int, filled: bool
) -> None:
    assert fills(make_experiment(**changes), workers, num_places=4) is filled
