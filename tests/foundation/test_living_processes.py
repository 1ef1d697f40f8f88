"""Whether a process is known to be dead.

Real processes, alive, ended, unreaped, and of other machines.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from workbench.foundation.processes import describe_process, is_known_dead

HOST = socket.gethostname()
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc (Linux)")


def start_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_living_process_is_not_dead() -> None:
    assert not is_known_dead(os.getpid(), HOST, describe_process(os.getpid()))
    assert not is_known_dead(os.getpid(), HOST, None)


@needs_proc
def test_killed_process_is_dead_before_and_after_its_parent_notices() -> None:
    sleeper = start_sleeper()
    described = describe_process(sleeper.pid)
    assert described
    assert not is_known_dead(sleeper.pid, HOST, described)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert is_known_dead(sleeper.pid, HOST, described)
    sleeper.wait()
    assert is_known_dead(sleeper.pid, "a name changed since", described)
    assert is_known_dead(sleeper.pid, HOST, None)


@needs_proc
def test_pid_that_came_back_is_not_taken_for_the_owner() -> None:
    sleeper = start_sleeper()
    described = describe_process(sleeper.pid)
    assert described
    place, _, start = described.rpartition(" ")
    assert is_known_dead(sleeper.pid, HOST, f"{place} {int(start) - 1}")
    sleeper.kill()
    sleeper.wait()


@needs_proc
def test_nothing_is_known_about_processes_of_other_machines() -> None:
    sleeper = start_sleeper()
    sleeper.kill()
    sleeper.wait()
    assert not is_known_dead(sleeper.pid, "elsewhere", None)
    assert not is_known_dead(sleeper.pid, HOST, "another-boot pid:[1] 12345")
