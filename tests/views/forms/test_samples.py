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
    parameters = {parameter["name"]: parameter for parameter in picture["parameters"]}
    assert picture["num_samples"] == 2000
    assert {name for name, one in parameters.items() if one["kind"] == "range"} == {
        "lr",
        "dropout",
        "width",
        "momentum",
    }
    assert parameters["depth"]["choices"] == [1, 2, 3, 4]
    assert parameters["seed"] | {"exists_share": 1.0} == parameters["seed"]
    assert (parameters["seed"]["choices"], parameters["seed"]["counts"]) == ([7], [2000])
    assert parameters["momentum"]["exists_share"] == 0.5
    assert sum(parameters["momentum"]["counts"]) == parameters["optimizer"]["counts"][0]


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
    parameters = {parameter.name: parameter for parameter in sampled(space, 500).parameters}
    assert parameters["kind"].shares == (0.25, 0.25, 0.25, 0.25)
    assert parameters["optimizer"].exists_share == 0.5
    # Of a, b, c and d only b allows both conditions, and half of those are sgd.
    assert parameters["below"].exists_share == 0.125
    assert parameters["grid"].shares is None, "whole numbers on a logarithmic scale are not even"
    assert parameters["of_rate"].exists_share == sum(parameters["of_rate"].counts) / 500


@pytest.mark.parametrize("name", ["lr", "dropout", "width"])
def test_bins_are_even_where_sampling_is(name: str) -> None:
    parameter = next(
        one
        for one in sampled(SPACE, 4000).model_dump(mode="json")["parameters"]
        if one["name"] == name
    )
    domain = SPACE.root[name]
    edges = parameter["edges"]
    assert (edges[0], edges[-1]) == (domain.low, domain.high)  # type: ignore[union-attr]
    assert edges == sorted(edges)
    assert all(120 < count < 290 for count in parameter["counts"])


@given(experiments())
def test_any_space_can_be_sampled_and_every_sample_is_counted(experiment: Experiment) -> None:
    for parameter in sampled(experiment.search, 20).model_dump()["parameters"]:
        assert sum(parameter["counts"]) <= 20
        assert 0 <= parameter["exists_share"] <= 1
