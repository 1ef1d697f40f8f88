"""Sweep files of Weights & Biases, as their documentation writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.experiment.wandb_sweep import from_wandb_sweep
from workbench.experiment.yaml_file import read_yaml
from workbench.foundation.errors import ExperimentError

DOCUMENTED = """
name: sweepdemo
program: train.py
method: bayes
metric: {goal: minimize, name: validation_loss, target: 0.1}
run_cap: 30
early_terminate: {type: hyperband, min_iter: 3}
parameters:
  learning_rate: {min: 0.0001, max: 0.1}
  batch_size: {values: [16, 32, 64]}
  epochs: {value: 5}
  layers: {min: 1, max: 4}
  optimizer:
    parameters:
      name: {values: [adam, sgd]}
      decay: {distribution: log_uniform, min: -9, max: -2}
"""


def read(**changes: Any) -> Experiment:
    return from_wandb_sweep(read_yaml(DOCUMENTED) | changes, train="module:function")


def parameter(**keys: Any) -> dict[str, Any]:
    experiment = read(parameters={"x": keys, "other": {"values": [1, 2]}})
    return experiment.search.model_dump()["x"]


def test_a_documented_sweep_becomes_an_experiment() -> None:
    expected = Experiment.from_yaml(f"""
name: sweepdemo
train: module:function
objectives: [{{metric: validation_loss, goal: minimize, target: 0.1}}]
search:
  learning_rate: {{low: 0.0001, high: 0.1}}
  batch_size: {{choices: [16, 32, 64]}}
  epochs: 5
  layers: {{low: 1, high: 4}}
  optimizer_name: {{choices: [adam, sgd]}}
  optimizer_decay: {{low: {math.exp(-9)!r}, high: {math.exp(-2)!r}, log: true}}
