"""The configurations that stand for a search space where few can be tried.

A sample, and both ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.domain import Domain, Float, Int
from workbench.experiment.space import Params


def configurations_to_try(experiment: Experiment) -> Iterator[tuple[str, Params]]:
    """Yield configurations of an experiment, the most usual first, each once, with a description.

    Args:
        experiment: The experiment; without a search space the only one is empty.
    """
    space = experiment.search
    sample = space.sample(random.Random(experiment.seed))
    seen = [sample]
    yield "a sample", sample
    ends: tuple[tuple[str, Literal[0, -1]], ...] = (
        ("the largest values", -1),
        ("the smallest values", 0),
    )
    for description, end in ends:
        params: Params = {}
        for name in space.order():
            if space.exists(name, params):
                params[name] = _end_of(space.root[name], end)
        if params not in seen:
            seen.append(params)
            yield description, params


def _end_of(domain: Domain, end: Literal[0, -1]) -> JsonValue:
    """Return the smallest (0) or largest (-1) value.

    Of choices that are not numbers the first or last.
    """
    if isinstance(domain, Float | Int):
        values = domain.values()
        return (domain.low if end == 0 else domain.high) if values is None else values[end]
    choices = domain.values()
    if all(isinstance(choice, int | float) and not isinstance(choice, bool) for choice in choices):
        choices = sorted(choices)  # type: ignore[type-var]
    return choices[end]
