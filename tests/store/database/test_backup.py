"""Backups of stores of either kind, while runs are written, and what is restored from them."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.databases import execute
from workbench.experiment import Experiment
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import ArgumentError, StoreError
from workbench.foundation.events import Noted, RunStateChanged, TrialEnded
from workbench.store.database import Store
from workbench.store.database import backup as backup_module
from workbench.store.database.backup import MANIFEST, back_up, last_backup, read_backup, restore
from workbench.store.database.labels import change_tags, write_notes
from workbench.store.database.run_files import find_moved
from workbench.store.database.samples import Block, keep_block, read_block


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("WORKBENCH_ARTIFACTS", raising=False)


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    with Store.open(url, tmp_path / "files") as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of either kind to restore into."""
    if request.param == "sqlite":
        with Store.open(str(tmp_path / "target.sqlite"), tmp_path / "restored") as opened:
            yield opened
        return
    server = request.getfixturevalue("postgresql")
    name = server.make_database()
    with Store.open(server.url(name), tmp_path / "restored") as opened:
        yield opened
    server.drop_database(name)


def record(store: Store, experiment: Experiment, num_events: int = 3, *, ends: bool = True) -> str:
    """A run with events, a block, labels and files."""
    run_id = store.create_run(experiment)
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        writer.append(RunStateChanged(state="running"))
        for number in range(num_events):
            writer.append(Noted(level="info", message=f"{number} ä \0 caf\udce9"))
        writer.append(
            TrialEnded(trial=0, attempt=0, state="failed", message="no", values={"x": float("nan")})
        )
        keep_block(writer, Block(1, 2, b"\0\x01\xff"))
        if ends:
            writer.append(RunStateChanged(state="complete"))
    change_tags(store, run_id, add=["first"])
    write_notes(store, run_id, "a note")
    place = store.artifacts_of(run_id)
    place.write("trials/00000/checkpoints/last.pt", b"weights of " + run_id.encode())
    place.write("trials/00000/log.txt", b"")
    return run_id


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def content(store: Store, run_id: str) -> dict[str, Any]:
    """All that is kept of a run."""
    row = store.run(run_id)
    place = store.artifacts_of(run_id)
    return {
        "rows": [chunk for rows in store.event_rows(run_id) for chunk in rows],
        "block": read_block(store, run_id, 0),
        "files": {name: place.read(name) for name in place.sizes()},
        "labels": (
            row.name,
            row.tags,
            row.notes,
            row.experiment_hash,
            row.created_unix_s,
            row.state,
        ),
    }


def test_all_runs_are_restored_into_either_kind_of_store(
    store: Store, target: Store, experiment: Experiment, tmp_path: Path
) -> None:
    run_ids = [record(store, experiment) for _ in range(2)]
    record(target, experiment.replace(name="another"))  # its keys are those of the backup
    lines: list[str] = []
    made = back_up(store, tmp_path / "backup", progress=lines.append)
    assert sorted(made.last_seqs) == sorted(run_ids)
    assert read_backup(tmp_path / "backup") == made == last_backup(store.place)
    assert lines
    assert restore(tmp_path / "backup", target) == made
    for run_id in run_ids:
        assert content(target, run_id) == content(store, run_id)
    assert len(target.runs()) == 3


def test_a_backup_opens_as_a_store_of_its_own(
    store: Store, experiment: Experiment, tmp_path: Path
) -> None:
    run_id = record(store, experiment)
    back_up(store, tmp_path / "backup")
    folder = tmp_path / "backup"
    with Store.open(str(folder / "store.sqlite"), folder / "artifacts") as opened:
        assert content(opened, run_id) == content(store, run_id)
    backup_module._verify(folder, backup_module._read_manifest(folder)["files"])


def test_a_run_that_is_written_meanwhile_is_kept_up_to_some_event(
    store: Store, target: Store, experiment: Experiment, tmp_path: Path
) -> None:
    run_id = store.create_run(experiment)
    place = store.artifacts_of(run_id)
    is_over = threading.Event()
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        writer.append(RunStateChanged(state="running"))

        def write() -> None:
            number = 0
            while not is_over.is_set():
                place.write(f"checkpoints/{number % 7}.pt", str(number).encode() * 1000)
                writer.append(
                    Noted(level="info", message=str(number)), Noted(level="info", message="saved")
                )
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            made = back_up(store, tmp_path / "backup")
        finally:
            is_over.set()
            thread.join()
    restore(tmp_path / "backup", target)
    rows = content(target, run_id)["rows"]
    assert rows == content(store, run_id)["rows"][: len(rows)]
    assert len(rows) == made.last_seqs[run_id] > 0
    assert len(rows) % 2 == 1, "events that were stored together are restored together"
    noted = sum(row[1] == "noted" for row in rows) // 2
    for number in range(min(noted, 7)):  # what an event says was saved is there
        assert target.artifacts_of(run_id).exists(f"checkpoints/{number}.pt")
    assert target.run(run_id).state == "lost"
    assert target.run(run_id).owner is None
    with target.writer(run_id, owner_pid=os.getpid(), owner_host="here") as again:
        assert again.append(Noted(level="info", message="resumed")) == len(rows) + 1


