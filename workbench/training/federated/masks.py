"""Secure aggregation by pairwise masks: the server learns only the sum of what it receives.

Each pair of clients shares a secret and derives a mask from it. One adds the mask and the other
subtracts it, so that the masks cancel in the sum. Numbers are fixed-point integers modulo 2^64, so
sums are exact in any order. If a client fails, its masks do not cancel. Then the other clients
reveal the secrets that they share with it, and the server removes those masks. A real deployment
must also let clients agree on secrets, and reject late numbers of failed clients.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
2017, with single masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

FRACTION_BITS = 32
SECRET_BYTES = 32


def pair_secret(seed: int, number: int, client: int, other: int) -> bytes:
    """Return the secret that two simulated clients share in a round.

    Args:
        seed: Seed of the training.
        number: Number of the round.
        client: A client.
        other: Another client. The order does not matter.
    """
    text = f"{seed}/{number}/{min(client, other)}/{max(client, other)}"
    return hashlib.sha256(text.encode()).digest()


class SumTooLargeError(Exception):
    """A number is so large that the sum over all clients may overflow.

    Attributes:
        position: Index of the number.
        value: The number.
        bound: Largest allowed size of a number.
    """

    def __init__(self, position: int, value: float, bound: float) -> None:
        """Make an error for one number."""
        super().__init__(
            f"number {position} is {value:g}, and the limit for sums in fixed point is {bound:g}"
        )
        self.position = position
        self.value = value
        self.bound = bound


def to_fixed(values: np.ndarray, *, num_clients: int) -> np.ndarray:
    """Return numbers as integers modulo 2^64, in units of 2^-32.

    If a sum left the range of 64-bit integers, it would wrap around, and nobody would notice,
    because the server sees only the sum. So every client gets an equal part of the range, and
    checks its own numbers.

    Args:
        values: The numbers of one client.
        num_clients: Maximum number of clients in a sum, at least 1.

    Raises:
        OverflowError: If a number is not finite.
        SumTooLargeError: If a number exceeds a client's part of the range.
    """
    scaled = np.rint(np.asarray(values, dtype=np.float64) * 2.0**FRACTION_BITS)
    if not np.all(np.isfinite(scaled)):
        raise OverflowError("the change of a client is not finite")
    # The limit may be rounded up to a float. But no float lies between it and the rounded limit, so
    # a smaller float is within the limit.
    limit = float((2**63 - 1) // num_clients)
    is_too_large = np.abs(scaled) >= limit
    if is_too_large.any():
        position = int(np.abs(scaled).argmax())
        raise SumTooLargeError(position, float(values[position]), limit / 2.0**FRACTION_BITS)
    return scaled.astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray) -> np.ndarray:
    """Return a sum of fixed-point numbers from `to_fixed` as float64."""
    return total.view(np.int64).astype(np.float64) / 2.0**FRACTION_BITS


def masked(values: np.ndarray, client: int, secrets: Mapping[int, bytes]) -> np.ndarray:
    """Return the message of a client: its numbers with the masks of all of its pairs.

    Args:
        values: Fixed-point numbers.
        client: The client.
        secrets: Its secret with each other client of the round.
    """
    sent = values.copy()
    for other, secret in secrets.items():
        _add_mask(sent, secret, is_added=client < other)
    return sent


def unmasked_sum(
    received: Mapping[int, np.ndarray], revealed: Mapping[tuple[int, int], bytes]
) -> np.ndarray:
    """Return the sum of the numbers of all received clients, as the server computes it.

    Args:
        received: The message of each client, at least one.
        revealed: The secret of each pair (received client, failed client).
    """
    total = np.zeros_like(next(iter(received.values())))
    for sent in received.values():
        total += sent  # modulo 2^64
    for (client, failed), secret in revealed.items():
        _add_mask(total, secret, is_added=client > failed)
    return total


def _add_mask(values: np.ndarray, secret: bytes, *, is_added: bool) -> None:
    mask = np.frombuffer(hashlib.shake_256(secret).digest(values.nbytes), dtype="<u8")
    if is_added:
        values += mask
    else:
        values -= mask
