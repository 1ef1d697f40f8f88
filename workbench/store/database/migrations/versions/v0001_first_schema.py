"""The first schema: runs, events, commands."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the three tables."""
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
