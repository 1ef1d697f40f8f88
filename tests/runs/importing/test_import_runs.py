"""Old runs are stored once, with their names, and serve as knowledge."""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import random
import sqlite3
from pathlib import Path

import pytest

from tests.runs.importing.conftest import WRITTEN, database
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, DataError, ExperimentError, RunError
from workbench.runs.comparison import compare_table
from workbench.runs.importing.import_runs import Imported, import_runs
from workbench.runs.result import result_of
from workbench.runs.run import Run
from workbench.runs.space_suggestions import how_to_widen
from workbench.runs.trial_decisions import decide
from workbench.store.database import Store
from workbench.store.database.samples import last_block_seq
from workbench.store.history.certainty import describe_luck
from workbench.sweeps import ledger
from workbench.sweeps.preflight import check
from workbench.sweeps.warm_start import prior_trials, similar_runs

_HEADS = ("run", "step", "val_loss", "train_loss", "learning_rate", "optimizer", "seed", "out")


def _write(path: Path, rows: list[tuple[object, ...]], heads: tuple[str, ...] = _HEADS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(heads)
        writer.writerows(rows)
    return path


def _rows(numbers: range, *, num_steps: int = 3) -> list[tuple[object, ...]]:
    """Return runs of two configurations in turn, each with its own seed and output folder."""
    noise = random.Random(0)
    return [
        (
            f"run-{number}",
            step,
            (1.0 if number % 2 else 2.0) / (step + 1) + noise.uniform(0, 0.01),
            0.1,
            (0.1, 0.01)[number % 2],
            ("sgd", "adam")[number % 2],
            number,
            f"out/{number}",
        )
        for number in numbers
        for step in range(num_steps)
    ]


def _import(path: Path, store: Store, **options: object) -> Imported:
    names = {"learning_rate": "lr"}
    return import_runs(path, store=store, names=names, metric="val_loss", **options)  # type: ignore[arg-type]


def test_runs_become_trials_with_their_curves_and_repeats(tmp_path: Path, store: Store) -> None:
    path = _write(tmp_path / "old.csv", _rows(range(8)))

    (run,) = _import(path, store).runs

    history = run.history
    assert run.state == "complete"
    assert run.tags == ("imported",)
    assert len(history.trials) == 8
    assert history.num_configurations() == 2
    assert history.trials[2].params["lr"] == 0.1
    assert (history.trials[2].repeat, history.trials[2].seed) == (1, 2)
    assert history.trials[2].reports == 3
    best = run.best
    assert best is not None
    assert best.params["optimizer"] == "adam"
    search = run.experiment.search.model_dump(mode="json")
    assert sorted(search) == ["lr", "optimizer"]


def test_a_second_import_adds_only_what_is_new(tmp_path: Path, store: Store) -> None:
    path = _write(tmp_path / "old.csv", _rows(range(4)))
    first = _import(path, store)
    num_events = len(first.runs[0].events())

    again = _import(path, store)

    assert [(source.num_added, source.num_known) for source in again.sources] == [(0, 4)]
    assert len(again.runs[0].events()) == num_events
    _write(path, _rows(range(6)))
    more = import_runs(path, store=store)  # the names are those of the first import
    assert [(source.num_added, source.num_known) for source in more.sources] == [(2, 4)]
    assert [run.run_id for run in more.runs] == [run.run_id for run in first.runs]
    history = more.runs[0].history
    assert history.trials[5].params["lr"] == 0.01
    assert history.num_configurations() == 2


def test_the_same_files_at_another_place_add_nothing(tmp_path: Path, store: Store) -> None:
    import_runs(WRITTEN / "wandb", store=store)
    elsewhere = tmp_path / "elsewhere" / "wandb"
    elsewhere.parent.mkdir()
    for path in (WRITTEN / "wandb").rglob("*.wandb"):
        target = elsewhere / path.relative_to(WRITTEN / "wandb")
        target.parent.mkdir(parents=True)
        target.write_bytes(path.read_bytes())

    again = import_runs(elsewhere, store=store)

    assert [source.num_added for source in again.sources] == [0]
    assert len(store.runs()) == 1


def test_other_names_than_those_of_the_first_import_are_refused(
    tmp_path: Path, store: Store
) -> None:
    path = _write(tmp_path / "old.csv", _rows(range(4)))
    _import(path, store)
    with pytest.raises(ArgumentError, match="was imported with other names"):
        import_runs(path, store=store, metric="train_loss")
    with pytest.raises(ArgumentError, match="was imported with other names"):
        import_runs(path, store=store, names={"learning_rate": "rate"})


def test_a_name_that_no_run_has_is_refused(tmp_path: Path, store: Store) -> None:
    path = _write(tmp_path / "old.csv", _rows(range(4)))
    with pytest.raises(ArgumentError, match="no run has 'learningrate'"):
        import_runs(path, store=store, names={"learningrate": "lr"})
    with pytest.raises(ArgumentError, match="no run has the metric 'val_acc'"):
        import_runs(path, store=store, metric="val_acc")


def test_nothing_is_dropped_without_a_word(tmp_path: Path, store: Store) -> None:
    imported = import_runs(database(tmp_path, "mlflow"), store=store)

    (source,) = imported.sources
    assert source.left_out == {
        "deleted": 1,
        "still running, so import it again when it has ended": 1,
        "without val_accuracy": 1,
    }
    assert any("the objective is val_accuracy, to maximize" in note for note in source.notes)
    (run,) = imported.runs
    states = {trial.number: (trial.state, trial.reason) for trial in run.history.trials.values()}
    assert states[5] == ("failed", "diverged")
    assert states[6] == ("failed", "error")
    assert [number for number, (state, _) in states.items() if state == "complete"] == [*range(5)]


def test_an_imported_run_cannot_be_driven_and_says_why(tmp_path: Path, store: Store) -> None:
    (run,) = _import(_write(tmp_path / "old.csv", _rows(range(4))), store).runs
    attempts = {
        "resumed": lambda: run.resume(),
        "extended": lambda: run.extend(trials=1),
        "cloned": lambda: run.clone(0),
        "replayed": lambda: run.replay(),
        "exported": lambda: run.export(tmp_path / "bundle"),
    }
    for what, attempt in attempts.items():
        with pytest.raises(RunError, match=f"imported from csv cannot be {what}"):
            attempt()
    with pytest.raises(RunError, match="cannot be started"):
        check(run.experiment)


def test_imported_runs_are_compared_reported_and_decided(tmp_path: Path, store: Store) -> None:
    (run,) = _import(_write(tmp_path / "old.csv", _rows(range(8))), store).runs
    (other,) = _import(_write(tmp_path / "other.csv", _rows(range(8, 16))), store).runs

    rows = {row["name"]: row for row in compare_table(run, other, store=store)}
    assert (rows["optimizer"]["old"], rows["optimizer"]["other"]) == ("adam", "adam")
    assert run.report(tmp_path / "report.html").stat().st_size > 1000
    judgement = decide(run, f"{other.run_id}/0", store=store)
    assert judgement.decision == "not better"
    assert judgement.floor is not None


def _target(**fields: object) -> Experiment:
    search = {
        "lr": {"low": 1e-3, "high": 1.0, "log": True},
        "optimizer": {"choices": ["sgd", "adam"]},
    }
    given = {"train": "json:dumps", "search": search} | fields
    return Experiment(objectives=[{"metric": "val_loss", "goal": "minimize"}], **given)


def test_a_sampler_learns_from_imported_trials(tmp_path: Path, store: Store) -> None:
    (run,) = _import(_write(tmp_path / "old.csv", _rows(range(8))), store).runs

    priors = prior_trials(store, run.run_id, _target())

    assert len(priors) == 8
    assert priors[1].params == {"lr": 0.01, "optimizer": "adam"}
    assert priors[1].values["val_loss"] == run.history.trials[1].values["val_loss"]
    assert [step for step, _ in priors[1].reports] == [0, 1, 2]
    assert similar_runs(store, _target()) == [run.run_id]
    with pytest.raises(ExperimentError, match="no finished trial"):
        prior_trials(store, run.run_id, _target(search={"depth": {"low": 1, "high": 9}}))


def test_a_large_import_is_also_stored_as_blocks(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "BLOCK_EVENTS", 2_000)
    path = _write(tmp_path / "old.csv", _rows(range(9), num_steps=500))

    (run,) = _import(path, store).runs

    assert last_block_seq(store, run.run_id) == 4_000
    assert len(run.history.trials) == 9
    assert all(trial.last_step == 499 for trial in run.history.trials.values())


def test_a_table_with_one_row_for_each_run_has_parameters_and_results(
    tmp_path: Path, store: Store
) -> None:
    # The forms of Optuna's trials_dataframe, and of MLflow's search_runs.
    optuna_heads = ("number", "value", "params_lr", "params_layers", "state")
    rows: list[tuple[object, ...]] = [
        (0, 0.5, 0.1, 2, "COMPLETE"),
        (1, 0.4, 0.01, 3, "COMPLETE"),
        (2, "", 0.02, 3, "FAIL"),
    ]
    path = _write(tmp_path / "trials.csv", rows, optuna_heads)
    (run,) = import_runs(path, store=store, metric="value", goal="maximize").runs
    assert run.best is not None
    assert run.best.params == {"lr": 0.1, "layers": 2}
    assert [trial.state for trial in run.history.trials.values()] == [
        "complete",
        "complete",
        "failed",
    ]

    heads = ("run_id", "experiment_id", "status", "metrics.val_acc", "params.lr", "tags.user")
    path = _write(tmp_path / "runs.csv", [("a", 1, "FINISHED", 0.9, 0.1, "me")], heads)
    imported = import_runs(path, store=store)
    assert imported.runs[0].experiment.objectives[0].metric == "val_acc"
    assert imported.runs[0].history.trials[0].params == {"lr": 0.1}
    assert imported.sources[0].left_out == {"columns: tags.user": 1}


def test_several_projects_in_one_table_become_several_runs(tmp_path: Path, store: Store) -> None:
    heads = ("task", "run", "step", "val_loss", "lr")
    rows: list[tuple[object, ...]] = [
        (task, run, step, 1.0 / (step + 1), 0.1)
        for task in "ab"
        for run in (0, 1)
        for step in (0, 1)
    ]
    imported = import_runs(_write(tmp_path / "tasks.csv", rows, heads), store=store)
    assert [source.source for source in imported.sources] == ["a", "b"]
    assert [len(run.history.trials) for run in imported.runs] == [2, 2]


def test_histories_that_wandb_has_exported_are_runs_named_after_their_files(
    tmp_path: Path, store: Store
) -> None:
    folder = tmp_path / "exported"
    for name, lr in (("first", 0.1), ("second", 0.01)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps({"optimizer": {"lr": lr}}))
        rows = [
            {"_step": step, "_runtime": 1.5, "val_loss": lr / (step + 1), "image": None}
            for step in range(3)
        ]
        lines = "\n".join(json.dumps(row) for row in [*rows, {"_step": 3, "val_loss": "NaN"}])
        (folder / name / "history.jsonl").write_text(lines if name == "first" else lines[:-50])
    with pytest.raises(DataError, match=r"second/history\.jsonl cannot be read"):
        import_runs(folder, store=store)
    text = (folder / "second" / "history.jsonl").read_text()
    (folder / "second" / "history.jsonl").write_text(text.rpartition("\n")[0])

    (run,) = import_runs(folder, store=store).runs

    trials = run.history.trials
    assert [trial.params for trial in trials.values()] == [
        {"optimizer.lr": 0.1},
        {"optimizer.lr": 0.01},
    ]
    assert [(trial.state, trial.reason) for trial in trials.values()] == [
        ("failed", "diverged"),
        ("complete", None),
    ]


def test_a_logger_of_lightning_leaves_a_table_and_its_hyper_parameters(
    tmp_path: Path, store: Store
) -> None:
    for version, lr in enumerate((0.1, 0.01)):
        folder = tmp_path / "lightning_logs" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "hparams.yaml").write_text(f"lr: {lr}\nlayers: 2\n")
        heads = ("epoch", "step", "train_loss", "val_loss")
        rows: list[tuple[object, ...]] = [(0, 9, 0.9, ""), (0, 10, "", lr), (1, 20, "", lr / 2)]
        _write(folder / "metrics.csv", rows, heads)

    (run,) = import_runs(tmp_path / "lightning_logs", store=store).runs

    best = run.best
    assert best is not None
    assert best.params == {"lr": 0.01, "layers": 2}
    assert best.values["val_loss"] == 0.005
    assert best.last_step == 20


