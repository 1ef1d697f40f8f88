"""Training with differential privacy: clipping, noise, what is spent, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from workbench.advisor.open_settings import choices_of
from workbench.data.batches import drawn_batches
from workbench.experiment import Experiment, Training
from workbench.experiment.plan import Hardware
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialReported
from workbench.sweeps.measured_metrics import check_what_is_reported
from workbench.training.planning.settings import resolve
from workbench.training.strategies.private_steps import PrivateSteps, privacy_budget
from workbench.training.strategies.strategy import Hiding, MicroBatch, StepSettings, Worker
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

FEW = [("mlp", (30,)), ("convolution", (1, 6, 6))]


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(30, 5), nn.Tanh(), nn.Linear(5, 2))
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )


def steps_of(model: nn.Module, hiding: Hiding) -> PrivateSteps:
    strategy = PrivateSteps(StepSettings(loss=nn.functional.cross_entropy, hiding=hiding))
    strategy.setup(model, lambda parameters: torch.optim.SGD(parameters, lr=1.0), Worker(0, 1))
    return strategy


def by_hand(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, max_norm: float
) -> list[Any]:
    """Clip the gradient of one sample after the other, and add them up."""
    sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for one, target in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(model(one[None]), target[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients))
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient * min(1.0, max_norm / norm)
    return sums


@pytest.mark.parametrize(("kind", "shape"), FEW)
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_the_gradient_is_the_sum_of_clipped_ones_over_the_expected_batch(
    kind: str, shape: tuple[int, ...], max_norm: float
) -> None:
    model = model_of(kind)
    inputs, targets = torch.randn(7, *shape), torch.randint(2, (7,))
    expected = by_hand(model, inputs, targets, max_norm)
    strategy = steps_of(model, Hiding(max_norm, noise_multiplier=0.0, expected_batch=10))
    parts = [MicroBatch(inputs[:4], targets[:4], 4 / 7), MicroBatch(inputs[4:], targets[4:], 3 / 7)]
    loss = strategy.forward_backward(parts)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(model(inputs), targets).detach())
    for parameter, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted / 10)


def test_noise_has_the_stated_deviation_and_hides_a_step_without_samples() -> None:
    model = nn.Linear(400, 100)
    strategy = steps_of(model, Hiding(max_norm=0.5, noise_multiplier=3.0, expected_batch=30))
    assert strategy.forward_backward([]).item() == 0.0
    assert model.weight.grad is not None
    first = model.weight.grad.clone()
    assert first.std().item() == pytest.approx(3.0 * 0.5 / 30, rel=0.03)
    strategy.forward_backward([])
    assert not torch.equal(first, model.weight.grad)


def test_batches_take_each_sample_with_the_same_probability() -> None:
    taken = np.zeros(50)
    sizes = []
    for batch in drawn_batches(50, sample_rate=0.1, num_batches=4000):
        assert len(set(batch.tolist())) == len(batch)
        taken[batch] += 1
        sizes.append(len(batch))
    assert np.abs(taken / 4000 - 0.1).max() < 0.03  # six deviations
    assert np.var(sizes) == pytest.approx(50 * 0.1 * 0.9, rel=0.15)


def renyi_epsilon(sigma: float, rate: float, num_steps: int, delta: float) -> float:
    """Mironov et al. 2019, section 3.3, at whole orders; conversion of Canonne et al. 2020."""
    epsilons = []
    for order in range(2, 64):
        moment = sum(
            math.comb(order, k)
            * (1 - rate) ** (order - k)
            * rate**k
            * math.exp((k * k - k) / (2 * sigma**2))
            for k in range(order + 1)
        )
        spent = num_steps * math.log(moment) / (order - 1)
        epsilons.append(spent + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
    return min(epsilons)


def test_the_accountant_agrees_with_published_values_and_with_its_own_inverse() -> None:
    training = Training(epochs=100, private={"epsilon": 2.0})  # type: ignore[arg-type]
    budget = privacy_budget(training, num_samples=60_000, global_batch=600, num_steps=100 * 100)
    assert budget is not None
    assert budget.spent_epsilon(100 * 100) == pytest.approx(2.0, abs=0.01)
    assert budget.spent_epsilon(100) < budget.spent_epsilon(5000) < 2.0
    known = type(budget)(Hiding(1.0, 4.0, 600), 0.01, 1e-5)
    assert known.spent_epsilon(10_000) == pytest.approx(
        renyi_epsilon(4.0, 0.01, 10_000, 1e-5), rel=0.02
    )
    assert (
        known.spent_epsilon(10_000) < 1.26
    )  # by the looser bound of Abadi et al. 2016, section 3.2


def experiment(model: Any = "mlp", **fields: Any) -> Experiment:
    training = {"epochs": 2, "global_batch": 128, "optimizer": "sgd", "private": {"epsilon": 8.0}}
    return Experiment(
        model=model,
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        **{**fields, "training": training | fields.get("training", {})},
    )


@pytest.mark.slow
def test_a_trial_spends_what_is_allowed_and_continues_to_count_after_an_interruption(
    tmp_path: Path,
) -> None:
    def train(stops_at_epoch: float) -> tuple[str, dict[float, float]]:
        spent: dict[float, float] = {}

        def report(event: Any) -> bool:
            if isinstance(event, TrialReported) and "epsilon" in event.values:
                spent[event.epoch] = event.values["epsilon"]
            return event.type == "checkpoint_saved" and max(spent) >= stops_at_epoch

        written = experiment().model_dump_json()
        task = TrialTask("r", 0, 0, written, seed=1, folder=str(tmp_path), resume=True)
        ended = run_trial(task, report)
        return ended.state, spent

    state, before = train(stops_at_epoch=1)
    assert (state, list(before)) == ("stopped", [1.0])
    state, after = train(stops_at_epoch=9)
    assert state == "complete"
    assert before[1.0] < after[2.0] == pytest.approx(8.0, abs=0.02)


def test_a_convnet_with_group_normalisation_is_trained(tmp_path: Path) -> None:
    asked = experiment(
        {"name": "convnet", "width": 8, "normalisation": "group"}, training={"epochs": 1}
    )
    task = TrialTask("r", 0, 0, asked.model_dump_json(), seed=1, folder=str(tmp_path), resume=True)
    ended = run_trial(task, lambda event: False)
    assert ended.state == "complete", ended.traceback


def test_batch_normalisation_is_refused() -> None:
    with pytest.raises(ExperimentError, match="BatchNorm1d, which mixes the samples of a batch"):
        steps_of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), Hiding(1.0, 1.0, 8))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"training": {"clip_norm": 1.0}}, "training.clip_norm"),
        ({"training": {"augment": {"mixup": 0.2}}}, "training.augment.mixup"),
        ({"training": {"lr_rule": "adascale"}}, "training.lr_rule"),
        ({"plan": {"workers": 2}}, "plan.workers"),
        ({"plan": {"precision": "bf16"}}, "plan.precision"),
        ({"search": {"workers": {"choices": [1, 2]}}}, "search.workers"),
        ({"federated": {"clients": 4}}, "training.private"),
        (
            {
                "training": {"private": None},
                "search": {"private.epsilon": {"low": 1.0, "high": 8.0}},
            },
            "search.private.epsilon",
        ),
    ],
)
def test_what_would_break_the_promise_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        experiment(**fields)
    assert refused.value.field == field


def test_a_gpu_that_computes_in_half_precision_leaves_a_private_training_in_single_precision() -> (
    None
):
    hardware = Hardware(has_gpu=True, has_bf16=True)
    assert (
        resolve(experiment(training={"private": None}), {}, hardware=hardware).plan.precision
        == "bf16"
    )
    assert resolve(experiment(), {}, hardware=hardware).plan.precision == "fp32"


def test_epsilon_can_be_searched_and_limited_but_not_advised() -> None:
    asked = experiment(
        training={"private": {}},
        search={"private.epsilon": {"low": 1.0, "high": 8.0}},
        constraints=[{"metric": "epsilon", "at_most": 8.0}],
    )
    check_what_is_reported(asked)
    settings = resolve(asked, {"private.epsilon": 3.0})
    assert settings.training.private is not None
    assert settings.training.private.epsilon == 3.0
    with pytest.raises(ExperimentError, match="cannot measure the steps of a private training"):
        choices_of(asked, num_train_samples=1000, max_workers=2, hardware=Hardware())
