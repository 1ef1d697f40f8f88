"""A small U-Net: what convolutions find in small images is put beside what they see at full size.

Source: Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation (2015);
with padding and batch normalisation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.models.application_configurations import UNetConfiguration
from workbench.models.mlp import ACTIVATIONS


class UNet(nn.Module):
    """Pairs of convolutions, at halved sizes and back, and scores of classes for each pixel."""

    def __init__(
        self, configuration: UNetConfiguration, *, num_channels: int, num_outputs: int
    ) -> None:
        """Build it with PyTorch's default initialisation."""
        super().__init__()
        widths = [configuration.width * 2**level for level in range(configuration.num_halvings + 1)]
        activation = ACTIVATIONS[configuration.activation]
        self.down = nn.ModuleList(
            _pair(before, width, activation)
            for before, width in zip([num_channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            _pair(width + 2 * width, width, activation) for width in reversed(widths[:-1])
        )
        self.dropout = nn.Dropout(configuration.dropout)
        self.output = nn.Conv2d(configuration.width, num_outputs, kernel_size=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, height, width, num_outputs)."""
        seen: list[Tensor] = []
        features = inputs
        for level, pair in enumerate(self.down):
            features = pair(features if level == 0 else functional.max_pool2d(features, 2))
            seen.append(features)
        for pair, beside in zip(self.up, reversed(seen[:-1]), strict=True):
            larger = functional.interpolate(features, size=beside.shape[2:], mode="nearest")
            features = pair(torch.cat([larger, beside], dim=1))
        return self.output(self.dropout(features)).permute(0, 2, 3, 1)


def _pair(before: int, channels: int, activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for given in (before, channels):
        layers += [
            nn.Conv2d(given, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            activation(),
        ]
    return nn.Sequential(*layers)
