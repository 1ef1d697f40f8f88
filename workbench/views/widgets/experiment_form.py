"""An experiment as a form in a notebook, whole or in parts.

The kernel holds it, the view shows the state the kernel sends. Each part accepts what `app` does,
such as a form to share. The content of the form is made in `workbench.views.forms`, which also
defines the protocol. This module transports it, and answers queries that take a while in threads.
"""

from __future__ import annotations

import contextlib
import html
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError, RunError, WorkbenchError
from workbench.runs import Run, attach, read_experiment
from workbench.runs.cell_outputs import Look, RunAgain, show
from workbench.runs.notebook_output import snapshot
from workbench.runs.run import open_store
from workbench.store.database import Store
from workbench.views.forms import Draft
from workbench.views.forms.answers import QueryContext, answer
from workbench.views.forms.fields import state_of
from workbench.views.forms.kept_draft import KeptDraft, key_of
from workbench.views.forms.protocol import (
    Answer,
    Edit,
    Hello,
    History,
    OpenFile,
    Preset,
    Query,
    Remove,
    Rename,
    Request,
    SaveFile,
    SetAddress,
    Topic,
    WriteText,
    read_request,
    to_message,
)
from workbench.views.forms.results import Confirmation
from workbench.views.widgets.live_view import Senders, read_view, widget_forms

PARTS = ("model", "data", "space", "advice", "run", "result")
_VIEW = Path(__file__).parent / "static" / "form.js"
FORM_MIME_TYPE = "application/vnd.workbench.form+json"
_CELL_HAS_RUN = "post_run_cell"
_FILE_REQUESTS = ("open", "save", "preset")

Given: TypeAlias = "Experiment | str | Path | Mapping[str, Any] | Run | ExperimentForm | None"


