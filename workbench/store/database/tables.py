"""The tables of the newest schema. `migrations/` updates older ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
)
from typing_extensions import Unpack

SCHEMA_VERSION = "0005"
# Not alembic's default name: other programs that use alembic may share the database.
VERSION_TABLE = "workbench_schema"

metadata = MetaData()
# As alembic makes it. It is none of the tables that migrations change.
versions = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

# Other tables refer to a run by this small integer, because a run has up to millions of rows there.
runs = Table(
    "runs",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("run_id", String(120), nullable=False, unique=True),
    Column("name", String(80), nullable=False),
    Column("experiment", Text, nullable=False),
    Column("experiment_hash", String(64), nullable=False),
    Column("created_unix_s", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("changed_unix_s", Double, nullable=False),
    # Always 0: it is computed from the events. Older versions of SQLite cannot drop a column.
    Column("last_seq", BigInteger, nullable=False),
    Column("last_command", Integer, nullable=False),
    Column("lease_token", String(32)),
    Column("lease_timeout_s", Double),
    Column("heartbeat_unix_s", Double),
    Column("owner_pid", Integer),
    Column("owner_host", String(255)),
    Column("owner_process", String(120)),
    # Labels, which users may change at any time.
    Column("tags", Text),
    Column("notes", Text),
    Column("pinned_unix_s", Double),
    Column("archived_unix_s", Double),
    Column("chosen_trial", Integer),
)

events = Table(
    "events",
    metadata,
    Column("run_key", Integer, ForeignKey("runs.key"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("type", String(40), nullable=False),
    Column("trial", Integer),
    Column("payload", Text, nullable=False),
    # Rows are stored in the order in which they are read, and an insert changes one B-tree, not
    # two.
    sqlite_with_rowid=False,
)

blocks = Table(
    "blocks",
    metadata,
    Column("run_key", Integer, ForeignKey("runs.key"), primary_key=True),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)
# Compressed numbers are almost as large, and would be decompressed at each read.
event.listen(
    blocks,
    "after_create",
    sa.DDL("ALTER TABLE blocks ALTER COLUMN payload SET STORAGE EXTERNAL").execute_if(
        dialect="postgresql"
    ),
)

commands = Table(
    "commands",
    metadata,
    Column("run_key", Integer, ForeignKey("runs.key"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("arguments", Text, nullable=False),
    sqlite_with_rowid=False,
)

samples = Table(
    "samples",
    metadata,
    Column("run_key", Integer, ForeignKey("runs.key"), primary_key=True),
    # Samples of one length are stored in order of time, so reading the newest and deleting the
    # oldest is fast.
    Column("span_s", Integer, primary_key=True, autoincrement=False),
    Column("time", Double, primary_key=True, autoincrement=False),
    Column("node", String(80), primary_key=True),
    Column("payload", Text, nullable=False),
    sqlite_with_rowid=False,
)

energy = Table(
    "energy",
    metadata,
    Column("run_key", Integer, ForeignKey("runs.key"), primary_key=True),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("gpu_j", Double),
    Column("cpu_j", Double),
    sqlite_with_rowid=False,
)


def last_seq_of(run_key: Any) -> sa.ColumnElement[int]:
    """Return an expression for the number of the last event of a run, 0 if there is none.

    Args:
        run_key: The key of the run, or a column that contains it.
    """
    newest = (
        sa.select(sa.func.max(events.c.seq)).where(events.c.run_key == run_key).scalar_subquery()
    )
    return sa.func.coalesce(newest, 0).label("last_seq")


def select_events(
    run_key: int, trial: int | Collection[int] | None, types: Collection[str] | None
) -> sa.Select[Unpack[tuple[Any, ...]]]:
    """Return the query for the next `chunk` events of a run after `after`, in their order."""
    c = events.c
    query: sa.Select[Unpack[tuple[Any, ...]]] = sa.select(c.seq, c.type, c.trial, c.time, c.payload)
    query = query.where(c.run_key == run_key, c.seq > sa.bindparam("after"))
    if isinstance(trial, int):
        query = query.where(c.trial == trial)
    elif trial is not None:
        query = query.where(c.trial.in_(list(trial)))
    if types is not None:
        query = query.where(c.type.in_(list(types)))
    return query.order_by(c.seq).limit(sa.bindparam("chunk"))
