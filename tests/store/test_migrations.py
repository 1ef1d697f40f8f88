"""The schema: every released one still opens, and the tables are what the migrations make."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from workbench.errors import StoreError
from workbench.events import RunStateChanged, TrialEnded, TrialReported
from workbench.store import Command, Store
from workbench.store.tables import SCHEMA_VERSION, VERSION_TABLE, metadata

# One dump of a real store for each released schema, made by that version and never changed.
DUMPS = sorted((Path(__file__).parent / "schemas").glob("*.sql"))


def read_script() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", "workbench.store:migrations")
    return ScriptDirectory.from_config(config)


def test_newest_revision_is_the_schema_of_this_version() -> None:
    assert read_script().get_heads() == [SCHEMA_VERSION]


def test_every_released_schema_has_a_dump() -> None:
    assert [path.stem for path in DUMPS] == sorted(
        revision.revision for revision in read_script().walk_revisions()
    )


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_store_of_every_released_schema_opens_with_all_it_held(dump: Path, url: str) -> None:
    with sqlite3.connect(url) as database:
        database.executescript(dump.read_text())
    database.close()
    with Store.open(url) as store:
        run = store.run("last")
        assert (run.run_id, run.state, run.last_seq) == ("frozen-1", "complete", 4)
        assert run.owner == (4242, "old-machine")
        assert run.experiment_hash == "996701c2d96e0dbb3d6aba70f3a00e2f58df07ecfb4f83991236bfd21e67f7f9"
        assert store.experiment("frozen-1").search.root["lr"].values() is None
        running, reported, ended, complete = (event for _, event in store.events("frozen-1"))
        assert (running, complete) == (
            RunStateChanged(state="running", time_unix_s=1000.0),
            RunStateChanged(state="complete", time_unix_s=1003.0),
        )
        assert isinstance(reported, TrialReported)
        assert math.isnan(reported.values["loss"])
        assert isinstance(ended, TrialEnded)
        assert ended.values == {"val_accuracy": 0.5}
        (command,) = store.commands("frozen-1")
        assert command == Command(1, "stop", {"trial": 0}, command.time_unix_s)
        with store.writer("frozen-1", owner_pid=1, owner_host="here") as writer:
            assert writer.append(RunStateChanged(state="running")) == 5


@pytest.mark.parametrize("dump", [None, *DUMPS], ids=lambda path: path.stem if path else "new")
def test_migrations_make_the_tables_of_this_version(dump: Path | None, url: str) -> None:
    if dump is not None:
        with sqlite3.connect(url) as database:
            database.executescript(dump.read_text())
        database.close()
    Store.open(url).close()
    engine = sa.create_engine(f"sqlite:///{url}")
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


def test_migration_that_fails_halfway_leaves_nothing(url: str) -> None:
    with sqlite3.connect(url) as database:
        database.execute("CREATE TABLE commands (in_the_way TEXT)")
    database.close()
    with pytest.raises(StoreError, match="table commands already exists"):
        Store.open(url)
    with sqlite3.connect(url) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("commands",)]
        database.execute("DROP TABLE commands")
    database.close()
    with Store.open(url) as store:
        assert store.runs() == []
