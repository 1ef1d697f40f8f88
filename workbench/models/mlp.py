"""Perceptrons for any numbers and for forecasts, and the activation functions of the zoo.

A forecast is the sum of a linear model and a perceptron. Both see values relative to the last ones.

Source: Zeng et al., Are Transformers Effective for Time Series Forecasting? (2023), for the linear
model and for subtracting the last value (NLinear).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class MLP(nn.Module):
    """Hidden layers of equal width, then a linear output."""

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        hidden_width: int,
        num_layers: int,
        activation: str,
        dropout: float = 0.0,
        base_width: int | None = None,
    ) -> None:
        """Build the network with PyTorch's default initialisation.

        Args:
            input_shape: Shape of a sample.
            num_outputs: Number of outputs.
            hidden_width: Units of each hidden layer.
            num_layers: Number of hidden layers.
            activation: A name in `ACTIVATIONS`.
            dropout: Probability that a hidden unit is dropped in training.
            base_width: With a width, outputs begin as small at other widths as they would be with
                random signs, as muP needs. See `rate_factors` of the configuration.

        Source: Yang et al. 2022, "Tensor Programs V", table 3.
        """
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for _ in range(num_layers):
            layers += [nn.Linear(width, hidden_width), ACTIVATIONS[activation]()]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = hidden_width
        output = nn.Linear(width, num_outputs)
        if base_width is not None and num_layers:
            # By default, the deviation falls with the root of the width. muP needs the width.
            with torch.no_grad():
                output.weight *= math.sqrt(base_width / hidden_width)
        self.layers = nn.Sequential(*layers, output)

    def pieces(self) -> list[nn.Module]:
        """Return the layers. The model can be cut into stages between them."""
        return list(self.layers)

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        """Return pairs of layers that workers can divide, and the row blocks of the first."""
        linear = [
            f"layers.{name}"
            for name, layer in self.layers.named_children()
            if isinstance(layer, nn.Linear)
        ]
        return [
            (first, second, 1) for first, second in zip(linear[::2], linear[1::2], strict=False)
        ]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) to (batch, num_outputs)."""
        return self.layers(inputs)


class Forecaster(nn.Module):
    """Maps a window to the next values of its first features."""

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        num_series: int,
        hidden_width: int,
        num_layers: int,
        dropout: float,
        activation: str,
    ) -> None:
        """Build the model. It starts as a linear forecast, the mean of the window."""
        super().__init__()
        time, num_features = input_shape
        self.num_series = num_series
        self.horizon = num_outputs // num_series
        self.linear = nn.Linear(time, self.horizon)
        nn.init.constant_(self.linear.weight, 1.0 / time)
        nn.init.zeros_(self.linear.bias)
        layers: list[nn.Module] = []
        width = (time + 1) * num_features
        for _ in range(num_layers):
            layers += [
                nn.Linear(width, hidden_width),
                ACTIVATIONS[activation](),
                nn.Dropout(dropout),
            ]
            width = hidden_width
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, num_outputs)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, time, features) to (batch, horizon * series), the next time first."""
        last = inputs[:, -1:, :]
        relative = inputs - last
        own = self.linear(relative[:, :, : self.num_series].transpose(1, 2)).transpose(1, 2)
        correction = self.output(self.hidden(torch.cat([relative, last], dim=1).flatten(1)))
        return (last[:, :, : self.num_series] + own).flatten(1) + correction
