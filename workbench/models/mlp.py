"""A multi-layer perceptron on the flattened input, and the activation functions of the zoo."""

from __future__ import annotations

import math

from torch import Tensor, nn

from workbench.models.configurations import Activation, MLPConfiguration

ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class MLP(nn.Module):
    """Hidden layers of equal width, then a linear output."""

    def __init__(
        self, configuration: MLPConfiguration, *, input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        """Build it with PyTorch's default initialisation."""
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for _ in range(configuration.num_layers):
            layers += [
                nn.Linear(width, configuration.hidden_width),
                ACTIVATIONS[configuration.activation](),
            ]
            if configuration.dropout:
                layers.append(nn.Dropout(configuration.dropout))
            width = configuration.hidden_width
        layers.append(nn.Linear(width, num_outputs))
        self.layers = nn.Sequential(*layers)

    def pieces(self) -> list[nn.Module]:
        """Return the layers, between which the model can be cut into stages."""
        return list(self.layers)

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        """Return the layers that workers can hold in parts, with the blocks in the rows of the
        first ones.
        """
        linear = [
            f"layers.{name}"
            for name, each in self.layers.named_children()
            if isinstance(each, nn.Linear)
        ]
        return [
            (first, second, 1) for first, second in zip(linear[::2], linear[1::2], strict=False)
        ]

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) to (batch, num_outputs)."""
        return self.layers(inputs)
