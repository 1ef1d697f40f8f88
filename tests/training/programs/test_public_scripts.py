"""The lines of the page on public scripts, with programs that take the same options and print the
same.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

SCRIPTS = Path(__file__).with_name("public")
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "public-scripts.md"
FILES = dict(re.findall(r":caption: (\w+)\.yaml\n\n(.*?)```", PAGE.read_text(), re.DOTALL))
NUM_REPORTS = {
    "mnist": 5,
    "language_model": 6,
    "gpt_trainer": 5,
    "lightning_cli": 5,
    "keras_mnist": 3,
}
VALUES = {
    "lr": 1.0,
    "gamma": 0.7,
    "tied": True,
    "learning_rate": 0.01,
    "batch_size": 32,
    "model.learning_rate": 0.01,
    "trainer.max_epochs": 5,
}


@pytest.mark.parametrize("name", NUM_REPORTS)
def test_a_public_script_runs_with_five_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SCRIPTS)
    lines = FILES[name].strip()
    assert len(lines.splitlines()) <= 5
    written = Experiment.from_yaml(lines)
    experiment = written.replace(plan={"workers": 1})
    params = {parameter: VALUES[parameter] for parameter in experiment.search.root}
    task = TrialTask("r", 0, 0, experiment.model_dump_json(), params=params, folder=str(tmp_path))
    events: list[Event] = []
    ended = run_trial(task, lambda event: bool(events.append(event)))
    assert ended.state == "complete", ended.message
    metric = experiment.objectives[0].metric
    values = [
        event.values[metric]
        for event in events
        if isinstance(event, TrialReported) and metric in event.values
    ]
    assert len(values) == NUM_REPORTS[name]
    assert values == sorted(values, reverse=experiment.objectives[0].goal == "minimize")
    steps = [event.step for event in events if isinstance(event, TrialReported)]
    assert steps == sorted(steps)
    assert ended.step > 1


def test_the_page_names_these_scripts() -> None:
    assert FILES.keys() == NUM_REPORTS.keys()
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*FILES, "shakespeare_char"}
