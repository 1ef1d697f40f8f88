"""What a machine is doing, also where a card tells only half of it or falls off the bus."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pynvml
import pytest

from workbench.resources import Gpu, GpuUsage, UsageMeter
from workbench.resources.nvml import gpu_usage

CARD = Gpu(index=0, name="card", memory_bytes=8 << 30, uuid="GPU-1")


def test_a_busy_processor_is_seen_between_two_looks() -> None:
    meter = UsageMeter()
    assert meter.look().cpu_utilisation is None
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        pass
    usage = meter.look()
    assert usage.cpu_utilisation is not None
    assert 0 < usage.cpu_utilisation <= 1
    assert usage.memory_used_bytes > 0
    assert len(usage.gpus) == len(usage.machine.gpus)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    answers: dict[str, object] = {
        "nvmlDeviceGetHandleByUUID": "handle",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=75),
        "nvmlDeviceGetPowerUsage": 210_000,
        "nvmlDeviceGetTemperature": 64,
    }

    def make(name: str):
        def call(*_: object) -> object:
            answer = answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    for name in answers:
        monkeypatch.setattr(pynvml, name, make(name))
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda: None)
    return answers


def test_a_card_tells_what_it_is_doing(driver: dict[str, object]) -> None:
    assert gpu_usage([CARD]) == (GpuUsage(0.75, 3 << 30, 210.0, 64),)


def test_what_a_card_does_not_tell_is_unknown_and_the_rest_is_told(driver: dict[str, object]) -> None:
    driver["nvmlDeviceGetPowerUsage"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert gpu_usage([CARD]) == (GpuUsage(0.75, 3 << 30, None, 64),)


def test_a_card_that_is_gone_is_no_error(driver: dict[str, object]) -> None:
    driver["nvmlDeviceGetHandleByUUID"] = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    assert gpu_usage([CARD]) == (GpuUsage(),)
