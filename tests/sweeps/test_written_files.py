"""Files that trials write are no data, even if their names are in the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.services.sweeps import Sweep
from workbench.experiment import Experiment
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.events import (
    Event,
    Noted,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store
from workbench.sweeps.code_versions import Program, write_origin
from workbench.sweeps.fingerprints import Fingerprints
from workbench.sweeps.ledger import Ledger

SCRIPT = """
import os, sys
rows = len(open(sys.argv[2]).read().split())
print(f"loss={float(sys.argv[1]) * rows}")
number = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(number, os.urandom(100))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "own.py").write_text(SCRIPT)
    (place / "rows.txt").write_text("a b c")
    (place / "model.bin").write_text("of an earlier run")
    monkeypatch.chdir(place)
    return place


def _experiment(**fields: Any) -> Experiment:
    settings: dict[str, Any] = {
        "name": "writes",
        "command": "python own.py {x} rows.txt model.bin",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.5, "high": 1.0}},
        "sampler": "random",
    }
    return Experiment(**settings | fields)


class Driver:
    """Drives trials that do nothing, as far as comparing files goes."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        self.ledger = ledger
        self.notes: list[str] = []
        ledger.listeners.append(self._take_note)
        self.program = Program(ledger, artifacts)
        self.program.begin()
        if self.program._hashing is not None:
            self.program._hashing.join()

    def start(self, *trials: int) -> None:
        for trial in trials:
            self.program.compare()
            if trial not in self.ledger.history.trials:
                params: dict[str, Any] = {"x": 0.5 + trial / 100}
                proposed = TrialProposed(
                    trial=trial, configuration=trial, params=params, seed=trial
                )
                self.ledger.record(proposed)
            attempt = self.ledger.history.trials[trial].attempts
            version = self.program.version_of(self.ledger.history.trials[trial])
            self.program.start(trial)
            self.ledger.record(
                TrialStarted(trial=trial, attempt=attempt, program=version, worker_pids=[1])
            )

    def end(self, trial: int, state: Literal["complete", "pruned"] = "complete") -> None:
        self.program.compare()
        self.end_unseen(trial, state)

    def end_unseen(self, trial: int, state: Literal["complete", "pruned"] = "complete") -> None:
        attempt = self.ledger.history.trials[trial].attempts - 1
        ended = TrialEnded(trial=trial, attempt=attempt, state=state, step=1, values={"loss": 1.0})
        self.ledger.record(ended)
        self.program.end(trial, is_complete=state == "complete")

    def _take_note(self, event: Event) -> None:
        if isinstance(event, Noted):
            self.notes.append(event.message)

    def notes_with(self, part: str) -> list[str]:
        return [note for note in self.notes if part in note]

    @property
    def versions(self) -> list[list[str]]:
        return [event.changed for event in self.ledger.history.programs[1:]]


@pytest.fixture
def place(store: Store, folder: Path) -> Iterator[tuple[Ledger, Artifacts]]:
    run_id = store.create_run(_experiment())
    artifacts = open_artifacts(str(folder.parent / "artifacts"))
    write_origin(artifacts, experiment=store.experiment(run_id))
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        ledger.replay(writer)
        ledger.record(RunStateChanged(state="running"))
        yield ledger, artifacts


@pytest.fixture
def driver(place: tuple[Ledger, Artifacts]) -> Driver:
    return Driver(*place)


def test_what_every_trial_changes_makes_no_version(driver: Driver, folder: Path) -> None:
    for trial in range(4):
        driver.start(trial)
        (folder / "model.bin").write_text(f"of trial {trial}")
        driver.end(trial)
    assert driver.versions == []
    assert len(driver.notes_with("model.bin has changed while trial 0 ran")) == 1


def test_trials_at_once_may_write_one_file(driver: Driver, folder: Path) -> None:
    driver.start(0, 1, 2)
    for trial in (2, 0, 1):
        (folder / "model.bin").write_text(f"of trial {trial}")
        driver.end(trial)
        driver.start(trial + 3)
    for trial in (5, 4, 3):
        (folder / "model.bin").write_text(f"of trial {trial}")
        driver.end(trial)
    assert driver.versions == []


def test_an_edit_after_a_trial_that_left_the_data_alone_counts_at_once(
    driver: Driver, folder: Path
) -> None:
    driver.start(0)
    driver.end(0)
    driver.start(1)
    (folder / "rows.txt").write_text("a b c d")
    driver.end(1)
    assert driver.versions == [["rows.txt"]]
    assert driver.notes_with("rows.txt has changed since the run started")
    driver.start(2)
    assert driver.ledger.history.trials[2].program == 2


def test_trials_that_ended_before_an_edit_was_seen_may_have_read_either_version(
    driver: Driver, folder: Path
) -> None:
    driver.start(0)
    driver.end(0)
    driver.start(1)
    (folder / "rows.txt").write_text("a b c d")
    driver.end_unseen(1)
    driver.start(2)
    assert driver.versions == [["rows.txt"]]
    assert driver.notes_with(". Trial 1 may have read either version")


def test_an_edit_while_the_first_trials_run_counts_once_one_leaves_it_alone(
    driver: Driver, folder: Path
) -> None:
    driver.start(0, 1)
    (folder / "rows.txt").write_text("a b c d")
    driver.end(0)
    assert driver.versions == []
    driver.start(2)
    driver.end(1)  # it ran when the file changed, so this shows nothing
    assert driver.versions == []
    driver.end(2, "pruned")  # it may not have come to where it writes
    assert driver.versions == []
    driver.start(3)
    driver.end(3)
    assert driver.versions == [["rows.txt"]]
    (note,) = driver.notes_with("but trial 3 did not change it")
    assert ". Trials 0 to 3 may have read either version" in note
    fingerprints = driver.program._fingerprints
    path = str(folder / "rows.txt")
    assert fingerprints.hash_at(path, 1) != fingerprints.hash_at(path, 2)


def test_a_file_that_trials_write_only_if_they_are_better_makes_no_version(
    driver: Driver, folder: Path
) -> None:
    for trial in range(5):
        driver.start(trial)
        if trial in (0, 1, 4):
            (folder / "model.bin").write_text(f"of trial {trial}")
        driver.end(trial)
    assert driver.versions == []


def test_an_edit_between_trials_counts_at_once(driver: Driver, folder: Path) -> None:
    (folder / "rows.txt").write_text("a b c d")
    driver.start(0)
    assert driver.versions == [["rows.txt"]]


def test_a_file_that_trials_write_and_somebody_edits_between_them_counts(
    driver: Driver, folder: Path
) -> None:
    driver.start(0)
    (folder / "model.bin").write_text("of trial 0")
    driver.end(0)
    (folder / "model.bin").write_text("of a person")
    driver.start(1)
    assert driver.versions == [["model.bin"]]


def test_a_killed_driver_does_not_make_a_version_of_what_its_trials_wrote(
    place: tuple[Ledger, Artifacts], folder: Path
) -> None:
    first = Driver(*place)
    first.start(0)
    (folder / "model.bin").write_text("of trial 0")
    second = Driver(*place)  # the first one has ended without a word
    second.start(0)
    (folder / "model.bin").write_text("of trial 0 again")
    second.end(0)
    assert second.versions == []
    third = Driver(*place)
    third.start(1)
    (folder / "rows.txt").write_text("a b c d")  # trial 0 has left it alone
    third.end(1)
    assert third.versions == [["rows.txt"]]
    stored = Fingerprints.read(place[1])
    assert stored is not None
    assert stored.unwritten >= {str(folder / "rows.txt")}


def test_what_a_trial_wrote_before_its_start_was_recorded_makes_no_version(
    place: tuple[Ledger, Artifacts], folder: Path
) -> None:
    first = Driver(*place)
    first.start(0)
    (folder / "model.bin").write_text("of trial 0")
    first.end(0)
    first.start(1)
    (folder / "model.bin").write_text("of trial 1")
    first.end(1)
    first.ledger.record(TrialProposed(trial=2, configuration=2, params={"x": 0.75}, seed=2))
    (folder / "model.bin").write_text("of trial 2, whose driver has been killed")
    second = Driver(*place)
    second.start(2)
    assert second.versions == []


def test_the_file_with_the_metrics_is_no_data(store: Store, folder: Path) -> None:
    (folder / "rows.csv").write_text("loss\n1\n")
    run_id = store.create_run(
        _experiment(command="python own.py {x} rows.csv model.bin", metrics={"csv": "rows.csv"})
    )
    artifacts = open_artifacts(str(folder.parent / "others"))
    write_origin(artifacts, experiment=store.experiment(run_id))
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        ledger.replay(writer)
        stamps = Driver(ledger, artifacts).program._fingerprints.stamps
    names = {Path(path).name for path in stamps}
    assert "model.bin" in names
    assert "rows.csv" not in names


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_real_trials_at_once_that_write_one_file_are_compared(store: Store, folder: Path) -> None:
    experiment = _experiment(budget={"trials": 6}, resources={"concurrency": 2})
    run_id = store.create_run(experiment)
    Sweep(store, run_id).launch("inline").wait("complete")
    run = Run(store, run_id)
    assert [trial.program for trial in run.history.trials.values()] == [1] * 6
    (folder / "rows.txt").write_text("a b c d")
    run.extend(trials=1, launcher="inline")
    assert run.history.trials[6].program == 2
    assert run.history.programs[1].changed == ["rows.txt"]
    assert not [
        event
        for event in run.events()
        if isinstance(event, Noted) and event.level == "warning" and "model.bin" in event.message
    ]
