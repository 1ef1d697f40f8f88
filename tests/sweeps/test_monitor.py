"""What the driver sees of the machines of its cluster: GPUs, trials, energy, and what gets lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.services.clusters import ROOT, Cluster
from tests.services.fake_nvml import GIB, H100, FakeNvml
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import ResourcesError
from workbench.foundation.events import (
    AttemptEnded,
    EnergyMetered,
    Noted,
    TrialProposed,
    TrialStarted,
    steady_unix_s,
)
from workbench.hardware.resources import Gpu, GpuUsage, Inventory, NodeSample, Rollup
from workbench.hardware.resources.rollups import LEVELS
from workbench.runs import attach
from workbench.store.database import Store
from workbench.store.database.samples import (
    SampleRow,
    keep_samples,
    read_newest_samples,
    read_samples,
)
from workbench.store.history import History
from workbench.sweeps import monitor
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.monitor import UNMETERED_S, EnergyLimit, Waiting, thin
from workbench.views.live_feed.machines import cluster_status

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
FREE = {**H100, "energy_mj": 0, "memory_used_bytes": GIB}
CARDS = [FREE, {**FREE, "slowed_bits": 4}]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, head_cpus=1)
    started.environment["WORKBENCH_STORE"] = str(tmp_path / "store.sqlite")
    started.environment["PYTHONPATH"] += f":{ROOT}:{tmp_path}"
    (tmp_path / "counted.py").write_text(FUNCTION)
    yield started
    started.close()


def run(cluster: Cluster, *arguments: str) -> None:
    """Run a command of the workbench."""
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments],
        env=cluster.environment,
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.ray
def test_a_gpu_whose_memory_others_hold_gets_no_trial(
    cluster: Cluster, fake_nvml_library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = 2**22 + 1  # no process has this number
    held = {**FREE, "memory_used_bytes": 40 * GIB, "processes": f"{foreign} {39 * GIB}"}
    fake_nvml_library.play(held, FREE)
    with monkeypatch.context() as patch:
        for name, value in fake_nvml_library.environment.items():
            patch.setitem(cluster.environment, name, value)
        cluster.add(2)
    (cluster.folder / "enough").touch()
    (cluster.folder / "kept.yaml").write_text(
        "{name: kept, train: 'counted:train', objectives: [{metric: loss, goal: minimize}],\n"
        " search: {x: {low: 0.0, high: 1.0}}, budget: {trials: 3},\n"
        " resources: {gpus_per_worker: 1, concurrency: 2, max_retries: 0}}"
    )
    run(cluster, "sweep", "kept.yaml", "--detach", "--address", cluster.address)
    with Store.open(str(cluster.folder / "store.sqlite")) as store:
        run_id = store.run("last").run_id
        wait_until(lambda: store.run(run_id).state == "complete")
        stored = [item.event for item in store.events(run_id)]
    used: dict[int, list[str]] = {}
    for event in stored:
        if isinstance(event, TrialStarted):
            used.setdefault(event.trial, []).append(event.gpus[0][0])
    # Each trial ended on the free GPU, and the other one was tried once.
    assert [gpus[-1] for _, gpus in sorted(used.items())] == ["1", "1", "1"]
    assert sum(gpus.count("0") for gpus in used.values()) == 1
    (ended,) = [event for event in stored if isinstance(event, AttemptEnded)]
    assert f"others hold 40 GiB of GPU GPU-00000000-fake (process {foreign}: 39 GiB)" in (
        ended.message
    )
    assert (ended.reason, ended.is_retry) == ("lost", False)


@pytest.mark.slow
@pytest.mark.ray
def test_gpus_of_another_node_are_followed_into_each_trial_until_one_is_lost(
    cluster: Cluster, fake_nvml_library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml_library.play(*CARDS)
    with monkeypatch.context() as patch:
        for name, value in fake_nvml_library.environment.items():
            patch.setitem(cluster.environment, name, value)
        cluster.add(2)
    (cluster.folder / "counted.yaml").write_text(
        "{name: counted, train: 'counted:train', objectives: [{metric: loss, goal: minimize}],\n"
        " constraints: [{metric: energy_wh, at_most: 1.5}],\n"
        " search: {x: {low: 0.0, high: 1.0}}, budget: {trials: 2}, resources: {gpus_per_worker: 1}}"
    )
    run(cluster, "sweep", "counted.yaml", "--detach", "--address", cluster.address)
    with Store.open(str(cluster.folder / "store.sqlite")) as store:
        run_id = store.run("last").run_id

        def with_gpus() -> NodeSample | None:
            nodes = [
                Rollup.from_json(row.payload).mean for row in read_newest_samples(store, run_id)
            ]
            return (
                next((node for node in nodes if node.machine.gpus), None)
                if len(nodes) == 2
                else None
            )

        def both_train() -> NodeSample | None:
            gpus = with_gpus()
            return gpus if gpus and len(gpus.workers) == 2 else None

        sample = wait_until(both_train)
        wait_until(lambda: len(list(cluster.folder.glob("gpus-*"))) == 2)
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
        fake_nvml_library.play(*used)
        followed = attach(run_id, store=store)
        wait_until(lambda: followed.energy.total_wh and followed.energy.total_wh > 2.9)
        assert followed.energy.of_trial(by_gpu["0"]) == pytest.approx(1.0)
        assert followed.energy.of_trial(by_gpu["1"]) == pytest.approx(2.0)
        assert followed.energy.describe() == "energy: 3 Wh (GPUs, as metered)"
        assert sorted(followed.trials["energy_wh"]) == pytest.approx([1.0, 2.0])

        fake_nvml_library.play(used[0], {**used[1], "xids": "79", "error": 15})

        def one_is_lost() -> NodeSample | None:
            gpus = with_gpus()
            return gpus if gpus and gpus.gpus[1].state == "lost" else None

        lost = wait_until(one_is_lost)
        assert lost.gpus[0].state == "ok"
        picture = cluster_status(store, run_id)
        assert picture is not None
        (machine,) = [node for node in picture.nodes if node.gpus]
        assert [node.gpus_state for node in picture.nodes if not node.gpus] == ["no driver"]
        assert [gpu.state for gpu in machine.gpus] == ["ok", "lost"]
        assert [gpu.trials for gpu in machine.gpus] == [(by_gpu["0"],), (by_gpu["1"],)]
        rounds = [Rollup.from_json(row.payload).mean for row in read_samples(store, run_id)]
        assert [xid for each in rounds for gpu in each.gpus for xid in gpu.xids] == [79]

        # The meters are read when a trial ends, so what it used last counts as well.
        fake_nvml_library.play(
            {**used[0], "energy_mj": 3_600_000 * 1.25}, {**used[1], "xids": "79", "error": 15}
        )
        (cluster.folder / "enough").touch()
        wait_until(lambda: store.run(run_id).state == "complete")
        values = {trial.number: trial.values for trial in followed.history.trials.values()}
        assert values[by_gpu["0"]]["energy_wh"] == pytest.approx(1.25)
        assert values[by_gpu["1"]]["energy_wh"] == pytest.approx(2.0)
        assert list(followed.trials["feasible"]) == [by_gpu["0"] == 0, by_gpu["1"] == 0]
        assert followed.energy.total_wh == pytest.approx(3.25)


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
                keep_samples(writer, [SampleRow(0, now_s - age_s, "n", Rollup(sample).to_json())])
            for _ in range(2):  # a second time changes nothing
                for level in LEVELS:
                    thin(store, run_id, writer, level, now_s)
                looks, tens = (read_samples(store, run_id, span_s=span_s) for span_s in (0, 10))
                assert (len(looks), len(tens)) == (301, 120)
                spans = [Rollup.from_json(row.payload) for row in (*looks, *tens)]
                assert sum(span.num_looks for span in spans) == 900
                assert sum(span.mean.gpus[0].energy_j or 0.0 for span in spans) == pytest.approx(
                    900.0
                )
            for level in LEVELS * 2:
                thin(store, run_id, writer, level, now_s + 100 * 24 * 3600)
        assert not any(read_samples(store, run_id, span_s=level.span_s) for level in LEVELS)


@contextmanager
def ledger_of(store: Store, **budget: Any) -> Iterator[Ledger]:
    run_id = store.create_run(
        Experiment(train="m:f", objectives=[{"metric": "loss", "goal": "minimize"}], budget=budget)
    )
    ledger = Ledger(store, run_id)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        ledger.replay(writer)
        yield ledger


class _NoNodes:
    """A cluster whose nodes say nothing. It notes how often they are asked."""

    num_asked = 0

    def collect(self, employed: Any, timeout_s: float) -> dict[str, NodeSample]:
        type(self).num_asked += 1
        return {}

    def close(self) -> None:
        pass


def test_the_end_takes_a_last_sample_and_does_not_wait_for_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "NodeMonitors", _NoNodes)
    monkeypatch.setattr(monitor, "PERIOD_S", 3600.0)
    run_id = store.create_run(
        Experiment(train="m:f", objectives=[{"metric": "loss", "goal": "minimize"}])
    )
    watching = monitor.Monitor(store, Ledger(store, run_id))
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        watching.begin(writer)
        wait_until(lambda: _NoNodes.num_asked > 0)
        watching.end()
        assert not any(thread.name == "monitor" for thread in threading.enumerate())
    assert _NoNodes.num_asked >= 2


def test_it_is_recorded_in_steps_of_the_limit_and_as_soon_as_the_limit_is_met(store: Store) -> None:
    metered = iter([None, 0.5, 1.5, 2.0, 99.8, 100.1, 100.2])
    with ledger_of(store, energy=100.0) as ledger:
        limit = EnergyLimit(ledger, lambda: next(metered))
        for _ in range(7):
            limit.tick()
    events = [stored.event for stored in store.events(ledger.run_id)]
    assert [event.total_wh for event in events if isinstance(event, EnergyMetered)] == [
        1.5,
        99.8,
        100.1,
    ]
    assert History.of(ledger.experiment, events).energy_wh == 100.1


def test_nothing_is_recorded_without_a_limit(store: Store) -> None:
    with ledger_of(store, trials=3) as ledger:
        EnergyLimit(ledger, lambda: 5.0).tick()
    assert ledger.history.energy_wh is None


def test_a_run_whose_trials_nothing_meters_does_not_continue(store: Store) -> None:
    with ledger_of(store, energy=100.0) as ledger:
        limit = EnergyLimit(ledger, lambda: None)
        limit.tick()
        begun_s = steady_unix_s() - UNMETERED_S - 1.0
        ledger.record(
            TrialProposed(trial=0, params={}, configuration=0, seed=1),
            TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=begun_s),
        )
        with pytest.raises(ResourcesError, match=r"budget.energy.*nothing meters"):
            limit.tick()


@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_run_whose_workers_still_start_says_so_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HELD_UP_AFTER_S", "REPORT_AFTER_S"):
        monkeypatch.setattr(f"workbench.sweeps.monitor.{name}", 0.0)
    with ledger_of(store, trials=1) as ledger:
        ledger.record(TrialProposed(trial=0, params={}, configuration=0, seed=1))
        waiting = Waiting(ledger)
        for _ in range(4):
            waiting.tick([0])
    notes = [stored.event for stored in store.events(ledger.run_id, types=["noted"])]
    assert [(note.message, note.is_held_up) for note in notes if isinstance(note, Noted)] == [
        ("waits for workers: they are still starting", False)
    ]
