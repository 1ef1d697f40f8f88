from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.limited_memory import run_with_little_memory

pytestmark = [pytest.mark.ray, pytest.mark.slow]

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
import os, ray, time
from workbench.experiment import Experiment
from workbench.training.worker_task import TrialTask
from workbench.cluster.head import attachment
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers.pool import connect_pool

attachment.connect(num_cpus=2)
other = Gang.lease(Request("other"))
objectives = [{"metric": "loss", "goal": "minimize"}]
text = Experiment(train="hog:hog", objectives=objectives, search={"x": 1}).model_dump_json()
task = TrialTask("run", 0, 0, text, params={"x": 1}, folder=os.path.abspath("run/0"))
gang = Gang.lease(Request("run"))
gang.start(task, origin=Origin.here())
progress = gang.next()
while progress.lost is None:
    progress = gang.next()
print(progress.lost, "|", progress.message)
gang.release()
until_s = time.monotonic() + 120.0
leased = {"run": 1}
while "run" in leased and time.monotonic() < until_s:
    leased = ray.get(connect_pool().status.remote()).leased
    time.sleep(0.1)  # the pool hears of it while it answers others
print(leased)
"""


def test_a_worker_that_fills_the_memory_is_lost_to_oom_and_nobody_else_is(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(HOG)
    told, leased = run_with_little_memory(MAIN, tmp_path)
    assert told.startswith("oom | worker ")
    assert told.endswith("memory ran out")
    assert leased == "{'other': 1}"
