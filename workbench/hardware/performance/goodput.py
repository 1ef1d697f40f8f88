"""Compute goodput (throughput times statistical efficiency), and find the batch with the most.

This module also has the published law of a step with seven parameters. Published values use this
law, and `step_time` is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
StepTime = Callable[[Array, Array], ArrayLike]
_ROUNDING = 1e-8


@dataclass(frozen=True)
class PolluxLaw:
    """The published law of a step.

    Attributes:
        compute_s: Seconds of a micro step that do not depend on its batch.
        compute_s_per_sample: Additional seconds per sample of the micro batch.
        node_s: Seconds to synchronise two GPUs on one node.
        node_s_per_gpu: Additional seconds per further GPU.
        network_s: Seconds to synchronise two GPUs on different nodes.
        network_s_per_gpu: Additional seconds per further GPU.
        overlap: The norm that joins computing and synchronising, from 1 (one after the other) to
            10.

    Source: Qiao et al., Pollux, OSDI 2021, section 3.2.
    """

    compute_s: float
    compute_s_per_sample: float
    node_s: float
    node_s_per_gpu: float
    network_s: float
    network_s_per_gpu: float
    overlap: float

    def step_s(
        self,
        num_nodes: ArrayLike,
        num_gpus: ArrayLike,
        micro_batch: ArrayLike,
        accumulation: ArrayLike = 1,
    ) -> Array:
        """Return the seconds of a step. Arguments may be arrays of any shape.

        Args:
            num_nodes: Nodes, at least 1.
            num_gpus: GPUs on all nodes together.
            micro_batch: Samples per GPU and micro step.
            accumulation: Micro steps per step, at least 1.
        """
        nodes, gpus = np.asarray(num_nodes, float), np.asarray(num_gpus, float)
        compute_s = self.compute_s + self.compute_s_per_sample * np.asarray(micro_batch, float)
        further = np.maximum(gpus - 2.0, 0.0)
        within_s = self.node_s + self.node_s_per_gpu * further
        between_s = self.network_s + self.network_s_per_gpu * further
        sync_s = np.where(gpus < 2, 0.0, np.where(nodes < 2, within_s, between_s))
        longer = np.maximum(compute_s, sync_s)
        joined = (compute_s / longer) ** self.overlap + (sync_s / longer) ** self.overlap
        return (np.asarray(accumulation, float) - 1.0) * compute_s + longer * joined ** (
            1.0 / self.overlap
        )


def efficiency(global_batch: ArrayLike, base_batch: float, noise_scale: float) -> Array:
    """Return the value of a sample at a batch relative to the base batch: (phi + B0) / (phi + B).

    Args:
        global_batch: Samples per step, at least the base batch. It may be an array of any shape.
        base_batch: The batch whose samples count as 1.
        noise_scale: The gradient noise scale phi in samples, see `noise_scale_of`.

    Returns:
        Numbers in (0, 1] that fall as the batch grows.

    Source: McCandlish et al. 2018; Qiao et al., Pollux, OSDI 2021, section 3.1.
    """
    return (noise_scale + base_batch) / (noise_scale + np.asarray(global_batch, float))


def noise_scale_of(base_batch: float, variance: float, squared_norm: float) -> float:
    """Return the gradient noise scale in samples.

    Args:
        base_batch: The batch at which both were estimated.
        variance: Variance of the gradient of such a batch, summed over parameters, >= 0.
        squared_norm: Squared norm of the true gradient, > 0.
    """
    return base_batch * variance / squared_norm


class Goodput(NamedTuple):
    """The goodput of a plan: samples per second, the value of each, and the batch for it."""

    goodput_samples_per_s: float
    throughput_samples_per_s: float
    efficiency: float
    micro_batch: int
    accumulation: int


def optimize(
    step_time_s: StepTime,
    num_gpus: int,
    global_batches: ArrayLike,
    *,
    base_batch: float,
    noise_scale: float,
    micro_batch_range: tuple[int, int],
) -> Goodput | None:
    """Find the micro batch and accumulation with the most goodput.

    Each global batch is divided into as few micro steps as the largest micro batch allows. Beyond
    the base batch, a single GPU makes at least two micro steps, because measuring gradient noise
    needs several gradients.

    Args:
        step_time_s: Returns the seconds per step for arrays of micro batches and accumulations.
        num_gpus: GPUs of the plan.
        global_batches: The batches to choose from, in samples. Batches below the base batch are
            ignored.
        base_batch: The batch whose samples count as 1.
        noise_scale: The gradient noise scale, in samples.
        micro_batch_range: The least and the most samples per GPU and micro step.

    Returns:
        The best plan, or None if no batch can be divided like this.

    Source: Qiao et al., Pollux, OSDI 2021; enumeration as in adaptdl/goodput.py.
    """
    least, most = micro_batch_range
    wanted = np.asarray(global_batches, float)
    wanted = wanted[wanted >= base_batch - _ROUNDING]
    accumulation = np.ceil(wanted / num_gpus / most - _ROUNDING)
    if num_gpus == 1:
        accumulation = np.where(
            wanted > base_batch + _ROUNDING, np.maximum(accumulation, 2.0), accumulation
        )
    accumulation = np.maximum(accumulation, 1.0)
    micro_batch = np.ceil(wanted / num_gpus / accumulation - _ROUNDING)
    possible = (micro_batch >= least) & (micro_batch <= most)
    micro_batch, accumulation = micro_batch[possible], accumulation[possible]
    if not len(micro_batch):
        return None
    batch = num_gpus * micro_batch * accumulation
    throughput = batch / np.asarray(step_time_s(micro_batch, accumulation), float)
    worth = efficiency(batch, base_batch, noise_scale)
    best = int(np.argmax(throughput * worth))
    return Goodput(
        float(throughput[best] * worth[best]),
        float(throughput[best]),
        float(worth[best]),
        int(micro_batch[best]),
        int(accumulation[best]),
    )
