"""What users write about runs: tags, notes, pins and the archive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns that may be empty; what there is stays as it is."""
    op.add_column("runs", sa.Column("tags", sa.Text))
    op.add_column("runs", sa.Column("notes", sa.Text))
    op.add_column("runs", sa.Column("pinned_unix_s", sa.Double))
    op.add_column("runs", sa.Column("archived_unix_s", sa.Double))