def test_a_folder_of_several_databases_and_an_address_are_places(
    tmp_path: Path, store: Store
) -> None:
    folder = tmp_path / "trackio"
    folder.mkdir()
    database(folder, "trackio").rename(folder / "faces.db")
    database(folder, "trackio")
    imported = import_runs(folder, store=store)
    assert [source.source for source in imported.sources] == ["faces", "trackio"]
    path = database(tmp_path, "mlflow")
    assert import_runs(f"sqlite:///{path}", store=store).sources[0].num_added == 7


def test_hostile_names_stay_inside_the_store(tmp_path: Path, store: Store) -> None:
    heads = ("task", "run", "step", "val_loss", "../../lr")
    rows: list[tuple[object, ...]] = [("../../etc\u202e", "=cmd()", 0, 0.5, 0.1)]
    (run,) = import_runs(_write(tmp_path / "odd.csv", rows, heads), store=store).runs
    assert isinstance(run, Run)
    assert "/" not in run.experiment.name
    assert run.folder.resolve().is_relative_to(tmp_path.resolve())


def _table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_fractional_epochs_keep_all_rows_in_their_order(tmp_path: Path, store: Store) -> None:
    lines = ("run,epoch,val_loss,lr", "a,0.5,0.9,0.1", "a,1.0,0.2,0.1", "a,1.5,0.8,0.1")
    others = ("b,0.5,0.9,0.2", "b,1.5,0.6,0.2", "b,1.0,0.7,0.2")
    imported = import_runs(_table(tmp_path / "hf.csv", *lines, *others), store=store)

    first, second = imported.runs[0].history.trials.values()
    assert (first.reports, first.last_step, first.values["val_loss"]) == (3, 2, 0.8)
    assert (second.last_step, second.values["val_loss"]) == (2, 0.6)
    assert imported.runs[0].best is not None
    assert imported.runs[0].best.params == {"lr": 0.2}
    (source,) = imported.sources
    assert source.left_out == {}
    assert any("3 different values in epoch, which are not whole" in it for it in source.notes)


