"""Attribute the energy of machines and GPUs to trials, by the times at which workers held them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workbench.hardware.resources.usage_sampler import NodeSample, uuids_of

JOULES_PER_WH = 3600.0


@dataclass(frozen=True)
class Assignment:
    """The time that one worker spent on one trial.

    Attributes:
        trial: The trial.
        rank: The worker's number in the trial.
        pid: Its process.
        node: The cluster's id of its node.
        gpus: The GPUs that it holds, by UUID or by number.
        gpu_share: Its share of each GPU.
        began_unix_s: When it started.
        ended_unix_s: When it ended, or None if it has not ended.
    """

    trial: int
    rank: int
    pid: int
    node: str
    gpus: tuple[str, ...]
    gpu_share: float
    began_unix_s: float
    ended_unix_s: float | None = None

    def part_of(self, begin_unix_s: float, end_unix_s: float) -> float:
        """Return the fraction of a time range that it covers, from 0 to 1."""
        if end_unix_s <= begin_unix_s:
            return 0.0
        ended = end_unix_s if self.ended_unix_s is None else self.ended_unix_s
        shared_s = min(ended, end_unix_s) - max(self.began_unix_s, begin_unix_s)
        return max(0.0, shared_s) / (end_unix_s - begin_unix_s)


@dataclass(frozen=True)
class TrialEnergy:
    """The metered energy of a trial. None means unknown, not 0.

    Attributes:
        gpu_j: Its share of the energy of its GPUs in joules, or 0 if it had none.
        cpu_j: Its share of the energy of the processors, by busy time, in joules.
    """

    gpu_j: float | None = None
    cpu_j: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything was metered."""
        return bool(self.gpu_j) or self.cpu_j is not None

    @property
    def total_wh(self) -> float | None:
        """The total in watt-hours, without processors if only GPUs are metered."""
        if self.gpu_j is None or not self.is_known:
            return None
        return (self.gpu_j + (self.cpu_j or 0.0)) / JOULES_PER_WH

    def plus(self, gpu_j: float | None, cpu_j: float | None) -> TrialEnergy:
        """Return the sum with more energy. Unknown amounts add nothing."""
        return TrialEnergy(_sum(self.gpu_j, gpu_j), _sum(self.cpu_j, cpu_j))


def attribute(
    node: str, sample: NodeSample, tenures: Iterable[Assignment], so_far: Mapping[int, TrialEnergy]
) -> dict[int, TrialEnergy]:
    """Return the energy of trials, including one more sample of a node.

    Args:
        node: The cluster's id of the node.
        sample: The sample.
        tenures: The assignments of workers to trials since the previous sample, on any node.
        so_far: The energy of trials before this sample.

    Returns:
        The energy of the trials that used the node since the previous sample.
    """
    begin, end = sample.time_unix_s - sample.elapsed_s, sample.time_unix_s
    parts = [(tenure, tenure.part_of(begin, end)) for tenure in tenures if tenure.node == node]
    parts = [(tenure, part) for tenure, part in parts if part > 0]
    by_pid: dict[int, float] = {}
    for tenure, part in parts:
        by_pid[tenure.pid] = by_pid.get(tenure.pid, 0.0) + part
    cards = {
        gpu.uuid: usage.energy_j
        for gpu, usage in zip(sample.machine.gpus, sample.gpus, strict=False)
    }
    processors = {worker.pid: worker.cpu_energy_j for worker in sample.workers}
    used: dict[int, TrialEnergy] = {}
    for tenure, part in parts:
        held = [cards.get(uuid) for uuid in uuids_of(sample.machine, tenure.gpus)]
        known = [energy_j for energy_j in held if energy_j is not None]
        gpu_j = sum(known) * part * tenure.gpu_share if len(known) == len(held) else None
        # A worker that served several trials since the last sample divides its energy by their
        # time.
        of_worker_j = processors.get(tenure.pid)
        cpu_j = None if of_worker_j is None else of_worker_j * part / by_pid[tenure.pid]
        before = used.get(tenure.trial) or so_far.get(tenure.trial) or TrialEnergy()
        used[tenure.trial] = before.plus(gpu_j, cpu_j)
    return used


def total_energy(energies: Iterable[TrialEnergy]) -> TrialEnergy:
    """Return the total, as far as it is known."""
    total = TrialEnergy()
    for energy in energies:
        total = total.plus(energy.gpu_j, energy.cpu_j)
    return total


def _sum(first: float | None, second: float | None) -> float | None:
    if first is None and second is None:
        return None
    return (first or 0.0) + (second or 0.0)
