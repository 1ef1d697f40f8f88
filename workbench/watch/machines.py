"""Machines as front ends show them: those of a run, as its driver stored them, or else this one.

A server never attaches to a cluster: what it tells of other machines was stored first.
"""

from __future__ import annotations

import time

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import RunNotFoundError
from workbench.resources import Gpu, GpuUsage, NodeSample, Span
from workbench.resources.nvml import GpusState, GpuState
from workbench.resources.sampler import NodeState
from workbench.store import Store
from workbench.store.samples import read_newest_samples

FRESH_S = 30.0
"""How old what a driver saw may be to be shown as what machines are doing."""


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class GpuPicture(_Told):
    """One GPU; what it does not tell is None."""

    index: int
    name: str
    state: GpuState
    utilisation: float | None = Field(description="From 0 to 1.")
    memory_used_bytes: int | None
    memory_bytes: int | None
    power_w: float | None
    temperature_c: float | None
    clock_mhz: float | None
    slowed_by: tuple[str, ...] = Field(description="Why it runs slower than it could.")
    ecc_uncorrected: int | None = Field(description="Memory errors that were not corrected.")
    xids: tuple[int, ...] = Field(description="Errors that its driver has just reported.")
    pcie_bytes_per_s: float | None = Field(description="Sent and received.")
    nvlink_bytes_per_s: float | None = Field(description="Sent and received.")
    trials: tuple[int, ...] = Field(description="Those of the run that hold it.")


class NodePicture(_Told):
    """One machine."""

    node: str = Field(description="What names it among the others.")
    host: str
    state: NodeState
    num_cpus: int
    cpu_utilisation: float | None = Field(description="From 0 to 1.")
    memory_used_bytes: int | None
    memory_bytes: int
    disk_used_bytes: int | None
    disk_bytes: int | None
    network_bytes_per_s: float | None = Field(description="Sent and received.")
    gpus: tuple[GpuPicture, ...]
    gpus_state: GpusState
    no_gpus_because: str | None
    trials: tuple[int, ...] = Field(description="Those of the run that have workers there.")


class ResourcesPicture(_Told):
    """Machines and what they are doing."""

    time_unix_s: float
    nodes: tuple[NodePicture, ...]
    of_run: str | None = Field(default=None, description="The run whose machines they are; None: this one.")


def picture_of_machine(sample: NodeSample) -> ResourcesPicture:
    """Return a picture of this machine alone."""
    return ResourcesPicture(time_unix_s=sample.time_unix_s, nodes=(_node(sample.machine.host, sample),))


def picture_of_cluster(store: Store, run_id: str) -> ResourcesPicture | None:
    """Return the machines of a run as its driver saw them last; None where it has not done so lately."""
    try:
        rows = read_newest_samples(store, run_id)
    except RunNotFoundError:  # the picture of the run itself says so
        return None
    if not rows or time.time() - rows[0].time_unix_s > FRESH_S:
        return None
    nodes = [_node(row.node, Span.from_json(row.payload).mean) for row in rows]
    return ResourcesPicture(
        time_unix_s=rows[0].time_unix_s,
        nodes=tuple(sorted(nodes, key=lambda node: (node.host, node.node))),
        of_run=run_id,
    )


def _node(name: str, sample: NodeSample) -> NodePicture:
    machine = sample.machine
    # A machine that does not answer has GPUs and nothing that is known of them.
    usages = sample.gpus or tuple(GpuUsage() for _ in machine.gpus)
    return NodePicture(
        node=name,
        host=machine.host,
        state=sample.state,
        num_cpus=machine.num_cpus,
        cpu_utilisation=sample.cpu_utilisation,
        memory_used_bytes=sample.memory_used_bytes,
        memory_bytes=machine.memory_bytes,
        disk_used_bytes=sample.disk_used_bytes,
        disk_bytes=sample.disk_bytes,
        network_bytes_per_s=_both(sample.network_sent_bytes_per_s, sample.network_received_bytes_per_s),
        gpus=tuple(_gpu(gpu, usage, sample) for gpu, usage in zip(machine.gpus, usages, strict=True)),
        gpus_state=machine.gpus_state,
        no_gpus_because=machine.no_gpus_because,
        trials=tuple(sorted({worker.trial for worker in sample.workers})),
    )


def _gpu(gpu: Gpu, usage: GpuUsage, sample: NodeSample) -> GpuPicture:
    return GpuPicture(
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
        trials=tuple(sorted({worker.trial for worker in sample.workers if gpu.uuid in worker.gpus})),
    )


def _both(sent: float | None, received: float | None) -> float | None:
    return None if sent is None and received is None else (sent or 0.0) + (received or 0.0)
