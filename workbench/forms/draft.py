"""An experiment under someone's hands: edited by fields, as YAML or as Python, with undo.

There is one truth, the document. A change of a field is taken even where it is wrong, because two changes
may be right together; `problems` says so, and `experiment` stays the last one that was right. A text is taken
as a whole or not at all: one that is wrong stays as it was typed. What a form shows is left to `fields`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.domain import Float, Int
from workbench.errors import DataError, ExperimentError, RunError, WorkbenchError
from workbench.experiment import Experiment
from workbench.experiment.alert_rules import RULES
from workbench.experiment.dotted import remove_at, set_at
from workbench.experiment.yaml_file import read_yaml, write_yaml
from workbench.forms.checking import check
from workbench.forms.notebook import Notebook
from workbench.forms.presets import preset_path
from workbench.forms.python_source import read_python, write_python
from workbench.run.experiment_file import read_experiment, write_experiment
from workbench.workers.jobs import check_address

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
    """A text as somebody typed it, and what is wrong with it."""

    typed: str
    problem: WorkbenchError | None = None


@dataclass(frozen=True)
class _Step:
    """What can be gone back to, and what was done then."""

    document: dict[str, Any]
    label: str


class Draft:
    """An experiment, what is wrong with it, and what led to it; every change tells those who listen."""

    def __init__(
        self, experiment: Experiment | None = None, *, namespace: Mapping[str, Any] | None = None
    ) -> None:
        """Begin with an experiment.

        Args:
            experiment: Where to begin; None for a small one that runs anywhere.
            namespace: Classes and functions that may be named, such as those of a notebook.
        """
        self.notebook = Notebook(namespace)
        self.experiment = Experiment(**_START) if experiment is None else experiment
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
        self._take(self.experiment.model_dump(mode="json"))

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told after every change.

        Args:
            listener: Called without arguments.

        Returns:
            A function that ends it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def yaml(self) -> str:
        """The experiment as YAML, or the text that somebody typed and that is not right yet."""
        return self._yaml.typed if self._yaml is not None else write_yaml(self.document)

    @property
    def yaml_problem(self) -> WorkbenchError | None:
        """What is wrong with the YAML that was typed."""
        return self._yaml and self._yaml.problem

    @property
    def python(self) -> str:
        """The experiment as Python, or the text that somebody typed and that is not right yet."""
        if self._python is not None:
            return self._python.typed
        return write_python(self.document, self.notebook.name_of)

    @property
    def python_problem(self) -> WorkbenchError | None:
        """What is wrong with the Python that was typed."""
        return self._python and self._python.problem

    @property
    def hash(self) -> str | None:
        """The identity of the experiment; None where something is wrong with it."""
        return None if self.problems or not self.is_experiment else self.experiment.hash()

    @property
    def is_saved(self) -> bool:
        """Whether the file at `saved_path` says what the draft says."""
        return self.is_experiment and self.experiment == self._saved

    @property
    def undo_label(self) -> str | None:
        """What `undo` would undo; None where there is nothing."""
        return self._undo[-1].label if self._undo else None

    @property
    def can_redo(self) -> bool:
        """Whether something was undone."""
        return bool(self._redo)

    @property
    def address(self) -> str | None:
        """The cluster that it is meant for; None for this machine."""
        return self._address

    @property
    def right_address(self) -> str | None:
        """The cluster, where its address could be one: what may be shown in a command."""
        return None if self._address_problem else self._address

    @address.setter
    def address(self, address: str | None) -> None:
        self._address, self._address_problem = address, None
        try:
            if address is not None:
                check_address(address)
        except RunError as error:
            self._address_problem = error
        self._take(self.document)
        self._tell()

    def edit(
        self, changes: Sequence[tuple[str, Any]], *, removals: Sequence[str] = (), label: str = "edit"
    ) -> None:
        """Change settings; all of it is one step to undo.

        Args:
            changes: Dotted paths with their new values.
            removals: Dotted paths of what is no longer written; what is not there stays away.
            label: What was done, in a few words.

        Raises:
            ExperimentError: If a path leads nowhere; then nothing is changed.
        """
        document = copy.deepcopy(self.document)
        # From the back, as those of a list move up.
        for path in sorted(removals, key=_places, reverse=True):
            remove_at(document, path)
        for path, value in changes:
            self._keep_kind(document, path)
            set_at(document, path, copy.deepcopy(value))
            _leave_other_kinds(document, path)
        self._change(document, label)
        self._tell()

    def rename(self, path: str, name: str) -> None:
        """Give a searched parameter another name; conditions that name it follow.

        Args:
            path: Where it is, such as `search.lr`.
            name: Its new name.

        Raises:
            ExperimentError: If there is no such parameter, or one of that name already.
        """
        search = self.document.get("search")
        section, _, before = path.partition(".")
        if section != "search" or not isinstance(search, dict) or before not in search:
            raise ExperimentError("there is no such parameter", field=path)
        if name in search:
            if name == before:
                return
            raise ExperimentError(f"there is a parameter {name} already", field=path)
        document = copy.deepcopy(self.document)
        document["search"] = {
            name if key == before else key: _with_renamed_parent(domain, before, name)
            for key, domain in document["search"].items()
        }
        self._change(document, f"rename {before}")
        self._tell()

    def write_yaml(self, text: str) -> None:
        """Take the experiment from YAML, or keep the text and say what is wrong; none gives it up."""
        self._yaml = self._read(text, "edit YAML", read_yaml)
        self._tell()

    def write_python(self, text: str) -> None:
        """Take the experiment from Python; as `write_yaml`."""
        self._python = self._read_python(text)
        self._tell()

    def undo(self) -> None:
        """Take the last change back, where there is one."""
        self._move(self._undo, self._redo)

    def redo(self) -> None:
        """Do again what was undone last, where there is something."""
        self._move(self._redo, self._undo)

    def replace(self, experiment: Experiment, label: str) -> None:
        """Go on with another experiment.

        Args:
            experiment: Which one.
            label: What was done, in a few words.
        """
        self.notebook.keep(experiment)
        self._change(experiment.model_dump(mode="json"), label)
        self._tell()

    def preset(self, name: str) -> None:
        """Go on with an experiment that comes along.

        Raises:
            ExperimentError: If there is none of that name, or it is no experiment.
        """
        self.replace(read_experiment(preset_path(name)), f"begin with {name}")

    def open(self, path: str | Path) -> None:
        """Go on with the experiment of a file.

        Raises:
            ExperimentError: If the file cannot be read or is no experiment.
        """
        path = Path(path).expanduser()
        experiment = read_experiment(path)
        self.saved_path, self._saved = path, experiment
        self.replace(experiment, f"open {path.name}")

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the experiment as a file, and what is embedded in it beside it.

        Args:
            path: The file.
            overwrite: Whether one that is there may be replaced.

        Raises:
            ExperimentError: If something is wrong with the experiment.
            DataError: If the file is there already, or cannot be written.
        """
        if not self.is_experiment:
            raise self.problems[0]
        path = Path(path).expanduser()
        if path.exists() and not overwrite:
            raise DataError(
                f"{path} is there already", field="path",
                next_step="Name another file, or have this one replaced: save(path, overwrite=True), or the "
                'box "replace a file that is there".',
            )  # fmt: skip
        try:
            write_experiment(self.experiment, path)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}", field="path") from error
        self.saved_path, self._saved = path, self.experiment
        self._tell()

    def follow_notebook(self) -> None:
        """Take what the notebook defines by now: names that it did not know, and newer versions, said so."""
        python, document = self._python, copy.deepcopy(self.document)
        try:
            found = self.notebook.resolve(document, _known())
            changed = self.notebook.renewed(document)
        except ExperimentError as error:
            self.notes = [str(error)]
            self._tell()
            return
        if document != self.document:
            self._change(document, f"take {' and '.join([*found, *changed])} from the notebook")
            names = " and ".join(changed)
            told = f"{names} was defined anew: this is a new version, with another hash."
            self.notes = [told] if changed else []
            self._tell()
        elif python is not None and python.problem is not None:
            again = self._read_python(python.typed)
            if again is not None and again.problem is None:
                self._python = again
                self._tell()

    def _keep_kind(self, document: dict[str, Any], path: str) -> None:
        """Let a range of numbers stay one where its bounds are whole, and the other way round."""
        section, _, rest = path.partition(".")
        name, _, bound = rest.rpartition(".")
        domain, search = self.experiment.search.root.get(name), document.get(section)
        if section != "search" or bound not in _BOUNDS or not isinstance(domain, Float | Int):
            return
        written = search.get(name) if isinstance(search, dict) else None
        if isinstance(written, dict) and not written.keys().isdisjoint(_BOUNDS):
            written.setdefault("type", domain.type)

    def _read_python(self, text: str) -> _Text | None:
        return self._read(text, "edit Python", lambda typed: read_python(typed, self.notebook.lookup))

    def _read(self, text: str, label: str, reader: Callable[[str], dict[str, Any]]) -> _Text | None:
        if not text.strip():
            return None
        try:
            document = reader(text)
            self.notebook.resolve(document, _known())
            experiment = Experiment(**document)
        except WorkbenchError as error:
            return _Text(text, error)
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
        self._tell()

    def _take(self, document: dict[str, Any]) -> None:
        """Make a document the truth, in its shortest form where it is an experiment."""
        here = self._address is None
        found, problems = check(document, self.notebook.payloads, on_this_machine=here)
        self.problems = [self.notebook.explained(problem, document, _known()) for problem in problems]
        self.problems += [] if self._address_problem is None else [self._address_problem]
        self.is_experiment = found is not None
        if found is not None:
            self.experiment = found
        self.document = document if found is None else found.model_dump(mode="json")
        self.revision += 1

    def _forget_texts(self) -> None:
        self._yaml = self._python = None
        self.notes = []

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _leave_other_kinds(document: dict[str, Any], path: str) -> None:
    """Leave what a rule says that its new kind knows nothing of."""
    match path.split("."):
        case ["alerts", place, "on"] if isinstance(document["alerts"], list):
            rule = document["alerts"][int(place)]
            kind = RULES.get(rule["on"]) if isinstance(rule["on"], str) else None
            for key in rule.keys() - (kind.model_fields.keys() if kind else rule.keys()):
                del rule[key]


def _known() -> dict[str, Any]:
    from workbench.data import DATASETS
    from workbench.models import LOSSES, METRICS, MODELS

    return {"model": MODELS, "data": DATASETS, "loss": LOSSES, "metrics": METRICS}


def _with_renamed_parent(domain: Any, before: str, after: str) -> Any:
    when = domain.get("when") if isinstance(domain, dict) else None
    if not isinstance(when, dict) or before not in when:
        return domain
    return {**domain, "when": {after if key == before else key: value for key, value in when.items()}}


def _places(path: str) -> list[tuple[int, str]]:
    """Return what paths are sorted by so that places in a list come by number."""
    return [(int(key) if key.isdecimal() and len(key) < 10 else -1, key) for key in path.split(".")]
