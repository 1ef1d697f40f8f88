"""Who takes part in a round, who fails in it and who is slow: pure functions of (seed, round)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_DRAW_OF_ROUNDS = 0x0F3D
"""Keeps these draws apart from others of the same seed."""


@dataclass(frozen=True)
class Participation:
    """One client in one round.

    Attributes:
        client: Its number, from 0.
        fails: Whether nothing of it reaches the server.
        part: How much of its local training it completes before the round ends, above 0 and at most
            1.
    """

    client: int
    fails: bool
    part: float


def draw_round(
    seed: int, number: int, *, num_clients: int, fraction: float, failures: float, stragglers: float
) -> list[Participation]:
    """Draw the clients of a round, and what becomes of each.

    Args:
        seed: Seed of the training.
        number: Which round, from 0.
        num_clients: Number of clients.
        fraction: Share of them that takes part, at least one.
        failures: Probability with which one of these fails.
        stragglers: Probability with which one of these completes only a part of its training.

    Returns:
        The clients, in the order of their numbers.
    """
    rng = np.random.default_rng([_DRAW_OF_ROUNDS, seed, number])
    num_drawn = min(num_clients, max(1, round(fraction * num_clients)))
    drawn = np.sort(rng.choice(num_clients, size=num_drawn, replace=False))
    fails, is_slow = rng.random(num_drawn) < failures, rng.random(num_drawn) < stragglers
    parts = np.where(is_slow, 1.0 - rng.random(num_drawn), 1.0)
    return [
        Participation(int(client), bool(fail), float(part))
        for client, fail, part in zip(drawn, fails, parts, strict=True)
    ]
