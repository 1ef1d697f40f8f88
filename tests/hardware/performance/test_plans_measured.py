"""The models of divided plans against public measurements of other groups."""

from __future__ import annotations

import pytest

from tests.benchmarks.advisor_plans import COVERAGE, GOAL_OF_CHOICE, GOALS, score, splits_of
from tests.builders.measured import find_measured

FOLDER = find_measured("parallel")
needs_measurements = pytest.mark.skipif(
    FOLDER is None,
    reason="no measurements: WORKBENCH_MEASURED names the folder that holds parallel/",
)


@needs_measurements
@pytest.mark.parametrize("name", GOALS)
def test_unseen_plans_and_models_are_predicted_within_the_goal(name: str) -> None:
    assert FOLDER is not None
    scored = score(*splits_of(FOLDER)[name])
    assert scored.error <= GOALS[name]
    assert scored.error < scored.nearest_error
    assert COVERAGE[0] <= scored.coverage <= COVERAGE[1]
    assert scored.choice is None or scored.choice <= GOAL_OF_CHOICE


@pytest.mark.slow
@needs_measurements
def test_a_few_plans_across_nodes_are_enough_beside_other_models_on_one_node() -> None:
    assert FOLDER is not None
    scored = score(*splits_of(FOLDER)["many nodes, 6 plans and one node seen"])
    assert scored.error <= 0.12
    assert scored.error < scored.nearest_error
    assert COVERAGE[0] <= scored.coverage <= COVERAGE[1]
