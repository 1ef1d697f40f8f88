"""Figures and reports come from a process that may be gone, die or idle, without those who ask
noticing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
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
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: pid not in pids())


@pytest.mark.slow
def test_a_process_that_died_while_idle_is_replaced(drawer: FigureRenderer, run_id: str) -> None:
    before = pids()
    assert json.loads(drawer.figure(run_id, "timeline"))["data"]
    (pid,) = pids() - before
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    time.sleep(0.3)  # until it was noticed here
    assert json.loads(drawer.figure(run_id, "parallel"))["data"]


@pytest.mark.slow
def test_a_choice_by_hand_is_drawn_at_once(
    drawer: FigureRenderer, run_id: str, tmp_path: Path
) -> None:
    assert "Chosen by hand" not in drawer.report(run_id)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        set_chosen(store, run_id, 0)
    assert "Chosen by hand: trial 0" in drawer.report(run_id)


def test_a_process_that_dies_while_it_draws_is_an_error_and_the_next_figure_comes(
    drawer: FigureRenderer, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_process, "draw_figure", die)
    with pytest.raises(RunError, match=f"drew timeline of {run_id} ended: try again"):
        drawer.figure(run_id, "timeline")
    monkeypatch.undo()
    assert json.loads(drawer.figure(run_id, "timeline"))["data"]


@pytest.mark.slow
def test_what_takes_too_long_is_ended_and_so_is_what_waited_behind_it(
    drawer: FigureRenderer, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_process, "_TIMEOUT_S", 3.0)
    monkeypatch.setattr(figure_process, "draw_figure", sleep)
    problems: list[str] = []

    def ask(name: str) -> None:
        try:
            drawer.figure(run_id, name)
        except RunError as error:
            problems.append(error.problem)

    asking = [threading.Thread(target=ask, args=(name,)) for name in ("timeline", "parallel")]
    for thread in asking:
        thread.start()
        time.sleep(0.5)
    for thread in asking:
        thread.join(120)
    assert sorted(problems) == [
        f"the process that drew parallel of {run_id} ended: try again",
        f"timeline of {run_id} was not drawn within 3 s",
    ]


def test_the_process_ends_after_idling_not_while_it_draws(
    drawer: FigureRenderer, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_process, "_IDLE_S", 0.2)
    before = pids()
    assert drawer.figure(run_id, "timeline")  # takes longer than that
    (pid,) = pids() - before
    wait_until_gone(pid)


def die(*_: str) -> str:
    os._exit(9)


def sleep(*_: str) -> str:
    time.sleep(60)
    return ""
