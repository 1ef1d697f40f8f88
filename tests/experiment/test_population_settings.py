"""Which populations are refused, and how many trials one has."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.populations import changing, ends_of_parts, options_of
from workbench.experiment.trainings import describe_short_budget, longest_part
from workbench.foundation.errors import ExperimentError

MODEL: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "search": {
        "lr": {"low": 1e-4, "high": 0.1},
        "hidden_width": {"choices": [8, 16]},
        "dropout": {"low": 0.0, "high": 0.5},
    },
    "training": {"epochs": 25},
}
FUNCTION: dict[str, Any] = {
    "train": "math:sqrt",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"x": {"low": 0.0, "high": 1.0}},
}


def sampler(name: str = "pbt", **options: Any) -> dict[str, Any]:
    return {"sampler": {"name": name, "options": options}}


def test_a_population_has_a_trial_for_each_part_of_each_member() -> None:
    tuned = Experiment(**MODEL, sampler="pbt")
    options = options_of(tuned.sampler)
    assert options is not None
    assert ends_of_parts(options, 25) == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25]
    assert (tuned.max_configurations(), longest_part(tuned)) == (8 * 13, 2)
    assert Experiment(**MODEL, **sampler(every=10, population=3)).max_configurations() == 9
    assert Experiment(**MODEL, **sampler(), budget={"trials": 12}).max_configurations() == 12
    assert Experiment.from_yaml(tuned.to_yaml()).hash() == tuned.hash()


def test_a_budget_that_cannot_train_the_population_is_described_with_what_it_takes() -> None:
    short = describe_short_budget(
        Experiment(**MODEL, **sampler(every=10, population=3), budget={"trials": 8})
    )
    assert short is not None
    assert "the population needs 9 trials" in short
    assert "budget.trials is 8" in short
    enough = Experiment(**MODEL, **sampler(every=10, population=3), budget={"trials": 9})
    for experiment in (enough, enough.replace(budget={"trials": None}), Experiment(**MODEL)):
        assert describe_short_budget(experiment) is None


def test_of_a_model_changes_what_the_weights_do_not_depend_on() -> None:
    tuned = Experiment(**MODEL, sampler="pb2")
    options = options_of(tuned.sampler)
    assert options is not None
    assert changing(options, tuned.search, trains_model=True) == {"lr", "dropout"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (FUNCTION | sampler(), "sampler.options.length"),
        (FUNCTION | sampler(length=10, every=10), "sampler.options.every"),
        (FUNCTION | sampler(length=10, changes=["y"]), "sampler.options.changes"),
        (FUNCTION | sampler(length=10, population=1), "sampler.options.population"),
        (FUNCTION | sampler(length=10) | {"repeats": 2}, "repeats"),
        (FUNCTION | sampler(length=10) | {"early_stop": {"pruner": "asha"}}, "early_stop.pruner"),
        (FUNCTION | sampler(length=10) | {"confirm": {"best": 2}}, "confirm"),
        (MODEL | sampler(length=10), "sampler.options.length"),
        (
            MODEL
            | sampler(changes=["optimizer"])
            | {"search": {"optimizer": {"choices": ["sgd", "adamw"]}}},
            "sampler.options.changes",
        ),
        (MODEL | sampler() | {"search": {"hidden_width": {"choices": [8, 16]}}}, "search"),
        (MODEL | sampler() | {"federated": {"clients": 4}}, "federated"),
        (
            FUNCTION | sampler("schedule", parts=[{"until": 3, "params": {"x": 2.0}}]),
            "sampler.options.parts.0.params.x",
        ),
        (
            FUNCTION | sampler("schedule", parts=[{"until": 3, "params": {"x": 0.5}}] * 2),
            "sampler.options.parts.1.until",
        ),
        (
            MODEL | {"search": {}} | sampler("schedule", parts=[{"until": 30, "params": {}}]),
            "sampler.options.parts.0.until",
        ),
    ],
)
def test_what_cannot_be_trained_in_parts_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        Experiment(**changes)
    assert field in str(caught.value)
