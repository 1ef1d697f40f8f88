"""What a machine offers, whatever stands between it and this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.hardware.resources import inventory
from workbench.hardware.resources.inventory import (
    ProcessorTimes,
    cgroup_folders,
    read_nodes,
    usable_cpus,
    usable_memory_bytes,
)


def test_this_machine_is_described() -> None:
    described = inventory()
    assert 1 <= described.num_cpus <= (os.cpu_count() or 1)
    assert 0 < described.memory_bytes <= psutil.virtual_memory().total
    assert bool(described.gpus) != bool(described.no_gpus_because)


def test_affinity_bounds_the_cpus() -> None:
    code = "from workbench.hardware.resources import inventory; print(inventory().num_cpus)"
    cpu = min(os.sched_getaffinity(0))
    root = str(Path(__file__).parents[3])
    bound = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}}); {code}"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert bound.stdout.strip() == "1"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "num_cpus", "memory_bytes"),
    [
        (
            "0::/job/step\n",
            {"job/step/cpu.max": "max 100000\n", "job/step/memory.max": "max\n"},
            64,
            2**40,
        ),
        (
            "0::/job/step\n",
            {"job/step/cpu.max": "250000 100000\n", "job/step/memory.max": "1024\n"},
            3,
            1024,
        ),
        (
            "0::/job/step\n",
            {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "50000 100000\n"},
            1,
            2**40,
        ),
        ("0::/host/path\n", {"cpu.max": "400000 100000\n", "memory.max": "4096\n"}, 4, 4096),
        (
            "4:memory:/job\n3:cpu,cpuacct:/job\n",
            {
                "cpu/job/cpu.cfs_quota_us": "200000\n",
                "cpu/job/cpu.cfs_period_us": "100000\n",
                "memory/job/memory.limit_in_bytes": "2048\n",
            },
            2,
            2048,
        ),
        (
            "3:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            64,
            2**40,
        ),
        ("", {}, 64, 2**40),
    ],
)
def test_a_container_bounds_cpus_and_memory(
    membership: str, files: dict[str, str], num_cpus: int, memory_bytes: int, tmp_path: Path
) -> None:
    write(tmp_path, {"cgroup-membership": membership})
    write(tmp_path / "mount", files)
    folders = cgroup_folders(tmp_path / "mount", tmp_path / "cgroup-membership")
    assert usable_cpus(64, folders) == num_cpus
    assert usable_memory_bytes(2**40, folders) == memory_bytes


def test_a_cluster_is_the_sum_of_the_nodes_that_live() -> None:
    def node(name: str, alive: bool, **resources: float) -> dict[str, Any]:
        return {"NodeID": name, "NodeManagerHostname": name, "Alive": alive, "Resources": resources}

    nodes = read_nodes(
        [
            node("a", True, CPU=8.0, GPU=2.0, memory=1e9, **{"accelerator_type:A100": 1.0}),
            node("b", True, CPU=4.0, memory=2e9),
            node("c", False, CPU=64.0, GPU=8.0),
        ]
    )
    assert (nodes.num_cpus, nodes.num_gpus) == (12.0, 2.0)
    assert [item.gpu_type for item in nodes.nodes] == ["A100", None]


@pytest.mark.slow
def test_a_cluster_that_nobody_is_connected_to_is_refused() -> None:
    # In a process of its own: other tests may have attached this one.
    code = "from workbench.hardware.resources import cluster_inventory; cluster_inventory()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "ResourcesError: this process is not connected to a cluster" in done.stderr


@pytest.mark.parametrize(
    ("computed_s", "waited_s", "share"), [(2.0, 0.0, 1.0), (1.0, 3.0, 0.25), (0.1, 9.0, None)]
)
def test_the_share_of_a_processor_leaves_out_times_before(
    computed_s: float, waited_s: float, share: float | None
) -> None:
    before = ProcessorTimes(10.0, 50.0)
    assert before.share_until(ProcessorTimes(10.0 + computed_s, 50.0 + waited_s)) == (
        None if share is None else pytest.approx(share)
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="only Linux counts waits"
)
def test_threads_on_one_processor_wait_for_each_other() -> None:
    script = """
import os, subprocess, sys
from workbench.hardware.resources import processor_times
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # which child processes inherit
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
try:
    before = processor_times()
    while processor_times().computed_s < before.computed_s + 0.5:
        pass
    print(before.share_until(processor_times()))
finally:
    for process in busy:
        process.kill()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 0.0 < float(done.stdout) < 0.8  # about a quarter once they have started, or less
