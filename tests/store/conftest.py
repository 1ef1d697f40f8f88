"""What the tests of the store share: a store, an experiment, and programs that run beside the test."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from workbench.experiment import Experiment
from workbench.store import Store
from workbench.store.urls import resolve_url

PREAMBLE = """
import json, os, signal, sys, time
from workbench.errors import WorkbenchError
from workbench.events import Noted, RunStateChanged, TrialReported
from workbench.store import Store

def note(n):
    return Noted(level="info", message=str(n))

def open_writer(url, run_id, lease_timeout_s=15.0):
    store = Store.open(url)
    return store.writer(run_id, owner_pid=os.getpid(), owner_host="beside", lease_timeout_s=lease_timeout_s)

def say(word):
    print(word, flush=True)
"""


class Program(subprocess.Popen[str]):
    """A program beside the test that says words, one a line."""

    def read_word(self) -> str:
        """Wait for the next word; empty when the program has ended."""
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def read_words(self) -> list[str]:
        """Wait for the end and return all words that are left."""
        return self.communicate(timeout=60)[0].splitlines()

    def tell(self, word: str) -> None:
        """Send a line."""
        assert self.stdin is not None
        self.stdin.write(f"{word}\n")
        self.stdin.flush()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> str:
    """Where a test has a SQLite file, for what only files suffer."""
    return str(tmp_path / "store.sqlite")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of every kind that there is."""
    return request.getfixturevalue("sqlite_path" if request.param == "sqlite" else "postgresql_url")


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


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def experiment() -> Experiment:
    objectives = [{"metric": "val_accuracy", "goal": "maximize"}]
    return Experiment(name="Digits convnet", model="convnet", data="digits", objectives=objectives)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start a Python program beside the test; what is left of it afterwards is killed."""
    programs: list[Program] = []

    def start_program(source: str, *arguments: str) -> Program:
        command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(source), *arguments]
        program = Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        programs.append(program)
        return program

    yield start_program
    for program in programs:
        program.kill()
        program.communicate()
