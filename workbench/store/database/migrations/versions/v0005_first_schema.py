"""The first schema: runs, their events and commands, and other data of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

# Five steps became this one. It keeps the number of the last, so that stores at 0005 need no step.
revision = "0005"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "runs",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(120), nullable=False, unique=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("experiment_hash", sa.String(64), nullable=False),
        sa.Column("created_unix_s", sa.Double, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_unix_s", sa.Double, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("last_command", sa.Integer, nullable=False),
        sa.Column("lease_token", sa.String(32)),
        sa.Column("lease_timeout_s", sa.Double),
        sa.Column("heartbeat_unix_s", sa.Double),
        sa.Column("owner_pid", sa.Integer),
        sa.Column("owner_host", sa.String(255)),
        sa.Column("owner_process", sa.String(120)),
        sa.Column("tags", sa.Text),
        sa.Column("notes", sa.Text),
        sa.Column("pinned_unix_s", sa.Double),
        sa.Column("archived_unix_s", sa.Double),
        sa.Column("chosen_trial", sa.Integer),
    )
    op.create_table(
        "events",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("trial", sa.Integer),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "commands",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "samples",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("span_s", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, primary_key=True, autoincrement=False),
        sa.Column("node", sa.String(80), primary_key=True),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "energy",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("gpu_j", sa.Double),
        sa.Column("cpu_j", sa.Double),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blocks",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Compressed numbers are almost as large, and would be decompressed at each read.
        op.execute("ALTER TABLE blocks ALTER COLUMN payload SET STORAGE EXTERNAL")
