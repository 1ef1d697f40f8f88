"""The trial of a run that a user chose by hand."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that may be empty; what there is stays as it is."""
    op.add_column("runs", sa.Column("chosen_trial", sa.Integer))
