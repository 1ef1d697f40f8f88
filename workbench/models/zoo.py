"""The models of the zoo: the options of each, typed, bounded and documented.

A configuration needs neither torch nor scikit-learn until it builds its model. The modules are in
`mlp`, `tabular_mlp`, `convolutional`, `detector`, `lstm`, `transformer` and `trees`. Names of
training or of the plan (lr, optimizer, epochs, ...) are not used here, because a trial's
configuration mixes them all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field, create_model, field_validator, model_validator
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import (
    Activation,
    Dropout,
    FittedConfiguration,
    ModelConfiguration,
    Normalisation,
    NumExits,
    SequenceConfiguration,
    configure,
)
from workbench.models.staged_fitting import PASSES_RATIO, TREES_RATIO, Growth

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

# All samples allow for a little more detail than the samples of a fold.
MORE_ROUNDS = 1.1

_NUM_BOX_VALUES = 5
"""Values of a true box: its class, and its left, top, right and bottom edge."""


BaseWidth = Annotated[
    int | None,
    Field(
        default=None,
        ge=1,
        le=65536,
        description=(
            "The width for which the learning rate was chosen. It then also suits other widths "
            "(muP). null keeps the usual initial weights and rates. Needs Adam."
        ),
    ),
]


class MLPConfiguration(SequenceConfiguration):
    """A multi-layer perceptron on the flattened input."""

    name = "mlp"

    hidden_width: int = Field(128, ge=1, le=65536, description="Units in each hidden layer.")
    num_layers: int = Field(
        2, ge=0, le=64, description="Number of hidden layers. 0 is a linear model."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a hidden unit is dropped in training."
    )
    activation: Activation = Field("relu", description="Function after each hidden layer.")
    base_width: BaseWidth = None

    @model_validator(mode="after")
    def _check_base_width(self) -> Self:
        if self.base_width is not None:
            self.refuse_exits()
        return self

    def rate_factors(self) -> dict[str, float]:
        """Return the factors of muP: the rate of matrices falls as their inputs become more."""
        if self.base_width is None or not self.num_layers:
            return {}
        step = 2 + bool(self.dropout)
        later = "|".join(str(1 + step * number) for number in range(1, self.num_layers + 1))
        return {rf"^layers\.({later})\.weight$": self.base_width / self.hidden_width}

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the perceptron. See ModelConfiguration.build."""
        shape = self.shape_of_view(input_shape)
        if vocabulary_size is not None or not shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.mlp import MLP

        model = MLP(input_shape=shape, num_outputs=num_outputs, **self.module_settings())
        return self.with_exits(model, input_shape, num_outputs)


class ConvNetConfiguration(SequenceConfiguration):
    """A small convolutional network: blocks of 3x3 convolutions, each at half the previous size."""

    name = "convnet"
    convolves_images = True

    width: int = Field(
        32,
        ge=1,
        le=4096,
        description="Channels of the first block. Each next block has twice as many.",
    )
    num_blocks: int = Field(2, ge=1, le=8, description="Number of blocks.")
    convolutions_per_block: int = Field(
        1, ge=1, le=8, description="Number of 3x3 convolutions in a block."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )
    activation: Activation = Field("relu", description="Function after each convolution.")
    normalisation: Normalisation = "batch"

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the network. See ModelConfiguration.build."""
        shape = self.shape_of_view(input_shape)
        if vocabulary_size is not None or len(shape) != 3:
            self.refuse(input_shape, vocabulary_size, "images of shape (channels, height, width)")
        from workbench.models.convolutional import ConvNet

        model = ConvNet(input_shape=shape, num_outputs=num_outputs, **self.module_settings())
        return self.with_exits(model, input_shape, num_outputs)


class ResNetConfiguration(SequenceConfiguration):
    """A residual network for CIFAR-like images: three stages of basic blocks, depth 6 n + 2."""

    name = "resnet"
    convolves_images = True

    depth: int = Field(
        20,
        ge=8,
        le=1202,
        description="Number of weight layers, 6 n + 2: 8, 14, 20, 32, 44, 56, ...",
    )
    width: int = Field(
        16,
        ge=1,
        le=1024,
        description="Channels of the first stage. Each next stage has twice as many.",
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )

    @field_validator("depth")
    @classmethod
    def _check_depth(cls, depth: int) -> int:
        if (depth - 2) % 6:
            raise ExperimentError(
                f"{depth} is not 6 n + 2",
                allowed="8, 14, 20, 26, 32, 38, 44, 50, 56, ...",
            )
        return depth

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the network. See ModelConfiguration.build."""
        shape = self.shape_of_view(input_shape)
        if vocabulary_size is not None or len(shape) != 3:
            self.refuse(input_shape, vocabulary_size, "images of shape (channels, height, width)")
        from workbench.models.convolutional import ResNet

        model = ResNet(num_channels=shape[0], num_outputs=num_outputs, **self.module_settings())
        return self.with_exits(model, input_shape, num_outputs)


