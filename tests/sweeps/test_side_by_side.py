"""Several runs at one machine at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from workbench.foundation.events import TrialEnded, TrialStarted
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

PROGRAM = """
import sys
import workbench as wb
name, seed, notes = sys.argv[1:]
experiment = wb.Experiment(
    name=name, train={"name": "sweep_functions:meet", "name_of_sweep": name, "notes": notes},
    objectives=[{"metric": "loss", "goal": "minimize"}], search={"x": {"low": 0.0, "high": 1.0}},
    sampler="random", budget={"trials": 6}, resources={"concurrency": 1}, seed=int(seed),
)
print("ready", flush=True)
sys.stdin.readline()
print(wb.sweep(experiment, wait=True).run_id)
"""


def spans(sweep: Sweep) -> list[tuple[float, float]]:
    """When each trial had its worker."""
    ended = {event.trial: event.time_unix_s for event in sweep.of(TrialEnded)}
    return [(event.time_unix_s, ended[event.trial]) for event in sweep.of(TrialStarted)]


@pytest.mark.slow
def test_runs_that_threads_of_one_process_drive_do_not_disturb_each_other(store: Store) -> None:
    sweeps = [Sweep.create(store, "curve", seed=seed, budget={"trials": 2}) for seed in range(4)]
    threads = [threading.Thread(target=sweep.launch, args=("inline",)) for sweep in sweeps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sweep.state for sweep in sweeps] == ["complete"] * 4
    for sweep in sweeps:
        sweep.assert_sound()


@pytest.mark.slow
def test_two_sweeps_that_start_at_once_both_finish_and_share_the_machine(
    store: Store, ray_head: Path, tmp_path: Path
) -> None:
    (notes := tmp_path / "notes").mkdir()
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    environment = os.environ | {
        "WORKBENCH_STORE": store.url,
        "WORKBENCH_HOME": str(ray_head),
        "PYTHONPATH": path,
    }
    people = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, seed, str(notes)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name, seed in (("ada", "1"), ("bob", "2"))
    ]
    for person in people:
        assert person.stdout is not None
        assert person.stdout.readline() == "ready\n"
    for person in people:
        assert person.stdin is not None
        person.stdin.write("\n")
        person.stdin.flush()
    heard = [person.communicate(timeout=120) for person in people]

    assert [person.returncode for person in people] == [0, 0], heard
    ada, bob = (Sweep(store, out.split()[-1]) for out, _ in heard)
    for sweep in (ada, bob):
        assert [trial.state for trial in sweep.trials] == ["complete"] * 6
        for trial in sweep.trials:
            assert trial.values["loss"] == trial.params["x"]
        sweep.assert_sound()
    assert not {str(trial.params) for trial in ada.trials} & {
        str(trial.params) for trial in bob.trials
    }
    assert any(
        begun < ended_there and begun_there < ended
        for begun, ended in spans(ada)
        for begun_there, ended_there in spans(bob)
    )
