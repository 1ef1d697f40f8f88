"""The search space: all parameters of an experiment, and when each of them exists.

A parameter with `when` exists only if its parents have certain values. Otherwise it is absent from
the configuration, without a placeholder. The study proposes the values.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, RootModel, ValidationError, model_validator
from pydantic_core import PydanticUndefined
from typing_extensions import Self

from workbench.experiment.code_versions import CODE, CodeVersion
from workbench.experiment.domain import (
    Choice,
    Domain,
    Fixed,
    Float,
    Int,
    Prior,
    Versions,
    WrittenDomain,
    describe,
    same_value,
)
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import joined_by_and
from workbench.foundation.python_values import python_value
from workbench.foundation.validation_errors import refusal_of_all

__all__ = ["Choice", "Domain", "Fixed", "Float", "Int", "Params", "Space", "describe", "same_value"]

Params = dict[str, JsonValue]
_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_SORTED = json.JSONEncoder(sort_keys=True)


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
            ExperimentError: If a parameter or a condition is wrong. The message lists every
                problem.
        """
        try:
            super().__init__(root)
        except ValidationError as error:
            raise refusal_of_all(error) from error

    # `Checked` does the same, but a root model cannot inherit from it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _check_parents(self) -> Self:
        for name, domain in self.root.items():
            if not _NAME.fullmatch(name):
                raise ExperimentError(
                    "this is not a valid name for a parameter",
                    field=name,
                    allowed="letters, digits and underscores, with dots or dashes between them",
                )
            if isinstance(domain, Versions) and name != CODE:
                raise ExperimentError(
                    "versions of the code are the values of one parameter",
                    field=name,
                    allowed=f"the name {CODE}",
                )
            if (
                not isinstance(domain, Fixed)
                and isinstance(domain.prior, Prior)
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
                "an empty list never matches", field=field, next_step="Give at least one value."
            )
        for value in _as_list(wanted):
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
        if not any(domain.when for domain in self.root.values()):
            return list(self.root)
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
                    f"{joined_by_and(waiting)} depend on each other",
                    field=f"{waiting[0]}.when",
                    next_step="Remove one of the conditions.",
                )
            ordered.append(ready[0])
            waiting.remove(ready[0])
        return ordered

    @property
    def has_choice(self) -> bool:
        """Whether configurations can differ: some parameter has more than one value."""
        # `islice` asks for a second value only: a range with a small step may have billions.
        return any(
            values is None or any(True for _ in islice(values, 1, 2))
            for values in (domain.values() for domain in self.root.values())
        )

    @property
    def code_versions(self) -> dict[str, CodeVersion]:
        """The versions of the code by name. Empty if the code is not searched."""
        domain = self.root.get(CODE)
        if not isinstance(domain, Versions):
            return {}
        return {version.label: version for version in domain.versions}

    def without_version(self, params: Mapping[str, JsonValue]) -> Params:
        """Return what a program or function receives: all values but the version of its code.

        Args:
            params: A configuration.
        """
        if not self.code_versions:
            return dict(params)
        return {name: value for name, value in params.items() if name != CODE}

    def exists(self, name: str, params: Mapping[str, JsonValue]) -> bool:
        """Return whether the parameter `name` exists, given the values of its parents.

        Args:
            name: A parameter of this space.
            params: A configuration with every parent that exists.
        """
        for parent, wanted in self.root[name].when.items():
            if parent not in params or not any(
                same_value(params[parent], value) for value in _as_list(wanted)
            ):
                return False
        return True

    def sample(self, rng: random.Random) -> Params:
        """Draw a random configuration."""
        params: Params = {}
        for name in self.order():
            if self.exists(name, params):
                params[name] = self.root[name].sample(rng)
        return params

    def check(self, params: Mapping[str, JsonValue]) -> Params:
        """Return `params` in the order of this space, if it is a configuration of this space.

        A missing parameter that has only one value is filled in.

        Args:
            params: Values by parameter.

        Raises:
            ExperimentError: If a parameter is unknown, out of range or should not exist, or if one
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
        # Parameters below a missing parent: whether they exist depends on the parent's value. They
        # are not reported, because the missing parent already is.
        unknown: set[str] = set()
        for name in self.order():
            domain = self.root[name]
            if (missing.keys() | unknown) & domain.when.keys():
                unknown.add(name)
            elif not self.exists(name, checked):
                if name in params:
                    condition = describe_condition(domain.when)
                    raise ExperimentError(
                        f"it exists only if {condition}", field=name, next_step="Remove it."
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
        """Yield every configuration, in the order in which the space was written.

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

    def key_of(self, params: Mapping[str, JsonValue]) -> str:
        """Return a text that is the same for equal configurations, however values are written.

        Args:
            params: A configuration. A value outside of this space stays as it is.
        """
        listed = {
            name: _as_listed(self.root[name], value) if name in self.root else value
            for name, value in params.items()
        }
        return _SORTED.encode(listed)

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


def _as_listed(domain: Domain, value: JsonValue) -> JsonValue:
    """Return the value as the domain lists it.

    For example, a user may write 0.3 where the domain has 0.1 plus two steps, or 1.0 instead of 1.
    """
    if isinstance(domain, Choice | Fixed):
        return next((listed for listed in domain.values() if same_value(listed, value)), value)
    if not domain.contains(value):
        return value
    if isinstance(domain, Float):
        assert isinstance(value, int | float)
        values = domain.values()
        if domain.step is None or values is None:
            return float(value)
        index = round((value - domain.low) / domain.step)
        return values[index] if index < len(values) else float(value)
    return value


def _checked_value(name: str, domain: Domain, value: JsonValue) -> JsonValue:
    if not domain.contains(value):
        raise ExperimentError(
            f"{value!r} is not an allowed value", field=name, allowed=describe(domain)
        )
    return value


def _refuse_missing(missing: Mapping[str, Domain]) -> None:
    """Raise an error that lists parameters without a value, if there are any."""
    if len(missing) == 1:
        ((name, domain),) = missing.items()
        raise ExperimentError("missing", field=name, allowed=describe(domain))
    if missing:
        raise ExperimentError(
            f"{joined_by_and(missing)} are missing",
            allowed="; ".join(f"{name}: {describe(domain)}" for name, domain in missing.items()),
            next_step="Give a value to every searched parameter.",
        )


def _as_list(wanted: JsonValue) -> list[JsonValue]:
    if isinstance(wanted, list):
        return wanted
    return [wanted]


def possible_values(search: Space, name: str, written: Any) -> Sequence[Any]:
    """Return the values that a setting can have: the searched ones, or else the written one.

    Args:
        search: What is searched.
        name: The setting, as a parameter of `search`.
        written: Its value outside of `search`.

    Returns:
        The values. Empty for a range with infinitely many.
    """
    if name not in search.root:
        return [written]
    return search.root[name].values() or []


def describe_condition(when: Mapping[str, JsonValue]) -> str:
    """Describe briefly when a parameter exists, such as `optimizer is sgd or adamw`."""
    return " and ".join(
        f"{parent} is {' or '.join(map(str, _as_list(wanted)))}" for parent, wanted in when.items()
    )
