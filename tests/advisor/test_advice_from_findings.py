"""What is said where trainings could not tell.

The models answer, or it is said that nothing can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.advice import Advice, Candidate
from workbench.advisor.advice_from_findings import (
    Findings,
    conclude,
    describe_fewer_updates,
    largest_batch,
    unmeasured_values,
)
from workbench.advisor.candidates import describe_contradiction, doubt_of_runner_up
from workbench.advisor.open_settings import believed_rate, choices_of, drawn_params
from workbench.advisor.plan_study import RatedPlan
from workbench.advisor.plan_variants import plan_with
from workbench.advisor.plans import Knowledge
from workbench.advisor.race import Race
from workbench.advisor.recommend import describe_overrun
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PlanMeasured, RatesTested
from workbench.hardware.performance.goodput import efficiency

SAMPLES = 1024
EXPERIMENT = Experiment(
    model="mlp",
    data="digits",
    objectives=[{"metric": "val_loss", "goal": "minimize", "target": 0.1}],
)
PLANS = [
    plan_with(PartialPlan.of(precision="fp32", strategy="ddp", recompute="none"), 1, batch)
    for batch in (32, 64, 128)
]


def conclude_after(
    train: Callable[[Callable[[float, float | None], bool]], bool],
    experiment: Experiment = EXPERIMENT,
    plans: Sequence[Plan] = PLANS,
) -> Advice:
    """Race one candidate whose training is `train`, and conclude after `plans` were measured."""
    clock = [0.0]

    def run(
        _rival: RatedPlan, _repeat: int, goes_on: Callable[[float, float | None], bool]
    ) -> bool:
        clock[0] += 20.0
        return train(goes_on)

    race: Race[RatedPlan] = Race(run, target=-0.1, budget_s=10.0, clock=lambda: clock[0])
    race.run(RatedPlan(PLANS[0], 1e-3))
    measured = [
        PlanMeasured(
            setting="s",
            plan=plan.to_json(),
            workers_per_node=[1],
            num_train_samples=SAMPLES,
            step_time_s=1e-3 + 1e-4 * plan.micro_batch,
            compile_s=12.0,
        )
        for plan in plans
    ]
    return conclude(
        Findings(
            experiment=experiment,
            goal="time",
            choices=choices_of(
                experiment, num_train_samples=SAMPLES, max_workers=1, hardware=Hardware()
            ),
            knowledge=Knowledge(measured, [1], limit_bytes=None),
            reference=measured[0],
            plans=PLANS,
            rates=None,
            race=race,
            noise_scale=None,
            placement="pack",
            num_known=0,
            num_measured=3,
            cost_s=1.0,
        )
    )


def test_where_no_candidate_came_to_an_evaluation_the_models_answer_and_say_so() -> None:
    advice = conclude_after(lambda goes_on: not goes_on(5.0, None) and False)
    assert advice.choice.written == "32 samples = 32 x 1 accumulated x 1 worker"
    assert advice.choice.time_to_target_s is None
    assert any("no candidate reached its first evaluation" in text for text in advice.would_change)
    assert any("compiling takes 12 s" in text for text in advice.measured)
    assert advice.choice.reasons[0] == "7,619 samples/s measured"


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (1.0, 1.0, 3.6, "3.6 times shorter"),
        (5.0, 2.0, 5.0, "2.5 times longer"),
        (2.0, 1.0, 9.0, None),
        (1.0, 1.0, 1.9, None),
        (1.0, 1.0, 1.0, None),
        (1.0, 0.0, 1.0, None),
    ],
)
def test_a_measured_step_that_contradicts_the_model_is_named(
    value: float, low: float, high: float, said: str | None
) -> None:
    doubt = describe_contradiction(Estimate(value, low, high))
    assert doubt is None if said is None else said in (doubt or "")


@pytest.mark.parametrize(
    ("runner_up_s", "said"),
    [
        ((0.1, 0.02, 0.1), "5.0 times longer"),
        ((0.1, 0.09, 0.1), None),
        ((0.4, 0.1, 0.4), None),
        ((0.1, 0.1, 0.9), None),
    ],
)
def test_a_runner_up_that_may_be_faster_than_its_one_measured_step_is_named(
    runner_up_s: tuple[float, float, float], said: str | None
) -> None:
    choice, runner_up = (
        Candidate(
            plan=plan,
            lr=None,
            lr_rule=None,
            warmup_epochs=0,
            samples_per_s=step.inverse(64),
            step_time_s=step,
            epoch_time_s=None,
            memory_bytes=None,
            power_w=None,
            time_to_target_s=None,
        )
        for plan, step in (
            (PLANS[0], Estimate(0.05, 0.04, 0.06)),
            (PLANS[1], Estimate(*runner_up_s)),
        )
    )
    doubt = doubt_of_runner_up(runner_up, choice)
    assert doubt is None if said is None else said in (doubt or "")
    assert doubt is None or doubt.startswith(
        "the measured step of 64 samples = 64 x 1 accumulated x 1 worker is up to"
    )


def test_where_no_value_is_finite_nothing_is_recommended() -> None:
    def train(goes_on: Callable[[float, float | None], bool]) -> bool:
        goes_on(5.0, float("nan"))
        return True

    with pytest.raises(ExperimentError, match="no candidate reported a finite value"):
        conclude_after(train)


def test_a_rate_that_a_test_suggests_is_believed_in_to_three_digits() -> None:
    rates = RatesTested(
        setting="s",
        global_batch=128,
        rates=[1e-4, 1e-2],
        losses=[2.0, 1.0],
        num_seeds=1,
        suggested=0.002607982066771268,
    )
    choices = choices_of(EXPERIMENT, num_train_samples=SAMPLES, max_workers=1, hardware=Hardware())
    assert believed_rate(EXPERIMENT, choices, rates) == 0.00261


def reach_target(goes_on: Callable[[float, float | None], bool]) -> bool:
    goes_on(5.0, -0.05)
    return True


def test_the_settings_are_those_that_a_trial_would_not_choose_by_itself() -> None:
    advice = conclude_after(reach_target)
    assert set(advice.settings) == {
        "training.global_batch",
        "training.lr",
        "plan.workers",
        "plan.micro_batch",
    }
    searched = EXPERIMENT.replace(search={"precision": {"choices": ["fp32", "bf16"]}})
    measured = [*PLANS, dataclasses.replace(PLANS[0], precision="bf16")]
    assert conclude_after(reach_target, searched, measured).settings["plan.precision"] == "fp32"


def test_what_is_searched_and_was_not_measured_stays_searched() -> None:
    searched = EXPERIMENT.replace(
        search={"memory_format": {"choices": ["contiguous", "channels_last"]}}
    )
    advice = conclude_after(reach_target, searched)
    assert "plan.memory_format" not in advice.settings
    assert any(
        "channels_last was not measured, so the search still varies memory_format" in line
        for line in advice.would_change
    )


@pytest.mark.parametrize(("workers", "missing"), [(1, {"compile": ["cuda_graphs"]}), (2, {})])
def test_what_no_plan_may_be_is_not_missed(workers: int, missing: dict[str, list[str]]) -> None:
    searched = EXPERIMENT.replace(
        search={"compile": {"choices": ["none", "cuda_graphs"]}},
        plan={"workers": workers, "precision": "fp32"},
    )
    allowed = choices_of(
        searched, num_train_samples=SAMPLES, max_workers=2, hardware=Hardware(has_gpu=True)
    )
    measured = PlanMeasured(setting="s", plan=PLANS[0].to_json(), fits=False)
    assert unmeasured_values(allowed, [measured]) == missing


def test_the_experiment_as_it_stands_has_what_is_listed_first_of_a_plan() -> None:
    for seed in range(5):
        search: dict[str, Any] = {
            "memory_format": {"choices": ["contiguous", "channels_last"]},
            "lr": {"low": 0.1, "high": 1.0},
        }
        drawn = drawn_params(EXPERIMENT.replace(search=search, seed=seed))
        assert drawn["memory_format"] == "contiguous"


@pytest.mark.parametrize(
    ("search", "why"),
    [
        ({}, None),
        (
            {"optimizer": {"choices": ["sgd", "adamw"]}},
            "the optimizer is also searched, and each one needs a different rate",
        ),
    ],
)
def test_a_rate_that_stays_searched_is_explained(search: dict[str, Any], why: str | None) -> None:
    rate = {"lr": {"low": 1e-4, "high": 0.1, "log": True}}
    advice = conclude_after(reach_target, EXPERIMENT.replace(search=rate | search))
    assert ("training.lr" in advice.settings) == (why is None)
    rates = [text.partition("still varies the learning rate: ")[2] for text in advice.would_change]
    assert [text for text in rates if text] == ([] if why is None else [why])


def conclude_ranked(
    plans: list[Plan], noise_scale: float | None, race: Race[RatedPlan] | None = None, **fields: Any
) -> Advice:
    """Conclude from plans in the order in which the models rank them, of 455 samples and 20
    epochs.
    """
    experiment = EXPERIMENT.replace(
        training={"epochs": 20, "reference_batch": 16},
        search={"global_batch": {"low": 16, "high": 256}},
        **fields,
    )
    measured = [
        PlanMeasured(
            setting="s",
            plan=plan.to_json(),
            workers_per_node=[1],
            num_train_samples=455,
            step_time_s=1e-3 + 1e-5 * plan.micro_batch,
        )
        for plan in ALL_BATCHES
    ]
    return conclude(
        Findings(
            experiment=experiment,
            goal="time",
            choices=choices_of(
                experiment, num_train_samples=455, max_workers=1, hardware=Hardware()
            ),
            knowledge=Knowledge(measured, [1], limit_bytes=None),
            reference=measured[0],
            plans=plans,
            rates=None,
            race=race,
            noise_scale=noise_scale,
            placement="pack",
            num_known=0,
            num_measured=5,
            cost_s=1.0,
        )
    )


ALL_BATCHES = [
    plan_with(PartialPlan.of(precision="fp32", strategy="ddp", recompute="none"), 1, batch)
    for batch in (16, 32, 64, 128, 256)
]
SMALLEST, *_, LARGEST = ALL_BATCHES


def test_a_batch_with_few_updates_is_not_recommended_for_the_speed_of_its_steps() -> None:
    advice = conclude_ranked(ALL_BATCHES[::-1], None)
    assert advice.choice.plan.global_batch == 32
    assert advice.rejected is not None
    assert advice.rejected.written == "256 samples = 256 x 1 accumulated x 1 worker"
    assert (
        advice.rejected.reason
        == "faster steps, but only 40 updates in 20 epochs (580 at 16), and no training has shown"
        " that it converges"
    )
    assert advice.settings["training.global_batch"] == 32
    # A measured noise scale shows that larger batches waste little.
    assert conclude_ranked(ALL_BATCHES[::-1], 400.0).choice.plan.global_batch == 256
    in_order = conclude_ranked(ALL_BATCHES, None)
    assert in_order.choice.plan.global_batch == 16
    assert in_order.rejected is None


@pytest.mark.parametrize(("value", "batch"), [(-0.05, 256), (-0.5, 16)])
def test_a_batch_that_reached_the_target_may_have_few_updates(value: float, batch: int) -> None:
    clock = [0.0]

    def train(
        rated: RatedPlan, _repeat: int, goes_on: Callable[[float, float | None], bool]
    ) -> bool:
        clock[0] += 1.0
        goes_on(1.0, value if rated.plan == LARGEST else 2 * value - 0.1)
        return False

    race: Race[RatedPlan] = Race(train, target=-0.1, budget_s=100.0, clock=lambda: clock[0])
    for plan in (SMALLEST, LARGEST):
        race.run(RatedPlan(plan, 1e-3))
    assert conclude_ranked(ALL_BATCHES[::-1], None, race).choice.plan.global_batch == batch


def test_without_a_target_a_whole_training_shows_that_few_updates_suffice() -> None:
    for is_whole, batch in ((True, 256), (False, 16)):
        race: Race[RatedPlan] = Race(
            lambda rated, _, goes_on, whole=is_whole: (
                goes_on(1.0, rated.plan.global_batch / 1000.0) and whole
            ),
            target=None,
            budget_s=60.0,
            clock=lambda: 0.0,
        )
        for plan in (LARGEST, SMALLEST):
            race.run(RatedPlan(plan, 1e-3))
        objectives = [{"metric": "val_accuracy", "goal": "maximize"}]
        advice = conclude_ranked(ALL_BATCHES[::-1], None, race, objectives=objectives)
        assert advice.choice.plan.global_batch == batch


@given(st.integers(1, 4096), st.none() | st.floats(0.0, 1e6), st.none() | st.integers(1, 10**7))
def test_no_batch_needs_more_than_twice_the_samples_of_the_default(default, noise, num_samples):
    largest = largest_batch(default, noise, num_samples)
    assert largest >= default
    # A sample at the largest batch is worth at least half of one at the default.
    assert float(efficiency(largest, default, noise or 0.0)) >= 0.5 - 1e-9


@pytest.mark.parametrize(
    ("default", "noise", "num_samples", "largest"),
    [
        (16, None, 455, 32),  # 29 steps an epoch become 15
        (128, None, 455, 128),  # twice as many would leave 2 steps an epoch
        (128, None, None, 256),
        (16, 480.0, 455, 512),  # measured noise allows more
    ],
)
def test_the_largest_batch_follows_the_noise_and_the_steps_of_an_epoch(
    default, noise, num_samples, largest
):
    assert largest_batch(default, noise, num_samples) == largest


def test_the_reason_counts_updates():
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    experiment = Experiment(
        model="mlp", data="digits", objectives=objectives, training={"epochs": 20}
    )
    assert (
        describe_fewer_updates(experiment, 256, 16, 455)
        == "faster steps, but only 40 updates in 20 epochs (580 at 16), and no training has shown"
        " that it converges"
    )
    assert "but 16 times fewer updates than 16" in describe_fewer_updates(experiment, 256, 16, None)


def test_time_beyond_the_limit_is_explained_by_what_took_most_of_it():
    spent_s = {"measuring plans": 80.0, "trainings": 10.0}
    assert describe_overrun(spent_s, 60.0) == "(limit 1 min), mostly for measuring plans"
    assert describe_overrun(spent_s, 89.5) is None
