"""Sweep files of Weights & Biases, as their documentation writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.wandb_sweep import from_wandb_sweep
from workbench.experiment.yaml_file import read_yaml

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
        "learning_rate", "batch_size", "epochs", "layers", "optimizer_name", "optimizer_decay",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"value": [1, 2]}, [1, 2]),
        ({"distribution": "constant", "value": 3}, 3),
        ({"distribution": "categorical", "values": ["a", None]}, {"choices": ("a", None)}),
        ({"distribution": "int_uniform", "min": 2, "max": 8}, {"low": 2, "high": 8}),
        ({"distribution": "uniform", "min": 0, "max": 1}, {"type": "float", "low": 0.0, "high": 1.0}),
        (
            {"distribution": "q_uniform", "min": 0.1, "max": 0.9, "q": 0.25},
            {"low": 0.0, "high": 1.0, "step": 0.25},
        ),
        ({"distribution": "q_uniform", "min": 1, "max": 33, "q": 8}, {"low": 0, "high": 32, "step": 8}),
        (
            {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
            {"low": 1e-5, "high": 0.1, "log": True},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 2, "max": 64, "q": 1},
            {"low": 2, "high": 64, "log": True},
        ),
        ({"distribution": "q_log_uniform", "min": 0, "max": 5}, {"low": 1, "high": 148, "log": True}),
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
    found = parameter(**keys)
    if isinstance(expected, dict):
        assert {key: found[key] for key in expected} == expected
    else:
        assert found == expected if not isinstance(found, dict) else found["value"] == expected


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"command": ["python"]}, "command"),
        ({"project": "p"}, "project"),
        ({"method": "custom"}, "method"),
        ({"metric": {"name": "loss", "impute": "worst"}}, "metric.impute"),
        ({"early_terminate": {"type": "envelope"}}, "early_terminate.type"),
        (
            {"early_terminate": {"type": "hyperband", "min_iter": 1, "strict": False}},
            "early_terminate.strict",
        ),
        ({"early_terminate": {"type": "hyperband", "s": 2, "max_iter": 28}}, "early_terminate.max_iter"),
        ({"parameters": {"x": {"values": [1], "probabilities": [1]}}}, "parameters.x.probabilities"),
        ({"parameters": {"x": {"distribution": "normal", "mu": 0}}}, "parameters.x.distribution"),
        ({"parameters": {"x": {"min": 1}}}, "parameters.x"),
        ({"parameters": {"x": {"min": 1, "max": 2, "mu": 0}}}, "parameters.x.mu"),
        (
            {"parameters": {"x": {"distribution": "q_log_uniform_values", "min": 8, "max": 64, "q": 8}}},
            "parameters.x.q",
        ),
        ({"parameters": {"a": {"parameters": {"b": {"value": 1}}}, "a_b": {"value": 2}}}, "parameters.a_b"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(**changes)
    assert caught.value.field == field


def test_a_script_is_refused_with_the_way_out() -> None:
    with pytest.raises(ExperimentError, match="train='package") as caught:
        from_wandb_sweep(read_yaml(DOCUMENTED))
    assert caught.value.field == "program"


def test_brackets_counted_from_the_end_begin_at_the_same_step() -> None:
    experiment = read(early_terminate={"type": "hyperband", "max_iter": 27, "s": 2})
    assert (experiment.early_stop.grace, experiment.early_stop.reduction_factor) == (3, 3)
