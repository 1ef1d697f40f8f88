"""GPUs of every kind and fault, as a stand-in for NVIDIA's library plays them to a process of its
own.
"""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.fake_nvml import GIB, H100, K20, T4, FakeNvml
from workbench.hardware.resources import Gpu, GpuUsage, Sampler, inventory
from workbench.hardware.resources.nvml import FoundGpus

ROOT = Path(__file__).parents[3]
LOST, NEEDS_RESET, NO_DRIVER, WRONG_DRIVER, NO_PERMISSION = 15, 16, 9, 18, 4

# Lines are expressions; what they come to is written back. `meter` looks at the GPUs of the last
# `find()`.
PROGRAM = """
import base64, os, pickle, sys, threading, time
import psutil
from workbench.hardware.resources import GpuMeter, Sampler, gpu_counter, inventory
from workbench.hardware.resources.inventory import stay_near
from workbench.hardware.resources.nvml import gpus_named, list_gpus, occupation_of
def start_thread():
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def affinities():
    threads = psutil.Process().threads()
    return {frozenset(os.sched_getaffinity(thread.id)) for thread in threads}
meter = GpuMeter(())
def find():
    global meter
    meter.close()
    found = list_gpus()
    meter = GpuMeter(found.gpus)
    return found
for line in sys.stdin:
    print(base64.b64encode(pickle.dumps(eval(line))).decode(), flush=True)
"""


