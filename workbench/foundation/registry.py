"""Named objects that are loaded only when they are used.

A registry is a table `name -> "module:object"` plus an entry-point group through which other
packages add names. Nothing is imported before it is needed. The error for an unknown name lists the
known ones.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.foundation.errors import (
    ExperimentError,
    UnknownNameError,
    WorkbenchError,
    missing_part,
)

_KEPT_S = 5.0


def load_object(reference: str, *, field: str | None = None) -> Any:
    """Import the object that `package.module:name` refers to.

    Args:
        reference: Module path, a colon, and a dotted name inside the module.
        field: The dotted field to report if the reference is wrong.

    Returns:
        The object.

    Raises:
        ExperimentError: If the text is not of this form, or the module or the name does not exist.
        MissingDependencyError: If a module of the workbench needs a library that is not installed.
    """
    module_name, _, qualified_name = reference.partition(":")
    if not module_name or not qualified_name:
        raise ExperimentError(
            f"{reference!r} is not the name of a Python object",
            field=field,
            allowed="package.module:name",
        )
    try:
        loaded: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if (part := missing_part(error)) is not None and module_name.startswith("workbench."):
            raise part from error
        missing = error.name or module_name
        problem = f"cannot import {missing!r}"
        if not module_name.startswith(missing):
            problem += f", which {module_name!r} imports"
        raise ExperimentError(
            problem,
            field=field,
            next_step="Start from the folder that contains it, or install its package.",
        ) from error
    for part in qualified_name.split("."):
        if not hasattr(loaded, part):
            raise ExperimentError(
                f"{module_name!r} has no {qualified_name!r}",
                field=field,
                next_step="Check the spelling.",
            )
        loaded = getattr(loaded, part)
    return loaded


class Registry:
    """A table of names whose objects are loaded on first use."""

    def __init__(
        self,
        kind: str,
        table: Mapping[str, str],
        *,
        group: str | None = None,
        needs: Sequence[str] = (),
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """Make a registry.

        Args:
            kind: The word for an object, in the singular, such as "model" or "strategy".
            table: Built-in names, each with its `module:object`.
            group: Entry-point group through which other packages add names.
            needs: Attributes that the objects of other packages must have.
            hints: What to use instead of names that other tools know, such as "bayes".
        """
        self.kind = kind
        self._needs = tuple(needs)
        self._hints = dict(hints or {})
        self._table = dict(table)
        self._group = group
        self._scanned: list[importlib.metadata.EntryPoint] = []
        self._scanned_at_s: float | None = None

    def references(self) -> dict[str, str]:
        """Return every known name with its `module:object`, built-in ones first."""
        references = dict(self._table)
        for entry_point in self._entry_points():
            if references.get(entry_point.name, entry_point.value) != entry_point.value:
                raise ExperimentError(
                    f"{entry_point.value!r} registers the {self.kind} {entry_point.name!r}, "
                    f"which is already {references[entry_point.name]!r}",
                    next_step="Uninstall one of the two packages.",
                )
            references[entry_point.name] = entry_point.value
        return references

    def _entry_points(self) -> list[importlib.metadata.EntryPoint]:
        # Scanning all packages takes noticeably long, and forms query at each key press.
        now_s = time.monotonic()
        if self._group and (self._scanned_at_s is None or now_s - self._scanned_at_s > _KEPT_S):
            self._scanned = list(importlib.metadata.entry_points(group=self._group))
            self._scanned_at_s = now_s
        return self._scanned

    def names(self) -> list[str]:
        """Return every known name, built-in ones first."""
        return list(self.references())

    def unknown(self, name: str, *, field: str | None = None) -> UnknownNameError:
        """Return the error for an unknown name.

        Args:
            name: The name.
            field: The dotted field that has it.
        """
        return UnknownNameError(
            f"unknown {self.kind} {name!r}",
            field=field,
            allowed=self.names(),
            next_step=self._hints.get(name.lower()),
        )

    def loadable(self) -> dict[str, Any]:
        """Return the objects by name, without those of packages that cannot be imported here."""
        objects: dict[str, Any] = {}
        for name in self.names():
            with contextlib.suppress(WorkbenchError):
                objects[name] = self.load(name)
        return objects

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self.references()

    def load(self, name: str, *, field: str | None = None) -> Any:
        """Import the object of `name`.

        Args:
            name: A known name.
            field: The dotted field to report if the name is unknown.

        Returns:
            The object.

        Raises:
            UnknownNameError: If no package registers the name.
            ExperimentError: If an object of another package misses a required attribute.
        """
        # Built-in names first, because `references` scans all installed packages.
        reference = self._table.get(name) or self.references().get(name)
        if reference is None:
            raise self.unknown(name, field=field)
        loaded = load_object(reference, field=field)
        if name not in self._table:
            missing = {need for need in self._needs if not hasattr(loaded, need)}
            missing |= getattr(loaded, "__abstractmethods__", frozenset())
            if missing:
                raise ExperimentError(
                    f"{reference!r} is registered as the {self.kind} {name!r}, but has no"
                    f" {', '.join(sorted(missing))}",
                    field=field,
                    next_step=f"Correct the package that registers it in {self._group}.",
                )
        return loaded
