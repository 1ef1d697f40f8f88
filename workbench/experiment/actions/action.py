"""The types of the table of actions: `Action`, `Argument`, and the check of arguments.

An action has its texts, its arguments, the process that carries it out, and a condition. An
argument has a type, limits and texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import RunState, TrialState
from workbench.foundation.formatting import duration_argument_s

Kind = Literal[
    "count", "count_or_auto", "duration", "text", "texts", "folder", "new_file", "settings", "flag"
]
"""The type of a value. `settings` are values by name. The server rejects a `new_file` that exists.
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
    """Its name in Python and in messages from a browser."""
    kind: Kind
    help: str
    """The help of its command line option: imperative, one sentence."""
    label: str = ""
    """The label of its field in a dialog. Without a label, the dialog has no field for it."""
    hint: str = ""
    """The text below the field in the dialog."""
    option: str = ""
    """The option of the command line. Empty: `--` and the name."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """The texts that are allowed. Empty: any text."""
    minimum: int = 1
    """The smallest count."""
    maximum: int | None = None
    """The largest count. None: no limit."""
    flag_value: bool = True
    """The value of a flag if its option is given."""
    setting: str | None = None
    """The dotted setting of the experiment that it changes, which is also its name in the store."""
    is_required: bool = False
    is_positional: bool = False
    """Whether a Python snippet passes it by position."""
    is_operand: bool = False
    """Whether the command line takes it by position, after the run."""
    suggested: Any = None
    """The first value in a dialog and in a snippet."""
    example: Any = None
    """The value that a snippet shows if none is given."""
    default: Callable[[str, Mapping[str, Any]], str] | None = None
    """Returns the value if none is given, from the run id and the other arguments."""
    begins_with: str = ""
    """The property of the run that its field shows at first."""
    may_be_empty: bool = False
    """Whether empty text is a value. Otherwise it counts as not given."""
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
        """A description of the allowed values."""
        numbers = f"a whole number from {self.minimum}"
        if self.maximum is not None:
            numbers += f" to {self.maximum}"
        if self.kind == "count":
            return numbers
        if self.kind == "count_or_auto":
            return f"auto, or {numbers}"
        return ", ".join(self.choices) or _ALLOWED[self.kind]

    def check(self, value: Any) -> None:
        """Check a value.

        Args:
            value: What was given.

        Raises:
            ArgumentError: If it has another type or is outside of the limits.
        """
        if not self._is_valid(value):
            raise ArgumentError(f"{value!r} is not valid", field=self.name, allowed=self.allowed)

    def _is_valid(self, value: Any) -> bool:
        match self.kind:
            case "count" | "count_or_auto":
                if self.kind == "count_or_auto" and value == "auto":
                    return True
                return (
                    isinstance(value, int)
                    and not isinstance(value, bool)
                    and value >= self.minimum
                    and (self.maximum is None or value <= self.maximum)
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
    """Check the given arguments and return them. None counts as not given.

    Args:
        arguments: The arguments of the action.
        given: Values by name.
        from_browser: Whether to reject arguments that a browser may not send.

    Raises:
        ArgumentError: If a name is unknown, a value is not valid, or a required argument is
            missing.
    """
    by_name = {
        argument.name: argument
        for argument in arguments
        if argument.is_from_browser or not from_browser
    }
    for name in given:
        if name not in by_name:
            raise ArgumentError(
                "there is no such argument",
                field=name,
                allowed=list(by_name) or "no arguments",
            )
    values = {name: value for name, value in given.items() if value is not None}
    for name, argument in by_name.items():
        if name in values:
            argument.check(values[name])
        elif argument.is_required:
            raise ArgumentError("missing", field=name, allowed=argument.allowed)
    return values


def experiment_settings(arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an experiment that the arguments of an action change, by dotted path.

    Args:
        arguments: The arguments of the action.
        given: Values by name. None counts as not given.
    """
    settings = dict(given.get("settings") or {})
    for argument in arguments:
        if argument.setting is not None and given.get(argument.name) is not None:
            settings[argument.setting] = given[argument.name]
    return settings


