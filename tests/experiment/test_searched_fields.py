"""Options of a setting are searched one by one, under the names of both."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.training_section import Augmentation, LowRankAdapter
from workbench.experiment.trainings import uses_adapter
from workbench.foundation.errors import ExperimentError
from workbench.sweeps.preflight import find_problems
from workbench.training.planning.settings import model_values, resolve
from workbench.training.planning.typical_configurations import default_configuration


def experiment(search: dict[str, Any], **training: Any) -> Experiment:
    return Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search=search,
        training=training,
    )


@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        ("lr", [number * 1e-4 for number in range(1, 1102)], -1.0),
        ("federated.server_lr", [number * 1e-3 for number in range(1, 1102)], 0.0),
    ],
)
def test_each_of_many_choices_is_checked(name: str, values: list[float], wrong: float) -> None:
    def of(choices: list[float]) -> Experiment:
        federated = {"clients": 10} if name.startswith("federated.") else None
        return Experiment(
            model="mlp",
            data="digits",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            search={name: {"choices": choices}},
            federated=federated,
        )

    assert len(of(values).search.root[name].values() or ()) == len(values)
    with pytest.raises(ExperimentError) as caught:
        of([*values, wrong])
    assert caught.value.field == f"search.{name}"


def test_an_option_of_an_adapter_is_searched_and_the_others_stay() -> None:
    tuned = experiment({"adapter.rank": {"choices": [4, 16]}}, adapter={"dropout": 0.1})
    settings = resolve(tuned, {"adapter.rank": 16})
    assert settings.training.adapter == LowRankAdapter(rank=16, dropout=0.1)
    assert settings.model == {}
    assert uses_adapter(tuned)
    assert default_configuration(tuned).params == {"adapter.rank": 8}
    assert resolve(
        experiment({"adapter.rank": 4}), {"adapter.rank": 4}
    ).training.adapter == LowRankAdapter(rank=4)


def test_an_adapter_that_is_searched_itself_has_options_only_where_it_exists() -> None:
    tuned = experiment(
        {"adapter": {"choices": [None, {"method": "lora"}]}, "adapter.rank": {"choices": [4, 8]}}
    )
    assert resolve(tuned, {"adapter": None, "adapter.rank": 4}).training.adapter is None
    adapter = resolve(tuned, {"adapter": {"method": "lora"}, "adapter.rank": 4}).training.adapter
    assert adapter == LowRankAdapter(rank=4)


def test_options_of_schedules_and_optimizers_are_searched() -> None:
    tuned = experiment(
        {
            "schedule_options.factor": {"low": 0.1, "high": 0.9},
            "optimizer_options.eps": {"choices": [1e-8, 1e-6]},
        },
        schedule="plateau",
        schedule_options={"patience": 2},
        optimizer="adamw",
    )
    params = {"schedule_options.factor": 0.5, "optimizer_options.eps": 1e-6}
    training = resolve(tuned, params).training
    assert training.schedule_options == {"patience": 2, "factor": 0.5}
    assert training.optimizer_options == {"eps": 1e-6}
    assert model_values(tuned, params) == {}
    assert list(find_problems(tuned)) == []
    assert Experiment.from_yaml(tuned.to_yaml()) == tuned


@pytest.mark.parametrize(
    ("search", "training", "field", "message"),
    [
        (
            {"adapter.rank": {"choices": [0, 4]}},
            {},
            "search.adapter.rank",
            "0 is not a value of training.adapter.rank",
        ),
        ({"adapter.ranks": {"choices": [4]}}, {}, "search.adapter.ranks", "rank"),
        (
            {"adapter.rank": {"choices": [4]}},
            {"adapter": {"rank": 8}},
            "search.adapter.rank",
            "also searched",
        ),
    ],
)
def test_wrong_options_are_refused_at_once(
    search: dict[str, Any], training: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ExperimentError, match=message) as refused:
        experiment(search, **training)
    assert refused.value.field == field


def test_a_value_that_the_schedule_refuses_is_found_before_the_start() -> None:
    wrong = experiment({"schedule_options.factor": {"low": 2.0, "high": 3.0}}, schedule="plateau")
    [problem] = find_problems(wrong)
    assert "factor" in str(problem)


def test_of_a_function_a_name_with_a_dot_is_the_functions_own() -> None:
    own = Experiment(
        train="json:dumps",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"adapter.rank": {"choices": [0, 4]}},
    )
    assert not uses_adapter(own)


def test_changes_of_samples_are_searched_one_by_one() -> None:
    tuned = experiment(
        {"augment.mixup": {"low": 0.0, "high": 0.4}, "augment.crop": {"choices": [0.0, 0.1]}},
        augment={"noise": 0.1},
    )
    params = {"augment.mixup": 0.3, "augment.crop": 0.1}
    assert resolve(tuned, params).training.augment == Augmentation(noise=0.1, mixup=0.3, crop=0.1)
    assert default_configuration(tuned).params == {"augment.mixup": 0.0, "augment.crop": 0.0}
    assert model_values(tuned, params) == {}
    assert Experiment.from_yaml(tuned.to_yaml()) == tuned
    with pytest.raises(ExperimentError) as caught:
        experiment({"augment.cutout": {"choices": [0.3, 1.5]}})
    assert (caught.value.field, caught.value.problem) == (
        "search.augment.cutout",
        "1.5 is not a value of training.augment.cutout",
    )
