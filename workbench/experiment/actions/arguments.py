"""The arguments of actions.

Their types, limits and wording, and how a value is checked against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import duration_argument_s

Kind = Literal[
    "count", "count_or_auto", "duration", "text", "texts", "folder", "new_file", "settings", "flag"
]
"""What a value may be.

`settings` are values by name; the server refuses a `new_file` that exists.
"""

_ALLOWED: Mapping[Kind, str] = {
    "duration": "a duration greater than 0, such as 90s, 10m or 1h30m, or a number of seconds",
    "text": "text",
    "texts": "a list of texts",
    "folder": "the path of a folder",
    "new_file": "the path of a file",
    "settings": "values by name",
    "flag": "true or false",
}


@dataclass(frozen=True)
class Argument:
    """One argument of an action."""

    name: str
    """Its name in Python and in what a browser sends."""
    kind: Kind
    help: str
    """The help of its command line option: imperative, one sentence."""
    label: str = ""
    """The label of its field in a dialog; without one a dialog does not show it."""
    hint: str = ""
    """What the dialog shows below the field."""
    option: str = ""
    """The option of the command line; empty: `--` and the name."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """The texts that are allowed; empty: any."""
    minimum: int = 1
    """The smallest count."""
    flag_value: bool = True
    """The value that the option of a flag stands for."""
    setting: str | None = None
    """The setting of the experiment that it changes.

    What is stored for the driver goes by this name.
    """
    is_required: bool = False
    is_positional: bool = False
    """Whether a Python snippet passes it by position."""
    suggested: Any = None
    """What a dialog and a snippet begin with."""
    example: Any = None
    """What a snippet to copy shows where nothing is given."""
    default: Callable[[str, Mapping[str, Any]], str] | None = None
    """Returns the value that is used where none is given, from the run id and the other
    arguments.
    """
    begins_with: str = ""
    """What its field begins with: a property of the run, by its name."""
    may_be_empty: bool = False
    """Whether empty text is a value, and not the same as none."""
    is_long: bool = False
    """Whether its field takes several lines."""
    is_from_browser: bool = True
    """Whether a browser may send it."""

    @property
    def option_name(self) -> str:
        """The option of the command line."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def allowed(self) -> str:
        """What its value may be, in words."""
        if self.kind == "count":
            return f"a whole number from {self.minimum}"
        if self.kind == "count_or_auto":
            return f"auto, or a whole number from {self.minimum}"
        return ", ".join(self.choices) or _ALLOWED[self.kind]

    def check(self, value: Any) -> None:
        """Check a value.

        Args:
            value: What was given.

        Raises:
            ArgumentError: If it has another type or lies outside the limits.
        """
        if not self._is_valid(value):
            raise ArgumentError(f"{value!r} is not valid", field=self.name, allowed=self.allowed)

    def _is_valid(self, value: Any) -> bool:
        match self.kind:
            case "count" | "count_or_auto":
                if self.kind == "count_or_auto" and value == "auto":
                    return True
                return (
                    isinstance(value, int) and not isinstance(value, bool) and value >= self.minimum
                )
            case "duration":
                return _is_duration(value)
            case "settings":
                return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
            case "texts":
                return isinstance(value, list | tuple) and all(
                    isinstance(item, str) for item in value
                )
            case "flag":
                return isinstance(value, bool)
            case "folder" | "new_file":
                return isinstance(value, str) and not value.startswith("-")
            case _:
                is_empty = isinstance(value, str) and not value.strip()
                if is_empty and self.is_required and not self.may_be_empty:
                    return False
                return isinstance(value, str) and (not self.choices or value in self.choices)


def _is_duration(value: Any) -> bool:
    try:
        duration_argument_s(value, field="")
    except ArgumentError:
        return False
    return True


def check_arguments(
    arguments: Iterable[Argument], given: Mapping[str, Any], *, from_browser: bool = False
) -> dict[str, Any]:
    """Return the arguments that were given, checked; None counts as not given.

    Args:
        arguments: Those of the action.
        given: Values by name.
        from_browser: Refuse what a browser may not send.

    Raises:
        ArgumentError: If a name is unknown, a value is not valid, or a required argument is
            missing.
    """
    known = {one.name: one for one in arguments if one.is_from_browser or not from_browser}
    for name in given:
        if name not in known:
            raise ArgumentError(
                "there is no such argument",
                field=name,
                allowed=list(known) or "no arguments at all",
            )
    values = {name: value for name, value in given.items() if value is not None}
    for name, argument in known.items():
        if name in values:
            argument.check(values[name])
        elif argument.is_required:
            raise ArgumentError("a value is required", field=name, allowed=argument.allowed)
    return values


def experiment_settings(arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an experiment that the arguments of an action change, by dotted path.

    Args:
        arguments: Those of the action.
        given: Values by name; None counts as not given.
    """
    settings = dict(given.get("settings") or {})
    for argument in arguments:
        if argument.setting is not None and given.get(argument.name) is not None:
            settings[argument.setting] = given[argument.name]
    return settings


def check_payload(arguments: Iterable[Argument], payload: Mapping[str, Any]) -> None:
    """Check a payload that was stored for the driver.

    Args:
        arguments: Those of the action.
        payload: What `payload_of` returned, perhaps in an earlier version.

    Raises:
        ArgumentError: As in `check_arguments`.
    """
    names = {one.setting or one.name: one.name for one in arguments}
    check_arguments(arguments, {names.get(key, key): value for key, value in payload.items()})


def payload_of(arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked arguments as they are stored for the driver.

    Those that change a setting by its path.

    Args:
        arguments: Those of the action.
        values: What `check_arguments` returned.
    """
    keys = {one.name: one.setting or one.name for one in arguments}
    return {keys[name]: value for name, value in values.items()}
