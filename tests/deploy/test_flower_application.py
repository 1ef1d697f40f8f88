from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import workbench as wb
from tests.benchmarks.federated_rounds import read_rounds
from workbench.data import load
from workbench.deploy.flower.application import CLIENTS, write_application
from workbench.deploy.flower.learning import Aggregation, Learning
from workbench.foundation.errors import RunError
from workbench.foundation.events import Event, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_CLIENTS, NUM_ROUNDS = 4, 2
TRAINS = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, ".")
from federation.learning import Aggregation, Learning
learning, one = Learning(Path("federation")), np.load("clients/client-00001.npz")
update = learning.train(learning.initial(), one["inputs"], one["targets"], number=0, client=1)
updates = [(update.weights, update.num_samples)]
after = Aggregation(learning.settings).step(learning.initial(), updates)
print(update.loss, learning.evaluate(after, one["val_inputs"], one["val_targets"])["loss"])
assert "workbench" not in sys.modules and "flwr" not in sys.modules
"""
CASES: dict[str, dict[str, Any]] = {
    "momentum and proximal": {
        "model": "convnet",
        "federated": {"server": "fedavgm", "server_lr": 0.7, "proximal": 0.05, "local_epochs": 2},
    },
    "adaptive": {
        "model": {"name": "mlp", "options": {"dropout": 0.3}},
        "federated": {"server": "fedyogi"},
        "training": {
            "optimizer": "adamw",
            "weight_decay": 0.1,
            "clip_norm": 1.0,
            "schedule": "cosine",
        },
    },
    "robust": {
        "federated": {"aggregation": "krum"},
        "training": {"parameter_groups": {"bias$": {"lr_factor": 0.5, "weight_decay": 0.0}}},
    },
}


def task(folder: Path, **changes: Any) -> TrialTask:
    federated = {
        "clients": NUM_CLIENTS,
        "fraction": 1.0,
        "partition": {"dirichlet": 0.3},
        **changes.get("federated", {}),
    }
    experiment = wb.Experiment(
        model=changes.get("model", "mlp"),
        data="digits",
        seed=3,
        federated=federated,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": {"value": 0.05}},
        training={
            "epochs": NUM_ROUNDS,
            "global_batch": 96,
            "reference_batch": 96,
            "optimizer": "sgd",
            **changes.get("training", {}),
        },
    )
    return TrialTask(
        "flower",
        0,
        0,
        experiment.model_dump_json(),
        params={"lr": 0.05},
        seed=3,
        folder=str(folder),
    )


def rounds_of(one: TrialTask) -> list[dict[str, float]]:
    values: list[dict[str, float]] = []

    def report(event: Event) -> bool:
        if isinstance(event, TrialReported):
            values.append(dict(event.values))
        return False

    assert run_trial(one, report).reason is None
    return values


def rounds_in(folder: Path) -> list[dict[str, float]]:
    """Return what an application measures in its rounds."""
    learning = Learning(folder / "federation")
    aggregation, weights = Aggregation(learning.settings), learning.initial()
    clients = [dict(np.load(path)) for path in sorted((folder / CLIENTS).iterdir())]
    rounds = []
    for number in range(learning.settings["rounds"]):
        updates = [
            learning.train(
                weights, member["inputs"], member["targets"], number=number, client=client
            )
            for client, member in enumerate(clients)
        ]
        weights = aggregation.step(
            weights, [(update.weights, update.num_samples) for update in updates]
        )
        held = [
            learning.evaluate(weights, member["val_inputs"], member["val_targets"])
            for member in clients
        ]
        sizes = [len(member["val_targets"]) for member in clients]
        losses, trained = zip(*((each.loss, each.num_samples) for each in updates), strict=True)
        means = {
            f"val_{name}": np.average([scores[name] for scores in held], weights=sizes)
            for name in held[0]
        }
        rounds.append({"train_loss": np.average(losses, weights=trained), **means})
    return rounds


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_application_makes_the_rounds_of_its_trial(tmp_path: Path, case: str) -> None:
    one = task(tmp_path / "trial", **CASES[case])
    write_application(tmp_path / "app", one, "digits")

    found, expected = rounds_in(tmp_path / "app"), rounds_of(one)

    assert len(found) == len(expected) == NUM_ROUNDS
    for ours, theirs in zip(expected, found, strict=True):
        assert theirs == pytest.approx({name: ours[name] for name in theirs}, rel=1e-4)


@pytest.mark.slow
def test_an_application_needs_torch_and_numpy_only(tmp_path: Path) -> None:
    write_application(tmp_path, task(tmp_path / "trial"), "digits")

    made = subprocess.run(
        [sys.executable, "-c", TRAINS], check=True, capture_output=True, text=True, cwd=tmp_path
    )

    trained, evaluated = map(float, made.stdout.split())
    assert 0 < evaluated < trained


def test_an_application_holds_the_clients_of_its_trial_and_imports_nothing_else(
    tmp_path: Path,
) -> None:
    write_application(tmp_path, task(tmp_path / "trial"), "digits")

    samples = [dict(np.load(path)) for path in sorted((tmp_path / CLIENTS).iterdir())]
    assert len(samples) == NUM_CLIENTS
    assert sum(len(one["targets"]) for one in samples) == len(load("digits", {}).train)
    imported = set()
    for path in (tmp_path / "federation").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {item.name.partition(".")[0] for item in node.names}
    assert imported <= {*sys.stdlib_module_names, "flwr", "numpy", "torch", "federation"}


def test_a_client_without_samples_changes_nothing(tmp_path: Path) -> None:
    write_application(tmp_path, task(tmp_path / "trial"), "digits")
    learning = Learning(tmp_path / "federation")
    before, held = learning.initial(), dict(np.load(tmp_path / CLIENTS / "client-00000.npz"))
    own = learning.train(before, held["inputs"], held["targets"], number=0, client=0)
    empty = learning.train(before, held["inputs"][:0], held["targets"][:0], number=0, client=1)

    with_it, without = (
        Aggregation(learning.settings).step(
            before, [(update.weights, update.num_samples) for update in updates]
        )
        for updates in ([own, empty], [own])
    )

    assert empty.num_samples == 0
    assert all(np.array_equal(with_it[name], without[name]) for name in before)
    assert any(not np.array_equal(before[name], without[name]) for name in before)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"federated": {"secure": True}}, "SecAgg"),
        ({"training": {"schedule": "plateau"}}, "depends on values that are measured"),
    ],
)
def test_what_flower_cannot_do_is_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RunError, match=problem):
        write_application(tmp_path / "app", task(tmp_path / "trial", **changes), "digits")
    assert not (tmp_path / "app").exists()


@pytest.mark.slow
@pytest.mark.skipif(
    "WORKBENCH_FLOWER" not in os.environ, reason="`make bridges` installs Flower beside"
)
def test_flower_makes_the_rounds_of_the_trial(tmp_path: Path) -> None:
    one = task(tmp_path / "trial", **CASES["momentum and proximal"])
    write_application(tmp_path / "app", one, "digits")
    folder = Path(os.environ["WORKBENCH_FLOWER"]).absolute()
    environment = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    try:
        subprocess.run(
            [
                folder / "flwr",
                "run",
                ".",
                "--stream",
                "--federation-config",
                f"num-supernodes={NUM_CLIENTS}",
                "--run-config",
                f"samples='{tmp_path / 'app' / CLIENTS}' results='{tmp_path / 'results'}'",
            ],
            check=True,
            cwd=tmp_path / "app",
            env=environment,
            timeout=500,
        )
    finally:
        for process in psutil.process_iter(["cmdline"]):  # its server outlives the command
            if str(tmp_path / "home") in " ".join(process.info["cmdline"] or []):
                process.terminate()

    found = json.loads((tmp_path / "results" / "rounds.json").read_text())
    first = rounds_of(one)[0]
    assert found["1"]["loss"] == pytest.approx(first["val_loss"], rel=1e-4)
    assert len(found) == NUM_ROUNDS


@pytest.mark.parametrize(("code", "found"), [(0, None), (0, "{}"), (1, '{"1": {"accuracy": 0.5}}')])
def test_a_simulation_that_ends_without_its_rounds_is_an_error_with_what_it_wrote(
    tmp_path: Path, code: int, found: str | None
) -> None:
    path = tmp_path / "rounds.json"
    if found is not None:
        path.write_text(found)
    done = subprocess.CompletedProcess(
        ["flwr", "run"], code, stdout="starting\nRayOutOfMemory: killed\n"
    )
    with pytest.raises(RuntimeError, match=f"exit code {code}.*(?s:.*)RayOutOfMemory: killed"):
        read_rounds(path, done)


def test_the_rounds_of_a_simulation_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "rounds.json").write_text('{"1": {"accuracy": 0.5}, "2": {"accuracy": 0.7}}')
    done = subprocess.CompletedProcess(["flwr", "run"], 0, stdout="")
    assert [each["accuracy"] for each in read_rounds(tmp_path / "rounds.json", done)] == [0.5, 0.7]
