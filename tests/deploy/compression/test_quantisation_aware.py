from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from workbench.deploy.compression.quantisers import quantise, rounding, why_not_aware
from workbench.deploy.onnx_export import write_onnx
from workbench.deploy.predictor import open_session


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)
    ).eval()


def test_what_is_learned_stays_and_the_weights_are_floats_again() -> None:
    model, inputs = make_model(), torch.randn(16, 1, 8, 8)
    before, names = model(inputs), sorted(model.state_dict())
    weight = model.get_parameter("0.weight").detach().clone()
    with rounding(model):
        rounded = model(inputs)
        assert not torch.equal(rounded, before)
        rounded.square().sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 1e-3 * parameter.grad.sign()
    assert sorted(model.state_dict()) == names
    changed = (model.get_parameter("0.weight") - weight).abs()
    torch.testing.assert_close(changed, torch.full_like(changed, 1e-3), atol=1e-6, rtol=1e-3)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_rounded_weights_have_at_most_255_values_in_each_output() -> None:
    model = make_model()
    with rounding(model):
        layer = model.get_submodule("4")
        assert max(len(row.unique()) for row in layer.weight) <= 255  # type: ignore[union-attr]


def test_training_sees_what_static_integers_compute(tmp_path: Path) -> None:
    model, inputs = make_model(), torch.randn(96, 1, 8, 8)
    with torch.no_grad():
        floats = model(inputs).numpy()
        with rounding(model):
            rounded = model(inputs).numpy()
    write_onnx(model, inputs[:2], tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "small.onnx", "qat", samples=inputs.numpy())
    integers = open_session(tmp_path / "small.onnx").run(None, {"inputs": inputs.numpy()})[0]
    assert np.abs(rounded - integers).mean() < 0.8 * np.abs(floats - integers).mean()


def test_training_with_rounding_regains_what_rounding_costs() -> None:
    torch.manual_seed(0)
    # One large weight makes the steps of a row coarse, so that the small ones are lost.
    model = nn.Sequential(nn.Linear(8, 1, bias=False))
    wanted = torch.full((1, 8), 0.3)
    wanted[0, 0] = 50.0
    with torch.no_grad():
        model[0].weight.copy_(wanted)  # type: ignore[operator]
    inputs = torch.rand(256, 8)
    inputs[:, 0] = 0.0
    targets = inputs @ wanted.T
    losses = []
    with rounding(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(60):
            loss = nn.functional.mse_loss(model(inputs), targets)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert min(losses) < 0.2 * losses[0]


def test_a_model_without_such_layers_is_named() -> None:
    assert (
        why_not_aware(nn.LSTM(3, 4))
        == "LSTM has no linear or convolutional layer whose weights are its own"
    )
    assert why_not_aware(make_model()) is None