class Machine:
    """A process that sees the library."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.play = nvml.play
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **nvml.environment, "PYTHONPATH": str(ROOT)},
        )

    def ask(self, expression: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        return pickle.loads(base64.b64decode(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def machine(fake_nvml_library: FakeNvml) -> Iterator[Machine]:
    process = Machine(fake_nvml_library)
    yield process
    process.close()
    fake_nvml_library.play()


def test_what_is_missing_has_a_name_and_is_no_exception(machine: Machine) -> None:
    for code, state in (
        (NO_DRIVER, "no driver"),
        (WRONG_DRIVER, "wrong driver"),
        (NO_PERMISSION, "failed"),
    ):
        machine.play(H100, init=code)
        asked = machine.ask("find()")
        assert (asked.gpus, asked.state, machine.ask("meter.read()")) == ((), state, ())
        assert asked.reason
        assert machine.ask("gpu_counter('GPU-00000000-fake')") == {}
    machine.play()
    assert machine.ask("find()") == FoundGpus((), "no gpu", "the NVIDIA driver finds no GPU")
    asked = machine.ask("inventory()")
    assert (asked.gpus_state, asked.no_gpus_because) == ("no gpu", "the NVIDIA driver finds no GPU")


def test_a_card_that_tells_everything_is_told_in_full(machine: Machine) -> None:
    machine.play({**H100, "processes": "4242 1073741824", "slowed_bits": 0x60})
    assert machine.ask("find()").gpus == (Gpu(0, H100["name"], 80 * GIB, "GPU-00000000-fake"),)
    (usage,) = machine.ask("meter.read()")
    assert usage == GpuUsage(
        utilisation=pytest.approx(0.97),
        memory_used_bytes=60 * GIB,
        power_w=pytest.approx(650.0),
        temperature_c=64,
        clock_mhz=1755,
        memory_clock_mhz=2619,
        slowed_by=("heat",),
        ecc_corrected=3,
        ecc_uncorrected=0,
        processes=((4242, GIB),),
    )
    assert machine.ask("gpu_counter('GPU-00000000-fake')['GPU-00000000-fake'].energy_j") == 1000.0


def test_counters_become_what_was_used_since_the_last_look(machine: Machine) -> None:
    machine.play(H100)
    machine.ask("find()")
    machine.ask("meter.read()")
    grown = {"energy_mj": 1_042_000, "pcie_sent_bytes": 5_000_000, "nvlink_received_kib": 1024}
    machine.play({**H100, **grown})
    (usage,) = machine.ask("meter.read()")
    assert usage.energy_j == pytest.approx(42.0)
    assert usage.pcie_sent_bytes_per_s > 0
    assert (usage.pcie_received_bytes_per_s, usage.nvlink_sent_bytes_per_s) == (0, 0)
    assert usage.nvlink_received_bytes_per_s / usage.pcie_sent_bytes_per_s == pytest.approx(
        1024**2 / 5_000_000
    )
    machine.play({**H100, "energy_mj": 7, "pcie_sent_bytes": 1})  # its driver was loaded anew
    (usage,) = machine.ask("meter.read()")
    assert usage.pcie_sent_bytes_per_s is None
    assert 0 < usage.energy_j < 650  # by its power, over less than a second


def test_what_a_card_does_not_tell_is_unknown_and_the_rest_is_told(machine: Machine) -> None:
    machine.play(T4, K20)
    machine.ask("find()")
    machine.ask("meter.read()")
    small, old = machine.ask("meter.read()")
    assert (small.slowed_by, small.ecc_uncorrected) == (("power limit", "heat"), 0)
    assert (small.pcie_sent_bytes_per_s, small.pcie_received_bytes_per_s) == (2 << 20, 4 << 20)
    assert small.nvlink_sent_bytes_per_s is None
    assert small.energy_j == pytest.approx(0.0, abs=60)  # 60 W over less than a second
    assert small.energy_j > 0
    assert old == GpuUsage(temperature_c=38, memory_used_bytes=0)


def test_a_card_that_falls_off_the_bus_is_lost_and_may_come_back(machine: Machine) -> None:
    machine.play(H100, H100)
    assert machine.ask("find()").state == "ok"
    assert [usage.state for usage in machine.ask("meter.read()")] == ["ok", "ok"]
    machine.play(H100, {**H100, "error": LOST})
    here, lost = machine.ask("meter.read()")
    assert (here.state, here.temperature_c) == ("ok", 64)
    assert lost == GpuUsage(state="lost")
    assert machine.ask("meter.read()")[1] == GpuUsage(state="lost")
    asked = machine.ask("list_gpus()")
    assert ([gpu.index for gpu in asked.gpus], asked.state) == ([0], "ok")
    assert asked.reason == "NVML cannot describe GPU 1: GPU is lost"
    machine.play(H100)  # gone altogether
    assert machine.ask("meter.read()")[1] == GpuUsage(state="lost")
    machine.play(H100, {**H100, "error": NEEDS_RESET})
    assert machine.ask("meter.read()")[1] == GpuUsage(state="needs reset")
    machine.play(H100, H100)
    assert [usage.state for usage in machine.ask("meter.read()")] == ["ok", "ok"]


def test_a_driver_that_is_taken_away_is_missed_and_found_again(machine: Machine) -> None:
    machine.play(H100)
    machine.ask("find()")
    machine.ask("meter.read()")
    machine.play({**H100, "error": NO_DRIVER}, init=NO_DRIVER)
    assert machine.ask("meter.read()") == (GpuUsage(state="no driver"),)
    assert machine.ask("meter.read()") == (GpuUsage(state="no driver"),)
    machine.play(H100)
    assert machine.ask("meter.read()")[0].state == "ok"


def test_errors_that_the_driver_reports_are_told_once(machine: Machine) -> None:
    machine.play(H100, {**H100, "xids": "79"})
    machine.ask("find()")
    assert [usage.xids for usage in machine.ask("meter.read()")] == [(), (79,)]
    assert [usage.xids for usage in machine.ask("meter.read()")] == [(), ()]
    machine.play(H100, {**H100, "xids": "79 31 31", "ecc_uncorrected": 2})
    usage = machine.ask("meter.read()")[1]
    assert (usage.xids, usage.ecc_uncorrected) == ((31, 31), 2)
    machine.play(H100, {**H100, "xids": "79 31 31 48", "error": LOST})
    assert machine.ask("meter.read()")[1] == GpuUsage(state="lost", xids=(48,))


def test_links_are_named_as_nvidia_smi_names_them(machine: Machine) -> None:
    machine.play(
        {**H100, "nvlinks": "1 1 off switch", "topology": 40},
        {**H100, "nvlinks": "0 0", "topology": 50},
        {**H100, "nvlinks": "switch switch", "topology": 10},
        K20,
    )
    links = [gpu.links for gpu in machine.ask("list_gpus()").gpus]
    assert links == [
        ("X", "NV2", "NV1", "NODE"),
        ("NV2", "X", "SYS", "SYS"),
        ("NV1", "PIX", "X", "PIX"),
        ("", "", "", "X"),
    ]


def test_near_cpus_and_links_to_each_gpu_are_told(machine: Machine) -> None:
    machine.play(
        {**T4, "topology": "0 10 50", "cpus": 0b11},
        {**T4, "topology": "10 0 50", "cpus": 0b11},
        {**T4, "topology": "50 50 0"},
    )
    gpus = machine.ask("list_gpus()").gpus
    assert [gpu.links for gpu in gpus] == [
        ("X", "PIX", "SYS"),
        ("PIX", "X", "SYS"),
        ("SYS", "SYS", "X"),
    ]
    assert [gpu.cpus for gpu in gpus] == [(0, 1), (0, 1), ()]
    named = machine.ask("gpus_named(('1', 'GPU-00000002'))")
    assert [gpu.index for gpu in named] == [1, 2]


def test_all_threads_stay_on_the_cpus_near_their_gpu(machine: Machine) -> None:
    cpu = min(os.sched_getaffinity(0))
    machine.play({**T4, "cpus": 1 << cpu}, T4)
    machine.ask("start_thread()")
    before = machine.ask("affinities()")
    assert before == {frozenset(os.sched_getaffinity(0))}
    # A GPU whose CPUs are unknown, and fewer CPUs than threads, leave everything as it is.
    assert machine.ask("stay_near(gpus_named(['1']), 1)") == ()
    assert machine.ask("stay_near(gpus_named(['0']), 2)") == ()
    assert machine.ask("affinities()") == before
    assert machine.ask("stay_near(gpus_named(['0']), 1)") == (cpu,)
    machine.ask("start_thread()")
    assert machine.ask("affinities()") == {frozenset({cpu})}


def test_a_look_at_a_machine_tells_whose_memory_of_a_gpu_it_is(machine: Machine) -> None:
    pid = machine.ask("__import__('os').getpid()")
    machine.play({**H100, "processes": f"{pid} 4096 1 8192"})
    look = "__import__('workbench.hardware.resources').hardware.resources"
    sample = machine.ask(
        f"Sampler().sample([{look}.WatchedWorker({pid}, trial=7, rank=1, gpus=('0',))])"
    )
    (worker,) = sample.workers
    assert (worker.trial, worker.rank, worker.gpus) == (7, 1, ("GPU-00000000-fake",))
    assert worker.gpu_memory_bytes == 4096
    assert worker.memory_bytes > 1 << 20
    assert sample.gpus[0].processes == ()


@pytest.mark.gpu
def test_a_real_gpu_tells_what_it_is_doing() -> None:
    import torch

    assert inventory().gpus_state == "ok"
    sampler = Sampler()
    sampler.sample()
    numbers = torch.randn(4096, 4096, device="cuda")
    for _ in range(200):
        numbers = torch.nn.functional.normalize(numbers @ numbers)
    torch.cuda.synchronize()
    usage = sampler.sample().gpus[0]
    assert usage.state == "ok"
    assert usage.memory_used_bytes is not None
    assert usage.memory_used_bytes > numbers.nbytes
    assert usage.energy_j is not None
    assert usage.energy_j > 0
    assert usage.temperature_c is not None
    assert 0 < usage.temperature_c < 120
    assert usage.clock_mhz
    sampler.close()


def test_who_holds_memory_of_a_gpu_is_told_with_evidence(machine: Machine) -> None:
    own, other = os.getpid(), 2**22 + 1  # no process has this number
    held = {**H100, "memory_used_bytes": 30 * GIB}
    machine.play({**held, "processes": f"{own} {20 * GIB} {other} {10 * GIB}"}, T4)
    told = machine.ask("occupation_of('0', [])")
    assert told.uuid == "GPU-00000000-fake"
    assert told.held_bytes == 30 * GIB
    assert [(holder.pid, holder.used_bytes) for holder in told.holders] == [
        (own, 20 * GIB),
        (other, 10 * GIB),
    ]
    assert "python" in told.holders[0].name or "pytest" in told.holders[0].name
    assert told.holders[0].user
    assert str(told.holders[1]) == f"process {other}: 10 GiB"
    assert str(told).startswith("others hold 30 GiB of GPU GPU-00000000-fake (process ")

    # Its own memory does not count, and others may hold a little, as a desktop does.
    assert machine.ask(f"occupation_of('GPU-00000000-fake', [{own}])").held_bytes == 10 * GIB
    assert machine.ask(f"occupation_of('0', [{own}, {other}])") is None
    machine.play({**H100, "memory_used_bytes": GIB})
    assert machine.ask("occupation_of('0', [])") is None
    # A driver that does not list processes, and a GPU that is off the bus.
    machine.play(held)
    assert machine.ask("occupation_of('0', [])").holders == ()
    machine.play({**held, "error": LOST})
    assert machine.ask("occupation_of('0', [])") is None
