"""Freed memory is used again until it is returned."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT_FAULTS = """
import ctypes, resource, sys, threading
from workbench.hardware.resources import resident_bytes
from workbench.foundation.freed_memory import keep_freed_memory, return_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
BLOCK, ROUNDS = 4 * 2**20, 50

def step():
    blocks = [libc.malloc(BLOCK) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in reversed(blocks):
        libc.free(block)

def train():
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        step()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // ROUNDS)
    held = resident_bytes()
    return_freed_memory()
    print(held - resident_bytes())

if sys.argv[1] == "keep":
    keep_freed_memory()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def run(mode: str) -> tuple[int, int]:
    """Return the page faults of a step in a thread, and the bytes that are given back
    afterwards.
    """
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS, mode], capture_output=True, text=True, check=True
    )
    faults, returned_bytes = map(int, done.stdout.split())
    return faults, returned_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives memory back so eagerly")
def test_steps_in_a_thread_reuse_what_they_free_until_it_is_given_back() -> None:
    faults_usually, _ = run("usual")
    faults, returned_bytes = run("keep")
    assert faults_usually > 1000
    assert faults < 50
    assert returned_bytes > 8 * 2**20
