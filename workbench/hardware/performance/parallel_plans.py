"""Plans over replicas, pipeline stages and tensor parts, in columns for laws of time and memory.

Missing numbers are filled in here: one for a dimension, the usual value for the shape of a model.
It also computes how far plans are beyond those measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.corrected_law import NORMAL_90, Array, Columns

_DIMENSIONS = ("nodes", "replicas", "stages", "tensor", "zero", "micro_batch", "accumulation")
# A model of the size that most tables measure; heads and feed_forward follow from hidden.
_USUAL = {"layers": 24.0, "hidden": 2048.0, "vocabulary": 51_200.0, "sequence": 1024.0}
_CHANNELS_PER_HEAD = 64.0
# Of three matrices of that width. With 8/3 they are as large as two of four times the channels, as
# in GPT, and as in Llama 2; published configurations of newer models with three have 3.5 to 4.
_FEED_FORWARD = 3.0
# A law that fits is trusted within this many doublings beyond the measurements.
_TRUSTED_DOUBLINGS = 1.0


@dataclass(frozen=True)
class ModelShape:
    """What is known of a transformer's size; None is unknown.

    Attributes:
        layers: Blocks.
        hidden: Channels.
        heads: Attention heads.
        feed_forward: Channels between the two halves of a block's feed-forward part.
        vocabulary: Rows of the embedding.
        sequence: Tokens of a sample.
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
        replicas: Copies of the model that take different samples.
        stages: Parts of the pipeline.
        tensor: Parts of each layer.
        micro_batch: Samples that a replica takes at once, > 0.
        accumulation: Micro batches that a replica takes per step.
        nodes: Machines; as many workers are on each.
        zero: What the replicas share: 0 nothing, 1 the optimizer's state, 2 gradients too, 3
            parameters too.
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
        """How many devices the plan takes."""
        return self.replicas * self.stages * self.tensor


def put_in_columns(
    plans: Sequence[ParallelPlan], known: Sequence[ParallelPlan] | None = None
) -> Columns:
    """Return the columns of plans, those on a logarithmic scale to base 2 too, named `log_...`.

    Args:
        plans: One or more.
        known: Plans whose shapes fill in for what is unknown of the others; the plans themselves by
            default.

    Returns:
        An array for each dimension, each number of a shape, and `workers_per_node`; `several_nodes`
        and `tensor_across`, whether tensor parts lie on several nodes, are 0 or 1.
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
    given = [getattr(plan.shape, name) for plan in plans]
    return np.array(
        [usual if value is None else value for value, usual in zip(given, otherwise, strict=True)],
        float,
    )


def _usual_shape(plans: Sequence[ParallelPlan]) -> dict[str, float]:
    """Return the middle of the known values of each number, or its usual value."""
    usual = dict(_USUAL)
    for name in usual:
        known = [value for plan in plans if (value := getattr(plan.shape, name)) is not None]
        if known:
            usual[name] = float(np.exp(np.mean(np.log(sorted(set(known))))))
    return usual


def _feed_forward_of(plans: Sequence[ParallelPlan]) -> float:
    """Return the middle of the widths of the feed-forward part that are known, relative to
    hidden.
    """
    shapes = {plan.shape for plan in plans}
    known = [
        each.feed_forward / each.hidden for each in shapes if each.feed_forward and each.hidden
    ]
    return float(np.exp(np.mean(np.log(sorted(known))))) if known else _FEED_FORWARD


@dataclass(frozen=True)
class Range:
    """What was measured, as far as it decides how much less is known of other plans.

    Attributes:
        least: The smallest of each column, on its logarithmic scale.
        most: The largest.
        per_doubling: What is added to the deviation of a logarithm per doubling beyond.
    """

    least: Mapping[str, float]
    most: Mapping[str, float]
    per_doubling: Mapping[str, float]

    @classmethod
    def of(cls, measured: Columns, per_doubling: Mapping[str, float]) -> Range:
        """Look at what was measured: one row or more."""
        names = {name: f"log_{name}" for name in per_doubling}
        return cls(
            {name: float(np.min(measured[column])) for name, column in names.items()},
            {name: float(np.max(measured[column])) for name, column in names.items()},
            per_doubling,
        )

    def intervals(
        self, logs: Array, deviations: Array, columns: Columns
    ) -> Iterator[tuple[float, float, float, bool]]:
        """Yield each predicted value, the interval that holds nine of ten truths, and whether it is
        beyond.

        Args:
            logs: Logarithms of the values, [n].
            deviations: Their standard deviations within what was measured, [n].
            columns: The plans.
        """
        widths = np.exp(NORMAL_90 * np.hypot(deviations, self.deviation_beyond(columns)))
        for value, width, is_beyond in zip(
            np.exp(logs), widths, self.is_beyond(columns), strict=True
        ):
            yield float(value), float(value / width), float(value * width), bool(is_beyond)

    def deviation_beyond(self, columns: Columns) -> Array:
        """Return what the logarithm of a prediction is less sure for being beyond, as a deviation,
        [n].
        """
        squares = [
            (factor * self._doublings(columns, name)) ** 2
            for name, factor in self.per_doubling.items()
        ]
        return np.sqrt(np.sum(squares, axis=0))

    def is_beyond(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which plans are more than a doubling beyond, or divide what no measured one
        divides, [n].
        """
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