def test_whole_steps_are_preferred_to_fractional_ones(tmp_path: Path, store: Store) -> None:
    lines = ("run,step,iteration,val_loss", "a,0.5,10,0.9", "a,1.0,20,0.2", "a,1.5,30,0.8")
    (run,) = import_runs(_table(tmp_path / "old.csv", *lines), store=store, metric="val_loss").runs
    assert run.history.trials[0].last_step == 30


def test_tables_that_share_a_row_are_different_experiments(tmp_path: Path, store: Store) -> None:
    heads = "lr,val_loss"
    _table(tmp_path / "one.csv", heads, "0.1,0.5", "0.2,0.4")
    other = _table(tmp_path / "two.csv", heads, "0.1,0.5", "0.3,0.1", "0.4,0.3")
    import_runs(tmp_path / "one.csv", store=store)

    (source,) = import_runs(other, store=store).sources

    assert (source.num_added, source.num_known, source.left_out) == (3, 0, {})
    assert len(store.runs()) == 2
    (tmp_path / "copy.csv").write_bytes(other.read_bytes())
    (again,) = import_runs(tmp_path / "copy.csv", store=store).sources
    assert (again.num_added, again.num_known, again.run_id) == (0, 3, source.run_id)


def test_a_table_with_a_parameter_of_one_value_can_grow(tmp_path: Path, store: Store) -> None:
    lines = ("run,step,val_loss,width,act", "a,0,0.5,64,relu", "b,0,0.4,64,relu")
    path = _table(tmp_path / "old.csv", *lines)
    import_runs(path, store=store)
    _table(path, *lines, "c,0,0.3,96,relu")

    (source,) = import_runs(path, store=store).sources

    assert (source.num_added, source.num_known) == (1, 2)
    (run,) = import_runs(path, store=store).runs
    assert run.history.trials[2].params == {"width": 96, "act": "relu"}


