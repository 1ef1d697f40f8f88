"""The kinds of parameters: their values, how they are written, and how they are drawn at random.

Float, Int, Choice, Versions and Fixed are a closed union. A module that uses another
library converts them itself. The space decides whether a parameter exists in a configuration.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, overload

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    PositiveFloat,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self, assert_never

from workbench.experiment.code_versions import CodeVersion
from workbench.foundation.errors import ExperimentError
from workbench.foundation.python_values import json_value, listed_choices, python_value, whole_bound
from workbench.foundation.validation_errors import Checked

MAX_EXACT = 2**53
"""The largest whole number for samplers, which compute with floats. Beyond it floats have gaps."""
_MAX_LIST_CHARACTERS = 120
_Whole = Annotated[int, Field(ge=-MAX_EXACT, le=MAX_EXACT)]


class Prior(Checked):
    """What is known about a parameter before the first trial.

    Example:
        >>> wb.Float(low=1e-5, high=0.1, log=True, prior={"near": 3e-4}).prior.near
        0.0003
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    near: JsonValue = Field(description="A value that is probably good.")
    within: PositiveFloat | None = Field(
        default=None,
        description=(
            "How far away the best value is in half of all cases: a factor above 1 with log: true, "
            "otherwise a distance. Only for ranges. null is 15 % of the range."
        ),
    )
    because: str | None = Field(
        default=None, description="Where this comes from, if workbench decided it."
    )

    @field_validator("near", mode="before")
    @classmethod
    def _as_python(cls, given: Any) -> Any:
        return json_value(given)

    @model_serializer(mode="wrap")
    def _write_only_what_is_known(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {name: value for name, value in written.items() if value is not None}


class DomainSection(Checked):
    """The fields that all kinds of parameters share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    when: dict[str, JsonValue] = Field(
        default_factory=dict,
        description=(
            "Use this parameter only if others have these values: {optimizer: sgd}, or a list of "
            "values."
        ),
    )

    @field_validator("when", mode="before")
    @classmethod
    def _as_python(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        when: dict[Any, Any] = {}
        for parent, wanted in given.items():
            if isinstance(wanted, tuple):
                when[parent] = [json_value(value) for value in wanted]
            else:
                when[parent] = json_value(wanted, str(parent))
        return when


class SearchedSection(DomainSection):
    """The fields that all searched parameters share."""

    prior: Prior | Literal["auto"] | None = Field(
        None,
        description=(
            "A value that is probably good, such as {near: 3e-4}. The sampler auto starts there, "
            "and relies on it less as more trials end. auto takes it from trainings of other "
            "models, for lr and adapter.rank."
        ),
    )

    @property
    def belief(self) -> Prior | None:
        """The prior with its values, or None without one.

        Raises:
            ExperimentError: If it is auto, which is decided when a run is created.
        """
        if self.prior == "auto":
            raise ExperimentError(
                "auto has no value yet: it is decided when a run is created",
                field="prior",
                next_step="Start a run, or give the value: prior: {near: 3.0e-4}.",
            )
        return self.prior


class NumberSection(SearchedSection):
    """The fields that ranges share."""

    log: bool = Field(False, description="Sample uniformly on a logarithmic scale.")

    @field_validator("low", "high", "step", mode="before", check_fields=False)
    @classmethod
    def _bound_as_python(cls, given: Any) -> Any:
        return whole_bound(given)

    def _check_within(self) -> None:
        if not isinstance(self.prior, Prior) or self.prior.within is None:
            return
        if self.log and self.prior.within <= 1:
            raise ExperimentError(
                f"{self.prior.within:g} is not a factor that leads away from a value",
                field="prior.within",
                allowed="above 1 with log: true",
            )

    def _check_range(self, low: float, high: float, step: float | None) -> None:
        if not math.isfinite(high - low):
            raise ExperimentError(
                "the range is too wide for a float", field="high", next_step="Lower high."
            )
        if low > high:
            raise ExperimentError(
                f"{low} is above high = {high}",
                field="low",
                allowed=f"at most {high}",
                next_step="Swap the two.",
            )
        if self.log and low <= 0:
            raise ExperimentError(
                f"{low} has no logarithm",
                field="low",
                allowed="above 0 with log: true",
                next_step="Raise low, or remove log.",
            )
        if self.log and step is not None:
            raise ExperimentError(
                "a logarithmic range cannot have a step",
                field="step",
                next_step="Remove step or log, or list choices.",
            )
        # The difference of two floats may miss one step by its last digit: -0.25 - -0.3 < 0.05.
        if step is not None and step > (high - low) * (1 + 1e-9):
            raise ExperimentError(
                f"{step} is wider than the range", field="step", allowed=f"up to {high - low}"
            )
        if step is not None and not (high - low) / step <= MAX_EXACT:
            raise ExperimentError(
                "the range has too many steps", field="step", next_step="Make the steps larger."
            )

    @model_serializer(mode="wrap")
    def _write_type_if_ambiguous(self, handler: SerializerFunctionWrapHandler) -> Any:
        # Whole ends are read as an Int, so a Float with whole ends has to keep its type.
        written: dict[str, Any] = handler(self)
        numbers = [written[key] for key in ("low", "high", "step") if written.get(key) is not None]
        if written.get("type") == "int" or not all(
            float(number).is_integer() for number in numbers
        ):
            written.pop("type", None)
        return {
            key: value
            for key, value in written.items()
            if value not in (None, {}) and value is not False
        }


class _Steps(Sequence[float]):
    """The numbers from low to high in steps. Computed on demand, because there may be billions."""

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._high, self._step = low, high, step
        self._indices = range(math.floor((high - low) / step + 1e-9) + 1)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> list[float]: ...
    def __getitem__(self, index: int | slice) -> float | list[float]:
        if isinstance(index, slice):
            return [self[item] for item in self._indices[index]]
        return min(self._low + self._indices[index] * self._step, self._high)


class Float(NumberSection):
    """A real number from low to high, both included.

    Example:
        >>> wb.Float(low=1e-4, high=0.1, log=True).contains(0.01)
        True
    """

    type: Literal["float"] = "float"
    low: float
    high: float
    step: float | None = Field(
        None, gt=0, description="Step between allowed values, starting at low."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_range(self.low, self.high, self.step)
        self._check_within()
        return self

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is allowed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        # 0.3 is three steps of 0.1, but in floats 0.3 / 0.1 is 2.9999999999999996.
        return math.isclose(
            (value - self.low) / self.step, round((value - self.low) / self.step), abs_tol=1e-6
        )

    def values(self) -> Sequence[float] | None:
        """Return every allowed value, or None if there are infinitely many."""
        if self.step is not None:
            return _Steps(self.low, self.high, self.step)
        if self.low == self.high:
            return [self.low]
        return None

    def sample(self, rng: random.Random) -> float:
        """Draw a value uniformly, or uniformly on the logarithmic scale."""
        values = self.values()
        if values is not None:
            return rng.choice(values)
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            # exp(log(low)) may be below low in its last digit.
            return min(max(drawn, self.low), self.high)
        return rng.uniform(self.low, self.high)


class Int(NumberSection):
    """A whole number from low to high, both included.

    Example:
        >>> list(wb.Int(low=8, high=24, step=8).values())
        [8, 16, 24]
    """

    type: Literal["int"] = "int"
    low: _Whole
    high: _Whole
    step: int | None = Field(
        None, gt=0, description="Step between allowed values, starting at low."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_range(self.low, self.high, self.step)
        self._check_within()
        return self

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is allowed."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % (self.step or 1) == 0

    def values(self) -> Sequence[int]:
        """Return every allowed value."""
        return range(self.low, self.high + 1, self.step or 1)

    def sample(self, rng: random.Random) -> int:
        """Draw a value uniformly, or uniformly on the logarithmic scale."""
        if self.log:
            # Each whole number has the interval from half below to half above it, so that the ends
            # are as likely as their neighbours.
            drawn = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
            return min(max(round(drawn), self.low), self.high)
        return rng.choice(self.values())


class Choice(SearchedSection):
    """One of several values of any JSON type.

    Example:
        >>> wb.Choice(choices=["sgd", "adamw"]).contains("adam")
        False
    """

    choices: tuple[JsonValue, ...] = Field(min_length=1)

    @model_serializer(mode="wrap")
    def _write_only_what_was_set(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key == "choices" or value}

    @field_validator("choices", mode="before")
    @classmethod
    def _listed_as_python(cls, given: Any) -> Any:
        return listed_choices(given)

    @model_validator(mode="after")
    def _check_prior(self) -> Self:
        if isinstance(self.prior, Prior) and self.prior.within is not None:
            raise ExperimentError(
                "choices have no distance", field="prior.within", next_step="Remove within."
            )
        return self

    @field_validator("choices")
    @classmethod
    def _refuse_twins(cls, choices: tuple[JsonValue, ...]) -> tuple[JsonValue, ...]:
        for first, second in itertools.combinations(choices, 2):
            if same_value(first, second):
                raise ExperimentError(
                    f"{first!r} is in the list twice", next_step="Remove one of the two."
                )
        return choices

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is one of the choices."""
        return any(same_value(value, choice) for choice in self.choices)

    def values(self) -> list[JsonValue]:
        """Return every allowed value."""
        return list(self.choices)

    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one of the choices, all equally likely."""
        return rng.choice(self.choices)


class Versions(Choice):
    """One of several versions of the code. Its values are their names.

    Example:
        >>> from workbench.experiment.domain import Versions
        >>> Versions(versions=[{"git": "main"}, {"patch": "wider.diff"}]).values()
        ['main', 'wider.diff']
    """

    versions: tuple[CodeVersion, ...] = Field(
        min_length=1,
        description=(
            "Versions of the code: [{git: main}, {patch: wider.diff}, {folder: ./other}]."
        ),
    )
    choices: tuple[JsonValue, ...] = Field(default=(), exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_choices(cls, given: Any) -> Any:
        if isinstance(given, dict) and "choices" in given:
            raise ExperimentError(
                "the choices are the names of the versions",
                field="choices",
                next_step="Remove choices, or remove versions.",
            )
        return given

    @model_validator(mode="after")
    def _name(self) -> Self:
        names = [version.label for version in self.versions]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ExperimentError(
                    f"two versions are called {name}",
                    field=f"versions.{index}.name",
                    next_step="Give one of them another name: {git: main, name: before}.",
                )
        if self.when:
            raise ExperimentError(
                "every trial needs code", field="when", next_step="Remove the condition."
            )
        # The section is frozen for its users. Their names follow from the versions.
        vars(self)["choices"] = tuple(names)
        return self

    @model_serializer(mode="wrap")
    def _write_versions(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {
            key: value
            for key, value in written.items()
            if key == "versions" or (value and key != "choices")
        }


class Fixed(DomainSection):
    """One value, the same in every trial where the parameter exists.

    Example:
        >>> wb.Fixed(value=2).contains(2)
        True
    """

    value: JsonValue

    @field_validator("value", mode="before")
    @classmethod
    def _value_as_python(cls, given: Any) -> Any:
        return json_value(given)

    @model_validator(mode="before")
    @classmethod
    def _accept_bare(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return given
        return {"value": given}

    @model_serializer(mode="wrap")
    def _write_bare(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.when:
            return {"value": self.value, "when": self.when}
        # A bare list or mapping would be read as choices or as a range.
        if isinstance(self.value, list | dict):
            return {"value": self.value}
        return self.value

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is the fixed value."""
        return same_value(value, self.value)

    def values(self) -> list[JsonValue]:
        """Return the fixed value, the only one that is allowed."""
        return [self.value]

    def sample(self, rng: random.Random) -> JsonValue:
        """Return the value."""
        return self.value


def same_value(first: JsonValue, second: JsonValue) -> bool:
    """Return whether two JSON values are the same. Unlike in Python, true is not 1."""
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _kind(given: Any) -> str | None:
    """Return the kind of parameter that was meant, or None if that is not clear."""
    if isinstance(given, Versions):
        return "code-versions"
    if isinstance(given, Float | Int | Choice | Fixed):
        return type(given).__name__.lower()
    if not isinstance(given, Mapping) or "value" in given:
        return "fixed"
    if "versions" in given:
        return "code-versions"
    if "choices" in given:
        return "choice"
    if "type" in given and given["type"] in ("int", "float"):
        return given["type"]
    if "type" in given or "low" not in given or "high" not in given:
        return None
    if all(map(is_whole, (given["low"], given["high"], given.get("step") or 1))):
        return "int"
    return "float"


def is_whole(bound: Any) -> bool:
    """Return whether the bound of a range is a whole number, also in a library's type or as text.

    Args:
        bound: The bound as the user wrote it.
    """
    # An array of numpy or a tensor of torch with a single number.
    if getattr(bound, "size", None) == 1 and callable(getattr(bound, "item", None)):
        bound = bound.item()
    bound = python_value(bound)
    if isinstance(bound, str):
        return bound.strip().lstrip("+-").isdecimal()
    return isinstance(bound, int) and not isinstance(bound, bool)


_LOW, _HIGH = ("low", "min", "lower"), ("high", "max", "upper")
"""What other tools call the ends of a range."""


def _refuse_other_notations(given: Any) -> Any:
    """Raise an error for a bare list, or another tool's notation, that says what to write here."""
    if isinstance(given, Mapping) and _kind(given) is None:
        if (instead := _instead_of(given)) is not None:
            raise ExperimentError(
                "this is neither a range nor choices", next_step=f"Write {instead}."
            )
        return given
    to_list: Any = getattr(given, "tolist", None)
    if getattr(given, "ndim", 0) and to_list is not None:
        given = to_list()
    if not isinstance(given, list | tuple):
        return given
    given = [python_value(value) for value in given]
    step = f"Write {_written_choices([])}"
    if all(isinstance(value, str | int | float | None) for value in given):
        step = f"Write {_written_choices(given)}"
    is_range = (
        len(given) == 2 and all(type(end) in (int, float) for end in given) and given[0] < given[1]
    )
    if is_range:
        step += f", or {{low: {given[0]}, high: {given[1]}}} for the whole range"
    raise ExperimentError("a list alone is neither choices nor a range", next_step=f"{step}.")


def _written_choices(values: Sequence[Any]) -> str:
    """Write choices as an example. A long or empty list is replaced by a short one."""
    written = json.dumps(values, default=str)
    if not values or len(written) > _MAX_LIST_CHARACTERS:
        written = "[first, second]"
    return f"{{choices: {written}}}"


def _instead_of(given: Mapping[str, Any]) -> str | None:
    """Return how to write a range or choices of another tool here, or None if it is not clear."""
    values = given.get("values", given.get("categories"))
    if isinstance(values, list | tuple) and values:
        return _written_choices(values)
    low, high = (
        next((given[name] for name in names if name in given), None) for names in (_LOW, _HIGH)
    )
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        return None
    kind = str(given.get("distribution", given.get("type", ""))).lower()
    is_log = "log" in kind or given.get("log") is True
    # Some tools write the ends of a logarithmic range as exponents: the meaning is not clear.
    if is_log and (low is None or low <= 0):
        return None
    is_real = (
        "uniform" in kind and "int" not in kind and isinstance(low, int) and isinstance(high, int)
    )
    parts = [f"low: {low}", f"high: {high}", *["log: true"] * is_log, *["type: float"] * is_real]
    return f"{{{', '.join(parts)}}}"


Domain = Float | Int | Choice | Versions | Fixed
WrittenDomain = Annotated[
    Annotated[Float, Tag("float")]
    | Annotated[Int, Tag("int")]
    | Annotated[Choice, Tag("choice")]
    | Annotated[Versions, Tag("code-versions")]
    | Annotated[Fixed, Tag("fixed")],
    Discriminator(
        _kind,
        custom_error_type="domain",
        custom_error_message=(
            "this is neither a range nor choices; allowed: {low, high, log, step, type, prior, "
            "when}, {choices, prior, when}, {value, when} or a single value"
        ),
    ),
    BeforeValidator(_refuse_other_notations),
]


def values_to_check(domain: Domain, most: int = 1000) -> Sequence[JsonValue]:
    """Return values of a domain that are all allowed only if the whole domain is.

    Every limit on a number is an interval. So if both ends of a range are allowed, everything
    between them is, too.

    Args:
        domain: The domain.
        most: Ranges with more values are represented by their ends.

    Example:
        >>> values_to_check(Int(low=1, high=10**6))
        (1, 1000000)
    """
    values = domain.values()
    if isinstance(domain, Float | Int) and (values is None or len(values) > most):
        return domain.low, domain.high
    assert values is not None, "only a range has infinitely many values"
    return values


def describe(domain: Domain) -> str:
    """Describe briefly which values a domain allows."""
    match domain:
        case Float() | Int():
            words = f"numbers from {domain.low} to {domain.high}"
            if isinstance(domain, Int):
                words = f"whole {words}"
            if domain.step:
                words += f" in steps of {domain.step}"
            return words
        case Choice():
            return ", ".join(repr(choice) for choice in domain.choices)
        case Fixed():
            return f"only {domain.value!r}"
        case _:
            assert_never(domain)
