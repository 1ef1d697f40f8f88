"""The kinds of parameters.

Which values each may take, how it is written, how it is sampled at random.

Float, Int, Choice and Fixed are a closed union; converters to foreign libraries live with their
owners. Whether a parameter exists in a configuration is left to the space.
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
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self, assert_never

from workbench.foundation.errors import ExperimentError
from workbench.foundation.python_values import json_value, listed_choices, python_value, whole_bound
from workbench.foundation.refusals import Checked

MAX_EXACT = 2**53
"""Up to here a float represents whole numbers exactly; samplers compute with floats."""
_MAX_LIST_CHARACTERS = 120
_Whole = Annotated[int, Field(ge=-MAX_EXACT, le=MAX_EXACT)]


class Prior(Checked):
    """What is believed about a parameter before anything was tried.

    Example:
        >>> wb.Float(low=1e-5, high=0.1, log=True, prior={"near": 3e-4}).prior.near
        0.0003
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    near: JsonValue = Field(description="A value that is believed to be good.")

    @field_validator("near", mode="before")
    @classmethod
    def _as_python(cls, given: Any) -> Any:
        return json_value(given)


class DomainSection(Checked):
    """The fields that all kinds of parameters share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    when: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Parents and the value, or list of values, at which this parameter exists.",
    )

    @field_validator("when", mode="before")
    @classmethod
    def _as_python(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {
            parent: (
                [json_value(one) for one in wanted]
                if isinstance(wanted, tuple)
                else json_value(wanted, str(parent))
            )
            for parent, wanted in given.items()
        }


class SearchedSection(DomainSection):
    """The fields that parameters with several values share."""

    prior: Prior | None = Field(
        None,
        description=(
            "Where good values are believed to be, such as {near: 3e-4}: the sampler auto begins "
            "there, and relies on it the less the more trials have ended."
        ),
    )


class NumberSection(SearchedSection):
    """The fields that ranges share."""

    log: bool = Field(False, description="Sample uniformly on a logarithmic scale.")

    @field_validator("low", "high", "step", mode="before", check_fields=False)
    @classmethod
    def _bound_as_python(cls, given: Any) -> Any:
        return whole_bound(given)

    def _check_range(self, low: float, high: float, step: float | None) -> None:
        if not math.isfinite(high - low):
            raise ExperimentError(
                "the range is wider than a float can represent", field="high", next_step="Lower it."
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
                allowed="above 0 where log is true",
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
                "the range has too many steps", field="step", next_step="Raise it."
            )

    @model_serializer(mode="wrap")
    def _write_type_where_ambiguous(self, handler: SerializerFunctionWrapHandler) -> Any:
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
    """The numbers from low to high in steps, computed on demand, as there may be very many."""

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
        return self

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is allowed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        return math.isclose(
            (value - self.low) / self.step, round((value - self.low) / self.step), abs_tol=1e-6
        )

    def values(self) -> Sequence[float] | None:
        """Return every allowed value, or None where there are infinitely many."""
        if self.step is None:
            return [self.low] if self.low == self.high else None
        return _Steps(self.low, self.high, self.step)

    def sample(self, rng: random.Random) -> float:
        """Draw a value evenly, or evenly in the logarithm."""
        values = self.values()
        if values is not None:
            return rng.choice(values)
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
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
        """Draw a value evenly, or evenly in the logarithm."""
        if self.log:
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

    @field_validator("choices")
    @classmethod
    def _refuse_twins(cls, choices: tuple[JsonValue, ...]) -> tuple[JsonValue, ...]:
        for first, second in itertools.combinations(choices, 2):
            if same_value(first, second):
                raise ExperimentError(
                    f"{first!r} is listed twice", next_step="Remove one of the two."
                )
        return choices

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is one of the choices."""
        return any(same_value(value, choice) for choice in self.choices)

    def values(self) -> list[JsonValue]:
        """Return every allowed value."""
        return list(self.choices)

    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one of the choices evenly."""
        return rng.choice(self.choices)


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
        return given if isinstance(given, Mapping) else {"value": given}

    @model_serializer(mode="wrap")
    def _write_bare(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.when:
            return {"value": self.value, "when": self.when}
        # A bare list or mapping would be read as choices or as a range.
        return {"value": self.value} if isinstance(self.value, list | dict) else self.value

    def contains(self, value: JsonValue) -> bool:
        """Return whether `value` is the value."""
        return same_value(value, self.value)

    def values(self) -> list[JsonValue]:
        """Return the value, as the only one allowed."""
        return [self.value]

    def sample(self, rng: random.Random) -> JsonValue:
        """Return the value."""
        return self.value


def same_value(first: JsonValue, second: JsonValue) -> bool:
    """Return whether two JSON values are the same; unlike Python, true is not 1."""
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _kind(given: Any) -> str | None:
    """Return which kind of parameter was meant, or None if that is ambiguous."""
    if isinstance(given, Float | Int | Choice | Fixed):
        return type(given).__name__.lower()
    if not isinstance(given, Mapping) or "value" in given:
        return "fixed"
    if "choices" in given:
        return "choice"
    if "type" in given:
        return given["type"] if given["type"] in ("int", "float") else None
    if "low" in given and "high" in given:
        bounds = (given["low"], given["high"], given.get("step") or 1)
        return "int" if all(map(is_whole, bounds)) else "float"
    return None


def is_whole(bound: Any) -> bool:
    """Return whether the bound of a range is a whole number, of any library, or written as a
    text.
    """
    if getattr(bound, "size", None) == 1 and callable(getattr(bound, "item", None)):
        bound = bound.item()
    bound = python_value(bound)
    if isinstance(bound, str):
        return bound.strip().lstrip("+-").isdecimal()
    return isinstance(bound, int) and not isinstance(bound, bool)


_LOW, _HIGH = ("low", "min", "lower"), ("high", "max", "upper")
"""What other tools call the ends of a range."""


def _refuse_other_notations(given: Any) -> Any:
    """Refuse a bare list, and ranges and choices as other tools write them, with what to write
    instead.
    """
    if isinstance(given, Mapping) and _kind(given) is None:
        if (instead := _instead_of(given)) is not None:
            raise ExperimentError("neither a range nor choices", next_step=f"Write {instead}.")
        return given
    to_list: Any = getattr(given, "tolist", None)
    if getattr(given, "ndim", 0) and to_list is not None:
        given = to_list()
    if not isinstance(given, list | tuple):
        return given
    given = [python_value(one) for one in given]
    is_plain = bool(given) and all(isinstance(one, str | int | float | None) for one in given)
    written = json.dumps(given) if is_plain else ""
    if not 0 < len(written) <= _MAX_LIST_CHARACTERS:
        written = "[first, second]"
    step = f"Write {{choices: {written}}}"
    is_range = (
        len(given) == 2 and all(type(end) in (int, float) for end in given) and given[0] < given[1]
    )
    if is_range:
        step += f", or {{low: {given[0]}, high: {given[1]}}} for the whole range"
    raise ExperimentError("a list alone is neither choices nor a range", next_step=f"{step}.")


def _instead_of(given: Mapping[str, Any]) -> str | None:
    """Return how a range or choices of another tool are written here.

    None where that is not clear.
    """
    values = given.get("values", given.get("categories"))
    if isinstance(values, list | tuple) and values:
        written = json.dumps(values, default=str)
        return (
            f"{{choices: {written if len(written) <= _MAX_LIST_CHARACTERS else '[first, second]'}}}"
        )
    low, high = (
        next((given[name] for name in names if name in given), None) for names in (_LOW, _HIGH)
    )
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        return None
    kind = str(given.get("distribution", given.get("type", ""))).lower()
    is_log = "log" in kind or given.get("log") is True
    if is_log and (low is None or low <= 0):  # exponents
        return None
    is_real = (
        "uniform" in kind and "int" not in kind and isinstance(low, int) and isinstance(high, int)
    )
    parts = [f"low: {low}", f"high: {high}", *["log: true"] * is_log, *["type: float"] * is_real]
    return f"{{{', '.join(parts)}}}"


Domain = Float | Int | Choice | Fixed
WrittenDomain = Annotated[
    Annotated[Float, Tag("float")]
    | Annotated[Int, Tag("int")]
    | Annotated[Choice, Tag("choice")]
    | Annotated[Fixed, Tag("fixed")],
    Discriminator(
        _kind,
        custom_error_type="domain",
        custom_error_message=(
            "neither a range nor choices; allowed: {low, high, log, step, type, prior, "
            "when}, {choices, prior, when}, {value, when} or a bare value that is not a list"
        ),
    ),
    BeforeValidator(_refuse_other_notations),
]


def describe(domain: Domain) -> str:
    """Describe briefly which values a domain allows."""
    match domain:
        case Float() | Int():
            step = f" in steps of {domain.step}" if domain.step else ""
            kind = "whole numbers" if isinstance(domain, Int) else "numbers"
            return f"{kind} from {domain.low} to {domain.high}{step}"
        case Choice():
            return ", ".join(repr(choice) for choice in domain.choices)
        case Fixed():
            return f"only {domain.value!r}"
        case _:
            assert_never(domain)