budget: {{trials: 30}}
early_stop: {{pruner: asha, grace: 3, reduction_factor: 3}}
""")
    assert read() == expected
    assert list(read().search.root) == [
        "learning_rate",
        "batch_size",
        "epochs",
        "layers",
        "optimizer_name",
        "optimizer_decay",
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"value": [1, 2]}, [1, 2]),
        ({"distribution": "constant", "value": 3}, 3),
        ({"distribution": "categorical", "values": ["a", None]}, {"choices": ("a", None)}),
        ({"distribution": "int_uniform", "min": 2, "max": 8}, {"low": 2, "high": 8}),
        (
            {"distribution": "uniform", "min": 0, "max": 1},
            {"type": "float", "low": 0.0, "high": 1.0},
        ),
        (
            {"distribution": "q_uniform", "min": 0.1, "max": 0.9, "q": 0.25},
            {"low": 0.0, "high": 1.0, "step": 0.25},
        ),
        (
            {"distribution": "q_uniform", "min": 1, "max": 33, "q": 8},
            {"low": 0, "high": 32, "step": 8},
        ),
        (
            {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
            {"low": 1e-5, "high": 0.1, "log": True},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 2, "max": 64, "q": 1},
            {"low": 2, "high": 64, "log": True},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 8, "max": 32, "q": 4},
            {"choices": (8, 12, 16, 20, 24, 28, 32)},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 32, "max": 256, "q": 32},
            {"choices": (32, 64, 96, 128, 160, 192, 224, 256)},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 1e-5, "max": 1.0, "q": 1e-5},
            {"low": 1e-5, "high": 1.0, "log": True},
        ),
        (
            {"distribution": "q_log_uniform", "min": 0, "max": 5},
            {"low": 1, "high": 148, "log": True},
        ),
        (
            {"distribution": "inv_log_uniform", "min": 1, "max": 2},
            {"low": math.exp(-2), "high": math.exp(-1), "log": True},
        ),
        (
            {"distribution": "inv_log_uniform_values", "min": 0.5, "max": 2.5},
            {"low": 0.5, "high": 2.5, "log": True},
        ),
    ],
)
def test_distribution_becomes(keys: dict[str, Any], expected: object) -> None:
    domain = parameter(**keys)
    if isinstance(expected, dict):
        assert {key: domain[key] for key in expected} == expected
    else:
        assert domain == expected if not isinstance(domain, dict) else domain["value"] == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"project": "p"}, "project"),
        ({"method": "custom"}, "method"),
        ({"metric": {"name": "loss", "impute": "worst"}}, "metric.impute"),
        ({"early_terminate": {"type": "envelope"}}, "early_terminate.type"),
        (
            {"early_terminate": {"type": "hyperband", "min_iter": 1, "strict": False}},
            "early_terminate.strict",
        ),
        ({"early_terminate": {"type": "hyperband", "max_iter": 27}}, "early_terminate.s"),
        (
            {"parameters": {"x": {"values": [1], "probabilities": [1]}}},
            "parameters.x.probabilities",
        ),
        ({"parameters": {"x": {"distribution": "normal", "mu": 0}}}, "parameters.x.distribution"),
        ({"parameters": {"x": {"min": 1}}}, "parameters.x"),
        ({"parameters": {"x": {"min": 1, "max": 2, "mu": 0}}}, "parameters.x.mu"),
        (
            {
                "parameters": {
                    "x": {"distribution": "q_log_uniform_values", "min": 8, "max": 64, "q": 0}
                }
            },
            "parameters.x.q",
        ),
        (
            {"parameters": {"a": {"parameters": {"b": {"value": 1}}}, "a_b": {"value": 2}}},
            "parameters.a_b",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(**changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ({"distribution": "log_uniform", "min": 16, "max": 1024}, "write log_uniform_values"),
        ({"distribution": "q_log_uniform", "min": 1, "max": 4096}, "write q_log_uniform_values"),
        ({"distribution": "inv_log_uniform", "min": -1e6, "max": 1}, "inv_log_uniform_values"),
        ({"distribution": "q_uniform", "min": 0, "max": math.inf, "q": 2}, "too large"),
    ],
)
def test_values_in_the_place_of_exponents_are_refused(keys: dict[str, Any], advice: str) -> None:
    with pytest.raises(ExperimentError, match=advice) as caught:
        parameter(**keys)
    assert caught.value.field == "parameters.x"


def test_a_script_is_started_as_wandb_starts_it() -> None:
    document = read_yaml(DOCUMENTED) | {
        "program": "my train.py",
        "parameters": {"lr": {"min": 0.1, "max": 1.0}, "amp": {"values": [True, False]}},
    }
    experiment = from_wandb_sweep(document)
    assert expand(experiment.command or "", {"lr": 0.5, "amp": True}, {}) == [
        "python",
        "my train.py",
        "--amp=True",
        "--lr=0.5",
    ]
    assert experiment.metric_source.kind == "wandb"
    command = [
        "${env}",
        "python3",
        "-u",
        "${program}",
        "${args_no_boolean_flags}",
        "{x}",
        "${args_json_file}",
    ]
    experiment = from_wandb_sweep(document | {"command": command})
    assert expand(experiment.command or "", {"lr": 0.5, "amp": True}, {"config": "c.json"}) == [
        "python3",
        "-u",
        "my train.py",
        "--amp",
        "--lr=0.5",
        "{x}",
        "c.json",
    ]
    experiment = from_wandb_sweep(document | {"command": ["${program}", "${args_no_hyphens}"]})
    assert expand(experiment.command or "", {"lr": 0.5, "amp": False}, {}) == [
        "my train.py",
        "lr=0.5",
        "amp=False",
    ]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            ["${program}", "${args}"],
            ["train.py", "--optimizer={'lr': 0.5, 'nesterov': True}", "--width=8"],
        ),
        (
            ["${program}", "${args_no_hyphens}"],
            ["train.py", "width=8", "optimizer={'lr': 0.5, 'nesterov': True}"],
        ),
        (
            ["${program}", "${args_no_boolean_flags}"],
            ["train.py", "--optimizer={'lr': 0.5, 'nesterov': True}", "--width=8"],
        ),
    ],
)
def test_a_script_receives_nested_parameters_as_wandb_passes_them(
    command: list[str], expected: list[str]
) -> None:
    inner = {"lr": {"min": 0.1, "max": 1.0}, "nesterov": {"values": [True, False]}}
    experiment = from_wandb_sweep(
        {
            "method": "random",
            "metric": {"name": "loss"},
            "program": "train.py",
            "command": command,
            "parameters": {"optimizer": {"parameters": inner}, "width": {"values": [8, 16]}},
        }
    )
    params = {"optimizer.lr": 0.5, "optimizer.nesterov": True, "width": 8}
    assert list(experiment.search.root) == list(params)
    assert expand(experiment.command or "", params, {}) == expected


def test_a_sweep_without_a_script_or_with_an_unknown_macro_is_refused() -> None:
    document = read_yaml(DOCUMENTED)
    with pytest.raises(ExperimentError, match="envvar:HOME") as caught:
        from_wandb_sweep(document | {"program": "t.py", "command": ["${envvar:HOME}"]})
    assert caught.value.field == "command.0"
    document.pop("program", None)
    with pytest.raises(ExperimentError, match="train='package") as caught:
        from_wandb_sweep(document)
    assert caught.value.field == "program"


def test_brackets_counted_from_the_end_begin_at_the_same_step() -> None:
    experiment = read(early_terminate={"type": "hyperband", "max_iter": 27, "s": 2})
    assert (experiment.early_stop.grace, experiment.early_stop.reduction_factor) == (3, 3)


@pytest.mark.parametrize(
    ("stopping", "grace", "noted"),
    [
        ({"min_iter": 5, "s": 2}, 5, "early_terminate.s has no effect"),
        ({"min_iter": 5, "max_iter": 27, "s": 2}, 3, "early_terminate.min_iter has no effect"),
        ({"max_iter": 100, "s": 2}, 11, "the rungs are 11, 33, ..."),
        ({"min_iter": 5}, 5, ""),
    ],
)
def test_brackets_begin_where_they_begin_in_wandb(
    stopping: dict[str, Any], grace: int, noted: str
) -> None:
    notes: list[str] = []
    document = read_yaml(DOCUMENTED) | {"early_terminate": {"type": "hyperband", **stopping}}
    experiment = from_wandb_sweep(document, train="module:function", note=notes.append)
    assert experiment.early_stop.grace == grace
    assert noted in "".join(notes)
    assert bool(notes) == bool(noted)


def test_names_of_parameters_may_have_dashes_and_dots() -> None:
    names = {"learning-rate": {"min": 0.1, "max": 1.0}, "trainer.lr": {"values": [1, 2]}}
    assert list(read(parameters=names).search.root) == ["learning-rate", "trainer.lr"]
