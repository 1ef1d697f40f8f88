"""A pruned model computes what the whole one computes without those channels, and says no where it
cannot.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.builders.examples import examples
from workbench.deploy.compression.pruning import (
    choose_kept,
    find_channels,
    num_kept,
    prune,
    silence,
)
from workbench.foundation.errors import ExperimentError
from workbench.models.adapters import build_model

IMAGES, TOKENS = torch.randn(3, 1, 8, 8), torch.randint(0, 20, (3, 6))
ZOO: dict[str, tuple[dict[str, Any], Tensor]] = {
    "mlp": ({"hidden_width": 40, "num_layers": 3, "dropout": 0.1}, IMAGES),
    "convnet": ({"width": 24, "num_blocks": 2, "convolutions_per_block": 2}, IMAGES),
    "resnet": ({"width": 16, "depth": 14}, IMAGES),
    "transformer": ({"width": 16, "num_heads": 2, "num_layers": 2}, TOKENS),
}


class Own(nn.Module):
    """Flattens pixels of channels, and normalises hidden values."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU()),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 32),
            nn.BatchNorm1d(32),
            nn.Sigmoid(),
            nn.Linear(32, 4),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs)


class LooksInside(Own):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(inputs) + self.body[0](inputs).sum()


def build(name: str) -> tuple[Any, Tensor]:
    torch.manual_seed(1)
    if name == "own":
        model, inputs = Own(), IMAGES
    else:
        values, inputs = ZOO[name]
        shape = tuple(inputs.shape[1:])
        model = build_model(
            name,
            values,
            input_shape=shape,
            num_outputs=5,
            vocabulary_size=20 if name == "transformer" else None,
        )
    for module in model.modules():  # as after a training
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
            statistics: Any = module
            statistics.running_mean.normal_()
            statistics.running_var.uniform_(0.5, 2.0)
    return model.eval(), inputs


@pytest.mark.parametrize("name", [*ZOO, "own"])
def test_a_pruned_model_equals_the_whole_one_with_those_channels_at_zero(name: str) -> None:
    model, inputs = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    smaller, silenced = prune(model, 0.5, inputs), silence(model, choose_kept(model, 0.5))
    with torch.no_grad():
        torch.testing.assert_close(smaller(inputs), silenced(inputs), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(smaller(inputs), model(inputs), atol=1e-5)
    sizes = [sum(value.numel() for value in network.parameters()) for network in (smaller, model)]
    assert sizes[0] < 0.8 * sizes[1]
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    smaller.train()(inputs).sum().backward()  # it can be trained
    assert all(value.grad is not None for value in smaller.parameters())


@pytest.mark.parametrize("name", [*ZOO, "own"])
def test_nothing_changes_at_ratio_0(name: str) -> None:
    model, inputs = build(name)
    with torch.no_grad():
        assert torch.equal(prune(model, 0.0, inputs)(inputs), model(inputs))


@given(count=st.integers(1, 2000), ratio=st.floats(0, 0.99))
def test_what_stays_is_a_multiple_of_8_or_16_or_everything(count: int, ratio: float) -> None:
    kept = num_kept(count, ratio)
    assert 0 < kept <= count
    assert kept == count or kept % (16 if count >= 64 else 8) == 0
    assert kept >= num_kept(count, min(0.99, ratio + 0.1))


@examples(20)
@given(widths=st.lists(st.integers(9, 70), min_size=1, max_size=3), ratio=st.floats(0.1, 0.9))
def test_any_chain_of_linear_layers(widths: list[int], ratio: float) -> None:
    layers: list[nn.Module] = []
    for inputs, outputs in zip([5, *widths], [*widths, 3], strict=True):
        layers += [nn.Linear(inputs, outputs), nn.GELU()]
    model, inputs = nn.Sequential(*layers[:-1]), torch.randn(4, 5)
    expected = silence(model, choose_kept(model, ratio))
    with torch.no_grad():
        torch.testing.assert_close(
            prune(model, ratio, inputs)(inputs), expected(inputs), rtol=1e-4, atol=1e-4
        )


def test_channels_that_are_added_to_others_stay() -> None:
    model, _ = build("resnet")
    smaller: Any = prune(model, 0.5, IMAGES)
    assert {channel.producer.rpartition(".")[2] for channel in find_channels(model)} == {"conv1"}
    assert model.conv.out_channels == smaller.conv.out_channels


def test_the_channels_with_the_smallest_weights_go_first() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    with torch.no_grad():
        model[0].weight[3:11] *= 1e-3
    kept = choose_kept(model, 0.5)
    assert [indices.tolist() for indices in kept.values()] == [[0, 1, 2, 11, 12, 13, 14, 15]]


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (nn.Sequential(nn.Linear(4, 2)), torch.randn(2, 4), "only one other reads"),
        (
            nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
            torch.randn(2, 4),
            "too few channels",
        ),
        (nn.LSTM(4, 64), torch.randn(3, 2, 4), "LSTM has no channels"),
        (LooksInside(), IMAGES, "another layer reads the channels"),
    ],
)
def test_what_cannot_be_pruned_is_refused(model: nn.Module, inputs: Tensor, words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        prune(model, 0.5, inputs)


def test_layers_that_share_weights_stay() -> None:
    model: Any = nn.Sequential(
        nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    model[2].weight = model[0].weight
    assert find_channels(model) == []
