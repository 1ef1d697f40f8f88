"""Predict the peak memory of a device by plan, from measured peaks of the same or other models.

With R replicas, p stages, t tensor parts, m micro batches of b samples of s tokens, L layers of h
channels, f channels in the feed-forward part, V words and N parameters:

    held     = L/p + (extra + balance V h / N) (1 - 1/p)        layers of the fullest stage
    weights  = (N held + w V h) / t                             its parameters; w tables if p = 1
    state    = weights (g, shared by replicas in part, + o / R if the optimizer's state is shared)
    kept     = b s held ((x h + y f) / t + z h)                 activations of one micro batch
    first    = state + kept min(m, p) + logits b s V / t        logits only if p = 1
    last     = state + kept + l logits b s V / t                if p > 1; l < 1
    peak     = constant + the larger of the two

Each factor is fitted as a logarithm, with a prior from bytes per parameter and per value. Similar
plans have similar residuals.

Sources: state per parameter and its sharing: Rajbhandari et al. 2020, arXiv:1910.02054;
activations: Korthikanti et al. 2022, arXiv:2205.05198; min(m, p) micro batches in flight: Narayanan
et al. 2021, arXiv:2104.04473.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.hardware.performance.corrected_law import (
    Array,
    Belief,
    Columns,
    CorrectedLaw,
    Part,
    order_of,
)
from workbench.hardware.performance.parallel_plans import ParallelPlan, Range, put_in_columns
from workbench.hardware.performance.step_law import p_norm

MAX_ROWS = 1500
_GB = 1e9
# How sharply models are divided into models that use one table of words twice and others.
_TIED_POWER = 6.0
# Priors of the factors: their middle, and the deviation of their logarithm.
_BELIEFS = {
    # Bytes per parameter: half-precision parameters and gradients, and gradients summed in full
    # precision.
    "weights": (6.0, 0.4),
    # Odds of the part of them that is shared together with the optimizer's state.
    "weights_shared": (0.37, 1.0),
    # Parameters in full precision, and two moments.
    "optimizer": (12.0, 0.4),
    # If one table of words is a larger share of the parameters, a model uses it twice, as most
    # small ones do.
    "tied_share": (0.09, 0.4),
    # Bytes per token and channel of a layer: x and y are divided by tensor parts, z is not.
    "hidden": (16.0, 0.6),
    "feed_forward": (7.0, 0.6),
    "undivided": (3.0, 0.8),
    # Bytes per token and word: scores in full precision, their exponentials, gradients.
    "logits": (10.0, 0.6),
    # Odds of the part of them that the last of several stages holds in addition to its activations.
    "logits_of_last": (0.25, 0.8),
    # Stages have whole layers, and the stage with the head has fewer.
    "extra": (0.5, 0.7),
    "balance": (0.4, 0.8),
    # The framework, in GB.
    "constant": (0.5, 1.0),
    # The larger of two, smoothly: 1 + sharpness is the power of the norm.
    "sharpness": (5.0, 0.5),
}
PARAMETERS = tuple(_BELIEFS)
_INDEX = {name: index for index, name in enumerate(PARAMETERS)}
# If the size of a model is unknown, so are its bytes.
_DEVIATION_OF_UNKNOWN = 2.0
_OF_SIZE = (
    "weights",
    "optimizer",
    "hidden",
    "feed_forward",
    "undivided",
    "logits",
    "logits_of_last",
)
_PLAN = {
    "log_stages": 0.7,
    "log_tensor": 0.7,
    "log_micro_batch": 0.7,
    "log_replicas": 1.5,
    "zero": 0.0,
}
_SAME_PLAN = {"log_stages": 0.3, "log_tensor": 0.3, "log_micro_batch": 0.3, "log_replicas": 0.3}
_PARTS = (
    Part(0.1, {"log_hidden": 1.0, "log_layers": 1.5}),
    Part(0.08, {"log_stages": 0.5, "log_micro_batch": 1.0, "zero": 0.0}),
    Part(0.08, {"log_tensor": 0.5, "log_micro_batch": 1.0, "zero": 0.0}),
    Part(0.06, {"log_replicas": 0.7, "zero": 0.0}),
    Part(0.06, {"log_accumulation": 0.7, "log_stages": 0.7}),
    Part(0.08, _PLAN),
    Part(0.05, {**_PLAN, "log_hidden": 0.7}),
    Part(0.1, {"log_stages": 0.3, "log_tensor": 0.3, "log_replicas": 0.3}),
    # Layers that are divided across nodes vary more from plan to plan.
    Part(0.12, {**_PLAN, **_SAME_PLAN}, "tensor_across"),
)
_NOISE = 0.05
_DEVIATION_PER_DOUBLING = {
    "hidden": 0.07,
    "layers": 0.05,
    "sequence": 0.1,
    "vocabulary": 0.05,
    "tensor": 0.08,
    "stages": 0.05,
    "replicas": 0.02,
    "micro_batch": 0.05,
    "accumulation": 0.02,
}


@dataclass(frozen=True)
class MeasuredPeak:
    """A plan and the peak memory of a device under it, in GB, > 0."""

    plan: ParallelPlan
    memory_gb: float


class MemoryPrediction(NamedTuple):
    """The peak in GB, its 90 % interval, and whether it is beyond the measured plans."""

    memory_gb: float
    low_gb: float
    high_gb: float
    extrapolated: bool


def predict_memory(
    measured: Sequence[MeasuredPeak], plans: Sequence[ParallelPlan]
) -> list[MemoryPrediction]:
    """Predict the peak memory of a device. The order of the measurements does not matter.

    Args:
        measured: One or more measurements. At most 1,500 rows are used.
        plans: The plans to predict, of the same models or others.

    Returns:
        One prediction per plan.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measured:
        raise ValueError("predicting memory needs at least one measurement")
    known = [peak.plan for peak in measured]
    columns, logs = put_in_columns(known), np.log([peak.memory_gb for peak in measured])
    order = order_of(columns, logs, MAX_ROWS)
    columns, logs = {name: values[order] for name, values in columns.items()}, logs[order]
    groups = [
        (plan.shape, plan.replicas, plan.stages, plan.tensor, plan.zero)
        for plan in (known[at] for at in order)
    ]
    is_size_known = all(plan.shape.layers and plan.shape.hidden for plan in known)
    fitted = CorrectedLaw(
        log_peak,
        _believe(is_size_known=is_size_known),
        _PARTS,
        noise=_NOISE,
        measured=columns,
        logs=logs,
        groups=groups,
    )
    wanted = put_in_columns(plans, known)
    logs, deviations = fitted.predict(wanted)
    measured_range = Range.of(columns, _DEVIATION_PER_DOUBLING)
    return [
        MemoryPrediction(*interval)
        for interval in measured_range.intervals(logs, deviations, wanted)
    ]


