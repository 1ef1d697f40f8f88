"""A small convolutional network for images from 8x8 upwards."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from workbench.models.configurations import ConvNetConfiguration
from workbench.models.mlp import ACTIVATIONS

_MAX_GROUPS = 8


class ConvNet(nn.Module):
    """Blocks of convolution, normalisation and activation.

    The mean over positions feeds a linear output.
    """

    def __init__(
        self, configuration: ConvNetConfiguration, *, input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        """Build it; a block halves the image unless fewer than two rows or columns would be
        left.
        """
        super().__init__()
        layers, channels = convolutions(configuration, input_shape)
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(configuration.dropout)
        self.output = nn.Linear(channels, num_outputs)

    def pieces(self) -> list[Any]:
        """Return the layers and the output, between which the model can be cut into stages."""
        return [*self.features, (self._predict, self.dropout, self.output)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, num_outputs)."""
        return self._predict(self.features(inputs))

    def _predict(self, features: Tensor) -> Tensor:
        return self.output(self.dropout(features.mean(dim=(2, 3))))


def convolutions(
    configuration: ConvNetConfiguration, input_shape: tuple[int, ...]
) -> tuple[list[nn.Module], int]:
    """Return the layers up to the last block, and their number of channels."""
    channels, height, width = input_shape
    layers: list[nn.Module] = []
    for block in range(configuration.num_blocks):
        block_channels = configuration.width * 2**block
        for _ in range(configuration.convolutions_per_block):
            layers += [
                nn.Conv2d(channels, block_channels, kernel_size=3, padding=1, bias=False),
                _normalisation(configuration.normalisation, block_channels),
                ACTIVATIONS[configuration.activation](),
            ]
            channels = block_channels
        if min(height, width) >= 4:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    return layers, channels


def _normalisation(kind: str, num_channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(num_channels)
    return nn.GroupNorm(math.gcd(_MAX_GROUPS, num_channels), num_channels)
