from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import TrialReported
from workbench.runs import Run, read_experiment
from workbench.runs.bundles.bundle import narrow
from workbench.store.database import Store
from workbench.store.history import History


def _trial(experiment: wb.Experiment, params: dict[str, Any], repeat: int = 0) -> wb.Trial:
    events = trial_events(0, at_s=0)
    proposed = events[0].model_copy(update={"params": params, "repeat": repeat})
    return History.of(experiment, [*begin(), proposed, *events[1:]]).trials[0]


def test_a_bundle_holds_what_trains_the_best_trial_again(tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))

    folder = run.export(tmp_path / "best")

    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "configuration.json",
        "environment.txt",
        "experiment.yaml",
        "report.html",
        "retrain.sh",
    ]
    configuration = json.loads((folder / "configuration.json").read_text())
    assert (configuration["trial"], configuration["params"]) == (1, {"lr": 0.1, "width": 8})
    assert configuration["plan"]["global_batch"] == 64
    experiment = read_experiment(folder / "experiment.yaml")
    assert experiment.search.check({}) == {"lr": 0.1, "width": 8}
    assert experiment.seed == run.experiment.seed
    assert "sqlalchemy==" in (folder / "environment.txt").read_text().lower()
    assert (folder / "retrain.sh").stat().st_mode & 0o100


def test_a_folder_that_holds_something_is_left_alone_unless_forced(tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")

    with pytest.raises(RunError, match="is not empty"):
        run.export(folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    run.export(folder, force=True)
    assert (folder / "thesis.txt").read_text() == "years of work"
    assert (folder / "experiment.yaml").exists()


def test_what_cannot_be_written_whole_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RunError("the checkpoint is not complete")

    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    monkeypatch.setattr("workbench.runs.bundles.bundle.write_report", fail)
    with pytest.raises(RunError, match="not complete"):
        run.export(tmp_path / "best")
    assert not (tmp_path / "best").exists()
    monkeypatch.undo()
    assert (run.export(tmp_path / "best") / "report.html").exists()


def test_only_complete_trials_are_exported(tmp_path: Path) -> None:
    run = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))

    with pytest.raises(
        RunError, match="trial 2 is pruned, not complete; allowed: best, or trials 1, 0"
    ):
        run.export(tmp_path / "a", trial=2)
    with pytest.raises(ArgumentError, match="no trial 17"):
        run.export(tmp_path / "b", trial=17)
    with Store.open(str(tmp_path / "other.sqlite")) as store:
        empty = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))
        with pytest.raises(RunError, match="no best trial: No trial has started yet"):
            empty.export(tmp_path / "c")
    assert not any((tmp_path / name).exists() for name in "abc")


def test_a_run_without_a_feasible_trial_says_so_instead_of_being_exported(tmp_path: Path) -> None:
    limit = {"metric": "val_accuracy", "at_least": 0.92}
    run_id = record_run(tmp_path, constraints=[limit | {"at_least": 1.5}])
    run = wb.attach(run_id, store=str(tmp_path / "store.sqlite"))

    with pytest.raises(RunError, match="No complete trial keeps all constraints"):
        run.export(tmp_path / "a")
    assert run.trials["feasible"].tolist() == [False, False, None, None, None]
    some = wb.attach(
        record_run(tmp_path, constraints=[limit]), store=str(tmp_path / "store.sqlite")
    )
    assert some.trials["feasible"].tolist() == [False, True, None, None, None]
    assert some.trials["reason"][0] == "infeasible"  # as terminal and panel have it
    assert some.to_json()["trials"][0]["reason"] == "infeasible"
    assert some.to_json()["trials"][1]["reason"] is None


def test_narrowing_fixes_every_kind_of_value_and_drops_what_ends_a_training() -> None:
    experiment = wb.Experiment(
        **{
            **EXPERIMENT,
            "train": "package.module:function",
            "model": None,
            "data": None,
            "search": {
                "layers": {"choices": [[8, 8], [16]]},
                "options": {"choices": [{"low": 1, "high": 2}, None]},
                "on": {"choices": [True, False]},
                "rate": {"low": 0.0, "high": 1.0, "when": {"on": True}},
            },
            "early_stop": {"pruner": "asha"},
            "repeats": 3,
            "seed": 5,
            "alerts": [{"on": "run_ended", "to": ["a-sink-of-that-machine"]}],
            "objectives": [{"metric": "val_accuracy", "goal": "maximize", "target": 0.5}],
        }
    )
    params = {"layers": [8, 8], "options": {"low": 1, "high": 2}, "on": True, "rate": 0.25}

    narrowed = narrow(experiment, _trial(experiment, params))

    assert narrowed.search.check({}) == params
    assert wb.Experiment.from_yaml(narrowed.to_yaml()).search.check({}) == params
    assert (narrowed.early_stop.pruner, narrowed.repeats, narrowed.seed) == ("none", 1, 5)
    assert narrowed.objectives[0].target is None
    assert narrowed.budget.trials == 1
    assert narrowed.alerts == ()


