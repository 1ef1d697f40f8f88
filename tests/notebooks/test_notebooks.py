"""The notebooks: each is run from its first cell to its last, and what it claims is held against
it.

The first one is run in a browser, see tests/browser/test_notebook_in_lab.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

import workbench as wb
from tests.builders.recorded_runs import finished_run
from tests.services.waiting import wait_until
from workbench.runs import Run

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TO_LOOK_AT = {"application/vnd.plotly.v1+json", "text/html", "image/png"}
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
# Less than half a minute each where nothing else computes; machines that run tests are shared.
TIMEOUT_S = 240


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


Tell = Callable[..., NotebookNode]


@pytest.fixture
def tell(ray_head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Run a notebook with a store of its own on the head that all tests share.

    Return it with its outputs.
    """
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    )

    def run(name: str, change: Callable[[str], str] = str) -> NotebookNode:
        notebook = read(ROOT / "notebooks" / f"{name}.ipynb")
        for cell in code_cells(notebook):
            cell.source = change(cell.source)
        resources = {"metadata": {"path": str(ROOT / "notebooks")}}
        NotebookClient(
            notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources
        ).execute()
        outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
        assert [output.text for output in outputs if output.get("name") == "stderr"] == []
        for cell in code_cells(notebook):  # each cell shows one thing once
            shown = [output.data for output in cell.outputs if "data" in output]
            assert all(any(forms.values()) for forms in shown), cell.source
            texts = [forms["text/plain"] for forms in shown if "text/plain" in forms]
            assert not any(text in other for text, other in itertools.permutations(texts, 2)), (
                cell.source
            )
        last = code_cells(notebook)[-1].outputs
        assert any(TO_LOOK_AT & set(output.get("data", ())) for output in last)
        return notebook

    return run


def printed(notebook: NotebookNode) -> str:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def runs_of(tmp_path: Path) -> list[Run]:
    """The runs of a notebook, the newest first."""
    store = wb.Store.open(str(tmp_path / "store.sqlite"))
    return [wb.attach(row.run_id, store=store) for row in store.runs()]


def test_there_are_stories() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == [
        "01",
        "02",
        "03",
        "04",
        "05",
        "06",
        "07",
        "08",
        "09",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_as_written_and_not_as_run(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)

    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code_cells(notebook))
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert notebook.metadata == {"kernelspec": KERNEL, "language_info": {"name": "python"}}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_needs_only_public_names_and_places_of_anybody(path: Path) -> None:
    notebook = read(path)
    source = "\n".join(cell.source for cell in code_cells(notebook))

    imported = re.findall(r"^\s*(?:from|import) workbench\b.*", source, re.MULTILINE)
    assert imported == ["import workbench as wb"]
    assert set(re.findall(r"\bwb\.(\w+)", source)) <= set(wb.__all__)
    assert re.findall(r"""["'](?:/|~|[A-Za-z]:\\)[^"']*""", source) == []
    linked = re.findall(r"\]\(([^)]+)\)", "\n".join(cell.source for cell in notebook.cells))
    assert [link for link in linked if not (path.parent / link).exists()] == []


def test_the_readme_lists_every_notebook() -> None:
    text = (ROOT / "README.md").read_text()
    assert [path.name for path in NOTEBOOKS] == re.findall(r"\]\(notebooks/(\w+\.ipynb)\)", text)


@pytest.mark.ray
@pytest.mark.slow
def test_a_changed_cell_is_another_version_of_the_model(tell: Tell, tmp_path: Path) -> None:
    tell("02_your_own_model")

    second, first = (run.experiment for run in runs_of(tmp_path))
    assert first.model is not None
    assert second.model is not None
    assert first.model.name.startswith("embedded:Taster@")
    assert first.model.name != second.model.name
    assert first.data == second.data


@pytest.mark.ray
@pytest.mark.slow
def test_clones_begin_with_the_weights_of_a_running_trial(tell: Tell, tmp_path: Path) -> None:
    tell("09_cloning")

    [run] = runs_of(tmp_path)
    trials = [run.history.trials[number] for number in range(3)]
    assert [trial.continued for trial in trials] == [None, 0, 0]
    assert [trial.state for trial in trials] == ["complete"] * 3
    assert trials[1].clone is not None
    assert (trials[1].clone.epoch or 0) >= 8


@pytest.mark.slow
@pytest.mark.ray
def test_a_space_survives_yaml(tell: Tell, tmp_path: Path) -> None:
    said = printed(tell("03_search_spaces"))

    assert "True True" in said
    assert "'sdg' is not a value of optimizer; allowed: 'sgd', 'adamw'" in said


