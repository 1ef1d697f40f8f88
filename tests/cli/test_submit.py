from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import psutil
import pytest

from tests.services.clusters import Cluster
from tests.services.ports import free_ports
from tests.services.shell import Shell
from tests.services.waiting import wait_until
from workbench.cli.remote import without_options
from workbench.cluster.remote import relayed_commands
from workbench.cluster.remote.jobs import Job
from workbench.store.database import RunRow, Store

pytestmark = pytest.mark.ray

EXPERIMENT = """
train: mine:train
objectives: [{metric: loss, goal: minimize}]
search: {x: {choices: [1.0, 2.0]}}
sampler: grid
resources: {concurrency: 2}
"""
CODE = """
import time
from beside import shift

def train(config, report):
    if config["x"] == 2.0:
        raise ValueError("this cannot be")
    for step in range(1, 4):
        if report(step=step, loss=shift(config["x"]) / step):
            return

def hold(config, report):
    for step in range(1, 10_000):
        time.sleep(0.2)
        if report(step=step, loss=1 / step):
            return
"""


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, shell: Shell
) -> Path:
    """A folder with an experiment and its code, on a machine that knows the cluster's token by a
    file.
    """
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(cluster.token))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.py").write_text(CODE)
    (folder / "beside.py").write_text("def shift(x):\n    return x + 1\n")
    monkeypatch.chdir(folder)
    shell.folder = folder
    return folder


@pytest.fixture
def write_experiment(project: Path) -> Callable[..., str]:
    def write(name: str, text: str = EXPERIMENT, function: str = "train") -> str:
        path = project / f"{name}.yaml"
        path.write_text(text.replace("mine:train", f"mine:{function}"))
        return path.name

    return write


@pytest.fixture
def submit(shell: Shell, cluster: Cluster) -> Callable[..., tuple[int, str, str]]:
    def run(command: str, *words: str) -> tuple[int, str, str]:
        return shell(command, *words, "--address", cluster.jobs_address)

    return run


def run_id_of(out: str) -> str:
    return out.split()[-1]


def processes_with(secret: str) -> list[str]:
    pids = []
    for process in psutil.process_iter(["cmdline"]):
        pids += [line for line in process.info["cmdline"] or () if secret in line]
    return pids


def runs_of(cluster: Cluster, name: str) -> list[RunRow]:
    """Return the runs of a name in the store of the cluster."""
    with Store.open(cluster.environment["WORKBENCH_STORE"]) as store:
        return [run for run in store.runs() if run.name == name]


def state_of(cluster: Cluster, run_id: str) -> str:
    with Store.open(cluster.environment["WORKBENCH_STORE"]) as store:
        return store.run(run_id).state


