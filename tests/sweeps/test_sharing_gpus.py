"""A sweep decides by measuring how many of its trials share a GPU, and keeps to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.services.clusters import Cluster
from tests.services.waiting import wait_until
from workbench.foundation.events import Event, Noted, SharingMeasured, TrialStarted
from workbench.store.database import Store
from workbench.store.history import History

EXPERIMENT = """
model: {name: mlp, hidden_width: 128}
data: digits
objectives: [{metric: val_accuracy, goal: maximize}]
search: {lr: {low: 0.001, high: 0.1, log: true}}
training: {epochs: 1}
budget: {trials: 3}
resources: {per_gpu: auto}
"""
MEASURING = "measuring how many trials share a GPU"
# What is decided follows from what is measured, for however long: less than usually.
COMMANDS = """
import functools, json, sys
from workbench.cli.entry import run_command
from workbench.sweeps import gpu_sharing

gpu_sharing.NeighbourProbe = functools.partial(gpu_sharing.NeighbourProbe, longest_s=0.5)
for line in sys.stdin:
    print(run_command([*json.loads(line), "--launcher", "inline"]), flush=True)
"""


@pytest.fixture(scope="module")
def cluster_with_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two cores and a GPU that Ray counts, so that workers compute on the cores."""
    folder = tmp_path_factory.mktemp("gpu")
    environment = {
        "RAY_OVERRIDE_RESOURCES": json.dumps({"GPU": 1}),
        "WORKBENCH_STORE": str(folder / "store.sqlite"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    cluster = Cluster(folder, head_cpus=2, environment=environment)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def commands(cluster_with_gpu: Cluster) -> Iterator[subprocess.Popen[str]]:
    """A process on the cluster that runs the commands that it is sent, one after another."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        env=cluster_with_gpu.environment,
        cwd=cluster_with_gpu.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.mark.slow
@pytest.mark.ray
def test_copies_are_measured_once_and_trials_share_the_gpu_as_decided(
    cluster_with_gpu: Cluster, commands: subprocess.Popen[str]
) -> None:
    (cluster_with_gpu.folder / "shared.yaml").write_text(EXPERIMENT)
    with Store.open(str(cluster_with_gpu.folder / "store.sqlite")) as store:
        _send(commands, "sweep", "shared.yaml", "--run-id", "shared")
        _await_success(commands)
        history = _history(store)
        (decided,) = _sharing(store)
        assert history.state == "complete"
        assert list(decided.samples_per_s) == ["1", "2"]
        alone, both = decided.samples_per_s.values()
        assert decided.per_gpu == (2 if both >= 1.05 * alone else 1)
        assert history.in_force.resources.per_gpu == decided.per_gpu
        started = [event for event in _events(store) if isinstance(event, TrialStarted)]
        assert [len(gpus) for event in started for gpus in event.gpus] == [1, 1, 1], (
            "each has the one GPU"
        )
        _send(commands, "extend", "shared", "--more-trials", "1")
        _await_success(commands)
        assert _sharing(store) == [decided], "a run that continues measures nothing again"
        assert len(_history(store).trials) == 4


@pytest.mark.slow
@pytest.mark.ray
def test_stopping_a_run_ends_the_measuring_before_its_first_trial(
    cluster_with_gpu: Cluster, commands: subprocess.Popen[str]
) -> None:
    # So large a model measures for longer than this test lets it.
    experiment = EXPERIMENT.replace("hidden_width: 128", "hidden_width: 4096")
    (cluster_with_gpu.folder / "stopped.yaml").write_text(experiment)
    with Store.open(str(cluster_with_gpu.folder / "store.sqlite")) as store:
        _send(commands, "sweep", "stopped.yaml", "--run-id", "stopped")
        wait_until(lambda: "stopped" in [row.run_id for row in store.runs()])
        wait_until(lambda: MEASURING in _notes(store, "stopped"))
        store.command("stopped", "stop", {})
        wait_until(lambda: store.run("stopped").state == "stopped")
        assert _sharing(store, "stopped") == [], "nothing is decided by half a measurement"
        assert not _history(store, "stopped").trials


def _send(commands: subprocess.Popen[str], *words: str) -> None:
    print(json.dumps(words), file=commands.stdin, flush=True)


def _await_success(commands: subprocess.Popen[str]) -> None:
    assert commands.stdout is not None
    last = ""
    while not last.isdecimal():
        last = commands.stdout.readline().strip()
        assert commands.poll() is None
    assert last == "0"


def _history(store: Store, run_id: str = "shared") -> History:
    return History.of(store.experiment(run_id), _events(store, run_id))


def _events(store: Store, run_id: str = "shared") -> list[Event]:
    return [item.event for item in store.events(run_id)]


def _sharing(store: Store, run_id: str = "shared") -> list[SharingMeasured]:
    return [event for event in _events(store, run_id) if isinstance(event, SharingMeasured)]


def _notes(store: Store, run_id: str) -> list[str]:
    return [event.message for event in _events(store, run_id) if isinstance(event, Noted)]
