"""What a machine is doing, and which worker does it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.services.waiting import wait_until
from workbench.hardware.resources import EnergyCounter, Sampler, WatchedWorker, usage_sampler

BUSY = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'while True: pass']);"
    " print(flush=True)"
)


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A process that is idle itself, with one of its own in another session that is busy."""
    program = f"{BUSY}\nimport time\ntime.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    end(process)


def end(process: subprocess.Popen[str]) -> None:
    """End a process and what it started."""
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def wait_until_it_worked(busy: psutil.Process) -> None:
    """Wait until the system has counted processor time for a process."""
    used_s = sum(busy.cpu_times()[:2])
    wait_until(lambda: sum(busy.cpu_times()[:2]) > used_s)


def test_a_machine_is_seen_from_look_to_look() -> None:
    looks = Sampler()
    first = looks.sample()
    assert (first.elapsed_s, first.cpu_utilisation, first.network_sent_bytes_per_s) == (
        0.0,
        None,
        None,
    )
    assert first.workers == ()
    sum(range(10**6))
    then = looks.sample()
    assert then.elapsed_s > 0
    assert then.cpu_utilisation is not None
    assert 0 < then.cpu_utilisation <= 1
    assert then.memory_used_bytes
    assert then.disk_used_bytes
    assert then.disk_bytes
    assert then.disk_used_bytes < then.disk_bytes
    assert then.network_sent_bytes_per_s is not None
    assert then.network_sent_bytes_per_s >= 0
    assert len(then.gpus) == len(then.machine.gpus)


def test_a_worker_answers_for_what_it_started(worker: subprocess.Popen[str]) -> None:
    looks = Sampler()
    (busy,) = psutil.Process(worker.pid).children()
    employed = [WatchedWorker(worker.pid, trial=3, rank=1), WatchedWorker(os.getpid(), trial=4)]
    first = {usage.trial: usage for usage in looks.sample(employed).workers}
    assert first[3].cpus is None
    wait_until_it_worked(busy)
    usages = {usage.trial: usage for usage in looks.sample(employed).workers}
    assert (usages[3].pid, usages[3].rank) == (worker.pid, 1)
    assert usages[3].cpus is not None
    assert usages[3].cpus > 0
    assert usages[3].memory_bytes > busy.memory_info().rss
    assert usages[4].memory_bytes > usages[3].memory_bytes  # it started all that is here


def test_a_worker_is_that_of_its_newest_trial_until_it_ends(worker: subprocess.Popen[str]) -> None:
    looks = Sampler()
    employed = [WatchedWorker(worker.pid, trial=3), WatchedWorker(worker.pid, trial=4)]
    assert [usage.trial for usage in looks.sample(employed).workers] == [4]
    end(worker)
    assert looks.sample(employed).workers == ()
    assert looks.sample([WatchedWorker(2**22 + 1, trial=5)]).workers == ()


def test_energy_is_that_of_who_keeps_processors_busy(
    worker: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used_j = 0.0

    def count() -> dict[str, EnergyCounter]:
        return {"package": EnergyCounter(used_j)}

    monkeypatch.setattr(usage_sampler, "processor_counters", count)
    looks = Sampler()
    looks.sample([WatchedWorker(worker.pid, trial=3)])
    used_j = 100.0
    (busy,) = psutil.Process(worker.pid).children()
    wait_until_it_worked(busy)
    sample = looks.sample([WatchedWorker(worker.pid, trial=3)])
    assert sample.cpu_energy_j == pytest.approx(100.0)
    assert sample.workers[0].cpu_energy_j is not None
    assert 0 < sample.workers[0].cpu_energy_j <= 100.0
    monkeypatch.setattr(usage_sampler, "processor_counters", dict)
    unmetered = looks.sample([WatchedWorker(worker.pid, trial=3)])
    assert (unmetered.cpu_energy_j, unmetered.workers[0].cpu_energy_j) == (None, None)
