"""What an experiment names.

A zoo entry, `package.module:name`, or a Python object made in a notebook.

An object that other processes can import is written by its import path. One that they cannot, such
as a class defined in a cell, is embedded: its cloudpickle bytes travel beside the experiment, are
named by their hash, and the hash is checked before anything is loaded. Where the bytes lie is left
to the run.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.python_values import python_values
from workbench.foundation.refusals import Checked
from workbench.foundation.registry import load_object

EMBEDDED_PREFIX = "embedded:"


class Component(Checked):
    """A named part of an experiment with its fixed options.

    Example:
        >>> wb.Component(name="convnet", options={"width": 16}).title
        'convnet'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        min_length=1, description="A registered name, package.module:name, or embedded:name@hash."
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Fixed options, by name."
    )
    _payload: bytes | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _accept_short_forms(cls, given: Any, handler: Any) -> Component:
        if isinstance(given, Component):
            return given
        if isinstance(given, str):
            return handler({"name": given})
        if isinstance(given, Mapping):
            if "name" not in given:
                raise ExperimentError("has no name", field="name", next_step="Add a name.")
            options = {key: value for key, value in given.items() if key != "name"}
            if set(options) == {"options"} and isinstance(options["options"], Mapping):
                options = dict(options["options"])
            options = python_values(options)
            if callable(given["name"]):
                return embed(given["name"], options)
            return handler({"name": given["name"], "options": options})
        if callable(given):
            return embed(given, {})
        raise ExperimentError(
            f"an object of type {type(given).__name__} does not name a component",
            allowed="a name, {name, options...} or a Python callable",
        )

    @model_serializer(mode="wrap")
    def _write_short(self, handler: SerializerFunctionWrapHandler) -> Any:
        return {"name": self.name, **self.options} if self.options else self.name

    @property
    def payload(self) -> bytes | None:
        """The bytes of an embedded object, where they are at hand."""
        return self._payload

    @property
    def is_reference(self) -> bool:
        """Whether the name stands for a Python object rather than for an entry of a registry."""
        return ":" in self.name

    @property
    def payload_hash(self) -> str | None:
        """The SHA-256 of an embedded object, in hexadecimal."""
        return self.name.rpartition("@")[2] if self.name.startswith(EMBEDDED_PREFIX) else None

    @property
    def title(self) -> str:
        """Its display name: its name, without the hash of an embedded object."""
        return self.name.removeprefix(EMBEDDED_PREFIX).partition("@")[0]

    @property
    def short_name(self) -> str:
        """The last word of its name, such as `f` of `package.module:f`."""
        return self.name.partition("@")[0].rpartition(":")[2].rpartition(".")[2]

    def with_payload(self, payload: bytes) -> Component:
        """Return the same component with the bytes of its embedded object.

        Raises:
            RunError: If the bytes are not those that the name was made from.
        """
        if hashlib.sha256(payload).hexdigest() != self.payload_hash:
            raise RunError(
                f"the bytes of {self.name} are not those that were stored",
                next_step="Start the run again from the notebook that defines the object.",
            )
        component = self.model_copy()
        component._payload = payload
        return component

    def load(self, *, field: str | None = None) -> Any:
        """Import or unpickle the object that the name stands for; only where `is_reference`.

        Args:
            field: The dotted field to name when it cannot be loaded.

        Raises:
            ExperimentError: If it cannot be imported.
            RunError: If it is embedded and its bytes are not at hand.
        """
        if self.payload_hash is None:
            return load_object(self.name, field=field)
        if self._payload is None:
            raise RunError(
                f"{self.name} was made in another process and its bytes are not available here",
                field=field,
                next_step=(
                    "Open the run that it belongs to, or give the object as package.module:name."
                ),
            )
        import cloudpickle

        self.with_payload(self._payload)
        return cloudpickle.loads(self._payload)


def embed(target: Any, options: Mapping[str, JsonValue]) -> Component:
    """Name a Python callable, by import path where other processes can import it.

    Args:
        target: A function or class.
        options: Fixed options.
    """
    module_name = getattr(target, "__module__", None)
    qualified_name = getattr(target, "__qualname__", None) or type(target).__qualname__
    if module_name not in (None, "__main__") and "<" not in qualified_name:
        found: Any = sys.modules.get(str(module_name))
        for part in qualified_name.split("."):
            found = getattr(found, part, None)
        if found is target:
            return Component.model_validate({"name": f"{module_name}:{qualified_name}", **options})
    from workbench.experiment.pickling import dumps

    payload = dumps(target)
    short = qualified_name.rpartition(".")[2].strip("<>")
    name = f"{EMBEDDED_PREFIX}{short}@{hashlib.sha256(payload).hexdigest()}"
    return Component.model_validate({"name": name, **options}).with_payload(payload)
