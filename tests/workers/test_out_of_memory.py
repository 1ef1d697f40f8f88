from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

HEADROOM_BYTES = 2.5 * 2**30

HOG = """
import time

def hog(config, report):
    report(step=1, loss=0.0)
    kept = []
    while True:
        kept.append(bytearray(b"1") * (100 * 2**20))
        time.sleep(0.05)
"""

MAIN = """
import os, ray
from workbench.experiment import Experiment
from workbench.training import TrialTask
from workbench.workers import head
from workbench.workers.admission import Request
from workbench.workers.gang import Gang
from workbench.workers.origin import Origin
from workbench.workers.pool import connect_pool

head.connect(num_cpus=2)
other = Gang.lease(Request("other"))
experiment = Experiment(train="hog:hog", objectives=[{"metric": "loss", "goal": "minimize"}], search={"x": 1})
task = TrialTask("run", 0, 0, experiment.model_dump_json(), params={"x": 1}, folder=os.path.abspath("run/0"))
gang = Gang.lease(Request("run"))
gang.start(task, origin=Origin.here())
progress = gang.next()
while progress.lost is None:
    progress = gang.next()
print(progress.lost, "|", progress.message)
gang.release()
print(ray.get(connect_pool().status.remote()).leased)
"""


def test_a_worker_that_fills_the_memory_is_lost_to_oom_and_nobody_else_is(tmp_path):
    memory = psutil.virtual_memory()
    if memory.available < 3 * HEADROOM_BYTES:
        pytest.skip("needs three times the memory that the trial fills")
    threshold = 1 - (memory.available - HEADROOM_BYTES) / memory.total
    (tmp_path / "hog.py").write_text(HOG)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)]),
        "WORKBENCH_HOME": str(tmp_path / "home"),
        "RAY_memory_usage_threshold": f"{threshold:.4f}",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    shutdown = "from workbench.workers import head; head.shutdown()"
    try:
        finished = subprocess.run(
            [sys.executable, "-c", MAIN],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        subprocess.run([sys.executable, "-c", shutdown], env=environment, timeout=60, check=True)
    lines = finished.stdout.splitlines()
    assert finished.returncode == 0, finished.stderr
    assert lines[0].startswith("oom | worker ")
    assert lines[0].endswith("memory ran out")
    assert lines[1] == "{'other': 1}"
