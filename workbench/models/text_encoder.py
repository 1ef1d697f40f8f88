"""A transformer that reads a text in both directions, with a class of the text or of each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.models.token_configurations import TextEncoderConfiguration
from workbench.models.transformer import Block


class TextEncoder(nn.Module):
    """Token and position embeddings, blocks, and an output of each token or of the mean over them."""

    def __init__(
        self, configuration: TextEncoderConfiguration, *, context: int, num_outputs: int,
        vocabulary_size: int, at_every_position: bool,
    ) -> None:  # fmt: skip
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
        is_read = tokens != 0
        # The first place is read in any case: attention to nothing would not be a number.
        is_read = torch.cat([torch.ones_like(is_read[:, :1]), is_read[:, 1:]], dim=1)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            stream = block(stream, is_read[:, None, None, :])
        stream = self.norm(stream)
        if self.at_every_position:
            return self.output(stream)
        weights = is_read[:, :, None].to(stream.dtype)
        return self.output((stream * weights).sum(dim=1) / weights.sum(dim=1))
