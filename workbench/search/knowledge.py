"""What a study knows when it asks a sampler for a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial

if TYPE_CHECKING:
    from workbench.search.gaussian_process import Kernel

MIN_PROCESS_RESULTS = 4
"""Results with a value, complete or pruned ones, before a Gaussian process is fitted."""
_KEPT = -1.0  # the violation of a limit that a result does not name


@dataclass(frozen=True)
class Result:
    """A configuration that has ended."""

    trial: FrozenTrial
    violations: Mapping[str, float]
    """By how much it breaks each limit. At most 0 if the limit is kept."""
    seconds: float = 0.0
    """How long it took to train, until its last report, or 0 if that is unknown."""


@dataclass
class Knowledge:
    """Everything that has ended, in this run and in earlier ones."""

    results: list[Result] = field(default_factory=list)
    """Those of this run, in the order in which they came."""
    priors: list[FrozenTrial] = field(default_factory=list)
    """Complete trials of earlier runs."""
    earlier: dict[str, list[Result]] = field(default_factory=dict)
    """What ended in each earlier run, by its id. The results of this run are not among it."""
    memory: list[tuple[Mapping[str, Any], float]] = field(default_factory=list)
    """Configurations in Optuna's terms, with the part of the memory that they should hold."""
    kernels: dict[tuple[str, int], Kernel] = field(default_factory=dict)
    """What was fitted to the first results, by the quantity and their number.

    Kept to save time only.
    """
    located: tuple[np.ndarray, np.ndarray] | None = None
    """Where the first results lie in the space, as `Encoding.locate` returns it.

    Kept to save time only.
    """


def violations_of(results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return by how much each limit is broken in each result.

    A limit that it does not name is kept.
    """
    names = sorted({name for result in results for name in result.violations})
    return {
        name: np.array([result.violations.get(name, _KEPT) for result in results]) for name in names
    }
