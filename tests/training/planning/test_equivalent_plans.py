"""Ways of making the same step with less memory: which, in what order, and each only once."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.ways import OF_SEVERAL
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.training.planning.equivalent_plans import WAYS, changeable_ways, next_way
from workbench.training.planning.settings import resolve
from workbench.training.strategies.capabilities import capabilities_of


def all_ways(
    plan: PartialPlan, *, has_blocks: bool, changeable: Collection[str] = WAYS
) -> list[PartialPlan]:
    """Run out of memory until nothing is left to try."""
    tried: list[PartialPlan] = []
    while way := next_way(plan, changeable=changeable, has_blocks=has_blocks, tried=tried):
        assert len(tried) < 10, "it ends"
        tried.append(way)
        plan |= way
    return tried


def test_micro_batch_blocks_and_then_strategies_that_hold_less() -> None:
    plan = PartialPlan.of(
        workers=2, micro_batch=8, accumulation=1, strategy="ddp", recompute="none"
    )
    assert [way.to_json() for way in all_ways(plan, has_blocks=True)] == [
        {"micro_batch": 4, "accumulation": 2},
        {"recompute": "blocks"},
        {"strategy": "zero1"},
        {"strategy": "fsdp"},
        {"micro_batch": 1, "accumulation": 8},
    ]


def test_a_batch_far_too_large_is_divided_until_one_sample_is_left() -> None:
    plan = PartialPlan.of(
        workers=1, micro_batch=1024, accumulation=1, strategy="single", recompute="none"
    )
    sizes = [way.micro_batch for way in all_ways(plan, has_blocks=True, changeable=())]
    assert sizes == [512, 128, 32, 8, 2, 1]


def test_replicas_of_stages_divide_what_they_hold() -> None:
    plan = PartialPlan.of(workers=4, micro_batch=1, accumulation=4, strategy="pipeline", stages=2)
    assert [way.to_json() for way in all_ways(plan, has_blocks=False)] == [{"shard": 2}]


def test_stages_that_compute_blocks_again_do_so_in_an_order_that_allows_it() -> None:
    plan = PartialPlan.of(
        workers=2,
        micro_batch=1,
        accumulation=4,
        strategy="pipeline",
        stages=2,
        recompute="none",
        pipeline_schedule="zero_bubble",
    )
    assert [way.to_json() for way in all_ways(plan, has_blocks=True)] == [
        {"recompute": "blocks", "pipeline_schedule": "1f1b"}
    ]


@given(
    micro_batch=st.integers(1, 64),
    workers=st.integers(1, 8),
    has_blocks=st.booleans(),
    strategy=st.sampled_from(OF_SEVERAL),
    exchange=st.sampled_from(["allreduce", "powersgd"]),
    changeable=st.sets(st.sampled_from(WAYS)),
)
def test_every_way_keeps_the_step_the_workers_and_what_is_not_open(
    *,
    micro_batch: int,
    workers: int,
    has_blocks: bool,
    strategy: str,
    exchange: str,
    changeable: set[str],
) -> None:
    axis = capabilities_of(strategy).axis
    plan = PartialPlan.of(
        workers=workers,
        micro_batch=micro_batch,
        accumulation=2,
        strategy=strategy,
        recompute="none",
        exchange=exchange,
        **({axis: workers} if axis else {}),
    )
    ways = all_ways(plan, has_blocks=has_blocks, changeable=changeable)
    for way in ways:
        after = plan | way
        assert (after.global_batch, after.workers) == (plan.global_batch, workers)
        assert {name for name, _ in way.values} <= {"micro_batch", "accumulation", *changeable}
        if "strategy" in way:
            able = capabilities_of(str(way.get("strategy")))
            assert able.is_exact
            assert able.axis is None
            assert able.takes_exchange or exchange == "allreduce"
    assert ("recompute" in {name for way in ways for name, _ in way.values}) == (
        has_blocks and "recompute" in changeable
    )


@pytest.mark.parametrize(
    ("plan", "search", "expected"),
    [
        ({}, {}, {"recompute", "strategy", "shard"}),
        ({"strategy": "ddp"}, {}, {"recompute", "shard"}),
        ({"recompute": "none", "shard": 2}, {"strategy": {"choices": ["fsdp"]}}, set()),
        ({}, {"optimizer": {"choices": ["adafactor", "sgd"]}}, {"recompute"}),
    ],
)
def test_what_is_written_or_searched_stays(
    plan: dict[str, object], search: dict[str, dict[str, list[str]]], expected: set[str]
) -> None:
    experiment = Experiment.model_validate(
        {
            "model": "mlp",
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            "search": search,
            "plan": {"workers": 2, **plan},
        }
    )
    params = {name: domain["choices"][0] for name, domain in search.items()}
    assert changeable_ways(experiment, params) == expected
    decided = PartialPlan.of(strategy="fsdp")
    if "strategy" in expected:
        assert (
            resolve(experiment, params, num_train_samples=1000, decided=decided).plan.strategy
            == "fsdp"
        )


def test_trees_and_clients_know_no_other_way() -> None:
    experiment = Experiment.model_validate(
        {
            "model": "boosted_trees",
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        }
    )
    assert changeable_ways(experiment, {}) == set()
