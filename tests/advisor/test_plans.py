"""Which plans are allowed and fit, and what measurements say of those that were not measured."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.open_settings import Choices, choices_of
from workbench.advisor.plan_measurement import spread_evenly
from workbench.advisor.plan_variants import plan_with
from workbench.advisor.plans import Knowledge, enumerate_plans
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.memory import MemoryLaw

PLAIN = PartialPlan.of(
    precision="fp32", strategy="ddp", recompute="none", compile="none", loaders=0
)
GIB = 2**30


def make_experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "model": "mlp",
        "data": "breast_cancer",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    }
    return Experiment(**(settings | changes))


def choose(
    experiment: Experiment, samples: int = 4096, workers: int = 4, **device: bool
) -> Choices:
    on = Hardware(**device)
    return choices_of(experiment, num_train_samples=samples, max_workers=workers, hardware=on)


def measure(
    workers: int,
    micro_batch: int,
    step_time_s: float | None,
    peak_bytes: int | None = None,
    *,
    fits: bool = True,
    nodes: list[int] | None = None,
) -> PlanMeasured:
    plan = plan_with(PLAIN, workers, micro_batch)
    return PlanMeasured(
        setting="s",
        plan=plan.to_json(),
        workers_per_node=nodes or [workers],
        fits=fits,
        step_time_s=step_time_s,
        peak_bytes=peak_bytes,
    )


def law_s(workers: int, micro_batch: int) -> float:
    return 0.002 + 1e-4 * micro_batch + (0.001 if workers > 1 else 0.0)


@pytest.mark.parametrize(
    ("strategy", "nodes", "is_bound"),
    [
        ("ddp", [2], True),
        # Rings of three nodes are often faster than those of two.
        ("ddp", [1, 1], False),
        # Each of more workers has less to update.
        ("zero1", [2], False),
    ],
)
def test_a_step_takes_at_least_as_long_as_that_of_fewer_workers_with_the_same_work(
    strategy: str, nodes: list[int], is_bound: bool
) -> None:
    one = [
        measure(1, size, step_s) for size, step_s in ((4, 0.00031), (64, 0.00047), (256, 0.00085))
    ]
    two = [measure(2, size, step_s) for size, step_s in ((2, 0.00246), (16, 0.00253))]
    slow = measure(2, 128, 0.00488, nodes=nodes)
    variant = PLAIN | PartialPlan.of(strategy=strategy)
    measured = [
        each.model_copy(update={"plan": each.plan | {"strategy": strategy}})
        for each in (*one, *two, slow)
    ]
    step = Knowledge(measured, [8], limit_bytes=None).step_times([plan_with(variant, 4, 128)])[0]
    assert (step.value >= 0.00488) == is_bound
    assert step.low <= step.value <= step.high


def test_several_micro_batches_take_at_most_as_long_as_that_many_steps_of_one() -> None:
    # As measured of a model whose larger batches leave the cache: 35 ms for 4 samples, 2.07 s for
    # 128.
    measured = [measure(1, 4, 0.0354), measure(1, 128, 2.07)]
    step = Knowledge(measured, [2], limit_bytes=None).step_times([plan_with(PLAIN, 1, 4, 4)])[0]
    assert 0.0354 < step.value <= 4 * 0.0354
    assert step.low <= step.value <= step.high


def test_what_is_open_is_free_and_what_is_written_stays() -> None:
    choices = choose(
        make_experiment(plan={"workers": 2}, training={"lr": 0.01, "reference_batch": 64})
    )
    assert choices.workers == (2,)
    assert choices.rates == (0.01, 0.01)
    assert not choices.is_rate_open
    assert 64 in choices.global_batches
    assert "plan.workers" not in choices.open_fields
    assert {"training.global_batch", "plan.micro_batch"} <= set(choices.open_fields)


def test_what_is_searched_is_free_among_its_values() -> None:
    search = {
        "lr": {"choices": [0.001, 0.01, 0.1]},
        "global_batch": {"choices": [32, 256]},
        "workers": {"choices": [1, 2]},
        "hidden_width": {"choices": [16, 32]},
    }
    choices = choose(make_experiment(search=search))
    assert choices.workers == (1, 2)
    assert choices.global_batches == (32, 256)
    assert choices.listed_rates == (0.001, 0.01, 0.1)
    assert choices.allowed_rate(0.02) == 0.01
    assert set(choices.params) == {"hidden_width"}


def test_a_step_never_takes_most_of_the_data_unless_somebody_asks_for_it() -> None:
    assert max(choose(make_experiment(), samples=455).global_batches) <= 128
    searched = make_experiment(search={"global_batch": {"choices": [32, 400]}})
    assert choose(searched, samples=455).global_batches == (32, 400)


def test_train_functions_are_refused_with_the_way_out() -> None:
    objectives = [{"metric": "loss", "goal": "minimize"}]
    experiment = Experiment(train="json:loads", objectives=objectives, search={"x": 0.5})
    with pytest.raises(ExperimentError, match="Write advise:"):
        choose(experiment)


@given(
    workers=st.integers(1, 9),
    parts=st.integers(1, 8),
    size=st.integers(1, 40),
    samples=st.integers(3000, 10_000),
    is_micro_fixed=st.booleans(),
)
def test_every_plan_is_exactly_its_global_batch(
    workers: int, parts: int, size: int, samples: int, is_micro_fixed: bool
) -> None:
    batch, micro = workers * parts * size, size if is_micro_fixed else None
    plan: dict[str, Any] = {"workers": workers} | ({} if micro is None else {"micro_batch": micro})
    experiment = make_experiment(plan=plan, training={"global_batch": batch})
    plans = list(enumerate_plans(choose(experiment, samples=samples, workers=9), [PLAIN]))
    assert plans
    for sized in plans:
        assert sized.global_batch == sized.workers * sized.micro_batch * sized.accumulation == batch
        assert sized.workers == workers
        assert micro is None or sized.micro_batch == micro


def test_what_divides_among_replicas_is_no_choice_for_a_single_one() -> None:
    ways = [PLAIN | PartialPlan.of(strategy=name) for name in ("ddp", "zero1", "fsdp")]
    divided = {
        (plan.workers, plan.strategy) for plan in enumerate_plans(choose(make_experiment()), ways)
    }
    assert {strategy for workers, strategy in divided if workers == 1} == {"single"}
    assert {strategy for workers, strategy in divided if workers == 2} == {"ddp", "zero1", "fsdp"}
    written = make_experiment(plan={"workers": 1, "strategy": "zero1"})
    assert {plan.strategy for plan in enumerate_plans(choose(written), ways[1:2])} == {"zero1"}


def test_what_is_not_possible_is_so_at_every_size_and_not_for_want_of_memory() -> None:
    refused = measure(1, 64, None, fits=False).model_copy(update={"is_possible": False})
    known = Knowledge([refused], [4], limit_bytes=None)
    assert not known.fits(plan_with(PLAIN, 1, 8))
    assert not known.is_possible(plan_with(PLAIN, 1, 8))
    full = Knowledge([measure(1, 64, None, fits=False)], [4], limit_bytes=None)
    assert full.fits(plan_with(PLAIN, 1, 8))
    assert full.is_possible(plan_with(PLAIN, 1, 64))


def test_plans_that_do_not_fit_are_left_out_and_accumulate_instead() -> None:
    experiment = make_experiment(training={"global_batch": 1024}, plan={"workers": 1})
    known = Knowledge(
        [
            measure(1, 32, 0.01, GIB),
            measure(1, 64, 0.02, 2 * GIB),
            measure(1, 256, None, fits=False),
        ],
        [4],
        limit_bytes=8 * GIB,
    )
    plans = list(enumerate_plans(choose(experiment), [PLAIN], known))
    assert plans
    assert max(plan.micro_batch for plan in plans) == 128  # 4 GiB by the line; 256 would be 8 GiB
    assert all(plan.global_batch == 1024 for plan in plans)


def test_what_is_too_large_for_each_worker_may_fit_where_the_optimizer_state_is_divided() -> None:
    # Of 9 GiB beside the samples, the optimizer remembers 6.
    estimated = MemoryLaw(GIB / 64, 9.0 * GIB, 9.0 * GIB, 6.0 * GIB)
    known = Knowledge([], [4], limit_bytes=8 * GIB, estimated=estimated)
    divided = PLAIN | PartialPlan.of(strategy="zero1")
    assert not known.fits(plan_with(PLAIN, 4, 64))
    assert known.fits(plan_with(divided, 4, 64))
    assert not known.fits(plan_with(divided, 1, 64))
    need = known.memory(plan_with(divided, 4, 64))
    assert need is not None
    assert need.value == 1.0 * GIB + 4.5 * GIB
    cut = PLAIN | PartialPlan.of(strategy="fsdp")
    assert known.memory(plan_with(cut, 4, 64)) is None


def test_memory_that_does_not_grow_with_the_batch_is_flat() -> None:
    known = Knowledge([measure(1, 8, 0.01, 500), measure(1, 64, 0.01, 400)], [1], limit_bytes=None)
    need = known.memory(plan_with(PLAIN, 1, 32))
    assert need is not None
    assert need.value == 500
    assert not need.measured, "it lies between measured ones"
    at_measured = known.memory(plan_with(PLAIN, 1, 64))
    assert at_measured is not None
    assert at_measured.measured


def test_step_times_of_other_plans_follow_from_measured_ones() -> None:
    measured = [
        measure(workers, batch, law_s(workers, batch))
        for workers in (1, 2)
        for batch in (8, 32, 128, 512)
    ]
    known = Knowledge(measured, [2, 2], limit_bytes=None)
    for workers, batch in ((1, 64), (2, 256)):
        step = known.step_times([plan_with(PLAIN, workers, batch)])[0]
        assert step.value == pytest.approx(law_s(workers, batch), rel=0.1)
        assert step.low < law_s(workers, batch) < step.high
        assert not step.extrapolated
    beyond = known.step_times([plan_with(PLAIN, 4, 64)])[0]
    assert beyond.extrapolated, "four workers are on two nodes, of which nothing was measured"


def test_workers_are_put_together_on_as_few_nodes_as_there_can_be() -> None:
    known = Knowledge([], [2, 4, 1], limit_bytes=None)
    assert known.topology(3).gpus_per_node == (3,)
    assert known.topology(6).gpus_per_node == (2, 4)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=30), st.integers(2, 8))
def test_a_spread_keeps_the_ends_and_no_more_than_asked(values: list[int], count: int) -> None:
    spread = spread_evenly(values, count)
    assert len(spread) <= count
    assert {min(values), max(values)} <= set(spread) <= set(values)


def test_a_variant_that_was_measured_for_another_experiment_is_not_allowed_in_this_one() -> None:
    choices = choose(make_experiment(plan={"precision": "bf16", "strategy": "fsdp"}))
    sharded = choices.usual_variant | PartialPlan.of(precision="bf16", strategy="fsdp")
    assert choices.allows(sharded)
    assert not choices.allows(PLAIN)
    assert not choices.allows(sharded | PartialPlan.of(strategy="ddp"))


def test_micro_batches_follow_each_other_through_stages() -> None:
    staged = PLAIN | PartialPlan.of(strategy="pipeline", stages=2)
    known = Knowledge(
        [
            PlanMeasured(
                setting="s",
                plan=plan_with(staged, 2, size).to_json(),
                workers_per_node=[2],
                step_time_s=law_s(2, size),
            )
            for size in (16, 32, 64, 128)
        ],
        [2],
        limit_bytes=None,
    )
    alone, four = known.step_times([plan_with(staged, 2, 64, 1), plan_with(staged, 2, 64, 4)])
    assert four.value == pytest.approx(alone.value * 5 / 2, rel=0.05)


def test_plans_of_stages_have_as_many_workers_as_copies_of_the_model_need() -> None:
    fixed = choose(make_experiment(plan={"stages": 2}, training={"global_batch": 64}))
    assert fixed.options["strategy"] == ("pipeline",)
    plans = list(enumerate_plans(fixed, [fixed.usual_variant]))
    assert {(plan.workers, plan.replicas) for plan in plans} == {(2, 1), (4, 2)}
    assert {plan.global_batch for plan in plans} == {64}
    searched = choose(make_experiment(search={"stages": {"choices": [1, 2]}}))
    strategies = {"ddp", "zero1", "fsdp", "pipeline"}
    assert set(searched.options["strategy"]) == strategies
    for name in strategies:
        for stages in (1, 2):
            variant = searched.usual_variant | PartialPlan.of(strategy=name, stages=stages)
            assert bool(list(enumerate_plans(searched, [variant]))) == (
                (name == "pipeline") == (stages == 2)
            )
    named = choose(make_experiment(plan={"strategy": "pipeline"}))
    assert named.options["stages"] == (2, 4)


def test_tensor_parts_are_searched_beside_whole_models() -> None:
    searched = choose(make_experiment(search={"tensor": {"choices": [1, 2]}}))
    assert set(searched.options["strategy"]) == {"ddp", "zero1", "fsdp", "tensor"}
    for name in searched.options["strategy"]:
        for parts in (1, 2):
            variant = searched.usual_variant | PartialPlan.of(strategy=name, tensor=parts)
            plans = list(enumerate_plans(searched, [variant]))
            assert bool(plans) == ((name == "tensor") == (parts == 2))
            assert all(plan.workers == plan.replicas * parts for plan in plans)
    assert choose(make_experiment(plan={"strategy": "tensor"})).options["tensor"] == (2, 4)


def test_what_was_measured_of_a_plan_counts_before_what_a_model_smooths() -> None:
    measured = [measure(1, batch, law_s(1, batch)) for batch in (8, 16, 32, 64)]
    slow = measure(1, 128, 3.0 * law_s(1, 128))
    step = Knowledge([*measured, slow], [1], limit_bytes=None).step_times(
        [plan_with(PLAIN, 1, 128)]
    )[0]
    assert step.value == slow.step_time_s
    assert step.low < step.value <= step.high


@pytest.mark.parametrize(
    "search",
    [
        {"lr": {"low": 1e-4, "high": 0.1}, "optimizer": {"choices": ["sgd", "adamw"]}},
        {
            "optimizer": {"choices": ["sgd", "adamw"]},
            "lr": {"low": 1e-4, "high": 0.1, "when": {"optimizer": "sgd"}},
        },
    ],
)
def test_no_rate_is_decided_for_several_optimizers(search: dict[str, Any]) -> None:
    assert "training.lr" not in choose(make_experiment(search=search)).open_fields


class SetsItsRate:
    def __init__(self, config: dict[str, Any]) -> None: ...

    def configure(self) -> Any: ...

    def step(self, batch: Any) -> Any: ...


class TakesTheRate(SetsItsRate):
    def configure(self, lr: float) -> Any: ...


@pytest.mark.parametrize(("owner", "takes_rate"), [(SetsItsRate, False), (TakesTheRate, True)])
@pytest.mark.parametrize("is_embedded", [False, True])
def test_a_rate_that_does_not_reach_the_optimizers_is_not_recommended(
    owner: type[Any], takes_rate: bool, is_embedded: bool
) -> None:
    if is_embedded:  # as one that a cell of a notebook defines
        owner = type(owner.__name__, (owner,), {"__module__": "__main__"})
    choices = choose(make_experiment(model=None, train=owner))
    assert ("training.lr" in choices.open_fields) is takes_rate
    assert choices.is_rate_open is takes_rate


def trial(workers: int, micro_batch: int, step_time_s: float) -> PlanMeasured:
    """Return what a trial beside others showed."""
    return measure(workers, micro_batch, step_time_s).model_copy(update={"by_trial": 0})


def test_trials_that_all_take_longer_say_nothing_about_which_plan_is_faster() -> None:
    alone = [measure(1, batch, law_s(1, batch)) for batch in (8, 32, 128)]
    trials = [trial(1, batch, 1.7 * law_s(1, batch)) for batch in (16, 64)]
    before, after = (
        Knowledge(alone, [4], limit_bytes=None),
        Knowledge(alone + trials, [4], limit_bytes=None),
    )
    plans = [plan_with(PLAIN, 1, batch) for batch in (8, 16, 64, 128)]
    for old, new in zip(before.step_times(plans), after.step_times(plans), strict=True):
        assert new.value == pytest.approx(old.value, rel=0.02)
    assert after.slowdown == pytest.approx(1.7, rel=0.05)
    assert before.slowdown is None


def test_a_plan_that_trials_show_to_be_slow_is_predicted_slower_than_before() -> None:
    alone = [measure(1, batch, law_s(1, batch)) for batch in (8, 32, 64)]
    trials = [
        trial(1, 16, law_s(1, 16)),
        trial(1, 32, law_s(1, 32)),
        trial(1, 256, 3.0 * law_s(1, 256)),
    ]
    plan = plan_with(PLAIN, 1, 256)
    [before] = Knowledge(alone, [4], limit_bytes=None).step_times([plan])
    [after] = Knowledge(alone + trials, [4], limit_bytes=None).step_times([plan])
    assert after.value > 1.5 * before.value


def test_what_trials_alone_have_shown_is_enough_to_predict() -> None:
    known = Knowledge(
        [trial(1, batch, law_s(1, batch)) for batch in (8, 32, 128)], [4], limit_bytes=None
    )
    [step] = known.step_times([plan_with(PLAIN, 1, 64)])
    assert step.value == pytest.approx(law_s(1, 64), rel=0.1)


def test_energy_counts_the_watts_of_the_nearest_metered_plan() -> None:
    watts = {(1, 8): 60.0, (1, 128): 90.0, (4, 8): 200.0}
    known = Knowledge(
        [
            measure(workers, batch, 0.01).model_copy(update={"power_w": power})
            for (workers, batch), power in watts.items()
        ],
        [4],
        limit_bytes=None,
    )
    assert known.price(plan_with(PLAIN, 1, 64), "energy") == 90.0
    assert known.price(plan_with(PLAIN, 4, 64), "energy") == 200.0
    assert known.price(plan_with(PLAIN, 4, 64), "money") == 4
    assert known.price(plan_with(PLAIN, 4, 64), "time") == 1


@pytest.mark.parametrize(
    ("placement", "workers", "where"),
    [("pack", 3, (3,)), ("pack", 6, (2, 4)), ("spread", 3, (1, 1, 1)), ("spread", 6, (1, 2, 3))],
)
def test_workers_are_on_few_nodes_or_on_many(
    placement: Any, workers: int, where: tuple[int, ...]
) -> None:
    known = Knowledge([], [4, 2, 1], placement=placement, limit_bytes=None)
    assert known.topology(workers).gpus_per_node == where


def test_of_several_timings_of_a_plan_the_middle_counts_and_only_where_its_workers_are() -> None:
    here = [measure(2, 64, step_s, nodes=[1, 1]) for step_s in (0.03, 0.02, 0.9)]
    elsewhere = measure(2, 64, 0.5, nodes=[2])
    known = Knowledge([*here, elsewhere], [1, 1], limit_bytes=None)
    plan = plan_with(PLAIN, 2, 64)
    assert known.timings_s(plan) == [0.03, 0.02, 0.9]
    assert known.step_times([plan])[0].value == 0.03
    assert Knowledge([elsewhere], [1, 1], limit_bytes=None).step_times([plan])[0].value == 0.5
