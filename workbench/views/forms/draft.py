"""A draft of an experiment: edited by fields, as YAML or as Python, with undo.

The document is the single source of truth. A change of a field is accepted even if it is invalid,
because two changes may be valid together. `problems` then lists what is wrong, and `experiment`
stays the last valid one. A text is accepted as a whole or not at all: an invalid one stays as
typed. `fields` decides what a form shows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.cluster.remote.jobs import check_address
from workbench.experiment import Experiment
from workbench.experiment.domain import Float, Int
from workbench.experiment.dotted import remove_at, set_at
from workbench.experiment.validation_errors import findings
from workbench.experiment.yaml_file import read_yaml, write_yaml
from workbench.foundation.errors import DataError, ExperimentError, RunError, WorkbenchError
from workbench.runs.experiment_file import read_experiment, write_experiment
from workbench.views.forms.document_edits import (
    add_condition,
    drop_empty,
    drop_other_kinds,
    follow_task,
    places,
    rename_in_advice,
    with_renamed_parent,
)
from workbench.views.forms.notebook import Notebook
from workbench.views.forms.presets import preset_path
from workbench.views.forms.python_source import read_python, write_python


def _check(
    document: Mapping[str, Any], payloads: Mapping[str, bytes], *, on_this_machine: bool = True
) -> tuple[Experiment | None, list[WorkbenchError]]:
    """Validate a document as an experiment, and check whether it could run.

    Args:
        document: The experiment as in its file.
        payloads: Bytes of embedded objects by their SHA-256.
        on_this_machine: Whether it is to run on this machine.

    Returns:
        The experiment, or None if it is invalid, and its problems.
    """
    try:
        experiment = Experiment(**document).with_payloads(payloads)
    except ExperimentError as error:
        return None, _all_of(error)
    from workbench.sweeps.preflight import find_problems

    return experiment, list(find_problems(experiment, on_this_machine=on_this_machine))


def _all_of(error: WorkbenchError) -> list[WorkbenchError]:
    """Return all problems of a refused experiment, one for each field, where the error has them."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        return list(findings(cause, Experiment))
    return [error]


_MAX_UNDO = 200
_BOUNDS = ("low", "high", "step")
_START: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "search": {"lr": {"low": 1e-4, "high": 0.1, "log": True}},
}


@dataclass(frozen=True)
class _Text:
    """A text as it was typed, and its problem."""

    typed: str
    problems: tuple[WorkbenchError, ...] = ()


@dataclass(frozen=True)
class _Step:
    """A document to return to, and what was done after it."""

    document: dict[str, Any]
    label: str


