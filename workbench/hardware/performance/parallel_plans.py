"""Put plans over replicas, pipeline stages and tensor parts into columns, for laws.

Missing numbers are filled in: 1 for a dimension, and the usual value for the shape of a model. This
module also computes how far plans are beyond the measured ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.corrected_law import NORMAL_90, Array, Columns

_DIMENSIONS = ("nodes", "replicas", "stages", "tensor", "zero", "micro_batch", "accumulation")
# A model of the size that most tables measure. Its heads and feed_forward follow from hidden.
_USUAL = {"layers": 24.0, "hidden": 2048.0, "vocabulary": 51_200.0, "sequence": 1024.0}
_CHANNELS_PER_HEAD = 64.0
# The width of the feed-forward part relative to hidden, if it has three matrices. At 8/3 (Llama 2)
# they are as large as two matrices of four times the channels (GPT). Published configurations of
# newer models have 3.5 to 4.
_FEED_FORWARD = 3.0
# A fitted law is trusted up to this many doublings beyond the measurements.
_TRUSTED_DOUBLINGS = 1.0


@dataclass(frozen=True)
class ModelShape:
    """The known parts of a transformer's size. None means unknown.

    Attributes:
        layers: Number of blocks.
        hidden: Number of channels.
        heads: Number of attention heads.
        feed_forward: Channels between the two halves of a block's feed-forward part.
        vocabulary: Number of rows of the embedding.
        sequence: Number of tokens per sample.
    """

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    feed_forward: int | None = None
    vocabulary: int | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class ParallelPlan:
    """How a model is divided: workers = replicas x stages x tensor.

    Attributes:
        replicas: Number of copies of the model, which take different samples.
        stages: Number of pipeline stages.
        tensor: Number of parts of each layer.
        micro_batch: Samples that a replica processes at once, > 0.
        accumulation: Micro batches per replica and step.
        nodes: Number of machines, with equally many workers on each.
        zero: What the replicas share: 0 nothing, 1 the optimizer's state, 2 gradients as well, 3
            parameters as well.
        shape: The model.
    """

    replicas: int = 1
    stages: int = 1
    tensor: int = 1
    micro_batch: float = 1.0
    accumulation: int = 1
    nodes: int = 1
    zero: int = 0
    shape: ModelShape = ModelShape()

    @property
    def num_workers(self) -> int:
        """The number of devices of the plan."""
        return self.replicas * self.stages * self.tensor


def put_in_columns(
    plans: Sequence[ParallelPlan], known: Sequence[ParallelPlan] | None = None
) -> Columns:
    """Return the columns of plans, and their logarithms to base 2 as `log_...`.

    Args:
        plans: One or more.
        known: Plans whose shapes replace unknown values of the others. By default, the plans
            themselves.

    Returns:
        An array for each dimension, each number of a shape, and `workers_per_node`. `several_nodes`
        and `tensor_across` (whether tensor parts are on several nodes) are 0 or 1.
    """
    usual = _usual_shape(plans if known is None else known)
    columns: dict[str, Array] = {
        name: np.array([getattr(plan, name) for plan in plans], float) for name in _DIMENSIONS
    }
    for name, value in usual.items():
        columns[name] = _filled(plans, name, np.full(len(plans), value))
    columns["heads"] = _filled(
        plans, "heads", np.maximum(columns["hidden"] / _CHANNELS_PER_HEAD, 1.0)
    )
    columns["feed_forward"] = _filled(
        plans,
        "feed_forward",
        columns["hidden"] * _feed_forward_of(plans if known is None else known),
    )
    workers = columns["replicas"] * columns["stages"] * columns["tensor"]
    columns["workers_per_node"] = workers / columns["nodes"]
    columns["several_nodes"] = (columns["nodes"] > 1.0).astype(float)
    columns["tensor_across"] = (columns["tensor"] > columns["workers_per_node"]).astype(float)
    for name in list(columns):
        if name not in ("zero", "several_nodes", "tensor_across"):
            columns[f"log_{name}"] = np.log2(columns[name])
    return columns


def _filled(plans: Sequence[ParallelPlan], name: str, otherwise: Array) -> Array:
    known_values = [getattr(plan.shape, name) for plan in plans]
    return np.array(
        [
            usual if value is None else value
            for value, usual in zip(known_values, otherwise, strict=True)
        ],
        float,
    )


def _usual_shape(plans: Sequence[ParallelPlan]) -> dict[str, float]:
    """Return the geometric mean of the known values of each number, or its usual value."""
    usual = dict(_USUAL)
    for name in usual:
        known_values = [value for plan in plans if (value := getattr(plan.shape, name)) is not None]
        if known_values:
            usual[name] = float(np.exp(np.mean(np.log(sorted(set(known_values))))))
    return usual


def _feed_forward_of(plans: Sequence[ParallelPlan]) -> float:
    """Return the geometric mean of the known feed-forward widths, relative to hidden."""
    shapes = {plan.shape for plan in plans}
    known = [
        shape.feed_forward / shape.hidden for shape in shapes if shape.feed_forward and shape.hidden
    ]
    return float(np.exp(np.mean(np.log(sorted(known))))) if known else _FEED_FORWARD


@dataclass(frozen=True)
class Range:
    """The range of the measured plans, beyond which predictions are less certain.

    Attributes:
        least: The smallest value of each column, as a logarithm.
        most: The largest value of each column.
        per_doubling: How much each doubling beyond the range adds to the deviation of a logarithm.
    """

    least: Mapping[str, float]
    most: Mapping[str, float]
    per_doubling: Mapping[str, float]

    @classmethod
    def of(cls, measured: Columns, per_doubling: Mapping[str, float]) -> Range:
        """Find the range of measured plans, one row or more."""
        names = {name: f"log_{name}" for name in per_doubling}
        return cls(
            {name: float(np.min(measured[column])) for name, column in names.items()},
            {name: float(np.max(measured[column])) for name, column in names.items()},
            per_doubling,
        )

    def intervals(
        self, logs: Array, deviations: Array, columns: Columns
    ) -> Iterator[tuple[float, float, float, bool]]:
        """Yield each predicted value, its 90 % interval, and whether it is beyond the range.

        Args:
            logs: Logarithms of the values, [n].
            deviations: Their standard deviations inside the range, [n].
            columns: The plans.
        """
        widths = np.exp(NORMAL_90 * np.hypot(deviations, self.deviation_beyond(columns)))
        for value, width, is_beyond in zip(
            np.exp(logs), widths, self.is_beyond(columns), strict=True
        ):
            yield float(value), float(value / width), float(value * width), bool(is_beyond)

    def deviation_beyond(self, columns: Columns) -> Array:
        """Return the additional deviation of a prediction's logarithm beyond the range, [n]."""
        squares = [
            (factor * self._doublings(columns, name)) ** 2
            for name, factor in self.per_doubling.items()
        ]
        return np.sqrt(np.sum(squares, axis=0))

    def is_beyond(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which plans are far beyond the range or divide a new dimension, [n]."""
        far = [
            self._doublings(columns, name) > _TRUSTED_DOUBLINGS + 1e-9 for name in self.per_doubling
        ]
        undivided = [
            (columns[name] > 1.0) & (self.most[name] == 0.0)
            for name in ("replicas", "stages", "tensor")
        ]
        return np.any([*far, *undivided], axis=0)

    def _doublings(self, columns: Columns, name: str) -> Array:
        values = columns[f"log_{name}"]
        return np.maximum(np.maximum(values - self.most[name], self.least[name] - values), 0.0)