def check_payload(arguments: Iterable[Argument], payload: Mapping[str, Any]) -> None:
    """Check a payload that was stored for the driver.

    Args:
        arguments: The arguments of the action.
        payload: What `payload_of` returned, perhaps in an earlier version.

    Raises:
        ArgumentError: As in `check_arguments`.
    """
    names = {argument.setting or argument.name: argument.name for argument in arguments}
    check_arguments(arguments, {names.get(key, key): value for key, value in payload.items()})


def payload_of(arguments: Iterable[Argument], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked arguments as they are stored for the driver.

    An argument that changes a setting of the experiment is stored under the path of that setting.

    Args:
        arguments: The arguments of the action.
        values: What `check_arguments` returned.
    """
    keys = {argument.name: argument.setting or argument.name for argument in arguments}
    return {keys[name]: value for name, value in values.items()}


_ALIVE: frozenset[RunState] = frozenset({"waiting", "running", "stopping"})


@dataclass(frozen=True)
class Standing:
    """The state of a run, and of one of its trials. It decides which actions are possible."""

    state: RunState
    is_advice: bool = False
    is_imported: bool = False
    """Whether another tool has run it, so that nothing can be started."""
    is_replay: bool = False
    num_trials: int = 0
    has_best: bool = False
    has_nothing_left: bool = False
    """Whether the budget is used up and all trials failed. Only a larger budget continues it."""
    trains_model: bool = False
    """Whether its trials train a torch model and keep its weights."""
    pinned: bool = False
    archived: bool = False
    has_choice: bool = False
    """Whether a trial of the run was chosen by hand. For a trial: whether it is this one."""
    can_be_chosen: bool = False
    has_versions: bool = False
    """Whether it searches versions of the code."""
    trial_state: TrialState | None = None
    is_silent: bool = False
    """Whether its driver let the lease expire without a sign, but may still be running."""

    @property
    def is_alive(self) -> bool:
        """Whether the run has not ended."""
        return self.state in _ALIVE

    @property
    def is_sweep(self) -> bool:
        """Whether the run tries configurations."""
        return not self.is_advice and not self.is_imported

    @property
    def is_trial_unfinished(self) -> bool:
        """Whether the trial can still be stopped."""
        return self.trial_state in ("waiting", "running")


Condition = Callable[[Standing], bool]


@dataclass(frozen=True)
class Action:
    """Something that you can do with a run, with one of its trials, or with an experiment file."""

    kind: str
    label: str
    """The name of its button."""
    help: str
    """The help of its command, imperative. The list of commands shows its first sentence."""
    done_by: Literal["driver", "store", "process", "page", "nobody"]
    """Who carries it out.

    `driver`: the driver of the run, when it next reads its stored commands. `store`: the store is
    changed at once. `process`: the command line, in a separate process. `page`: the browser opens a
    page. `nobody`: there is only a snippet to copy.
    """
    explanation: str = ""
    """The explanation in its dialog."""
    command: str = ""
    """The command of the command line. Empty: the kind."""
    method: str | None = ""
    """The method of `Run`. Empty: the kind. None: the run itself."""
    subject: Literal["run", "file"] = "run"
    arguments: tuple[Argument, ...] = ()
    for_run: Condition | None = None
    """Whether it is offered for a run. None: never."""
    for_trial: Condition | None = None
    """Whether it is offered for a trial. None: never."""
    label_for_trial: str = ""
    is_dangerous: bool = False
    """Whether it destroys something."""
    asks_first: bool = False
    """Whether a dialog asks for confirmation, even without fields."""
    frees_space: bool = False
    """Whether its dialog shows how much space it would free."""
    may_launch: bool = False
    """Whether it may start a driver. Its command then takes a launcher and a cluster's address."""
    detaches: bool = False
    """Whether its command follows the run unless it is called with --detach."""
    answer: str = ""
    """The message after a process has done it. It may contain arguments in braces."""
    examples: tuple[str, ...] = ()
    """Examples in the help of its command."""

    @property
    def command_name(self) -> str:
        """The command of the command line."""
        return self.command or self.kind

    @property
    def fields(self) -> tuple[Argument, ...]:
        """The arguments for which a dialog has fields."""
        return tuple(argument for argument in self.arguments if argument.label)
