"""Optimizers by their torch names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from workbench.experiment import Training
from workbench.foundation.errors import ExperimentError
from workbench.training.optimizers import optimizer_factory, optimizer_names

ON_SPARSE_OR_MATRICES_ONLY = {"SparseAdam", "Muon"}


@pytest.mark.parametrize("name", sorted(set(optimizer_names()) - ON_SPARSE_OR_MATRICES_ONLY))
def test_every_optimizer_of_torch_takes_a_step(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = optimizer_factory(Training(optimizer=name.lower()), 0.01)(model.parameters())
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    assert type(optimizer) is getattr(torch.optim, name)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert any(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )


def test_options_reach_the_optimizer() -> None:
    training = Training(
        optimizer="adamw", weight_decay=0.3, optimizer_options={"betas": [0.8, 0.9]}
    )
    group = optimizer_factory(training, 0.1)(nn.Linear(1, 1).parameters()).param_groups[0]
    assert (group["betas"], group["weight_decay"]) == ((0.8, 0.9), 0.3)


def test_momentum_is_that_of_sgd() -> None:
    sgd = optimizer_factory(Training(optimizer="sgd", momentum=0.7), 0.1)(
        nn.Linear(1, 1).parameters()
    )
    assert sgd.param_groups[0]["momentum"] == 0.7


@pytest.mark.parametrize(
    ("training", "field"),
    [
        ({"optimizer": "adamx"}, "training.optimizer"),
        ({"optimizer": "lbfgs"}, "training.optimizer"),
        ({"optimizer": "optimizer"}, "training.optimizer"),
        ({"optimizer_options": {"beta": 0.9}}, "training.optimizer_options.beta"),
        ({"optimizer_options": {"lr": 0.5}}, "training.optimizer_options.lr"),
        ({"optimizer_options": {"weight_decay": 0.5}}, "training.optimizer_options.weight_decay"),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": 0.5}},
            "training.optimizer_options.momentum",
        ),
        ({"optimizer_options": {"betas": [2.0, 0.9]}}, "training.optimizer_options"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "training.weight_decay"),
    ],
)
def test_what_torch_does_not_offer_is_refused(training: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        optimizer_factory(Training(**training), 0.1)(nn.Linear(1, 1).parameters())
    assert caught.value.field == field
