"""Whom `resume` gives a new driver.

Every run that nobody drives, however shortly its driver is dead.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.recorded_runs import EXPERIMENT, begin
from workbench import Experiment
from workbench.foundation.errors import RunError, UnknownNameError
from workbench.runs import Run
from workbench.store.database import Store

DRIVE = """
import os, signal, socket, sys
from tests.builders.recorded_runs import begin
from workbench.store.database import Store
store, host = Store.open(sys.argv[1]), socket.gethostname()
writer = store.writer(sys.argv[2], owner_pid=os.getpid(), owner_host=host)
writer.append(*begin())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_whose_driver_lives_is_left_to_it(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(Experiment(**EXPERIMENT)))
        with store.writer(
            run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
        ) as writer:
            writer.append(*begin())
            assert run.driven
            # A launcher that there is not would be missed if one were needed.
            assert run.resume(launcher="nowhere") is run


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Run]:
    """A run with a trial under way, whose driver has given up."""
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(Experiment(**EXPERIMENT)))
        with store.writer(
            run.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
        ) as writer:
            writer.append(*begin())
            writer.close(gives_up=True)
        yield run


def test_a_stop_of_a_lost_run_names_the_next_step_and_waits_for_a_driver_that_comes_back(
    lost: Run,
) -> None:
    with pytest.raises(RunError, match=f"its driver is gone.*{lost.run_id}.*resume"):
        lost.stop()
    assert [command.kind for command in lost.store.commands(lost.run_id)] == ["stop"]


def test_a_trial_of_a_lost_run_cannot_be_stopped_later(lost: Run) -> None:
    with pytest.raises(RunError, match=f"trial 0 is not running.*{lost.run_id}.*resume"):
        lost.stop(trial=0)
    assert lost.store.commands(lost.run_id) == []


def test_a_run_whose_driver_was_killed_gets_another_at_once(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(Experiment(**EXPERIMENT)))
        program = [sys.executable, "-c", DRIVE, store.url, run.run_id]
        root = str(Path(__file__).parents[2])
        subprocess.run(
            program, env=os.environ | {"PYTHONPATH": root}, cwd=root, check=False, timeout=120
        )
        assert run.state == "running"
        assert not run.driven
        with pytest.raises(UnknownNameError):
            run.resume(launcher="nowhere")
