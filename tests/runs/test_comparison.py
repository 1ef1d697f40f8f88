from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import plotly.io
import pytest

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from workbench import compare, compare_table
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError, RunNotFoundError
from workbench.foundation.events import RunStateChanged, SettingsChanged
from workbench.runs import Run
from workbench.runs.comparison import (
    ComparisonRow,
    Side,
    comparison_rows,
    find_runs,
    labels_of,
    legend_of,
)
from workbench.store.database import Store


def record(store: wb.Store, name: str, *accuracies: float) -> str:
    run_id = store.create_run(wb.Experiment(**{**EXPERIMENT, "name": name}))
    trials = [
        trial_events(number, at_s=4 * number, accuracy=value)
        for number, value in enumerate(accuracies)
    ]
    append(
        store, run_id, [*begin(), *(event for events in trials for event in events), *finish(60)]
    )
    return run_id


def test_the_best_so_far_of_several_runs_stands_in_one_figure(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        first = wb.attach(record(store, "plain <b>", 0.5, 0.8), store=store)
        record(store, "convolutional", 0.9)
        record(store, "nothing")

        figure: Any = wb.compare(first, "convolutional", "nothing", store=store)

    lines = {line.name: line for line in figure.data}
    assert list(lines) == [
        "plain &lt;b&gt;: 0.8 (trial 1)",
        "convolutional: 0.9 (trial 0)",
        "nothing: nothing yet",
    ]
    line = lines["plain &lt;b&gt;: 0.8 (trial 1)"]
    assert [float(value) for value in line.y] == pytest.approx([0.25, 0.5, 0.8])
    assert [float(value) for value in line.x] == pytest.approx([1, 2, 6])
    assert figure.layout.xaxis.title.text == "run time (s)"
    assert "val_accuracy" in figure.layout.yaxis.title.text


def test_a_saved_notebook_shows_a_comparison_without_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What plotly chooses in a notebook, and in Colab.
    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype+notebook_connected")
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        first = record(store, "plain <b>", 0.5, 0.8)
        figure = wb.compare(first, record(store, "other", 0.9), store=store)
        forms: Any = figure._repr_mimebundle_()
    assert forms["application/vnd.plotly.v1+json"]["data"]
    assert len(json.dumps(forms)) < 200_000
    image = re.fullmatch(r'<img alt="Best so far, by run" src="[^,]+,(.+)">', forms["text/html"])
    assert image
    svg = ElementTree.fromstring(base64.b64decode(image[1]))
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Best so far, by run"
    assert {"plain <b>: 0.8 (trial 1)", "other: 0.9 (trial 0)", "run time (s)"} <= {*texts}
    assert len(svg.findall("*/*/{http://www.w3.org/2000/svg}path")) == 2
    monkeypatch.setattr(plotly.io.renderers, "default", "colab")
    in_colab: Any = figure._repr_mimebundle_()
    assert "<script" in in_colab["text/html"]


def test_runs_of_one_name_are_told_apart_and_runs_that_are_not_there_refused(
    tmp_path: Path,
) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        ids = [record(store, "same", 0.5), record(store, "same", 0.7)]
        twins: Any = wb.compare(*ids, store=store)
        assert [line.name.partition(":")[0] for line in twins.data] == [
            f"same ({run_id})" for run_id in ids
        ]
        empty: Any = wb.compare(record(store, "empty"), store=store)
        assert empty.layout.annotations[0].text == "No trial has reported anything yet."
        with pytest.raises(RunNotFoundError):
            wb.compare("other", store=store)
    with pytest.raises(ExperimentError, match="nothing to compare"):
        wb.compare()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    record_run(tmp_path)
    record_run(
        tmp_path,
        training={"epochs": 12},
        search={"lr": {"low": 1e-3, "high": 0.5, "log": True}, "exits": 1},
    )
    record_run(tmp_path, name="other", objectives=[{"metric": "val_loss", "goal": "minimize"}])
    with Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def sides(store: Store, *names: str) -> list[Side]:
    return [Side(run.row, run.history) for run in find_runs(names, store=store)]


def test_a_name_or_a_pattern_stands_for_all_runs_that_it_matches(store: Store) -> None:
    assert [run.name for run in find_runs(["digits-small"], store=store)] == ["digits-small"] * 2
    assert [run.name for run in find_runs(["o*", "DIGITS-*"], store=store)] == ["other"] + [
        "digits-small"
    ] * 2
    assert len(find_runs(["*", "other"], store=store)) == 3
    with pytest.raises(RunNotFoundError, match=r"no run matches 'x\*'"):
        find_runs(["x*"], store=store)


def test_runs_of_one_name_are_told_apart_by_their_settings(store: Store) -> None:
    assert labels_of(sides(store, "digits-small", "other")) == (
        "digits-small (epochs 12, lr 0.001 to 0.5, log)",
        "digits-small (epochs default, lr 1e-4 to 0.5, log)",
        "other",
    )


def test_equal_experiments_are_told_apart_by_their_run_ids(tmp_path: Path) -> None:
    known = [record_run(tmp_path), record_run(tmp_path)]
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        assert set(labels_of(sides(store, *known))) == {
            f"digits-small ({run_id})" for run_id in known
        }


def test_the_table_marks_what_differs_and_the_best_value(store: Store) -> None:
    rows = {(row.part, row.name): row for row in comparison_rows(sides(store, "digits-small"))}
    assert rows["experiment", "training.epochs"] == ComparisonRow(
        "experiment", "training.epochs", ("12", "default"), differs=True
    )
    assert rows["experiment", "search.lr"].differs
    assert not rows["experiment", "budget.trials"].differs
    assert rows["experiment", "search.exits"].cells == ("1", None), (
        "the other run does not search it"
    )
    assert rows["best parameters", "lr"].cells == ("0.1", "0.1")
    value = rows["result", "best val_accuracy"]
    assert (value.cells, value.best) == (("0.95", "0.95"), None), "a tie has no best"


def test_a_class_of_a_cell_is_told_apart_by_the_beginning_of_its_hash(tmp_path: Path) -> None:
    known = [record_run(tmp_path, model=f"embedded:Net@{letter * 64}") for letter in "ab"]
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        compared = sides(store, *known)
    rows = {(row.part, row.name): row for row in comparison_rows(compared)}
    assert rows["experiment", "model"].cells == ("Net@aaaaaaaa", "Net@bbbbbbbb")
    assert labels_of(compared) == (
        "digits-small (model Net@aaaaaaaa)",
        "digits-small (model Net@bbbbbbbb)",
    )


def test_advice_has_taken_time_without_a_driver(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        ended_s = store.run(run_id).created_unix_s + 12
        append(
            store, run_id, [RunStateChanged(state="complete", reason="advice", time_unix_s=ended_s)]
        )
        rows = {row.name: row.cells for row in comparison_rows(sides(store, run_id))}
    assert rows["run time"] == ("12 s",)


def test_a_range_that_was_changed_while_the_run_went_on_is_the_one_compared(tmp_path: Path) -> None:
    known = [record_run(tmp_path), record_run(tmp_path)]
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        changed, same = sides(store, *known)
    changed.history.apply(SettingsChanged(settings={"search": {"width": 16}}))
    rows = {(row.part, row.name): row for row in comparison_rows([changed, same])}
    assert rows["experiment", "search.width"].differs
    assert rows["experiment", "search.width"].cells[0] == "16"
    assert not rows["experiment", "search.lr"].differs


def test_only_settings_that_an_experiment_has_are_shown_with_a_default(tmp_path: Path) -> None:
    store_path = str(tmp_path / "store.sqlite")
    script = {
        "command": "python train.py {args}",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
    }
    model = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    }
    space = {"search": {"lr": {"low": 1e-3, "high": 1.0}}}
    second = {"metric": "val_accuracy", "goal": "maximize", "value": "last"}
    with Store.open(store_path) as store:
        experiments = [
            Experiment(name="script", **script, **space, budget={"time": 60}),
            Experiment(name="model", **model, **space, training={"epochs": 7}, plan={"workers": 2}),
            Experiment(
                name="wide",
                **space,
                seed=1,
                model={"name": "mlp", "depth": 3},
                data="digits",
                objectives=[{"metric": "val_loss", "goal": "minimize", "value": "last"}, second],
            ),
        ]
        runs = [Run(store, store.create_run(experiment)) for experiment in experiments]
        sides = [Side(run.row, run.history) for run in runs]
    rows = {row.name: row.cells for row in comparison_rows(sides) if row.part == "experiment"}
    assert rows["command"] == ("python train.py {args}", None, None)
    assert rows["training.epochs"] == (None, "7", "default")
    assert rows["plan.workers"] == ("default", "2", "default")
    assert rows["model"] == (None, "mlp", "mlp")
    assert rows["model.depth"] == (None, "default", "3")
    assert rows["budget.time"] == ("60", None, None), "no limit is no default"
    assert rows["objectives.0.value"] == ("default", "default", "last")
    assert rows["objectives.1.metric"] == (None, None, "val_accuracy")
    assert rows["seed"] == ("default", "default", "1")
    legend = legend_of(comparison_rows(sides))
    assert list(legend) == ["default", None]


@pytest.mark.parametrize("axis", ["time", "epoch", "trial", "cost"])
def test_runs_with_different_objectives_are_drawn_on_scales_of_their_own(
    store: Store, axis: str
) -> None:
    figure = compare("digits-small", "other", axis=axis, store=store)  # type: ignore[arg-type]
    assert [line.yaxis for line in figure.data] == ["y", "y", "y2"]  # type: ignore[reportAttributeAccessIssue]
    assert figure.layout.yaxis2.title.text == "val_loss (lower is better)"  # type: ignore[reportAttributeAccessIssue]


def test_an_unknown_metric_or_axis_is_refused(store: Store) -> None:
    with pytest.raises(ExperimentError, match="no trial reported 'nothing'"):
        compare("digits-small", metric="nothing", store=store)
    with pytest.raises(ExperimentError, match="unknown axis"):
        compare("digits-small", axis="money", store=store)  # type: ignore[arg-type]


def test_python_gets_the_rows_as_a_table_with_a_column_per_run(
    store: Store, tmp_path: Path
) -> None:
    first, second = record_run(tmp_path, name="first"), record_run(tmp_path, name="name", seed=7)
    table = pd.DataFrame(compare_table(first, second, store=store))
    assert list(table.columns) == ["part", "name", "differs", "first", f"name ({second})"]
    assert len(table) == len(comparison_rows(sides(store, first, second)))
    different = table[table["differs"]].set_index("name")
    assert different.loc["seed", f"name ({second})"] == "7"
    with pytest.raises(ExperimentError, match="nothing to compare"):
        compare_table()