def test_narrowing_to_a_later_repeat_keeps_the_repeats_before_it() -> None:
    experiment = wb.Experiment(**{**EXPERIMENT, "repeats": 4})

    assert narrow(experiment, _trial(experiment, {"lr": 0.1, "width": 8}, repeat=2)).repeats == 3


def test_a_searched_option_of_the_data_becomes_its_option() -> None:
    search = {**EXPERIMENT["search"], "data.normalisation": {"choices": ["standard", "range"]}}
    experiment = wb.Experiment(**{**EXPERIMENT, "data": "digits", "search": search})
    params = {"lr": 0.1, "width": 8, "data.normalisation": "range"}

    narrowed = narrow(experiment, _trial(experiment, params))

    assert narrowed.data is not None
    assert narrowed.data.options == {"normalisation": "range"}
    assert "data.normalisation" not in narrowed.search.root


def test_a_plan_that_was_searched_stays_a_parameter() -> None:
    search = {**EXPERIMENT["search"], "micro_batch": {"choices": [32, 64]}}
    experiment = wb.Experiment(**{**EXPERIMENT, "search": search})

    narrowed = narrow(experiment, _trial(experiment, {"lr": 0.1, "width": 8, "micro_batch": 32}))

    assert narrowed.search.check({})["micro_batch"] == 32
    assert (narrowed.plan.micro_batch, narrowed.plan.accumulation) == ("auto", 2)
    assert narrowed.training.global_batch == 64


def test_a_bundle_trains_again_wherever_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "mine").mkdir(parents=True)
    (project / "mine" / "__init__.py").write_text("")
    (project / "mine" / "net.py").write_text("import torch, beside\nfrom . import words")
    (project / "mine" / "words.txt").write_text("a b c")
    (project / "beside.py").write_text("answer = 42")
    (project / "unused.py").write_text("")
    (project / "rows.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(project)
    data = {"name": "table", "path": "rows.csv", "target": "b"}
    run_id = record_run(tmp_path, model="mine.net:build", data=data)
    run = wb.attach(run_id, store=str(tmp_path / "store.sqlite"))

    moved = run.export(tmp_path / "best").rename(tmp_path / "moved")
    shutil.rmtree(project)

    came = sorted(
        path.relative_to(moved).as_posix() for path in (moved / "code").rglob("*") if path.is_file()
    )
    assert came == [
        "code/beside.py",
        "code/mine/__init__.py",
        "code/mine/net.py",
        "code/mine/words.txt",
        "code/rows.csv",
    ]
    data_in_it = ["mine/ (1 file, 5 B)", "rows.csv (8 B)"]
    assert json.loads((moved / "configuration.json").read_text())["data"] == data_in_it
    assert f"contains data: {', '.join(data_in_it)}. Whoever" in (moved / "README.md").read_text()
    for name in ("retrain.sh", "experiment.yaml", "README.md"):
        assert str(tmp_path) not in (moved / name).read_text()
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || { test -f rows.csv && cat beside.py $4; }\n')
    python.chmod(0o755)
    environment = {"PATH": os.defpath, "PYTHON": str(python)}
    done = subprocess.run(
        [str(moved / "retrain.sh")], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "answer = 42" + (moved / "experiment.yaml").read_text()


def test_data_that_lay_elsewhere_stays_there_and_the_bundle_says_so(tmp_path: Path) -> None:
    data = {"name": "table", "path": str(tmp_path / "rows.csv"), "target": "b"}
    run = wb.attach(record_run(tmp_path, data=data), store=str(tmp_path / "store.sqlite"))
    folder = run.export(tmp_path / "best")
    assert not (folder / "code").exists()
    assert (
        f"It reads data that is not in this folder: {tmp_path / 'rows.csv'}."
        in (folder / "README.md").read_text()
    )


@pytest.mark.slow
def test_weights_that_training_begins_with_are_copied_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "small.pt").write_text("x")
    monkeypatch.chdir(tmp_path)
    elsewhere = "/data/large.safetensors"
    for number, (path, is_copied) in enumerate([("nets/small.pt", True), (elsewhere, False)]):
        place = tmp_path / str(number)
        place.mkdir()
        training = {"weights": path, "adapter": {"rank": 2}}
        run = wb.attach(record_run(place, training=training), store=str(place / "store.sqlite"))
        folder = run.export(place / "best")
        assert (folder / "code" / "nets" / "small.pt").exists() is is_copied
        readme = (folder / "README.md").read_text()
        assert (
            "starts with weights that are not in this folder: " + elsewhere in readme
        ) is not is_copied
        assert "pip install peft" in readme
        assert (elsewhere in (folder / "retrain.sh").read_text()) is not is_copied


def test_objects_from_a_notebook_travel_in_the_bundle(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Any) -> float:
        return float(config["lr"])

    fields = {**EXPERIMENT, "train": train, "model": None, "data": None}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(wb.Experiment(**fields)))
        append(store, run.run_id, [*begin(), *trial_events(0, at_s=0), *finish(1)])
        folder = run.export(tmp_path / "best")

    read = read_experiment(folder / "experiment.yaml")
    assert read.train is not None
    assert read.train.load()({"lr": 0.5}, None) == 0.5
    assert "only do so if you trust" in (folder / "README.md").read_text()


