"""The search space: all parameters of an experiment, and when each of them exists at all.

A parameter with `when` exists only where its parents have the named values; where it does not exist
it is absent from the configuration, never a placeholder. Proposing values is left to the study.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, RootModel, ValidationError, model_validator
from pydantic_core import PydanticUndefined
from typing_extensions import Self

from workbench.experiment.domain import (
    Choice,
    Domain,
    Fixed,
    Float,
    Int,
    WrittenDomain,
    describe,
    same_value,
)
from workbench.foundation.errors import ExperimentError
from workbench.foundation.python_values import python_value
from workbench.foundation.refusals import refusal_of_all

__all__ = ["Choice", "Domain", "Fixed", "Float", "Int", "Params", "Space", "describe", "same_value"]

Params = dict[str, JsonValue]
_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")


class Space(RootModel[dict[str, WrittenDomain]]):
    """All parameters of an experiment, by name, in the order in which they were written.

    Example:
        >>> space = wb.Space({"width": {"choices": [8, 16]}, "layers": {"low": 1, "high": 2}})
        >>> len(list(space.grid()))
        4
        >>> space.check({"width": 8, "layers": 1})
        {'width': 8, 'layers': 1}
    """

    model_config = ConfigDict(frozen=True)

    root: dict[str, WrittenDomain] = Field(default_factory=dict)

    def __init__(self, root: Any = PydanticUndefined) -> None:
        """Check and build a space.

        Args:
            root: The parameters by name.

        Raises:
            ExperimentError: If a parameter or a condition is wrong; all that is wrong is listed.
        """
        try:
            super().__init__(root)
        except ValidationError as error:
            raise refusal_of_all(error) from error

    # As in `Checked`, whose fields this type does not have.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _check_parents(self) -> Self:
        for name, domain in self.root.items():
            if not _NAME.fullmatch(name):
                raise ExperimentError(
                    "not a parameter name",
                    field=name,
                    allowed="letters, digits and underscores, with dots or dashes between them",
                )
            if (
                not isinstance(domain, Fixed)
                and domain.prior
                and not domain.contains(domain.prior.near)
            ):
                raise ExperimentError(
                    f"{domain.prior.near!r} is not a value of {name}",
                    field=f"{name}.prior.near",
                    allowed=describe(domain),
                )
            for parent, wanted in domain.when.items():
                self._check_condition(name, parent, wanted)
        self.order()
        return self

    def _check_condition(self, name: str, parent: str, wanted: JsonValue) -> None:
        field = f"{name}.when.{parent}"
        if parent not in self.root:
            raise ExperimentError(
                f"{parent} is not searched, so nothing can depend on it",
                field=field,
                next_step=f"Add {parent} to search.",
            )
        if wanted == []:
            raise ExperimentError(
                "an empty list never matches", field=field, next_step="Name at least one value."
            )
        for value in _listed(wanted):
            if not self.root[parent].contains(value):
                raise ExperimentError(
                    f"{value!r} is not a value of {parent}",
                    field=field,
                    allowed=describe(self.root[parent]),
                )

    def order(self) -> list[str]:
        """Return the names, parents before children, otherwise as they were written.

        Raises:
            ExperimentError: If conditions are circular.
        """
        ordered: list[str] = []
        waiting = list(self.root)
        while waiting:
            ready = [
                name
                for name in waiting
                if all(parent in ordered for parent in self.root[name].when)
            ]
            if not ready:
                raise ExperimentError(
                    f"{' and '.join(waiting)} depend on each other",
                    field=f"{waiting[0]}.when",
                    next_step="Remove one of the conditions.",
                )
            ordered.append(ready[0])
            waiting.remove(ready[0])
        return ordered

    @property
    def has_choice(self) -> bool:
        """Whether configurations can differ: some parameter has more than one value."""
        listed = [domain.values() for domain in self.root.values()]
        return any(values is None or any(True for _ in islice(values, 1, 2)) for values in listed)

    def exists(self, name: str, params: Mapping[str, JsonValue]) -> bool:
        """Return whether the parameter `name` exists, given the values of its parents.

        Args:
            name: A parameter of this space.
            params: A configuration that holds every parent that exists.
        """
        for parent, wanted in self.root[name].when.items():
            if parent not in params or not any(
                same_value(params[parent], one) for one in _listed(wanted)
            ):
                return False
        return True

    def sample(self, rng: random.Random) -> Params:
        """Draw a configuration without learning from any result."""
        params: Params = {}
        for name in self.order():
            if self.exists(name, params):
                params[name] = self.root[name].sample(rng)
        return params

    def check(self, params: Mapping[str, JsonValue]) -> Params:
        """Return `params` in the order of this space if it is a configuration of it.

        Raises:
            ExperimentError: If a parameter is unknown, out of range or should not exist, or one
                with several values is missing.
        """
        params = {name: python_value(value) for name, value in params.items()}
        for name in params:
            if name not in self.root:
                raise ExperimentError(
                    "this parameter is not searched", field=name, allowed=list(self.root)
                )
        checked: Params = {}
        missing: dict[str, Domain] = {}
        unknown: set[str] = set()  # whether they exist depends on what is missing
        for name in self.order():
            domain = self.root[name]
            if (missing.keys() | unknown) & domain.when.keys():
                unknown.add(name)
            elif not self.exists(name, checked):
                if name in params:
                    condition = describe_condition(domain.when)
                    raise ExperimentError(
                        f"does not exist unless {condition}", field=name, next_step="Remove it."
                    )
            elif name in params:
                checked[name] = _checked_value(name, domain, params[name])
            elif len(first := list(islice(domain.values() or (), 2))) == 1:
                checked[name] = first[0]
            else:
                missing[name] = domain
        _refuse_missing(missing)
        return checked

    def grid(self) -> Iterator[Params]:
        """Walk through every configuration, in the order in which the space was written.

        Raises:
            ExperimentError: If a range has infinitely many values.
        """
        for name, domain in self.root.items():
            if domain.values() is None:
                raise ExperimentError(
                    "a continuous range has no grid",
                    field=name,
                    next_step="Add a step, or list choices.",
                )
        yield from self._complete({}, self.order())

    def _complete(self, params: Params, names: list[str]) -> Iterator[Params]:
        if not names:
            yield params
            return
        name, rest = names[0], names[1:]
        if not self.exists(name, params):
            yield from self._complete(params, rest)
            return
        for value in self.root[name].values() or ():
            yield from self._complete({**params, name: value}, rest)


def _checked_value(name: str, domain: Domain, value: JsonValue) -> JsonValue:
    if not domain.contains(value):
        raise ExperimentError(f"{value!r} is outside", field=name, allowed=describe(domain))
    return value


def _refuse_missing(missing: Mapping[str, Domain]) -> None:
    """Refuse a configuration that has no value for these parameters, if there are any."""
    if len(missing) == 1:
        ((name, domain),) = missing.items()
        raise ExperimentError("missing", field=name, allowed=describe(domain))
    if missing:
        raise ExperimentError(
            f"{' and '.join(missing)} are missing",
            allowed="; ".join(f"{name}: {describe(domain)}" for name, domain in missing.items()),
            next_step="Give every parameter that is searched a value.",
        )


def _listed(wanted: JsonValue) -> list[JsonValue]:
    return wanted if isinstance(wanted, list) else [wanted]


def describe_condition(when: Mapping[str, JsonValue]) -> str:
    """Describe briefly when a parameter exists."""
    return " and ".join(
        f"{parent} is {' or '.join(map(str, value)) if isinstance(value, list) else value}"
        for parent, value in when.items()
    )
