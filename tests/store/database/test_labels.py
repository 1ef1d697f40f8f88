"""What users write about runs, which runs of a list match, and what deleting a run leaves."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from workbench.experiment import Experiment
from workbench.foundation.errors import (
    ArgumentError,
    ExperimentError,
    LeaseError,
    RunError,
    RunNotFoundError,
)
from workbench.foundation.events import RunStateChanged
from workbench.store.database import Store
from workbench.store.database.labels import (
    change_tags,
    matching_runs,
    rename,
    set_archived,
    set_chosen,
    set_pinned,
    write_notes,
)
from workbench.store.database.samples import EnergyRow, keep_samples, read_energy
from workbench.store.database.store import delete_run, measure_run
from workbench.store.database.tables import commands, energy, events, runs, samples


def ended_run(store: Store, experiment: Experiment, run_id: str) -> str:
    """Store a run that has ended, with an event, a command, an energy and two files."""
    store.create_run(experiment, run_id=run_id)
    store.command(run_id, "stop", {})
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        states = ("running", "complete")
        writer.append(*(RunStateChanged(state=state, time_unix_s=1000.0) for state in states))
        keep_samples(writer, used=[EnergyRow(0, 1.0, None)])
    files = store.artifacts_of(run_id)
    files.write("trial-0/checkpoint.pt", bytes(1000))
    files.write("report.html", bytes(24))
    return run_id


def test_labels_are_kept_beside_the_events(store: Store, experiment: Experiment) -> None:
    run_id = ended_run(store, experiment, "a")
    before = store.events(run_id)
    assert rename(store, run_id, "  With warm-up ") == "With warm-up"
    assert change_tags(store, run_id, add=["good", "new"]) == ["good", "new"]
    assert change_tags(store, run_id, add=["best", "good"], remove=["new", "never there"]) == [
        "good",
        "best",
    ]
    write_notes(store, run_id, "First.\r\nSecond.\n")
    set_pinned(store, run_id, True)
    set_archived(store, run_id, True)
    set_chosen(store, run_id, 0)

    row = store.run(run_id)
    assert (row.name, row.tags, row.notes) == ("With warm-up", ("good", "best"), "First.\nSecond.")
    assert (row.pinned, row.archived, row.chosen_trial) == (True, True, 0)
    assert store.events(run_id) == before
    assert store.experiment(run_id) == experiment

    assert rename(store, run_id, "") == experiment.name
    change_tags(store, run_id, remove=["good", "best"])
    write_notes(store, run_id, "")
    set_pinned(store, run_id, False)
    set_archived(store, run_id, False)
    set_chosen(store, run_id, None)
    row = store.run(run_id)
    assert row.chosen_trial is None
    assert (row.name, row.tags, row.notes, row.pinned, row.archived) == (
        experiment.name,
        (),
        "",
        False,
        False,
    )


def test_tags_that_several_processes_add_at_once_are_all_kept(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    names = [f"tag-{number}" for number in range(8)]
    threads = [threading.Thread(target=change_tags, args=(store, run_id, [name])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(store.run(run_id).tags) == names


def test_what_cannot_be_a_label_is_refused(store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    for tag in ("", "a,b", "x" * 41, "a\x1b[31m"):
        with pytest.raises(ArgumentError, match="is not a tag"):
            change_tags(store, run_id, add=[tag])
    with pytest.raises(ArgumentError, match="21 tags are too many"):
        change_tags(store, run_id, add=[str(number) for number in range(21)])
    with pytest.raises(ArgumentError, match=r"U\+001B is a control character"):
        write_notes(store, run_id, "red \x1b[31m")
    with pytest.raises(ArgumentError, match="too many"):
        write_notes(store, run_id, "x" * 10_001)
    with pytest.raises(ExperimentError, match="like a path"):
        rename(store, run_id, "../up")
    with pytest.raises(ArgumentError, match="too long"):
        rename(store, run_id, "x" * 81)
    with pytest.raises(RunNotFoundError):
        set_pinned(store, "b", True)
    row = store.run(run_id)
    assert (row.name, row.tags, row.notes) == (experiment.name, (), "")


def test_runs_match_by_words_states_tags_pins_and_the_archive(
    store: Store, experiment: Experiment
) -> None:
    for run_id in ("a", "b", "c", "d"):
        ended_run(store, experiment, run_id)
    change_tags(store, "a", add=["Baseline", "small"])
    change_tags(store, "b", add=["Baseline"])
    write_notes(store, "c", "Learning rate too high")
    set_pinned(store, "a", True)
    set_archived(store, "d", True)

    def found(**query: object) -> list[str]:
        return [row.run_id for row in matching_runs(store.runs(), **query)]  # pyright: ignore

    assert found() == ["a", "c", "b"], "the pinned one, then the newest"
    assert found(tags=["Baseline"]) == ["a", "b"]
    assert found(tags=["Baseline", "small"]) == ["a"]
    assert found(text="baseline") == ["a", "b"]
    assert found(text="rate HIGH") == ["c"]
    assert found(states=["failed"]) == []
    assert found(pinned=True) == ["a"]
    assert found(pinned=True, archive="only") == []
    assert found(archive="only") == ["d"]
    assert found(archive="with") == ["a", "d", "c", "b"]


def test_a_deleted_run_leaves_nothing_and_the_others_everything(
    store: Store, experiment: Experiment
) -> None:
    ended_run(store, experiment, "a")
    ended_run(store, experiment, "b")
    size = measure_run(store, "a")
    assert (size.num_files, size.files_bytes, size.num_events) == (2, 1024, 2)
    assert size.describe().startswith("2 files of 1 KiB, and 2 events of ")

    assert delete_run(store, "a") == size
    assert [row.run_id for row in store.runs()] == ["b"]
    assert not store.artifacts.exists("a")
    with store.database.engine.connect() as connection:
        keys = set(connection.execute(sa.select(runs.c.key)).scalars())
        for table in (events, commands, samples, energy):
            assert set(connection.execute(sa.select(table.c.run_key)).scalars()) <= keys
    assert (measure_run(store, "b"), len(store.commands("b"))) == (size, 1)
    assert len(read_energy(store, "b")) == 1
    with pytest.raises(RunNotFoundError):
        delete_run(store, "a")


def test_a_run_that_is_under_way_or_driven_is_not_deleted(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with pytest.raises(RunError, match=r"is waiting, so it cannot be deleted.*Stop it"):
        delete_run(store, run_id)
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(RunStateChanged(state="running"), RunStateChanged(state="stopped"))
        with pytest.raises(LeaseError, match="is driven by process"):
            delete_run(store, run_id)
    delete_run(store, run_id)
    assert store.runs() == []


def test_a_run_whose_files_cannot_be_removed_is_kept(
    sqlite_path: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with Store.open(sqlite_path) as store:
        ended_run(store, experiment, "a")
        monkeypatch.setattr("shutil.rmtree", refuse)
        with pytest.raises(Exception, match="Permission denied"):
            delete_run(store, "a")
        assert store.run("a").state == "complete"
        assert not store.is_driven("a")
