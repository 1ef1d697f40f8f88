"""Whole runs on a real Ray head, by the three ways a person has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from safetensors.numpy import load_file

import workbench as wb
from tests.services.shell import Shell
from tests.services.waiting import wait_until
from workbench.foundation.errors import ExperimentError

pytestmark = pytest.mark.ray

FUNCTION = """
import time
def train(config, report):
    for step in range(1, 4):
        time.sleep(config.get("pause_s", 0))
        if report(step=step, score=(config["x"] - 0.3) ** 2 + 1 / step):
            return
    if config["x"] > config.get("limit", 2):
        raise RuntimeError("x is too large")
"""
EXPERIMENT = """
train: {name: "quadratic:train", limit: 2}
objectives: [{metric: score, goal: minimize}]
search: {x: {low: 0.0, high: 1.0}}
sampler: random
budget: {trials: 3}
"""


@pytest.fixture
def folder(tmp_path: Path, ray_head: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "quadratic.py").write_text(FUNCTION)
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    return tmp_path


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Commands in this process."""
    return Shell(tmp_path, capsys)


def _workbench(*words: str, **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
        **settings,
    )


def _finish(*words: str) -> tuple[int, str, str]:
    process = _workbench(*words)
    out, err = process.communicate(timeout=120)
    # A busy machine takes more than a moment to start a driver, and the command says so.
    shown = [line for line in err.splitlines() if not line.startswith("note: still starting")]
    return process.returncode, out, "\n".join(shown)


def test_a_sweep_from_the_shell_ends_with_its_best_and_a_report(folder: Path) -> None:
    code, out, err = _finish(
        "sweep", "small.yaml", "--set", "seed=3", "--trials", "2", "--name", "mine"
    )

    assert (code, err) == (0, "")
    run = wb.attach()
    assert (run.name, run.state, run.experiment.seed) == ("mine", "complete", 3)
    assert len(run.trials) == 2
    assert run.best is not None
    assert f"trial {run.best.number}" in out
    report = next(line.split()[1] for line in out.splitlines() if line.startswith("report "))
    assert "mine" in Path(report).read_text()


@pytest.mark.slow
def test_detached_runs_are_named_last_on_stdout_and_can_be_followed(folder: Path) -> None:
    code, out, _ = _finish("sweep", "small.yaml", "--detach")
    run_id = out.split()[-1]

    assert code == 0
    assert wb.attach(run_id).run_id == run_id
    code, out, _ = _finish("follow", run_id, "--json")
    assert code == 0
    assert [trial["state"] for trial in json.loads(out)["trials"]] == ["complete"] * 3


@pytest.mark.slow
def test_a_trial_that_raises_is_told_by_the_exit_code(folder: Path) -> None:
    code, out, _ = _finish("sweep", "small.yaml", "--set", "train.limit=0.5")

    assert code == 5
    assert "RuntimeError: x is too large" in out
    assert "RuntimeError: x is too large" in _finish("show", "last")[1]


@pytest.mark.slow
def test_whoever_starts_runs_is_attached_only_meanwhile(folder: Path) -> None:
    # Ray would end a notebook's kernel with the idle head.
    program = (
        "import ray, workbench as wb\n"
        "for _ in range(2):\n"
        "    run = wb.sweep('small.yaml', wait=True)\n"
        "    print(run.state, ray.is_initialized())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("complete False\ncomplete False\n", "")


@pytest.mark.slow
def test_interrupting_a_sweep_leaves_it_alive_and_stop_ends_it(folder: Path) -> None:
    process = _workbench("sweep", "small.yaml", "--set", "train.pause_s=0.5", "--trials", "50")
    assert process.stdout is not None
    while "complete" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)

    assert process.returncode == 130
    run = wb.attach()
    assert f"workbench follow {run.run_id}" in err
    seen = len(run.trials)
    wait_until(lambda: len(run.trials) > seen, every_s=0.2)
    assert run.state == "running"
    assert _finish("stop", "last")[0] == 0
    assert run.wait(timeout_s=120).state == "stopped"
    done = run.trials["state"].tolist()
    code, _, _ = _finish("resume", "last", "--detach")
    assert code == 0
    wait_until(lambda: len(run.trials) > len(done), every_s=0.2)
    run.stop()
    run.wait(timeout_s=120)
    assert run.trials["state"].tolist()[: done.count("complete")] == ["complete"] * done.count(
        "complete"
    )


