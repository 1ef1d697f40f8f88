"""`pip install tuning-workbench` without extras checks and submits experiments, and it shows and
exports runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders.installations import installed_with
from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from workbench.cli.doctor import find_packages
from workbench.experiment import Experiment
from workbench.foundation.errors import install_command
from workbench.store.database import Store
from workbench.version import DISTRIBUTION

COMMANDS = """
import contextlib, io, json, sys
from workbench.cli.entry import run_command
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
FILE = """
name: small
train: small_function:train
objectives: [{metric: loss, goal: minimize}]
search: {lr: {low: 0.001, high: 0.1, log: true}}
budget: {trials: 2}
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Run]:
    """Run commands in a process that can import only the packages that a light installation has."""
    environment = {
        **installed_with([DISTRIBUTION], tmp_path),
        "WORKBENCH_HOME": str(tmp_path / "home"),
        "WORKBENCH_STORE": str(tmp_path / "store.sqlite"),
        "WORKBENCH_CACHE": str(tmp_path / "cache"),
    }
    (tmp_path / "code").mkdir()

    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        cwd=tmp_path / "code",
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def run(*words: object) -> tuple[int, str, str]:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([str(word) for word in words]), file=process.stdin, flush=True)
        code, out, err = json.loads(process.stdout.readline())
        return code, out, err

    with process:
        yield run


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        append(
            store,
            run_id,
            [*begin(-10), *trial_events(0, at_s=-9), *trial_events(1, at_s=-5, lr=0.1)],
        )
    return run_id


def test_runs_are_looked_at_and_exported(light: Run, run_id: str, tmp_path: Path) -> None:
    assert run_id in light("list")[1]
    assert json.loads(light("show", run_id, "--json")[1])["run_id"] == run_id
    assert light("compare", run_id, run_id)[0] == 0
    code, _, problem = light("report", run_id, "--to", tmp_path / "report.html")
    assert code == 0, problem
    assert "val_accuracy" in (tmp_path / "report.html").read_text()
    code, _, problem = light("export", run_id, "--to", tmp_path / "best", "--without-weights")
    assert code == 0, problem
    assert (tmp_path / "best").is_dir()


def test_experiments_are_checked_and_submitted(light: Run, tmp_path: Path) -> None:
    experiment = tmp_path / "code" / "small.yaml"
    experiment.write_text(FILE)
    function = "def train(config, report):\n    report(step=1, loss=1.0)\n"
    (tmp_path / "code" / "small_function.py").write_text(function)
    code, out, problem = light("check", "small.yaml")
    assert code == 0, problem
    assert "is valid" in out

    (tmp_path / "code" / "net.yaml").write_text(json.dumps(EXPERIMENT))
    code, out, problem = light("check", "net.yaml")
    assert code == 0, problem
    assert "no first step was tried" in problem

    code, _, problem = light("submit", "small.yaml", "--address", "http://127.0.0.1:9")
    assert code != 0
    assert "127.0.0.1:9" in problem, "the experiment was ready to be sent"


def test_what_needs_a_part_names_it(light: Run, run_id: str, tmp_path: Path) -> None:
    (tmp_path / "code" / "net.yaml").write_text(json.dumps(EXPERIMENT))
    for words in (("sweep", "net.yaml"), ("advise", "net.yaml"), ("resume", run_id)):
        code, _, problem = light(*words)
        assert code != 0
        assert "this needs ray, which is not installed" in problem, words
        assert install_command("train") in problem

    (tmp_path / "code" / "people.csv").write_text("age,churned\n31,yes\n44,no\n")
    table = {
        "model": "mlp",
        "data": {"name": "table", "path": "people.csv", "target": "churned"},
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    (tmp_path / "code" / "table.yaml").write_text(json.dumps(table))
    code, _, problem = light("check", "table.yaml")
    assert code != 0
    assert "this needs pandas, which is not installed" in problem
    assert install_command("train") in problem

    findings = {
        item["subject"]: item for item in json.loads(light("doctor", "--json")[1])["findings"]
    }
    assert findings["tuning-workbench[train]"]["fix"] == install_command("train")
    assert findings["tuning-workbench[lab]"]["state"] == "missing"
    assert "torch devices" not in findings


def test_the_doctor_names_what_is_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = importlib.metadata.version

    def version(name: str) -> str:
        if name == "scipy":
            raise importlib.metadata.PackageNotFoundError(name)
        return {"torch": "2.8.0+cu128", "optuna": "3.6.1"}.get(name) or versions(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    broken = {
        item.subject: (item.text, item.fix) for item in find_packages() if item.state == "broken"
    }

    assert broken["torch"] == (
        "2.8.0+cu128 is installed (required: >=2.9)",
        "pip install 'torch>=2.9'",
    )
    assert broken["optuna"][0].startswith("3.6.1 is installed (required: <6,>=")
    assert broken["scipy"][0].startswith("not installed (required: >=")
