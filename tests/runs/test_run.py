from __future__ import annotations

import html
import math
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from tests.services.postgresql import Server
from workbench.foundation.errors import (
    ArgumentError,
    RunError,
    RunNotFoundError,
    StoreUnavailableError,
    UnknownNameError,
)
from workbench.foundation.events import to_json
from workbench.runs import Run
from workbench.store.database import Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store.sqlite")


@pytest.fixture
def run(tmp_path: Path, url: str) -> Run:
    return wb.attach(record_run(tmp_path), store=url)


def test_an_attached_run_knows_what_it_has_come_to(run: Run) -> None:
    assert (run.name, run.state, run.finished) == ("digits-small", "complete", True)
    assert run.best is not None
    assert (run.best.number, run.best.values, run.best.params) == (
        1,
        {"val_accuracy": 0.95},
        {"lr": 0.1, "width": 8},
    )
    assert run.experiment == wb.Experiment(**EXPERIMENT)


def test_attach_takes_a_beginning_the_newest_and_refuses_the_unknown(
    tmp_path: Path, url: str
) -> None:
    first, second = record_run(tmp_path, name="alpha"), record_run(tmp_path, name="beta")

    assert wb.attach("alpha", store=url).run_id == first
    assert wb.attach(store=url).run_id == second
    with pytest.raises(RunNotFoundError, match=first):
        wb.attach(first[:-1] + "?", store=url)


def test_trials_are_a_table_with_one_row_each(run: Run) -> None:
    table = run.trials

    assert list(table.columns[:6]) == ["number", "state", "reason", "lr", "width", "val_accuracy"]
    assert table["state"].tolist() == ["complete", "complete", "pruned", "failed", "failed"]
    assert table["lr"].tolist() == [0.01, 0.1, 0.01, 0.01, 0.01]
    assert table["val_accuracy"].tolist()[:4] == [0.91, 0.95, 0.5, 0.9]
    assert math.isnan(table["val_accuracy"].tolist()[4])
    assert table["duration_s"][0] == pytest.approx(2.9)
    assert table["step"].tolist() == [40] * 5


def test_a_table_before_the_first_trial_has_its_columns(url: str) -> None:
    with Store.open(url) as store:
        run = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        assert len(run.trials) == 0
        assert {"number", "lr", "width", "val_accuracy"} <= set(run.trials.columns)


def test_a_metric_named_like_a_parameter_gets_a_column_of_its_own(tmp_path: Path, url: str) -> None:
    search = {**EXPERIMENT["search"], "state": 3}
    with Store.open(url) as store:
        fields = {**EXPERIMENT, "train": "package.module:function", "model": None, "data": None}
        objectives = [{"metric": "lr", "goal": "minimize"}]
        experiment = wb.Experiment(**{**fields, "search": search, "objectives": objectives})
        run = Run(store, store.create_run(experiment))
        proposed, *course, ended = trial_events(0, at_s=0)
        proposed = proposed.model_copy(update={"params": {"lr": 0.5, "width": 8, "state": 3}})
        ended = ended.model_copy(update={"values": {"lr": 0.25}})
        append(store, run.run_id, [*begin(), proposed, *course, ended])
        table = run.trials

    assert (table["state"][0], table["params.state"][0]) == ("complete", 3)
    assert (table["params.lr"][0], table["values.lr"][0]) == (0.5, 0.25)


def test_properties_see_what_was_written_since(url: str) -> None:
    with Store.open(url) as store:
        run = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        assert (run.state, run.best, len(run.events())) == ("waiting", None, 0)
        with store.writer(
            run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
        ) as writer:
            writer.append(*begin(), *trial_events(0, at_s=0, accuracy=0.6))
            assert run.best is not None
            assert run.best.number == 0
            writer.append(*trial_events(1, at_s=1, accuracy=0.7))
            assert run.best.number == 1
            assert len(run.events(after=2)) == len(run.events()) - 2


def test_waiting_ends_with_the_run_or_the_patience(url: str) -> None:
    with Store.open(url) as store:
        run = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        assert run.wait(timeout_s=0.3) is run
        assert run.state == "waiting"
        with store.writer(
            run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
        ) as writer:
            writer.append(*begin())
            timer = threading.Timer(0.4, lambda: writer.append(*finish(1)))
            timer.start()
            assert run.wait(timeout_s=120).state == "complete"
            timer.join()


def test_waiting_goes_on_while_the_store_is_away_as_long_as_there_is_patience(
    postgresql: Server, postgresql_url: str
) -> None:
    with Store.open(postgresql_url) as store:
        run = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        seen: list[str] = []
        waiting = threading.Thread(target=lambda: seen.append(run.wait().state))
        with postgresql.away():
            waiting.start()
            with pytest.raises(StoreUnavailableError):
                run.wait(timeout_s=0.6)
        append(store, run.run_id, [*begin(), *finish(1)])
        waiting.join(120)
    assert seen == ["complete"]


