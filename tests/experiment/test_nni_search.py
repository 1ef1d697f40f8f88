"""Search spaces and configurations of NNI, as its documentation writes them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.experiment.nni_search import from_nni, is_nni
from workbench.experiment.yaml_file import read_yaml
from workbench.foundation.errors import ExperimentError

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


def read(
    document: dict[str, Any], folder: Path = Path(), **options: Any
) -> tuple[Experiment, list[str]]:
    notes: list[str] = []
    return from_nni(document, folder=folder, note=notes.append, **options), notes


def test_a_documented_configuration_becomes_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "search_space.json").write_text(SPACE)
    document = read_yaml(CONFIGURED)
    assert is_nni(document)
    search, notes = read(document, tmp_path)
    assert (
        search.search.model_dump()
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
    assert (search.name, search.budget.trials, search.budget.time) == ("mnist", 10, 3600.0)
    assert (search.resources.concurrency, search.early_stop.pruner, search.early_stop.grace) == (
        2,
        "median",
        3,
    )
    assert (search.resources.trial_time, search.resources.gpus_per_worker) == (600.0, 0)
    assert search.objectives[0].goal == "maximize"
    assert search.sampler.name == "tpe"
    assert expand(search.command or "", {"batch_size": 16, "lr": 0.1}, {}) == [
        "python3",
        "mnist.py",
        "--epochs",
        "2",
        "--batch_size=16",
        "--lr=0.1",
    ]
    assert any("trainingService is ignored" in note for note in notes)
    assert Experiment.from_yaml(search.to_yaml()) == search


def test_what_nni_prints_outside_of_its_experiments_is_read() -> None:
    from workbench.training.programs.printed_metrics import pattern_reader

    experiment, _ = read({"searchSpace": read_yaml(SPACE), "trialCommand": "python a.py"})
    reads = pattern_reader(experiment.metric_source.pattern or ())
    line = b"[2023-05-01 10:00:00] INFO (nni/MainThread) Intermediate result: 0.9731  (Index 3)"
    assert reads(line) == {"default": 0.9731}
    assert reads(b"[2023-05-01 10:00:00] INFO (nni/MainThread) Final result: 98.5") == {
        "default": 98.5
    }


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("nan", math.nan),
        ("-inf", -math.inf),
        ("1e-05", 1e-5),
        ("tensor(0.25, device='cuda:0')", 0.25),
        ("{'default': 0.25, 'loss': 0.5}", 0.25),
        ('{"loss": 0.5, "default": NaN}', math.nan),
        ("{'default': np.float64(0.25)}", 0.25),
    ],
)
def test_every_result_that_nni_prints_is_read(printed: str, value: float) -> None:
    from workbench.training.programs.printed_metrics import pattern_reader

    experiment, _ = read({"searchSpace": read_yaml(SPACE), "trialCommand": "python a.py"})
    reads = pattern_reader(experiment.metric_source.pattern or ())
    for line in (
        f"Final result: {printed}",
        f"INFO (nni) Intermediate result: {printed}  (Index 3)",
    ):
        assert reads(line.encode()) == pytest.approx({"default": value}, nan_ok=True)
    assert reads(b"Final result: None").words == {"default": "None"}


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("quniform", [0.1, 0.6, 0.1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        ("quniform", [0, 10, 2.5], [0, 2.5, 5, 7.5, 10]),
        ("quniform", [2, 10, 5], [2, 5, 10]),
        ("quniform", [10, 100, 20], [20, 40, 60, 80, 100]),
        ("quniform", [0.05, 0.35, 0.1], [0.1, 0.2, 0.3]),
        ("quniform", [3, 3, 2], [3]),
        ("qnormal", [5, 1, 2], [2, 4, 6, 8]),
        ("qnormal", [0.5, 0.1, 0.1], [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]),
        ("qnormal", [0, 0.01, 1], [0]),
        ("qloguniform", [1, 100, 10], [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
        ("qloguniform", [1, 5, 1], [1, 2, 3, 4, 5]),
        ("qlognormal", [0, 0.5, 1], [0, 1, 2, 3, 4]),
        ("randint", [1, 5], [1, 2, 3, 4]),
        ("randint", [0, 1], [0]),
        ("choice", [16, "a", None, True, [1, 2]], [16, "a", None, True, [1, 2]]),
    ],
)
def test_a_type_has_the_values_that_nni_documents(
    kind: str, values: list[Any], expected: list[Any]
) -> None:
    search, _ = read({"x": {"_type": kind, "_value": values}}, train="module:function")
    reached = list(search.search.root["x"].values() or ())
    if kind == "choice":
        assert reached == expected
    else:
        assert reached == pytest.approx(expected)


@given(st.integers(-50, 50), st.integers(0, 60), st.sampled_from((0.1, 0.25, 1, 3, 0.7)))
def test_rounded_numbers_are_those_of_the_formula(low: int, width: int, step: float) -> None:
    """Values are compared with clip(round(x / q) * q, low, high) at very many x."""
    high = low + width
    search, _ = read(
        {"x": {"_type": "quniform", "_value": [low, high, step]}}, train="module:function"
    )
    reached = np.array(list(search.search.root["x"].values() or ()), dtype=float)
    drawn = np.linspace(low, high, 4001)[1:-1] if width else np.array([low])
    formula = np.unique(np.clip(np.round(drawn / step) * step, low, high).round(6))
    assert reached == pytest.approx(formula, abs=1e-5)


def test_normal_and_logarithmic_types_reach_three_deviations_around_the_mean() -> None:
    space = {
        "normal": {"_type": "normal", "_value": [1, 0.5]},
        "lognormal": {"_type": "lognormal", "_value": [0, 1]},
        "loguniform": {"_type": "loguniform", "_value": [0.001, 1]},
        "uniform": {"_type": "uniform", "_value": [0, 3]},
    }
    search, _ = read(space, train="module:function")
    bounds = {
        name: (domain.low, domain.high, domain.log) for name, domain in search.search.root.items()
    }
    assert bounds == {
        "normal": (-0.5, 2.5, False),
        "lognormal": (math.exp(-3), math.exp(3), True),
        "loguniform": (0.001, 1, True),
        "uniform": (0, 3, False),
    }


def test_many_multiples_on_a_logarithmic_scale_are_thinned_with_a_note() -> None:
    space = {"x": {"_type": "qloguniform", "_value": [1, 100000, 10]}}
    search, notes = read(space, train="module:function")
    values = search.search.root["x"].values() or ()
    assert (values[0], values[-1]) == (1, 100000)
    assert all(value % 10 == 0 for value in values[1:])
    assert (
        f"searchSpace.x: only {len(values)} multiples of q are tried, spaced on a logarithmic scale"
        in notes
    )
    assert (
        read({"x": {"_type": "qloguniform", "_value": [1, 1000, 1]}}, train="module:function")[1]
        == []
    )


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
    search, _ = read(space, train="module:function")
    assert search.search.root["optimizer"].values() == ["sgd", "adam"]
    assert search.search.root["optimizer.sgd.momentum"].when == {"optimizer": "sgd"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"searchSpace": {"x": {"_type": "mutable", "_value": [1]}}}, "searchSpace.x._type"),
        ({"searchSpace": {"x": {"_type": "uniform", "_value": [1]}}}, "searchSpace.x._value"),
        (
            {"searchSpace": {"x": {"_type": "quniform", "_value": [0, 1, 0]}}},
            "searchSpace.x._value",
        ),
        ({"searchSpace": {"x": {"_type": "randint", "_value": [3, 3]}}}, "searchSpace.x._value"),
        (
            {"searchSpace": {"x": {"_type": "qlognormal", "_value": ["a", 1, 1]}}},
            "searchSpace.x._value",
        ),
        ({"searchSpace": {"x": 3}}, "searchSpace.x"),
        ({"searchSpace": {}, "advisor": {}}, "advisor"),
        ({"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}}, "trialCommand"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(
    document: dict[str, Any], field: str
) -> None:
    with pytest.raises(ExperimentError) as refused:
        read(document)
    assert refused.value.field == field


def test_what_is_only_approximated_is_noted() -> None:
    space = {
        "x": {"_type": "normal", "_value": [0, 1]},
        "q": {"_type": "qloguniform", "_value": [1, 100, 10]},
    }
    document = {
        "searchSpace": space,
        "tuner": {"name": "PBTTuner"},
        "assessor": {"name": "Curvefitting"},
    }
    search, notes = read(document, train="module:function")
    assert search.search.root["q"].values() == [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    for words in ("three standard deviations", "tuner PBTTuner", "assessor curvefitting"):
        assert any(words in note for note in notes)


def test_a_sweep_of_wandb_is_not_taken_for_one_of_nni() -> None:
    assert not is_nni({"method": "grid", "parameters": {"x": {"values": [1]}}})
    assert not is_nni({})