@pytest.mark.slow
def test_a_run_is_changed_extended_and_replayed_from_the_shell(folder: Path) -> None:
    assert (
        _finish("sweep", "small.yaml", "--set", "train.pause_s=0.3", "--trials", "50", "--detach")[
            0
        ]
        == 0
    )
    run = wb.attach()

    code, out, err = _finish("set", "last", "--concurrency", "1", "--trials", "2", "--time", "1h")
    assert (code, err) == (0, f"To follow the run: workbench follow {run.run_id}")
    assert out.startswith(f"set {run.run_id}: 1 trial at once")
    assert "at most 2 configurations; at most 1 h" in out
    run.wait(timeout_s=120)
    num_trials = len(run.trials)
    assert num_trials < 50
    assert "budget.trials 50 -> 2" in _finish("show", "last")[1]

    extended = json.loads(
        _finish("extend", "last", "--more-trials", "1", "--param", "x=0.125", "--json")[1]
    )
    assert extended["settings"]["budget.trials"] == max(2, num_trials) + 1
    assert len(run.wait(timeout_s=120).trials) == max(2, num_trials) + 1
    assert 0.125 in run.trials["x"].tolist(), "what was asked for was tried first"

    run.wait(timeout_s=120)
    code, out, _ = _finish("extend", "last", "--more-trials", "1")
    assert code == 0
    assert f"{run.name} complete" in out, "a run that has ended is followed"
    assert len(run.wait(timeout_s=0).trials) == max(2, num_trials) + 2
    code, out, _ = _finish("extend", "last", "--more-trials", "1", "--detach")
    assert (code, out.split()[-1]) == (0, run.run_id)
    assert len(run.wait(timeout_s=120).trials) == max(2, num_trials) + 3

    code, out, _ = _finish("replay", "last")
    assert code == 0
    said = f"replay of {run.run_id}: {len(run.trials)} of {len(run.trials)} proposals identical"
    assert f"{said}; largest difference of score 0 (trial 0)" in out
    assert wb.attach().run_id != run.run_id
    assert said in _finish("show", "last")[1]


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["set", "last"], 2, "there is nothing to change. Give at least one of --concurrency"),
        (["set", "last", "--trials", "0"], 2, "--trials"),
        (["set", "last", "--time", "soon"], 2, "--time"),
        (["set", "last", "--concurrency", "many"], 2, "--concurrency"),
        (
            ["extend", "last"],
            2,
            "there is nothing to extend the run by. Give at least one of --more-trials",
        ),
        (["extend", "last", "--more-time", "1h"], 2, "budget.time"),
        (["extend", "last", "--param", "z=1"], 2, "z: this parameter is not searched"),
        (["replay", "last"], 1, "has no proposals to try again"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused_before_it_is_sent(
    tmp_path: Path,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    *,
    words: list[str],
    code: int,
    named: str,
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    with wb.Store.open() as store:
        run_id = store.create_run(wb.Experiment.from_file(tmp_path / "small.yaml"))

    found, out, err = shell(*words)

    assert (found, out) == (code, "")
    assert err.startswith(("error: ", "Usage: "))
    assert "rror: " in err
    assert named in err
    with wb.Store.open() as store:
        assert store.commands(run_id) == []


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["--set", "search.x.low=7"], 2, "search.x.low"),
        (["--set", "budgt.trials=3"], 2, "budgt"),
        (["--set", "train=quadratic:trian"], 2, "train"),
        (["--time", "soon"], 2, "--time"),
        (["--set", "resources.gpus_per_worker=64"], 3, "resources.gpus_per_worker"),
        (["--warm-start", "nobody"], 2, "nobody"),
        (["--launcher", "rays"], 2, "launcher"),
        (["--set", "sampler={name: tpe, options: {n_startup: 3}}"], 2, "sampler.options.n_startup"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_stored(
    folder: Path, shell: Shell, words: list[str], code: int, named: str
) -> None:
    found, out, err = shell("sweep", "small.yaml", *words)

    assert (found, out) == (code, "")
    assert err.startswith(("error: ", "Usage: "))
    assert "rror: " in err
    assert named in err
    assert "Traceback" not in err
    with wb.Store.open() as store:
        assert store.runs() == []


@pytest.mark.slow
def test_a_sweep_from_python_returns_at_once_and_learns_from_earlier_ones(folder: Path) -> None:
    first = wb.sweep("small.yaml", wait=True)
    second = wb.sweep(wb.Experiment.from_file("small.yaml"), warm_start=[first])

    assert second.state in ("waiting", "running", "complete")
    assert second.wait(timeout_s=120).state == "complete"
    priors = [event for event in second.events() if event.type == "prior_trial_added"]
    assert [prior.from_run_id for prior in priors] == [first.run_id] * 3
    other = wb.Experiment.from_file("small.yaml").replace(
        objectives=[{"metric": "y", "goal": "minimize"}]
    )
    with pytest.raises(ExperimentError, match="other objectives"):
        wb.sweep(other, warm_start=[first])


@pytest.mark.slow
def test_an_earlier_run_is_repeated_and_learned_from_by_one_command_in_any_folder(
    folder: Path,
) -> None:
    first = wb.sweep(wb.Experiment.from_file("small.yaml"), wait=True)
    (folder / "elsewhere").mkdir()
    words = ("sweep", "--warm-start", first.run_id, "--set", "train.limit=3", "--trials", "1")
    process = _workbench(*words, cwd=folder / "elsewhere")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    again = wb.attach()
    assert again.experiment == first.experiment.replace(train={"limit": 3}, budget={"trials": 1})
    learned = [command.arguments for command in again.store.commands(again.run_id)]
    assert {"run_id": first.run_id} in learned
    code, _, err = _finish("sweep", "--warm-start", "auto")
    assert code == 2
    assert "FILE: no experiment is given" in err


@pytest.mark.slow
def test_a_function_of_this_process_can_be_swept(folder: Path) -> None:
    def train(config: dict[str, Any], report: Any) -> float:
        return (config["x"] - 0.3) ** 2

    run = wb.sweep(
        {
            "name": "cell",
            "train": train,
            "objectives": [{"metric": "score", "goal": "minimize"}],
            "search": {"x": {"low": 0.0, "high": 1.0}},
            "budget": {"trials": 3},
        },
        wait=True,
    )

    assert run.trials["score"].tolist() == pytest.approx([(x - 0.3) ** 2 for x in run.trials["x"]])


def test_a_mapping_that_is_no_experiment_is_refused(folder: Path) -> None:
    with pytest.raises(ExperimentError, match="objectives"):
        wb.sweep({"train": "quadratic:train"})


@pytest.mark.slow
def test_the_study_can_be_taken_to_optuna(folder: Path) -> None:
    run = wb.sweep("small.yaml", wait=True)

    code, _, _ = _finish("export", "last", "--optuna", "sqlite:///study.db")

    assert code == 0
    study = optuna.load_study(study_name=run.run_id, storage="sqlite:///study.db")
    assert run.best is not None
    assert study.best_value == run.best.values["score"]


@pytest.mark.slow
def test_training_again_from_a_bundle_gives_the_same_result(folder: Path) -> None:
    run = wb.sweep(
        {
            "name": "digits",
            "model": "convnet",
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            "search": {
                "lr": {"low": 1e-3, "high": 0.05, "log": True},
                "width": {"choices": [8, 16]},
            },
            "training": {"epochs": 2, "global_batch": 64},
            "budget": {"trials": 2},
            "seed": 11,
        },
        wait=True,
    )
    bundle = run.export(folder / "best")

    environment = os.environ | {"PATH": _install(folder / "bin")}
    done = subprocess.run([str(bundle / "retrain.sh")], env=environment, timeout=120, check=False)

    assert done.returncode == 0
    again = wb.attach()
    assert again.run_id != run.run_id
    assert run.best is not None
    assert again.best is not None
    assert again.best.values == run.best.values
    weights = load_file(bundle / "weights.safetensors")
    assert sum(array.size for array in weights.values()) > 1000


@pytest.mark.slow
def test_a_bundle_trains_again_wherever_it_is_put(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = "".join(
        f"{index % 7},{index % 5},{2 * (index % 7) - index % 5}\n" for index in range(80)
    )
    (folder / "rows.csv").write_text(f"a,b,y\n{rows}")
    run = wb.sweep(
        {
            "model": "mlp",
            "data": {"name": "table", "path": "rows.csv", "target": "y", "task": "regression"},
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "search": {"lr": {"low": 1e-3, "high": 0.05, "log": True}},
            "training": {"epochs": 1},
            "budget": {"trials": 1},
        },
        wait=True,
    )
    bundle = run.export(tmp_path_factory.mktemp("elsewhere") / "best")

    environment = os.environ | {"PATH": _install(folder / "bin")}
    script = [str(bundle / "retrain.sh")]
    done = subprocess.run(script, env=environment, timeout=120, check=False, cwd=bundle)

    assert done.returncode == 0
    assert run.best is not None
    again = wb.attach().best
    assert again is not None
    assert again.values == run.best.values


def test_a_start_that_fails_leaves_no_run_that_waits(folder: Path) -> None:
    code, _, err = _finish("sweep", "small.yaml", "--address", "127.0.0.1:1")

    assert code == 1
    assert "nothing answers at 127.0.0.1:1" in err
    with wb.Store.open() as store:
        assert [run.state for run in store.runs()] == ["failed"]


def _install(commands: Path) -> str:
    """Return a search path on which `workbench` is the one that is tested."""
    commands.mkdir()
    (commands / "workbench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workbench "$@"\n')
    (commands / "workbench").chmod(0o755)
    return f"{commands}{os.pathsep}{os.environ['PATH']}"
