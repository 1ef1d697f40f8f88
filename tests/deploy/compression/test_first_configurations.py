"""What a compression tries before anything is proposed."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.deploy.compression.search import first_configurations
from workbench.experiment import Experiment

WAYS: dict[str, Any] = {
    "quantiser": {"choices": ["none", "dynamic", "static", "qat"]},
    "pruning": {"low": 0.0, "high": 0.75},
    "qat_epochs": {"choices": [2, 5, 10], "when": {"quantiser": ["qat"]}},
    "qat_lr": {"low": 1e-5, "high": 3e-3, "when": {"quantiser": ["qat"]}},
    "epochs": {"choices": [0, 5, 10, 20]},
    "lr": {"low": 1e-4, "high": 1e-2, "log": True, "when": {"epochs": [5, 10, 20]}},
}


def configurations(num_samples: int, *, without: str = "") -> list[dict[str, Any]]:
    experiment = Experiment(
        train="tests.deploy.compression.test_first_configurations:configurations",
        objectives=[{"metric": "latency_ratio", "goal": "minimize"}],
        search={name: values for name, values in WAYS.items() if name != without},
    )
    return first_configurations(experiment, num_samples=num_samples, has_convolutions=True)


@pytest.mark.parametrize("num_samples", [1_000, 10_000])
def test_no_compression_and_both_quantisers_come_before_fewer_channels(num_samples: int) -> None:
    first = configurations(num_samples)
    assert [configuration["quantiser"] for configuration in first[:3]] == [
        "none",
        "dynamic",
        "static",
    ]
    assert all(each["pruning"] == each["epochs"] == 0 for each in first[:3])
    assert all(each["pruning"] and each["epochs"] for each in first[3:])


def test_ten_times_the_samples_are_seen_less_often_but_for_what_is_pruned_most() -> None:
    few, many = configurations(1_000), configurations(10_000)
    fewer = [
        after["pruning"]
        for before, after in zip(few, many, strict=True)
        if after["epochs"] <= before["epochs"] / 4 and before["epochs"]
    ]
    assert fewer == [0.5, 0.5, 0.625, 0.625, 0.375]
    [most] = [configuration for configuration in many if configuration["pruning"] == 0.75]
    assert most["epochs"] == 10


def test_quantisers_of_the_same_channels_share_their_fine_tuning() -> None:
    floats, integers = (
        next(
            each
            for each in configurations(10_000)
            if each["pruning"] == 0.625 and each["quantiser"] == quantiser
        )
        for quantiser in ("none", "qat")
    )
    assert {name: integers[name] for name in floats if name != "quantiser"} == {
        name: value for name, value in floats.items() if name != "quantiser"
    }


def test_what_is_not_searched_is_not_tried() -> None:
    assert all("pruning" not in each for each in configurations(1_000, without="pruning"))
