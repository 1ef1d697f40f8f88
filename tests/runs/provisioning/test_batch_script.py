"""The batch script as Slurm would run it.

Its commands are stood in for, Ray and the run are real.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.provisioning.test_templates import node_of_slurm, rental
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import DriverStarted
from workbench.runs.provisioning.slurm import batch_script
from workbench.store.database import Store

JOB = 4321
# Options of srun end where the first word is none; every "node" is this machine.
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
[ "$1" = getent ] && exec hostname --all-ip-addresses
exec "$@"
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && exec tr ',' '\\n' <<< "$SLURM_JOB_NODELIST"
echo "$@" >> "$SCONTROL_CALLS"
"""

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job of Slurm, with a virtual environment that leads to this Python."""
    commands, environment = tmp_path / "bin", tmp_path / "venv" / "bin"
    commands.mkdir()
    environment.mkdir(parents=True)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    (environment / "activate").write_text(f"export PATH={environment}:$PATH\n")
    programs = {"python": "", "ray": "-m ray.scripts.scripts", "workbench": "-m workbench"}
    for name, words in programs.items():
        (environment / name).write_text(f'#!/bin/bash\nexec {sys.executable} {words} "$@"\n')
        (environment / name).chmod(0o755)
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RAY_", "WORKBENCH_"))
    }
    return kept | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "SLURM_JOB_ID": str(JOB),
        "SCONTROL_CALLS": str(tmp_path / "calls"),
        "WORKBENCH_SLURM_STATE": str(tmp_path / "state"),
    }


def submit(
    folder: Path, job: dict[str, str], epochs: int, trials: int, nodes: int = 1
) -> subprocess.Popen[str]:
    tuned = Experiment(
        name="in-a-job",
        model="mlp",
        data="breast_cancer",
        training={"epochs": epochs, "global_batch": 64},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        budget={"trials": trials},
        search={"lr": {"low": 1e-3, "high": 0.1, "log": True}},
        resources={"concurrency": 1},
    )
    file = folder / "mine.yaml"
    file.write_text(tuned.to_yaml())
    asked = rental(
        machine=node_of_slurm(cpus=1),
        experiment=tuned,
        file=file,
        nodes=nodes,
        store=str(folder / "runs.sqlite"),
        artifacts=str(folder / "artifacts"),
    )
    script = folder / "job.sh"
    script.write_text(batch_script(asked, folder / "venv", "1:00:00", folder=folder))
    return subprocess.Popen(
        ["bash", str(script)],
        env=job | {"SLURM_JOB_NODELIST": ",".join("ab"[:nodes])},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(batch: subprocess.Popen[str], timeout_s: float = 300.0) -> str:
    try:
        return batch.communicate(timeout=timeout_s)[0]
    finally:
        if batch.poll() is None:
            os.killpg(batch.pid, signal.SIGKILL)


def test_a_job_starts_ray_does_the_run_and_leaves_nothing(
    tmp_path: Path, job: dict[str, str]
) -> None:
    said = finish(batch := submit(tmp_path, job, epochs=1, trials=2, nodes=2))
    assert batch.returncode == 0, said
    with Store.open(str(tmp_path / "runs.sqlite")) as store:
        (row,) = store.runs()
        assert row.state == "complete"
        (started,) = store.events(row.run_id, types=["driver_started"])
        assert isinstance(started.event, DriverStarted)
        assert started.event.num_cpus == 2  # one of each node
    assert re.search(r"\b[0-9a-f]{64}\b", said) is None  # the token
    assert list((tmp_path / "state").iterdir()) == []


def test_a_job_whose_time_is_nearly_up_is_queued_again_and_goes_on(
    tmp_path: Path, job: dict[str, str]
) -> None:
    batch = submit(tmp_path, job, epochs=600, trials=5)
    started = tmp_path / "state" / str(JOB) / "run"

    def is_started() -> bool:
        assert batch.poll() is None, finish(batch)
        return started.exists() and bool(started.read_text().strip())

    wait_until(is_started)
    assert (started.parent / "token").stat().st_mode & 0o777 == 0o600
    with Store.open(str(tmp_path / "runs.sqlite")) as store:
        run_id = started.read_text().strip()
        wait_until(lambda: store.events(run_id, types=["checkpoint_saved"], limit=1))
    os.kill(batch.pid, signal.SIGUSR1)
    said = finish(batch)
    assert batch.returncode == 0, said
    assert f"job {JOB} is requeued" in said
    assert Path(job["SCONTROL_CALLS"]).read_text() == f"requeue {JOB}\n"
    again = submit(tmp_path, job, epochs=600, trials=5)
    said = finish(again)
    assert again.returncode == 0, said
    with Store.open(str(tmp_path / "runs.sqlite")) as store:
        (row,) = store.runs()  # the same run went on
        assert row.state == "complete"
        assert len(store.events(row.run_id, types=["driver_started"])) == 2
