"""What a notebook defines and an experiment may name: classes and functions of cells.

A name that the notebook defines is embedded in the experiment as it is now; when the cell is run again with
other code, the experiment gets the new version, and another hash. Never is one taken for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.components import embed

PARTS = ("model", "data", "train", "loss")


class Notebook:
    """The names of a notebook, and the bytes of what was taken from it."""

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        """Look names up in a namespace.

        Args:
            namespace: What is defined, by name; it may change at any time.
        """
        self._namespace = {} if namespace is None else namespace
        self._taken: dict[str, Any] = {}
        self._newest: dict[str, str] = {}
        self.payloads: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return the classes and functions that cells define."""
        return [
            name
            for name, found in list(self._namespace.items())
            if callable(found) and getattr(found, "__module__", None) == "__main__" and name[0] != "_"
        ]

    def take(self, target: Any, *, field: str | None = None) -> str:
        """Embed a class or function, or name it where others can import it.

        Args:
            target: The class or function.
            field: The dotted field that names it.

        Returns:
            What stands for it in an experiment.

        Raises:
            ExperimentError: If it cannot be taken along.
        """
        try:
            component = embed(target, {})
        except Exception as error:  # whatever an object says that cannot be pickled
            raise ExperimentError(
                f"{getattr(target, '__name__', target)!s} cannot be taken along: {error}",
                field=field,
                next_step="Move what it refers to into a module, or make it inside the function.",
            ) from error
        name = getattr(target, "__name__", "")
        if component.payload_hash is not None and component.payload is not None:
            self.payloads[component.payload_hash] = component.payload
            if name.isidentifier():
                self._taken[name], self._newest[name] = target, component.name
        return component.name

    def keep(self, experiment: Experiment) -> None:
        """Keep the bytes of what an experiment brings along."""
        self.payloads |= experiment.payloads()

    def lookup(self, name: str) -> str | None:
        """Return what stands in an experiment for a name of the notebook; None where nothing is called so.

        Raises:
            ExperimentError: If it cannot be taken along.
        """
        target = self._namespace.get(name, self._taken.get(name))
        return self.take(target) if callable(target) else None

    def name_of(self, written: str) -> str | None:
        """Return the name in the notebook of what stands in an experiment; None where it has none."""
        return next((name for name, newest in self._newest.items() if newest == written), None)

    def resolve(self, document: dict[str, Any], known: Mapping[str, Any]) -> None:
        """Replace names of the notebook in a document by what stands for them, in place.

        Args:
            document: The experiment as its file says it.
            known: Names by part that mean something else already: entries of registries.

        Raises:
            ExperimentError: If something cannot be taken along; the field is named.
        """
        for part in PARTS:
            if part in document:
                document[part] = self._resolved(document[part], part, known.get(part, ()))
        metrics = document.get("metrics")
        if isinstance(metrics, list):
            document["metrics"] = [
                self._resolved(item, f"metrics.{index}", known.get("metrics", ()))
                for index, item in enumerate(metrics)
            ]

    def renewed(self, document: dict[str, Any]) -> list[str]:
        """Put what the notebook defines now in the place of what it defined, in place.

        Args:
            document: The experiment as its file says it.

        Returns:
            The names that mean something else than before.
        """
        changed: list[str] = []
        for name, written in list(self._newest.items()):
            target = self._namespace.get(name)
            # An older version that somebody went back to stays what it is.
            if not callable(target) or written not in _mentioned(document):
                continue
            again = self.take(target)
            if again != written:
                _replace(document, written, again)
                changed.append(name)
        return changed

    def _resolved(self, value: Any, field: str, known: Any) -> Any:
        if isinstance(value, dict) and "name" in value:
            return {**value, "name": self._resolved(value["name"], field, known)}
        if not isinstance(value, str) or not value.isidentifier() or value in known:
            return value
        try:
            return self.lookup(value) or value
        except ExperimentError as error:
            raise error.about(field) from error


def _mentioned(document: Mapping[str, Any]) -> list[Any]:
    metrics = document.get("metrics")
    parts = [document.get(part) for part in PARTS] + (metrics if isinstance(metrics, list) else [])
    return [part.get("name") if isinstance(part, dict) else part for part in parts]


def _replace(document: dict[str, Any], before: str, after: str) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict) and value.get("name") == before:
            return {**value, "name": after}
        return after if value == before else value

    for part in PARTS:
        if part in document:
            document[part] = replaced(document[part])
    if isinstance(document.get("metrics"), list):
        document["metrics"] = [replaced(item) for item in document["metrics"]]
