"""A process that trains imports neither torch's compiler nor its shards where it needs neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, torch
from pathlib import Path
from tests.training.test_trial import run
from workbench.experiment import Experiment, Training
from workbench.training.optimizers import optimizer_factory

COMPILER = "torch._dynamo"

def train(name):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = optimizer_factory(Training(optimizer=name), 0.1)(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        assert torch.is_grad_enabled()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    return model.weight.detach()

objective = {"metric": "val_loss", "goal": "minimize"}
search = {"lr": {"low": 0.001, "high": 0.1}}
settings = {"model": "mlp", "data": "digits", "training": {"epochs": 1}}
experiment = Experiment(**settings, search=search, objectives=[objective])
ended, _ = run(experiment, Path(sys.argv[1]), params={"lr": 0.01})
assert ended.state == "complete", ended.traceback
assert {COMPILER, "sympy", "torch.distributed.tensor"}.isdisjoint(sys.modules)

names = ("sgd", "adamw", "rmsprop")
without = [train(name) for name in names]
assert COMPILER not in sys.modules
import torch._dynamo
assert all(torch.equal(one, train(name)) for one, name in zip(without, names))

compiled = torch.compile(lambda optimizer, x: (optimizer.zero_grad(), x + 1)[1], backend="eager")
optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
assert compiled(optimizer, torch.ones(1)).item() == 2.0
graph_breaks = torch._dynamo.utils.counters["graph_break"]
assert graph_breaks, "the optimizer is still excluded from what is compiled"
"""


def test_a_trial_imports_no_compiler_and_optimizers_stay_out_of_what_is_compiled(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "trial")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
