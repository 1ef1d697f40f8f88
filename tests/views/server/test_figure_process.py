"""Figures and reports come from a process that may be gone, die or idle, without those who ask
noticing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.builders.recorded_runs import record_run
from tests.services.waiting import wait_until
from workbench.foundation.errors import RunError
from workbench.store.database import Store
from workbench.store.database.labels import set_chosen
from workbench.views.live_feed import analysis
from workbench.views.live_feed.feed import Feed
from workbench.views.server import figure_process
from workbench.views.server.figure_process import FigureRenderer


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    return record_run(tmp_path)


@pytest.fixture
def drawer(tmp_path: Path) -> Iterator[FigureRenderer]:
    feed = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")))
    made = FigureRenderer(feed)
    yield made
    made.close()
    feed.close()


def pids() -> set[int]:
    pids_seen = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline()):
                pids_seen.add(child.pid)
    return pids_seen


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: pid not in pids())


@pytest.mark.slow
def test_a_process_that_died_while_idle_is_replaced(drawer: FigureRenderer, run_id: str) -> None:
    before = pids()
    assert json.loads(drawn(drawer, run_id, "timeline"))["data"]
    (pid,) = pids() - before
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    time.sleep(0.3)  # until it was noticed here
    assert json.loads(drawn(drawer, run_id, "parallel"))["data"]


@pytest.mark.slow
def test_a_choice_by_hand_is_drawn_at_once(
    drawer: FigureRenderer, run_id: str, tmp_path: Path
) -> None:
    assert "Chosen by hand" not in drawer.report(run_id)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        set_chosen(store, run_id, 0)
    assert "Chosen by hand: trial 0" in drawer.report(run_id)


@pytest.mark.slow
def test_a_process_that_dies_while_it_draws_twice_is_an_error_and_the_next_figure_comes(
    drawer: FigureRenderer, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_process, "draw_figure", die)
    with pytest.raises(RunError, match=f"drew timeline of {run_id} ended"):
        drawn(drawer, run_id, "timeline")
    monkeypatch.undo()
    assert json.loads(drawn(drawer, run_id, "timeline"))["data"]


def test_what_takes_long_goes_on_and_is_there_for_a_later_request(
    drawer: FigureRenderer, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_process, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(figure_process, "draw_figure", count_and_wait_for_gate)
    monkeypatch.setenv("TEST_GATE", str(tmp_path / "gate"))
    assert drawer.figure(run_id, "timeline") is None
    assert drawer.figure(run_id, "timeline") is None
    (tmp_path / "gate").touch()
    assert drawn(drawer, run_id, "timeline") == "drawn"
    assert (tmp_path / "gate.count").read_text() == "1"


@pytest.mark.slow
def test_the_process_ends_after_idling_not_while_it_draws(
    drawer: FigureRenderer, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "_IDLE_S", 0.2)
    before = pids()
    assert drawn(drawer, run_id, "timeline")  # takes longer than that
    (pid,) = pids() - before
    wait_until_gone(pid)


def die(*_: str) -> str:
    os._exit(9)


def count_and_wait_for_gate(*_: str) -> str:
    gate = Path(os.environ["TEST_GATE"])
    with gate.with_name("gate.count").open("a") as file:
        file.write("1")
    while not gate.exists():
        time.sleep(0.02)
    return "drawn"


def drawn(drawer: FigureRenderer, run_id: str, name: str) -> str:
    """Ask for a figure until it is there, as a browser does."""
    return wait_until(lambda: drawer.figure(run_id, name), timeout_s=120)
