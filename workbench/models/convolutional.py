"""Convolutional networks for images: a plain one, a residual one, and a U-Net.

The plain network takes images of at least 8x8 pixels. The residual network is the variant for
CIFAR: three stages of basic blocks, and shortcuts without parameters. The U-Net predicts a class
for each pixel. It combines features of smaller and smaller images with features at full size, with
padding and batch normalisation.

Sources: He et al., Deep Residual Learning for Image Recognition (2016), section 4.2, option A.
Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation (2015).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.models.mlp import ACTIVATIONS

_MAX_GROUPS = 8


class ConvNet(nn.Module):
    """Blocks of convolution, normalisation and activation, then a linear output of their mean."""

    def __init__(
        self, *, input_shape: tuple[int, ...], num_outputs: int, dropout: float, **blocks: Any
    ) -> None:
        """Build the network.

        Args:
            input_shape: (channels, height, width).
            num_outputs: Number of outputs.
            dropout: Probability that a feature is dropped before the output layer.
            **blocks: The options of `convolutions`.
        """
        super().__init__()
        layers, channels = convolutions(input_shape, **blocks)
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels, num_outputs)

    def pieces(self) -> list[Any]:
        """Return the layers and the output. The model can be cut into stages between them."""
        return [*self.features, (self._predict, self.dropout, self.output)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, num_outputs)."""
        return self._predict(self.features(inputs))

    def _predict(self, features: Tensor) -> Tensor:
        return self.output(self.dropout(features.mean(dim=(2, 3))))


def convolutions(
    input_shape: tuple[int, ...],
    *,
    width: int,
    num_blocks: int,
    convolutions_per_block: int,
    activation: str,
    normalisation: str,
) -> tuple[list[nn.Module], int]:
    """Return the layers up to the last block, and their number of channels.

    A block halves the image, unless that would leave fewer than two rows or columns.
    """
    channels, num_rows, num_columns = input_shape
    layers: list[nn.Module] = []
    for block in range(num_blocks):
        block_channels = width * 2**block
        for _ in range(convolutions_per_block):
            layers += [
                nn.Conv2d(channels, block_channels, kernel_size=3, padding=1, bias=False),
                _normalisation(normalisation, block_channels),
                ACTIVATIONS[activation](),
            ]
            channels = block_channels
        if min(num_rows, num_columns) >= 4:
            layers.append(nn.MaxPool2d(2))
            num_rows //= 2
            num_columns //= 2
    return layers, channels


def _normalisation(kind: str, num_channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(num_channels)
    # The number of groups must divide the number of channels.
    return nn.GroupNorm(math.gcd(_MAX_GROUPS, num_channels), num_channels)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to a shortcut that skips pixels and pads channels as needed."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        """Build the block. It starts as the identity: its last batch norm starts at zero."""
        super().__init__()
        self.conv1 = nn.Conv2d(
            in_channels, channels, kernel_size=3, stride=stride, padding=1, bias=False
        )
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.norm2.weight)
        self.stride = stride
        self.num_new_channels = channels - in_channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, in_channels, height, width) to (batch, channels, height/s, width/s)."""
        residual = functional.relu(self.norm1(self.conv1(inputs)), inplace=True)
        residual = self.norm2(self.conv2(residual))
        shortcut = inputs
        if self.stride > 1:
            shortcut = shortcut[:, :, :: self.stride, :: self.stride]
        if self.num_new_channels:
            before = self.num_new_channels // 2
            shortcut = functional.pad(
                shortcut, (0, 0, 0, 0, before, self.num_new_channels - before)
            )
        return functional.relu(residual + shortcut, inplace=True)


class ResNet(nn.Module):
    """A convolution, three stages of (depth - 2) / 6 blocks, and a linear output of their mean."""

    def __init__(
        self, *, num_channels: int, num_outputs: int, depth: int, width: int, dropout: float
    ) -> None:
        """Build the network with He initialisation of the convolutions."""
        super().__init__()
        self.conv = nn.Conv2d(num_channels, width, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for block in range((depth - 2) // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels, num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def pieces(self) -> list[Any]:
        """Return stem, blocks and output. The model can be cut into stages between them."""
        stem = (self._begin, self.conv, self.norm)
        return [stem, *self.blocks, (self._predict, self.dropout, self.output)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, num_outputs)."""
        return self._predict(self.blocks(self._begin(inputs)))

    def _begin(self, inputs: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(inputs)), inplace=True)

    def _predict(self, features: Tensor) -> Tensor:
        return self.output(self.dropout(features.mean(dim=(2, 3))))


class UNet(nn.Module):
    """Pairs of convolutions at halved sizes and back, with scores of the classes for each pixel."""

    def __init__(
        self,
        *,
        num_channels: int,
        num_outputs: int,
        width: int,
        num_halvings: int,
        dropout: float,
        activation: str,
    ) -> None:
        """Build the network with PyTorch's default initialisation."""
        super().__init__()
        widths = [width * 2**level for level in range(num_halvings + 1)]
        activation_type = ACTIVATIONS[activation]
        self.down = nn.ModuleList(
            _pair(before, after, activation_type)
            for before, after in zip([num_channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            _pair(after + 2 * after, after, activation_type) for after in reversed(widths[:-1])
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Conv2d(width, num_outputs, kernel_size=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, height, width, num_outputs)."""
        at_size: list[Tensor] = []
        features = inputs
        for level, pair in enumerate(self.down):
            if level > 0:
                features = functional.max_pool2d(features, 2)
            features = pair(features)
            at_size.append(features)
        for pair, skipped in zip(self.up, reversed(at_size[:-1]), strict=True):
            larger = functional.interpolate(features, size=skipped.shape[2:], mode="nearest")
            features = pair(torch.cat([larger, skipped], dim=1))
        return self.output(self.dropout(features)).permute(0, 2, 3, 1)


def _pair(before: int, channels: int, activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for num_inputs in (before, channels):
        layers += [
            nn.Conv2d(num_inputs, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            activation(),
        ]
    return nn.Sequential(*layers)
