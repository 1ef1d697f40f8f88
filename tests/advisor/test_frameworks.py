from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tests.services.shell import Shell
from workbench.advisor.frameworks import (
    FrameworkComparison,
    FrameworkTimes,
    compare_frameworks,
    median_interval,
    pays_after,
)
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.models.layers import weights_of_layers
from workbench.training.probes.framework_steps import TorchSteps
from workbench.training.worker_task import TrialTask

FIELDS: dict[str, Any] = {
    "name": "small",
    "model": {"name": "mlp", "hidden_width": 8},
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "training": {"epochs": 3, "global_batch": 64},
}
PLAIN = FrameworkTimes("torch", step_s=0.010, start_s=0.0, training_s=10.0, difference=0.0)
COMPILED = FrameworkTimes(
    "torch.compile",
    step_s=0.008,
    start_s=20.0,
    ratio=0.8,
    ratio_low=0.7,
    ratio_high=0.9,
    difference=3e-7,
    pays_after=20_000,
    training_s=28.0,
)


def compared(num_steps: int, *times: FrameworkTimes) -> FrameworkComparison:
    return FrameworkComparison("small", "cpu", 64, num_steps, times)


@pytest.mark.parametrize("num", [6, 7, 10, 25, 30])
def test_the_interval_of_a_median_is_the_narrowest_with_its_confidence(num: int) -> None:
    low, high = median_interval(list(np.random.default_rng(0).permutation(num).astype(float)))
    rank = int(low)
    assert high == num - 1 - rank
    # The median lies below the value with this rank if at most so many of all values do.
    assert 2 * binom.cdf(rank, num, 0.5) <= 0.05 < 2 * binom.cdf(rank + 1, num, 0.5)


@given(st.floats(0, 100), st.floats(0, 1), st.floats(1e-3, 1), st.floats(0.1, 0.99))
def test_a_start_has_paid_when_the_totals_meet(
    start_s: float, plain_start_s: float, plain_s: float, ratio: float
) -> None:
    num = pays_after(start_s, plain_start_s, plain_s, ratio)
    assert num is not None

    def wins(steps: int) -> bool:
        slack_s = 1e-6 * (1 + plain_s * steps)
        return start_s + steps * ratio * plain_s <= plain_start_s + steps * plain_s + slack_s

    assert wins(num)
    assert num == 0 or not wins(int(num * 0.99) - 1)


def test_steps_that_may_be_slower_never_pay() -> None:
    assert pays_after(1.0, 0.0, 0.01, 1.0) is None
    assert pays_after(1.0, 0.0, 0.01, 1.2) is None


def test_the_advice_follows_the_length_of_the_training() -> None:
    assert compared(1_000, PLAIN, COMPILED).advised == "torch"
    plain, compiled = replace(PLAIN, training_s=1000.0), replace(COMPILED, training_s=820.0)
    long = compared(100_000, plain, compiled)
    assert long.advised == "torch.compile"
    assert long.message.endswith("100,000 steps take 13 min 40 s instead of 16 min 40 s.")
    at_once = replace(COMPILED, start_s=0.0, pays_after=0, training_s=8.0)
    assert compared(1_000, PLAIN, at_once).advised == "torch.compile"
    unsure = replace(COMPILED, pays_after=None, training_s=1.0)
    assert compared(100_000, PLAIN, unsure).advised == "torch"


def test_a_framework_that_is_missing_says_how_to_install_it() -> None:
    missing = FrameworkTimes("keras", problem="this needs keras. Install it: pip install keras")
    lines = compared(1_000, PLAIN, COMPILED, missing).lines()
    assert "Keras on JAX was not compared: this needs keras. Install it: pip install keras" in lines
    assert any("0.80 (0.70 to 0.90)" in line and "20,000 steps" in line for line in lines)
    assert lines[-1] == "Stay with plain torch: for 1,000 steps, nothing else surely pays."
    assert max(map(len, lines)) <= 100
    plain = json.loads(json.dumps(compared(1_000, PLAIN, missing).to_json()))
    assert plain["advised"] == "torch"
    assert plain["frameworks"][1]["problem"] == missing.problem


