from __future__ import annotations

import pytest

from workbench.advisor.memory import forecast_memory
from workbench.advisor.model_preview import preview_model
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError

OBJECTIVES = [{"metric": "val_loss", "goal": "minimize"}]


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
