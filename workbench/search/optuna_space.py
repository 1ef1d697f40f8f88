"""Translates a search space and its configurations to Optuna's terms and back.

Fixed parameters and parameters whose condition does not hold never reach Optuna. Choices that
Optuna cannot store or distinguish, such as lists, mappings, or both true and 1, are passed as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic import JsonValue

from workbench.experiment.space import Choice, Fixed, Float, Int, Params, Space, same_value


class Parameters:
    """The searched parameters of a space, each with its Optuna distribution.

    Attributes:
        space: The space.
        searched: Distributions of the searched parameters by name, parents before children.
    """

    def __init__(self, space: Space) -> None:
        """Translate a space.

        Args:
            space: The search space of an experiment.
        """
        self.space = space
        self._order = space.order()
        self._keys = {
            name: _keys(domain) for name, domain in space.root.items() if isinstance(domain, Choice)
        }
        self.searched = {
            name: self._distribution(name)
            for name in self._order
            if not isinstance(space.root[name], Fixed)
        }

    def _distribution(self, name: str) -> BaseDistribution:
        match self.space.root[name]:
            case Float() as domain:
                return FloatDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
            case Int() as domain:
                return IntDistribution(
                    domain.low, domain.high, log=domain.log, step=domain.step or 1
                )
            case _:
                return CategoricalDistribution(self._keys[name])

    def always(self) -> dict[str, BaseDistribution] | None:
        """Return the distributions with several values, or None if there are conditions."""
        if any(domain.when for domain in self.space.root.values()):
            return None
        return {
            name: distribution
            for name, distribution in sorted(self.searched.items())
            if not distribution.single()
        }

    def suggest(self, trial: optuna.Trial) -> Params:
        """Let the sampler of the trial's study choose a configuration.

        Args:
            trial: A running Optuna trial without parameters.

        Returns:
            A configuration with fixed values, and without parameters whose condition does not hold.
        """
        params: Params = {}
        for name in self._order:
            if not self.space.exists(name, params):
                continue
            domain, distribution = self.space.root[name], self.searched.get(name)
            if isinstance(domain, Fixed):
                params[name] = domain.value
            elif isinstance(distribution, FloatDistribution):
                params[name] = trial.suggest_float(
                    name,
                    distribution.low,
                    distribution.high,
                    step=distribution.step,
                    log=distribution.log,
                )
            elif isinstance(distribution, IntDistribution):
                params[name] = trial.suggest_int(
                    name,
                    distribution.low,
                    distribution.high,
                    step=distribution.step,
                    log=distribution.log,
                )
            elif isinstance(domain, Choice):
                key = trial.suggest_categorical(name, self._keys[name])
                params[name] = domain.choices[self._keys[name].index(key)]
        return params

    def distributions(self, params: Mapping[str, JsonValue]) -> dict[str, BaseDistribution]:
        """Return the distributions of the searched parameters of a configuration."""
        return {name: self.searched[name] for name in params if name in self.searched}

    def to_optuna(self, params: Mapping[str, JsonValue]) -> dict[str, CategoricalChoiceType]:
        """Return the searched parameters of a configuration with their values in Optuna."""
        translated: dict[str, CategoricalChoiceType] = {}
        for name in self.distributions(params):
            domain, value = self.space.root[name], params[name]
            if isinstance(domain, Choice):
                is_chosen = [same_value(value, choice) for choice in domain.choices]
                translated[name] = self._keys[name][is_chosen.index(True)]
            else:
                assert isinstance(value, int | float)
                translated[name] = value
        return translated


def _keys(domain: Choice) -> tuple[CategoricalChoiceType, ...]:
    plain = [
        choice
        for choice in domain.choices
        if choice is None or isinstance(choice, str | int | float)
    ]
    # In Python, True == 1 == 1.0, so Optuna could not distinguish such choices.
    are_distinct = all(
        first != second for index, first in enumerate(plain) for second in plain[:index]
    )
    if len(plain) == len(domain.choices) and are_distinct:
        return tuple(plain)
    return tuple(json.dumps(choice, sort_keys=True) for choice in domain.choices)
