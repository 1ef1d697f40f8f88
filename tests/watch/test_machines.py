"""Machines as a front end is shown them: those of the run that it looks at, while somebody drives that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.recorded import record_run
from workbench.resources import Gpu, GpuUsage, Inventory, NodeSample, Span, WorkerUsage
from workbench.store import Store
from workbench.store.samples import SampleRow, keep_samples
from workbench.watch.watch import Watch

CARDS = tuple(Gpu(index, "NVIDIA H100", 80 << 30, f"GPU-{index}") for index in range(2))
BUSY = NodeSample(
    Inventory("big", 64, 1 << 39, CARDS), 0.0, cpu_utilisation=0.5, memory_used_bytes=1 << 38,
    network_sent_bytes_per_s=10.0, network_received_bytes_per_s=5.0,
    gpus=(
        GpuUsage(utilisation=0.9, temperature_c=64, clock_mhz=1755, slowed_by=("heat",), xids=(79,),
                 ecc_uncorrected=1, pcie_sent_bytes_per_s=2.0, pcie_received_bytes_per_s=3.0),
        GpuUsage(state="lost"),
    ),
    workers=(WorkerUsage(7, 3, 0, 1.0, 1 << 30, ("GPU-0",)), WorkerUsage(8, 4, 0, 1.0, 1 << 30)),
)  # fmt: skip
SILENT = NodeSample(Inventory("far", 8, 1 << 34, CARDS[:1]), 0.0, "silent")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def see(folder: Path, run_id: str, age_s: float) -> None:
    """Store that a driver has seen two machines."""
    with (
        Store.open(str(folder / "store.sqlite")) as store,
        store.writer(run_id, owner_pid=1, owner_host="here") as writer,
    ):
        now_s = time.time() - age_s
        nodes = {"b" * 56: BUSY, "a" * 56: SILENT}
        keep_samples(writer, [SampleRow(0, now_s, node, Span(one).to_json()) for node, one in nodes.items()])


def test_all_machines_of_the_run_are_shown_with_what_they_do_for_it(tmp_path: Path, watch: Watch) -> None:
    run_id = record_run(tmp_path)
    see(tmp_path, run_id, age_s=1.0)
    picture = watch.resources(run_id)
    assert picture.of_run == run_id
    big, far = picture.nodes
    assert (big.host, big.state, big.trials, big.network_bytes_per_s) == ("big", "ok", (3, 4), 15.0)
    hot, lost = big.gpus
    assert (hot.state, hot.trials, hot.slowed_by, hot.xids, hot.ecc_uncorrected) == (
        "ok", (3,), ("heat",), (79,), 1,
    )  # fmt: skip
    assert (hot.clock_mhz, hot.pcie_bytes_per_s, hot.nvlink_bytes_per_s) == (1755, 5.0, None)
    assert (lost.state, lost.trials, lost.utilisation) == ("lost", (), None)
    assert (far.host, far.state, far.memory_used_bytes, len(far.gpus)) == ("far", "silent", None, 1)


def test_a_run_that_nobody_drives_shows_this_machine(tmp_path: Path, watch: Watch) -> None:
    run_id = record_run(tmp_path)
    unseen = watch.resources(run_id)
    assert (unseen.of_run, len(unseen.nodes)) == (None, 1)
    see(tmp_path, run_id, age_s=3600.0)
    time.sleep(1.1)  # what was read a moment ago is still told
    assert watch.resources(run_id).of_run is None
    assert watch.resources("nobody").of_run is None
    assert watch.resources().nodes[0].memory_used_bytes
