"""Global random generators of a trial, whichever libraries its process has loaded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
TRIAL = """
import sys
from workbench.experiment import Experiment
from workbench.training.worker_task import TrialTask
from workbench.training.trial import run_trial
experiment = Experiment(train="draws:train", objectives=[{"metric": "drawn", "goal": "maximize"}])
assert "torch" not in sys.modules
for loaded in sys.argv[1:]:
    __import__(loaded)
task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=".", seed=7)
ended = run_trial(task, lambda event: False)
assert ended.state == "complete", ended.traceback
assert "torch" in sys.modules
print(ended.values)
"""
DRAWS = """
def train(config, report):
    import random
    import numpy
    import torch
    import importlib.resources
    assert torch.__spec__.loader is torch.__loader__
    assert importlib.resources.files("torch").joinpath("version.py").is_file()
    drawn, of_numpy = float(torch.rand(1)), float(numpy.random.rand())
    return {"drawn": drawn, "numpy": of_numpy, "python": random.random()}
"""


@pytest.mark.parametrize(
    "loaded", [["numpy"], pytest.param(["numpy", "torch"], marks=pytest.mark.slow)]
)
def test_a_function_draws_the_same_whether_it_loads_torch_or_finds_it_loaded(
    tmp_path: Path, loaded: list[str]
) -> None:
    (tmp_path / "draws.py").write_text(DRAWS)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    command = [sys.executable, "-c", TRIAL, *loaded]
    printed = subprocess.run(
        command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout
    generator = torch.Generator().manual_seed(7)
    expected = {
        "drawn": float(torch.rand(1, generator=generator)),
        "numpy": float(np.random.RandomState(7).rand()),
        "python": random.Random(7).random(),
    }
    assert printed.strip() == str(expected)
