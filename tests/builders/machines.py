"""Two machines as a driver saw them.

A big one with a hot card and a lost one, and one that is silent.
"""

from __future__ import annotations

import time

from workbench.hardware.resources import Gpu, GpuUsage, Inventory, NodeSample, Rollup, WorkerUsage
from workbench.store.database import Store
from workbench.store.database.samples import SampleRow, keep_samples

CARDS = tuple(Gpu(index, "NVIDIA H100", 80 << 30, f"GPU-{index}") for index in range(2))
BUSY = NodeSample(
    Inventory("big", 64, 1 << 39, CARDS),
    0.0,
    cpu_utilisation=0.5,
    memory_used_bytes=1 << 38,
    network_sent_bytes_per_s=10.0,
    network_received_bytes_per_s=5.0,
    gpus=(
        GpuUsage(
            utilisation=0.9,
            temperature_c=64,
            clock_mhz=1755,
            slowed_by=("heat",),
            xids=(79,),
            ecc_uncorrected=1,
            pcie_sent_bytes_per_s=2.0,
            pcie_received_bytes_per_s=3.0,
        ),
        GpuUsage(state="lost"),
    ),
    workers=(WorkerUsage(7, 3, 0, 1.0, 1 << 30, ("GPU-0",)), WorkerUsage(8, 4, 0, 1.0, 1 << 30)),
)
SILENT = NodeSample(Inventory("far", 8, 1 << 34, CARDS[:1]), 0.0, "silent")


def see_machines(url: str, run_id: str, age_s: float = 0.0) -> None:
    """Store that a driver has seen two machines."""
    with (
        Store.open(url) as store,
        store.writer(run_id, owner_pid=1, owner_host="here") as writer,
    ):
        now_s = time.time() - age_s
        nodes = {"b" * 56: BUSY, "a" * 56: SILENT}
        keep_samples(
            writer,
            [SampleRow(0, now_s, node, Rollup(sample).to_json()) for node, sample in nodes.items()],
        )
