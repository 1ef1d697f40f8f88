from __future__ import annotations

from typing import Any

import pytest

from tests.builders.recorded_runs import EXPERIMENT, trial_events
from workbench.cli.next_steps import next_commands
from workbench.experiment import Experiment
from workbench.history import History


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "workbench export digits-1 --to best"),
        ({"data": {"name": "table", "held_out": 0.2}}, "workbench export digits-1 --to best --format onnx"),
    ],
    ids=["a sweep: the best trial", "AutoML: its result, not the model of one fold"],
)
def test_the_export_that_is_offered_is_that_of_the_result(changes: dict[str, Any], command: str) -> None:
    history = History.of(Experiment(**{**EXPERIMENT, **changes}), trial_events(0, at_s=1))
    assert next_commands("digits-1", "complete", history)[-1].endswith(f"  {command}")
