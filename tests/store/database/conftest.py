"""What the tests of the store share.

A store, an experiment, and programs that run beside the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services.programs import Program
from workbench.experiment import Experiment
from workbench.store.database import Store


@pytest.fixture
def sqlite_path(tmp_path: Path) -> str:
    """Where a test has a SQLite file, for what only files suffer."""
    return str(tmp_path / "store.sqlite")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of every kind that there is."""
    return request.getfixturevalue("sqlite_path" if request.param == "sqlite" else "postgresql_url")


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
        programs.append(Program(source, arguments))
        return programs[-1]

    yield start_program
    for program in programs:
        program.end()
