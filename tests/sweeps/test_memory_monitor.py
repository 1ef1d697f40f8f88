"""A worker that Ray ends because the machine's memory runs out costs an attempt, not the trial or
the run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.limited_memory import run_with_little_memory

pytestmark = [pytest.mark.ray, pytest.mark.slow]

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
    print(trial.state, trial.attempts, trial.plan.micro_batch, trial.ran_out_of_memory)
"""


def test_trials_that_fill_the_memory_go_on_with_smaller_micro_batches(tmp_path: Path) -> None:
    (tmp_path / "hog.py").write_text(MODEL)
    (tmp_path / "hog.yaml").write_text(EXPERIMENT)
    assert run_with_little_memory(MAIN, tmp_path)[-2:] == ["complete 2 32 True"] * 2