def _believe(*, is_size_known: bool) -> Belief:
    beliefs = np.array(list(_BELIEFS.values()))
    means, deviations = np.log(beliefs[:, 0]), beliefs[:, 1].copy()
    if not is_size_known:
        deviations[[_INDEX[name] for name in _OF_SIZE]] = _DEVIATION_OF_UNKNOWN
    return Belief(means, deviations, [means])


def log_peak(parameters: Array, plans: Columns) -> Array:
    """Return the logarithm of the peak in GB by the law alone, [n].

    Args:
        parameters: Logarithms of the factors, in the order of `PARAMETERS`.
        plans: The plans in columns.
    """
    value = {name: np.exp(parameters[index]) for name, index in _INDEX.items()}
    layers, hidden, stages, tensor = (
        plans[name] for name in ("layers", "hidden", "stages", "tensor")
    )
    is_divided = stages > 1.0
    table = plans["vocabulary"] * hidden
    layer = 4.0 * hidden**2 + 3.0 * hidden * plans["feed_forward"]
    more = (value["extra"] + value["balance"] * table / layer / stages) * (1.0 - 1.0 / stages)
    held = layers / stages + more
    tables = np.where(
        is_divided, 1.0, _tables_of(table / (table + layers * layer), value["tied_share"])
    )
    weights = (held * layer + tables * table) / tensor
    state = weights * _bytes_per_parameter(value, plans) / _GB
    tokens = plans["micro_batch"] * plans["sequence"] / _GB
    divided = value["hidden"] * hidden + value["feed_forward"] * plans["feed_forward"]
    kept = tokens * held * (divided / tensor + value["undivided"] * hidden)
    logits = tokens * plans["vocabulary"] / tensor * value["logits"]
    in_flight = np.minimum(plans["accumulation"], stages)
    first = state + kept * in_flight + np.where(is_divided, 0.0, logits)
    of_last = value["logits_of_last"] / (1.0 + value["logits_of_last"])
    last = state + kept * layers / stages / held + logits * of_last
    joined = p_norm(first, last, 1.0 + value["sharpness"])
    return np.log(value["constant"] + np.where(is_divided, joined, first))


def _tables_of(share: Array, tied_share: Array) -> Array:
    """Return how many tables of words a model has, between 1 and 2.

    Source: `tie_word_embeddings` of the published configurations of Llama, Qwen, Gemma and Mistral
    models.
    """
    return 1.0 + 1.0 / (1.0 + (share / tied_share) ** _TIED_POWER)


def _bytes_per_parameter(value: dict[str, Array], plans: Columns) -> Array:
    """Return the bytes that a device holds per parameter, [n], after sharing among replicas."""
    shared, zero = value["weights_shared"] / (1.0 + value["weights_shared"]), plans["zero"]
    shared = np.select(
        [zero < 1.0, zero < 2.0, zero < 3.0], [0.0, shared, (1.0 + shared) / 2.0], 1.0
    )
    others = 1.0 - 1.0 / plans["replicas"]
    weights = value["weights"] * (1.0 - shared * others)
    return weights + value["optimizer"] * np.where(zero < 1.0, 1.0, 1.0 - others)
