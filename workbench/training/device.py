"""The device of a worker: where it computes, how full its GPU is, and its energy counters."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from workbench.experiment import Experiment
from workbench.hardware.resources import EnergyCounter, gpu_counter, processor_counters
from workbench.hardware.resources.inventory import CONTEXT_BYTES, allowed_bytes
from workbench.hardware.resources.nvml import FOREIGN_PART, occupation_of
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.worker_task import TrialTask


def choose_device(experiment: Experiment) -> torch.device:
    """Return the device of this worker: a GPU if it sees one and may use it, or else the CPU."""
    if experiment.resources.gpus_per_worker != 0 and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def join_trial(task: TrialTask) -> Worker:
    """Join the other workers of a trial. The caller must close the group at the end."""
    device = choose_device(task.experiment)
    limit_memory(task.experiment, device)
    group = Group(task.rank, task.num_workers, device, task.meeting)
    return Worker(task.rank, task.num_workers, device, group)


def foreign_bytes(gpus: Sequence[str] = ()) -> int:
    """Return how much of this process's GPUs others hold, or 0 if it is too little to matter.

    Use it only in a process that has whole GPUs to itself.

    Args:
        gpus: The GPUs, by index or UUID. NVML is asked about them if torch sees no GPU.
    """
    if not torch.cuda.is_available():
        occupied = filter(None, (occupation_of(gpu, [os.getpid()]) for gpu in gpus))
        return sum(occupation.held_bytes for occupation in occupied)
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    held_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved() - CONTEXT_BYTES
    if held_bytes <= FOREIGN_PART * total_bytes:
        return 0
    return held_bytes


def limit_memory(experiment: Experiment, device: torch.device) -> None:
    """Limit this process to its part of a GPU's memory. Other processes may need the rest.

    Args:
        experiment: The experiment that this process trains.
        device: The device. Nothing is limited on a CPU.
    """
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        allowed = allowed_bytes(total_bytes, experiment.resources.gpu_share)
        torch.cuda.set_per_process_memory_fraction(allowed / total_bytes, device)


class HeldMemory:
    """Watches how much of its allowed GPU memory an attempt has held at most."""

    def __init__(self, device: torch.device, experiment: Experiment) -> None:
        """Start to watch.

        Args:
            device: This worker's device.
            experiment: The experiment that this process trains.
        """
        self.limit_bytes: float | None = None
        """What this process may use, or None without a GPU."""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            total_bytes = torch.cuda.get_device_properties(device).total_memory
            self.limit_bytes = allowed_bytes(total_bytes, experiment.resources.gpu_share)

    def share(self) -> float | None:
        """Return the largest share so far, at most 1, or None without a GPU."""
        if not self.limit_bytes:
            return None
        return min(torch.cuda.max_memory_allocated() / self.limit_bytes, 1.0)


def energy_counters(device: torch.device) -> dict[str, EnergyCounter]:
    """Read the energy counters of a worker's GPU, or of its machine's processors.

    The result is empty if there are none.
    """
    if device.type == "cuda":
        return gpu_counter(uuid_of(device))
    return processor_counters()


def uuid_of(device: torch.device) -> str:
    """Return the UUID of a GPU, as NVML and nvidia-smi name it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
