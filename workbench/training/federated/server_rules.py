"""What the server does with the aggregated change of a round: plain, with momentum, or adaptive."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Server:
    """One step of the server for each round.

    Attributes:
        rule: How the change is applied: a name of `ServerRule` in the experiment's section
            `federated`.
        lr: The server's rate.
        momentum: Decay of the mean change; 0 for none. Not read by fedavg.
        second_moment: Decay of the mean square; read by fedadam and fedyogi.
        tau: Added to the root of the mean square; larger numbers adapt less.

    Source: McMahan et al. 2017 (fedavg); Hsu, Qi, Brown 2019 (fedavgm); Reddi et al., "Adaptive
    Federated Optimization", 2021, algorithm 2 (the others).
    """

    rule: str = "fedavg"
    lr: float = 1.0
    momentum: float = 0.9
    second_moment: float = 0.99
    tau: float = 1e-3
    _mean: np.ndarray | None = field(default=None, repr=False)
    _square: np.ndarray | None = field(default=None, repr=False)

    def step(self, change: np.ndarray) -> np.ndarray:
        """Return what is added to the weights.

        Args:
            change: The aggregated change of the clients' weights, float64, one-dimensional.
        """
        if self.rule == "fedavg":
            return self.lr * change
        before = np.zeros_like(change) if self._mean is None else self._mean
        if self.rule == "fedavgm":
            self._mean = self.momentum * before + change
            return self.lr * self._mean
        self._mean = self.momentum * before + (1.0 - self.momentum) * change
        square = np.full_like(change, self.tau**2) if self._square is None else self._square
        self._square = self._next_square(square, np.square(change))
        return self.lr * self._mean / (np.sqrt(self._square) + self.tau)

    def _next_square(self, square: np.ndarray, change: np.ndarray) -> np.ndarray:
        if self.rule == "fedadagrad":
            return square + change
        if self.rule == "fedyogi":
            return square - (1.0 - self.second_moment) * change * np.sign(square - change)
        return self.second_moment * square + (1.0 - self.second_moment) * change

    def state(self) -> dict[str, np.ndarray]:
        """Return what the next step depends on, for `load`."""
        kept = {"mean": self._mean, "square": self._square}
        return {name: value for name, value in kept.items() if value is not None}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` returned."""
        self._mean, self._square = state.get("mean"), state.get("square")
