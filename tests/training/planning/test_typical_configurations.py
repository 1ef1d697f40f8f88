from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.training.planning.typical_configurations import (
    DefaultConfiguration,
    default_configuration,
)

FIELDS: dict[str, Any] = {
    "model": "convnet",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
}


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        (
            {"search": {"lr": {"low": 0.1, "high": 1.0}, "width": {"choices": [8]}}},
            {"lr": 1e-3, "width": 32},
        ),
        (
            {"search": {"lr": {"low": 1e-4, "high": 0.1}}, "training": {"optimizer": "sgd"}},
            {"lr": 0.1},
        ),
        (
            {
                "search": {"global_batch": {"low": 1, "high": 512}},
                "training": {"reference_batch": 64},
            },
            {"global_batch": 64},
        ),
        (
            {"search": {"workers": {"choices": [1, 2]}, "epochs": {"low": 1, "high": 20}}},
            {"workers": 1, "epochs": 10},
        ),
        (
            {"search": {"width": 8, "dropout": {"low": 0.0, "high": 0.5}}},
            {"width": 8, "dropout": 0.0},
        ),
    ],
)
def test_a_default_is_what_is_used_where_nobody_says_anything(
    fields: dict[str, Any], params: dict[str, Any]
) -> None:
    assert default_configuration(Experiment(**FIELDS | fields)) == DefaultConfiguration(params, ())


def test_what_does_not_exist_by_default_has_none() -> None:
    search = {
        "momentum": {"low": 0.1, "high": 0.9, "when": {"optimizer": "sgd"}},
        "optimizer": {"choices": ["sgd", "adamw"]},
    }
    assert default_configuration(Experiment(**FIELDS, search=search)).params == {
        "optimizer": "adamw"
    }


def test_what_only_a_persons_code_knows_is_not_made_up() -> None:
    search = {
        "lr": {"low": 1e-4, "high": 0.1},
        "width": {"choices": [8]},
        "depth": {"choices": [1], "when": {"width": 8}},
    }
    configuration = default_configuration(
        Experiment(**FIELDS | {"model": "json:dumps"}, search=search)
    )
    assert configuration == DefaultConfiguration({"lr": 1e-3}, ("width", "depth"))
    function = Experiment(
        train="json:dumps", objectives=FIELDS["objectives"], search={"lr": {"choices": [1]}}
    )
    assert default_configuration(function).unknown == ("lr",)
