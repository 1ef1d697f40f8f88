"""How often each value of each parameter would be sampled at random from a search space."""

from __future__ import annotations

import math
import random
from typing import Any

from workbench.experiment.domain import Domain, Float, Int, same_value
from workbench.experiment.space import Space
from workbench.views.forms.results import SampledParameter, SampledSpace

NUM_SAMPLES = 1000
_NUM_BINS = 20
_SEED = 0


def sampled(space: Space, num_samples: int = NUM_SAMPLES) -> SampledSpace:
    """Sample a search space at random, and count the values of each parameter.

    Args:
        space: The search space.
        num_samples: Number of configurations, at least 1.
    """
    rng = random.Random(_SEED)
    drawn = [space.sample(rng) for _ in range(num_samples)]
    parameters = []
    for name, domain in space.root.items():
        values = [params[name] for params in drawn if name in params]
        share = len(values) / num_samples
        parameters.append(
            SampledParameter(name=name, exists_share=share, **_counted(domain, values))
        )
    return SampledSpace(num_samples=num_samples, parameters=tuple(parameters))


def _counted(domain: Domain, values: list[Any]) -> dict[str, Any]:
    allowed = domain.values()
    if isinstance(domain, Float | Int) and (allowed is None or _is_longer(allowed, _NUM_BINS)):
        return _histogram(domain, values)
    choices = list(allowed or ())
    counts = [sum(same_value(value, choice) for value in values) for choice in choices]
    return {"kind": "choices", "choices": choices, "counts": counts}


def _is_longer(values: Any, most: int) -> bool:
    # len() fails for a very long range.
    return bool(values[most : most + 1])


def _histogram(domain: Float | Int, values: list[float]) -> dict[str, Any]:
    def place(value: float) -> float:
        return math.log(value) if domain.log else float(value)

    low, high = place(domain.low), place(domain.high)
    counts = [0] * _NUM_BINS
    for value in values:
        share = (place(value) - low) / ((high - low) or 1.0)
        counts[min(int(share * _NUM_BINS), _NUM_BINS - 1)] += 1
    places = [low + (high - low) * (index / _NUM_BINS) for index in range(1, _NUM_BINS)]
    inner = [math.exp(one) if domain.log else one for one in places]
    return {"kind": "range", "edges": [domain.low, *inner, domain.high], "counts": counts}
