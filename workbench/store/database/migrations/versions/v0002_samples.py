"""What machines did during a run, and what its trials used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create two tables; what there is stays as it is."""
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
