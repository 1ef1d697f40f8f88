"""Forecasts of series: linear ones, corrected by a perceptron, relative to the last values.

Source: Zeng et al., Are Transformers Effective for Time Series Forecasting? (2023), for the linear
model and for subtracting the last value (NLinear).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.models.application_configurations import ForecasterConfiguration
from workbench.models.mlp import ACTIVATIONS


class Forecaster(nn.Module):
    """Maps a window to the next values of the features that come first in it."""

    def __init__(
        self,
        configuration: ForecasterConfiguration,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        num_series: int,
    ) -> None:
        """Build it; it starts as the linear forecast, and that as the mean of the window."""
        super().__init__()
        time, num_features = input_shape
        self.num_series = num_series
        self.horizon = num_outputs // num_series
        self.linear = nn.Linear(time, self.horizon)
        nn.init.constant_(self.linear.weight, 1.0 / time)
        nn.init.zeros_(self.linear.bias)
        layers: list[nn.Module] = []
        width = (time + 1) * num_features
        for _ in range(configuration.num_layers):
            layers += [
                nn.Linear(width, configuration.hidden_width),
                ACTIVATIONS[configuration.activation](),
                nn.Dropout(configuration.dropout),
            ]
            width = configuration.hidden_width
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, num_outputs)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, time, features) to (batch, horizon * series), all series of the next time
        first.
        """
        last = inputs[:, -1:, :]
        relative = inputs - last
        own = self.linear(relative[:, :, : self.num_series].transpose(1, 2)).transpose(1, 2)
        correction = self.output(self.hidden(torch.cat([relative, last], dim=1).flatten(1)))
        return (last[:, :, : self.num_series] + own).flatten(1) + correction
