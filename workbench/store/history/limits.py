"""Whether trials keep the constraints of their experiment, and which comes nearest where none
does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from workbench.experiment import Constraint
from workbench.foundation.formatting import format_number
from workbench.store.history.trial import Trial


def keeps(constraint: Constraint, values: Mapping[str, float]) -> bool:
    """Return whether values keep a constraint; one that is missing does not."""
    return constraint.metric in values and constraint.violation(values[constraint.metric]) <= 0


def excess_of(constraints: Iterable[Constraint], values: Mapping[str, float]) -> float:
    """Return by how much values break constraints, in parts of the limits.

    Infinite if one is missing.
    """
    total = 0.0
    for constraint in constraints:
        excess = constraint.violation(values.get(constraint.metric, math.nan))
        total += max(0.0, math.inf if math.isnan(excess) else excess) / (
            abs(_bound(constraint)) or 1.0
        )
    return total


def describe_nearest(constraints: Sequence[Constraint], trials: Iterable[Trial]) -> str | None:
    """Return which trial comes nearest to keeping all constraints, and what it breaks.

    Args:
        constraints: The constraints, which no trial keeps.
        trials: Complete trials.

    Returns:
        Such as `trial 3 comes nearest, with size_bytes=2048 (at most 1000)`; None where none is
        near.
    """
    nearest = min(trials, key=lambda trial: excess_of(constraints, trial.values))
    if not 0 < excess_of(constraints, nearest.values) < math.inf:
        return None
    broken = ", ".join(
        f"{each.metric}={format_number(nearest.values[each.metric])} "
        f"(at {'least' if each.at_most is None else 'most'} {format_number(_bound(each))})"
        for each in constraints
        if not keeps(each, nearest.values)
    )
    return f"trial {nearest.number} comes nearest, with {broken}"


def _bound(constraint: Constraint) -> float:
    bound = constraint.at_least if constraint.at_most is None else constraint.at_most
    assert bound is not None
    return bound
