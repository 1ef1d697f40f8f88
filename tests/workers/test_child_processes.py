"""What a trial leaves behind ends with it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import multiprocessing.shared_memory, subprocess, sys, psutil
from workbench.workers.child_processes import end_child_processes
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
