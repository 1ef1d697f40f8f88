"""What the store says and keeps when the disk, the file or another process does not play along."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.databases import execute, tables_of
from workbench.experiment import Experiment
from workbench.foundation.errors import StoreError, StoreUnavailableError
from workbench.foundation.events import Noted
from workbench.runs import attach
from workbench.store.database import Store, connection

if TYPE_CHECKING:
    from tests.services.programs import Program

Start = Callable[..., "Program"]


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"this is a letter to my aunt" * 100)
    with pytest.raises(StoreError, match="is damaged or not a store") as caught:
        Store.open(str(path))
    assert "--store" in str(caught.value)


def test_damaged_pages_are_told_when_they_are_read(
    sqlite_path: str, experiment: Experiment
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(*(Noted(level="info", message="x" * 500) for _ in range(200)))
    content = bytearray(Path(sqlite_path).read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    Path(sqlite_path).write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged.*\.recover"), Store.open(sqlite_path) as store:
        store.events(run_id)


def test_a_schema_that_has_rotted_is_refused_although_its_name_cannot_be_decoded(
    sqlite_path: str,
) -> None:
    Store.open(sqlite_path).close()
    content = Path(sqlite_path).read_bytes()
    assert b"CREATE TABLE runs" in content
    Path(sqlite_path).write_bytes(content.replace(b"CREATE TABLE runs", b"CREATE T\xd7BLE ru\xd7s"))
    with pytest.raises(StoreError, match=r"damaged.*\.recover"):
        Store.open(sqlite_path)


def test_text_that_has_rotted_is_refused_in_words(sqlite_path: str, experiment: Experiment) -> None:
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(Noted(level="info", message="rotten"))
    content = Path(sqlite_path).read_bytes()
    assert b"rotten" in content
    Path(sqlite_path).write_bytes(content.replace(b"rotten", b"rot\xff\xffn"))
    with pytest.raises(StoreError, match=r"damaged.*\.recover"), Store.open(sqlite_path) as store:
        store.events(run_id)


def test_a_store_on_a_read_only_disk_can_be_read(
    sqlite_path: str, experiment: Experiment, tmp_path: Path
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "store.sqlite").write_bytes(Path(sqlite_path).read_bytes())
    with _mounted_read_only(disk), Store.open(str(disk / "store.sqlite")) as store:
        assert [row.run_id for row in store.runs()] == [run_id]
        with pytest.raises(StoreUnavailableError, match="cannot be written"):
            store.create_run(experiment)


@contextlib.contextmanager
def _mounted_read_only(path: Path) -> Iterator[None]:
    commands = [["mount", "--bind", path, path], ["mount", "-o", "remount,bind,ro", path]]
    mounted = [
        subprocess.run(command, capture_output=True, check=False).returncode for command in commands
    ]
    try:
        if any(mounted):
            pytest.skip("a file system cannot be mounted here")
        yield
    finally:
        if mounted[0] == 0:
            subprocess.run(["umount", "--lazy", path], check=True)


def test_newer_schema_is_refused(url: str) -> None:
    Store.open(url).close()
    execute(url, "UPDATE workbench_schema SET version_num = '9999'")
    with pytest.raises(StoreError, match="has schema 9999, which is newer than") as caught:
        Store.open(url)
    assert "Update the workbench" in str(caught.value)


def test_database_of_another_program_is_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE runs (name TEXT)")
    with pytest.raises(StoreError, match="another program"):
        Store.open(url)
    assert tables_of(url) == ["runs"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        (
            "mysql://me@host/name",
            "'mysql' is not a supported kind .*; allowed: the path .*, or postgresql",
        ),
        ("://", "is not the address of a store"),
    ],
)
def test_store_that_cannot_be_meant_is_refused(given: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store.open(given)


def test_a_file_that_is_read_must_exist_and_similar_ones_are_named(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "runs.sqlite")).close()
    with pytest.raises(StoreError, match=rf"no store at .*; allowed: {tmp_path}/runs.sqlite"):
        attach("last", store=str(tmp_path / "rnus.sqlite"))
    assert not (tmp_path / "rnus.sqlite").exists()


def test_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Store.open(str(tmp_path))


def test_file_in_place_of_the_folder_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailableError):
        Store.open(str(tmp_path / "file" / "store.sqlite"))


def test_folder_that_cannot_be_written_is_unavailable(start: Start, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    source = """
    import filelock, sqlalchemy.dialects.sqlite
    if os.getuid() == 0:
        os.setuid(65534)  # root may write everywhere
    for path in sys.argv[1:]:
        try:
            Store.open(path)
        except WorkbenchError as error:
            say(f"{type(error).__name__} {'permission' in str(error).lower()}")
    """
    paths = [str(closed / "store.sqlite"), str(closed / "deeper" / "store.sqlite")]
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    assert start(source, *paths).read_words() == ["StoreUnavailableError True"] * 2


def test_locked_database_is_unavailable_and_works_again_afterwards(
    sqlite_path: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.1)
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
        blocker = sqlite3.connect(sqlite_path, isolation_level=None)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(Noted(level="info", message="before"))
            blocker.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError, match="locked"):
                writer.append(Noted(level="info", message="during"))
            assert [stored.seq for stored in store.events(run_id)] == [1]
            blocker.execute("ROLLBACK")
            assert writer.append(Noted(level="info", message="after")) == 2
        blocker.close()
        messages = [event.message for _, event in store.events(run_id) if isinstance(event, Noted)]
        assert messages == ["before", "after"]


def test_full_disk_stores_all_or_nothing_and_recovers(
    start: Start, sqlite_path: str, experiment: Experiment
) -> None:
    store = Store.open(sqlite_path)
    run_id = store.create_run(experiment)
    # The kernel refuses to let the file grow, as it does when the disk is full.
    source = """
    import resource
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    writer = open_writer(sys.argv[1], sys.argv[2])
    batches = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    try:
        for batches in range(1000):
            writer.append(*(note("x" * 1000) for _ in range(10)))
    except WorkbenchError as error:
        kind = type(error).__name__
    seen = len(Store.open(sys.argv[1]).events(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    last = writer.append(note("after"))
    writer.close()
    say(json.dumps([kind, batches, seen, last]))
    """
    kind, batches, seen, last = json.loads(start(source, sqlite_path, run_id).read_word())
    assert kind == "StoreUnavailableError"
    assert 0 < batches < 1000
    assert seen == batches * 10
    assert last == seen + 1
    assert [stored.seq for stored in store.events(run_id)] == list(range(1, last + 1))
    store.close()


def test_object_that_cannot_be_written_leaves_no_run(start: Start, store: Store, url: str) -> None:
    source = """
    import resource
    from workbench.experiment import Experiment
    blob = os.urandom(3_000_000)
    def build(configuration):
        return blob
    objective = {"metric": "a", "goal": "maximize"}
    experiment = Experiment(model=build, data="digits", objectives=[objective])
    store = Store.open(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    try:
        store.create_run(experiment)
    except WorkbenchError as error:
        say(type(error).__name__)
    """
    assert start(source, url).read_words() == ["ArtifactsError"]
    assert store.runs() == []
    assert not store.artifacts.sizes()


def log_of(sqlite_path: str) -> Path:
    return Path(f"{sqlite_path}-wal")


def test_a_log_that_is_removed_while_it_is_open_costs_no_event(
    sqlite_path: str, experiment: Experiment
) -> None:
    with Store.open(sqlite_path) as store, Store.open(sqlite_path) as reader:
        run_id = store.create_run(experiment)
        with store.writer(
            run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=600
        ) as writer:
            writer.append(Noted(level="info", message="1"), Noted(level="info", message="2"))
            assert len(reader.events(run_id)) == 2
            log_of(sqlite_path).unlink()
            with pytest.raises(StoreUnavailableError, match=r"-wal was removed while it was open"):
                writer.append(Noted(level="info", message="refused"))
            assert writer.append(Noted(level="info", message="3")) == 3
            assert len(reader.events(run_id)) == 3
    with Store.open(sqlite_path) as store:
        messages = [event.message for _, event in store.events(run_id) if isinstance(event, Noted)]
    assert messages == ["1", "2", "3"]


def test_events_that_are_gone_are_missed_by_their_writer(
    sqlite_path: str, experiment: Experiment
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
        with store.writer(
            run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=600
        ) as writer:
            writer.append(*(Noted(level="info", message=str(number)) for number in range(3)))
            execute(f"sqlite:///{sqlite_path}", "DELETE FROM events WHERE seq > 1")
            log_of(sqlite_path).unlink()
            with pytest.raises(StoreUnavailableError):
                writer.append(Noted(level="info", message="refused"))
            with pytest.raises(
                StoreError, match=r"has lost events of run .* last one is 1, but 3 were stored"
            ):
                writer.append(Noted(level="info", message="refused"))


def test_a_process_that_comes_while_the_log_is_gone_waits_until_it_is_saved(
    sqlite_path: str, experiment: Experiment
) -> None:
    with Store.open(sqlite_path) as store:
        run_id = store.create_run(experiment)
        with store.writer(
            run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=1.0
        ) as writer:
            writer.append(Noted(level="info", message="1"))
            log_of(sqlite_path).unlink()
            with Store.open(sqlite_path) as late:  # the heartbeat of the writer notices
                assert len(late.events(run_id)) == 1
            assert not writer.lost
