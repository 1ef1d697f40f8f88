"""Configurations of models that read sequences: LSTM and transformers.

As those of `configurations`, they need no torch until they build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import Dropout, SequenceConfiguration

if TYPE_CHECKING:
    from torch import nn


class LSTMConfiguration(SequenceConfiguration):
    """Stacked LSTM layers on token ids or on a sequence of feature vectors."""

    name = "lstm"

    embedding_width: int = Field(
        64, ge=1, le=8192, description="Size of a token's embedding; numbers need none."
    )
    hidden_width: int = Field(128, ge=1, le=8192, description="Units in each layer.")
    num_layers: int = Field(1, ge=1, le=16, description="Number of stacked layers.")
    dropout: Dropout = Field(
        0.0, description="Probability that a unit between layers is dropped in training."
    )

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the network; see ModelConfiguration.build."""
        if len(input_shape) != (2 if vocabulary_size is None else 1):
            allowed = "token ids of shape (context,) or numbers of shape (time, features)"
            self.refuse(input_shape, vocabulary_size, allowed)
        from workbench.models.lstm import LSTM

        model = LSTM(
            self, input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )


class TransformerConfiguration(SequenceConfiguration):
    """A decoder-only transformer on token ids; its context is that of the data."""

    name = "transformer"

    width: int = Field(
        128, ge=1, le=16384, description="Size of the residual stream; a multiple of num_heads."
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

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.num_heads:
            raise ExperimentError(
                f"{self.num_heads} heads do not divide the width {self.width}",
                field="num_heads",
                allowed=f"divisors of width = {self.width}",
            )
        return self

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the transformer; see ModelConfiguration.build."""
        if vocabulary_size is None or len(input_shape) != 1:
            self.refuse(input_shape, vocabulary_size, "token ids of shape (context,)")
        from workbench.models.transformer import Transformer

        model = Transformer(
            self, context=input_shape[0], num_outputs=num_outputs, vocabulary_size=vocabulary_size
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )


class TextEncoderConfiguration(TransformerConfiguration):
    """A transformer that reads a text as a whole, for a class of each text or of each token.

    Tokens of number 0 are padding, which is not read.
    """

    name = "text_encoder"

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build it for a class of each text; see ModelConfiguration.build."""
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
        """Build it; see ModelConfiguration.build_for_targets."""
        if vocabulary_size is None or len(input_shape) != 1:
            self.refuse(input_shape, vocabulary_size, "token ids of shape (context,)")
        from workbench.models.text_encoder import TextEncoder

        model = TextEncoder(
            self,
            context=input_shape[0],
            num_outputs=num_outputs,
            vocabulary_size=vocabulary_size,
            at_every_position=target_shape == input_shape,
        )
        return self.with_exits(
            model,
            input_shape,
            num_outputs,
            vocabulary_size,
            at_every_position=model.at_every_position,
        )
