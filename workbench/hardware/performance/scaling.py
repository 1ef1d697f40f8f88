"""Rules of thumb for more GPUs: the speedup with overhead, and how many servers hide traffic."""

from __future__ import annotations

import math


def speedup(num_gpus: int, overhead: float) -> float:
    """Return the speedup of G GPUs at a fixed batch per GPU: G (1 + R) / (1 + G R).

    Args:
        num_gpus: G, at least 1.
        overhead: R, the time per step that is not parallel, relative to computing, on one GPU. Time
            that is hidden behind computing does not count. If it grows with the number of GPUs, use
            its value at G.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    return num_gpus * parallel_efficiency(num_gpus, overhead)


def parallel_efficiency(num_gpus: int, overhead: float) -> float:
    """Return the efficiency of G GPUs: (1 + R) / (1 + G R). See `speedup` for the arguments."""
    return (1.0 + overhead) / (1.0 + num_gpus * overhead)


def most_overhead(num_gpus: int, wanted_efficiency: float) -> float:
    """Return the largest overhead with a wanted efficiency: (1 - a) / (a G - 1).

    Args:
        num_gpus: G, at least 2.
        wanted_efficiency: a, more than 1/G (which any overhead allows) and at most 1.

    Returns:
        The overhead relative to computing, or infinity if any overhead is small enough.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    if wanted_efficiency * num_gpus <= 1.0:
        return math.inf
    return (1.0 - wanted_efficiency) / (wanted_efficiency * num_gpus - 1.0)


def num_parameter_servers(
    parameter_bytes: float, num_workers: int, bytes_per_s: float, compute_s: float
) -> int:
    """Return how many parameter servers hide their traffic: 2 S W / (B T), rounded up.

    Args:
        parameter_bytes: S, bytes of all parameters, > 0. They are spread evenly over the servers.
        num_workers: W, the number of workers. Each pushes and pulls all parameters once per round.
        bytes_per_s: B, the bandwidth of a server's network in both directions together, > 0.
        compute_s: T, seconds of computing per round, > 0.

    Returns:
        The number of servers, at least 1. The workers' network is another limit: 2 S / B <= T.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.2.
    """
    return max(1, math.ceil(2.0 * parameter_bytes * num_workers / (bytes_per_s * compute_s)))
