"""What is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.studies import make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.search import check

CHOICE = {"a": {"choices": [1, 2]}}


@pytest.mark.parametrize(
    ("sampler", "search", "field"),
    [
        ({"name": "tpe", "options": {"gamma": 1}}, CHOICE, "sampler.options.gamma"),
        ({"name": "random", "options": {"seed": 1}}, CHOICE, "sampler.options.seed"),
        (
            {"name": "tpe", "options": {"n_startup_trials": "ten"}},
            CHOICE,
            "sampler.options.n_startup_trials",
        ),
        (
            {"name": "tpe", "options": {"multivariate": False, "group": True}},
            CHOICE,
            "sampler.options",
        ),
        ("grid", {"x": {"low": 0.0, "high": 1.0}}, "search.x"),
        ("grid", {f"x{i}": {"low": 1, "high": 100} for i in range(3)}, "sampler.name"),
        ("cmaes", {**CHOICE, "x": {"low": 0.0, "high": 1.0}}, "sampler.name"),
        ("gp", {"k": 1}, "sampler.name"),
    ],
)
def test_refused(sampler: Any, search: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        check(make_experiment(sampler=sampler, search=search))
    assert caught.value.field == field
