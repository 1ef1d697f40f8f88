"""The knowledge of a study when it asks a sampler for a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial

if TYPE_CHECKING:
    from workbench.search.gaussian_process import Kernel

MIN_PROCESS_RESULTS = 4
"""A Gaussian process is fitted from this many complete or pruned results on."""
_KEPT = -1.0  # the violation of a limit that a result does not contain


@dataclass(frozen=True)
class Result:
    """A configuration that has ended."""

    trial: FrozenTrial
    violations: Mapping[str, float]
    """By how much each limit is broken. At most 0 if the limit is kept."""
    seconds: float = 0.0
    """Seconds of training until the last report, or 0 if unknown."""


@dataclass
class Knowledge:
    """Everything that has ended, in this run and in earlier ones."""

    results: list[Result] = field(default_factory=list)
    """The results of this run, in the order in which they arrived."""
    priors: list[FrozenTrial] = field(default_factory=list)
    """Complete trials of earlier runs."""
    earlier: dict[str, list[Result]] = field(default_factory=dict)
    """The results of each earlier run by its id, without those of this run."""
    memory: list[tuple[Mapping[str, Any], float]] = field(default_factory=list)
    """Configurations in Optuna's terms, with the part of the memory that they should need."""
    kernels: dict[tuple[str, int], Kernel] = field(default_factory=dict)
    """A cache of fitted hyper-parameters, by the quantity and the number of results."""
    located: tuple[np.ndarray, np.ndarray] | None = None
    """A cache of the points of the first results, as `Encoding.locate` returns them."""


def violations_of(results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return by how much each result breaks each limit. A limit without a value is kept."""
    names = sorted({name for result in results for name in result.violations})
    return {
        name: np.array([result.violations.get(name, _KEPT) for result in results]) for name in names
    }
