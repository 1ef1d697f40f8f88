"""The first configurations of `auto`, before there are results.

They cover the space evenly. If a parameter has a prior, they concentrate near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from workbench.search.encoding import encoding_of
from workbench.search.optuna_space import Parameters
from workbench.search.study_records import Knowledge

if TYPE_CHECKING:
    from workbench.search.resource_models import MemoryModel

_NUM_LOOKED_AT = 256
_EVEN = math.log(0.5)


class DesignSampler(BaseSampler):
    """Proposes one point of a sequence that covers the space evenly."""

    def __init__(
        self, parameters: Parameters, seed: int, knowledge: Knowledge, *, is_first: bool = False
    ) -> None:
        """Prepare one proposal.

        Args:
            parameters: The searched parameters.
            seed: Seed of the sequence, the same for all proposals of a study.
            knowledge: The predictions of memory. Points that will not fit are skipped.
            is_first: Whether it is the first configuration that is chosen. It is placed exactly at
                the priors.
        """
        self.encoding = encoding_of(parameters)
        self.memory = self._memory_model(knowledge)
        self.is_first = is_first
        self._seed = seed

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all searched parameters. Parameters that do not exist are not proposed."""
        return dict(self.encoding.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a configuration."""
        earlier = [
            other.params
            for other in study.get_trials(deepcopy=False)
            if other.number < trial.number
        ]
        # A space of few configurations has several points for each.
        candidates = self._candidates(trial.number)
        first = next(candidates)
        if first not in earlier:
            return first
        return next((params for params in candidates if params not in earlier), first)

    def _candidates(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield configurations for the proposal with this number, those to prefer first."""
        if self.memory is None:
            points, exists = self._points(1, number)
            yield self.encoding.params(points[0], exists[0])
            # The others are only needed if that was tried before.
            points, exists = self._points(_NUM_LOOKED_AT, number)
            order = np.arange(_NUM_LOOKED_AT)
        else:
            # The same points are examined each time, and those that fit are proposed in turn.
            points, exists = self._points(_NUM_LOOKED_AT, 0)
            chances = self.memory.log_chance(self.encoding.features(points, exists))
            order = np.argsort(-chances, kind="stable")
            fitting = np.flatnonzero(chances > _EVEN)
            if len(fitting):
                order = np.concatenate([np.roll(fitting, -number), order])
        for place in order:
            yield self.encoding.params(points[place], exists[place])

    def _points(self, num: int, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points of the sequence from an index on, and which parameters exist in them."""
        units = spread_points(num, len(self.encoding.distributions), start, self._seed)
        return self.encoding.snap(np.array([self._near_prior(point) for point in units]))

    def _memory_model(self, knowledge: Knowledge) -> MemoryModel | None:
        if all(share <= 1.0 for _, share in knowledge.memory):
            return None
        from workbench.search.resource_models import (
            MemoryModel,
        )  # imports SciPy, which light installations omit

        return MemoryModel.of(knowledge, self.encoding)

    def _near_prior(self, units: np.ndarray) -> np.ndarray:
        """Move parameters with a prior near it, or exactly there in the first configuration."""
        near, is_choice = self.encoding.near, self.encoding.is_choice
        standard = NormalDist()
        offsets = self.encoding.near_spread * np.array(
            [standard.inv_cdf(min(max(unit, 1e-6), 1 - 1e-6)) for unit in units]
        )
        # Half of the draws of a choice are the value of the prior. The other half are rescaled to
        # the whole range.
        drawn = np.where(is_choice, np.where(units < 0.5, near, 2 * units - 1), near + offsets)
        return np.where(np.isnan(near), units, np.clip(near if self.is_first else drawn, 0.0, 1.0))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a parameter that has a single value."""
        drawn = RandomSampler(self._seed)
        return drawn.sample_independent(study, trial, param_name, param_distribution)


def spread_points(
    num: int, num_columns: int, start: int = 0, seed: int | None = None
) -> np.ndarray:
    """Return points of a sequence that covers the unit cube evenly.

    Source: M. Roberts, The unreasonable effectiveness of quasirandom sequences, 2018.

    Args:
        num: Number of points.
        num_columns: Dimension of the cube.
        start: Index of the first point.
        seed: Seed of a shift of the whole sequence, or None to start in the middle of the cube.

    Returns:
        Shape [num, num_columns].
    """
    root = 2.0
    # The fixed-point iteration for the root of x^(d + 1) = x + 1, a generalised golden ratio.
    for _ in range(50):
        root = (1.0 + root) ** (1.0 / (num_columns + 1))
    steps = root ** -np.arange(1.0, num_columns + 1)
    shift = 0.5 if seed is None else np.random.default_rng(seed).random(num_columns)
    return (shift + np.arange(start + 1, start + num + 1)[:, None] * steps) % 1.0
