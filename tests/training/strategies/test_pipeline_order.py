"""Stages of a pipeline compute everything once, hold little, never wait for each other in a
circle.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advisor.test_plans import choose, make_experiment
from workbench.advisor.plan_variants import alternatives, combinations, divided
from workbench.experiment.plan import DIMENSIONS
from workbench.foundation.errors import ExperimentError
from workbench.training.planning.settings import resolve
from workbench.training.strategies.pipeline_order import duration, most_under_way, order

SCHEDULES = next(each.choices for each in DIMENSIONS if each.name == "pipeline_schedule") or ()
schedules, stages, micro_batches = st.sampled_from(SCHEDULES), st.integers(1, 6), st.integers(1, 13)


@given(schedules, stages, micro_batches)
def test_each_stage_computes_all_and_holds_few(
    schedule: str, num_stages: int, num_micro_batches: int
) -> None:
    last = "weights" if schedule == "zero_bubble" else "backward"
    for stage in range(num_stages):
        tasks = list(order(schedule, stage, num_stages, num_micro_batches))
        assert {task for task, _ in tasks} == {"forward", "backward", last}
        for task in ("forward", "backward", last):
            assert [number for way, number in tasks if way == task] == list(
                range(num_micro_batches)
            )
        held = list(itertools.accumulate((way == "forward") - (way == last) for way, _ in tasks))
        assert min(held) >= 0
        assert max(held) == most_under_way(schedule, stage, num_stages, num_micro_batches)
        assert max(held) <= (num_micro_batches if schedule == "gpipe" else num_stages)


@given(schedules, stages, micro_batches)
def test_a_step_lasts_as_long_as_the_longest_chain_of_tasks(
    schedule: str, num_stages: int, num_micro_batches: int
) -> None:
    assert (
        abs(
            duration(schedule, num_stages, num_micro_batches)
            - played(schedule, num_stages, num_micro_batches)
        )
        < 1e-9
    )


def played(schedule: str, num_stages: int, num_micro_batches: int) -> float:
    """Play the orders of all stages, which begin a task as soon as what it needs is there."""
    third = Fraction(1, 3)
    takes = {"forward": third, "weights": third}
    takes["backward"] = third if schedule == "zero_bubble" else 2 * third
    left = [
        list(order(schedule, stage, num_stages, num_micro_batches)) for stage in range(num_stages)
    ]
    free, done = [Fraction(0)] * num_stages, {}
    while any(left):
        num_left = sum(map(len, left))
        for stage, tasks in enumerate(left):
            while tasks:
                task, number = tasks[0]
                before = {
                    "forward": ("forward", number, stage - 1),
                    "backward": ("backward", number, stage + 1),
                    "weights": ("backward", number, stage),
                }[task]
                needs_nothing = before[2] in (-1, num_stages)
                if not needs_nothing and before not in done:
                    break
                began = max(free[stage], Fraction(0) if needs_nothing else done[before])
                free[stage] = done[(task, number, stage)] = began + takes[task]
                tasks.pop(0)
        assert sum(map(len, left)) < num_left, "stages wait for each other"
    return float(max(free))


def test_gradients_of_weights_fill_the_time_in_which_stages_wait() -> None:
    for num_stages, num_micro_batches in itertools.product(range(2, 7), range(1, 13)):
        plain = duration("1f1b", num_stages, num_micro_batches)
        assert duration("zero_bubble", num_stages, num_micro_batches) < plain
        assert duration("gpipe", num_stages, num_micro_batches) == plain


@pytest.mark.parametrize("other", [{"recompute": "blocks"}, {"shard": 2, "workers": 4}])
def test_an_order_that_another_way_rules_out_is_refused_and_not_tried(
    other: dict[str, Any],
) -> None:
    plan: dict[str, Any] = {"stages": 2, "strategy": "pipeline", **other}
    with pytest.raises(ExperimentError, match=f"zero_bubble with plan.{next(iter(other))}"):
        resolve(
            make_experiment(plan=plan | {"schedule": "zero_bubble"}), {}, num_train_samples=1000
        )
    choices = choose(make_experiment(plan=plan))
    base = choices.usual_variant
    tried = [
        *alternatives(base, choices.options, "speed"),
        *combinations(base, choices.options, "memory"),
        *divided(base, choices.options),
    ]
    assert base.get("pipeline_schedule") == "1f1b"
    assert tried
    assert all(each.get("pipeline_schedule") == "1f1b" for each in tried)
