"""Configurations of models that answer more than once for a sample.

Forecasts, classes of pixels, boxes.

As those of `configurations`, they need no torch until they build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import (
    Activation,
    ConvNetConfiguration,
    Dropout,
    ModelConfiguration,
    Normalisation,
)

if TYPE_CHECKING:
    from torch import nn


NUM_BOX_VALUES = 5
"""What is known about a box: its class, and its left, top, right and bottom edge."""


class ForecasterConfiguration(ModelConfiguration):
    """A forecast of series.

    A linear one of each from its own past, corrected by a perceptron on all of them.

    Both see values relative to the last ones, so that a series that has moved is forecast from
    where it is.
    """

    name = "forecaster"
    why_no_exits = (
        "it answers with numbers, which no probability belongs to that an exit could be left by"
    )

    hidden_width: int = Field(128, ge=1, le=65536, description="Units in each hidden layer.")
    num_layers: int = Field(
        2, ge=0, le=64, description="Number of hidden layers; 0 is a linear model."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a hidden unit is dropped in training."
    )
    activation: Activation = Field("relu", description="Function after each hidden layer.")

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build it for one series, the first feature; see ModelConfiguration.build."""
        return self.build_for_targets(
            input_shape=input_shape,
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            target_shape=(num_outputs, 1),
        )

    def build_for_targets(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        target_shape: tuple[int, ...],
    ) -> nn.Module:
        """Build it; see ModelConfiguration.build_for_targets."""
        if vocabulary_size is not None or len(input_shape) != 2:
            self.refuse(input_shape, vocabulary_size, "numbers of shape (time, features)")
        from workbench.models.forecaster import Forecaster

        num_series = target_shape[1] if len(target_shape) == 2 else 1
        return Forecaster(
            self, input_shape=input_shape, num_outputs=num_outputs, num_series=num_series
        )


class UNetConfiguration(ModelConfiguration):
    """A small U-Net: convolutions at halved and again at doubled sizes, for a class of each
    pixel.
    """

    name = "unet"
    convolves_images = True
    why_no_exits = "it answers for each pixel, and an exit is left by one answer for a sample"

    width: int = Field(
        16,
        ge=1,
        le=4096,
        description="Channels at full size; doubled at each halving of the image.",
    )
    num_halvings: int = Field(2, ge=1, le=6, description="How often the image is halved.")
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )
    activation: Activation = Field("relu", description="Function after each convolution.")

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Refuse, as each pixel needs a target; see ModelConfiguration.build."""
        raise ExperimentError(
            "unet answers for each pixel, and the data has one target for each image",
            field="model",
            allowed="data of masks",
            next_step="Choose convnet or resnet, or another data set.",
        )

    def build_for_targets(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        target_shape: tuple[int, ...],
    ) -> nn.Module:
        """Build it; see ModelConfiguration.build_for_targets."""
        smallest = 2**self.num_halvings
        if vocabulary_size is not None or len(input_shape) != 3 or min(input_shape[1:]) < smallest:
            allowed = (
                f"images of shape (channels, height, width) of at least {smallest} pixels each way"
            )
            self.refuse(input_shape, vocabulary_size, allowed)
        if target_shape != input_shape[1:]:
            return self.build(
                input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
            )
        from workbench.models.unet import UNet

        return UNet(self, num_channels=input_shape[0], num_outputs=num_outputs)


class DetectorConfiguration(ModelConfiguration):
    """A small detector: the blocks of a convnet, and for each cell of what is left a box and its
    class.
    """

    name = "detector"
    convolves_images = True
    why_no_exits = "it answers with boxes, and an exit is left by one answer for a sample"

    width: int = Field(
        32, ge=1, le=4096, description="Channels of the first block; doubled in each next block."
    )
    num_blocks: int = Field(
        2,
        ge=1,
        le=6,
        description="Number of blocks, each at half the size: cells have 2 ** num_blocks pixels.",
    )
    convolutions_per_block: int = Field(
        2, ge=1, le=8, description="Number of 3x3 convolutions in a block."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )
    activation: Activation = Field("relu", description="Function after each convolution.")
    normalisation: Normalisation = "batch"

    def backbone(self) -> ConvNetConfiguration:
        """Return the configuration of the blocks."""
        return ConvNetConfiguration(**self.model_dump(exclude={"dropout"}))

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Refuse, as boxes are learned from boxes; see ModelConfiguration.build."""
        raise ExperimentError(
            "detector answers with boxes, and the data has none",
            field="model",
            allowed="data of boxes",
            next_step="Choose convnet or resnet, or another data set.",
        )

    def build_for_targets(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        target_shape: tuple[int, ...],
    ) -> nn.Module:
        """Build it; see ModelConfiguration.build_for_targets."""
        smallest = 2**self.num_blocks
        if vocabulary_size is not None or len(input_shape) != 3 or min(input_shape[1:]) < smallest:
            allowed = (
                f"images of shape (channels, height, width) of at least {smallest} pixels each way"
            )
            self.refuse(input_shape, vocabulary_size, allowed)
        if len(target_shape) != 2 or target_shape[1] != NUM_BOX_VALUES:
            return self.build(
                input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
            )
        from workbench.models.detector import Detector

        return Detector(self, input_shape=input_shape, num_outputs=num_outputs)
