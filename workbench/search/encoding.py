"""Configurations as arrays: points of a unit cube, and features for a Gaussian process.

A separate feature shows whether a conditional parameter exists. The distance between an absent
parameter and any value is the mean distance of two values, so no placeholder value is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic import JsonValue

from workbench.experiment.domain import Choice
from workbench.experiment.space import Fixed, same_value
from workbench.search.optuna_space import Parameters

_ABSENT = 0.5
_PRIOR_SPREAD = 0.15
"""The scale of a prior as a share of the range, if the prior does not say it."""
_LEAST_SPREAD = 0.02
"""The smallest scale: a narrower prior could not give way to results."""
# By how much the log probability of every other choice is lower than that of the prior's choice.
_OTHER_CHOICE = 2.0


class Encoding:
    """The parameters of a space with several values, each a column of the unit cube.

    Attributes:
        distributions: Optuna's distribution of each column, by name.
        groups: For each feature, the number of its column.
        is_choice: For each column, whether its values have no order.
        near: For each column, the unit of its prior, or NaN without a prior.
        near_spread: For each column, how far from `near` the best value is in half of all cases.
        is_conditional: For each column, whether it only exists with some values of others.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Lay out the columns and features of a space.

        Args:
            parameters: The searched parameters.
        """
        self.distributions = {
            name: distribution
            for name, distribution in parameters.searched.items()
            if not distribution.single()
        }
        self._names = list(self.distributions)
        self._conditions = [self._condition(parameters, name) for name in self._names]
        self.is_choice = np.array(
            [
                isinstance(distribution, CategoricalDistribution)
                for distribution in self.distributions.values()
            ],
            dtype=bool,  # an empty list would become an array of floats
        )
        self._scales = _Scales.of(list(self.distributions.values()))
        self.near = np.array([self._belief(parameters, name) for name in self._names])
        self.near_spread = np.array([self._spread(parameters, name) for name in self._names])
        self._has_belief = bool(np.isfinite(self.near).any())
        sizes = np.where(self.is_choice, self._scales.last.astype(int) + 1, 1)
        self.is_conditional = np.array(
            [bool(condition) for condition in self._conditions], dtype=bool
        )
        self.groups = np.repeat(np.arange(len(sizes)), sizes + self.is_conditional)
        # The positions of the first feature of each column, of the features of numbers, and of the
        # features that show that a parameter is absent.
        self._starts = np.cumsum(sizes + self.is_conditional) - sizes - self.is_conditional
        self._number_at = self._starts[~self.is_choice]
        self._absence_at = (self._starts + sizes)[self.is_conditional]

    def _belief(self, parameters: Parameters, name: str) -> float:
        domain = parameters.space.root[name]
        if isinstance(domain, Fixed) or domain.belief is None:
            return float("nan")
        points, _ = self.locate([parameters.to_optuna({name: domain.belief.near})])
        return float(points[0, self._names.index(name)])

    def _spread(self, parameters: Parameters, name: str) -> float:
        domain = parameters.space.root[name]
        if isinstance(domain, Fixed | Choice) or domain.belief is None:
            return _PRIOR_SPREAD
        within = domain.belief.within
        if within is None or domain.low == domain.high:
            return _PRIOR_SPREAD
        share = within / (domain.high - domain.low)
        if domain.log:
            share = math.log(within) / math.log(domain.high / domain.low)
        return max(_LEAST_SPREAD, share)

    def _condition(self, parameters: Parameters, name: str) -> list[tuple[int | None, list[float]]]:
        """Return pairs of a parent's column and the values under which a parameter exists.

        The values of a choice are given as indexes. A parent with a single value has no column. Its
        pair has the column None, and [1.0] if the condition holds, otherwise [].
        """
        condition: list[tuple[int | None, list[float]]] = []
        for parent, wanted in parameters.space.root[name].when.items():
            values = wanted if isinstance(wanted, list) else [wanted]
            domain = parameters.space.root[parent]
            possible = domain.values()
            if parent not in self.distributions:
                holds = possible is not None and _is_among(possible[0], values)
                condition.append((None, [1.0] if holds else []))
            elif isinstance(self.distributions[parent], CategoricalDistribution):
                assert possible is not None
                places = [
                    float(index)
                    for index, choice in enumerate(possible)
                    if _is_among(choice, values)
                ]
                condition.append((self._names.index(parent), places))
            else:
                numbers = [float(value) for value in values if isinstance(value, int | float)]
                condition.append((self._names.index(parent), numbers))
        return condition

    def snap(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move points to the nearest configurations.

        Args:
            units: Points of the unit cube, shape [n, columns].

        Returns:
            The points of these configurations, and which parameters exist in them, both of shape
            [n, columns].
        """
        exists = np.ones(units.shape, dtype=bool)
        if not (self._scales.has_steps.any() or self.is_conditional.any()):
            return units, exists
        values = self._scales.values(units)
        for column, condition in enumerate(self._conditions):
            for parent, wanted in condition:
                if parent is None:
                    exists[:, column] &= bool(wanted)
                else:
                    exists[:, column] &= exists[:, parent] & np.isin(values[:, parent], wanted)
        return np.where(exists, self._scales.units(values), _ABSENT), exists

    def rounded(self, units: np.ndarray) -> np.ndarray:
        """Move points to the nearest values of each parameter, as if all parameters existed."""
        return self._scales.units(self._scales.values(units))

    def num_choices(self, column: int) -> int:
        """Return the number of values of a choice."""
        return int(self._scales.last[column]) + 1

    def log_prior(self, units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Return the log probability of configurations by the priors, up to a constant.

        Args:
            units: Points of configurations, shape [n, columns].
            exists: Which parameters exist in them, same shape.

        Returns:
            Shape [n]. 0 if every parameter has the value of its prior.
        """
        if not self._has_belief:
            return np.zeros(len(units))
        distance = units - self.near
        other = np.where(np.abs(distance) > 1e-9, -_OTHER_CHOICE, 0.0)
        # The Cauchy distribution has heavy tails, so results soon outweigh a prior that is wrong.
        log_prior = np.where(self.is_choice, other, -np.log1p((distance / self.near_spread) ** 2))
        return np.where(exists & ~np.isnan(self.near), log_prior, 0.0).sum(1)

    def features(self, units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Return the features of configurations, shape [n, features]."""
        features = np.empty((len(units), len(self.groups)))
        for column in np.flatnonzero(self.is_choice):
            # One feature per choice, scaled so that two different choices have the distance 1.
            start, size = self._starts[column], int(self._scales.last[column]) + 1
            index = np.floor(units[:, column, None] * size)
            chosen = exists[:, column, None] & (index == np.arange(size))
            features[:, start : start + size] = np.where(chosen, np.sqrt(0.5), 0.0)
        numbers = ~self.is_choice
        features[:, self._number_at] = np.where(exists[:, numbers], units[:, numbers] - 0.5, 0.0)
        if len(self._absence_at):
            features[:, self._absence_at] = np.where(exists[:, self.is_conditional], 0.0, _ABSENT)
        return features

    def locate(self, configurations: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of configurations and which parameters exist in them.

        Args:
            configurations: The configurations in Optuna's terms.

        Returns:
            Two arrays of shape [n, columns].
        """
        values = np.tile(self._scales.first, (len(configurations), 1))
        exists = np.zeros(values.shape, dtype=bool)
        for column, (name, distribution) in enumerate(self.distributions.items()):
            rows = [row for row, params in enumerate(configurations) if name in params]
            exists[rows, column] = True
            values[rows, column] = [
                distribution.to_internal_repr(configurations[row][name]) for row in rows
            ]
        return np.where(exists, self._scales.units(values), _ABSENT), exists

    def params(self, point: np.ndarray, exists: np.ndarray) -> dict[str, Any]:
        """Return the configuration at a point, in Optuna's terms."""
        values = self._scales.values(point[None])[0]
        return {
            name: distribution.to_external_repr(float(value))
            for (name, distribution), value, is_there in zip(
                self.distributions.items(), values, exists, strict=True
            )
            if is_there
        }


@lru_cache(maxsize=8)
def encoding_of(parameters: Parameters) -> Encoding:
    """Return the encoding of a space. All proposals of a study share it."""
    return Encoding(parameters)


@dataclass(frozen=True)
class _Scales:
    """Maps the values of each column to the unit cube. All arrays have the shape [columns].

    The value of a choice is its index.

    Attributes:
        low: The lower end, on the column's scale. With steps, it is half a step below the first
            value.
        high: The upper end, on the column's scale. With steps, it is half a step above the last
            value.
        first: The first value.
        last: The last value.
        step: The difference between two values, or 1 without steps.
        has_steps: Whether there are steps.
        is_log: The indexes of columns with a logarithmic scale.
    """

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    last: np.ndarray
    step: np.ndarray
    has_steps: np.ndarray
    is_log: np.ndarray

    @classmethod
    def of(cls, distributions: Sequence[BaseDistribution]) -> _Scales:
        rows = [_scale(distribution) for distribution in distributions]
        first, last, step, log = np.array(rows, dtype=float).reshape(-1, 4).T
        is_log = np.flatnonzero(log)
        low, high = first - 0.5 * step, last + 0.5 * step
        low[is_log], high[is_log] = np.log(low[is_log]), np.log(high[is_log])
        return cls(
            low=low,
            high=high,
            first=first,
            last=last,
            step=np.where(step > 0, step, 1.0),
            has_steps=step > 0,
            is_log=is_log,
        )

    def values(self, units: np.ndarray) -> np.ndarray:
        """Return the values at some points, shape [n, columns]."""
        values = self.low + units * (self.high - self.low)
        values[:, self.is_log] = np.exp(values[:, self.is_log])
        stepped = self.first + np.round((values - self.first) / self.step) * self.step
        return np.clip(np.where(self.has_steps, stepped, values), self.first, self.last)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Return the points at some values, shape [n, columns]."""
        scaled = values.copy()
        scaled[:, self.is_log] = np.log(scaled[:, self.is_log])
        return (scaled - self.low) / (self.high - self.low)


def _scale(distribution: BaseDistribution) -> tuple[float, float, float, bool]:
    """Return the first and the last value, the step or 0, and whether it is logarithmic."""
    if isinstance(distribution, CategoricalDistribution):
        return 0.0, len(distribution.choices) - 1.0, 1.0, False
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return distribution.low, distribution.high, distribution.step or 0, distribution.log


def _is_among(value: JsonValue, wanted: Sequence[JsonValue]) -> bool:
    return any(same_value(value, other) for other in wanted)
