"""The recipe in CONTRIBUTING for a metric of another package is all that it takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import TrialPlanned, TrialReported
from workbench.models import METRICS
from workbench.sweeps.preflight import check
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

RECIPE = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text()


def block(language: str) -> str:
    """Return the code of one language in the section of the recipe."""
    section = RECIPE.partition("### A metric of another package")[2].partition("\n### ")[0]
    [code] = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return code


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that consists of the recipe."""
    group, name, reference = re.findall(r'"([^"]+)"\]\n(\w+) = "([^"]+)"', block("toml"))[0]
    package, _, module = reference.partition(":")[0].partition(".")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / f"{module}.py").write_text(block("py"))
    information = tmp_path / "my_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {reference}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(METRICS, "_scanned", [])
    monkeypatch.setattr(METRICS, "_scanned_at_s", None)  # packages are not looked up each time


@pytest.mark.usefixtures("installed")
def test_the_recipe_is_enough_for_an_objective_with_a_direction(tmp_path: Path) -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        metrics=["agreement", "accuracy"],
        objectives=[{"metric": "val_agreement", "goal": "maximize"}],
        training={"epochs": 1},
    )
    check(experiment)
    events: list[Any] = []

    def report(event: Any) -> bool:
        events.append(event)
        return False

    task = TrialTask("run", 0, 0, experiment.model_dump_json(), folder=str(tmp_path))
    ended = run_trial(task, report)
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_agreement"] == pytest.approx(ended.values["val_accuracy"])
    assert any(isinstance(event, TrialReported) for event in events)
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert planned.goals == {"val_agreement": "maximize"}
