"""Components: models, datasets and functions that an experiment uses.

A component is a registered name, `package.module:name`, or an object from a notebook. An object
that other processes can import is written as its import path. Any other object, such as a class
from a cell, is embedded: the experiment contains the hash of its cloudpickle bytes, and the run
stores the bytes. The hash is checked before the bytes are loaded.
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
from workbench.foundation.registry import load_object
from workbench.foundation.validation_errors import Checked

EMBEDDED_PREFIX = "embedded:"


class Component(Checked):
    """A part of an experiment, by name, with its fixed options.

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
                raise ExperimentError("missing", field="name", next_step="Add a name.")
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
            f"an object of type {type(given).__name__} is not a component",
            allowed="a name, {name: NAME, option: value}, or a Python function or class",
        )

    @model_serializer(mode="wrap")
    def _write_short(self, handler: SerializerFunctionWrapHandler) -> Any:
        if not self.options:
            return self.name
        return {"name": self.name, **self.options}

    @property
    def payload(self) -> bytes | None:
        """The bytes of an embedded object, if they are loaded."""
        return self._payload

    @property
    def is_reference(self) -> bool:
        """Whether the name means a Python object, not an entry of a registry."""
        return ":" in self.name

    @property
    def payload_hash(self) -> str | None:
        """The SHA-256 of an embedded object, in hexadecimal. None for other components."""
        if not self.name.startswith(EMBEDDED_PREFIX):
            return None
        return self.name.rpartition("@")[2]

    @property
    def title(self) -> str:
        """The name for people, without the hash of an embedded object."""
        return self.name.removeprefix(EMBEDDED_PREFIX).partition("@")[0]

    @property
    def short_name(self) -> str:
        """The last word of its name, such as `f` of `package.module:f`."""
        return self.name.partition("@")[0].rpartition(":")[2].rpartition(".")[2]

    def with_payload(self, payload: bytes) -> Component:
        """Return the same component with the bytes of its embedded object.

        Raises:
            RunError: If the bytes do not match the hash in the name.
        """
        if hashlib.sha256(payload).hexdigest() != self.payload_hash:
            raise RunError(
                f"the stored bytes of {self.name} were changed",
                next_step="Start the run again from the notebook that defines the object.",
            )
        component = self.model_copy()
        component._payload = payload
        return component

    def load(self, *, field: str | None = None) -> Any:
        """Import or unpickle the object. Only for components with `is_reference`.

        Args:
            field: The dotted field for the error message.

        Raises:
            ExperimentError: If the object cannot be imported.
            RunError: If the object is embedded and its bytes are not loaded.
        """
        if self.payload_hash is None:
            return load_object(self.name, field=field)
        if self._payload is None:
            raise RunError(
                f"{self.name} was made in another process, and its bytes are not available here",
                field=field,
                next_step=("Open the run that uses it, or give the object as package.module:name."),
            )
        import cloudpickle

        self.with_payload(self._payload)
        return cloudpickle.loads(self._payload)


def embed(target: Any, options: Mapping[str, JsonValue]) -> Component:
    """Return the component of a Python callable.

    It gets its import path if other processes can import it, and is embedded otherwise.

    Args:
        target: A function or class.
        options: Fixed options.
    """
    module_name = getattr(target, "__module__", None)
    qualified_name = getattr(target, "__qualname__", None) or type(target).__qualname__
    if module_name not in (None, "__main__") and "<" not in qualified_name:
        # The path may lead to another object, such as the decorated version of this function.
        importable: Any = sys.modules.get(str(module_name))
        for part in qualified_name.split("."):
            importable = getattr(importable, part, None)
        if importable is target:
            return Component.model_validate({"name": f"{module_name}:{qualified_name}", **options})
    from workbench.experiment.pickling import dumps

    payload = dumps(target)
    short = qualified_name.rpartition(".")[2].strip("<>")
    name = f"{EMBEDDED_PREFIX}{short}@{hashlib.sha256(payload).hexdigest()}"
    return Component.model_validate({"name": name, **options}).with_payload(payload)
