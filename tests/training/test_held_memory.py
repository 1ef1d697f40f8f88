"""How much of a GPU an attempt has held, with a device that is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from workbench.experiment import Experiment
from workbench.training.device import HeldMemory, limit_memory

GIB = 2**30


def sharing(gpus_per_worker: float | str) -> Experiment:
    return Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        resources={"gpus_per_worker": gpus_per_worker},
    )


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Stand in for a GPU of 16 GiB whose peak of an earlier trial was 15 GiB."""
    peak = {"bytes": 15 * GIB}
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda _device: peak.update(bytes=GIB)
    )
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(total_memory=16 * GIB)
    )
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak["bytes"])
    return peak


def test_it_is_the_peak_of_this_attempt_as_a_part_of_the_whole(held: dict[str, int]) -> None:
    memory = HeldMemory(torch.device("cuda", 0), sharing("auto"))
    assert memory.share() == 1 / 16, "what an earlier trial held does not count"
    held["bytes"] = 12 * GIB
    assert memory.share() == 0.75


@pytest.mark.parametrize(("gpus", "share"), [(0.5, 1.0), (0.75, 8 / 11), (2, 0.5)])
def test_of_a_shared_gpu_only_its_part_counts(
    held: dict[str, int], gpus: float, share: float
) -> None:
    memory = HeldMemory(torch.device("cuda", 0), sharing(gpus))
    held["bytes"] = 8 * GIB
    assert memory.share() == pytest.approx(share)
    held["bytes"] = 20 * GIB
    assert memory.share() == 1.0


def test_without_a_gpu_nothing_is_stated() -> None:
    assert HeldMemory(torch.device("cpu"), sharing("auto")).share() is None


@pytest.mark.gpu
def test_a_process_gets_its_part_of_a_gpu_and_no_more() -> None:
    device = torch.device("cuda", 0)
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    try:
        limit_memory(sharing(0.25), device)
        kept = torch.empty(total_bytes // 8, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total_bytes // 4, dtype=torch.uint8, device=device)
        del kept
    finally:
        limit_memory(sharing("auto"), device)
    torch.cuda.empty_cache()
    torch.empty(total_bytes // 3, dtype=torch.uint8, device=device)
