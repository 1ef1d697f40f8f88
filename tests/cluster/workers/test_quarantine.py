"""A GPU whose memory others hold gets no trial until it is free, and the run says who holds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.fake_nvml import GIB, H100, FakeNvml
from tests.services.waiting import wait_until

IDLE = H100 | {"memory_used_bytes": GIB // 4, "busy_percent": 0, "processes": ""}
FUNCTION = """
import os
import time

def train(config, report, worker):
    with open(os.environ["TRAINED_ON"], "a") as file:
        file.write(os.environ["CUDA_VISIBLE_DEVICES"] + chr(10))
    while not os.path.exists(os.environ["IS_FREE"]):
        time.sleep(0.1)
    time.sleep(3)
    report(step=1, loss=config["x"] ** 2)
"""
EXPERIMENT = """
name: gpus
train: job:train
objectives: [{metric: loss, goal: minimize}]
search: {x: {low: -1.0, high: 1.0}}
resources: {gpus_per_worker: 1, concurrency: 2}
"""


class Machine:
    """A machine with two GPUs, and a command line on it."""

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.is_free = folder / "is_free"
        self._trained_on = folder / "trained_on"
        self._folder = folder
        self._environment = {
            **os.environ,
            **nvml.environment,
            "PYTHONPATH": f"{Path(__file__).parents[3]}:{folder}",
            "WORKBENCH_HOME": str(folder / "home"),
            "WORKBENCH_STORE": str(folder / "store.sqlite"),
            "WORKBENCH_ARTIFACTS": str(folder / "artifacts"),
            "TRAINED_ON": str(self._trained_on),
            "IS_FREE": str(self.is_free),
        }

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *words],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        return json.loads(self.run("show", "last", "--json"))

    def gpus(self) -> list[str]:
        """Return the GPU of each worker that has begun to train."""
        return self._trained_on.read_text().splitlines() if self._trained_on.exists() else []


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def machine(tmp_path: Path, fake_nvml_library: FakeNvml) -> Iterator[Machine]:
    (tmp_path / "job.py").write_text(FUNCTION)
    machine = Machine(tmp_path, fake_nvml_library)
    yield machine
    machine.run("shutdown")
    fake_nvml_library.play()


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(1, 6), (2, 2)], ids=["alone", "gang"])
def test_trials_avoid_a_gpu_whose_memory_others_hold_until_it_is_free(
    machine: Machine,
    tmp_path: Path,
    fake_nvml_library: FakeNvml,
    holder: subprocess.Popen[bytes],
    counts: tuple[int, int],
) -> None:
    workers, trials = counts
    held = IDLE | {"memory_used_bytes": 30 * GIB, "processes": f"{holder.pid} {30 * GIB}"}
    fake_nvml_library.play(held, IDLE)
    (tmp_path / "job.yaml").write_text(
        f"{EXPERIMENT}plan: {{workers: {workers}}}\nbudget: {{trials: {trials}}}\n"
    )
    machine.run("sweep", "job.yaml", "--detach")
    evidence = f"others hold 30 GiB of GPU GPU-00000000-fake (process {holder.pid} (sleep of "

    wait_until(lambda: evidence in machine.run("show", "last"), every_s=1.0)
    assert machine.gpus() == (["1"] if workers == 1 else [])

    fake_nvml_library.play(IDLE, IDLE)
    machine.is_free.touch()
    wait_until(lambda: machine.status()["state"] != "running", every_s=1.0)
    status = machine.status()
    assert status["state"] == "complete"
    assert [trial["state"] for trial in status["trials"]] == ["complete"] * trials
    assert len(machine.gpus()) == trials * workers
    assert set(machine.gpus()) == {"0", "1"}
