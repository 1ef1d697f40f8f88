"""How much memory one worker of an experiment may hold."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.advisor.memory import forecast_memory, memory_limit_bytes, preview_model
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.hardware.resources.inventory import ClusterInventory, NodeInventory

GB = 10**9


@pytest.mark.parametrize(
    ("settings", "expected_gb"),
    [
        pytest.param({}, 2, id="as many workers as there are cores"),
        pytest.param(
            {"plan": {"workers": 1}, "resources": {"concurrency": 1}}, 8, id="one at a time"
        ),
        pytest.param(
            {"plan": {"workers": 2}, "resources": {"concurrency": 1}}, 4, id="two of one trial"
        ),
        pytest.param({"plan": {"workers": 1}, "budget": {"trials": 2}}, 4, id="two trials"),
        pytest.param({"resources": {"concurrency": 1}}, 2, id="a trial may take all workers"),
        pytest.param({"plan": {"workers": 1}}, 2, id="as many trials as there are cores"),
    ],
)
def test_workers_share_the_memory_of_their_node_with_those_that_run_at_the_same_time(
    settings: dict[str, Any], expected_gb: int
) -> None:
    fields: dict[str, Any] = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"lr": {"low": 1e-3, "high": 1e-1}},
        "budget": {"trials": 20},
        **settings,
    }
    experiment = Experiment(**fields)
    cluster = ClusterInventory((NodeInventory("a", "a", 4.0, 0.0, 8 * GB),))
    assert (
        memory_limit_bytes(experiment, capacity_of(experiment, cluster), cluster)
        == expected_gb * GB
    )


OBJECTIVES = [{"metric": "val_loss", "goal": "minimize"}]


@pytest.mark.slow
def test_the_memory_in_a_preview_is_that_of_the_forecast_divided() -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=OBJECTIVES,
        search={"hidden_width": {"choices": [16, 24]}},
    )
    seen, forecast = preview_model(experiment), forecast_memory(experiment)
    width = seen["params"]["hidden_width"]
    assert seen["num_parameters"] == 64 * width + width + width * width + width + 10 * width + 10
    assert seen["memory"]["bytes"] == forecast.peak_bytes == sum(seen["memory"]["parts"].values())
    assert seen["memory"]["parts"]["parameters"] == 4 * seen["num_parameters"]
    assert seen["memory"]["fits"] is True
    assert seen["plan"]["global_batch"] == 128
    # Memory would hold a million samples, but there are no more to train on.
    assert seen["memory"]["largest_micro_batch"] == forecast.largest_micro_batch == 1438


def test_the_configuration_to_look_at_may_be_chosen() -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=OBJECTIVES,
        search={"hidden_width": {"low": 1, "high": 64}},
    )
    seen = preview_model(experiment, {"hidden_width": 2})
    assert seen["num_parameters"] == 65 * 2 + 3 * 2 + 3 * 10
    assert seen["params"] == {"hidden_width": 2}


def test_nothing_is_said_of_a_train_function() -> None:
    with pytest.raises(ExperimentError, match="train"):
        preview_model(
            Experiment(train="json:dumps", objectives=[{"metric": "y", "goal": "minimize"}])
        )
