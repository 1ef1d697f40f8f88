"""Every open question about a trial has one answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment, PlanSettings, Training
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.training.planning.equivalent_plans import smaller_micro_batch, with_workers
from workbench.training.planning.plan_resolution import divide_batch
from workbench.training.planning.settings import TrialSettings, resolve

OPEN_OR_SIZE = st.one_of(st.just("auto"), st.integers(1, 64))


def experiment(**sections: Any) -> Experiment:
    return Experiment(
        **{
            "model": "mlp",
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            **sections,
        }
    )


def settle(params: dict[str, Any] | None = None, **sections: Any) -> TrialSettings:
    return resolve(experiment(**sections), params or {}, num_train_samples=1438)


def test_what_nobody_says_has_a_plain_answer() -> None:
    settings = settle()
    assert settings.plan.to_json() == {
        "workers": 1,
        "micro_batch": 128,
        "accumulation": 1,
        "global_batch": 128,
        "precision": "fp32",
        "strategy": "single",
        "recompute": "none",
        "compile": "none",
        "memory_format": "contiguous",
        "loaders": 0,
        "stages": 1,
        "tensor": 1,
        "bucket": "default",
        "pipeline_schedule": "1f1b",
        "exchange": "allreduce",
    }
    assert (settings.lr, settings.warmup_epochs, settings.model) == (1e-3, 0.0, {})


def test_a_small_train_set_bounds_the_batch() -> None:
    assert resolve(experiment(), {}, num_train_samples=50).plan.global_batch == 50


def test_precision_follows_the_device() -> None:
    assert (
        resolve(experiment(), {}, hardware=Hardware(True, has_bf16=True)).plan.precision == "bf16"
    )
    assert (
        resolve(experiment(), {}, hardware=Hardware(True, has_bf16=False)).plan.precision == "fp32"
    )
    assert resolve(experiment(plan={"precision": "bf16"}), {}).plan.precision == "bf16"


def test_searched_values_stand_in_for_settings_and_the_rest_is_the_models() -> None:
    settings = settle(
        {"lr": 0.01, "optimizer": "sgd", "micro_batch": 32, "hidden_width": 64},
        model={"name": "mlp", "num_layers": 3},
    )
    assert settings.training.optimizer == "sgd"
    assert settings.plan.micro_batch == 32
    assert settings.plan.accumulation == 4
    assert settings.lr == 0.01
    assert settings.model == {"num_layers": 3, "hidden_width": 64}


def test_the_rate_is_meant_at_the_reference_batch() -> None:
    training = {
        "optimizer": "sgd",
        "reference_batch": 64,
        "global_batch": 256,
        "lr": 0.1,
        "epochs": 40,
    }
    settings = settle(training=training)
    assert settings.lr == pytest.approx(0.4)
    assert settings.warmup_epochs == pytest.approx(2.0)
    assert settings.warmup_steps(steps_per_epoch=6) == 12


def test_a_rate_stays_where_its_rule_holds() -> None:
    grown = {"reference_batch": 16, "global_batch": 512, "lr": 0.001, "lr_rule": "sqrt"}
    assert settle(training=grown).lr == pytest.approx(0.001 * math.sqrt(10))
    slower = {**grown, "optimizer_options": {"betas": [0.95, 0.999]}}
    assert settle(training=slower).lr == pytest.approx(0.001 * math.sqrt(20))
    assert settle(training={**grown, "optimizer": "sgd"}).lr == pytest.approx(0.001 * math.sqrt(32))


def test_legw_raises_the_rate_by_the_root_and_the_warm_up_by_the_ratio() -> None:
    training = {
        "optimizer": "sgd",
        "reference_batch": 16,
        "global_batch": 512,
        "lr": 2**2.5,
        "lr_rule": "legw",
        "epochs": 90,
        "warmup_epochs": 0.3125,
    }
    settings = settle(training=training)
    assert settings.lr == pytest.approx(2**5)  # You et al. 2019: ResNet-50 at 32 times the batch
    assert settings.warmup_epochs == pytest.approx(10.0)
    assert settle(training={**training, "global_batch": 8}).warmup_epochs == 0.3125
    assert settle(training={**training, "warmup_epochs": "auto"}).warmup_epochs == pytest.approx(
        28.8
    )


def test_adascale_follows_the_noise_once_it_is_known() -> None:
    training = {
        "optimizer": "sgd",
        "reference_batch": 64,
        "global_batch": 512,
        "lr": 1.0,
        "lr_rule": "adascale",
    }
    settings = settle(training=training)
    assert settings.follows_noise
    assert settings.lr == settings.peak_lr(None) == 1.0
    assert settings.warmup_epochs == 0.0
    # Variance 7 and squared norm 1 at the reference batch, as in the published goodput of 8 times
    # the batch.
    assert settings.peak_lr(7 * 64) == pytest.approx(8 * 0.533333, rel=1e-5)
    by_adam = settle(training={**training, "optimizer": "adamw"})
    assert by_adam.peak_lr(7 * 64) == pytest.approx(math.sqrt(8 * 0.533333), rel=1e-5)
    smaller = settle(training={**training, "global_batch": 16})
    assert not smaller.follows_noise
    assert smaller.lr == pytest.approx(0.5)
    with pytest.raises(ExperimentError, match="not measured"):
        settle(training={**training, "measure_noise": False})


def test_one_cycle_warms_up_for_a_third() -> None:
    assert settle(training={"schedule": "one_cycle", "epochs": 10}).warmup_epochs == pytest.approx(
        3.0
    )


@pytest.mark.parametrize(
    ("training", "plan", "expected"),
    [
        ({"global_batch": 64}, {"accumulation": 4}, (64, 16, 4, 1)),
        ({"global_batch": 64}, {"micro_batch": 16}, (64, 16, 4, 1)),
        ({"global_batch": 64}, {"workers": 2}, (64, 32, 1, 2)),
        ({"global_batch": 64}, {"micro_batch": 8, "accumulation": 4, "workers": 2}, (64, 8, 4, 2)),
        ({}, {"micro_batch": 8, "accumulation": 4, "workers": 2}, (64, 8, 4, 2)),
        ({}, {"micro_batch": 48}, (96, 48, 2, 1)),
        ({}, {"workers": 3}, (126, 42, 1, 3)),
        ({}, {"micro_batch": 512}, (512, 512, 1, 1)),
    ],
)
def test_steps_are_divided(
    training: dict[str, Any], plan: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    split = divide_batch(Training(**training), PlanSettings(**plan).decided, 1438, {})
    assert (split.global_batch, split.micro_batch, split.accumulation, split.workers) == expected


@given(wanted=OPEN_OR_SIZE, micro=OPEN_OR_SIZE, accumulation=OPEN_OR_SIZE, workers=OPEN_OR_SIZE)
def test_a_division_always_adds_up_and_keeps_what_was_given(
    wanted: Any, micro: Any, accumulation: Any, workers: Any
) -> None:
    plan = PlanSettings(micro_batch=micro, accumulation=accumulation, workers=workers)
    numbers = [number for number in (micro, accumulation, workers) if number != "auto"]
    nothing_is_open = "auto" not in (micro, accumulation)  # as workers: auto is 1
    if wanted != "auto" and (
        wanted % math.prod(numbers) or (nothing_is_open and wanted != math.prod(numbers))
    ):
        with pytest.raises(ExperimentError, match=r"^training\.global_batch: "):
            divide_batch(Training(global_batch=wanted), plan.decided, None, {})
        return
    split = divide_batch(Training(global_batch=wanted), plan.decided, None, {})
    numbers = [value for value in (split.micro_batch, split.accumulation, split.workers) if value]
    assert split.global_batch == math.prod(numbers)
    for given_value, value in (
        (wanted, split.global_batch),
        (micro, split.micro_batch),
        (accumulation, split.accumulation),
        (workers, split.workers),
    ):
        assert given_value in ("auto", value)


def test_strategy_stages_and_workers_follow_from_each_other() -> None:
    def chosen(**plan: Any) -> tuple[int, int, str, int]:
        settled = settle(plan=plan, training={"global_batch": 64}).plan
        return settled.workers, settled.stages, settled.strategy, settled.micro_batch

    assert chosen(stages=2) == (2, 2, "pipeline", 64)
    assert chosen(workers=4, stages=2) == (4, 2, "pipeline", 32)
    assert chosen(workers=4, strategy="pipeline") == (4, 4, "pipeline", 64)
    assert chosen(workers=4, stages=2, accumulation=4) == (4, 2, "pipeline", 8)
    assert chosen(stages=1, workers=2)[2] == "ddp"


def test_workers_of_a_tensor_part_hold_a_replica_together() -> None:
    def chosen(**plan: Any) -> tuple[int, int, str, int]:
        settled = settle(plan=plan, training={"global_batch": 64}).plan
        return settled.workers, settled.tensor, settled.strategy, settled.micro_batch

    assert chosen(tensor=2) == (2, 2, "tensor", 64)
    assert chosen(workers=4, tensor=2) == (4, 2, "tensor", 32)
    assert chosen(workers=4, strategy="tensor") == (4, 4, "tensor", 64)


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"workers": 3, "stages": 2}, "plan.workers"),
        ({"workers": 1, "stages": 2}, "plan.workers"),
        ({"workers": 2, "stages": 2, "strategy": "ddp"}, "plan.strategy"),
        ({"workers": 3, "tensor": 2}, "plan.workers"),
        ({"workers": 4, "stages": 2, "tensor": 2}, "plan.strategy"),
        ({"workers": 2, "tensor": 2, "strategy": "pipeline"}, "plan.strategy"),
        (
            {"workers": 2, "stages": 2, "micro_batch": 24, "accumulation": 3},
            "training.global_batch",
        ),
    ],
)
def test_stages_that_do_not_go_with_the_rest_are_refused(plan: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        settle(plan=plan, training={"global_batch": 64})
    assert caught.value.field == field


def test_copies_of_a_model_in_stages_grow_as_a_whole() -> None:
    sections: dict[str, Any] = {
        "plan": {"strategy": "pipeline", "workers": 2},
        "training": {"global_batch": 64},
    }
    plan = settle(**sections).plan
    assert with_workers(plan, 3) is None
    grown = with_workers(plan, 4)
    assert grown is not None
    assert grown == PartialPlan.of(workers=4, micro_batch=32, accumulation=1, stages=2)
    # Where the number of stages is open, as many workers would be one copy.
    again = resolve(experiment(**sections), {}, num_train_samples=1438, decided=grown).plan
    assert (again.stages, again.replicas, again.global_batch) == (2, 2, 64)


def test_the_strategy_follows_the_number_of_workers() -> None:
    assert settle().plan.strategy == "single"
    assert settle(plan={"workers": 2}).plan.strategy == "ddp"
    assert settle({"workers": 4, "strategy": "fsdp"}).plan.strategy == "fsdp"
    assert settle({"workers": 1}, plan={"strategy": "ddp"}).plan.strategy == "ddp"


def test_what_is_decided_counts_before_what_was_asked_for() -> None:
    asked = settle({"micro_batch": 64}, training={"global_batch": 128})
    decided = resolve(
        experiment(training={"global_batch": 128}),
        {"micro_batch": 64},
        num_train_samples=1438,
        decided=PartialPlan.of(workers=2, micro_batch=16, accumulation=4),
    )
    plan = asked.plan.to_json()
    assert plan == {
        **plan,
        "workers": 1,
        "micro_batch": 64,
        "accumulation": 2,
    }
    assert decided.plan.to_json() == {
        **plan,
        "workers": 2,
        "micro_batch": 16,
        "accumulation": 4,
        "strategy": "ddp",
    }
    assert decided.lr == asked.lr


@given(micro=st.integers(1, 5000), accumulation=st.integers(1, 64), workers=st.integers(1, 8))
def test_a_smaller_micro_batch_keeps_the_step(micro: int, accumulation: int, workers: int) -> None:
    plan = PartialPlan.of(micro_batch=micro, accumulation=accumulation, workers=workers)
    smaller = smaller_micro_batch(plan)
    if micro == 1:
        assert smaller is None
        return
    assert smaller is not None
    assert smaller.micro_batch is not None
    assert smaller.accumulation is not None
    assert smaller.micro_batch * smaller.accumulation == micro * accumulation
    assert 1 <= smaller.micro_batch <= micro // 2
    if micro % 2 == 0:
        assert smaller.micro_batch == micro // 2


def test_a_plan_that_is_not_known_in_full_is_not_made_smaller() -> None:
    assert smaller_micro_batch(PartialPlan()) is None
    assert smaller_micro_batch(PartialPlan.of(workers=2, accumulation=1)) is None


@pytest.mark.parametrize(
    ("sections", "params", "field"),
    [
        ({"plan": {"strategy": "single", "workers": 2}}, {}, "plan.strategy"),
        ({"plan": {"strategy": "single"}}, {"workers": 2}, "plan.strategy"),
        ({"plan": {"workers": 2}}, {"strategy": "single"}, "search.strategy"),
        (
            {"training": {"global_batch": 100}, "plan": {"micro_batch": 16, "accumulation": 4}},
            {},
            "training.global_batch",
        ),
        (
            {"plan": {"micro_batch": 16, "accumulation": 4}},
            {"global_batch": 100},
            "search.global_batch",
        ),
        ({"training": {"global_batch": 4096}}, {}, "training.global_batch"),
        ({"plan": {"micro_batch": 4096}}, {}, "plan.micro_batch"),
        ({}, {"epochs": 0}, "search.epochs"),
        ({"training": {"epochs": 3}}, {"warmup_epochs": 5}, "search.warmup_epochs"),
        ({"training": {"warmup_epochs": 5}}, {"epochs": 3}, "training.warmup_epochs"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(
    sections: dict[str, Any], params: dict[str, Any], field: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        settle(params, **sections)
    assert caught.value.field == field


def test_fp16_is_refused_where_it_is_known_that_a_cpu_computes() -> None:
    made = experiment(plan={"precision": "fp16"})
    assert resolve(made, {}).plan.precision == "fp16"
    with pytest.raises(ExperimentError, match=r"plan\.precision: a CPU cannot train in fp16"):
        resolve(made, {}, hardware=Hardware())


def plan_of(workers: int, micro_batch: int, accumulation: int) -> PartialPlan:
    return PartialPlan.of(workers=workers, micro_batch=micro_batch, accumulation=accumulation)


@pytest.mark.parametrize(
    ("plan", "workers", "fixed", "expected"),
    [
        ((1, 64, 4), 2, (), (2, 64, 2)),
        ((1, 64, 4), 8, (), (8, 32, 1)),
        ((2, 32, 1), 4, (), (4, 16, 1)),
        ((1, 60, 2), 3, (), (3, 40, 1)),
        ((1, 64, 4), 2, ("micro_batch", "accumulation"), None),
        ((1, 64, 4), 2, ("accumulation",), (2, 32, 4)),
        ((1, 64, 1), 2, ("micro_batch",), None),
        ((1, 64, 1), 3, (), None),
        ((4, 16, 1), 1, (), (1, 16, 4)),
        ((3, 20, 2), 2, (), (2, 20, 3)),
    ],
)
def test_more_workers_take_less_accumulation_first_and_then_smaller_micro_batches(
    plan: tuple[int, int, int],
    workers: int,
    fixed: tuple[str, ...],
    expected: tuple[int, int, int] | None,
) -> None:
    plan_of_workers = with_workers(plan_of(*plan), workers, fixed=fixed)
    assert (plan_of_workers and tuple(value for _, value in plan_of_workers.values)) == expected


@given(
    st.integers(1, 8),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 16),
    st.sets(st.sampled_from(["micro_batch", "accumulation"])),
)
def test_more_workers_train_the_same_global_batch_and_keep_what_is_fixed(
    workers: int, micro_batch: int, accumulation: int, more: int, fixed: set[str]
) -> None:
    plan = plan_of(workers, micro_batch, accumulation)
    resized = with_workers(plan, more, fixed=fixed)
    if resized is None:
        return
    assert resized.workers == more
    assert resized.global_batch == plan.global_batch
    assert resized.micro_batch is not None
    assert resized.micro_batch <= micro_batch
    assert all(resized.get(name) == plan.get(name) for name in fixed)
    decided = experiment(
        training={"global_batch": plan.global_batch}, plan={"micro_batch": micro_batch}
    )
    settings = resolve(decided, {}, decided=resized)
    assert settings.plan.global_batch == plan.global_batch
    assert settings.lr == resolve(decided, {}).lr


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (
            {"optimizer": "sgd", "lr": 0.05, "global_batch": 256, "reference_batch": 64},
            "0.2 = 0.05 x 4, because the batch is 256 and not 64 (linear)",
        ),
        (
            {"optimizer": "sgd", "lr": 0.08, "global_batch": 16, "reference_batch": 64},
            "0.04 = 0.08 x 0.5, because the batch is 16 and not 64 (sqrt)",
        ),
        ({"optimizer": "adamw", "lr": 0.001, "global_batch": 256, "reference_batch": 64}, "0.001"),
        (
            {"optimizer": "sgd", "lr": 0.05, "global_batch": 256, "lr_rule": "adascale"},
            "0.05 at first, then it follows the gradient noise",
        ),
    ],
)
def test_the_peak_rate_says_how_it_was_scaled(training: dict[str, Any], words: str) -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training=training,
    )
    assert resolve(experiment, {}).peak_rate.describe() == words
