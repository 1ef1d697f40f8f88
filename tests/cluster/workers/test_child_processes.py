"""What a trial leaves behind ends with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing.shared_memory, subprocess, sys, psutil
from workbench.cluster.workers.left_running import end_child_processes
end_child_processes()
shared = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
deaf = "trap '' TERM; sleep 99 & echo; wait"
subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE).stdout.readline()
other = ["sh", "-c", "sleep 99 & echo; wait"]
subprocess.Popen(other, start_new_session=True, stdout=subprocess.PIPE).stdout.readline()
before = psutil.Process().children(recursive=True)
end_child_processes()
left = [process for process in before if process.is_running() and process.status() != "zombie"]
helper = multiprocessing.resource_tracker._resource_tracker._pid
print(len(before), *(process.pid - helper for process in left))
shared.close(); shared.unlink()
"""


def test_every_process_below_this_one_ends_but_pythons_own_helper() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )

    assert (done.stdout.split(), done.stderr) == (["5", "0"], "")


WANDB = """
import sys
sys.path.append(sys.argv[1])
import psutil, wandb
from workbench.cluster.workers.left_running import end_child_processes, end_services
for trial in range(2):
    settings = wandb.Settings(silent=True)
    wandb.init(mode="offline", dir=sys.argv[2], settings=settings).log({"loss": 0.5})
    print(end_services(), end_child_processes(), len(psutil.Process().children()))
"""


def test_wandb_can_be_used_in_every_trial(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    found = str(Path(wandb.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", WANDB, found, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stdout.splitlines() == ["[] [] 0"] * 2, done.stderr
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2
