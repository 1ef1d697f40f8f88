"""The residuals of a step's law, and how similar they are for similar plans.

Logarithms of measured times differ from the law by noise and a sum of parts. Each part is a
Gaussian process: over topology, over topology and batch, over batch, over batch for each kind of
topology, and over placement. Topologies of different kinds share only the part that depends on the
batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from workbench.hardware.performance.step_law import Array, Plans


@dataclass(frozen=True)
class Misfit:
    """The standard deviations of the parts (of the logarithm), and how far they reach.

    Attributes:
        topology: The part that is the same at all batches.
        topology_and_batch: The part that changes with both.
        batch: The part that is the same for all topologies, such as a batch at which kernels
            change.
        kind_and_batch: The part that is the same for topologies of one kind.
        placement: The part that is the same for rows with the same GPUs on each node.
        noise: The difference between measurements of the same plan.
        topology_reach: The distance of similar topologies, in doublings of GPUs.
        batch_reach: The distance of similar batches, in logarithms of the batch.
    """

    topology: float = 0.08
    topology_and_batch: float = 0.06
    batch: float = 0.04
    kind_and_batch: float = 0.04
    placement: float = 0.04
    noise: float = 0.06
    topology_reach: float = 1.0
    batch_reach: float = 1.0

    @property
    def variance(self) -> float:
        """The variance of one measurement, including noise."""
        parts = (
            self.topology,
            self.topology_and_batch,
            self.batch,
            self.kind_and_batch,
            self.placement,
        )
        return sum(part**2 for part in (*parts, self.noise))


_NAMES = tuple(field.name for field in fields(Misfit))


def _sizes(misfit: Misfit) -> Array:
    # Much faster than `astuple`, which copies deeply.
    return np.array([getattr(misfit, name) for name in _NAMES])


_DEFAULTS = _sizes(Misfit())
# The prior around the defaults: standard deviations of their logarithms.
_DOUBTS = _sizes(Misfit(0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.3, 0.4))
_FACTORS = (2.0, 1.5)
_ROUNDS = 2
_MIN_GAIN = 1e-3


def covariance(rows: Plans, columns: Plans, misfit: Misfit) -> Array:
    """Return the covariance of residuals without noise, [rows, columns]."""
    squared = (
        _log2_distance(rows.num_gpus, columns.num_gpus) ** 2
        + 4.0 * _log2_distance(rows.num_nodes, columns.num_nodes) ** 2
        + _log2_distance(rows.most_gpus_per_node, columns.most_gpus_per_node) ** 2
    )
    same_kind = rows.kind[:, None] == columns.kind[None, :]
    near_topology = np.where(same_kind, np.exp(-0.5 * squared / misfit.topology_reach**2), 0.0)
    batches = np.log(rows.micro_batch)[:, None] - np.log(columns.micro_batch)[None, :]
    near_batch = np.exp(-0.5 * (batches / misfit.batch_reach) ** 2)
    same_placement = rows.placement[:, None] == columns.placement[None, :]
    return (
        misfit.topology**2 * near_topology
        + misfit.topology_and_batch**2 * near_topology * near_batch
        + misfit.batch**2 * near_batch
        + misfit.kind_and_batch**2 * near_batch * same_kind
        + misfit.placement**2 * same_placement
    )


def _log2_distance(rows: Array, columns: Array) -> Array:
    return np.log2(rows)[:, None] - np.log2(columns)[None, :]


def noisy_covariance(plans: Plans, misfit: Misfit, noise_factors: Array) -> Array:
    """Return the covariance of measurements with their noise factors, [n, n]."""
    return covariance(plans, plans, misfit) + np.diag((misfit.noise * noise_factors) ** 2)


def adapt(
    misfit: Misfit, plans: Plans, noise_factors: Array, left: Array, of_parameters: Array
) -> Misfit:
    """Adapt the sizes of the parts to the residuals of a law.

    The search changes one size after the other, because there are few parts and the evidence is
    smooth.

    Args:
        misfit: The sizes to start from.
        plans: The measured plans, [n].
        noise_factors: How much noisier than usual each row is, [n].
        left: Logarithms of times, less the logarithms of the law under its prior, [n].
        of_parameters: Their covariance because the law's parameters are uncertain, [n, n].

    Returns:
        The sizes under which `left` is most probable, given the prior around the defaults.
    """

    def surprise_of(tried: Misfit) -> float:
        return _surprise(tried, left, noisy_covariance(plans, tried, noise_factors) + of_parameters)

    best = surprise_of(misfit)
    for factor in _FACTORS:
        for _ in range(_ROUNDS):
            for name in _NAMES:
                for change in (factor, 1.0 / factor):
                    while True:
                        tried = replace(misfit, **{name: getattr(misfit, name) * change})
                        surprise = surprise_of(tried)
                        if surprise >= best - _MIN_GAIN:
                            break
                        misfit, best = tried, surprise
    return misfit


def _surprise(misfit: Misfit, left: Array, covariances: Array) -> float:
    """Return minus the logarithm of the probability of residuals and sizes, less a constant."""
    factor = np.linalg.cholesky(covariances)
    whitened = np.linalg.solve(factor, left)
    from_defaults = np.log(_sizes(misfit) / _DEFAULTS) / _DOUBTS
    return float(
        0.5 * whitened @ whitened
        + np.sum(np.log(np.diag(factor)))
        + 0.5 * from_defaults @ from_defaults
    )
