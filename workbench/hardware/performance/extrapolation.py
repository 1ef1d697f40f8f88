"""Which plans a table of measurements can speak about, and how much less it knows of those
beyond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.step_law import Plans

Array = NDArray[np.float64]
# Within this factor beyond what was measured a law that fits there is trusted.
_FAR = 2.0
# What is added to the standard deviation of a logarithm per doubling beyond the measured batches or
# GPUs, and beyond twice the measured nodes.
_DEVIATION_PER_DOUBLING = 0.1
_DEVIATION_PER_DOUBLING_OF_FAR_NODES = 0.3
_PAIR = 2


class Support:
    """What was measured, as far as it decides what may be predicted of other plans."""

    def __init__(self, measured: Plans) -> None:
        """Look at what was measured: one row or more."""
        self._kinds = np.unique(measured.kind)
        self._has_ring = bool(np.any(measured.num_gpus > _PAIR))
        self._most_gpus = float(np.max(measured.num_gpus))
        self._most_nodes = float(np.max(measured.num_nodes))
        self._least_batch = float(np.min(measured.micro_batch))
        self._most_batch = float(np.max(measured.micro_batch))

    def is_beyond(self, plans: Plans) -> NDArray[np.bool_]:
        """Say which plans are beyond what was measured, [n].

        A plan is where its kind of topology was not measured; where it is a ring of three or more
        and none was measured; or where its GPUs, nodes or micro batch are more than twice as many,
        or its micro batch less than half as large, as any that was measured.
        """
        return (
            ~np.isin(plans.kind, self._kinds)
            | ((plans.num_gpus > _PAIR) & (not self._has_ring))
            | (plans.num_gpus > _FAR * self._most_gpus)
            | (plans.num_nodes > _FAR * self._most_nodes)
            | (self._doublings_of_batch(plans) > np.log2(_FAR) + 1e-9)
        )

    def deviation_beyond(self, plans: Plans) -> Array:
        """Return what the logarithm of a time is less sure for being beyond, as a standard
        deviation, [n].
        """
        gpus = np.maximum(np.log2(plans.num_gpus / self._most_gpus), 0.0)
        far_nodes = np.maximum(np.log2(plans.num_nodes / (_FAR * self._most_nodes)), 0.0)
        near = _DEVIATION_PER_DOUBLING * (gpus + self._doublings_of_batch(plans))
        return near + _DEVIATION_PER_DOUBLING_OF_FAR_NODES * far_nodes

    def _doublings_of_batch(self, plans: Plans) -> Array:
        above = np.log2(plans.micro_batch / self._most_batch)
        below = np.log2(self._least_batch / plans.micro_batch)
        return np.maximum(np.maximum(above, below), 0.0)
