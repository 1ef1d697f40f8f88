from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.services.waiting import wait_until
from workbench.store.database import Store
from workbench.views.live_feed.action_messages import Action
from workbench.views.live_feed.feed import Feed
from workbench.views.server import actions
from workbench.views.server.actions import ActionRunner

LAUNCHER = """
import os, pathlib, time
from workbench.foundation.events import DriverStarted, RunStateChanged

class Launcher:
    def __init__(self, store, address):
        self.store = store

    def start(self, run_id):
        while not (pathlib.Path(__file__).parent / "go").exists():
            time.sleep(0.02)
        with self.store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(DriverStarted(pid=os.getpid(), host="here", num_cpus=1))
            writer.append(RunStateChanged(state="running"))

def train(config, report):
    return config["x"]
"""
EXPERIMENT = """
name: slow
train: "slow_start:train"
objectives: [{metric: loss, goal: minimize}]
search: {x: {low: 1.0, high: 2.0}}
budget: {trials: 1}
resources: {concurrency: 1}
sampler: random
"""


def test_starting_returns_as_soon_as_the_run_is_stored_and_leaves_it_to_its_driver(
    tmp_path: Path, store: Store, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_start.py").write_text(LAUNCHER)
    (tmp_path / "slow.yaml").write_text(EXPERIMENT)
    installed = tmp_path / "slow_start-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: slow_start\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[workbench.launchers]\nslow = slow_start:Launcher\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = actions.command_words

    def with_slow_start(*arguments: Any) -> list[str]:
        return [*words(*arguments), "--launcher", "slow"]

    monkeypatch.setattr(actions, "command_words", with_slow_start)
    feed = Feed(lambda: Store.open(str(store_path)))
    try:
        done = ActionRunner(feed, tmp_path).do(
            Action(kind="start", arguments={"path": "slow.yaml"})
        )
        started = done.run_id
        assert started is not None
        assert store.run(started).state == "waiting"
    finally:
        (tmp_path / "go").touch()
        feed.close()
    wait_until(lambda: store.run(started).state == "running", every_s=0.1)
