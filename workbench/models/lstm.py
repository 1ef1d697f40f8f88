"""Stacked LSTM layers on token ids or on a sequence of feature vectors."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.models.token_configurations import LSTMConfiguration


class LSTM(nn.Module):
    """An embedding for tokens, LSTM layers, and a linear output at every position or at the last one.

    It is a language model, and answers at every position, where it has one output for each token id.
    """

    def __init__(
        self,
        configuration: LSTMConfiguration,
        *,
        input_shape: tuple[int, ...],
        num_outputs: int,
        vocabulary_size: int | None,
    ) -> None:
        """Build it; forget gates start half open, as remembering must be learnt otherwise."""
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        num_features = input_shape[-1]
        if vocabulary_size is not None:
            num_features = configuration.embedding_width
            self.embedding = nn.Embedding(vocabulary_size, num_features)
        self.layers = nn.LSTM(
            num_features,
            configuration.hidden_width,
            num_layers=configuration.num_layers,
            # PyTorch drops between layers only and warns where there is nothing between.
            dropout=configuration.dropout if configuration.num_layers > 1 else 0.0,
            batch_first=True,
        )
        self.dropout = nn.Dropout(configuration.dropout)
        self.output = nn.Linear(configuration.hidden_width, num_outputs)
        self.at_every_position = num_outputs == vocabulary_size
        for name, parameter in self.layers.named_parameters():
            if name.startswith("bias_ih"):
                forget = slice(configuration.hidden_width, 2 * configuration.hidden_width)
                nn.init.ones_(parameter.data[forget])

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, time[, features]) to (batch, time, num_outputs) or (batch, num_outputs)."""
        states, _ = self.layers(self.embedding(inputs))
        return self.output(self.dropout(states if self.at_every_position else states[:, -1]))
