"""What lies in a database, past the store."""

from __future__ import annotations

import sqlalchemy as sa

from workbench.store.database.urls import resolve_url


def execute(url: str, statement: str, **values: object) -> list[tuple[object, ...]]:
    """Run one statement past the store, and return its rows."""
    engine = sa.create_engine(resolve_url(url))
    try:
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def tables_of(url: str) -> list[str]:
    """Return the tables that a database holds."""
    engine = sa.create_engine(resolve_url(url))
    try:
        return sorted(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()
