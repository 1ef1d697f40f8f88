"""Runs whose trials are programs, good and hostile ones side by side, with warm workers between
them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.services.sweeps import Sweep
from workbench.experiment import Experiment
from workbench.foundation.events import RunStateChanged
from workbench.store.database import Store

PROGRAM = Path(__file__).parents[1] / "training" / "program.py"
KINDS = ("fails", "nan", "forks", "half", "good")
LOSS = [{"metric": "loss", "goal": "minimize"}]


def sweep_of(store: Store, *arguments: str, **fields: Any) -> Sweep:
    experiment = Experiment(
        **{
            "command": [sys.executable, str(PROGRAM), *arguments],
            "objectives": LOSS,
            "sampler": "grid",
            "resources": {"concurrency": 1, "stop_grace": "1s"},
            **fields,
        }
    )
    return Sweep(store, store.create_run(experiment)).drive()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_hostile_programs_end_their_trial_and_nothing_else(store: Store) -> None:
    run = sweep_of(
        store, "{kind}", "1", search={"kind": {"choices": KINDS}}, early_stop={"pruner": "median"}
    ).wait(timeout_s=150)
    assert run.state == "complete"
    trials = {kind: run.trial_with(kind=kind) for kind in KINDS}
    assert {kind: (trial.state, trial.reason) for kind, trial in trials.items()} == {
        "fails": ("failed", "error"),
        "nan": ("failed", "diverged"),
        "forks": ("complete", None),
        "half": ("complete", None),
        "good": ("complete", None),
    }
    assert trials["fails"].message == "the program ended with status 1: ValueError: boom"
    assert str(trials["fails"].failed_at).startswith(f"{PROGRAM}:")
    assert trials["good"].values["loss"] == 1 / 3
    folder = store.artifacts_of(run.run_id).below(
        f"trials/{trials['forks'].number:05d}/checkpoints"
    )
    pids = [int(folder.read(f"left-{number}")) for number in range(2)]
    assert not any(map(psutil.pid_exists, pids))
    log = (
        store.artifacts_of(run.run_id).below(f"trials/{trials['good'].number:05d}").read("log.txt")
    )
    assert log.splitlines()[-1] == b"epoch=3 loss=0.3333333333333333 - acc: 93%"
    pids = {trial.worker_pids[0] for trial in trials.values()}
    assert len(pids) == 1  # no trial has cost its worker


@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_run_whose_first_trial_never_writes_the_objective_ends(store: Store) -> None:
    run = sweep_of(store, "other", "{x}", search={"x": {"choices": [1, 2, 3, 4]}})
    run.wait("failed", timeout_s=120)
    ended = [event for event in run.events if isinstance(event, RunStateChanged)][-1]
    assert "without writing 'loss'; it wrote: Epoch, Loss" in (ended.message or "")
    assert "that was it" in (ended.message or "")
    assert len(run.history.trials) <= 2
