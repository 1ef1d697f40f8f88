"""Transformers: a decoder with causal attention, and an encoder that reads in both directions.

Both are pre-norm blocks of attention and feed-forward, as in GPT-2.

Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), for the
initialisation.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models.exits import LastPosition


class Block(nn.Module):
    """Self-attention and a feed-forward network, each added to the residual stream."""

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        feedforward_ratio: int,
        dropout: float,
        base_width: int | None = None,
    ) -> None:
        """Build the block with PyTorch's default initialisation. The transformer changes it."""
        super().__init__()
        hidden = width * feedforward_ratio
        self.num_heads = num_heads
        self.head_width = width // num_heads
        self.attention_scale: float | None = None
        if base_width is not None:
            # Keys and queries that have learned from each other are correlated, so their product
            # grows with the width of a head, not with its root. At the base width, this is usual.
            self.attention_scale = math.sqrt(base_width / num_heads) / self.head_width
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward_input = nn.Linear(width, hidden)
        self.feedforward_output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor, is_read: Tensor | None = None) -> Tensor:
        """Map (batch, time, width) to the same shape.

        Args:
            stream: The residual stream.
            is_read: (batch, 1, 1, time), the positions that all others attend to. None means causal
                attention.
        """
        attended = self._attend(self.attention_norm(stream), is_read)
        stream = stream + self.dropout(self.attention_output(attended))
        hidden = functional.gelu(self.feedforward_input(self.feedforward_norm(stream)))
        return stream + self.dropout(self.feedforward_output(hidden))

    def _attend(self, inputs: Tensor, is_read: Tensor | None) -> Tensor:
        batch, time, _ = inputs.shape
        heads = self.query_key_value(inputs).view(batch, time, 3, self.num_heads, self.head_width)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout.p if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=is_read,
            dropout_p=dropout,
            is_causal=is_read is None,
            scale=self.attention_scale,
        )
        return mixed.transpose(1, 2).reshape(batch, time, -1)


