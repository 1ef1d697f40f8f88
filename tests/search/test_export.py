"""Copies of a study in Optuna's own storages."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError, StoreError
from workbench.store.database.urls import name_driver


def recorded() -> Drive:
    drive = Drive(
        make_experiment(
            search={"x": {"low": 0.0, "high": 1.0}, "layers": {"choices": [[8], [8, 8]]}, "k": 2},
            constraints=[{"metric": "latency", "at_most": 1.0}],
            early_stop={"pruner": "asha"},
        )
    )
    for trial, (loss, latency) in enumerate([(0.1, 0.5), (0.9, 0.5), (0.05, 2.0)]):
        drive.ask()
        stop = drive.report(trial, 1, loss=loss, latency=latency)
        drive.end(trial, "pruned" if stop else "complete")
    drive.ask()
    drive.end(3, "failed", reason="oom")
    drive.ask()
    drive.end(4, "failed", reason="error")
    drive.ask()
    return drive


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal", "postgresql"])
def test_optuna_reads_the_copy(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    path = tmp_path / "copy"
    url = f"sqlite:///{path}" if kind == "sqlite" else str(path)
    if kind == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    drive = recorded()
    drive.rebuilt().export(url, "digits")
    storage = name_driver(url) if kind != "journal" else JournalStorage(JournalFileBackend(url))
    study = optuna.load_study(study_name="digits", storage=storage)
    states = [trial.state for trial in study.trials]
    assert states == [
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.FAIL,
        TrialState.RUNNING,
    ]
    pruned = study.trials[1]
    assert pruned.intermediate_values == {1: 0.9}
    assert pruned.user_attrs["state"] == "pruned"
    if hasattr(optuna.Trial, "set_constraint"):
        assert study.trials[2].constraints == {"latency <= 1.0": 1.0}
    else:
        assert study.trials[2].system_attrs["constraints"] == [1.0, 0.0], "the list of Optuna 4"
    assert study.trials[3].user_attrs["reason"] == "oom"
    assert study.best_trial.number == drive.study.best_trials()[0] == 0
    assert study.best_trial.params["layers"] in ("[8]", "[8, 8]")


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'copy'}"
    study = recorded().study
    study.export(url, "digits")
    with pytest.raises(ExperimentError) as caught:
        study.export(url, "digits")
    assert caught.value.field == "name"


def test_a_storage_that_cannot_be_opened_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        recorded().study.export("nosuch://me:secret@host/db", "digits")
    assert "secret" not in str(caught.value)


def test_a_bare_word_is_neither_a_database_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="neither the URL of a database nor a journal file"):
        recorded().rebuilt().export("nonsense", "digits")
    assert not list(tmp_path.iterdir())
