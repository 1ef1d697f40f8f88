"""An experiment as a form in a notebook: the kernel holds it, the view draws what the kernel says.

What is in the form is made in `workbench.forms`; here it travels. The other side of the protocol, with the
shape of each message, is `extensions/src/forms/protocol.ts`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from workbench.errors import ExperimentError, WorkbenchError
from workbench.experiment import Experiment
from workbench.forms import Draft
from workbench.forms.answers import Desk
from workbench.forms.questions import Questions
from workbench.forms.state import state_of
from workbench.run import Run, attach, read_experiment
from workbench.store import Store
from workbench.widgets.live_view import Senders, read_view

PARTS = ("model", "data", "space", "advice", "run", "result")
_VIEW = Path(__file__).parent / "static" / "form.js"
_CELL_HAS_RUN = "post_run_cell"

Given: TypeAlias = "Experiment | str | Path | Mapping[str, Any] | Run | ExperimentForm | None"


class ExperimentForm(anywidget.AnyWidget):
    """A form, or a part of it; `experiment` is what it says now, `run` what it started last."""

    _esm = traitlets.Unicode().tag(sync=True)
    parts = traitlets.List(traitlets.Unicode(), help="What is shown of it.").tag(sync=True)
    run_id = traitlets.Unicode("", help="The run that was started last.").tag(sync=True)
    # Here, as a widget that could not be made is closed all the same.
    _ends: tuple[Callable[[], None], ...] = ()

    def __init__(
        self, draft: Draft, parts: tuple[str, ...], *, run: Run | None, store: Store | str | None
    ) -> None:
        """Show a draft; `app` and its parts are the usual ways.

        Args:
            draft: What is edited; several forms may show the same.
            parts: Which parts are shown.
            run: A run of it that there is already.
            store: Where runs are kept; None for the usual store.

        Raises:
            WorkbenchError: If the front end was not built.
        """
        super().__init__(_esm=read_view(_VIEW), parts=list(parts), run_id="" if run is None else run.run_id)
        self.draft = draft
        self._desk = Desk(draft, store, run_id=self.run_id)
        self._questions = Questions(self._desk, self._tell_part)
        self._answered = 0
        self._refused: WorkbenchError | None = None
        self._has_told = False
        self._senders = Senders(lambda content, frame: self.send(content, buffers=[frame]))
        self._ends = (
            draft.listen(self._tell_state), self._questions.end, follow_cells(draft), self._senders.end
        )  # fmt: skip
        self.on_msg(self._hear)

    @property
    def experiment(self) -> Experiment:
        """What the form says; while something in it is wrong, what it said last before.

        An experiment, a mapping of its fields, a file or a run that is assigned is shown, and can be undone.
        """
        return self.draft.experiment

    @experiment.setter
    def experiment(self, given: Experiment | str | Path | Mapping[str, Any] | Run) -> None:
        self.draft.replace(_experiment_of(given), "assign in Python")

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the experiment as a file, as the button does.

        Args:
            path: The file.
            overwrite: Whether one that is there may be replaced.

        Raises:
            ExperimentError: If something is wrong with the experiment.
            DataError: If the file is there already, or cannot be written.
        """
        self.draft.save(path, overwrite=overwrite)

    @property
    def run(self) -> Run | None:
        """The run that was started last; None before."""
        return attach(self.run_id, store=self._desk.opened()) if self.run_id else None

    def close(self) -> None:
        """Say nothing any more, and remove the view; what was started goes on."""
        for end in self._ends:
            end()
        self._ends = ()
        super().close()

    def _hear(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if isinstance(content.get("view"), str):
            run = self.run
            if run is not None:
                self._senders.hear(lambda: run, content)
            return
        number = content.get("number")
        self._answered = number if isinstance(number, int) else self._answered
        self._refused, self._has_told = None, False
        try:
            self._do(content)
        except WorkbenchError as error:
            self._refused = error
            if content.get("type") in ("open", "save", "preset"):
                self._tell_file(status="failed", problem=error.to_json())
                self._refused = None
        except (KeyError, TypeError, ValueError) as error:
            self._refused = ExperimentError(f"is no message of the form: {error}", field="message")
        if not self._has_told or self._refused is not None:
            self._tell_state()

    def _do(self, said: dict[str, Any]) -> None:
        """Do what a person asked for.

        Raises:
            WorkbenchError: If it cannot be done.
            KeyError, TypeError, ValueError: If it is no message of the protocol.
        """
        draft = self.draft
        match said.get("type"):
            case "hello":
                self._tell_state()
                for message in self._questions.told():
                    self.send(message)
            case "edit":
                changes = [(str(path), value) for path, value in said["changes"]]
                draft.edit(changes, removals=said.get("removals", []), label=str(said["label"]))
            case "remove":
                draft.edit([], removals=[str(said["path"])], label=f"remove {said['path']}")
            case "rename":
                draft.rename(str(said["path"]), str(said["name"]))
            case "yaml":
                draft.write_yaml(str(said["text"]))
            case "python":
                draft.write_python(str(said["text"]))
            case "undo":
                draft.undo()
            case "redo":
                draft.redo()
            case "address":
                draft.address = None if said["address"] is None else str(said["address"])
            case "preset":
                draft.preset(str(said["name"]))
                self._tell_file(status="done", picture={"words": f"This is {said['name']}."})
            case "open":
                draft.open(str(said["path"]))
                self._tell_file(status="done", picture={"words": f"Opened {said['path']}."})
            case "save":
                draft.save(str(said["path"]), overwrite=said.get("overwrite") is True)
                self._tell_file(status="done", picture={"words": f"Saved as {said['path']}."})
            case "ask":
                self._has_told = True  # what is asked changes nothing
                self._questions.ask(str(said["part"]), int(said["question"]), dict(said["arguments"]))
            case other:
                raise ValueError(f"{other!r}")

    def _tell_state(self) -> None:
        self._has_told = True
        state = state_of(self.draft)
        if self._refused is not None:
            state["problems"] = [self._refused.to_json(), *state["problems"]]
        self.send({"type": "state", "answered": self._answered, **state})

    def _tell_part(self, message: dict[str, Any]) -> None:
        if message["name"] == "start" and message["status"] == "done":
            self.run_id = message["picture"]["run_id"]
        self.send(message)

    def _tell_file(self, **content: Any) -> None:
        self.send({"type": "part", "name": "file", "question": self._answered, **content})

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # What remains where no widgets are shown: on a web site, after a restart of the kernel.
            bundle[0]["text/html"] = f"<pre>{html.escape(self.draft.yaml)}</pre>"
        return bundle


def follow_cells(draft: Draft) -> Callable[[], None]:
    """Let a draft look, after each cell, whether the notebook defines something anew.

    Args:
        draft: What may name classes and functions of the notebook.

    Returns:
        A function that ends it.
    """
    shell = get_ipython()
    if shell is None:
        return lambda: None

    def look(*_: Any) -> None:
        draft.follow_notebook()

    shell.events.register(_CELL_HAS_RUN, look)
    return lambda: shell.events.unregister(_CELL_HAS_RUN, look)


def app(
    experiment: Given = None, *, model: Any = None, data: Any = None, store: Store | str | None = None
) -> ExperimentForm:
    """Define, advise, run and watch an experiment in a notebook.

    Args:
        experiment: Where to begin: an experiment, the path of its file, a mapping of its fields, a run, or
            another form, whose experiment is then shared; None for a small one that runs anywhere.
        model: In place of its model: a name, or a class or function, also one of a cell.
        data: In place of its data, likewise.
        store: Where runs are kept; None for what WORKBENCH_STORE names, or else the user's own store.

    Raises:
        ExperimentError: If it is no experiment.
        WorkbenchError: If the front end was not built.
    """
    return form(experiment, PARTS, model=model, data=data, store=store)


def form(
    given: Given, parts: tuple[str, ...], *, model: Any = None, data: Any = None,
    store: Store | str | None = None,
) -> ExperimentForm:  # fmt: skip
    """Show some parts of a form; arguments as in `app`."""
    run = given if isinstance(given, Run) else given.run if isinstance(given, ExperimentForm) else None
    if isinstance(given, ExperimentForm):
        draft, store = given.draft, store or given._desk.store
    else:
        shell = get_ipython()
        begin = None if given is None else _experiment_of(given)
        draft = Draft(begin, namespace=None if shell is None else shell.user_ns)
        store = store or (run.store if run is not None else None)
    replaced = {name: target for name, target in (("model", model), ("data", data)) if target is not None}
    if replaced:
        named = [(name, draft.notebook.take(target, field=name) if callable(target) else target)
                 for name, target in replaced.items()]  # fmt: skip
        draft.edit(named, label=f"use {' and '.join(replaced)}")
    return ExperimentForm(draft, parts, run=run, store=store)


def _experiment_of(given: Experiment | str | Path | Mapping[str, Any] | Run) -> Experiment:
    if isinstance(given, Experiment):
        return given
    if isinstance(given, Run):
        return given.experiment
    if isinstance(given, str | Path):
        return read_experiment(given)
    if not isinstance(given, Mapping):
        raise ExperimentError(
            f"an object of type {type(given).__name__} is no experiment",
            field="experiment",
            allowed="an experiment, the path of its file, a mapping of its fields, or a run",
        )
    return Experiment(**given)
