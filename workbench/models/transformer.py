"""A decoder-only transformer: pre-norm blocks of causal attention and feed-forward, as in GPT-2.

Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), for the
initialisation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models.exits import LastPosition
from workbench.models.token_configurations import TransformerConfiguration


class Block(nn.Module):
    """Self-attention, causal by default, and a feed-forward network, each added to the residual
    stream.
    """

    def __init__(self, configuration: TransformerConfiguration) -> None:
        """Build it with PyTorch's default initialisation; the transformer sets its own."""
        super().__init__()
        width, hidden = configuration.width, configuration.width * configuration.feedforward_ratio
        self.num_heads = configuration.num_heads
        self.head_width = width // configuration.num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward_input = nn.Linear(width, hidden)
        self.feedforward_output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(configuration.dropout)

    def forward(self, stream: Tensor, is_read: Tensor | None = None) -> Tensor:
        """Map (batch, time, width) to the same shape.

        Args:
            stream: The residual stream.
            is_read: (batch, 1, 1, time), which places all others attend to; None for those before
                each.
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
            query, key, value, attn_mask=is_read, dropout_p=dropout, is_causal=is_read is None
        )
        return mixed.transpose(1, 2).reshape(batch, time, -1)


class Transformer(nn.Module):
    """Token and position embeddings, blocks, and an output at every position or at the last one.

    It is a language model where it has one output for each token id: it then answers at every
    position and its output layer shares the weights of the token embedding.
    """

    def __init__(
        self,
        configuration: TransformerConfiguration,
        *,
        context: int,
        num_outputs: int,
        vocabulary_size: int,
    ) -> None:
        """Build it; weights are normal with deviation 0.02, less for those that add to the
        stream.
        """
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, configuration.width)
        self.position_embedding = nn.Embedding(context, configuration.width)
        self.dropout = nn.Dropout(configuration.dropout)
        self.blocks = nn.ModuleList(Block(configuration) for _ in range(configuration.num_layers))
        self.norm = nn.LayerNorm(configuration.width)
        self.at_every_position = num_outputs == vocabulary_size
        self.output = nn.Linear(configuration.width, num_outputs, bias=not self.at_every_position)
        if self.at_every_position:
            self.output.weight = self.token_embedding.weight
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                # Each block adds twice to the stream, whose variance should not grow with depth.
                adds = name.endswith(("attention_output.weight", "feedforward_output.weight"))
                deviation = 0.02 / math.sqrt(2 * configuration.num_layers) if adds else 0.02
                nn.init.normal_(parameter, std=deviation)

    def pieces(self) -> list[Any]:
        """Return embedding, blocks and output, between which the model can be cut into stages."""
        embedding = (self._embed, self.token_embedding, self.position_embedding, self.dropout)
        return [embedding, *self.blocks, (self._predict, self.norm, self.output)]

    def exit_head(self, num_outputs: int) -> nn.Module:
        """Return the output of an early exit, which takes the residual stream."""
        width = self.output.in_features
        return nn.Sequential(LastPosition(), nn.LayerNorm(width), nn.Linear(width, num_outputs))

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        """Return the layers that workers can hold in parts, with the blocks in the rows of the
        first ones.
        """
        attention = ("query_key_value", "attention_output", 3)
        feedforward = ("feedforward_input", "feedforward_output", 1)
        return [
            (f"blocks.{number}.{first}", f"blocks.{number}.{second}", num_blocks)
            for number in range(len(self.blocks))
            for first, second, num_blocks in (attention, feedforward)
        ]

    def take_part(self, num_parts: int) -> None:
        """Compute only a part of the heads, as whose weights are to be cut.

        Raises:
            ExperimentError: If the heads cannot be divided equally.
        """
        for block in self.blocks:
            assert isinstance(block, Block)
            if block.num_heads % num_parts:
                raise ExperimentError(
                    f"{block.num_heads} heads cannot be divided among {num_parts} workers",
                    field="plan.tensor",
                    allowed="divisors of the number of heads",
                )
            block.num_heads //= num_parts

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, time) token ids to (batch, time, num_outputs) or (batch, num_outputs).

        Raises:
            ExperimentError: If there are more tokens than the context that it was built for.
        """
        stream = self._embed(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self._predict(stream)

    def _embed(self, tokens: Tensor) -> Tensor:
        time, context = tokens.shape[1], self.position_embedding.num_embeddings
        if time > context:
            raise ExperimentError(f"{time} tokens exceed the context of {context}", field="model")
        positions = torch.arange(time, device=tokens.device)
        return self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))

    def _predict(self, stream: Tensor) -> Tensor:
        stream = self.norm(stream)
        return self.output(stream if self.at_every_position else stream[:, -1])
