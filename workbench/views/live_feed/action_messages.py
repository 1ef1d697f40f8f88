"""The messages about actions: offers with their dialogs, requests, and results.

The server checks a request against the table of actions. The TypeScript types are generated from
this file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_TEXT = 200

Name = Annotated[str, Field(max_length=MAX_TEXT)]
Json = dict[str, Any]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True)


class OfferField(_Response):
    """A field of the dialog of an action."""

    name: str = Field(description="The argument that it fills in.")
    part_of: str | None = Field(
        default=None, description="The argument whose values by name it belongs to."
    )
    label: str
    hint: str = ""
    value: str = Field(default="", description="The initial content of the field.")
    fallback: str | None = Field(default=None, description="The value of an empty field.")
    is_text: bool = Field(
        default=False, description="Whether what is typed is text, whatever it looks like."
    )
    choices: tuple[str, ...] = Field(default=(), description="Allowed values. If empty, any.")
    is_list: bool = Field(
        default=False, description="Whether it is several texts, separated by commas."
    )
    is_long: bool = Field(default=False, description="Whether it takes several lines.")
    may_be_empty: bool = Field(default=False, description="Whether empty text is a value.")


class Offer(_Response):
    """Something that can be done with a run or trial, and the command and the Python that do the
    same.
    """

    kind: str
    label: str
    explanation: str = ""
    done_by: Literal["driver", "store", "process", "page", "nobody"] = Field(
        description="page: the browser opens it. nobody: there is only something to copy."
    )
    command: str
    python: str
    dangerous: bool = Field(default=False, description="Whether it takes something away.")
    asks_first: bool = Field(default=False, description="Open a dialog before doing it.")
    frees_space: bool = Field(default=False, description="Show in the dialog what it would free.")
    arguments: Json = Field(default_factory=dict, description="What is sent besides the fields.")
    fields: tuple[OfferField, ...] = ()


class Action(_Request):
    """A requested action, sent by POST."""

    kind: Name = Field(description="One of the table of actions, or start.")
    run: Name | None = None
    arguments: Json = Field(default_factory=dict)


class Done(_Response):
    """The result of an action."""

    run_id: str | None
    answer: str | None = Field(description="The driver's answer, or None if there is none yet.")
    command: str = Field(description="The equivalent command.")
    python: str


class ActionSnippet(_Response):
    """The command and the Python that do the same as an action."""

    command: str
    python: str


class SizeOfRun(_Response):
    """What a run takes up, and deleting it would free."""

    num_files: int
    files_bytes: int
    num_events: int
    stored_bytes: int
    text: str = Field(description="The same in words.")


class ExperimentFile(_Response):
    """A file to start with.

    An experiment can be started, a notebook opened, and tiers can be shown.
    """

    path: str = Field(description="Relative to the server's folder, or absolute for an example.")
    name: str
    help: str = Field(default="", description="Its first comment.")
    kind: Literal["experiment", "example", "notebook", "tiers"] = Field(
        default="experiment", description="example: an experiment that comes with the workbench."
    )