class ExperimentForm(anywidget.AnyWidget):
    """A form, or a part of one.

    `experiment` is its current content, `run` the run it started last.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    parts = traitlets.List(traitlets.Unicode(), help="The parts to show.").tag(sync=True)
    run_id = traitlets.Unicode("", help="The run that was started last.").tag(sync=True)
    # A class attribute, because a widget is closed even if its construction failed.
    _ends: tuple[Callable[[], None], ...] = ()

    def __init__(
        self,
        draft: Draft,
        parts: tuple[str, ...],
        *,
        run: Run | None,
        store: Store | str | None,
        keeper: KeptDraft | None = None,
    ) -> None:
        """Show a draft. You rarely need this: use `app` and its parts.

        Args:
            draft: The draft to edit. Several forms may share one.
            parts: The parts to show.
            run: An existing run of the experiment.
            store: Where runs are kept, or None for the default store.
            keeper: Keeps the draft, or None if nobody does or another form does.

        Raises:
            WorkbenchError: If the front end is not built.
        """
        run_id = ""
        if keeper is not None:
            run_id = keeper.run_id
        if run is not None:
            run_id = run.run_id
        super().__init__(_esm=read_view(_VIEW), parts=list(parts), run_id=run_id)
        self.draft = draft
        self._context = QueryContext(draft, store, run_id=self.run_id)
        self._queries = Queries(self._context, self._send_answer)
        self._answered = 0
        self._refusal: WorkbenchError | None = None
        self._has_sent_state = False
        self._senders = Senders(lambda content, frame: self.send(content, buffers=[frame]))
        self._keeper = keeper
        self._ends = (
            draft.listen(self._send_state),
            self._queries.close,
            follow_cells(draft),
            self._senders.close,
            *([] if keeper is None else [keeper.close]),
        )
        self.on_msg(self._on_message)

    @property
    def experiment(self) -> Experiment:
        """The experiment of the form. While the form is invalid, the last valid one.

        Assign an experiment, a mapping of its fields, the path of its file or a run to show it.
        This can be undone.
        """
        return self.draft.experiment

    @experiment.setter
    def experiment(self, given: Experiment | str | Path | Mapping[str, Any] | Run) -> None:
        self.draft.replace(_experiment_of(given), "assign in Python")

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the experiment to a file, as the Save button does.

        Args:
            path: The file.
            overwrite: Whether an existing file may be replaced.

        Raises:
            ExperimentError: If the experiment is invalid.
            DataError: If the file already exists, or cannot be written.
        """
        self.draft.save(path, overwrite=overwrite)

    @property
    def run(self) -> Run | None:
        """The run that was started last, or None if there is none."""
        if not self.run_id:
            return None
        return attach(self.run_id, store=self._context.open_store())

    def close(self) -> None:
        """Stop sending, and remove the view. A run that was started continues."""
        for end in self._ends:
            end()
        self._ends = ()
        super().close()

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if isinstance(content.get("view"), str):
            run = self.run
            if run is not None:
                self._senders.receive(lambda: run, content)
            return
        number = content.get("number")
        if isinstance(number, int):
            self._answered = number
        self._refusal = None
        self._has_sent_state = False
        try:
            self._handle(read_request(content))
        except WorkbenchError as error:
            if content.get("type") in _FILE_REQUESTS:
                self._send_file_answer(status="failed", problem=error.to_problem())
            else:
                self._refusal = error
        if not self._has_sent_state or self._refusal is not None:
            self._send_state()

    def _handle(self, request: Request) -> None:
        """Do what the user requested.

        Raises:
            WorkbenchError: If it cannot be done.
        """
        draft = self.draft
        match request:
            case Hello():
                self._send_state()
                for answer in self._queries.latest():
                    self.send(to_message(answer))
            case Query():
                self._has_sent_state = True  # a query changes nothing
                self._queries.submit(request.topic, request.query, request.arguments)
            case Preset():
                draft.preset(request.name)
                self._confirm_file(f"Started from {request.name}.")
            case OpenFile():
                draft.open(request.path)
                self._confirm_file(f"Opened {request.path}.")
            case SaveFile():
                draft.save(request.path, overwrite=request.overwrite)
                self._confirm_file(f"Saved as {request.path}.")
            case _:
                _edit(draft, request)

    def _send_state(self) -> None:
        self._has_sent_state = True
        self.send(to_message(state_of(self.draft, answered=self._answered, refusal=self._refusal)))

    def _send_answer(self, answer: Answer) -> None:
        if answer.topic == "start" and answer.status == "done":
            self.run_id = answer.result["run_id"]
            if self._keeper is not None:
                self._keeper.keep_run(self.run_id)
        self.send(to_message(answer))

    def _confirm_file(self, message: str) -> None:
        self._send_file_answer(status="done", result=Confirmation(message=message).model_dump())

    def _send_file_answer(self, **content: Any) -> None:
        self.send(to_message(Answer(topic="file", query=self._answered, **content)))

    def _ipython_display_(self) -> None:
        picture = _FormPicture(self)
        if not show(picture.draw(), picture.draw, picture.look):
            raise NotImplementedError  # IPython then takes the forms below

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            # Shown where widgets are unavailable: on a web site, or after a restart of the kernel.
            bundle[0]["text/html"] = _FormPicture(self).page()
            if self._keeper is not None:
                bundle[0][FORM_MIME_TYPE] = {"draft": self._keeper.key}
        return bundle


class _FormPicture:
    """A form without widgets, as a thread draws it: its YAML, its last run and its last advice."""

    def __init__(self, form: ExperimentForm) -> None:
        self._form = form
        self._runs: dict[str, RunAgain] = {}

    def draw(self) -> dict[str, Any]:
        """Return the forms of the output."""
        return widget_forms(self._form, self.page())

    def page(self) -> str:
        """Return what a saved notebook shows."""
        parts = [f"<pre>{html.escape(self._form.draft.yaml)}</pre>"]
        for run_id in self._run_ids():
            with contextlib.suppress(WorkbenchError):  # it was deleted, or the store is away
                parts.append(snapshot(self._again(run_id).run))
        return "".join(parts)

    def look(self) -> Look:
        """Return the edit and the states of the runs that are drawn, and whether it is closed."""
        states: list[Hashable] = [self._form.draft.revision]
        for run_id in self._run_ids():
            with contextlib.suppress(WorkbenchError):
                states.append((run_id, self._again(run_id).look()))
        return Look(tuple(states), self._form.comm is None)

    def _run_ids(self) -> list[str]:
        shown = (self._form.run_id, self._form._context.advice_id)
        return [run_id for run_id in shown if run_id]

    def _again(self, run_id: str) -> RunAgain:
        if run_id not in self._runs:
            run = attach(run_id, store=self._form._context.open_store())
            self._runs = {**self._runs, run_id: RunAgain(run.stored)}
        return self._runs[run_id]