def _mlflow_folder(root: Path, *lines: str) -> Path:
    run = root / "1" / "ab12"
    for part in ("metrics", "params"):
        (run / part).mkdir(parents=True)
    (root / "1" / "meta.yaml").write_text("experiment_id: '1'\nname: digits\n")
    (run / "meta.yaml").write_text("run_id: ab12\nrun_name: first\nstatus: 3\n")
    (run / "params" / "lr").write_text("0.1")
    _table(run / "metrics" / "val_loss", *lines)
    return root


def test_a_line_of_mlflow_without_a_whole_step_is_counted(tmp_path: Path, store: Store) -> None:
    lines = ("1700000000000 0.5 0", "1700000001000 0.4 1.0", "1700000002000 0.3 2")
    root = _mlflow_folder(tmp_path / "mlruns", *lines)

    imported = import_runs(root, store=store)

    assert imported.sources[0].left_out == {"lines of metrics that cannot be read": 1}
    assert imported.runs[0].history.trials[0].reports == 2
    assert import_runs(root, store=store).sources[0].num_known == 1


def test_an_import_that_fails_leaves_nothing_half_made(tmp_path: Path, store: Store) -> None:
    path = database(tmp_path, "mlflow")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE metrics RENAME COLUMN is_nan TO nan")
    with pytest.raises(DataError, match="no such column: is_nan"):
        import_runs(path, store=store)
    assert store.runs() == []


