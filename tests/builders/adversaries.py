"""A small GAN with two optimizers, as a class with steps of its own and as the loop that one would
write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def load(options: Mapping[str, Any]) -> Any:
    """Return noise and points on a line, in pairs."""
    draw = torch.Generator().manual_seed(0)
    noise = torch.rand(60, 2, generator=draw)
    points = torch.stack([noise[:, 0], 0.5 + noise[:, 1]], dim=1)
    pairs = list(zip(noise, points, strict=True))
    return pairs[:48], pairs[48:]


class Adversaries:
    """A generator, which makes points of noise, and a critic that tells them from real ones."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.width = int(config.get("width", 8))

    def configure(self, lr: float) -> dict[str, torch.optim.Optimizer]:
        self.generator = nn.Linear(2, 2)
        self.critic = nn.Sequential(nn.LazyLinear(self.width), nn.Tanh(), nn.Linear(self.width, 1))
        return {
            "critic": torch.optim.SGD(self.critic.parameters(), lr=10 * lr, momentum=0.5),
            "generator": torch.optim.Adam(self.generator.parameters(), lr=lr),
        }

    def step(self, batch: tuple[Tensor, Tensor], optimizer: str) -> Tensor:
        noise, real = batch
        judged = self.critic(self.generator(noise))
        if optimizer == "generator":
            return functional.softplus(-judged).mean()
        return (functional.softplus(-self.critic(real)) + functional.softplus(judged)).mean()

    def evaluate(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        noise, real = batch
        made = self.generator(noise)
        return {
            "distance": (made - real).abs().mean(),
            "fooled": (self.critic(made) > 0).float().mean(),
        }


class Alone:
    """A single optimizer, and nothing but steps."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        pass

    def configure(self) -> torch.optim.Optimizer:
        self.layer = nn.Linear(2, 2)
        return torch.optim.SGD(self.layer.parameters(), lr=0.5)

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        noise, real = batch
        return functional.mse_loss(self.layer(noise), real)


class Wrong(Alone):
    """Returns something else than a loss."""

    def step(self, batch: tuple[Tensor, Tensor]) -> Any:
        return "loss"


def report_only(config: Mapping[str, Any], report: Any) -> None:
    """Stand for a train function, which reads its data itself."""
