from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.services.waiting import wait_until
from workbench.foundation.errors import DataError, ExperimentError, WorkbenchError
from workbench.runs import read_experiment
from workbench.views.widgets import ExperimentForm, experiment_form

Say = Callable[..., None]


class Talk:
    """The view's side: says things, and keeps what it is told."""

    def __init__(self, form: ExperimentForm, patch: pytest.MonkeyPatch) -> None:
        self.form = form
        self.states: list[dict[str, Any]] = []
        self.parts: queue.Queue[dict[str, Any]] = queue.Queue()
        self.frames: queue.Queue[Any] = queue.Queue()
        self._number = 0
        patch.setattr(form, "send", self._take)

    def say(self, kind: str, **content: Any) -> dict[str, Any]:
        self._number += 1
        self.form._on_message(self.form, {"type": kind, "number": self._number, **content}, [])
        return self.states[-1]

    def edit(self, *changes: tuple[str, Any]) -> dict[str, Any]:
        return self.say(
            "edit", changes=[list(change) for change in changes], removals=[], label="edit"
        )

    def ask(self, part: str, **arguments: Any) -> dict[str, Any]:
        self.say("query", topic=part, query=self._number, arguments=arguments)
        while (told := self.parts.get(timeout=240))["status"] == "working":
            pass
        assert told["status"] == "done", told
        return told["result"]

    @property
    def state(self) -> dict[str, Any]:
        return self.states[-1]

    def _take(self, content: dict[str, Any], buffers: Any = None) -> None:
        if buffers:
            self.frames.put(buffers)
        elif content["type"] == "state":
            self.states.append(content)
        else:
            self.parts.put(content)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "form.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(experiment_form, "_VIEW", path)
    return path


