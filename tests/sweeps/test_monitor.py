"""What the driver sees of the machines of its cluster: GPUs, trials, energy, and what gets lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import wait_until

from tests.fake_nvml import H100, FakeNvml
from workbench.events import TrialStarted
from workbench.experiment import Experiment
from workbench.resources import Gpu, GpuUsage, Inventory, NodeSample, Span
from workbench.resources.thinning import LEVELS
from workbench.run import attach
from workbench.store import Store
from workbench.store.samples import SampleRow, keep_samples, read_newest_samples, read_samples
from workbench.sweeps.monitor import thin
from workbench.watch.machines import picture_of_cluster

ROOT = Path(__file__).parents[2]
FUNCTION = """
import os, pathlib, time

def train(config, report):
    notes = pathlib.Path(__file__).parent
    note = notes / f"gpus-{os.getpid()}"
    note.write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    while not (notes / "enough").exists():
        time.sleep(0.05)
    report(step=1, loss=config["x"])
"""
CONNECT = "from workbench.workers import head; head.connect(num_cpus=1)"
CARDS = [{**H100, "energy_mj": 0}, {**H100, "energy_mj": 0, "slowed_bits": 4}]


class Cluster:
    """A head without GPUs, and a node that believes to have two."""

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.folder, self.nvml = folder, nvml
        home = folder / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if "RAY_ADDRESS" not in name},
            "WORKBENCH_HOME": str(home), "WORKBENCH_STORE": str(folder / "store.sqlite"),
            "PYTHONPATH": f"{ROOT}:{folder}", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(home / "head" / "token"), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }  # fmt: skip
        (folder / "counted.py").write_text(FUNCTION)
        self.run("-c", CONNECT)
        self.address = json.loads((home / "head" / "head.json").read_text())["address"]
        self._node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={self.address}",
             "--node-ip-address=127.0.0.1", "--num-cpus=2", "--block"],
            env={**self.environment, **nvml.environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._node.stdout is not None
        said = iter(self._node.stdout.readline, "")
        assert any("runtime started" in line for line in said), "the second node does not start"

    def run(self, *arguments: str) -> str:
        """Run Python with a program or module."""
        done = subprocess.run(
            [sys.executable, *arguments], env=self.environment, cwd=self.folder, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def lose_node(self) -> None:
        """Kill all processes of the second node at once."""
        for process in [*psutil.Process(self._node.pid).children(recursive=True), self._node]:
            process.send_signal(signal.SIGKILL)
        self._node.wait()

    def close(self) -> None:
        (self.folder / "enough").touch()
        self.run("-m", "workbench.cli", "shutdown")
        if self._node.poll() is None:
            self.lose_node()


@pytest.fixture
def cluster(tmp_path: Path, fake_nvml_library: FakeNvml) -> Iterator[Cluster]:
    fake_nvml_library.play(*CARDS)
    found = Cluster(tmp_path, fake_nvml_library)
    yield found
    found.close()
    fake_nvml_library.play()


@pytest.mark.ray
def test_gpus_of_another_node_are_followed_into_each_trial_and_until_they_are_lost(cluster: Cluster) -> None:
    (cluster.folder / "counted.yaml").write_text(
        "{name: counted, train: 'counted:train', objectives: [{metric: loss, goal: minimize}],\n"
        " search: {x: {low: 0.0, high: 1.0}}, budget: {trials: 2}, resources: {gpus_per_worker: 1}}"
    )
    cluster.run("-m", "workbench.cli", "sweep", "counted.yaml", "--detach", "--address", cluster.address)
    with Store.open(str(cluster.folder / "store.sqlite")) as store:
        run_id = store.run("last").run_id

        def with_gpus() -> NodeSample | None:
            nodes = [Span.from_json(row.payload).mean for row in read_newest_samples(store, run_id)]
            return next((node for node in nodes if node.machine.gpus), None) if len(nodes) == 2 else None

        def both_train() -> NodeSample | None:
            found = with_gpus()
            return found if found and len(found.workers) == 2 else None

        sample = wait_until(both_train, timeout_s=90)
        notes = {int(path.name[5:]): path.read_text() for path in cluster.folder.glob("gpus-*")}
        assert {worker.pid: worker.gpus for worker in sample.workers} == {
            pid: (f"GPU-0000000{number}-fake",) for pid, number in notes.items()
        }
        started = [stored.event for stored in store.events(run_id, types=["trial_started"])]
        assert sorted(event.gpus for event in started if isinstance(event, TrialStarted)) == [
            [["0"]],
            [["1"]],
        ]
        by_gpu = {worker.gpus[0][11]: worker.trial for worker in sample.workers}

        used = [{**card, "energy_mj": 3_600_000 * (1 + index)} for index, card in enumerate(CARDS)]
        cluster.nvml.play(*used)
        run = attach(run_id, store=store)
        wait_until(lambda: run.energy.total_wh and run.energy.total_wh > 2.9, timeout_s=15)
        assert run.energy.of_trial(by_gpu["0"]) == pytest.approx(1.0)
        assert run.energy.of_trial(by_gpu["1"]) == pytest.approx(2.0)
        assert run.energy.describe() == "energy: 3 Wh (GPUs, as metered)"
        assert sorted(run.trials["energy_wh"]) == pytest.approx([1.0, 2.0])

        cluster.nvml.play(used[0], {**used[1], "xids": "79", "error": 15})
        lost = wait_until(
            lambda: (found := with_gpus()) and found.gpus[1].state == "lost" and found, timeout_s=15
        )
        assert lost.gpus[0].state == "ok"
        picture = picture_of_cluster(store, run_id)
        assert picture is not None
        (machine,) = [node for node in picture.nodes if node.gpus]
        assert [node.gpus_state for node in picture.nodes if not node.gpus] == ["no driver"]
        assert [gpu.state for gpu in machine.gpus] == ["ok", "lost"]
        assert [gpu.trials for gpu in machine.gpus] == [(by_gpu["0"],), (by_gpu["1"],)]
        rounds = [Span.from_json(row.payload).mean for row in read_samples(store, run_id)]
        assert [xid for each in rounds for gpu in each.gpus for xid in gpu.xids] == [79]

        cluster.lose_node()

        def node_is_gone() -> NodeSample | None:
            found = with_gpus()
            return found if found and found.state == "gone" else None

        gone = wait_until(node_is_gone, timeout_s=40)
        assert (len(gone.machine.gpus), gone.workers) == (2, ())
        cluster.run("-m", "workbench.cli", "stop", run_id)
        wait_until(lambda: store.run(run_id).state == "stopped", timeout_s=30)
        assert run.energy.total_wh == pytest.approx(3.0)


def test_what_is_outdated_becomes_longer_spans_in_the_store(tmp_path: Path) -> None:
    machine = Inventory("node", 2, 1 << 30, (Gpu(0, "card", 1 << 30, "GPU-0"),))
    experiment = Experiment(
        train={"name": "counted:train"}, objectives=[{"metric": "loss", "goal": "minimize"}]
    )
    now_s = 1e9
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
            for age_s in range(0, 1800, 2):
                sample = NodeSample(machine, now_s - age_s, gpus=(GpuUsage(energy_j=1.0),))
                keep_samples(writer, [SampleRow(0, now_s - age_s, "n", Span(sample).to_json())])
            for _ in range(2):  # a second time changes nothing
                for level in LEVELS:
                    thin(store, run_id, writer, level, now_s)
                looks, tens = (read_samples(store, run_id, span_s=span_s) for span_s in (0, 10))
                assert (len(looks), len(tens)) == (301, 120)
                spans = [Span.from_json(row.payload) for row in (*looks, *tens)]
                assert sum(span.num_looks for span in spans) == 900
                assert sum(span.mean.gpus[0].energy_j or 0.0 for span in spans) == pytest.approx(900.0)
            for level in LEVELS * 2:
                thin(store, run_id, writer, level, now_s + 100 * 24 * 3600)
        assert not any(read_samples(store, run_id, span_s=level.span_s) for level in LEVELS)