def test_layers_of_a_model_are_listed_with_their_weights() -> None:
    embedding, lstm = torch.nn.Embedding(5, 4), torch.nn.LSTM(4, 3, num_layers=2)
    output = torch.nn.Linear(4, 5, bias=False)
    output.weight = embedding.weight
    layers = {
        "embedding": embedding,
        "layers": lstm,
        "norm": torch.nn.BatchNorm1d(3),
        "output": output,
    }
    model = torch.nn.ModuleDict(layers)
    listed = list(weights_of_layers(model))
    assert [layer.name for layer in listed] == ["embedding", "layers", "layers", "norm"]
    assert set(listed[2].arrays) == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    np.testing.assert_array_equal(
        listed[2].arrays["weight_ih"], dict(lstm.named_parameters())["weight_ih_l1"].detach()
    )
    assert set(listed[3].arrays) == {"weight", "bias", "running_mean", "running_var"}
    with torch.no_grad():
        embedding.weight += 1.0
    assert abs(listed[0].arrays["weight"] - embedding.weight.detach().numpy()).min() > 0.9


@pytest.mark.parametrize(
    "words",
    [
        ("--frameworks", "--objective", "money"),
        ("--frameworks", "--to", "new.yaml"),
        ("--keras", "mine:build"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(Experiment(**FIELDS).to_yaml())
    code, _, err = Shell(tmp_path, capsys)("advise", str(tmp_path / "small.yaml"), *words)
    assert code == 2
    assert "--frameworks" in err


def test_another_precision_is_refused() -> None:
    with pytest.raises(ExperimentError) as refused:
        compare_frameworks(Experiment(**FIELDS, plan={"precision": "bf16"}), budget_s=1.0)
    assert refused.value.field == "plan.precision"


def test_another_framework_gets_the_model_the_samples_and_what_torch_computes() -> None:
    experiment = Experiment(**FIELDS)
    task = TrialTask(
        run_id="run",
        trial=0,
        attempt=0,
        experiment_json=experiment.model_dump_json(),
        params={"global_batch": "auto"},
        plan=PartialPlan.of(workers=1, micro_batch=64, accumulation=1, compile="none", loaders=0),
    )
    steps = TorchSteps(task)
    steps.make_first(2)
    assert steps.make(0.01) >= 3
    assert steps.num_steps == 3 * -(-1437 // 64)
    same = steps.for_another_framework()
    assert [layer.kind for layer in same.layers] == ["Linear"] * 3
    # By hand: three layers, with a ReLU after all but the last.
    values = same.inputs[: len(same.outputs)].reshape(len(same.outputs), -1).astype(float)
    for number, layer in enumerate(same.layers):
        values = values @ layer.arrays["weight"].T + layer.arrays["bias"]
        values = np.maximum(values, 0.0) if number < 2 else values
    np.testing.assert_allclose(values, same.outputs, atol=1e-5)
    right = values[np.arange(len(values)), same.targets[: len(values)]]
    loss = np.mean(np.log(np.exp(values).sum(axis=1)) - right)
    assert same.loss == pytest.approx(loss, abs=1e-5)
    assert same.optimizer_values["lr"] == steps.settings.lr


@pytest.mark.slow
def test_frameworks_make_the_steps_of_a_trial() -> None:
    starts: list[str] = []
    comparison = compare_frameworks(Experiment(**FIELDS), budget_s=1.0, note=starts.append)
    assert starts == ["starting plain torch", "starting compiled torch", "starting Keras on JAX"]
    plain, *others = comparison.frameworks
    assert comparison.num_steps == 3 * -(-1437 // 64)
    assert comparison.batch == 64
    assert plain.problem is None
    for times in others:
        if times.problem is not None:
            assert "Install" in times.problem
            continue
        assert times.difference is not None
        assert times.difference < 1e-4
        assert times.training_s is not None
