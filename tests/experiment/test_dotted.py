from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment.dotted import remove_at, set_at
from workbench.foundation.errors import ExperimentError


@pytest.mark.parametrize(
    ("document", "path", "after"),
    [
        ({}, "training.epochs", {"training": {"epochs": 7}}),
        ({"model": "mlp"}, "model.width", {"model": {"name": "mlp", "width": 7}}),
        (
            {"early_stop": "asha"},
            "early_stop.grace",
            {"early_stop": {"pruner": "asha", "grace": 7}},
        ),
        (
            {"objectives": [{"metric": "y"}]},
            "objectives.0.target",
            {"objectives": [{"metric": "y", "target": 7}]},
        ),
        ({"search": {"x": None}}, "search.x.when", {"search": {"x": {"value": None, "when": 7}}}),
        ({"search": {"x": [1]}}, "search.x.when", {"search": {"x": {"value": [1], "when": 7}}}),
        ({"search": {}}, "search.x.low", {"search": {"x": {"low": 7}}}),
        ({"search": {}}, "search.a.b-c", {"search": {"a.b-c": 7}}),
        ({"search": {}}, "search.a.b.low", {"search": {"a.b": {"low": 7}}}),
        ({"search": {}}, "search.a.b.prior.near", {"search": {"a.b": {"prior": {"near": 7}}}}),
        (
            {"search": {"a.b": {"low": 1}}},
            "search.a.b.high",
            {"search": {"a.b": {"low": 1, "high": 7}}},
        ),
        ({"search": {"a": {"low": 1}}}, "search.a.b", {"search": {"a": {"low": 1, "b": 7}}}),
        (
            {"search": {"a.b": 1, "x": {}}},
            "search.x.when.a.b",
            {"search": {"a.b": 1, "x": {"when": {"a.b": 7}}}},
        ),
    ],
)
def test_a_setting_is_changed_where_its_path_leads(document: Any, path: str, after: Any) -> None:
    set_at(document, path, 7)
    assert document == after


@pytest.mark.parametrize(
    "path", ["", "a..b", "objectives.1", "objectives.x.y", "seed.x", f"objectives.{'9' * 5000}"]
)
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    document = {"objectives": [{}], "seed": 3}
    with pytest.raises(ExperimentError):
        set_at(document, path, 7)
    assert document == {"objectives": [{}], "seed": 3}


def test_a_new_parameter_may_be_named_like_a_part_of_another() -> None:
    document: dict[str, Any] = {"search": {"a": {"low": 1}}}
    set_at(document, "search.a.b", {"low": 0, "high": 1})
    assert document["search"]["a.b"] == {"low": 0, "high": 1}
    remove_at(document, "search.a.b")
    assert document == {"search": {"a": {"low": 1}}}


def test_what_is_removed_is_gone_and_what_is_not_there_stays_away() -> None:
    document: dict[str, Any] = {"search": {"lr": 1, "x": 2}, "metrics": ["a", "b"], "seed": 3}
    for path in ("search.lr", "search.y", "metrics.0", "seed.deep.er", "plan.workers"):
        remove_at(document, path)
    assert document == {"search": {"x": 2}, "metrics": ["b"], "seed": 3}
    with pytest.raises(ExperimentError):
        remove_at(document, "metrics.5")
