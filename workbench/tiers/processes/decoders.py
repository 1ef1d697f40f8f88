"""Decoders that learn to turn what a tier sends back into its inputs.

A linear one and a small network.

They play an attacker who sees what is sent and has samples of the same kind. `leak` judges what
they recover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

_HELD_BACK = 0.2
"""Share of the known samples by which settings are chosen."""
_PENALTIES = np.logspace(-6, 2, 9)
"""Penalties of the linear decoder, relative to the mean eigenvalue."""
_WIDTH = 256
_EPOCHS = 30
_PATIENCE = 5
"""Epochs without a smaller error after which the network stops learning."""
_BATCH = 128
_RATE = 1e-3


@dataclass(frozen=True)
class Pairs:
    """What was sent, and the inputs that it came from.

    Attributes:
        sent: (samples, features).
        inputs: (samples, values).
    """

    sent: np.ndarray
    inputs: np.ndarray

    @classmethod
    def flat(cls, sent: np.ndarray, inputs: np.ndarray) -> Self:
        """Return the pairs of samples of any shape."""
        return cls(
            sent.reshape(len(sent), -1).astype(np.float64),
            inputs.reshape(len(inputs), -1).astype(np.float64),
        )

    def divided(self) -> tuple[Self, Self]:
        """Return those that a decoder learns from and those by which its settings are chosen."""
        first = max(1, int(len(self.sent) * (1.0 - _HELD_BACK)))
        return (
            type(self)(self.sent[:first], self.inputs[:first]),
            type(self)(self.sent[first:], self.inputs[first:]),
        )


@dataclass(frozen=True)
class Decoder:
    """A decoder that has learned.

    Attributes:
        name: `linear` or `network`.
        decode: Returns (samples, values) for (samples, features).
        error: Its mean squared error on the samples by which its settings were chosen.
    """

    name: str
    decode: Callable[[np.ndarray], np.ndarray]
    error: float


def best_decoder(known: Pairs, *, seed: int = 0) -> Decoder:
    """Return the decoder that recovers most of samples that it did not learn from.

    Args:
        known: What decoders learn from. A fifth of it chooses among them.
        seed: Seed of the network.
    """
    learned, chosen_by = known.divided()
    if not len(chosen_by.sent):
        chosen_by = learned
    center, scale = float(learned.sent.mean()), float(learned.sent.std()) or 1.0

    def standard(sent: np.ndarray) -> np.ndarray:
        return (sent - center) / scale

    learned = Pairs(standard(learned.sent), learned.inputs)
    chosen_by = Pairs(standard(chosen_by.sent), chosen_by.inputs)
    best = min(
        (linear_decoder(learned, chosen_by), network_decoder(learned, chosen_by, seed=seed)),
        key=lambda decoder: decoder.error,
    )
    return Decoder(best.name, lambda sent: best.decode(standard(sent)), best.error)


def linear_decoder(learned: Pairs, chosen_by: Pairs) -> Decoder:
    """Return the ridge regression with the best penalty.

    Args:
        learned: What it learns from.
        chosen_by: The samples that choose the penalty.
    """
    offset, center = learned.inputs.mean(axis=0), learned.sent.mean(axis=0)
    # One decomposition serves all penalties: each then only scales the singular values.
    left, singular, right = np.linalg.svd(learned.sent - center, full_matrices=False)
    projected = left.T @ (learned.inputs - offset)
    mean = float(np.mean(singular**2)) or 1.0

    def weights_at(penalty: float) -> np.ndarray:
        return right.T @ ((singular / (singular**2 + penalty * mean))[:, None] * projected)

    given = chosen_by.sent - center
    errors = [
        _error(given @ weights_at(penalty) + offset, chosen_by.inputs) for penalty in _PENALTIES
    ]
    best = int(np.argmin(errors))
    weights = weights_at(float(_PENALTIES[best]))
    return Decoder("linear", lambda sent: (sent - center) @ weights + offset, errors[best])


def network_decoder(learned: Pairs, chosen_by: Pairs, *, seed: int = 0) -> Decoder:
    """Return a network with two hidden layers, as it was after its best epoch.

    Args:
        learned: What it learns from, with features of about unit size.
        chosen_by: The samples that choose the epoch.
        seed: Seed of its weights and of the order of samples.
    """
    import torch
    from torch import nn

    offset, scale = learned.inputs.mean(axis=0), float(learned.inputs.std()) or 1.0
    sent = torch.from_numpy(learned.sent).float()
    wanted = torch.from_numpy((learned.inputs - offset) / scale).float()
    # The random numbers of the caller, such as those of a training, stay as they are.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(sent.shape[1], _WIDTH),
            nn.ReLU(),
            nn.Linear(_WIDTH, _WIDTH),
            nn.ReLU(),
            nn.Linear(_WIDTH, wanted.shape[1]),
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)

        def decode(given: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                return network(torch.from_numpy(given).float()).double().numpy() * scale + offset

        best, error, since = network.state_dict(), float("inf"), 0
        for _ in range(_EPOCHS):
            for numbers in torch.randperm(len(sent)).split(_BATCH):
                optimizer.zero_grad()
                nn.functional.mse_loss(network(sent[numbers]), wanted[numbers]).backward()
                optimizer.step()
            epoch_error, since = _error(decode(chosen_by.sent), chosen_by.inputs), since + 1
            if epoch_error < error:
                # Copies: `state_dict` returns the parameters themselves, which go on changing.
                best = {name: value.clone() for name, value in network.state_dict().items()}
                error, since = epoch_error, 0
            if since == _PATIENCE:
                break
    network.load_state_dict(best)
    return Decoder("network", decode, error)


def _error(decoded: np.ndarray, inputs: np.ndarray) -> float:
    return float(np.mean(np.square(decoded - inputs)))
