"""How long a model takes compared with another one on the same machine, both called in turn.

Calls that alternate see the same machine: what else it does, and how fast its clock is, changes
both alike. This file is copied to other machines beside `device_runner`, so it needs numpy only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_WARM_UP_S = 0.1
_MEASURED_S = 1.0
_MIN_REPEATS, _MAX_REPEATS = 30, 2000
_NUM_RESAMPLES = 1000
_LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """The latency of a model and of the one that it is compared with.

    Attributes:
        ratio: The median of the one as a share of that of the other: below 1 is faster.
        low: Lower end of the 95 % interval of the ratio, by bootstrap.
        high: Upper end.
        candidate_s: Median time of a call.
        base_s: Median time of a call of the other model.
        num_pairs: How often each was called.
    """

    ratio: float
    low: float
    high: float
    candidate_s: float
    base_s: float
    num_pairs: int


def compare(
    candidate: Callable[[], Any], base: Callable[[], Any], *, measured_s: float = _MEASURED_S
) -> Comparison:
    """Call two models in turn and compare their times.

    Args:
        candidate: Calls the one.
        base: Calls the other.
        measured_s: About how long to measure, in seconds.
    """
    once_s = _warm_up(candidate) + _warm_up(base)
    number = int(np.clip(measured_s / once_s, _MIN_REPEATS, _MAX_REPEATS))
    times = np.empty((number, 2))
    for pair in range(number):
        # Each goes first in half of the pairs: what a call leaves in the caches helps both alike.
        for which in (0, 1) if pair % 2 else (1, 0):
            times[pair, which] = _time(candidate if which == 0 else base)
    return summarise(times)


def summarise(times: np.ndarray, *, seed: int = 0) -> Comparison:
    """Return the ratio of the medians of two columns of times, with its interval.

    Args:
        times: (pairs, 2): the candidate's times and those of the base, in seconds.
        seed: Seed of the bootstrap.
    """
    drawn = np.random.default_rng(seed).integers(len(times), size=(_NUM_RESAMPLES, len(times)))
    medians = np.stack([np.median(times[:, column][drawn], axis=1) for column in (0, 1)])
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    candidate_s, base_s = np.median(times, axis=0)
    return Comparison(
        float(candidate_s / base_s),
        float(low),
        float(high),
        float(candidate_s),
        float(base_s),
        len(times),
    )


def calls(session: Any, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """Return a function that runs an ONNX Runtime session once."""
    fixed = dict(feeds)
    return lambda: session.run(None, fixed)


def _time(call: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _warm_up(call: Callable[[], Any]) -> float:
    """Call until caches and clock have settled, and return the time of one call."""
    times = [_time(call)]
    while sum(times) < _WARM_UP_S or len(times) < 3:
        times.append(_time(call))
    return max(float(np.median(times)), 1e-7)
