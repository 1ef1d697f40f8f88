"""A quantised file answers the same on every processor."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from workbench.deploy.compression.quantisers import (
    MAX_WEIGHT,
    Quantiser,
    check_products,
    quantise,
    rounding,
    why_not_aware,
)
from workbench.deploy.onnx_export import write_onnx
from workbench.deploy.predictor import open_session

QUANTISED: tuple[Quantiser, ...] = ("dynamic", "static")
EMULATOR = shutil.which("qemu-x86_64")
ANSWER = """
import sys
sys.path[:0] = {path!r}
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
np.save({to!r}, session.run(None, {{session.get_inputs()[0].name: np.load({inputs!r})}})[0])
"""


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 4))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


@pytest.fixture(params=[linear, convolutional], ids=["linear", "convolutional"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A model whose inputs and weights reach their bounds in many places, as those of trained ones
    do.
    """
    torch.manual_seed(0)
    model = request.param().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                parameter.sign() * parameter.abs().clamp_min(0.7 * parameter.abs().max())
            )
    inputs = torch.rand(64, 1, 8, 8).round()
    write_onnx(model, inputs[:2], tmp_path / "model.onnx")
    return tmp_path / "model.onnx", inputs.numpy()


def signed_weights(path: Path) -> dict[str, np.ndarray]:
    return {
        weight.name: numpy_helper.to_array(weight).astype(np.int64)
        for weight in onnx.load(path).graph.initializer
        if weight.data_type == TensorProto.INT8
    }


@pytest.mark.slow
@pytest.mark.parametrize("quantiser", QUANTISED)
def test_no_pair_of_products_of_a_file_exceeds_16_bits(
    network: tuple[Path, np.ndarray], quantiser: Quantiser, tmp_path: Path
) -> None:
    path, inputs = network
    quantise(path, tmp_path / "small.onnx", quantiser, samples=inputs)
    weights = signed_weights(tmp_path / "small.onnx")
    for weight in weights.values():
        largest = np.sort(np.abs(weight).ravel())[-2:].sum()
        assert 255 * largest <= np.iinfo(np.int16).max
    content = onnx.load(tmp_path / "small.onnx")
    types = {weight.data_type for weight in content.graph.initializer}
    assert types & {TensorProto.INT8, TensorProto.UINT8}, "something was quantised"


def pairwise(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multiply as vpmaddubsw does: two products at once, whose sum saturates at 16 bits."""
    products = values[:, :, None].astype(np.int64) * weights[None]
    pairs = products[:, 0::2] + products[:, 1::2]
    return pairs.clip(-(2**15), 2**15 - 1).sum(axis=1)


@pytest.mark.slow
def test_products_in_pairs_that_saturate_at_16_bits_are_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 32)
    with torch.no_grad():
        model.weight.copy_(model.weight.sign())  # every weight is as large as there can be
    write_onnx(model, torch.zeros(2, 64), tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "small.onnx", "dynamic")
    [weights] = [
        signed_weight
        for signed_weight in signed_weights(tmp_path / "small.onnx").values()
        if signed_weight.ndim == 2
    ]
    assert np.abs(weights).max() == MAX_WEIGHT
    values = np.random.default_rng(0).integers(200, 256, (50, 64))
    assert np.array_equal(pairwise(values, weights), values @ weights)
    assert not np.array_equal(pairwise(values, 2 * weights), values @ (2 * weights)), (
        "8 bits are too many"
    )


@pytest.mark.slow
@pytest.mark.skipif(EMULATOR is None, reason="qemu-user is not installed")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="an x86 processor is emulated")
@pytest.mark.parametrize("quantiser", QUANTISED)
def test_a_processor_without_vnni_answers_as_this_one(
    network: tuple[Path, np.ndarray], quantiser: Quantiser, tmp_path: Path
) -> None:
    path, inputs = network
    small = tmp_path / "small.onnx"
    quantise(path, small, quantiser, samples=inputs)
    session = open_session(small, threads=1)
    here = session.run(None, {session.get_inputs()[0].name: inputs})[0]
    np.save(tmp_path / "inputs.npy", inputs)
    program = ANSWER.format(
        path=[sysconfig.get_paths()["purelib"]],
        model=str(small),
        to=str(tmp_path / "there.npy"),
        inputs=str(tmp_path / "inputs.npy"),
    )
    assert EMULATOR is not None
    command = [EMULATOR, "-cpu", "Haswell", str(Path(sys.executable).resolve()), "-c", program]
    subprocess.run(command, check=True, capture_output=True)
    there = np.load(tmp_path / "there.npy")
    assert there == pytest.approx(here, abs=0.02 * np.abs(here).max())
    assert (there.argmax(1) == here.argmax(1)).all()


def test_a_file_that_could_saturate_is_named_with_its_weight(tmp_path: Path) -> None:
    def write(largest: int) -> Path:
        weights = numpy_helper.from_array(np.array([[largest, 1]], dtype=np.int8), "heavy")
        graph = helper.make_graph([], "nothing", [], [], [weights])
        onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    check_products(write(64))
    for largest in (65, 127, -128):
        with pytest.raises(ValueError, match=f"the weight heavy reaches {abs(largest)}"):
            check_products(write(largest))


def test_training_rounds_as_the_file_will() -> None:
    torch.manual_seed(0)
    layer: Any = nn.Linear(8, 3)
    scale = layer.weight.detach().abs().amax(dim=1, keepdim=True) / 64
    expected = (layer.weight.detach() / scale).round() * scale
    with rounding(layer):
        assert torch.allclose(layer.weight, expected, atol=1e-6)
        assert all(len(row.unique()) <= 129 for row in layer.weight)


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
        == "LSTM has no linear or convolutional layer with unshared weights"
    )
    assert why_not_aware(make_model()) is None
