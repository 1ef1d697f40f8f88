"""Types of parameters: they check a value, and their errors say what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import click

from workbench.experiment.actions import Argument
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s, format_bytes, parse_bytes

_Value = TypeVar("_Value")


class _Checked(click.ParamType, Generic[_Value]):
    """A type whose errors say what is allowed."""

    name = "text"
    allowed = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a value. click passes the arguments."""
        if not isinstance(value, str):  # a default
            return value
        try:
            return self.read(value)
        except ValueError:
            self.refuse(value, param, ctx)

    def read(self, text: str) -> _Value:
        """Return the value of a text.

        Raises:
            ValueError: If it is not valid.
        """
        raise NotImplementedError

    def refuse(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> NoReturn:
        """Raise the error for a value."""
        self.fail(f"{value!r} is not valid; allowed: {self.allowed}", param, ctx)


class Count(_Checked[int]):
    """A range of whole numbers."""

    def __init__(self, minimum: int = 1, maximum: int | None = None) -> None:
        """Make a type. Both bounds are allowed values."""
        self.minimum, self.maximum = minimum, maximum
        self.allowed = f"a whole number from {minimum}"
        if maximum is not None:
            self.allowed += f" to {maximum}"

    def read(self, text: str) -> int:
        """Return the number in a text."""
        number = int(text)
        if number < self.minimum or (self.maximum is not None and number > self.maximum):
            raise ValueError(text)
        return number


class Quantity(_Checked[float]):
    """A large number, such as 1B, 350M or 2e10."""

    allowed = "a number from 1 to 1e24, such as 350M, 1B or 2e10"
    _UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}

    def read(self, text: str) -> float:
        """Return the number in a text."""
        unit = self._UNITS.get(text[-1:].lower(), 1.0)
        number = float(text[:-1] if unit > 1.0 else text) * unit
        if not 1.0 <= number <= 1e24:
            raise ValueError(text)
        return number


class Number(_Checked[float]):
    """A range of finite numbers, without NaN."""

    def __init__(
        self,
        minimum: float,
        maximum: float = math.inf,
        *,
        has_minimum: bool = True,
        has_maximum: bool = True,
    ) -> None:
        """Make a type.

        Args:
            minimum: The lower bound.
            maximum: The upper bound.
            has_minimum: Whether the lower bound itself is allowed.
            has_maximum: Whether the upper bound itself is allowed.
        """
        self.minimum, self.maximum = minimum, maximum
        self.has_minimum, self.has_maximum = has_minimum, has_maximum
        self.allowed = f"a number {self._describe_range()}"

    def _describe_range(self) -> str:
        text = f"greater than {self.minimum:g}"
        if self.has_minimum:
            text = f"from {self.minimum:g}"
        if math.isinf(self.maximum):
            return text
        if self.has_maximum:
            return f"{text} up to {self.maximum:g}"
        return f"{text} and less than {self.maximum:g}"

    def read(self, text: str) -> float:
        """Return the number in a text."""
        number = float(text)
        is_allowed = (
            self.minimum < number < self.maximum
            or (self.has_minimum and number == self.minimum)
            or (self.has_maximum and number == self.maximum)
        )
        if not (is_allowed and math.isfinite(number)):
            raise ValueError(text)
        return number


class Seconds(_Checked[float]):
    """A duration such as 10m, in seconds."""

    allowed = "a duration greater than 0, such as 90s, 10m or 1h30m, or a number of seconds"

    def __init__(self, *, may_be_zero: bool = False) -> None:
        """Make a type."""
        self.may_be_zero = may_be_zero

    def read(self, text: str) -> float:
        """Return the seconds of a duration."""
        return duration_argument_s(text, field="", may_be_zero=self.may_be_zero)


class Size(_Checked[int]):
    """A size such as 16GB, in bytes."""

    def __init__(self, minimum_bytes: int = 1) -> None:
        """Make a type. A minimum catches a size without its unit."""
        self.minimum_bytes = minimum_bytes
        self.allowed = f"{format_bytes(minimum_bytes)} or more, with the unit, such as 16GB"

    def read(self, text: str) -> int:
        """Return the bytes of a size."""
        size = parse_bytes(text)
        if size < self.minimum_bytes:
            raise ValueError(text)
        return size


class OneOf(_Checked[str]):
    """One of some names, in capital or small letters."""

    def __init__(self, names: Iterable[str] | Callable[[], Iterable[str]]) -> None:
        """Make a type.

        Args:
            names: The names, or a function that returns them if importing them takes a while.
        """
        self._names = names

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        if callable(self._names):
            return tuple(self._names())
        return tuple(self._names)

    @property
    def allowed(self) -> str:  # type: ignore[override]
        """The names as a text."""
        return ", ".join(self.names)

    def read(self, text: str) -> str:
        """Return the name with the right capital letters."""
        names = self.names
        return names[[name.lower() for name in names].index(text.lower())]


class Batches(_Checked[tuple[int, ...]]):
    """Global batches such as 128,256,512. They are sorted, without repetitions."""

    allowed = "whole numbers greater than 0, such as 128,256,512"

    def read(self, text: str) -> tuple[int, ...]:
        """Return the batches that a text lists."""
        words = [word.strip() for word in text.split(",")]
        if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
            raise ValueError(text)
        return tuple(sorted({int(word) for word in words}))


class FilePath(_Checked[Path]):
    """The path of a file or a folder."""

    def __init__(self, *, must_exist: bool = False) -> None:
        """Make a type.

        Args:
            must_exist: Whether it must be a file that exists.
        """
        self.must_exist = must_exist
        self.allowed = "a path (write ./-x if it starts with -)"
        if must_exist:
            self.allowed = "a file that exists"

    def read(self, text: str) -> Path:
        """Return the path in a text."""
        path = Path(text)
        if text.startswith("-") or (self.must_exist and not path.is_file()):
            raise ValueError(text)
        return path


class ActionValue(click.ParamType):
    """The value of an argument of an action, which checks it."""

    name = "value"

    def __init__(self, argument: Argument) -> None:
        """Make a type."""
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a value. click passes the arguments."""
        argument = self._argument
        if argument.kind in ("texts", "settings") or not isinstance(value, str):
            return value
        read: int | str = value
        is_number = value.isascii() and value.lstrip("-").isdecimal()
        if argument.kind.startswith("count") and is_number:
            read = int(value)
        try:
            argument.check(read)
        except ArgumentError as error:
            self.fail(f"{value!r} is not valid; allowed: {error.allowed}", param, ctx)
        return read


def read_settings(assignments: Iterable[str], *, option: str = "--set") -> dict[str, Any]:
    """Read `name=value` texts.

    Args:
        assignments: Texts such as `training.epochs=5`. The value is YAML.
        option: The option of the command, for errors.

    Raises:
        ArgumentError: If one has no `=`.
        ExperimentError: If a value is not YAML.
    """
    from workbench.experiment.yaml_file import read_yaml

    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ArgumentError(
                f"{assignment!r} is not an assignment",
                field=option,
                allowed="NAME=VALUE, such as training.epochs=5",
            )
        document = read_yaml(f"value: {value}", source=f"{option} {assignment!r}")
        settings[name.strip()] = document["value"]
    return settings
