"""Rules of thumb for more GPUs: their speedup with overhead, and servers to hide their traffic."""

from __future__ import annotations

import math


def speedup(num_gpus: int, overhead: float) -> float:
    """Return how many times faster G GPUs are than one, at a fixed batch per GPU.

    G (1 + R) / (1 + G R).

    Args:
        num_gpus: G, at least 1.
        overhead: R, the time per step that is not parallel, relative to computing, on one GPU; what
            is hidden behind computing does not count. Where it grows with the group, the value at
            G.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    return num_gpus * parallel_efficiency(num_gpus, overhead)


def parallel_efficiency(num_gpus: int, overhead: float) -> float:
    """Return the part of G GPUs that overhead leaves: (1 + R) / (1 + G R).

    Arguments as in `speedup`.
    """
    return (1.0 + overhead) / (1.0 + num_gpus * overhead)


def most_overhead(num_gpus: int, wanted_efficiency: float) -> float:
    """Return the overhead at which that many GPUs still have an efficiency: (1 - a) / (a G - 1).

    Args:
        num_gpus: G, at least 2.
        wanted_efficiency: a, from more than 1/G, which any overhead allows, to 1.

    Returns:
        The overhead relative to computing; infinity where every overhead will do.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    if wanted_efficiency * num_gpus <= 1.0:
        return math.inf
    return (1.0 - wanted_efficiency) / (wanted_efficiency * num_gpus - 1.0)


def num_parameter_servers(
    parameter_bytes: float, num_workers: int, bytes_per_s: float, compute_s: float
) -> int:
    """Return how many parameter servers hide their traffic behind computing.

    2 S W / (B T), rounded up.

    Args:
        parameter_bytes: S, bytes of all parameters, > 0; spread evenly over the servers.
        num_workers: W, each of which pushes and pulls all parameters once a round.
        bytes_per_s: B, what a server's network carries, both ways together, > 0.
        compute_s: T, seconds of computing per round, > 0.

    Returns:
        At least 1. The workers' own network, 2 S / B <= T, is a limit besides.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.2.
    """
    return max(1, math.ceil(2.0 * parameter_bytes * num_workers / (bytes_per_s * compute_s)))
