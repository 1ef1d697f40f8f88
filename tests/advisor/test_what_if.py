"""What other plans would bring, asked of models whose truth is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.advisor.test_plans import PLAIN, law_s, make_experiment, measure
from workbench.advisor.plan_variants import plan_with
from workbench.advisor.what_if import PlanQuery, WhatIf
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import PlanMeasured

SAMPLES = 4096
MIB = 2**20
LIMIT_BYTES = 400 * MIB


def peak_bytes(micro_batch: int) -> int:
    return (40 + micro_batch) * MIB


def measured(counts: tuple[int, ...] = (1, 2)) -> list[PlanMeasured]:
    events = [
        measure(workers, size, law_s(workers, size), peak_bytes(size))
        for workers in counts
        for size in (16, 32, 64, 128, 256)
    ]
    return [event.model_copy(update={"num_train_samples": SAMPLES}) for event in events]


def advice(noise_scale: float | None = 400.0, time_s: float | None = 100.0) -> dict[str, Any]:
    """What was advised: 128 samples on one worker."""
    return {
        "objective": "time",
        "choice": {
            "plan": plan_with(PLAIN, 1, 128).to_json(),
            "time_to_target_s": (
                None if time_s is None else {"value": time_s, "low": 80.0, "high": 120.0}
            ),
        },
        "noise": {"scale_samples": noise_scale, "status": "measured"},
        "settings": {"training.lr": 0.002},
        "curves": {"memory_limit_bytes": LIMIT_BYTES},
    }


def models(experiment: Experiment | None = None, **said: Any) -> WhatIf:
    return WhatIf(experiment or make_experiment(), advice(**said), measured())


def test_a_plan_that_was_measured_is_told_as_it_was() -> None:
    told = models().answer(PlanQuery(workers=1, global_batch=64))
    assert told["written"] == "64 samples = 64 x 1 accumulated x 1 worker"
    assert told["step_time_s"]["value"] == pytest.approx(law_s(1, 64))
    assert told["samples_per_s"]["value"] == pytest.approx(64 / law_s(1, 64))
    assert told["epoch_time_s"]["value"] == pytest.approx(SAMPLES // 64 * law_s(1, 64))
    assert told["memory_bytes"] == {
        "value": pytest.approx(peak_bytes(64)),
        "limit": LIMIT_BYTES,
        "measured": True,
        "message": None,
    }
    assert told["fits"] is True
    assert told["messages"] == []


def test_memory_on_more_workers_than_were_measured_is_estimated() -> None:
    answer = models().answer(PlanQuery(workers=8, global_batch=128))
    assert answer["memory_bytes"]["value"] == pytest.approx(peak_bytes(16))
    assert answer["memory_bytes"]["measured"] is False


def test_a_plan_between_measured_ones_is_predicted_within_its_interval() -> None:
    told = models().answer(PlanQuery(workers=2, micro_batch=96, global_batch=192))
    step = told["step_time_s"]
    assert step["low"] < law_s(2, 96) < step["high"]
    assert step["value"] == pytest.approx(law_s(2, 96), rel=0.1)
    assert step["extrapolated"] is False


def test_what_is_left_open_is_chosen_for_the_goal() -> None:
    asked = models()
    fastest, cheapest = (
        asked.answer(PlanQuery(global_batch=256, objective=goal)) for goal in ("time", "money")
    )
    assert fastest["plan"]["workers"] == 2
    assert cheapest["plan"]["workers"] == 1


def test_a_batch_that_does_not_fit_is_accumulated_and_a_micro_batch_that_does_not_is_told() -> None:
    asked = models()
    accumulated = asked.answer(PlanQuery(workers=1, global_batch=1024))
    assert accumulated["plan"]["accumulation"] == 4
    assert accumulated["fits"] is True
    whole = asked.answer(PlanQuery(workers=1, global_batch=1024, micro_batch=1024))
    assert whole["fits"] is False
    assert "it does not fit into the memory of a worker" in whole["messages"]
    assert any(
        "beyond what was measured: micro batches of 16 to 256" in said for said in whole["messages"]
    )


def test_the_time_to_the_target_follows_steps_and_the_worth_of_a_sample() -> None:
    asked = models()
    same = asked.answer(PlanQuery(workers=1, global_batch=128))
    assert same["time_to_target_s"] == {
        "value": 100.0,
        "low": 80.0,
        "high": 120.0,
        "extrapolated": False,
        "message": None,
    }
    faster = asked.answer(PlanQuery(workers=2, global_batch=128))["time_to_target_s"]
    assert faster["value"] == pytest.approx(100.0 * law_s(2, 64) / law_s(1, 128), rel=0.02)
    larger = asked.answer(PlanQuery(workers=1, global_batch=256))["time_to_target_s"]
    needed = (400 + 256) / (400 + 128)  # samples, over those at the batch of the choice
    per_sample = law_s(1, 256) / 256 / (law_s(1, 128) / 128)
    assert larger["value"] == pytest.approx(100.0 * needed * per_sample, rel=0.02)
    assert larger["low"] < 0.5 * 80.0 * needed * per_sample * 1.05, (
        "what noise predicts is told with doubt"
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"noise_scale": None}, "the gradient noise was not measured"),
        ({"time_s": None}, "no training reached"),
    ],
)
def test_a_time_that_nobody_knows_is_not_made_up(said: dict[str, Any], reason: str) -> None:
    told = models(**said).answer(PlanQuery(workers=1, global_batch=256))
    assert told["time_to_target_s"]["value"] is None
    assert reason in told["time_to_target_s"]["message"]
    assert told["time_to_target_s"]["message"] in told["messages"]


def test_more_workers_than_were_measured_are_told_to_be_beyond() -> None:
    told = models().answer(PlanQuery(workers=4, global_batch=256))
    assert told["plan"]["workers"] == 4
    assert told["step_time_s"]["extrapolated"] is True
    assert any(
        "beyond what was measured" in limit and "1, 2 workers" in limit
        for limit in told["messages"]
    )


def test_a_wish_goes_before_what_the_experiment_says() -> None:
    asked = models(
        make_experiment(plan={"workers": 1}, search={"global_batch": {"choices": [64, 128]}})
    )
    assert asked.answer(PlanQuery())["plan"]["workers"] == 1
    told = asked.answer(PlanQuery(workers=2, global_batch=256))
    assert (told["plan"]["workers"], told["plan"]["global_batch"]) == (2, 256)


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        (PlanQuery(precision="bf16"), "plan.precision", "nothing was measured in bf16"),
        (
            PlanQuery(workers=3, global_batch=64),
            "training.global_batch",
            "64 samples do not equal micro_batch 21",
        ),
        (PlanQuery(workers=0), "plan.workers", "0 workers are not possible"),
        (PlanQuery(global_batch=2 * SAMPLES), "global_batch", "larger than the training data"),
    ],
)
def test_a_query_that_cannot_be_answered_names_its_field(
    query: PlanQuery, field: str, said: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        models().answer(query)
    assert str(caught.value.field).endswith(field)
    assert said in caught.value.problem


def test_energy_without_a_meter_is_told_of() -> None:
    assert any(
        "power of the devices was not measured" in limit
        for limit in models().answer(PlanQuery(objective="energy"))["messages"]
    )


def test_an_advice_without_measurements_cannot_be_asked() -> None:
    with pytest.raises(RunError, match="no measurement to predict from"):
        WhatIf(make_experiment(), advice(), [])


def test_without_a_wish_the_answer_is_the_plan_that_the_advice_chose() -> None:
    # The models alone would choose two workers, because they are faster.
    assert models().answer(PlanQuery(objective="throughput"))["plan"]["workers"] == 2
    told = models().answer(PlanQuery())
    assert (told["plan"]["workers"], told["plan"]["global_batch"]) == (1, 128)
    assert "the same plan" in told["message"]
    assert told["fits"]
    assert models().answer(PlanQuery(global_batch=128, precision="fp32"))["plan"] == told["plan"]
    assert models().answer(PlanQuery(workers=2))["plan"]["workers"] == 2
