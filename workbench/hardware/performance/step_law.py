"""The law of a training step by topology and batch, and the prior of its parameters.

A step of K GPUs on N nodes, G on the fullest, with micro batch b, joins computing and
communicating:

    compute = scale * ((1 - share) + share * b / b0) * (1 + contention * (1 - 1/G))
    communication
        = scale * ring * (1 + ring_growth * log2(K/2))         on one node
        = scale * ring * network * volume * (1 + network_growth * x) + hop * (K - 2)
                                                               on two nodes
        = the same, its first part * many_nodes * (N/3)^many_nodes_exponent
                                                               on more nodes
    step = (compute^p + communication^p)^(1/p),  p = 1 + overlap

A ring sends volume = 2 (K-1)/K of the gradients over the network link of each node. From two nodes
to four, that grows by half with one GPU on each, but by 7 % with four. The laws of communication
differ in x. With p = 1 there is no overlap, and a large p hides the shorter part behind the longer
one. Parameters are fitted as logarithms (the share as log-odds, the exponent unchanged), so that
priors are normal distributions and no time can be negative. Only the prior of hop is in seconds.
`step_time` fits them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.topology import KINDS, Topology

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plans:
    """Plans as columns for the law, with one row per plan.

    Attributes:
        num_nodes: [n] nodes.
        num_gpus: [n] GPUs on all nodes.
        most_gpus_per_node: [n] GPUs on the fullest node.
        micro_batch: [n] samples per GPU.
        kind: [n] indices of `topology.KINDS`.
        placement: [n] `Topology.placement`, equal for plans that use hardware in the same way.
    """

    num_nodes: Array
    num_gpus: Array
    most_gpus_per_node: Array
    micro_batch: Array
    kind: NDArray[np.int_]
    placement: NDArray[np.str_]

    @classmethod
    def of(cls, topologies: Sequence[Topology], micro_batches: Sequence[float]) -> Plans:
        """Put plans into columns."""
        return cls(
            num_nodes=np.array([topology.num_nodes for topology in topologies], float),
            num_gpus=np.array([topology.num_gpus for topology in topologies], float),
            most_gpus_per_node=np.array(
                [topology.most_gpus_per_node for topology in topologies], float
            ),
            micro_batch=np.array(micro_batches, float),
            kind=np.array([KINDS.index(topology.kind) for topology in topologies], int),
            placement=np.array([topology.placement for topology in topologies], str),
        )

    def __len__(self) -> int:
        return len(self.num_gpus)

    def rows(self, selected: NDArray[np.int_]) -> Plans:
        """Return some of the rows."""
        return Plans(*(getattr(self, name)[selected] for name in self.__dataclass_fields__))


# Priors of the parameters: mean and standard deviation of their logarithm.
_BELIEFS = {
    # The compute time at the middle batch, relative to the middle of all measured times.
    "scale": (0.0, 2.0),
    # Log-odds of the share of it that grows with the batch.
    "share": (0.0, 1.5),
    # GPUs of one node share its memory, bus and input pipeline, which usually costs a few per cent.
    "contention": (np.log(0.05), 1.0),
    # Communication of two GPUs on a node, relative to computing.
    "ring": (np.log(0.1), 1.5),
    # A ring of K carries 2 (K-1)/K of the gradients over each link: from 2 to 8, 0.38 more per
    # doubling.
    "ring_growth": (np.log(0.4), 0.8),
    # Links between nodes are several times slower than those within. GPUs of a node share them, but
    # the volume of the ring already says most of it.
    "network": (np.log(4.0), 1.2),
    "network_growth": (np.log(0.05), 0.8),
    # Seconds that each GPU beyond two adds to a ring between nodes, whatever it sends: two messages
    # more, of some 150 us each.
    "hop": (np.log(3e-4), 1.5),
    # Two nodes send both directions of their ring over one pair of links, often as one flow. Three
    # and more nodes have a neighbour on either side, so they send up to twice as fast.
    "many_nodes": (-0.5, 0.15),
    "many_nodes_exponent": (0.15, 0.15),
    # p = 1 + exp(overlap): around 2.
    "overlap": (0.0, 0.7),
}
# Clusters differ, so the prior is wide if three or more nodes were measured.
_WHERE_MANY_WERE_MEASURED = 0.3
PARAMETERS = tuple(_BELIEFS)
_INDEX = {name: index for index, name in enumerate(PARAMETERS)}


def _per_node(plans: Plans) -> Array:
    return np.log2(plans.num_gpus / plans.num_nodes)


def _log2_of_group(plans: Plans) -> Array:
    return np.log2(np.maximum(plans.num_gpus, 2.0) / 2.0)


def _linear_in_group(plans: Plans) -> Array:
    return np.maximum(plans.num_gpus - 2.0, 0.0) / 2.0


# The possible x of communication between nodes, the first one to start with.
LAWS: dict[str, Callable[[Plans], Array]] = {
    "GPUs per node": _per_node,
    "log2 of the group": _log2_of_group,
    "linear in the group": _linear_in_group,
}


@dataclass(frozen=True)
class StepLaw:
    """One law of a step.

    Attributes:
        communication: The name of one of `LAWS`.
        middle_batch: b0, the micro batch at which `scale` is the compute time.
    """

    communication: str
    middle_batch: float

    def compute_s(self, parameters: Array, plans: Plans) -> Array:
        """Return the seconds of computing one micro batch, [n]."""
        share = 1.0 / (1.0 + np.exp(-parameters[_INDEX["share"]]))
        contention = np.exp(parameters[_INDEX["contention"]]) * (
            1.0 - 1.0 / plans.most_gpus_per_node
        )
        affine = (1.0 - share) + share * plans.micro_batch / self.middle_batch
        return np.exp(parameters[_INDEX["scale"]]) * affine * (1.0 + contention)

    def communication_s(self, parameters: Array, plans: Plans) -> Array:
        """Return the seconds of exchanging the gradients of a step, [n], which are 0 on one GPU."""
        value = {name: np.exp(parameters[index]) for name, index in _INDEX.items()}
        ring_s = value["scale"] * value["ring"]
        within = ring_s * (1.0 + value["ring_growth"] * _log2_of_group(plans))
        volume = 2.0 * (1.0 - 1.0 / np.maximum(plans.num_gpus, 2.0))
        growth = volume * (1.0 + value["network_growth"] * LAWS[self.communication](plans))
        exponent = parameters[_INDEX["many_nodes_exponent"]]
        many = value["many_nodes"] * (np.maximum(plans.num_nodes, 3.0) / 3.0) ** exponent
        between = ring_s * value["network"] * growth * np.where(plans.num_nodes > 2, many, 1.0)
        between += value["hop"] * np.maximum(plans.num_gpus - 2.0, 0.0)
        return np.where(plans.num_gpus < 2, 0.0, np.where(plans.num_nodes < 2, within, between))

    def log_step(self, parameters: Array, plans: Plans) -> Array:
        """Return the logarithm of the seconds of one step, [n]."""
        compute_s = self.compute_s(parameters, plans)
        communication_s = self.communication_s(parameters, plans)
        power = 1.0 + np.exp(parameters[_INDEX["overlap"]])
        return np.log(p_norm(compute_s, communication_s, power))


def p_norm(first: Array, second: Array, power: Array | float) -> Array:
    """Return (first^p + second^p)^(1/p), [n]: the sum at p = 1, and the larger one for large p.

    Args:
        first: [n] numbers >= 0.
        second: [n] numbers >= 0. At least one number of each pair is positive.
        power: p, at least 1.
    """
    larger = np.maximum(first, second)  # divided out, so that no power overflows
    return larger * ((first / larger) ** power + (second / larger) ** power) ** (1.0 / power)


def believe(plans: Plans, middle_time_s: float) -> tuple[Array, Array]:
    """Return the prior: means and standard deviations, in the order of `PARAMETERS`.

    Args:
        plans: The measured plans.
        middle_time_s: The middle of the measured times, which sets the scale.
    """
    beliefs = np.array(list(_BELIEFS.values()))
    means, deviations = beliefs[:, 0].copy(), beliefs[:, 1].copy()
    means[_INDEX["scale"]] += np.log(middle_time_s)
    if np.any(plans.num_nodes > 2):
        deviations[[_INDEX["many_nodes"], _INDEX["many_nodes_exponent"]]] = (
            _WHERE_MANY_WERE_MEASURED
        )
    return means, deviations
