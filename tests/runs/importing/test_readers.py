"""Each reader understands what its tool has written."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import optuna
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.runs.importing.conftest import WRITTEN, database
from workbench.foundation.errors import ArgumentError
from workbench.runs.importing import mlflow_store
from workbench.runs.importing.formats import FORMATS, read_old_runs, recognize
from workbench.runs.importing.old_runs import (
    OldRun,
    OldRuns,
    are_numbers,
    parse_number,
    parse_text,
)


def _read(place: Path, tool: str | None = None) -> list[OldRuns]:
    return read_old_runs(place, tool, {}, None)


def _curve(run: OldRun, metric: str) -> dict[int, float]:
    return {point.step: point.value for point in run.read_points() if point.metric == metric}


def _by_name(group: OldRuns) -> dict[str, OldRun]:
    return {run.name: run for run in group.runs}


def _check_mlflow(group: OldRuns) -> None:
    runs = _by_name(group)
    assert (group.tool, group.source) == ("mlflow", "digits")
    assert runs["digits-2"].params == {
        "lr": 0.01,
        "optimizer": "adam",
        "seed": 0,
        "width": 64,
        "data_path": "data/digits",
    }
    assert _curve(runs["digits-2"], "val_accuracy") == pytest.approx({0: 0.52, 1: 0.62, 2: 0.72})
    diverged = _curve(runs["nan"], "val_accuracy")
    assert diverged[0] == 0.1
    assert math.isnan(diverged[1])
    assert _curve(runs["nan"], "train_loss") == {1: math.inf}
    assert runs["unfinished"].state == "running"
    assert group.left_out == {"deleted": 1}
    group.close()


def test_a_database_of_mlflow_keeps_nan_and_infinity(tmp_path: Path) -> None:
    (group,) = _read(database(tmp_path, "mlflow"))

    _check_mlflow(group)
    states = Counter(run.state for run in group.runs)
    assert states == {"complete": 7, "failed": 1, "running": 1}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_run_of_mlflow_is_found_without_reading_all_others(
    is_indexed: bool, tmp_path: Path
) -> None:
    path = database(tmp_path, "mlflow")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if is_indexed:
            connection.execute("CREATE INDEX by_run ON metrics (run_uuid, key)")
            connection.commit()
        table = mlflow_store.metrics_by_run(connection)
        assert (table == "metrics") == is_indexed
        query = f"EXPLAIN QUERY PLAN SELECT step FROM {table} WHERE run_uuid = 'a'"
        ((*_, plan),) = connection.execute(query).fetchall()
        assert plan.startswith("SEARCH")
        counts = "SELECT run_uuid, COUNT(*), SUM(step) FROM {} GROUP BY run_uuid"
        copied = connection.execute(counts.format(table)).fetchall()
        assert copied == connection.execute(counts.format("main.metrics")).fetchall()
    before = path.read_bytes()
    (group,) = _read(path)
    _check_mlflow(group)
    assert path.read_bytes() == before


def test_a_folder_of_mlflow_is_read_as_its_database() -> None:
    (group,) = _read(WRITTEN / "mlruns")

    _check_mlflow(group)
    assert len(group.runs) == 4


def test_a_line_of_mlflow_that_was_cut_off_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "mlruns" / "1"
    (folder / "abc" / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").write_text("experiment_id: '1'\nname: cut\nlifecycle_stage: active\n")
    (folder / "abc" / "meta.yaml").write_text("run_id: abc\nstatus: 3\nlifecycle_stage: active\n")
    (folder / "abc" / "metrics" / "loss").write_text("1700000000000 0.5 0\n17000")

    (group,) = _read(tmp_path / "mlruns")

    assert _curve(group.runs[0], "loss") == {0: 0.5}
    assert group.left_out == {"lines of metrics that cannot be read": 1}


def test_logs_of_wandb_are_read_with_configuration_summary_and_exit_code() -> None:
    (group,) = _read(WRITTEN / "wandb")

    runs = _by_name(group)
    assert group.source == "digits"
    assert runs["run-1"].params == {
        "lr": 0.01,
        "optimizer.name": "adam",
        "seed": 0,
        "layers": [32, 16],
    }
    assert _curve(runs["run-1"], "val_loss") == pytest.approx(
        {0: 1.1, 1: 0.6, 2: 1 / 3 + 0.1, 3: 0.35}
    )
    assert runs["run-1"].results == {"params": 1234.0}
    assert runs["run-1"].state == "complete"
    assert (runs["crash"].state, runs["crash"].message) == ("failed", "exit code 1")
    assert math.isnan(_curve(runs["crash"], "val_loss")[0])


def test_event_files_are_read_with_the_hyper_parameters_of_a_nested_folder() -> None:
    (group,) = _read(WRITTEN / "tensorboard")

    runs = _by_name(group)
    assert sorted(runs) == ["run0", "run1", "run2"]
    assert runs["run2"].params == {"lr": 0.001, "optimizer": "adam", "bn": True}
    assert _curve(runs["run2"], "val/loss") == pytest.approx(
        {0: 1.2, 1: 0.7, 2: 1 / 3 + 0.2, 3: 0.45}
    )


def test_event_files_of_splits_and_of_several_curves_belong_to_one_run(tmp_path: Path) -> None:
    writers = pytest.importorskip("tensorboardX")
    for split, value in (("train", 0.9), ("validation", 0.7)):
        with writers.SummaryWriter(str(tmp_path / "keras" / split)) as writer:
            writer.add_scalar("epoch_accuracy", value, 1)
    with writers.SummaryWriter(str(tmp_path / "torch")) as writer:
        writer.add_scalars("loss", {"train": 0.5, "val": 0.6}, 1)

    (group,) = _read(tmp_path)

    runs = _by_name(group)
    assert sorted(runs) == ["keras", "torch"]
    assert _curve(runs["keras"], "validation/epoch_accuracy") == pytest.approx({1: 0.7})
    assert _curve(runs["keras"], "train/epoch_accuracy") == pytest.approx({1: 0.9})
    assert {point.metric for point in runs["torch"].read_points()} == {"loss/train", "loss/val"}


def test_trials_in_folders_called_test_and_dev_are_runs(tmp_path: Path) -> None:
    writers = pytest.importorskip("tensorboardX")
    for name, value in (("test", 0.9), ("dev", 0.7), ("main", 0.5)):
        with writers.SummaryWriter(str(tmp_path / "several" / name)) as writer:
            writer.add_scalar("loss", value, 1)
    for name in ("test", "dev"):
        with writers.SummaryWriter(str(tmp_path / "two" / name)) as writer:
            writer.add_scalar("loss", 0.3, 1)
    for name in ("", "eval"):  # as an Estimator of TensorFlow writes it
        with writers.SummaryWriter(str(tmp_path / "estimator" / name)) as writer:
            writer.add_scalar("loss", 0.2, 1)

    runs = _by_name(_read(tmp_path)[0])

    assert sorted(runs) == [
        *("estimator", "several/dev", "several/main", "several/test", "two/dev", "two/test"),
    ]
    assert _curve(runs["several/test"], "loss") == pytest.approx({1: 0.9})
    assert _curve(runs["estimator"], "eval/loss") == pytest.approx({1: 0.2})


def test_a_project_of_trackio_is_read_and_other_values_are_counted(tmp_path: Path) -> None:
    (group,) = _read(database(tmp_path, "trackio"))

    runs = _by_name(group)
    assert runs["run-0"].params == {"lr": 0.1, "optimizer.name": "sgd", "seed": 0}
    assert _curve(runs["run-0"], "train/loss") == pytest.approx({0: 2.0, 1: 1.0, 2: 2 / 3, 3: 0.5})
    assert math.isnan(_curve(runs["run-2"], "val_loss")[4])
    assert sum(group.left_out.values()) > 0


def _objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    layers = trial.suggest_int("layers", 1, 4)
    if trial.suggest_categorical("optimizer", ["sgd", "adam", None]) == "sgd":
        trial.suggest_float("momentum", 0.5, 0.99)
    for step in range(4):
        trial.report(lr + layers / (step + 1), step)
        if trial.number == 6 and step == 2:
            raise optuna.TrialPruned
    if trial.number == 5:
        raise ValueError("boom")
    return lr if trial.number != 4 else math.inf


@pytest.mark.parametrize("kind", ["database", "journal"])
def test_a_storage_of_optuna_is_read_as_optuna_reads_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"study.{kind}"
    storage: Any = f"sqlite:///{path}"
    if kind == "journal":
        storage = JournalStorage(JournalFileBackend(str(path)))
    study = optuna.create_study(
        storage=storage,
        study_name="digits",
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    study.optimize(_objective, n_trials=9, catch=(ValueError,))
    study.ask()
    study.add_trial(
        optuna.create_trial(
            params={"lr": 0.5},
            distributions={"lr": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)},
            value=0.25,
        )
    )

    (group,) = _read(path)

    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
    assert group.objectives == [("value", "maximize")]
    assert group.search["lr"] == {"low": 1e-4, "high": 1.0, "log": True, "type": "float"}
    assert group.search["layers"] == {"low": 1, "high": 4, "type": "int"}
    assert group.search["optimizer"] == {"choices": ["sgd", "adam", None]}
    for trial, run in zip(study.trials, group.runs, strict=True):
        assert run.params == trial.params
        assert run.state == states[trial.state.name]
        assert run.results.get("value") == trial.value
        assert _curve(run, "value") == trial.intermediate_values
        if trial.datetime_start is not None:
            assert run.begun_unix_s == pytest.approx(trial.datetime_start.timestamp(), abs=1e-3)


def test_a_row_of_a_journal_that_is_being_written_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(path))))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with path.open("a") as file:
        file.write('{"op_code": 4, "wor')

    (group,) = _read(path)

    assert len(group.runs) == 1
    assert sum(group.left_out.values()) == 1


_NEPTUNE = (
    ("sys/name", "string", {"string_value": "first"}),
    ("parameters/lr", "float", {"float_value": 0.1}),
    ("parameters/optimizer", "string", {"string_value": "adam"}),
    ("test/accuracy", "float", {"float_value": 0.8}),
    ("val/loss", "float_series", {"step": Decimal("0.0"), "float_value": 1.0}),
    ("val/loss", "float_series", {"step": Decimal("1.0"), "float_value": 0.5}),
    ("val/loss", "float_series", {"step": Decimal("1.5"), "float_value": 0.4}),
    ("weights", "file", {}),
)


def test_an_export_of_neptune_is_read_by_its_columns(tmp_path: Path) -> None:
    # Source: src/neptune_exporter/model.py of neptune-ai/neptune-exporter
    columns = {
        "project_id": pa.string(),
        "run_id": pa.string(),
        "attribute_path": pa.string(),
        "attribute_type": pa.string(),
        "step": pa.decimal128(18, 6),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "int_value": pa.int64(),
        "float_value": pa.float64(),
        "string_value": pa.string(),
        "bool_value": pa.bool_(),
        "datetime_value": pa.timestamp("ms", tz="UTC"),
    }
    rows = [
        {"project_id": "team/digits", "run_id": "RUN-1", "attribute_path": path}
        | {"attribute_type": kind}
        | values
        for path, kind, values in _NEPTUNE
    ]
    table = pa.Table.from_pylist(rows, schema=pa.schema(columns))
    (tmp_path / "team_digits").mkdir()
    pq.write_table(table, tmp_path / "team_digits" / "RUN-1_part_0.parquet")

    (group,) = _read(tmp_path)

    (run,) = group.runs
    assert (group.source, run.name) == ("team/digits", "first")
    assert run.params == {"lr": 0.1, "optimizer": "adam"}
    assert _curve(run, "val/loss") == {0: 1.0, 1: 0.5, 2: 0.4}  # the places of 0, 1 and 1.5
    assert run.results == {"test/accuracy": 0.8}
    assert group.left_out == {"attributes of the type file": 1}
    assert list(group.notes.values()) == [3]


def test_a_folder_of_ray_tune_is_read_without_its_pickled_values() -> None:
    (group,) = _read(WRITTEN / "ray")

    runs = {run.params["lr"]: run for run in group.runs}
    assert (group.tool, group.source) == ("ray", "digits")
    assert runs[0.1].params == {"lr": 0.1, "model.width": 8, "seed": 0}
    assert _curve(runs[0.1], "val_loss") == pytest.approx({1: 1.1, 2: 0.6, 3: 1 / 3 + 0.1})
    assert _curve(runs[0.1], "info/acc") == pytest.approx({1: 0.0, 2: 0.1, 3: 0.2})
    assert [runs[lr].state for lr in (0.1, 0.01, 10.0)] == ["complete", "complete", "failed"]
    assert runs[10.0].message == "RuntimeError: too large"


def test_trials_of_ray_tune_that_ended_early_count_as_pruned(tmp_path: Path) -> None:
    folder = tmp_path / "ray"
    shutil.copytree(WRITTEN / "ray", folder)
    (short,) = (folder / "digits").glob("*lr=0.0100*")
    lines = (short / "result.json").read_text().splitlines(keepends=True)
    (short / "result.json").write_text(lines[0])

    (group,) = _read(folder)

    states = {run.params["lr"]: run.state for run in group.runs}
    assert states == {0.1: "complete", 0.01: "pruned", 10.0: "failed"}
    assert sum(group.notes.values()) == 1


def test_every_format_is_recognized_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("run,step,val_loss,lr\n0,0,1.0,0.1\n")
    assert recognize(database(tmp_path, "mlflow")) == ["mlflow"]
    assert recognize(database(tmp_path, "trackio")) == ["trackio"]
    assert recognize(WRITTEN / "mlruns") == ["mlflow"]
    assert recognize(WRITTEN / "ray")[0] == "ray"
    assert recognize(WRITTEN / "wandb") == ["wandb"]
    assert recognize(WRITTEN / "tensorboard") == ["tensorboard"]
    assert recognize(tmp_path / "table.csv") == ["csv"]


def test_an_unknown_file_is_refused_with_the_formats(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ArgumentError, match="is not recognized") as caught:
        _read(path)
    assert all(tool in str(caught.value) for tool in FORMATS)
    with pytest.raises(ArgumentError, match="no runs of mlflow"):
        _read(WRITTEN / "wandb", "mlflow")


def test_another_database_is_not_taken_for_one_of_a_tool(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE metrics (name TEXT)")
    connection.commit()
    connection.close()
    assert recognize(path) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("64", 64),
        ("False", False),
        ("007", "007"),
        ("None", None),
        ("1_000", "1_000"),
    ],
)
def test_a_text_becomes_the_value_it_was(text: str, value: object) -> None:
    assert parse_text(text) == value
    assert type(parse_text(text)) is type(value)


_WRITTEN_VALUES = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["", " ", "1_000", "NaN", "-inf", "1,5", "91%", " 2.5 ", "adam", "0x10", "\u0661"]
    ),
)


@given(st.lists(_WRITTEN_VALUES, max_size=5))
def test_texts_are_numbers_together_exactly_if_each_one_is(texts: list[str]) -> None:
    assert are_numbers(texts) == all(parse_number(text) is not None for text in texts)