def test_files_that_are_deleted_meanwhile_are_kept_where_the_events_know_them(
    store: Store, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record(store, experiment)
    copy_store = backup_module._copy_store

    def delete_afterwards(*arguments: Any) -> dict[str, int]:
        copied = copy_store(*arguments)
        store.artifacts_of(run_id).delete("trials/00000/checkpoints/last.pt")
        store.artifacts_of(run_id).write("late.txt", b"late")
        return copied

    monkeypatch.setattr(backup_module, "_copy_store", delete_afterwards)
    back_up(store, tmp_path / "backup")
    kept = tmp_path / "backup" / "artifacts" / run_id
    assert (kept / "trials" / "00000" / "checkpoints" / "last.pt").is_file()
    assert (kept / "late.txt").is_file()


def test_an_interrupted_backup_has_no_name_and_is_continued(
    store: Store, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = record(store, experiment)
    folder = tmp_path / "backup"
    monkeypatch.setattr(backup_module, "_copy_store", interrupt)
    with pytest.raises(KeyboardInterrupt):
        back_up(store, folder)
    assert not folder.exists()
    with pytest.raises(ArgumentError, match="interrupted: repeat it"):
        read_backup(folder)
    monkeypatch.undo()
    copied: list[str] = []
    copy_file = backup_module._copy_file
    monkeypatch.setattr(
        backup_module, "_copy_file", lambda *given: copied.append(given[1]) or copy_file(*given)
    )
    store.artifacts_of(run_id).write("new.txt", b"new")
    made = back_up(store, folder)
    assert copied == ["new.txt"]
    assert made.num_files == 4
    assert sorted(path.name for path in tmp_path.glob(".backup*")) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder, _: (folder / "store.sqlite").write_bytes(b"x"),
        lambda folder, run_id: (folder / "artifacts" / run_id / "trials/00000/log.txt").write_bytes(
            b"x"
        ),
        lambda folder, run_id: (folder / "artifacts" / run_id / "trials/00000/log.txt").unlink(),
        lambda folder, _: (folder / MANIFEST).write_text("{"),
        lambda folder, _: (folder / MANIFEST).write_text('{"format": 1}'),
        lambda folder, _: (folder / MANIFEST).write_text(
            json.dumps({"format": 9, "runs": {}, "files": {}, "store": "", "created_unix_s": 0})
        ),
        lambda folder, _: (folder / MANIFEST).write_text(
            json.dumps(
                {
                    "format": 1,
                    "runs": {},
                    "files": {"../x": ["", 0]},
                    "store": "",
                    "created_unix_s": 0,
                }
            )
        ),
        lambda folder, _: (folder / MANIFEST).unlink(),
        lambda folder, _: shutil.rmtree(folder),
    ],
)
def test_a_damaged_backup_restores_nothing(
    sqlite_path: str, experiment: Experiment, tmp_path: Path, damage: Any
) -> None:
    with (
        Store.open(sqlite_path) as store,
        Store.open(str(tmp_path / "x" / "target.sqlite")) as target,
    ):
        run_id = record(store, experiment)
        back_up(store, tmp_path / "backup")
        damage(tmp_path / "backup", run_id)
        with pytest.raises(ArgumentError) as caught:
            restore(tmp_path / "backup", target)
        assert caught.value.next_step or "outside" in caught.value.problem
        assert target.runs() == []
        assert target.artifacts.sizes() == {}


def test_nothing_is_overwritten_unless_it_is_allowed(
    store: Store, target: Store, experiment: Experiment, tmp_path: Path
) -> None:
    run_id = record(store, experiment)
    back_up(store, tmp_path / "backup")
    with pytest.raises(ArgumentError, match="contains an earlier backup"):
        back_up(store, tmp_path / "backup")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("")
    for force in (False, True):
        with pytest.raises(ArgumentError, match="is not an earlier backup"):
            back_up(store, tmp_path / "else", force=force)
    other = record(store, experiment)
    assert sorted(back_up(store, tmp_path / "backup", force=True).last_seqs) == sorted(
        [run_id, other]
    )

    restore(tmp_path / "backup", target)
    target.artifacts_of(run_id).write("trials/00000/log.txt", b"changed")
    target.artifacts_of(run_id).write("other.txt", b"new")
    with pytest.raises(StoreError, match="already has 2 runs of the backup"):
        restore(tmp_path / "backup", target)
    restore(tmp_path / "backup", target, force=True)
    for number in (run_id, other):
        assert content(target, number) == content(store, number)
    with (
        target.writer(other, owner_pid=os.getpid(), owner_host="here"),
        pytest.raises(StoreError, match="active run"),
    ):
        restore(tmp_path / "backup", target, force=True)


