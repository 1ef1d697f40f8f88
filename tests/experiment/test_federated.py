"""The section `federated` refuses what would be ignored or makes no sense, by its field."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.training.planning.settings import resolve

BASE: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "federated": {"clients": 10},
}


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("federated", {"model": None, "data": None, "train": "json:dumps"}),
        ("federated", {"model": None, "data": None, "command": "true"}),
        ("federated", {"model": None, "train": "m:Steps"}),
        ("plan.strategy", {"plan": {"strategy": "pipeline"}}),
        ("plan.strategy", {"plan": {"strategy": "ddp"}}),
        ("search.strategy", {"search": {"strategy": {"choices": ["single", "fsdp"]}}}),
        ("plan.stages", {"plan": {"stages": 2}}),
        ("plan.tensor", {"plan": {"tensor": 2}}),
        ("plan.exchange", {"plan": {"exchange": "powersgd"}}),
        ("plan.compile", {"plan": {"compile": "default"}}),
        ("plan.loaders", {"plan": {"loaders": 2}}),
        ("resources.elastic", {"resources": {"elastic": True}}),
        ("resources.advice", {"resources": {"advice": "always"}}),
        ("training.average_decay", {"training": {"average_decay": 0.9}}),
        ("search.average_start", {"search": {"average_start": {"low": 0.5, "high": 0.9}}}),
        ("training.evaluate_after", {"training": {"evaluate_after": "5m"}}),
        ("training.checkpoint_after", {"training": {"checkpoint_after": "5m"}}),
        ("training.measure_noise", {"training": {"measure_noise": True}}),
        ("training.augment", {"training": {"augment": {"noise": 0.1}}}),
        ("search.augment.noise", {"search": {"augment.noise": {"low": 0.0, "high": 0.2}}}),
        ("training.lr_rule", {"training": {"lr_rule": "adascale"}}),
        (
            "training.parameter_groups.head.frozen_epochs",
            {"training": {"parameter_groups": {"head": {"frozen_epochs": 1}}}},
        ),
        ("federated.clients", {"federated": {"fraction": 0.5}}),
        ("federated.fraction", {"federated": {"clients": 10, "fraction": 0.0}}),
        ("federated.partition", {"federated": {"clients": 10, "partition": "uneven"}}),
        (
            "federated.partition",
            {"federated": {"clients": 10, "partition": {"labels": 2, "dirichlet": 1.0}}},
        ),
        ("federated.server_tau", {"federated": {"clients": 10, "server_tau": 0.1}}),
        (
            "federated.server_second_moment",
            {"federated": {"clients": 1, "server": "fedavgm", "server_second_moment": 0}},
        ),
        ("federated.trim", {"federated": {"clients": 10, "trim": 0.2}}),
        (
            "federated.num_bad",
            {"federated": {"clients": 10, "aggregation": "trimmed_mean", "num_bad": 2}},
        ),
        (
            "federated.aggregation",
            {"federated": {"clients": 10, "aggregation": "krum", "secure": True}},
        ),
        ("federated.target", {"objectives": [{"metric": "rounds_to_target", "goal": "minimize"}]}),
        (
            "search.federated.fraction",
            {"search": {"federated.fraction": {"low": 0.5, "high": 1.5}}},
        ),
        ("search.federated.rounds", {"search": {"federated.rounds": {"choices": [1, 2]}}}),
        ("search.federated.clients", {"search": {"federated.clients": {"choices": [5, 10]}}}),
        (
            "search.federated.fraction",
            {"federated": None, "search": {"federated.fraction": {"choices": [0.1, 0.2]}}},
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError) as refused:
        Experiment(**{**BASE, **changes})
    assert str(refused.value).startswith(field), str(refused.value)


def test_a_way_to_divide_that_is_wrong_is_refused_in_one_sentence() -> None:
    with pytest.raises(ExperimentError) as caught:
        Experiment(**{**BASE, "federated": {"clients": 10, "partition": {"dirichlet": 0}}})
    assert caught.value.field == "federated.partition.dirichlet"
    assert "Also wrong" not in str(caught.value)


def test_a_setting_may_be_read_by_some_of_the_searched_servers() -> None:
    experiment = Experiment(
        **{**BASE, "federated": {"clients": 10, "server_tau": 0.1}},
        search={"federated.server": {"choices": ["fedavg", "fedadam"]}},
    )
    settings = resolve(experiment, {"federated.server": "fedadam"})
    assert settings.federated is not None
    assert (settings.federated.server, settings.federated.server_tau) == ("fedadam", 0.1)


def test_values_that_exclude_each_other_are_refused_in_a_configuration() -> None:
    experiment = Experiment(
        **{**BASE, "federated": {"clients": 10, "secure": True}},
        search={"federated.aggregation": {"choices": ["mean", "krum"]}},
    )
    resolve(experiment, {"federated.aggregation": "mean"})
    with pytest.raises(ExperimentError, match=r"search\.federated.aggregation"):
        resolve(experiment, {"federated.aggregation": "krum"})


def test_a_client_steps_with_the_whole_batch_on_any_number_of_workers() -> None:
    rates = set()
    for workers in (1, 3):
        experiment = Experiment(
            **BASE,
            training={"global_batch": 32, "lr": 0.1, "optimizer": "sgd"},
            plan={"workers": workers},
        )
        settings = resolve(experiment, {}, num_train_samples=1000)
        assert (settings.plan.workers, settings.plan.strategy) == (workers, "single")
        assert settings.step_batch == 32
        rates.add(settings.lr)
    assert len(rates) == 1


def test_a_federation_survives_its_file() -> None:
    experiment = Experiment(
        **{**BASE, "federated": {"clients": 10, "partition": {"dirichlet": 0.3}, "secure": True}}
    )
    again = Experiment.from_yaml(experiment.to_yaml())
    assert again == experiment
    assert again.hash() == experiment.hash()
