"""Runs a program beside a Ray head of its own, on a machine that seems to have little memory
left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HEADROOM_BYTES = 2.5 * 2**30
"""What may be filled before Ray ends a process."""


def run_with_little_memory(program: str, folder: Path) -> list[str]:
    """Run a Python program in `folder`; return what it printed, by line."""
    memory = psutil.virtual_memory()
    if memory.available < 3 * HEADROOM_BYTES:
        pytest.skip("needs three times the memory that the trial fills")
    threshold = 1 - (memory.available - HEADROOM_BYTES) / memory.total
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(folder)]),
        "WORKBENCH_HOME": str(folder / "home"),
        "WORKBENCH_STORE": f"sqlite:///{folder}/store.db",
        "RAY_memory_usage_threshold": f"{threshold:.4f}",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    shutdown = "from workbench.cluster.head import local_head; local_head.shutdown()"
    try:
        finished = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    finally:
        subprocess.run([sys.executable, "-c", shutdown], env=environment, timeout=120, check=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()