def _edit(draft: Draft, request: Edit | Remove | Rename | WriteText | History | SetAddress) -> None:
    """Change a draft as the user requested. Errors: as of the methods of the draft."""
    match request:
        case Edit():
            draft.edit(request.changes, removals=request.removals, label=request.label)
        case Remove():
            draft.edit([], removals=[request.path], label=f"remove {request.path}")
        case Rename():
            draft.rename(request.path, request.name)
        case WriteText(type="yaml"):
            draft.write_yaml(request.text)
        case WriteText():
            draft.write_python(request.text)
        case History(type="undo"):
            draft.undo()
        case History():
            draft.redo()
        case SetAddress():
            draft.address = request.address


def follow_cells(draft: Draft) -> Callable[[], None]:
    """Update a draft after each cell, in case the cell redefines something it uses.

    Args:
        draft: A draft that may use classes and functions of the notebook.

    Returns:
        A function that stops this.
    """
    shell = get_ipython()
    if shell is None:
        return lambda: None

    def on_cell(*_: Any) -> None:
        draft.follow_notebook()

    shell.events.register(_CELL_HAS_RUN, on_cell)
    return lambda: shell.events.unregister(_CELL_HAS_RUN, on_cell)


def app(
    experiment: Given = None,
    *,
    model: Any = None,
    data: Any = None,
    store: Store | str | None = None,
) -> ExperimentForm:
    """Define, advise, run and watch an experiment in a notebook.

    Args:
        experiment: An experiment, the path of its file, a mapping of its fields, a run, or another
            form, whose draft is then shared. None for a small experiment that runs anywhere.
        model: Replaces its model: a name, or a class or function, including one of a cell.
        data: Replaces its data, in the same way.
        store: The store of runs. None for WORKBENCH_STORE, or else the user's own.

    Raises:
        ExperimentError: If it is not a valid experiment.
        WorkbenchError: If the front end is not built.

    Example:
        >>> form = wb.app(experiment)
        >>> form.experiment == experiment
        True
    """
    return form(experiment, PARTS, model=model, data=data, store=store)


