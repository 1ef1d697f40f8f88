from __future__ import annotations

import pytest
from hypothesis import given

from tests.builders.random_experiments import experiments
from workbench.experiment import Experiment
from workbench.experiment.space import Space
from workbench.views.forms.answers import sampled

SPACE = Space.model_validate(
    {
        "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "dropout": {"low": 0.0, "high": 0.5},
        "width": {"low": 1, "high": 1000},
        "depth": {"low": 1, "high": 4},
        "optimizer": {"choices": ["sgd", "adamw"]},
        "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
        "seed": 7,
    }
)


def test_what_would_be_sampled_is_counted() -> None:
    picture = sampled(SPACE, 2000).model_dump(mode="json")
    found = {parameter["name"]: parameter for parameter in picture["parameters"]}
    assert picture["num_samples"] == 2000
    assert {name for name, one in found.items() if one["kind"] == "range"} == {
        "lr",
        "dropout",
        "width",
        "momentum",
    }
    assert found["depth"]["choices"] == [1, 2, 3, 4]
    assert found["seed"] | {"exists_share": 1.0} == found["seed"]
    assert (found["seed"]["choices"], found["seed"]["counts"]) == ([7], [2000])
    assert found["momentum"]["exists_share"] == 0.5
    assert sum(found["momentum"]["counts"]) == found["optimizer"]["counts"][0]


def test_equal_choices_have_equal_shares_whatever_the_sample_was() -> None:
    conditional = {"choices": [1, 2], "when": {"kind": ["b", "c"], "optimizer": "sgd"}}
    space = Space.model_validate(
        {
            "kind": {"choices": ["a", "b", "c", "d"]},
            "optimizer": {"choices": ["sgd", "adamw"], "when": {"kind": ["a", "b"]}},
            "below": conditional,
            "grid": {"low": 1, "high": 4, "log": True},
            "of_rate": {"low": 0.0, "high": 1.0, "when": {"grid": 1}},
        }
    )
    found = {one.name: one for one in sampled(space, 500).parameters}
    assert found["kind"].shares == (0.25, 0.25, 0.25, 0.25)
    assert found["optimizer"].exists_share == 0.5
    # Of a, b, c and d only b allows both conditions, and half of those are sgd.
    assert found["below"].exists_share == 0.125
    assert found["grid"].shares is None, "whole numbers on a logarithmic scale are not even"
    assert found["of_rate"].exists_share == sum(found["of_rate"].counts) / 500


@pytest.mark.parametrize("name", ["lr", "dropout", "width"])
def test_bins_are_even_where_sampling_is(name: str) -> None:
    found = next(
        one
        for one in sampled(SPACE, 4000).model_dump(mode="json")["parameters"]
        if one["name"] == name
    )
    domain = SPACE.root[name]
    edges = found["edges"]
    assert (edges[0], edges[-1]) == (domain.low, domain.high)  # type: ignore[union-attr]
    assert edges == sorted(edges)
    assert all(120 < count < 290 for count in found["counts"])


@given(experiments())
def test_any_space_can_be_sampled_and_every_sample_is_counted(experiment: Experiment) -> None:
    for parameter in sampled(experiment.search, 20).model_dump()["parameters"]:
        assert sum(parameter["counts"]) <= 20
        assert 0 <= parameter["exists_share"] <= 1
