"""The script that alembic runs for a migration, in the store's connection and transaction."""

from __future__ import annotations

from alembic import context

from workbench.store.database.tables import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