def test_waiting_for_a_run_that_fails_raises_its_message(url: str) -> None:
    with Store.open(url) as store:
        run = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        failed = finish(1, "failed", "error")[0].model_copy(update={"message": "no such cluster"})
        append(store, run.run_id, [*begin(), failed])
        with pytest.raises(RunError, match=f"no such cluster.*{run.run_id}.*resume"):
            run.wait()


def test_following_yields_events_to_the_end(run: Run) -> None:
    followed = list(run.follow())

    assert [to_json(event) for event in followed] == [to_json(event) for event in run.events()]
    assert followed[-1].type == "run_state_changed"


def test_a_finished_run_is_neither_stopped_nor_fed_nor_resumed(run: Run) -> None:
    for ask in (run.stop, lambda: run.enqueue({"lr": 0.1, "width": 8}), run.resume):
        with pytest.raises(RunError, match="complete"):
            ask()
    assert run.store.commands(run.run_id) == []


def test_a_trial_that_has_ended_is_not_stopped(tmp_path: Path, url: str) -> None:
    run = wb.attach(record_run(tmp_path, ended=False), store=url)

    with pytest.raises(RunError, match="trial 2 cannot be stopped: it is already pruned"):
        run.stop(trial=2)
    with pytest.raises(ArgumentError, match="the run has no trial 99"):
        run.stop(trial=99)


@pytest.mark.parametrize(
    "name", ["convergence", "throughput", "parallel", "slice", "importance", "timeline"]
)
def test_every_figure_can_be_had_by_name_and_leaves_a_picture_in_a_notebook(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import plotly.graph_objects as go
    import plotly.io

    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype")
    figure = run.figure(name)

    assert isinstance(figure, go.Figure)
    forms: Any = figure._repr_mimebundle_()
    assert "application/vnd.plotly.v1+json" in forms
    assert forms["text/html"].startswith('<img alt="')
    figure.add_pie(values=[1])
    changed: Any = figure._repr_mimebundle_()
    assert "<img" not in changed.get("text/html", ""), "only plotly can draw what was added"


@pytest.mark.parametrize("name", ["slice", "importance"])
def test_a_figure_of_some_trials_needs_not_the_first(run: Run, name: str) -> None:
    figure = run.figure(name, trials=[1])

    assert type(figure).__mro__[1].__module__.startswith("plotly.")


def test_an_unknown_figure_lists_those_there_are(run: Run) -> None:
    with pytest.raises(
        UnknownNameError, match=r"'convergense'.*parallel.*Did you mean convergence\?"
    ):
        run.figure("convergense")


def test_the_report_is_one_whole_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    usual, chosen = run.report(), run.report(tmp_path / "deep" / "report.html")

    assert usual == run.folder / "report.html"
    assert chosen.read_text().startswith("<!DOCTYPE html>")
    assert "digits-small" in chosen.read_text()
    assert [path.name for path in chosen.parent.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_written_is_an_error_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()

    with pytest.raises(RunError, match="cannot write"):
        run.report(tmp_path / "report.html")
    with pytest.raises(ArgumentError, match="does not exist"):
        run.report(tmp_path / "absent" / "report.html")


def test_the_notebook_face_escapes_what_people_wrote(tmp_path: Path, url: str) -> None:
    name = "<script>alert(1)<script>"
    search = {**EXPERIMENT["search"], "width": {"choices": [8, name]}}
    with Store.open(url) as store:
        run = Run(
            store, store.create_run(wb.Experiment(**{**EXPERIMENT, "name": name, "search": search}))
        )
        append(store, run.run_id, [*begin(), *trial_events(0, at_s=0, width=name)])  # pyright: ignore
        shown = run._repr_html_() or ""

    assert html.escape(name) in shown
    assert "<script" not in shown
    assert "trial 0: val_accuracy = 0.9" in shown


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys; before = len(sys.modules); import workbench; print(len(sys.modules) - before,"
        " [name for name in ('torch', 'ray', 'optuna', 'plotly', 'pandas', 'sqlalchemy',"
        " 'pydantic', 'numpy') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    num_modules, _, loaded = done.stdout.strip().partition(" ")
    assert loaded == "[]"
    assert int(num_modules) < 60, "half of them are those of the standard library"


def test_public_names_are_sorted_complete_and_exist() -> None:
    assert wb.__all__ == sorted(wb.__all__)
    assert set(wb.__all__) - {"__version__", "widgets"} == set(wb._HOME_OF)
    for name in wb.__all__:
        assert getattr(wb, name) is not None
    assert set(wb.__all__) <= set(dir(wb))
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        _ = wb.sweeep  # pyright: ignore[reportAttributeAccessIssue]
