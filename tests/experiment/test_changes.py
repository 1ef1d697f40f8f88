"""A search space that changes during a run: what is merged, what is refused, what covers both."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders.studies import make_experiment
from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.changes import (
    covering,
    describe_change,
    describe_changes,
    merge_changes,
    with_changes,
)
from workbench.foundation.errors import ExperimentError

SEARCH: dict[str, Any] = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "width": {"low": 8, "high": 64},
    "kind": {"choices": ["a", "b"]},
    "momentum": {"low": 0.0, "high": 0.9, "when": {"kind": ["b"]}},
}


def test_one_end_of_a_range_suffices_and_changes_add_up() -> None:
    experiment = make_experiment(search=SEARCH)
    changes = merge_changes(experiment, {}, {"width": {"low": 16}})
    changes = merge_changes(experiment, changes, {"width": {"high": 32}, "lr": 0.01})
    changed = with_changes(experiment, changes)
    assert changed.search.model_dump(mode="json") == SEARCH | {
        "width": {"low": 16, "high": 32},
        "lr": 0.01,
    }
    assert describe_change(changed, "lr") == "lr is frozen at 0.01"
    assert describe_changes(experiment, experiment.replace(search=changed.search))[0].startswith(
        "search.lr "
    )
    again = with_changes(experiment, merge_changes(experiment, changes, {"lr": {"high": 0.1}}))
    assert again.search.model_dump(mode="json")["lr"] == SEARCH["lr"] | {"high": 0.1}


def test_a_parameter_whose_condition_cannot_hold_is_left_out_and_comes_back() -> None:
    experiment = make_experiment(search=SEARCH)
    frozen = merge_changes(experiment, {}, {"kind": "a"})
    changed = with_changes(experiment, frozen)
    assert "momentum" not in changed.search.root
    assert describe_change(changed, "momentum") == "momentum no longer exists"
    thawed = merge_changes(experiment, frozen, {"kind": {"choices": ["a", "b"]}})
    assert with_changes(experiment, thawed).search == experiment.search


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"rl": 0.1}, "search.rl"),
        ({"lr": 10}, "search.lr"),
        ({"lr": "fast"}, "search.lr"),
        ({"lr": None}, "search.lr"),
        ({"lr": {"choices": ["fast", "slow"]}}, "search.lr"),
        ({"width": {"low": 100}}, "search.width"),
        ({"kind": "c"}, "search.kind"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        merge_changes(make_experiment(search=SEARCH), {}, given)
    assert field in str(caught.value)


@pytest.mark.parametrize("name", ["grid", "cmaes", "qmc", "nsga2"])
def test_samplers_that_cannot_go_on_elsewhere_refuse(name: str) -> None:
    experiment = make_experiment(search={"x": {"low": 0.0, "high": 1.0, "step": 0.5}}, sampler=name)
    with pytest.raises(ExperimentError, match=f"{name} cannot continue in another space"):
        merge_changes(experiment, {}, {"x": 0.5})


def test_what_covers_two_spaces_contains_every_configuration_of_both() -> None:
    experiment = make_experiment(search=SEARCH)
    given = {
        "lr": {"choices": [0.5, 2]},
        "width": {"low": 1, "high": 9},
        "kind": {"choices": ["b", "c"]},
    }
    changed = with_changes(experiment, merge_changes(experiment, {}, given))
    both, rng = covering(experiment.search, changed.search), random.Random(0)
    for space in (experiment.search, changed.search):
        for _ in range(50):
            params = space.sample(rng)
            assert all(both.root[name].contains(value) for name, value in params.items())


def test_an_alias_names_the_searched_parameter() -> None:
    experiment = make_experiment(search=SEARCH)
    assert merge_changes(experiment, {}, {"learning_rate": 0.01}) == {"lr": {"value": 0.01}}
    assert resolve_parameters({"learning_rate": 0.01, "width": 8}, SEARCH) == {
        "lr": 0.01,
        "width": 8,
    }
    assert resolve_parameters({"learning_rate": 0.01}, ["learning_rate"]) == {"learning_rate": 0.01}
    assert resolve_parameters({"learning_rate": 0.01}, ["width"]) == {"learning_rate": 0.01}
    with pytest.raises(ExperimentError, match="means the same as lr, which is also given"):
        resolve_parameters({"learning_rate": 0.01, "lr": 0.1}, SEARCH)
