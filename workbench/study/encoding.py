"""Configurations as arrays: a unit cube to draw them in, and features that a Gaussian process compares.

A parameter that does not exist in a configuration is as far from every value of it as any two values are
from each other on average, so that conditions need no placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from workbench.space import Fixed, same_value
from workbench.study.parameters import Parameters

_ABSENT = 0.5
# How far good values may be from where they are believed to be, as a share of a range, and by how much the
# logarithm of the probability of every other choice is lower.
PRIOR_SPREAD = 0.15
_OTHER_CHOICE = 2.0


class Encoding:
    """The parameters of a space with several values, each a column of the unit cube.

    Attributes:
        distributions: Optuna's distribution of each column, by name.
        groups: For each feature, the number of its column.
        is_choice: For each column, whether its values have no order.
        near: For each column, the unit near which good values are believed to be; NaN without a belief.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Lay out the columns and features of a space.

        Args:
            parameters: The searched parameters.
        """
        self.distributions = {
            name: found for name, found in parameters.searched.items() if not found.single()
        }
        self._names = list(self.distributions)
        self._conditions = [self._condition(parameters, name) for name in self._names]
        self.is_choice = np.array(
            [isinstance(found, CategoricalDistribution) for found in self.distributions.values()]
        )
        self.near = np.array([self._belief(parameters, name) for name in self._names])
        groups: list[int] = []
        for column, found in enumerate(self.distributions.values()):
            size = len(found.choices) if isinstance(found, CategoricalDistribution) else 1
            groups += [column] * (size + bool(self._conditions[column]))
        self.groups = np.array(groups)

    def _belief(self, parameters: Parameters, name: str) -> float:
        domain = parameters.space.root[name]
        if isinstance(domain, Fixed) or domain.prior is None:
            return float("nan")
        found = self.distributions[name]
        value = parameters.to_optuna({name: domain.prior.near})[name]
        return float(_units(found, np.array([found.to_internal_repr(value)]))[0])

    def _condition(self, parameters: Parameters, name: str) -> list[tuple[int | None, list[float]]]:
        """Return pairs of a parent's column and its wanted values, as indices of choices or as numbers.

        A parent with one value has no column: its value is wanted or not.
        """
        condition: list[tuple[int | None, list[float]]] = []
        for parent, wanted in parameters.space.root[name].when.items():
            values = wanted if isinstance(wanted, list) else [wanted]
            domain = parameters.space.root[parent]
            possible = domain.values()
            if parent not in self.distributions:
                holds = possible is not None and any(same_value(possible[0], value) for value in values)
                condition.append((None, [1.0] if holds else []))
            elif isinstance(self.distributions[parent], CategoricalDistribution):
                assert possible is not None
                found = [any(same_value(one, value) for value in values) for one in possible]
                condition.append((self._names.index(parent), [float(at) for at in np.flatnonzero(found)]))
            else:
                numbers = [float(value) for value in values if isinstance(value, int | float)]
                condition.append((self._names.index(parent), numbers))
        return condition

    def snap(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move points to the nearest configurations.

        Args:
            units: Points of the unit cube, shape [n, columns].

        Returns:
            The points of these configurations, and which parameters exist in them; both [n, columns].
        """
        snapped = np.empty_like(units)
        exists = np.ones(units.shape, dtype=bool)
        values = np.empty_like(units)
        for column, found in enumerate(self.distributions.values()):
            values[:, column] = _values(found, units[:, column])
            snapped[:, column] = _units(found, values[:, column])
        for column, condition in enumerate(self._conditions):
            for parent, wanted in condition:
                if parent is None:
                    exists[:, column] &= bool(wanted)
                else:
                    exists[:, column] &= exists[:, parent] & np.isin(values[:, parent], wanted)
        return np.where(exists, snapped, _ABSENT), exists

    def log_prior(self, units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Return the logarithm of how probable good values are believed to be there, up to a constant.

        Args:
            units: Points of configurations, shape [n, columns].
            exists: Which parameters exist in them, same shape.

        Returns:
            Shape [n]; 0 where every parameter has the value that is believed to be good.
        """
        distance = units - self.near
        other = np.where(np.abs(distance) > 1e-9, -_OTHER_CHOICE, 0.0)
        # Cauchy's distribution has heavy tails: a belief that is far off is forgotten soon.
        log_prior = np.where(self.is_choice, other, -np.log1p((distance / PRIOR_SPREAD) ** 2))
        return np.where(exists & ~np.isnan(self.near), log_prior, 0.0).sum(1)

    def features(self, units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Return the features of configurations, shape [n, features]."""
        columns: list[np.ndarray] = []
        for column, found in enumerate(self.distributions.values()):
            present = exists[:, column]
            if isinstance(found, CategoricalDistribution):
                index = _values(found, units[:, column])
                # Two different choices are at the distance 1.
                columns += [
                    np.where(present & (index == choice), np.sqrt(0.5), 0.0)
                    for choice in range(len(found.choices))
                ]
            else:
                columns.append(np.where(present, units[:, column] - 0.5, 0.0))
            if self._conditions[column]:
                columns.append(np.where(present, 0.0, _ABSENT))
        return np.column_stack(columns)

    def locate(self, configurations: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of configurations and which parameters exist in them; both [n, columns].

        Args:
            configurations: The configurations in Optuna's terms.
        """
        points = np.full((len(configurations), len(self._names)), _ABSENT)
        exists = np.zeros(points.shape, dtype=bool)
        for column, (name, found) in enumerate(self.distributions.items()):
            rows = [row for row, params in enumerate(configurations) if name in params]
            values = [found.to_internal_repr(configurations[row][name]) for row in rows]
            exists[rows, column] = True
            points[rows, column] = _units(found, np.array(values))
        return points, exists

    def params(self, point: np.ndarray, exists: np.ndarray) -> dict[str, Any]:
        """Return the configuration at a point, in Optuna's terms."""
        params: dict[str, Any] = {}
        for column, (name, found) in enumerate(self.distributions.items()):
            if exists[column]:
                params[name] = found.to_external_repr(float(_values(found, point[column : column + 1])[0]))
        return params


def _bounds(found: FloatDistribution | IntDistribution) -> tuple[float, float]:
    """Return the ends of a range, on its scale; half a step beyond its outermost values if it has steps."""
    margin = 0.5 * (found.step or 0)
    low, high = found.low - margin, found.high + margin
    return (float(np.log(low)), float(np.log(high))) if found.log else (low, high)


def _values(found: BaseDistribution, units: np.ndarray) -> np.ndarray:
    """Return the values at some units; of choices their indices."""
    if isinstance(found, CategoricalDistribution):
        return np.minimum(np.floor(units * len(found.choices)), len(found.choices) - 1)
    assert isinstance(found, FloatDistribution | IntDistribution)
    low, high = _bounds(found)
    values = low + units * (high - low)
    values = np.exp(values) if found.log else values
    if found.step:
        values = found.low + np.round((values - found.low) / found.step) * found.step
    return np.clip(values, found.low, found.high)


def _units(found: BaseDistribution, values: np.ndarray) -> np.ndarray:
    """Return the units of values."""
    if isinstance(found, CategoricalDistribution):
        return (values + 0.5) / len(found.choices)
    assert isinstance(found, FloatDistribution | IntDistribution)
    low, high = _bounds(found)
    return ((np.log(values) if found.log else values) - low) / (high - low)