def test_rows_of_a_database_that_are_no_values_are_counted(tmp_path: Path, store: Store) -> None:
    path = database(tmp_path, "mlflow")
    before = import_runs(path, store=store).sources[0]
    (tmp_path / "other").mkdir()
    other = database(tmp_path / "other", "mlflow")
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute(
            "UPDATE metrics SET step = 'x' WHERE rowid IN ("
            "SELECT metrics.rowid FROM metrics JOIN runs USING (run_uuid)"
            " WHERE status = 'FINISHED' AND lifecycle_stage = 'active' AND key = 'val_accuracy'"
            " ORDER BY start_time LIMIT 1)"
        )
        connection.commit()
    with Store.open(str(tmp_path / "second.sqlite"), tmp_path / "second") as second:
        after = import_runs(other, store=second).sources[0]
    assert after.left_out == before.left_out | {"values of metrics that cannot be read": 1}
    assert after.num_added == before.num_added


def test_a_unique_column_tells_runs_of_the_same_name_apart(tmp_path: Path, store: Store) -> None:
    # The form of the runs that wandb exports from its pages.
    lines = ("Name,State,ID,lr,val_loss", "base,finished,x1,0.1,0.5", "base,finished,x2,0.2,0.3")
    imported = import_runs(_table(tmp_path / "old.csv", *lines), store=store)

    trials = imported.runs[0].history.trials
    assert [trial.values["val_loss"] for trial in trials.values()] == [0.5, 0.3]
    assert [trial.params["lr"] for trial in trials.values()] == [0.1, 0.2]
    assert any("so ID tells the runs apart" in note for note in imported.sources[0].notes)


def test_curves_of_the_same_name_are_told_apart_by_an_id(tmp_path: Path, store: Store) -> None:
    lines = ("name,id,step,val_loss", "a,7,0,0.9", "a,7,1,0.5", "a,8,0,0.8", "a,8,1,0.6")
    (run,) = import_runs(_table(tmp_path / "old.csv", *lines), store=store).runs
    trials = run.history.trials.values()
    assert [(trial.reports, trial.values["val_loss"]) for trial in trials] == [(2, 0.5), (2, 0.6)]


@pytest.mark.parametrize("step", ["", "epoch", "step"])
def test_results_of_the_same_name_are_runs_of_their_own(
    tmp_path: Path, store: Store, step: str
) -> None:
    heads = ("run", "seed", "lr", "val_loss", *([step] if step else []))
    rows: list[tuple[object, ...]] = [
        (name, seed, lr, loss, *([9] if step else []))
        for name, seed, lr, loss in (
            ("base", 1.0, 0.1, 0.5),
            ("base", 2.0, 0.1, 0.3),
            ("big", 1.0, 0.2, 0.4),
        )
    ]
    path = _write(tmp_path / "old.csv", rows, heads)

    imported = import_runs(path, store=store, metric="val_loss", names={"lr": "params.lr"})

    trials = imported.runs[0].history.trials.values()
    assert [trial.values["val_loss"] for trial in trials] == [0.5, 0.3, 0.4]
    assert [trial.seed for trial in trials] == [1, 2, 1]
    assert any("are runs of their own" in note for note in imported.sources[0].notes)
    _write(path, [*rows, ("big", 2.0, 0.2, 0.2, *([9] if step else []))], heads)
    (again,) = import_runs(path, store=store).sources
    assert (again.num_added, again.num_known, again.left_out) == (1, 3, {})


