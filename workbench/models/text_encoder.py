"""A transformer that reads a text in both directions, with a class of the text or of each token."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from workbench.models.token_configurations import TextEncoderConfiguration
from workbench.models.transformer import Block


class TextEncoder(nn.Module):
    """Token and position embeddings, blocks, and an output of each token or of the mean over
    them.
    """

    def __init__(
        self,
        configuration: TextEncoderConfiguration,
        *,
        context: int,
        num_outputs: int,
        vocabulary_size: int,
        at_every_position: bool,
    ) -> None:
        """Build it; weights are normal with deviation 0.02."""
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, configuration.width, padding_idx=0)
        self.position_embedding = nn.Embedding(context, configuration.width)
        self.dropout = nn.Dropout(configuration.dropout)
        self.blocks = nn.ModuleList(Block(configuration) for _ in range(configuration.num_layers))
        self.norm = nn.LayerNorm(configuration.width)
        self.output = nn.Linear(configuration.width, num_outputs)
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
        """Return embedding, blocks and output, between which the model can be cut into stages.

        They pass on the residual stream and, behind it, 1 where there is a token and 0 where there
        is none.
        """
        embedding = (self._begin, self.token_embedding, self.position_embedding, self.dropout)
        blocks = [(functools.partial(_through, block), block) for block in self.blocks]
        return [embedding, *blocks, (self._end, self.norm, self.output)]

    def exit_head(self, num_outputs: int) -> nn.Module:
        """Return the output of an early exit, which takes what pieces pass on."""
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
        return self.output(stream if self.at_every_position else _mean(stream, is_read))


class _ExitHead(nn.Module):
    """Answers from the mean over the tokens of a text."""

    def __init__(self, width: int, num_outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, passed: Tensor) -> Tensor:
        stream, is_read = _parted(passed)
        return self.output(_mean(self.norm(stream), is_read))


def _is_read(tokens: Tensor) -> Tensor:
    """Return which places others attend to, (batch, time): the first one in any case."""
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
