"""Predict seconds per step of plans over replicas, stages and tensor parts.

With R replicas, p stages, t tensor parts, m micro batches of b samples of s tokens, L layers of h
channels, a heads and V words, relative to the typical model and micro batch that were measured on
one device:

    multiply = L b s h^2 (1 + s/6h) / t               matrix products
    move     = L b s (34 h + 5 k a s) (u + (1-u)/t)   everything else, which waits for memory
    layers   = ((multiply + move)^q + (launch L)^q)^(1/q)
               + L (wait log2 t + exchange 2(t-1)/t b s h) if t > 1
    head     = b s V (h + 4 move) / t                 the last stage has it too, in fp32
    slowest  = layers ceil(L/p)/L + head + hop        of the stages; hop = b s h / t if p > 1
    step     = (m-1) slowest + layers + head + (p-1) hop + ring 2(R-1)/R N/(p t) + update N/(p t)

Each term has a factor, which is fitted as a logarithm. N is the number of parameters, and traffic
between nodes is slower by further factors. Tensor parts are neighbours, then replicas, then stages.
The rings of a node's n tensor parts share its links to others, so each takes n times as long.

Residuals are similar for plans with the same tensor parts and micro batch, with the same stages,
and so on. This is how plans in two and three dimensions are predicted from plans in one. For a
model that was not measured, the law is fitted without the correction, because a law that leaves all
oddities to the correction predicts other models badly.

Sources: pipeline (m + p - 1): Huang et al. 2019, arXiv:1811.06965; tensor exchanges: Shoeybi et al.
2019, arXiv:1909.08053; operations and bytes of a block: Korthikanti et al. 2022, arXiv:2205.05198.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.hardware.performance.corrected_law import (
    Array,
    Belief,
    Columns,
    CorrectedLaw,
    Part,
    order_of,
)
from workbench.hardware.performance.parallel_plans import (
    ModelShape,
    ParallelPlan,
    Range,
    put_in_columns,
)
from workbench.hardware.performance.step_law import p_norm
from workbench.hardware.performance.step_time import Prediction

# Priors of the factors relative to the matrix products: mean and deviation of their logarithms.
_BELIEFS = {
    # Seconds of the matrix products of a typical micro batch.
    "multiply": (0.0, 2.0),
    # Its mean follows from the shape of the model, see `believe`.
    "move": (0.0, 0.5),
    # Odds of the part that tensor parts do not divide.
    "undivided": (-1.0, 1.0),
    # The scores of attention, which some kernels never write to memory.
    "scores": (0.0, 0.7),
    "launch": (-1.5, 1.5),
    "tensor_wait": (-3.0, 1.5),
    "tensor_exchange": (-3.0, 1.5),
    "head": (0.0, 0.5),
    "hop": (-4.0, 1.5),
    "ring": (-2.5, 1.5),
    "update": (-2.5, 1.5),
    # Links between nodes are several times slower than those within.
    "tensor_across": (1.5, 1.0),
    "replicas_across": (1.5, 1.0),
    "stages_across": (1.5, 1.0),
    # q = 1 + sharpness: whether launching kernels hides behind computing.
    "sharpness": (0.7, 0.5),
}
# The priors hold for these tokens, hidden channels and layers. A layer's products grow with tokens
# x hidden^2, so factors relative to them change with these powers of the three.
_USUAL_SIZES = np.array([2048.0, 2048.0, 24.0])
_GROWTH = {
    "launch": (-1.0, -2.0, 0.0),
    "tensor_wait": (-1.0, -2.0, 0.0),
    "tensor_exchange": (0.0, -1.0, 0.0),
    "hop": (0.0, -1.0, -1.0),
    "ring": (-1.0, 0.0, 0.0),
    "update": (-1.0, 0.0, 0.0),
}
PARAMETERS = tuple(_BELIEFS)
_INDEX = {name: index for index, name in enumerate(PARAMETERS)}
# More starts of the fit: much launching, much waiting for memory, slow tensor exchanges of both
# kinds.
_FURTHER_STARTS = (("launch", 2.0), ("move", 1.5), ("tensor_wait", 2.0), ("tensor_exchange", 1.5))
# Operations of a device while it moves one byte: data sheets have 139 (V100), 153 to 200 (A100) and
# 295 (H100) in half precision, and kernels reach a similar share of both rates.
_OPERATIONS_PER_BYTE = 200.0
# A value of a block is written, read by the next operation and again by the backward pass, where
# its gradient is also written and read.
_PASSES = 5.0
# The head's output is kept in single precision.
_BYTES_PER_LOGIT = 4.0
_REFERENCE = ("hidden", "layers", "sequence", "heads", "micro_batch")


class ParallelStepLaw:
    """The law for the models of one table.

    Attributes:
        reference: The typical model and micro batch. All factors are relative to it.
    """

    def __init__(self, measured: Columns) -> None:
        """Choose the reference: the geometric means of the measured values."""
        self.reference = {
            name: np.array([np.exp(np.mean(np.log(np.unique(measured[name]))))])
            for name in _REFERENCE
        }

    def log_step(self, parameters: Array, plans: Columns) -> Array:
        """Return the logarithm of the seconds of one step, [n]."""
        value = {name: np.exp(parameters[index]) for name, index in _INDEX.items()}
        replicas, stages, tensor = plans["replicas"], plans["stages"], plans["tensor"]
        per_node, reference = plans["workers_per_node"], self.reference
        tokens = plans["micro_batch"] * plans["sequence"]
        logits = tokens * plans["vocabulary"]
        multiply = logits * plans["hidden"] / (12.0 * _products(reference))
        move = value["move"] * _BYTES_PER_LOGIT * logits / _bytes_moved(reference, value["scores"])
        head = value["head"] * (multiply + move) / tensor
        layers = self._layers(value, plans)
        across = np.where(plans["nodes"] > 1.0, value["stages_across"], 1.0)
        hop = value["hop"] * _values(plans) / _values(reference) / tensor * across * (stages > 1.0)
        whole_layers = np.ceil(plans["layers"] / stages) / plans["layers"]
        slowest = layers * whole_layers + head + hop
        blocks = plans["layers"] * plans["hidden"] ** 2 * whole_layers
        parameters_there = (
            (blocks + plans["vocabulary"] * plans["hidden"] / 12.0)
            / (reference["layers"] * reference["hidden"] ** 2)
            / tensor
        )
        # The rings of a node's tensor parts share its links to other nodes.
        across = value["replicas_across"] * np.minimum(tensor, per_node)
        across = np.where(replicas * tensor > per_node, across, 1.0)
        ring = value["ring"] * 2.0 * (replicas - 1.0) / replicas * across
        step = (
            (plans["accumulation"] - 1.0) * slowest
            + layers
            + head
            + (stages - 1.0) * hop
            + (ring + value["update"]) * parameters_there
        )
        return parameters[_INDEX["multiply"]] + np.log(step)

    def _layers(self, value: dict[str, Array], plans: Columns) -> Array:
        """Return the time of all layers for one micro batch, relative to the reference, [n]."""
        reference, tensor = self.reference, plans["tensor"]
        undivided = value["undivided"] / (1.0 + value["undivided"])
        multiply = _products(plans) / _products(reference) / tensor
        move = (
            value["move"]
            * _bytes_moved(plans, value["scores"])
            / _bytes_moved(reference, value["scores"])
        )
        computing = multiply + move * (undivided + (1.0 - undivided) / tensor)
        num_layers = plans["layers"] / reference["layers"]
        layers = p_norm(computing, value["launch"] * num_layers, 1.0 + value["sharpness"])
        across = np.where(tensor > plans["workers_per_node"], value["tensor_across"], 1.0)
        exchanged = 2.0 * (tensor - 1.0) / tensor * _values(plans) / _values(reference) * across
        exchange = value["tensor_exchange"] * exchanged + value["tensor_wait"] * np.log2(tensor)
        return layers + exchange * num_layers

    def believe(self, plans: Columns, log_times: Array) -> Belief:
        """Return the prior. It depends on the measured times only through their middle."""
        beliefs = np.array(list(_BELIEFS.values()))
        means, deviations = beliefs[:, 0].copy(), beliefs[:, 1].copy()
        divided = (
            plans["stages"] * plans["tensor"] / (plans["accumulation"] + plans["stages"] - 1.0)
        )
        means[_INDEX["multiply"]] = np.median(log_times + np.log(divided))
        tokens = self.reference["micro_batch"] * self.reference["sequence"]
        sizes = np.concatenate([tokens, self.reference["hidden"], self.reference["layers"]])
        for name, powers in _GROWTH.items():
            means[_INDEX[name]] += np.log(sizes / _USUAL_SIZES) @ powers
        operations = 72.0 * _products(self.reference)
        moved = _PASSES * _bytes_moved(self.reference, np.ones(1))
        means[_INDEX["move"]] = np.log(_OPERATIONS_PER_BYTE * moved / operations)[0]
        starts = [means]
        for name, shift in _FURTHER_STARTS:
            start = means.copy()
            start[_INDEX[name]] += shift
            starts.append(start)
        return Belief(means, deviations, starts)


def _values(shape: Columns) -> Array:
    """Return the number of values that pass between layers."""
    return shape["micro_batch"] * shape["sequence"] * shape["hidden"]


def _products(shape: Columns) -> Array:
    """Return the matrix products, as 1/72 of the operations of forward and backward."""
    attention = 1.0 + shape["sequence"] / (6.0 * shape["hidden"])
    return shape["layers"] * _values(shape) * shape["hidden"] * attention


def _bytes_moved(shape: Columns, scores: Array) -> Array:
    """Return the bytes that layers keep for the backward pass, with the scores of attention."""
    tokens = shape["micro_batch"] * shape["sequence"]
    per_token = 34.0 * shape["hidden"] + 5.0 * scores * shape["heads"] * shape["sequence"]
    return shape["layers"] * tokens * per_token


MAX_ROWS = 2000
_MODEL = {"log_hidden": 1.0, "log_layers": 3.0, "log_sequence": 1.0}
_KERNELS = {"log_tensor": 0.35, "log_micro_batch": 0.5}
_SAME_PLAN = {"log_replicas": 0.3, "log_stages": 0.3, "log_tensor": 0.3}
_PARTS = (
    Part(0.12, _MODEL),
    # The kernels that run, and their speed, depend on the micro batch and the size of a layer's
    # part.
    Part(0.08, {**_MODEL, **_KERNELS}),
    Part(0.05, _KERNELS),
    Part(0.03, {"log_stages": 0.7, "log_micro_batch": 1.5}),
    Part(0.02, {"log_replicas": 1.0}),
    Part(0.02, {"log_micro_batch": 1.0, "log_accumulation": 1.0}),
    Part(0.02, {"log_stages": 0.5, "log_tensor": 0.5}),
    Part(0.01, {"log_replicas": 0.5, "log_stages": 0.5, "log_tensor": 0.5}),
    # Across nodes, plans use different links and have different neighbours.
    Part(0.06, {**_SAME_PLAN, "log_micro_batch": 0.5}, "several_nodes"),
)
_NOISE = 0.02
# Rows of a model, on one node or across nodes, that are needed to learn its residuals.
_ENOUGH = 8
_DEVIATION_PER_DOUBLING = {
    "hidden": 0.15,
    "layers": 0.05,
    "sequence": 0.15,
    "tensor": 0.15,
    "stages": 0.1,
    "replicas": 0.03,
    "micro_batch": 0.16,
    "accumulation": 0.02,
    "nodes": 0.1,
}


@dataclass(frozen=True)
class MeasuredStep:
    """A plan and the seconds of its step, > 0."""

    plan: ParallelPlan
    step_time_s: float


def predict_steps(
    measured: Sequence[MeasuredStep], plans: Sequence[ParallelPlan]
) -> list[Prediction]:
    """Predict the steps of plans. The order of the measurements does not matter.

    Args:
        measured: One or more measurements. At most 2,000 rows are used.
        plans: The plans to predict.

    Returns:
        One prediction per plan.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measured:
        raise ValueError("predicting step times needs at least one measurement")
    counts = Counter(_work_of(step.plan) for step in measured)
    wanted: dict[tuple[bool, bool], list[int]] = {}
    for index, plan in enumerate(plans):
        is_measured = counts[_work_of(plan)] >= _ENOUGH
        wanted.setdefault((is_measured, plan.nodes > 1), []).append(index)
    predicted: dict[int, Prediction] = {}
    for (is_measured, is_across), indices in wanted.items():
        shapes = {plans[index].shape for index in indices}
        # Steps across nodes are predicted better from other models' steps across nodes than from
        # steps on one node, and vice versa.
        similar = [
            step
            for step in measured
            if (step.plan.nodes > 1) is is_across or step.plan.shape in shapes
        ]
        used = similar if not is_measured and len(similar) >= _ENOUGH else measured
        predictions = _predict(used, [plans[index] for index in indices], is_measured=is_measured)
        predicted.update(zip(indices, predictions, strict=True))
    return [predicted[index] for index in range(len(plans))]


def _work_of(plan: ParallelPlan) -> tuple[ModelShape, bool]:
    return plan.shape, plan.nodes > 1


def _predict(
    measured: Sequence[MeasuredStep], plans: Sequence[ParallelPlan], *, is_measured: bool
) -> list[Prediction]:
    known = [step.plan for step in measured]
    columns, log_times = put_in_columns(known), np.log([step.step_time_s for step in measured])
    order = order_of(columns, log_times, MAX_ROWS)
    columns, log_times = {name: values[order] for name, values in columns.items()}, log_times[order]
    law = ParallelStepLaw(columns)
    groups = [
        (known[at].shape, known[at].replicas, known[at].stages, known[at].tensor) for at in order
    ]
    fitted = CorrectedLaw(
        law.log_step,
        law.believe(columns, log_times),
        _PARTS,
        noise=_NOISE,
        measured=columns,
        logs=log_times,
        groups=groups,
        settles=is_measured,
    )
    wanted = put_in_columns(plans, known)
    logs, deviations = fitted.predict(wanted)
    measured_range = Range.of(columns, _DEVIATION_PER_DOUBLING)
    return [
        Prediction(*interval) for interval in measured_range.intervals(logs, deviations, wanted)
    ]
