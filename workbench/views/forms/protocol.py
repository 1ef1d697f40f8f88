"""The messages between a form and the kernel that holds its experiment.

The kernel holds the truth: the form sends what the user did, and shows the state that comes back. A
query requests something that takes a while. Its answers follow from another thread. The TypeScript
types of the form are generated from this file. Numbers that are not finite travel as strings.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from workbench.foundation.errors import ExperimentError, Problem
from workbench.foundation.python_values import plain

PartName = Literal["model", "data", "space", "advice", "run", "result"]
Topic = Literal[
    "model",
    "data",
    "samples",
    "advice",
    "what_if",
    "stop_advice",
    "preflight",
    "start",
    "result",
    "export",
    "extend",
    "enqueue",
    "file",
]
FieldKind = Literal[
    "number", "whole", "choice", "text", "switch", "duration", "size", "names", "mapping"
]
Mapping = dict[str, JsonValue]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(
        description="Increases with each message. The state says which it includes."
    )


class Response(BaseModel):
    """A part of what the kernel sends."""

    model_config = ConfigDict(frozen=True)


class Hello(_Request):
    """A view has opened, or the kernel has come back."""

    type: Literal["hello"]
    parts: tuple[PartName, ...]


class Edit(_Request):
    """Change settings. All changes are undone in one step."""

    type: Literal["edit"]
    changes: tuple[tuple[str, JsonValue], ...] = Field(
        description="Dotted paths with their new values."
    )
    removals: tuple[str, ...] = Field(default=(), description="Dotted paths of settings to remove.")
    label: str


class Remove(_Request):
    """Remove one setting."""

    type: Literal["remove"]
    path: str


class Rename(_Request):
    """Rename a searched parameter."""

    type: Literal["rename"]
    path: str
    name: str


class WriteText(_Request):
    """Replace the experiment by a text. An empty text discards an invalid one."""

    type: Literal["yaml", "python"]
    text: str


class History(_Request):
    """Undo or redo one step."""

    type: Literal["undo", "redo"]


class Preset(_Request):
    """Start from a preset."""

    type: Literal["preset"]
    name: str


class OpenFile(_Request):
    """Open an experiment file."""

    type: Literal["open"]
    path: str


class SaveFile(_Request):
    """Save the experiment as a file."""

    type: Literal["save"]
    path: str
    overwrite: bool = False


class SetAddress(_Request):
    """Choose where the experiment runs."""

    type: Literal["address"]
    address: str | None = Field(description="The address of a cluster, or None for this machine.")


class Query(_Request):
    """Ask for something that takes a while."""

    type: Literal["query"]
    topic: Topic
    query: int = Field(description="The number that the answer repeats.")
    arguments: Mapping = Field(default_factory=dict)


Request = (
    Hello
    | Edit
    | Remove
    | Rename
    | WriteText
    | History
    | Preset
    | OpenFile
    | SaveFile
    | SetAddress
    | Query
)
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="type")])


class FormField(Response):
    """One setting with its type, bounds, help and value."""

    path: str
    label: str
    kind: FieldKind
    unit: str | None = None
    help: str | None = None
    low: float | None = None
    high: float | None = None
    low_open: bool = Field(default=False, description="Whether the lower bound itself is excluded.")
    high_open: bool = Field(
        default=False, description="Whether the upper bound itself is excluded."
    )
    choices: tuple[JsonValue, ...] | None = Field(
        default=None, description="All allowed values of a choice, or suggestions for a text."
    )
    allows_auto: bool = False
    allows_none: bool = Field(
        default=False, description="Whether null is a value other than the default."
    )
    default: JsonValue
    value: JsonValue = Field(description="The written value, or null if the default applies.")
    is_written: bool = Field(
        default=False, description="Whether a value is written, which may be null."
    )
    is_searched: bool = False
    applies: bool = Field(
        default=True, description="Whether the setting has an effect at the moment."
    )
    initial_search: JsonValue = Field(
        default=None, description="How a search of it starts, or null if it cannot be searched."
    )


SearchKind = Literal["float", "int", "choices", "fixed"]


class SearchRow(Response):
    """A parameter of the search space, as it is shown and edited."""

    name: str
    kind: SearchKind
    low: JsonValue = Field(description="As written: what was typed may be no number.")
    high: JsonValue
    step: JsonValue
    log: bool
    choices: tuple[JsonValue, ...]
    value: JsonValue
    near: JsonValue = Field(description="A value that is probably good, or None.")
    when: Mapping
    written_as: dict[SearchKind, JsonValue] = Field(
        description="How it is written as each kind, with what these have in common."
    )


class ItemList(Response):
    """How many items a list of settings has, and what the next one starts with."""

    num_items: int
    min_items: int
    next: Mapping


class Section(Response):
    """A group of fields."""

    name: str
    title: str
    help: str | None = None
    fields: tuple[FormField, ...]
    items: ItemList | None = Field(
        default=None, description="Set if the section is a list of items."
    )


class NamedChoice(Response):
    """A model, data set or preset to choose."""

    name: str
    help: str | None = None
    is_own: bool = Field(default=False, description="Whether a cell of the notebook defines it.")


class FormState(Response):
    """Everything that a form shows of an experiment."""

    type: Literal["state"] = "state"
    revision: int
    answered: int = Field(description="The last message that is included.")
    document: Mapping = Field(description="The experiment as written, including what is wrong.")
    is_experiment: bool = Field(
        description="Whether it is valid. If not, answers use the last valid one."
    )
    problems: tuple[Problem, ...]
    yaml: str
    yaml_problems: tuple[Problem, ...]
    python: str
    python_problems: tuple[Problem, ...]
    hash: str | None
    command: str
    can_undo: bool
    undo_label: str | None
    can_redo: bool
    saved_path: str | None
    is_saved: bool = Field(description="Whether the saved file has the current content.")
    address: str | None = Field(description="The address of the cluster, or None for this machine.")
    notes: tuple[str, ...] = Field(
        description="Notices, such as that a class of a cell has changed."
    )
    search: tuple[SearchRow, ...]
    sections: tuple[Section, ...]
    models: tuple[NamedChoice, ...]
    datasets: tuple[NamedChoice, ...]
    presets: tuple[NamedChoice, ...]
    example: NamedChoice | None = Field(
        default=None, description="A preset to run at once, as long as nothing has been changed."
    )


class Answer(Response):
    """The progress or result of a query."""

    type: Literal["answer"] = "answer"
    topic: Topic
    query: int
    status: Literal["working", "done", "failed"]
    progress: str | None = None
    result: Any = Field(default=None, description="As in `results.Results`, by topic.")
    problem: Problem | None = None


def read_request(content: object) -> Request:
    """Read a message of a form.

    Args:
        content: The message as JSON values.

    Raises:
        ExperimentError: If it is not a message of the protocol.
    """
    try:
        return _REQUEST.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ExperimentError(
            f"is not a message of the form: {place}: {first['msg']}", field="message"
        ) from error


def to_message(response: FormState | Answer) -> dict[str, Any]:
    """Return a state or an answer as JSON values."""
    return plain(response.model_dump())
