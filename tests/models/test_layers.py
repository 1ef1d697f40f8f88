from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import configure
from workbench.models.layers import describe_layers


def test_layers_of_a_perceptron_are_counted_as_by_hand() -> None:
    configuration = configure("mlp", {"hidden_width": 16, "num_layers": 1})
    model = configuration.build(input_shape=(1, 8, 8), num_outputs=10, vocabulary_size=None)
    layers = [
        (layer.name, layer.kind, layer.depth, layer.output_shape, layer.num_parameters)
        for layer in describe_layers(model, torch.zeros(3, 1, 8, 8))
    ]
    assert layers == [
        ("layers", "Sequential", 0, (10,), 64 * 16 + 16 + 16 * 10 + 10),
        ("layers.0", "Flatten", 1, (64,), 0),
        ("layers.1", "Linear", 1, (16,), 64 * 16 + 16),
        ("layers.2", "ReLU", 1, (16,), 0),
        ("layers.3", "Linear", 1, (10,), 16 * 10 + 10),
    ]


def test_shared_parameters_count_where_they_come_first() -> None:
    configuration = configure("transformer", {"width": 8, "num_layers": 1, "num_heads": 2})
    model = configuration.build(input_shape=(5,), num_outputs=11, vocabulary_size=11)
    layers = {
        layer.name: layer for layer in describe_layers(model, torch.zeros(2, 5, dtype=torch.int64))
    }
    assert layers["token_embedding"].num_parameters == 11 * 8
    assert (layers["output"].num_parameters, layers["output"].shares) == (0, "token_embedding")
    assert layers["output"].output_shape == (5, 11)
    assert layers["blocks"].output_shape is None, "a list of modules is not called"
    outermost = sum(layer.num_parameters for layer in layers.values() if layer.depth == 0)
    assert outermost == sum(parameter.numel() for parameter in model.parameters())


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(3, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.cells(inputs.transpose(0, 1))[0][-1]


def test_a_shape_without_samples_in_front_is_told_in_full() -> None:
    [cells] = describe_layers(TimeFirst(), torch.zeros(2, 7, 3))
    assert cells.output_shape == (7, 2, 4)
    assert cells.num_parameters == 4 * (4 * 3 + 4 * 4 + 4 + 4)


def test_the_module_that_cannot_take_its_inputs_is_named() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), nn.Linear(5, 2)))
    with pytest.raises(ExperimentError) as caught:
        describe_layers(model, torch.zeros(2, 6))
    assert caught.value.field == "model"
    assert "1.1" in caught.value.problem
    assert "('batch', 6)" in str(caught.value.allowed)
    assert all(not module._forward_hooks for module in model.modules()), "nothing is left behind"
