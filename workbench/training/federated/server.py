"""The server's part of a round: it combines the changes of clients, and makes its step.

The changes are averaged, or combined in one of two ways that tolerate clients with arbitrary
values. The step is plain, with momentum, or adaptive.

With secure aggregation by pairwise masks, the server learns only the sum of what it receives. Each
pair of clients shares a secret and derives a mask from it. One adds the mask and the other
subtracts it, so that the masks cancel in the sum. Numbers are fixed-point integers modulo 2^64, so
sums are exact in any order. If a client fails, its masks do not cancel. Then the other clients
reveal the secrets that they share with it, and the server removes those masks. A real deployment
must also let clients agree on secrets, and reject late numbers of failed clients.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
2017, with single masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

FRACTION_BITS = 32
SECRET_BYTES = 32


def weighted_mean(changes: Iterable[tuple[np.ndarray, float]]) -> np.ndarray | None:
    """Return the weighted mean of changes.

    They are added one by one, so the same order gives the same result, bit for bit.

    Args:
        changes: Each client's change, one-dimensional, and its weight, such as its number of
            samples.

    Returns:
        The mean as float64, or None if all weights are 0.
    """
    total: np.ndarray | None = None
    total_weight = 0.0
    for change, weight in changes:
        if weight == 0.0:
            continue
        share = change.astype(np.float64) * weight
        total = share if total is None else total + share
        total_weight += weight
    return None if total is None else total / total_weight


def trimmed_mean(changes: Sequence[np.ndarray], trim: float) -> np.ndarray:
    """Return the mean of each weight without its largest and smallest values.

    Args:
        changes: One-dimensional changes, at least one.
        trim: Share of the clients to drop at each end, below 0.5.

    Source: Yin et al., "Byzantine-Robust Distributed Learning", 2018.
    """
    ordered = np.sort(np.stack(changes).astype(np.float64), axis=0)
    num_cut = min(int(trim * len(changes)), (len(changes) - 1) // 2)
    return ordered[num_cut : len(changes) - num_cut].mean(axis=0)


def krum(changes: Sequence[np.ndarray], num_bad: int) -> int:
    """Return which change is nearest to its neighbours, by the sum of squared distances.

    Args:
        changes: One-dimensional changes, at least one.
        num_bad: How many clients may send arbitrary values. The nearest clients - bad - 2
            neighbours count, at least one.

    Returns:
        The position of the change. If several are equally near, the first one.

    Source: Blanchard et al., "Machine Learning with Adversaries", 2017.
    """
    if len(changes) == 1:
        return 0
    points = np.stack(changes).astype(np.float64)
    distances = np.stack([np.square(points - point).sum(axis=1) for point in points])
    np.fill_diagonal(distances, np.inf)
    num_near = min(max(1, len(changes) - num_bad - 2), len(changes) - 1)
    return int(np.sort(distances, axis=1)[:, :num_near].sum(axis=1).argmin())


@dataclass
class Server:
    """The server, which makes one step in each round.

    Attributes:
        rule: How the change is applied: a name of `ServerRule` in the experiment's section
            `federated`.
        lr: The server's learning rate.
        momentum: Decay of the mean change, or 0 for none. fedavg does not use it.
        second_moment: Decay of the mean square, for fedadam and fedyogi.
        tau: Added to the root of the mean square. Larger numbers adapt less.

    Source: fedavg: McMahan et al. 2017. fedavgm: Hsu, Qi, Brown 2019. The others: Reddi et al.,
    "Adaptive Federated Optimization", 2021, algorithm 2.
    """

    rule: str = "fedavg"
    lr: float = 1.0
    momentum: float = 0.9
    second_moment: float = 0.99
    tau: float = 1e-3
    _mean: np.ndarray | None = field(default=None, repr=False)
    _square: np.ndarray | None = field(default=None, repr=False)

    def step(self, change: np.ndarray) -> np.ndarray:
        """Return the change to add to the weights.

        Args:
            change: The aggregated change of the clients' weights, float64, one-dimensional.
        """
        if self.rule == "fedavg":
            return self.lr * change
        before = self._mean
        if before is None:
            before = np.zeros_like(change)
        if self.rule == "fedavgm":
            self._mean = self.momentum * before + change
            return self.lr * self._mean
        self._mean = self.momentum * before + (1.0 - self.momentum) * change
        square = self._square
        if square is None:
            square = np.full_like(change, self.tau**2)
        self._square = self._next_square(square, np.square(change))
        return self.lr * self._mean / (np.sqrt(self._square) + self.tau)

    def _next_square(self, square: np.ndarray, change: np.ndarray) -> np.ndarray:
        if self.rule == "fedadagrad":
            return square + change
        if self.rule == "fedyogi":
            return square - (1.0 - self.second_moment) * change * np.sign(square - change)
        return self.second_moment * square + (1.0 - self.second_moment) * change

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for the next step, for `load`."""
        kept = {"mean": self._mean, "square": self._square}
        return {name: value for name, value in kept.items() if value is not None}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Load what `state` returned."""
        self._mean, self._square = state.get("mean"), state.get("square")


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
