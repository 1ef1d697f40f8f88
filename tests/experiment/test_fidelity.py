"""A fidelity is one setting that makes trainings cheaper; epochs of a model are early stopping."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.studies import make_experiment
from workbench.experiment import Experiment
from workbench.experiment.fidelity import FULL_RUNG, Levels
from workbench.foundation.errors import ExperimentError


def make_model(**changes: Any) -> Experiment:
    return make_experiment(train=None, model="mlp", data="digits", search={"lr": 0.1}, **changes)


def levels_of(**fidelity: list[float]) -> tuple[float, ...]:
    levels = Levels.of(make_experiment(fidelity=fidelity).fidelity)
    assert levels is not None
    return levels.values


def test_levels_between_the_ends_grow_by_about_three_and_others_are_taken_as_they_are() -> None:
    assert levels_of(steps=[1, 27]) == (1, 3, 9, 27)
    assert levels_of(steps=[1, 50]) == (1, 3, 7, 19, 50)
    assert levels_of(image_size=[32, 128]) == (32, 128)
    assert levels_of(image_size=[32, 64, 128]) == (32, 64, 128)
    assert levels_of(samples=[0.1, 1.0]) == pytest.approx((0.1, 0.1**0.5, 1.0))
    assert levels_of(steps=[2, 3]) == (2, 3)


def test_full_trainings_have_the_last_value_and_every_level_a_rung_of_its_own() -> None:
    experiment = make_experiment(fidelity={"image_size": [32, 128]})
    assert experiment.search.check({"x": 0.5}) == {"x": 0.5, "image_size": 128}
    levels = Levels.of(experiment.fidelity)
    assert levels is not None
    assert [levels.rung(value) for value in levels.values] == [250, FULL_RUNG]
    assert Experiment.from_yaml(experiment.to_yaml()).hash() == experiment.hash()
    assert Levels.of(make_experiment().fidelity) is None


def test_epochs_of_a_model_mean_early_stopping_and_those_of_a_function_a_parameter() -> None:
    model = make_model(fidelity={"epochs": [2, 40]})
    written = make_model(training={"epochs": 40}, early_stop={"pruner": "curves", "grace": 2})
    assert model.hash() == written.hash()
    aliased = make_model(fidelity={"num_train_epochs": [2, 40]}, early_stop="asha")
    assert (aliased.training.epochs, aliased.early_stop.pruner, aliased.early_stop.grace) == (
        40,
        "asha",
        2,
    )
    assert make_experiment(fidelity={"epochs": [2, 40]}).search.check({"x": 0.0})["epochs"] == 40


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"fidelity": {}}, "fidelity", "exactly one setting"),
        ({"fidelity": {"a": [1, 2], "b": [1, 2]}}, "fidelity", "exactly one setting"),
        ({"fidelity": {"size": [2]}}, "fidelity.size", "have to increase"),
        ({"fidelity": {"size": [2, 1]}}, "fidelity.size", "have to increase"),
        ({"fidelity": {"size": [0, 1]}}, "fidelity.size.0", "greater than 0"),
        ({"fidelity": {"x": [1, 2]}}, "search.x", "is searched, but fidelity sets it"),
        ({"sampler": "gp"}, "sampler.name", "cannot learn"),
        ({"sampler": "grid"}, "sampler.name", "cannot learn"),
        ({"repeats": 2}, "repeats", "trained once"),
        ({"early_stop": "asha"}, "early_stop.pruner", "cannot be combined"),
        (
            {"objectives": [{"metric": name, "goal": "minimize"} for name in ("loss", "size")]},
            "fidelity",
            "one objective",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ExperimentError, match=words) as caught:
        make_experiment(**{"fidelity": {"size": [1, 9]}, **changes})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fidelity": {"epochs": [5, 5]}}, "two whole numbers"),
        ({"fidelity": {"epochs": [20, 1]}}, "the smaller one first, such as"),
        ({"fidelity": {"epochs": [1, 5, 9]}}, "two whole numbers"),
        (
            {"fidelity": {"epochs": [1, 5]}, "training": {"epochs": 5}},
            "training.epochs, which is also given",
        ),
        (
            {"fidelity": {"epochs": [1, 5]}, "early_stop": {"pruner": "asha", "grace": 1}},
            "early_stop.grace",
        ),
        ({"fidelity": {"samples": [0.1, 2.0]}}, "2.0 is not a value of training.samples"),
        (
            {"fidelity": {"samples": [0.1, 1.0]}, "federated": {"clients": 4}},
            "train on all their samples",
        ),
    ],
)
def test_what_a_model_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        make_model(**changes)


def test_a_wrong_fidelity_is_named_as_it_was_written() -> None:
    with pytest.raises(ExperimentError) as caught:
        make_model(fidelity={"samples": [0.1, 2]})
    assert caught.value.field == "fidelity.samples"
