from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.services.waiting import wait_until
from workbench.tiers.processes.starting import processor_wait_s

BUSY = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this system does not state it"
)
def test_time_in_which_a_process_waits_for_a_processor_is_known() -> None:
    both = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        for one in both:  # two that always compute, on one processor
            wait_until(lambda one=one: processor_wait_s(one.pid) > 0.1)
    finally:
        for one in both:
            one.kill()
            one.wait()
    assert processor_wait_s(both[0].pid) == 0  # it has ended
