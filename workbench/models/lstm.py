"""Stacked LSTM layers on token ids or on a sequence of feature vectors."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn

from workbench.models.exits import LastPosition


class LSTM(nn.Module):
    """An embedding for tokens, LSTM layers, and a linear output at every or only the last position.

    With one output for each token id, it is a language model, which predicts at every position.
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
        embedding_width: int,
        hidden_width: int,
        num_layers: int,
        dropout: float,
        has_exits: bool,
    ) -> None:
        """Build the network. Forget gates start open, because remembering is hard to learn."""
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        num_features = input_shape[-1]
        if vocabulary_size is not None:
            num_features = embedding_width
            self.embedding = nn.Embedding(vocabulary_size, num_features)
        self.layers: nn.Module
        if has_exits:
            # PyTorch computes several layers as one module, so an exit could not be between them.
            layers: list[nn.Module] = []
            for _ in range(num_layers):
                layers.append(nn.LSTM(num_features, hidden_width, batch_first=True))
                num_features = hidden_width
            self.layers = nn.ModuleList(layers)
        else:
            # PyTorch applies dropout only between layers, and warns about it for a single layer.
            if num_layers == 1:
                dropout_between = 0.0
            else:
                dropout_between = dropout
            self.layers = nn.LSTM(
                num_features,
                hidden_width,
                num_layers=num_layers,
                dropout=dropout_between,
                batch_first=True,
            )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_width, num_outputs)
        self.at_every_position = num_outputs == vocabulary_size
        for name, parameter in self.layers.named_parameters():
            # PyTorch adds two biases. A 1 in the first of them opens the forget gate.
            if "bias_ih" in name:
                forget = slice(hidden_width, 2 * hidden_width)
                nn.init.ones_(parameter.data[forget])

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, time[, features]) to (batch, time, num_outputs) or (batch, num_outputs)."""
        states = inputs
        for call, *_ in self.pieces():
            states = call(states)
        return states

    def pieces(self) -> list[Any]:
        """Return embedding, layers and output. The model can be cut into stages between them."""
        layers: list[nn.Module] = [self.layers]
        if isinstance(self.layers, nn.ModuleList):
            layers = list(self.layers)
        computed = [
            (functools.partial(self._compute, layer, drops=number > 0), layer)
            for number, layer in enumerate(layers)
        ]
        return [
            (self.embedding, self.embedding),
            *computed,
            (self._predict, self.dropout, self.output),
        ]

    def exit_head(self, num_outputs: int) -> nn.Module:
        """Return the output layer of an early exit, which receives the output of a layer."""
        return nn.Sequential(LastPosition(), nn.Linear(self.output.in_features, num_outputs))

    def _compute(self, layer: nn.Module, states: Tensor, *, drops: bool) -> Tensor:
        if drops:
            states = self.dropout(states)
        return layer(states)[0]

    def _predict(self, states: Tensor) -> Tensor:
        if not self.at_every_position:
            states = states[:, -1]
        return self.output(self.dropout(states))