@pytest.mark.ray
@pytest.mark.slow
def test_an_advice_is_shown_and_followed(tell: Tell, tmp_path: Path) -> None:
    finished_run(str(tmp_path / "store.sqlite"))  # whoever opens it has runs already
    notebook = tell("04_the_advisor")

    followed, advice, _ = runs_of(tmp_path)
    assert advice.is_advice
    assert advice.advice is not None
    assert (
        followed.experiment.training.global_batch == advice.advice["choice"]["plan"]["global_batch"]
    )
    shown = [output.get("data", {}) for cell in code_cells(notebook) for output in cell.outputs]
    assert (
        sum("Advice for " in data.get("text/html", "") for data in shown) == 1
    )  # the live view's card
    assert any(data.get("text/plain", "").startswith("the advice above: ") for data in shown)
    kind = "application/vnd.plotly.v1+json"
    figures = [data[kind] for data in shown if kind in data]
    assert figures[0]["data"], "the plans that were measured"


@pytest.mark.ray
@pytest.mark.slow
def test_two_workers_train_what_one_does(tell: Tell, tmp_path: Path) -> None:
    tell("05_many_workers")

    (run,) = runs_of(tmp_path)
    table = run.trials.set_index("workers")
    assert sorted(table.index) == [1, 2]
    assert table.loc[1, "val_loss"] == pytest.approx(table.loc[2, "val_loss"], rel=1e-3)
    assert sorted(len(trial.worker_pids) for trial in run.history.trials.values()) == [1, 2]


@pytest.fixture
def place_of_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give temporary files a place of their own, and end what a notebook that failed left running
    there.
    """
    place = Path(
        tempfile.mkdtemp(prefix="nb-", dir="/tmp")
    )  # a socket's path has room for 107 bytes
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    for process in psutil.process_iter(["cmdline"]):
        if any(str(place) in word for word in process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
def test_the_cluster_drives_the_run_and_is_gone_afterwards(
    tell: Tell, tmp_path: Path, place_of_cluster: Path
) -> None:
    said = printed(tell("06_on_a_cluster"))

    (run,) = runs_of(tmp_path)
    assert run.state == "complete"
    assert said.count(": complete, ") == len(run.trials) == 6
    pids = [pid for trial in run.history.trials.values() for pid in trial.worker_pids]
    assert pids
    assert list(place_of_cluster.glob("ray-*")) == []
    wait_until(
        lambda: not any(map(psutil.pid_exists, pids)), what="the end of the cluster's workers"
    )


@pytest.mark.ray
@pytest.mark.slow
def test_the_better_run_is_taken_along_and_used(tell: Tell, tmp_path: Path) -> None:
    notebook = tell("07_comparing_and_exporting")

    winner = max(
        runs_of(tmp_path), key=lambda run: run.best.values["val_accuracy"] if run.best else 0.0
    )
    folder = winner.folder / "best"
    bundle = wb.load_bundle(folder)
    assert winner.best is not None
    assert (bundle.params, bundle.values) == (winner.best.params, winner.best.values)
    compared = code_cells(notebook)[2].outputs[-1].data["application/vnd.plotly.v1+json"]
    assert {line["name"].partition(":")[0] for line in compared["data"]} == {
        "plain",
        "convolutional",
    }
    figure = code_cells(notebook)[-1].outputs[-1].data["application/vnd.plotly.v1+json"]
    said = [note["text"] for note in figure["layout"]["annotations"]]
    assert len(said) == 24
    assert all(re.fullmatch(r"reads \d", text) for text in said)


def end_after_three_trials(source: str) -> str:
    """End the run of a cell by what was trained.

    Within its seconds a busy machine may train nothing.
    """
    changed = source.replace('time="15s"', 'time="4m"')
    if source.strip() != "automl.wait()":
        return changed
    return (
        "import time\n"
        "while len(automl.run.history.in_state('complete')) < 3 and not automl.finished:\n"
        "    time.sleep(0.1)\n"
        "automl.stop()\n"
        "automl.wait()"
    )


@pytest.mark.ray
@pytest.mark.slow
def test_a_table_becomes_predictions(tell: Tell, tmp_path: Path) -> None:
    notebook = tell("08_automl", end_after_three_trials)
    assert any("automl.stop()" in cell.source for cell in code_cells(notebook))

    (run,) = runs_of(tmp_path)
    assert len(run.history.in_state("complete")) >= 3
    assert run.best is not None
    table = code_cells(notebook)[-2].outputs[-1].data["text/plain"]
    assert len(re.findall(r"benign|malignant", table)) == 5
