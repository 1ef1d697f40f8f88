from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.runs import read_experiment
from workbench.runs.experiment_file import write_experiment

TEXT = """
model: {name: convnet, width: 16}
data: digits
objectives: [{metric: val_accuracy, goal: maximize}]
search:
  lr: {low: 0.001, high: 0.1, log: true}
sampler: tpe
budget: {trials: 3}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


def test_a_file_without_a_name_is_named_like_the_file(path: Path) -> None:
    assert read_experiment(path).name == "small"
    assert read_experiment(path, {"name": "other"}).name == "other"


def test_a_table_in_place_of_an_experiment_is_refused_with_the_command_for_tables(
    tmp_path: Path,
) -> None:
    (tmp_path / "houses.csv").write_text("rooms;price\n1;2\n")
    with pytest.raises(
        ExperimentError, match=r"houses.csv is a table, not an experiment file"
    ) as refused:
        read_experiment(tmp_path / "houses.csv")
    assert f"workbench automl {tmp_path / 'houses.csv'} --target COLUMN" in str(refused.value)


def test_a_script_is_not_an_experiment_but_can_become_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    with pytest.raises(ExperimentError, match=r"train\.py is a Python file") as refused:
        read_experiment(tmp_path / "train.py")
    assert f"workbench init {tmp_path / 'train.py'}" in str(refused.value)


def test_settings_replace_what_the_file_says_at_any_depth(path: Path) -> None:
    changed = read_experiment(
        path,
        {
            "training.epochs": 5,
            "budget.trials": 7,
            "search.lr.high": 0.5,
            "search.width": {"choices": [8, 16]},
            "objectives.0.target": 0.9,
            "model": "mlp",
            "data.limit": 100,
            "sampler.options": {"n_startup_trials": 3},
        },
    )

    assert changed.training.epochs == 5
    assert changed.budget.trials == 7
    assert changed.search.model_dump() == {
        "lr": {"low": 0.001, "high": 0.5, "log": True},
        "width": {"choices": (8, 16)},
    }
    assert changed.objectives[0].target == 0.9
    assert changed.model is not None
    assert changed.model.name == "mlp"
    assert changed.data is not None
    assert (changed.data.name, changed.data.options) == ("digits", {"limit": 100})
    assert (changed.sampler.name, changed.sampler.options) == ("tpe", {"n_startup_trials": 3})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training.epoch": 5}, r"^training\.epoch: unknown key.*Did you mean epochs\?"),
        ({"constraints": [{"metric": "a", "least": 1}]}, r"^constraints\.0\.least: .*at_least"),
        ({"trainin.epochs": 5}, r"^trainin: unknown key.*Did you mean training\?"),
        ({"training.epochs": "many"}, r"^training\.epochs: "),
        (
            {"objectives.3.target": 1},
            r"^objectives\.3: '3' is not an index of the list; allowed: .* 0 to 0",
        ),
        ({"seed.deeper": 1}, r"^seed: "),
        ({"training..epochs": 1}, r"^training\.\.epochs: this is not the path of a setting"),
        ({"budget.time": "soon"}, r"^budget\.time: 'soon' is not a duration"),
    ],
)
def test_settings_that_lead_nowhere_are_refused_by_name(
    path: Path, settings: dict[str, Any], message: str
) -> None:
    path.write_text(TEXT + "seed: 3\n")

    with pytest.raises(ExperimentError, match=message):
        read_experiment(path, settings)


def test_objects_beside_the_file_come_with_it(path: Path, tmp_path: Path) -> None:
    def build(config: dict[str, Any]) -> str:
        return f"built with {config['width']}"

    experiment = Experiment(
        model=build, data="digits", objectives=[{"metric": "val_accuracy", "goal": "maximize"}]
    )
    (tmp_path / "objects").mkdir()
    for sha256, payload in experiment.payloads().items():
        (tmp_path / "objects" / sha256).write_bytes(payload)
    path.write_text(experiment.to_yaml())

    read = read_experiment(path)

    assert read.model is not None
    assert read.model.load()({"width": 3}) == "built with 3"


def test_of_a_folder_of_objects_only_those_that_the_experiment_names_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(
        train=lambda config: {"loss": config["x"]},
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
    )
    write_experiment(experiment, tmp_path / "own.yaml")
    (tmp_path / "objects" / "film.bin").write_bytes(b"no object")
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or read_bytes(path))

    assert read_experiment(tmp_path / "own.yaml").payloads() == experiment.payloads()
    assert [name for name in read if name in os.listdir(tmp_path / "objects")] == list(
        experiment.payloads()
    )
