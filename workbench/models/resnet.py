"""Residual networks in the style for CIFAR.

Three stages of basic blocks, shortcuts without parameters.

Source: He et al., Deep Residual Learning for Image Recognition (2016), section 4.2, option A.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from workbench.models.configurations import ResNetConfiguration


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut that skips pixels and pads channels as it must."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        """Build it; the last batch norm starts at zero, so that the block starts as the
        identity.
        """
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
        """Map (batch, in_channels, height, width) to (batch, channels, height / stride, width /
        stride).
        """
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
    """A convolution, three stages of (depth - 2) / 6 blocks, the mean over positions, a linear
    output.
    """

    def __init__(
        self, configuration: ResNetConfiguration, *, input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        """Build it with He initialisation of the convolutions."""
        super().__init__()
        width = configuration.width
        self.conv = nn.Conv2d(input_shape[0], width, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for block in range((configuration.depth - 2) // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(configuration.dropout)
        self.output = nn.Linear(channels, num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def pieces(self) -> list[Any]:
        """Return stem, blocks and output, between which the model can be cut into stages."""
        stem = (self._begin, self.conv, self.norm)
        return [stem, *self.blocks, (self._predict, self.dropout, self.output)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, num_outputs)."""
        return self._predict(self.blocks(self._begin(inputs)))

    def _begin(self, inputs: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(inputs)), inplace=True)

    def _predict(self, features: Tensor) -> Tensor:
        return self.output(self.dropout(features.mean(dim=(2, 3))))