def model(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and inspect the model of an experiment. Arguments as in `app`."""
    return form(experiment, ("model",), store=store)


def data(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Choose and inspect the data of an experiment. Arguments as in `app`."""
    return form(experiment, ("data",), store=store)


def space(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Edit the search space of an experiment. Arguments as in `app`."""
    return form(experiment, ("space",), store=store)


def advice(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Ask the advisor about an experiment. Arguments as in `app`."""
    return form(experiment, ("advice",), store=store)


def run(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Run an experiment and watch it. Arguments as in `app`."""
    return form(experiment, ("run",), store=store)


def result(experiment: Given = None, *, store: Store | str | None = None) -> ExperimentForm:
    """Show the result of a run, and continue from there. Arguments as in `app`."""
    return form(experiment, ("result",), store=store)


def form(
    given: Given,
    parts: tuple[str, ...],
    *,
    model: Any = None,
    data: Any = None,
    store: Store | str | None = None,
) -> ExperimentForm:
    """Show some parts of a form. Arguments as in `app`."""
    if isinstance(given, ExperimentForm):
        run, draft, store = given.run, given.draft, store or given._context.store
    else:
        run = given if isinstance(given, Run) else None
        shell = get_ipython()
        begin = None if given is None else _experiment_of(given)
        draft = Draft(begin, namespace=None if shell is None else shell.user_ns)
        store = store or (run.store if run is not None else None)
    replaced = {
        name: target for name, target in (("model", model), ("data", data)) if target is not None
    }
    if replaced:
        named = [
            (name, draft.notebook.take(target, field=name) if callable(target) else target)
            for name, target in replaced.items()
        ]
        draft.edit(named, label=f"use {' and '.join(replaced)}")
    keeper = None if isinstance(given, ExperimentForm) else _keeper_of(draft, parts, store)
    return ExperimentForm(draft, parts, run=run, store=store, keeper=keeper)


def _keeper_of(draft: Draft, parts: tuple[str, ...], store: Store | str | None) -> KeptDraft | None:
    """Keep the draft of a cell for its next execution.

    None outside notebooks, or without a store.
    """
    shell: Any = get_ipython()
    metadata = shell.get_parent().get("metadata", {}) if hasattr(shell, "get_parent") else {}
    notebook, cell = os.environ.get("JPY_SESSION_NAME"), metadata.get("cellId")
    if not notebook or not cell:  # it is executed by a program
        return None
    try:
        return KeptDraft(draft, open_store(store), key_of(notebook, str(cell), *parts))
    except WorkbenchError:  # starting a run reports what is wrong with the store
        return None


def _experiment_of(given: Experiment | str | Path | Mapping[str, Any] | Run) -> Experiment:
    if isinstance(given, Experiment):
        return given
    if isinstance(given, Run):
        return given.experiment
    if isinstance(given, str | Path):
        return read_experiment(given)
    if not isinstance(given, Mapping):
        raise ExperimentError(
            f"an object of type {type(given).__name__} is not an experiment",
            field="experiment",
            allowed="an experiment, the path of its file, a mapping of its fields, or a run",
        )
    return Experiment(**given)


class Queries:
    """Accepts queries, and sends their answers from other threads."""

    def __init__(self, context: QueryContext, send: Callable[[Answer], None]) -> None:
        """Start to answer.

        Args:
            context: The data from which answers are computed.
            send: Receives each answer. Called from any thread, one at a time for each topic.
        """
        self._context = context
        self._send = send
        self._num_queries: dict[str, int] = defaultdict(int)
        self._highest: dict[str, int] = defaultdict(int)
        self._latest: dict[str, Answer] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._is_closed = False

    def submit(self, topic: Topic, query: int, arguments: Mapping[str, Any]) -> None:
        """Answer a query soon. An older one of the same topic, or its answer, is dropped.

        Args:
            topic: The topic.
            query: The number of the answer, unless a higher one was submitted before: several views
                of a widget share the answers, and each waits for its own number or a higher one.
            arguments: The arguments by name.
        """
        self._highest[topic] = max(self._highest[topic], query)
        self._num_queries[topic] += 1
        threading.Thread(
            target=self._answer,
            args=(topic, self._num_queries[topic], arguments, self._locks[topic]),
            name=f"workbench-{topic}",
            daemon=True,
        ).start()

    def latest(self) -> list[Answer]:
        """Return the latest answer of each topic."""
        return list(self._latest.values())

    def close(self) -> None:
        """Send no more answers."""
        self._is_closed = True

    def _answer(
        self, topic: Topic, place: int, arguments: Mapping[str, Any], lock: threading.Lock
    ) -> None:
        # One at a time: while the user types, all but the newest query are dropped here.
        with lock:
            if not self._is_newest(topic, place):
                return

            def send(**content: Any) -> None:
                if self._is_newest(topic, place):
                    sent = Answer(topic=topic, query=self._highest[topic], **content)
                    self._latest[topic] = sent
                    self._send(sent)

            try:
                result = answer(
                    self._context,
                    topic,
                    arguments,
                    lambda text: send(status="working", progress=text),
                )
            except WorkbenchError as error:
                send(status="failed", problem=error.to_problem())
            except Exception as error:  # the form waits for an answer, whatever happened
                defect = RunError(
                    f"{type(error).__name__}: {error}", next_step="This is a bug: please report it."
                )
                send(status="failed", problem=defect.to_problem())
            else:
                send(status="done", result=result.model_dump())

    def _is_newest(self, topic: str, place: int) -> bool:
        return not self._is_closed and self._num_queries[topic] == place
