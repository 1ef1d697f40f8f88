"""Search spaces and configurations of NNI, as its documentation writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.experiment.nni_search import from_nni, is_nni
from workbench.experiment.yaml_file import read_yaml

CONFIGURED = """
experimentName: mnist
searchSpaceFile: search_space.json
trialCommand: python3 mnist.py --epochs 2
trialGpuNumber: 0
trialConcurrency: 2
maxTrialNumber: 10
maxExperimentDuration: 1h
maxTrialDuration: 10m
tuner: {name: TPE, classArgs: {optimize_mode: maximize}}
assessor: {name: Medianstop, classArgs: {start_step: 3}}
trainingService: {platform: local}
"""
SPACE = """{
  "batch_size": {"_type": "choice", "_value": [16, 32, 64]},
  "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
  "momentum": {"_type": "uniform", "_value": [0, 1]},
  "layers": {"_type": "randint", "_value": [1, 5]},
  "width": {"_type": "quniform", "_value": [10, 100, 20]},
  "dropout": {"_type": "quniform", "_value": [0.0, 0.5, 0.25]}
}"""


def read(document: dict[str, Any], folder: Path = Path(), **options: Any) -> tuple[Experiment, list[str]]:
    notes: list[str] = []
    return from_nni(document, folder=folder, note=notes.append, **options), notes


def test_a_documented_configuration_becomes_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "search_space.json").write_text(SPACE)
    document = read_yaml(CONFIGURED)
    assert is_nni(document)
    found, notes = read(document, tmp_path)
    assert (
        found.search.model_dump()
        == Experiment.from_yaml("""
train: module:function
objectives: [{metric: default, goal: maximize}]
search:
  batch_size: {choices: [16, 32, 64]}
  lr: {low: 0.0001, high: 0.1, log: true}
  momentum: {type: float, low: 0, high: 1}
  layers: {low: 1, high: 4}
  width: {low: 20, high: 100, step: 20}
  dropout: {low: 0.0, high: 0.5, step: 0.25}
""").search.model_dump()
    )
    assert (found.name, found.budget.trials, found.budget.time) == ("mnist", 10, 3600.0)
    assert (found.resources.concurrency, found.early_stop.pruner, found.early_stop.grace) == (2, "median", 3)
    assert (found.resources.trial_time, found.resources.gpus_per_worker) == (600.0, 0)
    assert found.objectives[0].goal == "maximize"
    assert found.sampler.name == "tpe"
    assert expand(found.command or "", {"batch_size": 16, "lr": 0.1}, {}) == [
        "python3", "mnist.py", "--epochs", "2", "--batch_size=16", "--lr=0.1",
    ]  # fmt: skip
    assert any("trainingService is left out" in note for note in notes)
    assert Experiment.from_yaml(found.to_yaml()) == found


def test_what_nni_prints_outside_of_its_experiments_is_read() -> None:
    from workbench.programs.printed_metrics import pattern_reader

    found, _ = read({"searchSpace": read_yaml(SPACE), "trialCommand": "python a.py"})
    reads = pattern_reader(found.metric_source.pattern or ())
    line = b"[2023-05-01 10:00:00] INFO (nni/MainThread) Intermediate result: 0.9731  (Index 3)"
    assert reads(line) == {"default": 0.9731}
    assert reads(b"[2023-05-01 10:00:00] INFO (nni/MainThread) Final result: 98.5") == {"default": 98.5}


def test_parameters_of_a_nested_choice_exist_where_it_is_chosen() -> None:
    space = {
        "optimizer": {
            "_type": "choice",
            "_value": [
                {"_name": "sgd", "momentum": {"_type": "uniform", "_value": [0.1, 0.9]}},
                {"_name": "adam"},
            ],
        }
    }
    assert is_nni(space)
    found, _ = read(space, train="module:function")
    assert found.search.root["optimizer"].values() == ["sgd", "adam"]
    assert found.search.root["optimizer.sgd.momentum"].when == {"optimizer": "sgd"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"searchSpace": {"x": {"_type": "mutable", "_value": [1]}}}, "searchSpace.x._type"),
        ({"searchSpace": {"x": {"_type": "uniform", "_value": [1]}}}, "searchSpace.x._value"),
        ({"searchSpace": {"x": 3}}, "searchSpace.x"),
        ({"searchSpace": {}, "advisor": {}}, "advisor"),
        ({"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}}, "trialCommand"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(document: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        read(document)
    assert refused.value.field == field


def test_what_is_only_approximated_is_noted() -> None:
    space = {
        "x": {"_type": "normal", "_value": [0, 1]},
        "q": {"_type": "qloguniform", "_value": [1, 100, 10]},
    }
    document = {"searchSpace": space, "tuner": {"name": "PBTTuner"}, "assessor": {"name": "Curvefitting"}}
    found, notes = read(document, train="module:function")
    assert found.search.root["q"].values() == [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    for words in ("three standard deviations", "tuner PBTTuner", "assessor curvefitting"):
        assert any(words in note for note in notes)


def test_a_sweep_of_wandb_is_not_taken_for_one_of_nni() -> None:
    assert not is_nni({"method": "grid", "parameters": {"x": {"values": [1]}}})
    assert not is_nni({})
