"""The status of machines for front ends.

Those of a run, as stored by its driver, or else this machine.

A server never connects to a cluster: everything it shows of other machines comes from the store.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.errors import RunNotFoundError
from workbench.foundation.events import steady_unix_s
from workbench.hardware.resources import Gpu, GpuUsage, NodeSample, Rollup
from workbench.hardware.resources.nvml import GpusState, GpuState
from workbench.hardware.resources.usage_sampler import NodeState
from workbench.store.database import Store
from workbench.store.database.samples import read_newest_samples

FRESH_S = 30.0
"""Maximum age of a stored sample that still counts as current."""


class _Status(BaseModel):
    model_config = ConfigDict(frozen=True)


class GpuStatus(_Status):
    """The status of one GPU. Values it does not report are None."""

    index: int
    name: str
    state: GpuState
    utilisation: float | None = Field(description="From 0 to 1.")
    memory_used_bytes: int | None
    memory_bytes: int | None
    power_w: float | None
    temperature_c: float | None
    clock_mhz: float | None
    slowed_by: tuple[str, ...] = Field(description="Reasons for which its clock is reduced.")
    ecc_uncorrected: int | None = Field(description="Number of uncorrected memory errors.")
    xids: tuple[int, ...] = Field(description="Recent errors reported by its driver.")
    pcie_bytes_per_s: float | None = Field(description="Sent plus received.")
    nvlink_bytes_per_s: float | None = Field(description="Sent plus received.")
    trials: tuple[int, ...] = Field(description="Trials of the run that use it.")


class NodeStatus(_Status):
    """The status of one machine."""

    node: str = Field(description="Its unique name.")
    host: str
    state: NodeState
    num_cpus: int
    cpu_utilisation: float | None = Field(description="From 0 to 1.")
    memory_used_bytes: int | None
    memory_bytes: int
    disk_used_bytes: int | None
    disk_bytes: int | None
    network_bytes_per_s: float | None = Field(description="Sent plus received.")
    gpus: tuple[GpuStatus, ...]
    gpus_state: GpusState
    no_gpus_because: str | None
    trials: tuple[int, ...] = Field(description="Trials of the run with workers on it.")


class MachinesStatus(_Status):
    """The status of several machines."""

    time_unix_s: float
    nodes: tuple[NodeStatus, ...]
    of_run: str | None = Field(
        default=None, description="The run they belong to, or None for this machine."
    )


def machine_status(sample: NodeSample) -> MachinesStatus:
    """Return the status of this machine alone."""
    return MachinesStatus(
        time_unix_s=sample.time_unix_s, nodes=(_node(sample.machine.host, sample),)
    )


def cluster_status(store: Store, run_id: str) -> MachinesStatus | None:
    """Return the status of a run's machines, or None if its driver stored nothing recently."""
    try:
        rows = read_newest_samples(store, run_id)
    except RunNotFoundError:  # reported with the run itself
        return None
    if not rows or steady_unix_s() - rows[0].time_unix_s > FRESH_S:
        return None
    nodes = [_node(row.node, Rollup.from_json(row.payload).mean) for row in rows]
    return MachinesStatus(
        time_unix_s=rows[0].time_unix_s,
        nodes=tuple(sorted(nodes, key=lambda node: (node.host, node.node))),
        of_run=run_id,
    )


def _node(name: str, sample: NodeSample) -> NodeStatus:
    machine = sample.machine
    # A machine that does not answer still has GPUs, with unknown usage.
    usages = sample.gpus or tuple(GpuUsage() for _ in machine.gpus)
    return NodeStatus(
        node=name,
        host=machine.host,
        state=sample.state,
        num_cpus=machine.num_cpus,
        cpu_utilisation=sample.cpu_utilisation,
        memory_used_bytes=sample.memory_used_bytes,
        memory_bytes=machine.memory_bytes,
        disk_used_bytes=sample.disk_used_bytes,
        disk_bytes=sample.disk_bytes,
        network_bytes_per_s=_both(
            sample.network_sent_bytes_per_s, sample.network_received_bytes_per_s
        ),
        gpus=tuple(
            _gpu(gpu, usage, sample) for gpu, usage in zip(machine.gpus, usages, strict=True)
        ),
        gpus_state=machine.gpus_state,
        no_gpus_because=machine.no_gpus_because,
        trials=tuple(sorted({worker.trial for worker in sample.workers})),
    )


def _gpu(gpu: Gpu, usage: GpuUsage, sample: NodeSample) -> GpuStatus:
    return GpuStatus(
        index=gpu.index,
        name=gpu.name,
        state=usage.state,
        utilisation=usage.utilisation,
        memory_used_bytes=usage.memory_used_bytes,
        memory_bytes=gpu.memory_bytes,
        power_w=usage.power_w,
        temperature_c=usage.temperature_c,
        clock_mhz=usage.clock_mhz,
        slowed_by=usage.slowed_by,
        ecc_uncorrected=usage.ecc_uncorrected,
        xids=usage.xids,
        pcie_bytes_per_s=_both(usage.pcie_sent_bytes_per_s, usage.pcie_received_bytes_per_s),
        nvlink_bytes_per_s=_both(usage.nvlink_sent_bytes_per_s, usage.nvlink_received_bytes_per_s),
        trials=tuple(
            sorted({worker.trial for worker in sample.workers if gpu.uuid in worker.gpus})
        ),
    )


def _both(sent: float | None, received: float | None) -> float | None:
    if sent is None and received is None:
        return None
    return (sent or 0.0) + (received or 0.0)