def _exported_function(tmp_path: Path, project: Path, *, saves: bool) -> Path:
    """Export a run of a function that starts a script; it was started in `project`."""
    (project / "scripts").mkdir(parents=True)
    (project / "loop.py").write_text(
        'import subprocess\nsubprocess.run(["python", "scripts/fit.py"])'
    )
    (project / "scripts" / "fit.py").write_text("")
    train = {"name": "loop:train", "weights": "large.bin"}
    (project / "large.bin").write_bytes(b"x" * 2000)
    fields = {**EXPERIMENT, "train": train, "model": None, "data": None}
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(wb.Experiment(**fields)))
        append(store, run.run_id, [*begin(), *trial_events(0, at_s=0), *finish(1)])
        if saves:
            left = store.artifacts_of(run.run_id).below("trials/00000/checkpoints")
            left.write("epoch-3/model.bin", b"weights")
        return run.export(tmp_path / "best")


def test_a_bundle_of_a_function_holds_its_folder_and_its_scripts_and_names_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr("workbench.runs.bundles.bundle_files.MAX_DATA_BYTES", 1000)
    folder = _exported_function(tmp_path, tmp_path / "project", saves=True)

    assert (folder / "files" / "epoch-3" / "model.bin").read_bytes() == b"weights"
    assert sorted(
        path.relative_to(folder).as_posix() for path in (folder / "code").rglob("*.*")
    ) == [
        "code/loop.py",
        "code/scripts/fit.py",
    ]
    readme = (folder / "README.md").read_text()
    assert (
        "`files/` contains what the function left in its folder:\n\n- epoch-3/model.bin, 7 B"
        in readme
    )
    assert "finds in another way are not here" in readme
    assert "too large for this folder: large.bin" in readme
    assert "echo 'note: not in this folder: large.bin' >&2" in (folder / "retrain.sh").read_text()
    with pytest.raises(RunError, match="was created by a train function"):
        wb.load_bundle(folder)


@pytest.mark.parametrize(
    ("values", "is_newer"), [((0.5, 0.9, 0.6), True), ((0.5, 0.6, 0.9), False)]
)
def test_a_bundle_states_where_its_files_are_newer_than_the_best_report(
    tmp_path: Path, values: tuple[float, ...], is_newer: bool
) -> None:
    objective = {"metric": "val_accuracy", "goal": "maximize", "value": "best"}
    fields = {
        **EXPERIMENT,
        "train": "loop:train",
        "model": None,
        "data": None,
        "objectives": [objective],
    }
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(wb.Experiment(**fields)))
        proposed, started, *_, ended = trial_events(0, at_s=0)
        reports = [
            TrialReported(trial=0, step=step, values={"val_accuracy": value})
            for step, value in enumerate(values, start=1)
        ]
        append(store, run.run_id, [*begin(), proposed, started, *reports, ended, *finish(1)])
        store.artifacts_of(run.run_id).below("trials/00000/checkpoints").write(
            "model.bin", b"weights"
        )
        readme = (run.export(tmp_path / "best") / "README.md").read_text()
    assert ("report at step 2, but its training ended at step 3" in readme) is is_newer


def test_a_bundle_of_a_function_that_left_nothing_explains_how_to_save_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    folder = _exported_function(tmp_path, tmp_path / "project", saves=False)

    assert not (folder / "files").exists()
    assert "parameter named `folder`" in (folder / "README.md").read_text()
