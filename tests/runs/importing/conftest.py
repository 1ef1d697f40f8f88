"""Files of other tools, which the tools themselves have written, and a store for their runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.store.database import Store

WRITTEN = Path(__file__).parent / "written"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite"), tmp_path / "artifacts") as opened:
        yield opened


def database(folder: Path, name: str) -> Path:
    """Return a SQLite file with the rows that a tool has written."""
    path = folder / f"{name}.db"
    connection = sqlite3.connect(path)
    connection.executescript((WRITTEN / f"{name}.sql").read_text())
    connection.commit()
    connection.close()
    return path
