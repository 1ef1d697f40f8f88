"""Classes and functions of notebook cells that an experiment may use by name.

The code behind a name is embedded in the experiment. When the cell runs again with other code, the
experiment gets the new version and a new hash, so the two are never confused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeAlias

from workbench.experiment import Component, Experiment
from workbench.experiment.components import embed
from workbench.experiment.module_inspection import configuration_of
from workbench.foundation.errors import ExperimentError, WorkbenchError

PARTS = ("model", "data", "train", "loss")

Known: TypeAlias = Mapping[str, Container[str]]


class Notebook:
    """The names of a notebook, and the bytes of what was embedded."""

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        """Look names up in a namespace.

        Args:
            namespace: Definitions by name. It may change at any time.
        """
        self._namespace = {} if namespace is None else namespace
        self._taken: dict[str, Any] = {}
        self._newest: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self.payloads: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the classes and functions that cells define."""
        return [
            name
            for name, value in list(self._namespace.items())
            if callable(value)
            and getattr(value, "__module__", None) == "__main__"
            and name[0] != "_"
        ]

    def take(self, target: Any, *, field: str | None = None) -> str:
        """Embed a class or function, or refer to it by name if it can be imported.

        Args:
            target: The class or function.
            field: The dotted field that refers to it.

        Returns:
            The name that refers to it in an experiment.

        Raises:
            ExperimentError: If it cannot be pickled.
        """
        try:
            component = embed(target, {})
        except ExperimentError as error:
            raise error.about(field) from error
        name = getattr(target, "__name__", "")
        if component.payload_hash is not None and component.payload is not None:
            self.payloads[component.payload_hash] = component.payload
            if name.isidentifier():
                self._taken[name], self._newest[name] = target, component.name
        return component.name

    def keep(self, experiment: Experiment) -> None:
        """Keep the bytes of what an experiment embeds."""
        self.payloads |= experiment.payloads()

    def lookup(self, name: str) -> str | None:
        """Return how an experiment refers to a name of the notebook, or None if it is undefined.

        Raises:
            ExperimentError: If it cannot be pickled.
        """
        target = self._namespace.get(name, self._taken.get(name))
        if not callable(target):
            return None
        return self.take(target)

    def name_of(self, written: str) -> str | None:
        """Return the notebook's name of what an experiment refers to, or None if it has none."""
        return next((name for name, newest in self._newest.items() if newest == written), None)

    def values_of(self, written: Any) -> dict[str, Any] | None:
        """Return what an own class or function reads from its configuration, with its defaults.

        Args:
            written: A component as in an experiment file. It may be invalid.

        Returns:
            The default of each value, as of `configuration_of`, or None for anything else.
        """
        try:
            component = Component.model_validate(written)
            if not component.is_reference:
                return None
            if component.payload_hash is None:
                return configuration_of(component)  # its file may change at any time
            if component.name not in self._values:
                if component.payload_hash in self.payloads:
                    component = component.with_payload(self.payloads[component.payload_hash])
                name = self.name_of(component.name)
                defined = None if name is None else self._taken[name]
                self._values[component.name] = configuration_of(component, defined)
            return self._values[component.name]
        except (WorkbenchError, ValueError, SyntaxError):
            return None

    def named(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document with names of the notebook in place of references to their present
        code.
        """
        copied = copy.deepcopy(dict(document))
        _rename(copied, lambda _, written: self.name_of(written) or written)
        return copied

    def resolve(self, document: dict[str, Any], known: Known) -> list[str]:
        """Replace names of the notebook in a document by references, in place.

        Args:
            document: The experiment as in its file.
            known: Names by part that have another meaning: entries of registries.

        Returns:
            The names that were replaced.

        Raises:
            ExperimentError: If something cannot be pickled, with its field.
        """
        names: list[str] = []

        def taken(field: str, name: Any) -> Any:
            if not _could_be_own(name, field, known):
                return name
            try:
                written = self.lookup(name)
            except ExperimentError as error:
                raise error.about(field) from error
            if written is None:
                return name
            names.append(name)
            return written

        _rename(document, taken)
        return names

    def explained(
        self, problem: WorkbenchError, document: Mapping[str, Any], known: Known
    ) -> WorkbenchError:
        """Return a problem, for an unknown name with the hint that a cell may define it.

        Args:
            problem: A problem of the document.
            document: The experiment as in its file.
            known: As of `resolve`.
        """
        field = problem.field or ""
        if not _could_be_own(_names(document).get(field), field, known):
            return problem
        hint = "You can also use a class or function of this notebook. Run its cell first."
        return ExperimentError(
            problem.problem,
            field=field,
            allowed=problem.allowed,
            next_step=" ".join(filter(None, [problem.to_json()["next_step"], hint])),
        )

    def renewed(self, document: dict[str, Any]) -> list[str]:
        """Replace outdated definitions in a document by the current ones, in place.

        Args:
            document: The experiment as in its file.

        Returns:
            The names whose definition has changed.
        """
        changed: list[str] = []
        for name, written in list(self._newest.items()):
            target = self._namespace.get(name)
            # An older version that was restored, such as by undo, stays.
            if not callable(target) or written not in _names(document).values():
                continue
            again = self.take(target)
            if again != written:
                _rename(
                    document, lambda _, name, old=written, new=again: new if name == old else name
                )
                changed.append(name)
        return changed


def _could_be_own(name: Any, field: str, known: Known) -> bool:
    """Return whether a name could be one of the notebook, as it has no other meaning."""
    part = field.partition(".")[0]
    return isinstance(name, str) and name.isidentifier() and name not in known.get(part, ())


def _names(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names in a document that could be classes or functions, by field."""
    names: dict[str, Any] = {}
    _rename(dict(document), lambda field, name: names.setdefault(field, name))
    return names


def _rename(document: dict[str, Any], new_name: Callable[[str, Any], Any]) -> None:
    """Replace the names in a document that could be classes or functions."""

    def renamed(field: str, value: Any) -> Any:
        if isinstance(value, dict) and "name" in value:
            return {**value, "name": new_name(field, value["name"])}
        return new_name(field, value)

    for part in PARTS:
        if part in document:
            document[part] = renamed(part, document[part])
    metrics = document.get("metrics")
    if isinstance(metrics, list):
        document["metrics"] = [
            renamed(f"metrics.{index}", metric) for index, metric in enumerate(metrics)
        ]
