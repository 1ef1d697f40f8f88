"""Shares of parameters in generated spaces with dependent proposals and pruning, as in the
benchmark.
"""

from __future__ import annotations

import pytest

from tests.benchmarks.importance import NUM_SPACES, answer_of, score, spaces
from workbench.experiment import Experiment
from workbench.search import Study
from workbench.search.importance import negligible

# No space from here on was looked at while the method was made.
_FIRST_SEED = 200


def test_what_is_bounded_but_may_have_an_effect_is_not_called_nothing() -> None:
    shares = {
        "rate": (0.9, 0.8, 0.95),
        "bounded": (0.001, 0.0, 0.008),
        "nothing": (0.0, 0.0, 0.004),
    }
    assert negligible(shares) == ["nothing"]


def test_nothing_has_an_importance_if_nothing_is_searched() -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": 0.1},
    )
    assert Study(experiment).importance() == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shares_are_in_order_intervals_hold_and_zeros_are_told_from_effects() -> None:
    answers = [answer_of(space, drive) for space, drive in spaces(_FIRST_SEED, NUM_SPACES)]
    scored = score(answers, has_intervals=True)
    assert scored.right_order >= 0.95
    assert scored.held is not None
    assert 0.80 <= scored.held <= 0.97
    assert scored.num_called_nothing == 0
    assert scored.zeros_bounded is not None
    assert scored.zeros_bounded >= 0.7