class UNetConfiguration(ModelConfiguration):
    """A small U-Net, which gives each pixel a class: convolutions at halved sizes and back."""

    name = "unet"
    convolves_images = True
    why_no_exits = "it predicts every pixel, but an exit needs one prediction for a sample"

    width: int = Field(
        16,
        ge=1,
        le=4096,
        description="Channels at full size. Each halving of the image doubles them.",
    )
    num_halvings: int = Field(2, ge=1, le=6, description="How often the image is halved.")
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )
    activation: Activation = Field("relu", description="Function after each convolution.")

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Raise an error, because each pixel needs a target. See ModelConfiguration.build."""
        raise ExperimentError(
            "unet predicts every pixel, but the data has one target for each image",
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
        """Build it. See ModelConfiguration.build_for_targets."""
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
        from workbench.models.convolutional import UNet

        return UNet(num_channels=input_shape[0], num_outputs=num_outputs, **self.module_settings())


class DetectorConfiguration(ModelConfiguration):
    """A small detector: blocks of a convnet, then a box and its class for each remaining cell."""

    name = "detector"
    convolves_images = True
    why_no_exits = "it predicts boxes, but an exit needs one prediction for a sample"

    width: int = Field(
        32,
        ge=1,
        le=4096,
        description="Channels of the first block. Each next block has twice as many.",
    )
    num_blocks: int = Field(
        2,
        ge=1,
        le=6,
        description="Number of blocks. Each halves the image: cells have 2 ** num_blocks pixels.",
    )
    convolutions_per_block: int = Field(
        2, ge=1, le=8, description="Number of 3x3 convolutions in a block."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a feature is dropped before the output layer."
    )
    activation: Activation = Field("relu", description="Function after each convolution.")
    normalisation: Normalisation = "batch"

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Raise an error, because boxes are learned from boxes. See ModelConfiguration.build."""
        raise ExperimentError(
            "detector predicts boxes, but the data has none",
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
        """Build it. See ModelConfiguration.build_for_targets."""
        smallest = 2**self.num_blocks
        if vocabulary_size is not None or len(input_shape) != 3 or min(input_shape[1:]) < smallest:
            allowed = (
                f"images of shape (channels, height, width) of at least {smallest} pixels each way"
            )
            self.refuse(input_shape, vocabulary_size, allowed)
        if len(target_shape) != 2 or target_shape[1] != _NUM_BOX_VALUES:
            return self.build(
                input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
            )
        from workbench.models.detector import Detector

        return Detector(input_shape=input_shape, num_outputs=num_outputs, **self.module_settings())


class LSTMConfiguration(SequenceConfiguration):
    """Stacked LSTM layers on token ids or on a sequence of feature vectors."""

    name = "lstm"

    embedding_width: int = Field(
        64, ge=1, le=8192, description="Size of a token's embedding, if inputs are token ids."
    )
    hidden_width: int = Field(128, ge=1, le=8192, description="Units in each layer.")
    num_layers: int = Field(1, ge=1, le=16, description="Number of stacked layers.")
    dropout: Dropout = Field(
        0.0, description="Probability that a unit between layers is dropped in training."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the network. See ModelConfiguration.build."""
        shape = self.shape_of_view(input_shape)
        num_dimensions = 2 if vocabulary_size is None else 1
        if len(shape) != num_dimensions:
            allowed = "token ids of shape (context,) or numbers of shape (time, features)"
            self.refuse(input_shape, vocabulary_size, allowed)
        from workbench.models.lstm import LSTM

        model = LSTM(
            input_shape=shape,
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            has_exits=self.exits > 0,
            **self.module_settings(),
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )


class TransformerConfiguration(SequenceConfiguration):
    """A decoder-only transformer on token ids, with the context of the data."""

    name = "transformer"

    width: int = Field(
        128,
        ge=1,
        le=16384,
        description="Size of the residual stream. It must be a multiple of num_heads.",
    )
    num_layers: int = Field(
        4, ge=1, le=128, description="Number of blocks of attention and feed-forward."
    )
    num_heads: int = Field(4, ge=1, le=256, description="Number of attention heads in each block.")
    feedforward_ratio: int = Field(
        4, ge=1, le=16, description="Hidden units of the feed-forward, per unit of width."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a unit is dropped in embeddings, attention and blocks."
    )
    base_width: BaseWidth = None

    def rate_factors(self) -> dict[str, float]:
        """Return the factors of muP: the rate of matrices falls as their inputs become more.

        The output of a language model is the token embedding, whose rate stays. Its scores are
        divided instead. Any other output layer is a matrix like those of the blocks.
        """
        if self.base_width is None:
            return {}
        return {
            r"^blocks\..*(query_key_value|_output|_input)\.weight$": self.base_width / self.width,
            r"^output\.weight$": self.base_width / self.width,
        }

    @model_validator(mode="after")
    def _check_base_width(self) -> Self:
        if self.base_width is not None:
            self.refuse_exits()
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.num_heads:
            raise ExperimentError(
                f"the width {self.width} is not a multiple of {self.num_heads} heads",
                field="num_heads",
                allowed=f"a divisor of the width {self.width}",
            )
        return self

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the transformer. See ModelConfiguration.build."""
        shape = self.shape_of_view(input_shape)
        if vocabulary_size is None or len(shape) != 1:
            self.refuse(input_shape, vocabulary_size, "token ids of shape (context,)")
        from workbench.models.transformer import Transformer

        model = Transformer(
            context=shape[0],
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            **self.module_settings(),
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )


class TextEncoderConfiguration(TransformerConfiguration):
    """A transformer that reads a text as a whole, for one class per text or per token.

    Tokens with the number 0 are padding, which is ignored.
    """

    name = "text_encoder"

    def module_settings(self) -> dict[str, Any]:
        """Return the arguments of the module."""
        return {
            name: value for name, value in super().module_settings().items() if name != "base_width"
        }

    @model_validator(mode="after")
    def _has_no_base_width(self) -> Self:
        if self.base_width is not None:
            raise ExperimentError(
                "text_encoder does not scale with its width",
                field="base_width",
                allowed="null",
                next_step="Use the models transformer or mlp, or remove base_width.",
            )
        return self

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build it for one class per text. See ModelConfiguration.build."""
        return self.build_for_targets(
            input_shape=input_shape,
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            target_shape=(),
        )

    def build_for_targets(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        target_shape: tuple[int, ...],
    ) -> nn.Module:
        """Build it. See ModelConfiguration.build_for_targets."""
        shape = self.shape_of_view(input_shape)
        if vocabulary_size is None or len(shape) != 1:
            self.refuse(input_shape, vocabulary_size, "token ids of shape (context,)")
        from workbench.models.transformer import TextEncoder

        model = TextEncoder(
            context=shape[0],
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            at_every_position=target_shape == shape,
            **self.module_settings(),
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )


class ForecasterConfiguration(ModelConfiguration):
    """A linear forecast of each series from its own past, plus a perceptron on all series.

    Both see values relative to the last ones, so that a forecast starts at the current level.
    """

    name = "forecaster"
    why_no_exits = "it predicts numbers, but an exit needs the probability of a class"

    hidden_width: int = Field(128, ge=1, le=65536, description="Units in each hidden layer.")
    num_layers: int = Field(
        2, ge=0, le=64, description="Number of hidden layers. 0 is a linear model."
    )
    dropout: Dropout = Field(
        0.0, description="Probability that a hidden unit is dropped in training."
    )
    activation: Activation = Field("relu", description="Function after each hidden layer.")

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build it for one series, the first feature. See ModelConfiguration.build."""
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
        """Build it. See ModelConfiguration.build_for_targets."""
        if vocabulary_size is not None or len(input_shape) != 2:
            self.refuse(input_shape, vocabulary_size, "numbers of shape (time, features)")
        from workbench.models.mlp import Forecaster

        num_series = 1
        if len(target_shape) == 2:
            num_series = target_shape[1]
        return Forecaster(
            input_shape=input_shape,
            num_outputs=num_outputs,
            num_series=num_series,
            **self.module_settings(),
        )


class LinearConfiguration(FittedConfiguration):
    """A linear model for numbers or a logistic one for classes, fitted at once by scikit-learn."""

    name = "linear"
    why_no_exits = "it is a single sum"
    is_instant = True

    l2: float = Field(1.0, gt=0.0, description="L2 regularisation of the weights.")

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model as it is before it is fitted; see ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.linear import LinearModel

        return LinearModel(math.prod(input_shape), num_outputs)

    def describe(self, num_classes: int | None) -> str:
        """Return what will be fitted; see FittedConfiguration.describe."""
        return "a linear model" if num_classes is None else "a logistic regression"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the model at once; see FittedConfiguration.grow."""
        from workbench.models.linear import fit_linear

        yield fit_linear(inputs, targets, num_classes=num_classes, l2=self.l2)


class NeighboursConfiguration(FittedConfiguration):
    """The answers of the train samples around a sample, weighted by their distance."""

    name = "neighbours"
    why_no_exits = "it has no layers"

    num_neighbours: int = Field(
        10, ge=1, le=10_000, description="About how many train samples count for an answer."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model as it is before it is fitted; see ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.nearest_neighbours import Neighbours

        return Neighbours()

    def describe(self, num_classes: int | None) -> str:
        """Return what will be fitted; see FittedConfiguration.describe."""
        return f"the answers of about {self.num_neighbours:,} near samples"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the model at once; see FittedConfiguration.grow."""
        from workbench.models.nearest_neighbours import remember

        yield remember(inputs, targets, num_classes=num_classes, num_neighbours=self.num_neighbours)


class FoundationConfiguration(FittedConfiguration):
    """A tabular foundation model, TabICL or TabPFN, with weights in a local file."""

    name = "foundation"
    why_no_exits = "its layers need all train samples"

    weights_path: str = Field(
        "", description="Path of the weights, called like tabicl-classifier-v2-20260212.ckpt."
    )
    num_estimators: int = Field(
        4, ge=1, le=64, description="How many times it predicts, with other orders of columns."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model before it is fitted. See ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.fitted_estimator import FittedEstimator

        return FittedEstimator()

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the model. See FittedConfiguration.describe."""
        return "a foundation model for tables, which reads the train samples to predict"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Keep the train samples. See FittedConfiguration.grow."""
        from workbench.models.fitted_estimator import FittedEstimator
        from workbench.models.foundation_models import make_estimator

        estimator = make_estimator(
            self.weights_path,
            num_classes=num_classes,
            num_estimators=self.num_estimators,
            seed=seed,
            num_threads=num_threads,
        )
        yield FittedEstimator.of(estimator.fit(inputs, targets), num_classes)


class FolderConfiguration(ModelConfiguration):
    """A model of transformers in a local folder, for the next token, classes or embeddings.

    The data decides what it learns. Nothing is downloaded.
    """

    name = "hf"
    reads_tokenizer = True
    why_no_exits = "it predicts at every position"

    path: str = Field("", description="The folder, with config.json and weights in safetensors.")
    runs_code: bool = Field(
        False, description="Run Python code in the folder, for models that transformers lacks."
    )
    from_scratch: bool = Field(
        False, description="Draw new weights instead of reading those in the folder."
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"] = Field(
        "auto", description="How attention is computed. auto leaves it to transformers."
    )

    beta: float = Field(
        0.1,
        gt=0.0,
        le=100.0,
        description="How closely DPO keeps to the weights without the adapter, for preferences.",
    )
    temperature: float = Field(
        0.05, gt=0.0, le=10.0, description="What cosines are divided by in a loss, for text_pairs."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model, without its weights. See ModelConfiguration.build."""
        if not self.path:
            raise ExperimentError(
                "missing", field="model.path", next_step="Write the folder of the model."
            )
        if vocabulary_size is None or len(input_shape) != 1:
            needed = "token ids: data: {name: conversations}, or another one for folders"
            self.refuse(input_shape, vocabulary_size, needed)
        from workbench.models.folder_models import LanguageModel, TextClassifier, TextEncoder

        folder = Path(self.path).expanduser()
        how: dict[str, Any] = {"runs_code": self.runs_code, "attention": self.attention}
        model: Any
        if vocabulary_size == num_outputs:
            model = LanguageModel(folder, beta=self.beta, **how)
        elif num_outputs:
            model = TextClassifier(folder, num_outputs, **how)
        else:  # pairs of texts have no scores
            model = TextEncoder(folder, self.temperature, context=input_shape[0], **how)
        model.check_data(input_shape[0], vocabulary_size)
        return model


_MIN_BATCH, _MAX_BATCH = 32, 256
_STEPS_OF_AN_EPOCH = 30


class TabularMLPConfiguration(FittedConfiguration):
    """An ensemble of perceptrons for tables that share most weights, with embedded numbers."""

    name = "tabular_mlp"
    why_no_exits = "its members answer together"
    has_small_steps = True
    patience = 3
    max_rounds = 16
    round_ratio = PASSES_RATIO
    can_continue = True

    hidden_width: int = Field(128, ge=1, le=4096, description="Units in each hidden layer.")
    num_layers: int = Field(2, ge=1, le=16, description="Number of hidden layers.")
    num_members: int = Field(8, ge=1, le=128, description="Number of members of the ensemble.")
    numeric_embedding: Literal["piecewise", "periodic"] = Field(
        "piecewise", description="How numbers are embedded: by pieces of lines, or by waves."
    )
    embedding_width: int = Field(8, ge=1, le=256, description="Size of a number's embedding.")
    dropout: Dropout = Field(
        0.1, description="Probability that a hidden unit is dropped in training."
    )
    step_size: float = Field(5e-3, gt=0.0, le=1.0, description="Learning rate of AdamW.")
    decay: float = Field(1e-3, ge=0.0, description="Weight decay of AdamW.")
    num_passes: float = Field(
        100.0, gt=0.0, le=10_000.0, description="Most passes over the samples. The best is kept."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the network before it is fitted. See ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.tabular_mlp import TabularMLP

        return TabularMLP(self.num_layers, self.numeric_embedding)

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the network. See FittedConfiguration.describe."""
        return (
            f"{self.num_members} perceptrons that share weights, with {self.num_layers} hidden"
            f" layers of {self.hidden_width:,} units"
        )

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Train the network. See FittedConfiguration.grow."""
        from workbench.models.tabular_mlp import Settings, train_tabular_mlp

        return train_tabular_mlp(
            inputs,
            targets,
            num_classes=num_classes,
            settings=Settings(**self.module_settings(), batch=self.batch_for(len(inputs))),
            num_rounds=num_rounds,
            seed=seed,
            growth=growth or Growth(),
        )

    @staticmethod
    def batch_for(num_samples: int) -> int:
        """Return the samples of a step: a power of two, so that small tables have enough steps.

        Args:
            num_samples: Number of samples to learn from, at least 1.
        """
        wanted = 2.0 ** round(math.log2(num_samples / _STEPS_OF_AN_EPOCH))
        return min(num_samples, int(min(_MAX_BATCH, max(_MIN_BATCH, wanted))))

    def for_all_rows(self, models: Sequence[nn.Module]) -> FittedConfiguration:
        """Return it with the passes that folds needed; see FittedConfiguration.for_all_rows."""
        passes: list[Any] = [model.epochs for model in models]
        mean = math.fsum(float(number) for number in passes) / len(passes)
        return self.model_copy(update={"num_passes": MORE_ROUNDS * mean})


class TreesConfiguration(FittedConfiguration):
    """A sum over trees, some of which may answer early."""

    can_continue = True
    num_trees: int = Field(
        100, ge=1, le=10_000, description="Number of trees, for each class if there are many."
    )
    exits: NumExits = 0

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model before it is fitted. See ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.trees import TreeEnsemble, check_number

        check_number(self.exits, self.num_trees)
        model = TreeEnsemble()
        model.num_exits = self.exits
        return model


class BoostedTreesConfiguration(TreesConfiguration):
    """Gradient-boosted trees on histograms, by scikit-learn."""

    name = "boosted_trees"

    shrinkage: float = Field(0.1, gt=0.0, le=1.0, description="Part of each tree that is added.")
    max_leaves: int = Field(31, ge=2, le=4096, description="Most leaves of a tree.")
    min_samples_leaf: int = Field(20, ge=1, le=1_000_000, description="Fewest samples in a leaf.")
    l2: float = Field(0.0, ge=0.0, description="L2 regularisation of the leaf values.")

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the trees. See FittedConfiguration.describe."""
        of_classes = ""
        if num_classes is not None and num_classes > 2:
            of_classes = (
                f" for each of {num_classes} classes, {self.num_trees * num_classes:,} in all"
            )
        return (
            f"{self.num_trees:,} boosted trees{of_classes}, of at most {self.max_leaves:,} leaves"
        )

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the trees. See FittedConfiguration.grow."""
        from workbench.models.trees import grow_boosted

        return grow_boosted(
            inputs,
            targets,
            num_classes=num_classes,
            num_rounds=num_rounds,
            learning_rate=self.shrinkage,
            max_leaf_nodes=self.max_leaves,
            min_samples_leaf=self.min_samples_leaf,
            l2_regularization=self.l2,
            max_iter=self.num_trees,
            random_state=seed,
            growth=growth or Growth(),
        )


class VotingTreesConfiguration(TreesConfiguration):
    """Trees that are grown apart from each other and vote, by scikit-learn."""

    # More trees never make a forest worse, so few of its sizes are evaluated. Each time, all of
    # its trees become a torch module again.
    max_rounds = 3

    num_trees: int = Field(200, ge=1, le=10_000, description="Number of trees.")
    min_samples_leaf: int = Field(1, ge=1, le=1_000_000, description="Fewest samples in a leaf.")
    features_per_split: float = Field(
        0.5, gt=0.0, le=1.0, description="Part of the features that each split may choose from."
    )

    estimator: ClassVar[Literal["RandomForest", "ExtraTrees"]]
    """The class of scikit-learn, without its task."""

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the trees. See FittedConfiguration.describe."""
        kind = "randomised trees" if self.estimator == "ExtraTrees" else "trees"
        if num_classes is None:
            return f"{self.num_trees:,} {kind}, which are averaged"
        return f"{self.num_trees:,} {kind} that vote"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the trees. See FittedConfiguration.grow."""
        from workbench.models.trees import grow_voting

        return grow_voting(
            self.estimator,
            inputs,
            targets,
            num_classes=num_classes,
            num_rounds=num_rounds,
            min_samples_leaf=self.min_samples_leaf,
            max_features=self.features_per_split,
            n_estimators=self.num_trees,
            random_state=seed,
            growth=growth or Growth(),
        )


class ForestConfiguration(VotingTreesConfiguration):
    """A random forest. Each tree learns from random samples and tries every threshold."""

    name = "forest"
    estimator = "RandomForest"


class ExtraTreesConfiguration(VotingTreesConfiguration):
    """Extra trees. Each tree learns from all samples and tries one random threshold per feature."""

    name = "extra_trees"
    estimator = "ExtraTrees"


class LibraryTreesConfiguration(TreesConfiguration):
    """Boosted trees that another library grows. The extra `tables` installs all of them."""

    library: ClassVar[str]
    patience = 2
    round_ratio = TREES_RATIO

    num_trees: int = Field(
        300,
        ge=1,
        le=10_000,
        description="Number of trees, for each class if there are many. The best number is kept.",
    )
    shrinkage: float = Field(0.1, gt=0.0, le=1.0, description="Part of each tree that is added.")

    @abstractmethod
    def options(self, seed: int, num_threads: int) -> dict[str, Any]:
        """Return the options of the library.

        Args:
            seed: Seed of everything random.
            num_threads: Number of threads.
        """

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the trees. See FittedConfiguration.describe."""
        return f"at most {self.num_trees:,} rounds of boosted trees, by {self.library}"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the trees. See FittedConfiguration.grow."""
        from workbench.models.library_trees import grow_with_library

        return grow_with_library(
            self.library,
            inputs,
            targets,
            num_classes=num_classes,
            num_trees=self.num_trees,
            num_rounds=num_rounds,
            options=self.options(seed % 2**31, num_threads),
            growth=growth or Growth(),
        )

    def for_all_rows(self, models: Sequence[nn.Module]) -> FittedConfiguration:
        """Return it with the trees that folds needed; see FittedConfiguration.for_all_rows."""
        from workbench.models.library_trees import num_rounds_of

        has_shared_trees = self.library == "catboost"  # its trees answer for all classes at once
        num_rounds = [num_rounds_of(model, has_shared_trees) for model in models]
        mean = math.fsum(num_rounds) / len(num_rounds)
        return self.model_copy(update={"num_trees": max(1, round(MORE_ROUNDS * mean))})


class LightGBMConfiguration(LibraryTreesConfiguration):
    """Gradient-boosted trees that grow leaf by leaf, by LightGBM."""

    name = "lightgbm"
    library = "lightgbm"

    max_leaves: int = Field(31, ge=2, le=4096, description="Most leaves of a tree.")
    min_samples_leaf: int = Field(20, ge=1, le=1_000_000, description="Fewest samples in a leaf.")
    l2: float = Field(0.0, ge=0.0, description="L2 regularisation of the leaf values.")
    features_per_tree: float = Field(
        1.0, gt=0.0, le=1.0, description="Part of the features that each tree may use."
    )
    samples_per_tree: float = Field(
        1.0, gt=0.0, le=1.0, description="Part of the samples that each tree learns from."
    )
    random_thresholds: bool = Field(
        False, description="Try one random threshold of each feature instead of all."
    )

    def options(self, seed: int, num_threads: int) -> dict[str, Any]:
        """Return the options of LightGBM. See LibraryTreesConfiguration.options."""
        return {
            "learning_rate": self.shrinkage,
            "num_leaves": self.max_leaves,
            "min_data_in_leaf": self.min_samples_leaf,
            "lambda_l2": self.l2,
            "feature_fraction": self.features_per_tree,
            "bagging_fraction": self.samples_per_tree,
            "bagging_freq": int(self.samples_per_tree < 1.0),
            "extra_trees": self.random_thresholds,
            "seed": seed,
            "num_threads": num_threads,
        }


class XGBoostConfiguration(LibraryTreesConfiguration):
    """Gradient-boosted trees of limited depth, by XGBoost."""

    name = "xgboost"
    library = "xgboost"

    max_depth: int = Field(6, ge=1, le=16, description="Most decisions from the root to a leaf.")
    min_child_weight: float = Field(
        1.0, ge=0.0, description="Least sum of second derivatives of the loss in a leaf."
    )
    l2: float = Field(1.0, ge=0.0, description="L2 regularisation of the leaf values.")
    features_per_tree: float = Field(
        1.0, gt=0.0, le=1.0, description="Part of the features that each tree may use."
    )
    samples_per_tree: float = Field(
        1.0, gt=0.0, le=1.0, description="Part of the samples that each tree learns from."
    )

    def options(self, seed: int, num_threads: int) -> dict[str, Any]:
        """Return the options of XGBoost. See LibraryTreesConfiguration.options."""
        return {
            "learning_rate": self.shrinkage,
            "max_depth": self.max_depth,
            "min_child_weight": self.min_child_weight,
            "reg_lambda": self.l2,
            "colsample_bytree": self.features_per_tree,
            "subsample": self.samples_per_tree,
            "seed": seed,
            "nthread": num_threads,
        }


class CatBoostConfiguration(LibraryTreesConfiguration):
    """Gradient-boosted symmetric trees, by CatBoost."""

    name = "catboost"
    library = "catboost"

    depth: int = Field(6, ge=1, le=10, description="Number of decisions of each tree.")
    l2: float = Field(3.0, ge=0.0, description="L2 regularisation of the leaf values.")
    random_strength: float = Field(
        1.0, ge=0.0, description="How much chance takes part in the choice of splits."
    )
    features_per_split: float = Field(
        1.0, gt=0.0, le=1.0, description="Part of the features that each level may choose from."
    )

    def options(self, seed: int, num_threads: int) -> dict[str, Any]:
        """Return the options of CatBoost. See LibraryTreesConfiguration.options."""
        return {
            "learning_rate": self.shrinkage,
            "depth": self.depth,
            "l2_leaf_reg": self.l2,
            "random_strength": self.random_strength,
            "rsm": self.features_per_split,
            "random_seed": seed,
            "thread_count": num_threads,
        }


Family = Literal[
    "mlp",
    "convnet",
    "resnet",
    "linear",
    "neighbours",
    "boosted_trees",
    "tabular_mlp",
    "forest",
    "extra_trees",
    "lightgbm",
    "xgboost",
    "catboost",
    "foundation",
]
_FAMILIES: dict[Family, type[ModelConfiguration]] = {
    "mlp": MLPConfiguration,
    "convnet": ConvNetConfiguration,
    "resnet": ResNetConfiguration,
    "linear": LinearConfiguration,
    "neighbours": NeighboursConfiguration,
    "boosted_trees": BoostedTreesConfiguration,
    "tabular_mlp": TabularMLPConfiguration,
    "forest": ForestConfiguration,
    "extra_trees": ExtraTreesConfiguration,
    "lightgbm": LightGBMConfiguration,
    "xgboost": XGBoostConfiguration,
    "catboost": CatBoostConfiguration,
    "foundation": FoundationConfiguration,
}


class _OneOf(ModelConfiguration):
    """One of several models of the zoo, so that one sweep can search over kinds of models.

    `family` chooses the model. The parameters of a family are called `<family>_<parameter>`, and a
    search adds them with `when: {family: <family>}`.
    """

    name = "one_of"

    # The parameters of the families are added below.
    family: Family = Field("mlp", description="Which entry of the zoo.")

    @model_validator(mode="after")
    def _check_families(self) -> Self:
        for family in _FAMILIES:
            _configured(self, family)
        return self

    @property
    def fitted(self) -> FittedConfiguration | None:
        """The fitted configuration of the chosen family, if it has one."""
        return _configured(self, self.family).fitted

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the chosen family's model. See ModelConfiguration.build."""
        return _configured(self, self.family).build(
            input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
        )


def _configured(chosen: BaseModel, family: Family) -> ModelConfiguration:
    prefix = f"{family}_"
    values = {
        name.removeprefix(prefix): getattr(chosen, name)
        for name in chosen.model_fields_set
        if name.startswith(prefix)
    }
    try:
        return configure(family, values, field="")
    except ExperimentError as error:
        raise error.about(f"{prefix}{(error.field or '').strip('.')}") from error


def _fields() -> dict[str, Any]:
    return {
        f"{family}_{name}": (
            field.rebuild_annotation(),
            Field(field.default, description=field.description),
        )
        for family, configuration in _FAMILIES.items()
        for name, field in configuration.model_fields.items()
    }


OneOfConfiguration = cast(
    "type[_OneOf]", create_model("OneOfConfiguration", __base__=_OneOf, **_fields())
)
