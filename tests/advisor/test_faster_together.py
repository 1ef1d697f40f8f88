"""Changes that each made steps faster are put together, unless they exclude each other."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.advisor.faster_together import together
from workbench.advisor.variants import Variant, plan_with, variant_of
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.events import PlanMeasured

BASE = variant_of(Plan(precision="bf16"))


def changed(**change: Any) -> Variant:
    return BASE | PartialPlan.of(**change)


def measured(
    variant: Variant, factor: float, *, sizes: tuple[int, ...] = (8, 64)
) -> list[PlanMeasured]:
    return [
        PlanMeasured(
            setting="s",
            plan=plan_with(variant, 1, size).to_json(),
            workers_per_node=[1],
            step_time_s=factor * size,
        )
        for size in sizes
    ]


LAST, RECORDED = changed(memory_format="channels_last"), changed(compile="cuda_graphs")


def of(*timed: tuple[Variant, float]) -> Variant | None:
    rows = [row for variant, factor in [(BASE, 1.0), *timed] for row in measured(variant, factor)]
    return together(rows, BASE, [variant for variant, _ in timed])


def test_two_that_help_are_put_together() -> None:
    assert of((LAST, 0.8), (RECORDED, 0.5)) == LAST | PartialPlan.of(compile="cuda_graphs")


@pytest.mark.parametrize(("last", "recorded"), [(0.8, 1.2), (0.8, 0.99), (1.0, 0.5), (1.1, 1.1)])
def test_one_alone_is_measured_already(last: float, recorded: float) -> None:
    assert of((LAST, last), (RECORDED, recorded)) is None


def test_of_values_that_exclude_each_other_the_better_one_stays() -> None:
    blocks = changed(recompute="blocks")
    assert of((RECORDED, 0.5), (blocks, 0.9)) is None
    assert of((RECORDED, 0.9), (blocks, 0.5), (LAST, 0.8)) == blocks | PartialPlan.of(
        memory_format="channels_last"
    )
    single = changed(precision="fp32"), changed(precision="fp16")
    assert of((single[0], 0.9), (single[1], 0.8)) is None


def test_what_was_measured_at_other_sizes_is_not_compared() -> None:
    rows = [*measured(BASE, 1.0), *measured(LAST, 0.5, sizes=(16,)), *measured(RECORDED, 0.5)]
    assert together(rows, BASE, [LAST, RECORDED]) is None


def test_an_approximate_exchange_is_left_out() -> None:
    sent = changed(exchange="topk", exchange_compression=100)
    assert of((LAST, 0.8), (sent, 0.5)) is None
