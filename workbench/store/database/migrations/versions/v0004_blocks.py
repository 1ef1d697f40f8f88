"""Stretches of events again, in a form that is read quickly."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create a table; what there is stays as it is, and runs without blocks are read event by
    event.
    """
    op.create_table(
        "blocks",
        sa.Column("run_key", sa.Integer, sa.ForeignKey("runs.key"), primary_key=True),
        sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Numbers hardly shrink, and would be decompressed at each reading.
        op.execute("ALTER TABLE blocks ALTER COLUMN payload SET STORAGE EXTERNAL")
