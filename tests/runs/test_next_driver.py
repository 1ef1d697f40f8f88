"""Whoever waits for a run goes on waiting while Ray starts another driver in place of one that was
killed.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.store.database.test_store import make_experiment
from workbench.cluster.head import local_head
from workbench.foundation.events import RunStateChanged
from workbench.runs import waiting as waiting_module
from workbench.runs.waiting import NextDriver
from workbench.store.database import RunRow, Store


@pytest.fixture
def rows(tmp_path: Path) -> tuple[RunRow, RunRow]:
    """A run as it was while its driver lived, and after that was killed and its lease has
    expired.
    """
    with (
        Store.open(str(tmp_path / "store.sqlite")) as store,
        subprocess.Popen(["sleep", "60"]) as driver,
    ):
        run_id = store.create_run(make_experiment())
        host = socket.gethostname()
        writer = store.writer(run_id, owner_pid=driver.pid, owner_host=host, lease_timeout_s=0.2)
        writer.append(RunStateChanged(state="running"))
        living = store.run(run_id)
        driver.kill()
        driver.wait()
        writer._closing.set()  # it beats no more, and gives nothing back
        writer._heart.join()
        return living, dataclasses.replace(store.run(run_id), state="lost")


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A head of which the driver was a process, and which is intact as long as this is not
    empty.
    """
    intact = [True]
    monkeypatch.setattr(
        local_head, "record_of_head_of", lambda pid: None if pid == os.getpid() else {}
    )
    monkeypatch.setattr(local_head, "is_intact", lambda record: bool(intact))
    return intact


def test_another_driver_is_awaited_until_the_head_ends(
    rows: tuple[RunRow, RunRow], head: list[bool]
) -> None:
    living, killed = rows
    waiting = NextDriver()
    assert not waiting.is_awaited(living)
    assert waiting.is_awaited(killed)
    assert waiting.is_awaited(killed)
    head.clear()
    assert not waiting.is_awaited(killed)


def test_it_is_awaited_for_minutes_and_not_for_ever(
    rows: tuple[RunRow, RunRow], head: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    living, killed = rows
    waiting = NextDriver()
    monkeypatch.setattr(waiting_module, "PATIENCE_S", 0.0)
    assert [waiting.is_awaited(row) for row in (living, killed)] == [False, False]


def test_no_driver_comes_after_one_that_gave_its_run_back_or_was_no_process_of_the_head(
    rows: tuple[RunRow, RunRow], head: list[bool]
) -> None:
    living, killed = rows
    waiting = NextDriver()
    waiting.is_awaited(living)
    assert not waiting.is_awaited(dataclasses.replace(killed, was_left=True))
    assert killed.owner is not None
    inline = killed.owner._replace(pid=os.getpid())
    assert not waiting.is_awaited(dataclasses.replace(killed, owner=inline))