def files_with(secret: str, folder: Path, but: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if (
            path.is_file()
            and path != but
            and not path.is_socket()
            and secret.encode() in path.read_bytes()
        ):
            yield path


@pytest.mark.slow
def test_a_run_is_submitted_with_its_code_followed_and_submitted_again(
    submit, write_experiment, cluster: Cluster, project: Path
) -> None:
    file = write_experiment("first")
    code, out, err = submit("submit", file)
    assert code == 5, f"one of two trials failed: the exit status is that of the run\n{err}"
    assert "loss=0.6667" in out, "beside.py came along"
    assert ": 3 files" in err
    assert "\nreport  " not in out, "no file of that machine, but the command that brings it here"
    [run] = runs_of(cluster, "first")
    assert run.state == "complete"
    assert run.run_id in out

    jobs = cluster.jobs.jobs()
    told = json.dumps([[vars(job), cluster.jobs.log(job.submission_id)] for job in jobs])
    assert run.run_id in told
    assert cluster.secret not in told
    assert processes_with(cluster.secret) == []
    for folder in (cluster.folder, cluster.session):
        assert list(files_with(cluster.secret, folder, but=cluster.token)) == []

    code, out, err = submit("export", run.run_id, "--to", "best", "--optuna", "sqlite:///study.db")
    assert code == 0, err
    assert out.splitlines() == [
        f"bundle  {project / 'best'}",
        f"use it  wb.load_bundle({str(project / 'best')!r})",
        f"study   {run.run_id} in sqlite:///study.db",
    ]
    configuration = json.loads((project / "best" / "configuration.json").read_text())
    assert configuration["params"] == {"x": 1.0}
    assert (project / "best" / "code" / "beside.py").exists()
    assert optuna.load_study(study_name=run.run_id, storage="sqlite:///study.db").best_params == {
        "x": 1.0
    }
    code, _, err = submit("export", run.run_id, "--to", "best")
    assert code == 2
    assert "is not empty" in err
    code, out, _ = submit("report", "first")
    assert (code, out) == (0, f"{project / 'first-report.html'}\n")
    assert (project / "first-report.html").exists()

    code, out, _ = submit("submit", file, "--json")
    assert (code, json.loads(out)["run_id"]) == (5, run.run_id), "what was brought here is no code"
    assert len(runs_of(cluster, "first")) == 1, (
        "the same experiment with the same code is the same run"
    )


@pytest.mark.slow
def test_a_question_removes_earlier_ones_and_names_commands_that_work(
    submit, shell: Shell, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setattr(relayed_commands, "SEEN_AFTER_S", 2.0)
    there = ("--address", cluster.jobs_address, "--token-file", str(cluster.token))
    Store.open(str(cluster.folder / "empty.sqlite")).close()
    code, out, _ = shell("list", "--store", str(cluster.folder / "empty.sqlite"), *there)
    named = (
        f"--address {cluster.jobs_address} --store {cluster.folder / 'empty.sqlite'} --token-file"
    )
    assert (code, named in out) == (0, True)
    code, _, err = shell("show", "nothing", *there)
    assert (code, "there is no run 'nothing'" in err) == (2, True)
    code, out, _ = shell("alerts", *there)
    assert (code, "jupyter" in out) == (0, True)
    asked = [
        job.submission_id.split("-")[1]
        for job in cluster.jobs.jobs()
        if "workbench-" in job.submission_id
    ]
    assert "alerts" in asked
    assert "list" not in asked


@pytest.mark.slow
def test_a_detached_run_is_attached_to_left_stopped_and_resumed(
    submit, write_experiment, cluster: Cluster, shell: Shell, project: Path
) -> None:
    file = write_experiment("long", function="hold")
    code, out, err = submit("submit", file, "--detach")
    assert code == 0, err
    run_id = run_id_of(out)
    assert f"workbench follow {run_id} --address {cluster.jobs_address}" in err

    follower = shell.process("submit", file, "--address", cluster.jobs_address)
    wait_until(
        lambda: [
            job for job in running(cluster) if "--detach" not in job.metadata["workbench_command"]
        ]
    )
    other = shell.process("submit", file, "--address", cluster.jobs_address)
    assert other.stderr is not None
    assert "was already submitted" in other.stderr.readline()
    other.send_signal(signal.SIGINT)
    _, said = other.communicate(timeout=120)
    assert other.returncode == 130
    assert f"workbench stop {run_id} --address {cluster.jobs_address}" in said

    [job] = running(cluster)
    cluster.jobs.stop(job.submission_id)
    _, said = follower.communicate(timeout=120)
    assert follower.returncode == 130
    assert "The run continues on the cluster" in said, "it belongs to its driver, not to the job"
    assert state_of(cluster, run_id) == "running"

    code, out, _ = submit("stop", run_id)
    assert (code, out.split(":")[0]) == (0, f"stop {run_id}")
    wait_until(lambda: state_of(cluster, run_id) == "stopped")
    code, out, err = submit("resume", run_id, "--detach")
    assert (code, out) == (0, f"resumed long as {run_id}\n"), err
    assert state_of(cluster, run_id) == "running"
    cluster.run_command("stop", run_id)


def running(cluster: Cluster) -> list[Job]:
    return [
        job
        for job in cluster.jobs.jobs()
        if job.status == "RUNNING" and job.metadata.get("workbench_run")
    ]


@pytest.mark.slow
def test_a_plain_job_of_ray_sweeps_as_well(
    write_experiment, cluster: Cluster, project: Path
) -> None:
    file = write_experiment("plain")
    words = ["job", "submit", "--address", cluster.jobs_address, "--working-dir", ".", "--"]
    finished = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", *words, "workbench", "sweep", file],
        cwd=project,
        capture_output=True,
        text=True,
        env=cluster.environment,
        timeout=180,
        check=False,
    )
    assert finished.returncode == 1, "Ray knows of success and failure only, and one trial failed"
    assert "plain complete" in finished.stdout, finished.stdout + finished.stderr
    [run] = runs_of(cluster, "plain")
    assert (cluster.folder / "artifacts" / run.run_id / "code.zip").exists(), (
        "the code outlives the job"
    )


def test_what_keeps_it_from_being_submitted_is_said(
    shell: Shell,
    write_experiment,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_experiment("refused")
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-token-of-this-cluster")
    code, _, err = shell(
        "submit", file, "--address", cluster.jobs_address, "--token-file", str(wrong)
    )
    assert code == 1
    assert f"{cluster.jobs_address} rejects the token (403)" in err
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = shell("show", "last", "--address", cluster.jobs_address)
    assert code == 1
    assert (
        "requires a token, and none was given. Set --token-file or RAY_AUTH_TOKEN_PATH to the"
        in err
    )
    [port] = free_ports(1)
    code, _, err = shell("submit", file, "--address", f"http://127.0.0.1:{port}")
    assert code == 1
    assert f"nothing answers at http://127.0.0.1:{port}" in err
    code, _, err = shell("sweep", file, "--address", cluster.jobs_address)
    assert code == 1
    assert f"workbench submit FILE --address {cluster.jobs_address}" in err
    code, _, err = shell(
        "submit", file, "--set", "train=mine:missing", "--address", cluster.jobs_address
    )
    assert code == 2, "refused here, before anything is sent"


def test_an_address_is_taken_out_of_a_command_and_nothing_else() -> None:
    words = [
        "stop",
        "--address",
        "http://x",
        "last",
        "--trial=3",
        "--token-file=t",
        "--store",
        "s",
        "--",
        "--address",
    ]
    assert without_options(words, ["--address", "--token-file", "--store"]) == [
        "stop",
        "last",
        "--trial=3",
        "--",
        "--address",
    ]