class Transformer(nn.Module):
    """Token and position embeddings, blocks, and an output at every or only the last position.

    With one output for each token id, it is a language model: it predicts at every position, and
    its output layer shares the weights of the token embedding.
    """

    def __init__(
        self,
        *,
        context: int,
        num_outputs: int,
        vocabulary_size: int,
        width: int,
        num_layers: int,
        dropout: float,
        base_width: int | None = None,
        **block: Any,
    ) -> None:
        """Build the model. Weights have a standard deviation of 0.02, or less if they add up.

        With `base_width`, that is their deviation at this width. Matrices of wider models begin
        smaller, so that outputs neither grow nor shrink with the width (muP).

        Source: Yang et al. 2022, "Tensor Programs V", tables 3 and 8.

        Args:
            context: Maximum number of tokens of a sample.
            num_outputs: Number of outputs. For a language model, the number of token ids.
            vocabulary_size: Number of token ids.
            width: Size of the residual stream.
            num_layers: Number of blocks.
            dropout: Probability that a unit is dropped in training.
            base_width: The width for which the learning rate was chosen, or None.
            **block: The other options of `Block`.
        """
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, width)
        self.position_embedding = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width=width, dropout=dropout, base_width=base_width, **block)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(width)
        growth = 1.0 if base_width is None else width / base_width
        self.at_every_position = num_outputs == vocabulary_size
        self.output = nn.Linear(width, num_outputs, bias=not self.at_every_position)
        if self.at_every_position:
            self.output.weight = self.token_embedding.weight
        self.output_divisor = growth if self.at_every_position else 1.0
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                # Each block adds to the stream twice. The variance of the sum must not grow with
                # the depth.
                deviation = 0.02
                if name.endswith(("attention_output.weight", "feedforward_output.weight")):
                    deviation /= math.sqrt(2 * num_layers)
                if name.startswith("blocks."):
                    deviation /= math.sqrt(growth)
                elif name == "output.weight":
                    deviation /= growth
                nn.init.normal_(parameter, std=deviation)

    def pieces(self) -> list[Any]:
        """Return embedding, blocks and output. The model can be cut into stages between them."""
        embedding = (self._embed, self.token_embedding, self.position_embedding, self.dropout)
        return [embedding, *self.blocks, (self._predict, self.norm, self.output)]

    def exit_head(self, num_outputs: int) -> nn.Module:
        """Return the output layer of an early exit, which receives the residual stream."""
        width = self.output.in_features
        return nn.Sequential(LastPosition(), nn.LayerNorm(width), nn.Linear(width, num_outputs))

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        """Return pairs of layers that workers can divide, and the row blocks of the first."""
        attention = ("query_key_value", "attention_output", 3)
        feedforward = ("feedforward_input", "feedforward_output", 1)
        return [
            (f"blocks.{number}.{first}", f"blocks.{number}.{second}", num_blocks)
            for number in range(len(self.blocks))
            for first, second, num_blocks in (attention, feedforward)
        ]

    def take_part(self, num_parts: int) -> None:
        """Compute only a part of the heads, because the weights are cut into parts.

        Raises:
            ExperimentError: If the heads cannot be divided equally.
        """
        for block in self.blocks:
            assert isinstance(block, Block)
            if block.num_heads % num_parts:
                raise ExperimentError(
                    f"{block.num_heads} heads cannot be divided among {num_parts} workers",
                    field="plan.tensor",
                    allowed=f"a divisor of {block.num_heads}",
                )
            block.num_heads //= num_parts

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, time) token ids to (batch, time, num_outputs) or (batch, num_outputs).

        Raises:
            ExperimentError: If there are more tokens than the context of the model.
        """
        stream = self._embed(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self._predict(stream)

    def _embed(self, tokens: Tensor) -> Tensor:
        time, context = tokens.shape[1], self.position_embedding.num_embeddings
        if time > context:
            raise ExperimentError(
                f"{time} tokens are more than the context of {context}", field="model"
            )
        positions = torch.arange(time, device=tokens.device)
        return self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))

    def _predict(self, stream: Tensor) -> Tensor:
        stream = self.norm(stream)
        if not self.at_every_position:
            stream = stream[:, -1]
        if self.output_divisor != 1.0:
            stream = stream / self.output_divisor
        return self.output(stream)


class TextEncoder(nn.Module):
    """Token and position embeddings, blocks, and an output for each token or for their mean."""

    def __init__(
        self,
        *,
        context: int,
        num_outputs: int,
        vocabulary_size: int,
        at_every_position: bool,
        width: int,
        num_layers: int,
        dropout: float,
        **block: Any,
    ) -> None:
        """Build the model. Weights have a standard deviation of 0.02. See `Transformer`."""
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, width, padding_idx=0)
        self.position_embedding = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width=width, dropout=dropout, **block) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_outputs)
        self.at_every_position = at_every_position
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, time) token ids to (batch, num_outputs) or (batch, time, num_outputs)."""
        is_read = _is_read(tokens)
        stream = self._embed(tokens)
        for block in self.blocks:
            stream = block(stream, is_read[:, None, None, :])
        return self._predict(stream, is_read)

    def pieces(self) -> list[Any]:
        """Return embedding, blocks and output. The model can be cut into stages between them.

        They pass on the residual stream and an extra feature, which is 1 for tokens and 0 for
        padding.
        """
        embedding = (self._begin, self.token_embedding, self.position_embedding, self.dropout)
        blocks = [(functools.partial(_through, block), block) for block in self.blocks]
        return [embedding, *blocks, (self._end, self.norm, self.output)]

    def exit_head(self, num_outputs: int) -> nn.Module:
        """Return the output layer of an early exit, which receives the values between pieces."""
        return _ExitHead(self.output.in_features, num_outputs)

    def _embed(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))

    def _begin(self, tokens: Tensor) -> Tensor:
        return _joined(self._embed(tokens), _is_read(tokens))

    def _end(self, passed: Tensor) -> Tensor:
        return self._predict(*_parted(passed))

    def _predict(self, stream: Tensor, is_read: Tensor) -> Tensor:
        stream = self.norm(stream)
        if not self.at_every_position:
            stream = _mean(stream, is_read)
        return self.output(stream)


class _ExitHead(nn.Module):
    """Predicts from the mean over the tokens of a text."""

    def __init__(self, width: int, num_outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, passed: Tensor) -> Tensor:
        stream, is_read = _parted(passed)
        return self.output(_mean(self.norm(stream), is_read))


def _is_read(tokens: Tensor) -> Tensor:
    """Return the positions that others attend to, (batch, time). The first one always counts."""
    is_token = tokens != 0
    return torch.cat([torch.ones_like(is_token[:, :1]), is_token[:, 1:]], dim=1)


def _through(block: nn.Module, passed: Tensor) -> Tensor:
    stream, is_read = _parted(passed)
    return _joined(block(stream, is_read[:, None, None, :]), is_read)


def _joined(stream: Tensor, is_read: Tensor) -> Tensor:
    return torch.cat([stream, is_read[:, :, None].to(stream.dtype)], dim=-1)


def _parted(passed: Tensor) -> tuple[Tensor, Tensor]:
    return passed[..., :-1], passed[..., -1] > 0.5


def _mean(stream: Tensor, is_read: Tensor) -> Tensor:
    weights = is_read[:, :, None].to(stream.dtype)
    return (stream * weights).sum(dim=1) / weights.sum(dim=1)
