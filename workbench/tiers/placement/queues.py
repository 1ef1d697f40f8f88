"""Waiting times of queues in closed form.

Requests that arrive at random, at one or many equal servers.

Pure mathematics over rates and times in seconds; which queue is where is left to `policies`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_HEAVY = 0.95
"""The load from which waits are exponential ones nearly exactly."""


@dataclass(frozen=True)
class Wait:
    """How long requests wait before they are served.

    Attributes:
        probability: Share of the requests that wait at all.
        mean_s: Mean wait of all requests, infinite where the queue grows without end.
        constant_s: The service time of one server that takes the same for each request, which says
            how waits are distributed, or 0 if there is none.
    """

    probability: float
    mean_s: float
    constant_s: float = 0.0

    def draw(self, number: int, random: np.random.Generator) -> np.ndarray:
        """Return waits as they are distributed.

        For a server with a constant service time they are exact: the sum of a geometric number of
        uniform ones. Else only the share that waits and the mean wait are known: they are drawn as
        exponential ones.

        Args:
            number: How many.
            random: The random generator.

        Source: Pollaczek (1930) and Khinchine (1932), in the form of Benes (1957).
        """
        if self.constant_s > 0 and self.probability < _HEAVY:
            ahead = random.geometric(1.0 - self.probability, number) - 1
            # All uniform draws are made at once. Differences of their running sum are the sums.
            ends = np.cumsum(ahead)
            sums = np.concatenate([[0.0], np.cumsum(random.random(int(ends[-1])))])
            return self.constant_s * (sums[ends] - sums[ends - ahead])
        drawn = random.exponential(1.0, number) * (random.random(number) < self.probability)
        # Without a steady state the mean is infinite, and infinity times 0 is not a number.
        with np.errstate(invalid="ignore"):
            return np.where(drawn > 0, drawn * (self.mean_s / self.probability), 0.0)


def erlang_c(num_servers: int, offered: float) -> float:
    """Return the probability that a request waits in an M/M/c queue.

    Args:
        num_servers: Number of servers.
        offered: Arrivals per second times the mean service time in seconds.

    Returns:
        A probability, or 1 if the servers cannot keep up.

    Source: Erlang (1917), computed with the recursion of Erlang B, which does not overflow.

    Example:
        >>> round(erlang_c(1, 0.5), 3)
        0.5
    """
    if offered >= num_servers:
        return 1.0
    if offered <= 0:
        return 0.0
    inverse = 1.0
    for number in range(1, num_servers + 1):
        inverse = 1.0 + inverse * number / offered
        if math.isinf(inverse):  # so many servers that nobody ever waits
            return 0.0
    blocked = 1.0 / inverse
    rho = offered / num_servers
    return blocked / (1.0 - rho * (1.0 - blocked))


def wait_of(
    arrivals_per_s: float, service_s: float, num_servers: int = 1, *, variation: float = 0.0
) -> Wait:
    """Return the wait in a queue with one line and equal servers.

    It is exact for M/M/c (`variation` 1) and for one server with any service time. Otherwise it is
    the approximation of Allen and Cunneen.

    Args:
        arrivals_per_s: Arrivals per second at all servers together.
        service_s: Mean service time in seconds.
        num_servers: Number of servers.
        variation: Squared coefficient of variation of the service time: 0 where it is constant.

    Source: Pollaczek (1930) and Khinchine (1932); Allen, Probability, Statistics and Queueing
    Theory (1990).

    Example:
        >>> wait_of(0.5, 1.0).mean_s
        0.5
    """
    offered = arrivals_per_s * service_s
    if offered >= num_servers:
        return Wait(1.0, math.inf)
    probability = erlang_c(num_servers, offered)
    mean_s = probability * service_s / (num_servers - offered) * (1.0 + variation) / 2.0
    return Wait(probability, mean_s)


def wait_of_times(
    arrivals_per_s: float,
    times_s: np.ndarray,
    num_servers: int = 1,
    *,
    weights: np.ndarray | None = None,
) -> Wait:
    """Return the wait in a queue whose service times are known. See `wait_of`.

    Args:
        arrivals_per_s: Arrivals per second at all servers together.
        times_s: Service times in seconds.
        num_servers: Number of servers.
        weights: The share of each time. All have the same by default.
    """
    if weights is None:
        weights = np.full(len(times_s), 1 / len(times_s))
    mean_s = float(times_s @ weights)
    if mean_s <= 0 or arrivals_per_s <= 0:
        return Wait(0.0, 0.0)
    variation = max(0.0, float((times_s**2) @ weights) / mean_s**2 - 1.0)
    return wait_of(arrivals_per_s, mean_s, num_servers, variation=variation)
