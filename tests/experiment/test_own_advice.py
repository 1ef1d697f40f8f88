"""What an experiment may leave to advice on its function or program."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.own_advice import OwnAdvice
from workbench.foundation.errors import ExperimentError

SEARCH = {
    "batch": {"choices": [8, 32]},
    "lr": {"low": 0.01, "high": 1.0, "log": True},
    "kind": {"choices": ["a", "b"]},
    "rare": {"choices": [8], "when": {"kind": "a"}},
}


def experiment(**fields: Any) -> Experiment:
    return Experiment(
        **{
            "command": "python train.py {args}",
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "search": SEARCH,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("advise", "field", "problem"),
    [
        ({"batch": "size"}, "advise.batch", "size is not a searched parameter"),
        ({"batch": "kind"}, "advise.batch", "has a condition"),
        ({"batch": "lr"}, "advise.batch", "values that are not whole numbers"),
        ({"batch": "rare"}, "advise.batch", "has a condition"),
        ({"batch": "batch", "lr": "kind"}, "advise.lr", "has a condition"),
        ({"batch": "batch", "lr": "batch"}, "advise.lr", "already the batch"),
        ({"batch": "batch", "speed": "time"}, "advise.unit", "the unit of time is not known"),
        ({"batch": "batch", "unit": "s/step"}, "advise.speed", "missing, but unit is given"),
    ],
)
def test_names_that_mean_nothing_are_refused(
    advise: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ExperimentError, match=problem) as refused:
        experiment(advise=advise)
    assert refused.value.field == field


def test_a_number_of_workers_is_fixed_or_open() -> None:
    with pytest.raises(ExperimentError, match=r"plan\.workers already fixes"):
        experiment(advise={"batch": "batch", "workers": True}, plan={"workers": 2})


def test_a_model_needs_none() -> None:
    with pytest.raises(ExperimentError, match="only a train function or a command needs it"):
        experiment(command=None, model="mlp", data="digits", advise={"batch": "batch"})


def test_it_survives_a_file() -> None:
    first = experiment(advise={"batch": "batch", "speed": "time", "unit": "ms/step"})
    assert Experiment.from_yaml(first.to_yaml()) == first
    assert experiment().hash() != first.hash()


@pytest.mark.parametrize(
    ("advise", "values", "step_s"),
    [
        ({}, {"loss": 1.0, "samples_per_s": 64.0}, 0.5),
        ({}, {"Steps_per_s": 4.0}, 0.25),
        ({}, {"ms/batch": 20.0}, 0.02),
        ({"speed": "time", "unit": "ms/step"}, {"time": 5.0, "samples_per_s": 1.0}, 0.005),
        ({"speed": "step_time_s"}, {"step_time_s": 0.1}, 0.1),
        ({}, {"loss": 1.0}, None),
        ({}, {"samples_per_s": 0.0}, None),
        ({}, {"samples_per_s": float("nan")}, None),
        ({"speed": "time", "unit": "s/step"}, {"samples_per_s": 1.0}, None),
    ],
)
def test_the_time_of_a_step_follows_from_any_unit(
    advise: dict[str, Any], values: dict[str, float], step_s: float | None
) -> None:
    assert OwnAdvice(batch="batch", **advise).step_time_s(values, micro_batch=32) == step_s