class Draft:
    """An experiment with its problems and its history. Every change notifies the listeners."""

    def __init__(
        self, experiment: Experiment | None = None, *, namespace: Mapping[str, Any] | None = None
    ) -> None:
        """Start with an experiment.

        Args:
            experiment: The initial experiment, or None for a small one that runs anywhere.
            namespace: Classes and functions that may be used by name, such as a notebook's.
        """
        self.notebook = Notebook(namespace)
        self.experiment = experiment or Experiment(**_START)
        self.notebook.keep(self.experiment)
        self.document: dict[str, Any] = {}
        self.problems: list[WorkbenchError] = []
        self.notes: list[str] = []
        self.saved_path: Path | None = None
        self._saved: Experiment | None = None
        self.revision = 0
        self.is_experiment = True
        self._address: str | None = None
        self._address_problem: RunError | None = None
        self._yaml: _Text | None = None
        self._python: _Text | None = None
        self._undo: list[_Step] = []
        self._redo: list[_Step] = []
        self._listeners: list[Callable[[], None]] = []
        self._begins_small = experiment is None
        self._take(self.experiment.model_dump(mode="json"))

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after every change.

        Args:
            listener: Called without arguments.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def yaml(self) -> str:
        """The experiment as YAML, or the invalid text that was typed."""
        if self._yaml is not None:
            return self._yaml.typed
        return write_yaml(self.document)

    @property
    def yaml_problems(self) -> tuple[WorkbenchError, ...]:
        """All problems of the YAML that was typed."""
        return () if self._yaml is None else self._yaml.problems

    @property
    def python(self) -> str:
        """The experiment as Python, or the invalid text that was typed."""
        if self._python is not None:
            return self._python.typed
        return write_python(self.document, self.notebook.name_of)

    @property
    def python_problems(self) -> tuple[WorkbenchError, ...]:
        """All problems of the Python that was typed."""
        return () if self._python is None else self._python.problems

    @property
    def hash(self) -> str | None:
        """The hash of the experiment, or None if it has problems."""
        if self.problems or not self.is_experiment:
            return None
        return self.experiment.hash()

    @property
    def is_saved(self) -> bool:
        """Whether the file at `saved_path` has the current content."""
        return self.is_experiment and self.experiment == self._saved

    @property
    def is_untouched(self) -> bool:
        """Whether it is still the small experiment that a draft starts with where none is given."""
        return self._begins_small and not self._undo and not self._redo

    @property
    def undo_label(self) -> str | None:
        """What `undo` would undo, or None if there is nothing."""
        if not self._undo:
            return None
        return self._undo[-1].label

    @property
    def can_redo(self) -> bool:
        """Whether there is something to redo."""
        return bool(self._redo)

    @property
    def address(self) -> str | None:
        """The address of the cluster to run on, or None for this machine."""
        return self._address

    @property
    def valid_address(self) -> str | None:
        """The address of the cluster if it is valid, and so may be shown in a command."""
        if self._address_problem:
            return None
        return self._address

    @address.setter
    def address(self, address: str | None) -> None:
        self._address, self._address_problem = address, None
        try:
            if address is not None:
                check_address(address)
        except RunError as error:
            self._address_problem = error
        self._take(self.document)
        self._notify()

    def own_values(self) -> dict[str, dict[str, Any]]:
        """Return what an own model or train function reads from its configuration, with defaults.

        Returns:
            The values under `model` or `train`. Empty for a model of the zoo.
        """
        return {
            part: values
            for part in ("model", "train")
            if (values := self.notebook.values_of(self.document.get(part))) is not None
        }

    def edit(
        self,
        changes: Sequence[tuple[str, Any]],
        *,
        removals: Sequence[str] = (),
        label: str = "edit",
    ) -> None:
        """Change settings. All changes are undone in one step.

        Args:
            changes: Dotted paths with their new values.
            removals: Dotted paths of settings to remove. Missing ones are ignored.
            label: A short description of the change.

        Raises:
            ExperimentError: If a path does not exist. Then nothing is changed.
        """
        document = copy.deepcopy(self.document)
        # From the end, because later items of a list move up.
        for path in sorted(removals, key=places, reverse=True):
            remove_at(document, path)
        drop_empty(document, removals)
        for path, value in changes:
            self._keep_kind(document, path)
            set_at(document, path, copy.deepcopy(value))
            drop_other_kinds(document, path)
        touched = [*removals, *(path for path, _ in changes)]
        add_condition(document, touched)
        notes = follow_task(document, touched)
        self._change(document, label)
        self.notes += notes
        self._notify()

    def rename(self, path: str, name: str) -> None:
        """Rename a searched parameter, also in conditions.

        Args:
            path: Its path, such as `search.lr`.
            name: Its new name.

        Raises:
            ExperimentError: If there is no such parameter, or the name is taken.
        """
        search = self.document.get("search")
        section, _, before = path.partition(".")
        if section != "search" or not isinstance(search, dict) or before not in search:
            raise ExperimentError("there is no such parameter", field=path)
        if name in search:
            if name == before:
                return
            raise ExperimentError(f"a parameter {name} already exists", field=path)
        document = copy.deepcopy(self.document)
        document["search"] = {
            name if key == before else key: with_renamed_parent(domain, before, name)
            for key, domain in document["search"].items()
        }
        rename_in_advice(document, before, name)
        self._change(document, f"rename {before}")
        self._notify()

    def write_yaml(self, text: str) -> None:
        """Replace the experiment by YAML.

        An invalid text is kept, and discarded by an empty one.
        """
        self._yaml = self._read(text, "edit YAML", read_yaml)
        self._notify()

    def write_python(self, text: str) -> None:
        """Replace the experiment by Python source. As `write_yaml`."""
        self._python = self._read_python(text)
        self._notify()

    def undo(self) -> None:
        """Undo the last change, if there is one."""
        self._move(self._undo, self._redo)

    def redo(self) -> None:
        """Redo what was undone last, if there is something."""
        self._move(self._redo, self._undo)

    def replace(self, experiment: Experiment, label: str) -> None:
        """Replace the experiment.

        Args:
            experiment: The new experiment.
            label: A short description of the change.
        """
        self.notebook.keep(experiment)
        self._change(experiment.model_dump(mode="json"), label)
        self._notify()

    def preset(self, name: str) -> None:
        """Replace the experiment by a preset.

        Raises:
            ExperimentError: If there is no such preset, or it is invalid.
        """
        self.replace(read_experiment(preset_path(name)), f"start from {name}")

    def open(self, path: str | Path) -> None:
        """Replace the experiment by the experiment of a file.

        Raises:
            ExperimentError: If the file cannot be read or is not an experiment.
        """
        path = Path(path).expanduser()
        experiment = read_experiment(path)
        self.saved_path, self._saved = path, experiment
        self.replace(experiment, f"open {path.name}")

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the experiment to a file, with its embedded objects next to it.

        Args:
            path: The file.
            overwrite: Whether an existing file may be replaced.

        Raises:
            ExperimentError: If the experiment is invalid.
            DataError: If the file already exists, or cannot be written.
        """
        if not self.is_experiment:
            raise self.problems[0]
        path = Path(path).expanduser()
        if path.exists() and not overwrite:
            raise DataError(
                f"{path} already exists",
                field="path",
                next_step=(
                    "Choose another file, or replace this one with save(path, overwrite=True) or"
                    ' the checkbox "Replace an existing file".'
                ),
            )
        try:
            write_experiment(self.experiment, path)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}", field="path") from error
        self.saved_path, self._saved = path, self.experiment
        self._notify()

    def follow_notebook(self) -> None:
        """Adopt what the notebook defines now.

        Names unknown before, and new versions, with a note.
        """
        python, document = self._python, copy.deepcopy(self.document)
        try:
            resolved = self.notebook.resolve(document, _known())
            changed = self.notebook.renewed(document)
        except ExperimentError as error:
            self.notes = [str(error)]
            self._notify()
            return
        if document != self.document:
            self._change(document, f"take {' and '.join([*resolved, *changed])} from the notebook")
            names = " and ".join(changed)
            self.notes = []
            if changed:
                self.notes.append(
                    f"{names} was redefined: the experiment uses the new version, with a new hash."
                )
            self._notify()
        elif python is not None and python.problems:
            again = self._read_python(python.typed)
            if again is not None and not again.problems:
                self._python = again
                self._notify()

    def _keep_kind(self, document: dict[str, Any], path: str) -> None:
        """Keep a range of floats a range of floats if its bounds are whole numbers, and vice
        versa.
        """
        section, _, rest = path.partition(".")
        name, _, bound = rest.rpartition(".")
        domain, search = self.experiment.search.root.get(name), document.get(section)
        if section != "search" or bound not in _BOUNDS or not isinstance(domain, Float | Int):
            return
        written = search.get(name) if isinstance(search, dict) else None
        if isinstance(written, dict) and not written.keys().isdisjoint(_BOUNDS):
            written.setdefault("type", domain.type)

    def _read_python(self, text: str) -> _Text | None:
        return self._read(
            text, "edit Python", lambda typed: read_python(typed, self.notebook.lookup)
        )

    def _read(self, text: str, label: str, reader: Callable[[str], dict[str, Any]]) -> _Text | None:
        if not text.strip():
            return None
        try:
            document = reader(text)
            self.notebook.resolve(document, _known())
            experiment = Experiment(**document)
        except WorkbenchError as error:
            return _Text(text, tuple(_all_of(error)))
        self._change(experiment.model_dump(mode="json"), label)
        return _Text(text)

    def _change(self, document: dict[str, Any], label: str) -> None:
        self.notebook.resolve(document, _known())
        before = self.document
        self._take(document)
        self._forget_texts()
        if self.document != before:
            self._undo = [*self._undo, _Step(before, label)][-_MAX_UNDO:]
            self._redo = []

    def _move(self, source: list[_Step], target: list[_Step]) -> None:
        if source:
            step = source.pop()
            target.append(replace(step, document=self.document))
            self._take(step.document)
            self._forget_texts()
        self._notify()

    def _take(self, document: dict[str, Any]) -> None:
        """Adopt a document, in its shortest form if it is valid."""
        here = self._address is None
        experiment, problems = _check(document, self.notebook.payloads, on_this_machine=here)
        self.problems = [
            self.notebook.explained(problem, document, _known()) for problem in problems
        ]
        if self._address_problem is not None:
            self.problems.append(self._address_problem)
        self.is_experiment = experiment is not None
        if experiment is not None:
            self.experiment = experiment
            document = experiment.model_dump(mode="json")
        self.document = document
        self.revision += 1

    def _forget_texts(self) -> None:
        self._yaml = self._python = None
        self.notes = []

    def _notify(self) -> None:
        for listener in list(self._listeners):
            listener()


def _known() -> dict[str, Any]:
    from workbench.data import DATASETS
    from workbench.models import LOSSES, METRICS, MODELS

    return {"model": MODELS, "data": DATASETS, "loss": LOSSES, "metrics": METRICS}