@pytest.fixture
def talk(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    form = wb.app(store=str(tmp_path / "store.sqlite"))
    yield Talk(form, monkeypatch)
    form.close()


def test_a_form_says_all_there_is_when_it_is_greeted(talk: Talk) -> None:
    state = talk.say("hello", parts=list(talk.form.parts))
    assert state["answered"] == 1
    assert state["hash"] == talk.form.experiment.hash()
    assert state["document"] == talk.form.experiment.model_dump(mode="json")
    assert {"mlp", "convnet"} <= {model["name"] for model in state["models"]}
    assert talk.form.parts == ["model", "data", "space", "advice", "run", "result"]


def test_what_is_clicked_is_the_experiment_and_can_be_saved_and_opened(
    talk: Talk, tmp_path: Path
) -> None:
    talk.edit(("model", "convnet"), ("search.width", {"choices": [8, 16]}), ("training.epochs", 3))
    state = talk.say("rename", path="search.width", name="width")
    assert state["problems"] == []
    path = tmp_path / "mine.yaml"
    state = talk.say("save", path=str(path), overwrite=False)
    assert state["saved_path"] == str(path)
    assert state["command"] == f"workbench sweep {path}"
    assert talk.parts.get_nowait()["status"] == "done"
    assert read_experiment(path).hash() == state["hash"] == talk.form.experiment.hash()

    talk.say("save", path=str(path), overwrite=False)
    told = talk.parts.get_nowait()
    assert (told["topic"], told["status"]) == ("file", "failed")
    talk.edit(("training.epochs", 5))
    assert talk.say("open", path=str(path))["hash"] == read_experiment(path).hash()


def test_an_experiment_is_assigned_and_saved_in_python_and_the_view_follows(
    talk: Talk, tmp_path: Path
) -> None:
    before = talk.form.experiment
    other = before.replace(model="convnet", training={"epochs": 3})
    talk.form.experiment = other
    assert talk.form.experiment == other
    assert talk.state["hash"] == other.hash()
    assert talk.say("undo")["hash"] == before.hash()

    path = tmp_path / "mine.yaml"
    talk.form.save(path)
    assert talk.state["saved_path"] == str(path)
    with pytest.raises(DataError, match="already exists"):
        talk.form.save(path)
    talk.form.experiment = other.model_dump(mode="json")
    talk.form.save(path, overwrite=True)
    talk.form.experiment = before
    talk.form.experiment = str(path)
    assert talk.form.experiment == other
    for wrong in (None, 5):
        with pytest.raises(
            ExperimentError, match="is not an experiment; allowed: an experiment, the path"
        ):
            talk.form.experiment = wrong  # pyright: ignore[reportAttributeAccessIssue]
    assert talk.form.experiment == other


def test_every_message_is_answered_once_with_its_number(talk: Talk) -> None:
    for kind, content in [
        ("edit", {"changes": [["training.epochs", 2]], "removals": [], "label": "e"}),
        ("remove", {"path": "search.lr"}),
        ("yaml", {"text": "nonsense"}),
        ("python", {"text": "nonsense"}),
        ("undo", {}),
        ("redo", {}),
        ("preset", {"name": "digits"}),
        ("address", {"address": None}),
        ("edit", {"changes": [["a..b", 2]], "removals": [], "label": "e"}),
        ("horse", {}),
        ("edit", {}),
        ("rename", {"path": "x"}),
    ]:
        before = len(talk.states)
        state = talk.say(kind, **content)
        assert len(talk.states) == before + 1
        assert state["answered"] == talk._number


def test_what_cannot_be_done_is_told_once_and_changes_nothing(talk: Talk) -> None:
    before = talk.say("hello", parts=[])
    state = talk.edit(("a..b", 2))
    assert state["problems"][0]["field"] == "a..b"
    assert state["document"] == before["document"]
    assert talk.edit(("training.epochs", 2))["problems"] == []


def test_forms_of_one_draft_stay_in_step(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Talk(wb.widgets.space(talk.form), monkeypatch)
    assert other.form.parts == ["space"]
    other.edit(("training.epochs", 4))
    assert talk.state["document"]["training"] == {"epochs": 4}
    talk.say("undo")
    assert "training" not in other.state["document"]
    other.form.close()
    talk.say("redo")
    assert "training" not in other.state["document"]


@pytest.mark.parametrize("part", ["model", "data", "space", "advice", "run", "result"])
def test_each_part_stands_alone(built: Path, part: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("{model: mlp, data: digits, objectives: [{metric: val_loss, goal: minimize}]}")
    form = getattr(wb.widgets, part)(path)
    assert form.parts == [part]
    assert form.experiment.name == "mine"
    form.close()


def test_a_run_shows_its_experiment_and_is_told_its_frames(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    talk = Talk(wb.widgets.result(run), monkeypatch)
    try:
        assert talk.form.run_id == run.run_id
        assert talk.form.experiment == run.experiment
        talk.say("hello", parts=["result"])
        assert talk.ask("result")["run_id"] == run.run_id
        said = (
            f'{{"type": "subscribe", "number": 1, "subscription": {{"run": "{run.run_id}", "chart":'
            " {}}}"
        )
        talk.form._on_message(talk.form, {"view": "one", "message": said}, [])
        assert talk.frames.get(timeout=120)
    finally:
        talk.form.close()


def test_where_no_widget_is_shown_the_experiment_remains_as_text(talk: Talk) -> None:
    talk.edit(("name", "<b>"))
    forms, _ = talk.form._repr_mimebundle_() or ({}, {})
    assert "name: &lt;b&gt;" in forms["text/html"]


def test_what_is_no_experiment_and_a_missing_front_end_are_errors_in_words(built: Path) -> None:
    with pytest.raises(ExperimentError):
        wb.app({"model": "mlp"})
    built.unlink()
    with pytest.raises(WorkbenchError, match=r"not built.*make front-end"):
        wb.app()


@pytest.fixture
def shell(built: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """The shell of a notebook's kernel, as forms find it."""
    monkeypatch.setenv("IPYTHONDIR", str(built.parent))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = InteractiveShell()
    monkeypatch.setattr(experiment_form, "get_ipython", lambda: shell)
    return shell


def test_a_class_that_is_named_before_its_cell_has_run_is_found_when_it_has(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(wb.app(), monkeypatch)
    try:
        assert "Run its cell first" in talk.edit(("model", "late"))["problems"][0]["next_step"]
        shell.run_cell("def late(config): return 1")
        assert talk.state["problems"] == []
        assert talk.state["document"]["model"].startswith("embedded:late@")
    finally:
        talk.form.close()


def test_a_class_of_a_cell_is_taken_by_its_name_and_followed(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run_cell("def build(config): return 1")
    talk = Talk(wb.app(model=shell.user_ns["build"]), monkeypatch)
    try:
        first = talk.say("hello", parts=[])
        assert first["document"]["model"].startswith("embedded:build@")
        assert "build" in {model["name"] for model in first["models"]}
        shell.run_cell("def build(config): return 2")
        assert talk.state["hash"] not in (None, first["hash"])
        assert "redefined" in talk.state["notes"][0]
    finally:
        talk.form.close()
    num_told = len(talk.states)
    shell.run_cell("def build(config): return 3")
    assert len(talk.states) == num_told


@pytest.mark.slow
@pytest.mark.ray
def test_one_button_starts_the_run_and_what_came_of_it_is_told(
    talk: Talk, ray_head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    talk.edit(("training.epochs", 1), ("budget.trials", 2), ("name", "clicked"))
    assert talk.ask("preflight")["problems"] == []
    run_id = talk.ask("start")["run_id"]
    assert talk.form.run_id == run_id
    run = talk.form.run
    assert run is not None
    assert run.experiment.hash() == talk.state["hash"]
    run.wait(240)
    result = talk.ask("result", run_id=run_id)
    assert result["state"] == "complete"
    assert result["best"]["values"]["val_accuracy"] > 0.3
    assert talk.ask("extend", run_id=run_id, trials=1)["message"]
    talk.form.close()  # the run goes on
    wait_until(lambda: len(run.history.in_state("complete")) == 3, timeout_s=240, every_s=0.2)


@pytest.mark.ray
@pytest.mark.slow
def test_an_advice_is_measured_shown_asked_further_and_applied(
    talk: Talk, ray_head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    talk.edit(("training.epochs", 1), ("search.global_batch", {"choices": [64, 128]}))
    advice = talk.ask("advice", measure=True, time="5s", objective="time")
    assert advice["card"]
    assert {figure["name"] for figure in advice["figures"]} >= {"step_time"}
    assert talk.ask("advice", measure=False)["card"] == advice["card"]

    workers = next(one for one in advice["controls"] if one["path"] == "workers")
    told = talk.ask("what_if", workers=workers["value"], global_batch="auto")
    assert told["samples_per_s"]["value"] > 0

    searched = next(one for one in advice["apply"] if one["path"] == "training.global_batch")
    assert (searched["now"], searched["removals"]) == ("searched", ["search.global_batch"])
    changes = [[change["path"], change["value"]] for change in advice["apply"]]
    removals = [path for change in advice["apply"] for path in change["removals"]]
    state = talk.say("edit", changes=changes, removals=removals, label="Apply the advice")
    assert state["problems"] == []
    assert state["document"]["training"]["global_batch"] == searched["value"]
    assert state["undo_label"] == "Apply the advice"