def test_files_of_another_store_in_the_same_place_are_not_overwritten(
    sqlite_path: str, experiment: Experiment, tmp_path: Path
) -> None:
    with Store.open(sqlite_path, tmp_path / "files") as store:
        run_id = record(store, experiment)
        back_up(store, tmp_path / "backup")
        with Store.open(str(tmp_path / "other.sqlite"), tmp_path / "files") as other:
            restore(tmp_path / "backup", other)  # the files are the same
            assert content(other, run_id) == content(store, run_id)
        store.artifacts_of(run_id).write("trials/00000/log.txt", b"longer by now")
        with Store.open(str(tmp_path / "third.sqlite"), tmp_path / "files") as third:
            with pytest.raises(ArgumentError, match="differs from the file in the backup"):
                restore(tmp_path / "backup", third)
            assert third.runs() == []


def test_a_restore_that_was_interrupted_can_be_repeated(
    store: Store,
    target: Store,
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = record(store, experiment)
    back_up(store, tmp_path / "backup")
    monkeypatch.setattr(
        backup_module, "_insert_rows", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "backup", target)
    assert target.runs() == []
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    restore(tmp_path / "backup", target)
    assert content(target, run_id) == content(store, run_id)


def test_half_written_files_are_not_part_of_a_backup(
    sqlite_path: str, experiment: Experiment, tmp_path: Path
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = record(store, experiment)
        for name in (f".last.pt.{'0' * 32}", ".probe-1", "wanted.txt"):
            (Path(store.artifacts_of(run_id).url) / name).write_text("x")
        back_up(store, tmp_path / "backup")
    kept = {path.name for path in (tmp_path / "backup" / "artifacts" / run_id).iterdir()}
    assert kept == {"trials", "wanted.txt"}


def test_a_copy_of_the_file_alone_would_have_lost_what_a_backup_has(
    sqlite_path: str, experiment: Experiment, tmp_path: Path
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = record(store, experiment, ends=False)
        shutil.copyfile(sqlite_path, tmp_path / "copied.sqlite")
        back_up(store, tmp_path / "backup")
        num_events = store.run(run_id).last_seq
    copied = execute(f"sqlite:///{tmp_path}/backup/store.sqlite", "SELECT count(*) FROM events")
    assert copied == [(num_events,)]


def test_what_an_event_names_is_found_where_the_files_of_its_run_are_now(tmp_path: Path) -> None:
    here, name = open_artifacts(tmp_path / "now" / "run-1"), "trials/00000/checkpoints/best.pt"
    here.write(name, b"weights")
    for shown in (f"{here}/{name}", f"/data/run-1/old/run-1/{name}", f"s3://bucket/run-1/{name}"):
        place, moved = find_moved(here, "run-1", shown)
        assert place.read(moved) == b"weights"
    place, moved = find_moved(here, "run-1", "/data/run-1/trials/00007/best.pt")
    assert f"{place}/{moved}" == "/data/run-1/trials/00007/best.pt"


def test_logs_of_a_run_with_remote_files_survive_when_it_replaces_a_run_with_local_ones(
    sqlite_path: str, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = f"mock:///{tmp_path.name}/runs?unique={tmp_path}"
    with Store.open(sqlite_path, remote) as store:
        run_id = record(store, experiment)
        (store.folder(run_id) / "driver.log").write_text("driving\n")
        back_up(store, tmp_path / "backup")
    with Store.open(str(tmp_path / "local.sqlite"), tmp_path / "restored") as target:
        restore(tmp_path / "backup", target)
        target.artifacts_of(run_id).write("later.txt", b"")
        restore(tmp_path / "backup", target, force=True)
        files = set(target.artifacts_of(run_id).sizes())
    assert files == {"driver.log", "trials/00000/checkpoints/last.pt", "trials/00000/log.txt"}


def test_a_remote_file_may_be_deleted_while_it_is_copied(
    sqlite_path: str, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = f"mock:///{tmp_path.name}/runs?unique={tmp_path}"
    copy_file = backup_module._copy_file

    def delete_first(place: Artifacts, name: str, *others: Any) -> list[Any] | None:
        if name.endswith("last.pt"):
            place.delete(name)
        return copy_file(place, name, *others)

    monkeypatch.setattr(backup_module, "_copy_file", delete_first)
    with Store.open(sqlite_path, remote) as store:
        record(store, experiment)
        assert back_up(store, tmp_path / "backup").num_files == 2
