"""A worker that Ray ends because the machine's memory runs out costs an attempt, not the trial or the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

HEADROOM_BYTES = 2.5 * 2**30

MODEL = """
import time
import torch
from torch import nn

class Hog(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, inputs):
        kept = []
        while self.training and len(inputs) > 32:
            kept.append(torch.ones(25 * 2**20))
            time.sleep(0.05)
        return self.linear(inputs.flatten(1))
"""

EXPERIMENT = """
name: hog
model: hog:Hog
data: digits
objectives: [{metric: val_accuracy, goal: maximize}]
search: {lr: {low: 0.01, high: 0.1}}
training: {epochs: 1, global_batch: 64}
budget: {trials: 2}
resources: {concurrency: 1, max_retries: 0}
"""

MAIN = """
import workbench as wb
run = wb.sweep("hog.yaml", launcher="inline")
for trial in run.history.trials.values():
    print(trial.state, trial.attempts, trial.plan["micro_batch"], trial.ran_out_of_memory)
"""


def test_trials_that_fill_the_memory_go_on_with_smaller_micro_batches(tmp_path: Path) -> None:
    memory = psutil.virtual_memory()
    if memory.available < 3 * HEADROOM_BYTES:
        pytest.skip("needs three times the memory that the trial fills")
    threshold = 1 - (memory.available - HEADROOM_BYTES) / memory.total
    (tmp_path / "hog.py").write_text(MODEL)
    (tmp_path / "hog.yaml").write_text(EXPERIMENT)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)]),
        "WORKBENCH_HOME": str(tmp_path / "home"),
        "WORKBENCH_STORE": f"sqlite:///{tmp_path}/store.db",
        "RAY_memory_usage_threshold": f"{threshold:.4f}",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    shutdown = "from workbench.workers import head; head.shutdown()"
    try:
        finished = subprocess.run(
            [sys.executable, "-c", MAIN],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    finally:
        subprocess.run([sys.executable, "-c", shutdown], env=environment, timeout=60, check=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-2:] == ["complete 2 32 True"] * 2