def test_rows_that_differ_in_metrics_only_are_joined_with_a_note(
    tmp_path: Path, store: Store
) -> None:
    lines = ("run,lr,val_loss", "a,0.1,0.9", "a,0.1,0.5", "b,0.2,0.8", "b,0.2,0.6")
    imported = import_runs(_table(tmp_path / "old.csv", *lines), store=store, metric="val_loss")
    trials = imported.runs[0].history.trials.values()
    assert [(trial.reports, trial.values["val_loss"]) for trial in trials] == [(2, 0.5), (2, 0.6)]
    assert any("are its steps in their order" in note for note in imported.sources[0].notes)


def _lines(*lines: str) -> str:
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "params", "values"),
    [
        (
            _lines("run,width,val_acc", "a,512,91%", 'b,"1,024",93.5%').encode(),
            [{"width": 512}, {"width": 1024}],
            [91.0, 93.5],
        ),
        (
            _lines("run;lr;val_loss", "a;0,1;0,512", "b;0,01;1,25").encode(),
            [{"lr": 0.1}, {"lr": 0.01}],
            [0.512, 1.25],
        ),
        (
            _lines("run|layers|val_loss", "a|64,32|0,5", "b|128,64|0,25").encode(),
            [{"layers": "64,32"}, {"layers": "128,64"}],
            [0.5, 0.25],
        ),
        (
            _lines("sep=;", "run;lr;val_loss", "größe;0.1;0.5", "b;0.2;0.4").encode("utf-16"),
            [{"lr": 0.1}, {"lr": 0.2}],
            [0.5, 0.4],
        ),
        (
            _lines("run,layers,val_acc", 'a,"64,32",0.5', 'b,"128,64",0.4').encode(),
            [{"layers": "64,32"}, {"layers": "128,64"}],
            [0.5, 0.4],
        ),
    ],
)
def test_numbers_are_read_as_people_and_spreadsheets_write_them(
    tmp_path: Path,
    store: Store,
    content: bytes,
    params: list[dict[str, object]],
    values: list[float],
) -> None:
    (tmp_path / "old.csv").write_bytes(content)
    imported = import_runs(tmp_path / "old.csv", store=store)
    trials = imported.runs[0].history.trials.values()
    assert [trial.params for trial in trials] == params
    assert [next(iter(trial.values.values())) for trial in trials] == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"run,val_acc\na,good\nb,0.9_1\n", "column val_acc: line 2 has 'good'"),
        (b"run,val_acc\na,0,91\n", "line 2 has 3 cells, but there are 2 columns"),
        (b"PK\x03\x04\x00\x00run,val_acc\n", "old.csv is"),
        (b"\x80\x81\x00\x01\xff\xfe\x00\x02\x03", "old.csv is not text"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_the_place(
    tmp_path: Path, store: Store, content: bytes, message: str
) -> None:
    (tmp_path / "old.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        import_runs(tmp_path / "old.csv", store=store)
    assert store.runs() == []


def test_a_text_among_the_numbers_of_a_metric_is_counted(tmp_path: Path, store: Store) -> None:
    lines = ("run,lr,val_acc", "a,0.1,0.9", "b,0.2,crashed", "c,0.3,0.8")
    (source,) = import_runs(_table(tmp_path / "old.csv", *lines), store=store).sources
    assert source.left_out == {
        "texts in val_acc, such as 'crashed' in line 3": 1,
        "without val_acc": 1,
    }
    assert source.num_added == 2


def test_an_empty_new_name_is_refused(tmp_path: Path, store: Store) -> None:
    path = _write(tmp_path / "old.csv", _rows(range(4)))
    with pytest.raises(ArgumentError, match="the new name of 'learning_rate' is empty"):
        import_runs(path, store=store, names={"learning_rate": ""})


def test_an_imported_run_offers_only_what_can_be_done(tmp_path: Path, store: Store) -> None:
    rows = (
        f"r{number},{step},{number + 1},{10.0**-number}" for number in range(5) for step in "01"
    )
    lines = ["run,step,val_loss,lr", *rows]
    (run,) = import_runs(_table(tmp_path / "old.csv", *lines), store=store).runs

    luck = describe_luck(run.history)
    assert luck is not None
    assert luck.endswith("in its own program, and import the results")
    assert how_to_widen(run.run_id, run.history) is None
    assert [offer["command"] for offer in result_of(run.stored)["commands"]] == [
        f"workbench sweep FILE --warm-start {run.run_id}"
    ]
    judgement = decide(f"{run.run_id}/1", run, store=store)
    assert any("Train it again in its own program" in note for note in judgement.notes)


def test_a_seed_that_is_no_whole_number_is_noted(tmp_path: Path, store: Store) -> None:
    lines = ("run,seed,val_loss", "a,7.0,0.5", "b,first,0.4")
    imported = import_runs(_table(tmp_path / "old.csv", *lines), store=store)
    assert [trial.seed for trial in imported.runs[0].history.trials.values()] == [7, 0]
    assert "1 runs have a seed that is not a whole number. It is stored as 0" in (
        imported.sources[0].notes
    )


def test_trials_of_ray_with_folders_of_the_same_name_are_kept_apart(
    tmp_path: Path, store: Store
) -> None:
    for place, (experiment, loss) in enumerate((("first", 0.5), ("second", 0.3))):
        folder = tmp_path / experiment / "trial_0"
        folder.mkdir(parents=True)
        (tmp_path / experiment / "experiment_state-1.json").write_text('{"trial_data": []}')
        (folder / "params.json").write_text('{"lr": 0.1}')
        row = {"val_loss": loss, "timestamp": 1700000000 + place, "training_iteration": 1}
        (folder / "result.json").write_text(json.dumps({**row, "trial_id": "0"}) + "\n")
    sources = [import_runs(tmp_path / name, store=store).sources[0] for name in ("first", "second")]
    assert [source.num_added for source in sources] == [1, 1]
    assert sources[0].run_id != sources[1].run_id


@pytest.mark.parametrize("step", ["round", "timesteps", "Epoch"])
def test_the_last_value_of_a_curve_counts_whatever_its_steps_are_called(
    tmp_path: Path, store: Store, step: str
) -> None:
    rows = ("a,1,0.1,0.1", "a,2,0.05,0.8", "b,1,0.1,0.9", "b,2,0.05,0.5")
    path = _table(tmp_path / "old.csv", f"run,{step},lr,val_loss", *rows)
    (run,) = import_runs(path, store=store, metric="val_loss").runs
    trials = run.history.trials.values()
    assert [(trial.last_step, trial.values["val_loss"]) for trial in trials] == [(2, 0.8), (2, 0.5)]


def test_garbage_is_looked_for_again_after_an_import(tmp_path: Path, store: Store) -> None:
    rows = [("a", 1, 0.5, 0.6, 0.1, "adam", 0, "x"), ("a", 2, 0.4, 0.5, 0.1, "adam", 0, "x")]
    path = _write(tmp_path / "runs.csv", rows)
    assert gc.isenabled()
    import_runs(path, store=store)
    assert gc.isenabled()
    with pytest.raises(ArgumentError):
        import_runs(path, metric="missing", store=store)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("rows", "num_trials"),
    [
        # Each name has one curve.
        ([("a", 1, 0.1, 0.5), ("a", 2, 0.1, 0.4), ("b", 1, 0.2, 0.6), ("b", 2, 0.2, 0.3)], 2),
        # Rows of one name and one step are results of different settings.
        ([("a", 1, 0.1, 0.5), ("a", 1, 0.2, 0.4), ("b", 1, 0.1, 0.6), ("b", 1, 0.2, 0.3)], 4),
    ],
)
def test_rows_of_one_name_are_a_curve_unless_they_contradict_each_other(
    rows: list[tuple[object, ...]], num_trials: int, tmp_path: Path, store: Store
) -> None:
    path = _write(tmp_path / "runs.csv", rows, ("run", "step", "params.lr", "val_loss"))
    (source,) = import_runs(path, store=store).sources
    assert source.num_added == num_trials
