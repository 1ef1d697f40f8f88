"""A penalty on the factors of channels separates the dispensable ones before they are pruned."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from tests.deploy.compression.test_pruning import build
from workbench.data.splits import ArraySplit
from workbench.deploy.compression.compression import Teacher, fine_tune
from workbench.deploy.compression.pruning import prune, scales_of
from workbench.training.tensor_source import Source


def train(model: nn.Module, split: ArraySplit, slimming: float) -> torch.Tensor:
    """Train a copy; return the sizes of its factors, sorted."""
    slimmed = copy.deepcopy(model)
    scales = scales_of(slimmed)
    fine_tune(
        slimmed,
        Teacher(model, split),
        Source(split, torch.device("cpu")),
        nn.functional.cross_entropy,
        epochs=8,
        lr=0.02,
        distillation=0.0,
        batch=32,
        seed=0,
        classes=True,
        report=lambda *_: False,
        scales=scales,
        slimming=slimming,
    )
    return torch.cat([scale.detach().abs() for scale in scales]).sort().values


def test_the_penalty_makes_factors_small_and_the_model_can_be_pruned() -> None:
    random = np.random.default_rng(0)
    targets = random.integers(0, 2, 256)
    images = (
        random.standard_normal((256, 1, 8, 8)).astype(np.float32) + targets[:, None, None, None]
    )
    split = ArraySplit(images.astype(np.float32), targets)
    model, inputs = build("convnet")
    without, with_penalty = (train(model, split, slimming) for slimming in (0.0, 0.02))
    assert with_penalty.mean() < 0.7 * without.mean()
    assert prune(model, 0.5, inputs) is not model


def test_only_factors_of_channels_that_can_be_removed_are_penalised() -> None:
    model, _ = build("convnet")
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {id(scale) for scale in scales_of(model)} <= {id(norm.weight) for norm in norms}
    assert scales_of(model)
    assert scales_of(build("mlp")[0]) == []
