"""The schema: every released one still opens, and the tables are what the migrations make."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.services.databases import execute, tables_of
from tests.services.postgresql import Server
from workbench.foundation.errors import StoreError
from workbench.foundation.events import Event, RunStateChanged, TrialEnded, TrialReported
from workbench.foundation.python_values import plain
from workbench.runs.plots.run_data import read_chunks
from workbench.store.database import Command, Store
from workbench.store.database.samples import EnergyRow, read_block, read_energy, read_newest_samples
from workbench.store.database.tables import SCHEMA_VERSION, VERSION_TABLE, metadata
from workbench.store.database.urls import resolve_url
from workbench.store.history import History

# One dump of a real store for each schema and database, made by that version and never changed.
# That of 0005 was made by the five steps of which the first migration now is one.
SCHEMAS = Path(__file__).parent / "schemas"
DUMPS = {
    "sqlite": sorted(SCHEMAS.glob("*.sql")),
    "postgresql": sorted(SCHEMAS.glob("postgresql/*.sql")),
}
NAMED_DUMPS = [
    pytest.param(kind, dump, id=f"{kind}-{dump.stem}")
    for kind, dumps in DUMPS.items()
    for dump in dumps
]


def database_of(kind: str, dump: Path | None, request: pytest.FixtureRequest) -> str:
    """Return the URL of a database that holds a dump, or nothing."""
    if kind == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        url: str = request.getfixturevalue("postgresql_url")
        if dump is not None:
            server.execute(url.rpartition("/")[2], dump.read_text())
        return url
    path: str = request.getfixturevalue("sqlite_path")
    if dump is not None:
        with sqlite3.connect(path) as database:
            database.executescript(dump.read_text())
        database.close()
    return path


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", "workbench.store.database:migrations")
    return config


def read_script() -> ScriptDirectory:
    return ScriptDirectory.from_config(alembic_config())


def migrate(url: str) -> None:
    """Run all migrations, of which a new store needs none."""
    config, engine = alembic_config(), sa.create_engine(resolve_url(url))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


SCHEMA_OF = {
    "sqlite": "SELECT type, name, tbl_name, sql FROM sqlite_master",
    "postgresql": """
        SELECT attrelid::regclass::text, attname, attnum, attlen, attnotnull, attstorage::text,
            format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
        UNION ALL SELECT conrelid::regclass::text, conname, 0, 0, true, contype::text,
            pg_get_constraintdef(oid), '' FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
    """,
}


@pytest.mark.parametrize("kind", DUMPS)
def test_a_new_store_has_the_schema_that_migrations_make(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = database_of(kind, None, request)
    Store.open(url).close()
    created = execute(url, SCHEMA_OF[kind])
    version = execute(url, f"SELECT * FROM {VERSION_TABLE}")
    for table in ("events", "commands", "samples", "energy", "blocks", "runs", VERSION_TABLE):
        execute(url, f"DROP TABLE {table}")
    assert tables_of(url) == []
    migrate(url)
    migrated = execute(url, SCHEMA_OF[kind])
    assert len(created) > len(metadata.tables)

    def in_words(rows: list[tuple[object, ...]]) -> list[str]:
        return sorted(" ".join(str(row).replace("\\n", " ").split()) for row in rows)

    assert in_words(created) == in_words(migrated)
    assert execute(url, f"SELECT * FROM {VERSION_TABLE}") == version == [(SCHEMA_VERSION,)]


def test_newest_revision_is_the_schema_of_this_version() -> None:
    assert read_script().get_heads() == [SCHEMA_VERSION]


@pytest.mark.parametrize("kind", DUMPS)
def test_every_released_schema_has_a_dump(kind: str) -> None:
    assert [path.stem for path in DUMPS[kind]] == sorted(
        revision.revision for revision in read_script().walk_revisions()
    )


@pytest.mark.parametrize(("kind", "dump"), NAMED_DUMPS)
def test_store_of_every_released_schema_opens_with_all_it_held(
    kind: str, dump: Path, request: pytest.FixtureRequest
) -> None:
    with Store.open(database_of(kind, dump, request)) as store:
        run = store.run("last")
        assert (run.run_id, run.state, run.last_seq) == ("frozen-1", "complete", 4)
        assert run.owner == (4242, "old-machine")
        assert (
            run.experiment_hash
            == "996701c2d96e0dbb3d6aba70f3a00e2f58df07ecfb4f83991236bfd21e67f7f9"
        )
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
        assert read_block(store, "frozen-1", 0) is not None
        assert_chunks_hold(store, [running, reported, ended, complete])
        with store.writer("frozen-1", owner_pid=1, owner_host="here") as writer:
            assert writer.append(RunStateChanged(state="running")) == 5
        assert [row.node for row in read_newest_samples(store, "frozen-1")] == ["node-a"]
        assert read_energy(store, "frozen-1") == [EnergyRow(0, 7200.0, None)]
        labels = (("old", "kept"), "From before.\nTwo lines.", True, False)
        assert (run.tags, run.notes, run.pinned, run.archived) == labels
        assert run.chosen_trial == 0
        later = store.create_run(store.experiment("frozen-1"))
        assert store.run("last").run_id == later


def test_a_run_of_the_five_steps_replays_to_an_equal_history(sqlite_path: str) -> None:
    """A run of six trials that was driven, stored and read before the five steps became one."""
    with sqlite3.connect(sqlite_path) as database:
        database.executescript((SCHEMAS / "runs/five-steps.sql").read_text())
    database.close()
    expected = json.loads((SCHEMAS / "runs/five-steps.json").read_text())
    with Store.open(sqlite_path) as store:
        experiment = store.experiment("last")
        events = [event for _, event in store.events("last")]
        assert plain(History.of(experiment, events).to_json()) == expected
        (chunk,) = read_chunks(store, "last")
        in_bulk = History(experiment)
        for step in chunk.rows.steps():
            if isinstance(step, tuple):
                in_bulk.take_reports(*step)
            else:
                in_bulk.apply(step)
        assert plain(in_bulk.to_json()) == expected


def test_a_store_of_an_older_schema_is_refused(url: str) -> None:
    Store.open(url).close()
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '0004'")
    with pytest.raises(StoreError, match="has schema 0004, which is older than") as caught:
        Store.open(url)
    assert "Open it with the version of the workbench that wrote it" in str(caught.value)


def assert_chunks_hold(store: Store, events: list[Event]) -> None:
    """Check what is read in bulk: from a block where the version made one, else from the events."""
    (chunk,) = read_chunks(store, "frozen-1")
    first, read, *last = chunk.rows.steps()
    assert [first, *last] == [events[0], *events[2:]]
    if isinstance(read, tuple):
        trial, reports = read
        assert (trial, reports.numbers["step"].values.tolist()) == (0, [3.0])
        assert math.isnan(reports.values["loss"].values[0])
        assert reports.numbers["time_unix_s"].last() == events[1].time_unix_s
    else:
        assert repr(read) == repr(events[1])


@pytest.mark.parametrize(
    ("kind", "dump"),
    [*NAMED_DUMPS, *(pytest.param(kind, None, id=f"{kind}-new") for kind in DUMPS)],
)
def test_migrations_make_the_tables_of_this_version(
    kind: str, dump: Path | None, request: pytest.FixtureRequest
) -> None:
    url = database_of(kind, dump, request)
    if dump is None:
        migrate(url)
    Store.open(url).close()
    engine = sa.create_engine(resolve_url(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
        if kind == "sqlite":
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


def test_migration_that_fails_halfway_leaves_nothing(url: str) -> None:
    execute(url, "CREATE TABLE commands (in_the_way TEXT)")
    with pytest.raises(StoreError, match=r"commands.* already exists"):
        Store.open(url)
    assert tables_of(url) == ["commands"]
    execute(url, "DROP TABLE commands")
    with Store.open(url) as store:
        assert store.runs() == []
