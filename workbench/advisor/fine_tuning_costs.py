"""Predicts the memory and the time of fine-tuning a language model, from what is known before.

    memory = weights + states of what is trained + activations + logits + a constant

Activations grow with the tokens, the layers, and the widths of attention and feed-forward layers.
Methods differ in what an adapter adds to them: some save the input of each adapted layer, others
make a matrix of the size of its weights. All factors have priors from public measurements. With
measurements of your own, they are fitted, and so is a common factor for your library and unit.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.advisor.measurement_tables import (
    Column,
    check_has_plans,
    number_between,
    read_heads,
    read_table,
    truth_value,
)
from workbench.foundation.errors import DataError
from workbench.hardware.performance.least_squares import jacobian, minimise

Array = NDArray[np.float64]

SHIPPED = Path(__file__).with_name("fine_tuning_costs.json")
"""The factors of the law that is included."""
METHOD_KINDS: dict[str, tuple[str, ...]] = {
    "low-rank": (
        *("lora", "qlora", "rslora", "adalora", "lorafa", "pissa", "eva", "gralora", "xlora"),
        *("poly", "miss", "bone", "randlora", "vblora", "deft", "lily", "peanut", "psoft", "c3a"),
    ),
    "vectors": (
        *("ia3", "ln_tuning", "road", "beft", "bitfit", "trainable_tokens", "vera", "pvera"),
        *("glora", "tinylora"),
    ),
    "weight-sized": (
        *("dora", "qdora", "lokr", "loha", "hira", "oft", "boft", "hra", "delora", "shira", "osf"),
    ),
    "spectral": ("fourierft", "waveft", "frod"),
    "prompt": (
        *("prefix_tuning", "prompt_tuning", "p_tuning", "multitask_prompt_tuning", "cpt"),
        *("adaption_prompt", "cartridge"),
    ),
    "full": ("full",),
}
"""The methods, by what they add to a step.

Low-rank methods save the input of each adapted layer. Vectors scale or shift outputs. Weight-sized
methods make a matrix as large as the adapted weights in each step, and spectral methods also
transform it. Prompts add tokens. Unknown methods count as low-rank.
"""
_KIND_OF = {method: kind for kind, methods in METHOD_KINDS.items() for method in methods}
_ADAPTED_KINDS = ("vectors", "weight-sized", "spectral", "prompt")
_TARGET_NAMES = {
    "query": ("q",),
    "key": ("k",),
    "value": ("v",),
    "projection": ("o",),
    "mlp": ("gate", "up", "down"),
    "head": ("head",),
    "lm_head": ("head",),
    "all-linear": ("q", "k", "v", "o", "gate", "up", "down"),
    "fc1": ("up",),
    "fc2": ("down",),
    **{f"{name}_proj": (name,) for name in ("q", "k", "v", "o", "gate", "up", "down")},
}
_BYTES_OF_WEIGHTS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "fp4": 0.5625}
# 4 bits, and one 32-bit scale for 64 weights.
_BYTES_OF_WEIGHTS["nf4"] = 0.5625
# A GPU of 24 GB has less than that to give: its driver and the context take a part.
_USABLE = 0.94
# No GPU has that much memory.
_MOST_GPU_GB = 2000.0
_QUANTILE = 1.7  # of a t-distribution with about 20 degrees of freedom, for 90 %
_FACTORS: dict[str, tuple[float, float]] = {
    "attention": (16.0, 0.5),  # bytes per token, layer and hidden unit
    "feed_forward": (4.0, 0.5),  # bytes per token, layer and feed-forward unit
    "logits": (10.0, 0.5),  # bytes per token and word of the vocabulary
    "constant_gb": (0.3, 0.7),
    "quantised": (1.7, 0.3),  # times the activations, if weights are dequantised in each step
    "adapted": (1.0, 0.3),  # bytes per token, layer and input unit of the adapted layers
    "states": (5.5, 0.2),  # bytes per trained parameter of a full training, without its weight
    "sharding": (0.3, 0.4),  # the power of the GPUs by which weights and states are divided
    "adapter_states": (12.0, 0.3),  # bytes per parameter of an adapter
    "recomputed": (0.2, 0.5),  # times the activations, if they are computed again
    "vectors": (1.0, 0.1),
    "weight-sized": (1.1, 0.1),
    "spectral": (1.15, 0.1),
    "prompt": (1.05, 0.12),
    "scale": (1.0, 0.3),  # of all memory: the library, the allocator and the unit
}
"""For each factor, its value before any measurement and the standard deviation of its logarithm."""
_TIME_FACTORS: dict[str, tuple[float, float]] = {
    "intercept": (0.0, 20.0),
    "work": (1.0, 0.2),  # the power of tokens times parameters
    "adapted": (0.05, 0.05),  # per adapted input, in widths of the model
    "full": (0.8, 0.3),
    "quantised": (0.5, 0.3),
    "recomputed": (0.3, 0.1),
    "vectors": (0.0, 0.2),
    "weight-sized": (0.1, 0.2),
    "spectral": (0.5, 0.3),
    "prompt": (0.0, 0.2),
}
"""For each coefficient of the logarithm of the time, its prior mean and standard deviation."""
# By which factor a size may differ from the usual one that is used if it is not known.
_UNKNOWN_FACTORS = {"parameters_b": 4.0, "sequence": 3.0, "micro_batch": 3.0}
_MEMORY_NOISE = 0.09
_TIME_NOISE = 0.15


@dataclass(frozen=True)
class FineTuningPlan:
    """One fine-tuning. None means unknown.

    Attributes:
        method: full, lora, qlora or another method of PEFT.
        parameters_b: The parameters of the model, in billions.
        hidden: The width of the model.
        layers: Its number of blocks.
        heads: The attention heads of a block.
        kv_heads: Its heads for keys and values.
        feed_forward: The width of its feed-forward layers.
        vocabulary: The words that it knows.
        active_b: The parameters that one token uses, in billions. By default all.
        tied: Whether the embedding is also the last layer.
        rank: The rank of the adapter.
        adapted: The names of the layers with an adapter, joined by +.
        dora: Whether a low-rank adapter also has the magnitude of DoRA.
        autocast_adapter: Whether the adapter computes in 32 bits, with copies of its inputs.
        weights: The type of the weights that are not trained: bf16, nf4, int8 or fp32.
        optimizer: The name of the optimizer.
        recompute: Whether activations are computed again in the backward pass.
        sequence: The tokens of a sequence.
        micro_batch: The sequences of a micro batch.
        gpus: The GPUs that share a full training.
        gpu_memory_gb: The memory of a GPU.
        trainable_parameters: The number of trained parameters.
        scores_at_once: The most scores that are in memory at a time. None for those of all tokens.
        memory_gb: The measured peak.
        out_of_memory: Whether it did not fit.
        seconds_per_step: The measured time of a step.
    """

    method: str = "lora"
    parameters_b: float | None = None
    hidden: float | None = None
    layers: float | None = None
    heads: float | None = None
    kv_heads: float | None = None
    feed_forward: float | None = None
    vocabulary: float | None = None
    active_b: float | None = None
    tied: bool | None = None
    rank: float | None = None
    adapted: str | None = None
    dora: bool | None = None
    autocast_adapter: bool | None = None
    weights: str | None = None
    optimizer: str | None = None
    recompute: bool | None = None
    sequence: float | None = None
    micro_batch: float | None = None
    gpus: float | None = None
    gpu_memory_gb: float | None = None
    trainable_parameters: float | None = None
    scores_at_once: float | None = None
    memory_gb: float | None = None
    out_of_memory: bool = False
    seconds_per_step: float | None = None

    @property
    def kind(self) -> str:
        """The kind of its method, a key of `METHOD_KINDS`."""
        if self.dora:
            return "weight-sized"
        return _KIND_OF.get(self.method, "low-rank")

    @property
    def targets(self) -> tuple[str, ...]:
        """The adapted layers of a block: q, k, v, o, gate, up and down. Also head."""
        names = (self.adapted or "").split("+")
        return tuple(part for name in names for part in _TARGET_NAMES.get(name.strip(), ()))

    @property
    def unknown_targets(self) -> tuple[str, ...]:
        """The names in `adapted` that are not those of linear layers in a block."""
        names = (name.strip() for name in (self.adapted or "").split("+"))
        return tuple(name for name in names if name and name not in _TARGET_NAMES)

    @cached_property
    def shape(self) -> ModelSizes:
        """The sizes of its model. Unknown ones are those of usual models with its parameters."""
        return _sizes_of(self)


class FineTuningPrediction(NamedTuple):
    """What a fine-tuning needs.

    Attributes:
        memory_gb: The peak memory of a GPU.
        low_gb: 90 % of the peaks should be between this value and `high_gb`.
        high_gb: The upper end of that interval.
        fits: Whether it fits `gpu_memory_gb`, or None if that is not known.
        seconds_per_step: The time of a step, or None without measured times.
    """

    memory_gb: float
    low_gb: float
    high_gb: float
    fits: bool | None
    seconds_per_step: float | None


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a language model, as far as memory depends on them.

    Attributes:
        parameters: All parameters.
        active: The parameters that one token uses.
        hidden: The width.
        layers: The number of blocks.
        key_width: The width of keys and values.
        feed_forward: The width of feed-forward layers.
        vocabulary: The number of words.
        is_tied: Whether the embedding is also the last layer.
        is_gated: Whether feed-forward layers have three matrices instead of two.
    """

    parameters: float
    active: float
    hidden: float
    layers: float
    key_width: float
    feed_forward: float
    vocabulary: float
    is_tied: bool
    is_gated: bool

    @property
    def embedded(self) -> float:
        """The parameters of the embedding and the last layer."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    def input_width(self, target: str) -> float:
        """Return the width of the input of an adapted layer."""
        return self.feed_forward if target == "down" else self.hidden

    def output_width(self, target: str) -> float:
        """Return the width of the output of an adapted layer."""
        widths = {"k": self.key_width, "v": self.key_width, "head": self.vocabulary}
        if target in ("gate", "up"):
            return self.feed_forward
        return widths.get(target, self.hidden)


def _sizes_of(plan: FineTuningPlan) -> ModelSizes:
    billions = plan.parameters_b or _parameters_from_shape(plan) or 7.0
    # Between models of 1 and 70 billion parameters, width and depth grow about equally.
    # Experts make a model larger, but neither wider nor deeper.
    active = min(plan.active_b or billions, billions)
    hidden = plan.hidden or 2048.0 * active**0.33
    layers = plan.layers or 16.0 * active**0.35
    feed_forward = plan.feed_forward or 3.5 * hidden
    vocabulary = plan.vocabulary or 100_000.0
    is_tied = plan.tied if plan.tied is not None else billions < 5
    share = (plan.kv_heads or 8.0) / (plan.heads or 32.0)
    key_width = hidden * min(share, 1.0)
    in_blocks = billions * 1e9 - vocabulary * hidden * (1 if is_tied else 2)
    attention = layers * hidden * (2 * hidden + 2 * key_width)
    num_matrices = (in_blocks - attention) / (layers * hidden * feed_forward)
    is_known = plan.hidden is not None and plan.layers is not None
    return ModelSizes(
        parameters=billions * 1e9,
        active=active * 1e9,
        hidden=hidden,
        layers=layers,
        key_width=key_width,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        is_tied=is_tied,
        is_gated=num_matrices > 2.5 or not is_known,
    )


def _parameters_from_shape(plan: FineTuningPlan) -> float | None:
    """Return the billions of parameters of a usual model of this shape, or None if unknown."""
    if plan.hidden is None or plan.layers is None:
        return None
    feed_forward = plan.feed_forward or 3.5 * plan.hidden
    block = plan.hidden * (2.5 * plan.hidden + 3 * feed_forward)
    return (plan.layers * block + (plan.vocabulary or 100_000.0) * plan.hidden) / 1e9


def _weight_bytes(plan: FineTuningPlan) -> float:
    sizes, per_weight = plan.shape, _BYTES_OF_WEIGHTS[_weights_of(plan)]
    if per_weight >= 2.0:
        return per_weight * sizes.parameters
    # The embedding is not quantised, the last layer is. If both were one, it is a copy.
    table = sizes.vocabulary * sizes.hidden
    linear = sizes.parameters - sizes.embedded
    return per_weight * (linear + table) + 2.0 * table


def _least_weights_gb(plan: FineTuningPlan) -> float:
    """Return what the weights need on a GPU at least, in 1e9 bytes, or 0 if that is not known."""
    if plan.parameters_b is None:
        return 0.0
    # Scales can be quantised as well, so that 4 bits need hardly more than half a byte.
    per_weight = math.floor(2 * _BYTES_OF_WEIGHTS[_weights_of(plan)]) / 2
    return per_weight * plan.parameters_b / (plan.gpus or 1.0 if plan.kind == "full" else 1.0)


def _weights_of(plan: FineTuningPlan) -> str:
    if plan.weights is not None:
        return plan.weights
    return "nf4" if plan.method.startswith("q") else "bf16"


def _trained_parameters(plan: FineTuningPlan) -> float:
    if plan.trainable_parameters is not None:
        return plan.trainable_parameters
    sizes, rank = plan.shape, plan.rank or 16.0
    if plan.kind == "full":
        return sizes.parameters
    return sum(
        rank
        * (sizes.input_width(target) + sizes.output_width(target))
        * (1 if target == "head" else sizes.layers)
        for target in plan.targets or ("q", "v")
    )


def _state_share(plan: FineTuningPlan) -> float:
    """Return the states of an optimizer in parts of those of AdamW, with the gradient."""
    name = (plan.optimizer or "adamw").lower()
    if "paged" in name:
        return 0.4
    if "8bit" in name or "8-bit" in name:
        return 0.6
    if name in ("sgd", "adafactor", "lion", "muon"):
        return 0.7
    return 1.0


@dataclass(frozen=True)
class _Terms:
    """What the memory of plans depends on, each [plans]."""

    weights_gb: Array
    attention: Array
    feed_forward: Array
    logits: Array
    adapted: Array
    full_trained: Array
    adapter_trained: Array
    num_shards: Array
    is_quantised: Array
    is_recomputed: Array
    kinds: dict[str, Array]


def _terms_of(plans: Sequence[FineTuningPlan]) -> _Terms:
    rows: list[tuple[float, ...]] = []
    for plan in plans:
        sizes = plan.shape
        tokens = (plan.sequence or 1024.0) * (plan.micro_batch or 1.0)
        in_blocks = [target for target in plan.targets if target != "head"]
        saved = sum(sizes.input_width(target) for target in in_blocks)
        saved *= 2 if plan.autocast_adapter else 1
        is_full = plan.kind == "full"
        trained = _state_share(plan) * _trained_parameters(plan)
        rows.append(
            (
                _weight_bytes(plan),
                tokens * sizes.layers * sizes.hidden,
                tokens * sizes.layers * sizes.feed_forward * (2 if sizes.is_gated else 1),
                min(tokens * sizes.vocabulary, plan.scores_at_once or math.inf),
                tokens * sizes.layers * saved if plan.kind in ("low-rank", "weight-sized") else 0,
                trained if is_full else 0.0,
                0.0 if is_full else trained,
            )
        )
    columns = np.array(rows, np.float64).T / 1e9
    return _Terms(
        *columns,
        num_shards=np.array([(plan.gpus or 1.0) if plan.kind == "full" else 1.0 for plan in plans]),
        is_quantised=np.array([_BYTES_OF_WEIGHTS[_weights_of(plan)] < 2.0 for plan in plans]),
        is_recomputed=np.array([_recomputes(plan) for plan in plans]),
        kinds={kind: np.array([plan.kind == kind for plan in plans]) for kind in _ADAPTED_KINDS},
    )


def _recomputes(plan: FineTuningPlan) -> bool:
    """Return whether activations are computed again: full trainings of large models do."""
    if plan.recompute is not None:
        return plan.recompute
    return plan.kind == "full"


def _log_memory(logarithms: Array, terms: _Terms) -> Array:
    """Return the logarithm of the memory in GB, [..., plans], for logarithms of all factors."""
    factor = dict(zip(_FACTORS, np.exp(logarithms), strict=True))
    activations = (
        factor["attention"] * terms.attention
        + factor["feed_forward"] * terms.feed_forward
        + factor["adapted"] * terms.adapted
    )
    activations = activations * np.where(terms.is_quantised, factor["quantised"], 1.0)
    activations = activations * np.where(terms.is_recomputed, factor["recomputed"], 1.0)
    rest = activations + factor["logits"] * terms.logits + factor["constant_gb"]
    for kind, is_kind in terms.kinds.items():
        rest = rest * np.where(is_kind, factor[kind], 1.0)
    states = factor["states"] * terms.full_trained + factor["adapter_states"] * (
        terms.adapter_trained
    )
    held = (terms.weights_gb + states) / terms.num_shards ** factor["sharding"]
    return np.log(factor["scale"] * (held + rest))


@dataclass(frozen=True)
class FineTuningLaw:
    """The law with its uncertainty.

    Attributes:
        logarithms: The logarithms of the factors, in the order of their declaration.
        covariance: Their covariance.
        noise: The standard deviation of the logarithm of a peak around the law.
        time_coefficients: The coefficients of the logarithm of a step's seconds. None if no time
            was measured.
        known: The sizes that all measured plans have. Where a plan lacks one, its interval is
            wider.
        least: The least part of a plan's weights that it needs, in the unit of the law.
        unit: How many units of the measured peaks are a GB: 1 for GB and GiB, 1,000 for MB and MiB.
    """

    logarithms: Array
    covariance: Array
    noise: float
    time_coefficients: Array | None = None
    known: frozenset[str] = frozenset()
    least: float = 1.0
    unit: float = 1.0

    def predict(self, plans: Sequence[FineTuningPlan]) -> list[FineTuningPrediction]:
        """Predict the memory, and with measured times also the seconds of a step.

        Args:
            plans: The plans.

        Returns:
            One prediction per plan, in the same order.
        """
        terms = _terms_of(plans)
        logs, slopes = jacobian(lambda at: _log_memory(at, terms), self.logarithms)
        variances = np.einsum("ni,ij,nj->n", slopes, self.covariance, slopes) + self.noise**2
        for name, factor in _UNKNOWN_FACTORS.items():
            if name in self.known:
                variances += _variances_of_unknown(name, factor, plans, self.logarithms)
        spread = np.exp(_QUANTILE * np.sqrt(variances))
        # Nothing needs less than its weights, if their number is known.
        floors = self.least * np.array([_least_weights_gb(plan) for plan in plans])
        memory = np.maximum(np.exp(logs), floors)
        lows, highs = np.maximum(memory / spread, floors), memory * spread
        seconds: list[float | None] = [None] * len(plans)
        if self.time_coefficients is not None:
            seconds = np.exp(_time_features(plans) @ self.time_coefficients).tolist()
        return [
            FineTuningPrediction(
                float(peak) * self.unit,
                float(low) * self.unit,
                float(high) * self.unit,
                None
                if plan.gpu_memory_gb is None
                else bool(peak <= _usable_gb(plan.gpu_memory_gb, self.unit)),
                time,
            )
            for plan, peak, low, high, time in zip(plans, memory, lows, highs, seconds, strict=True)
        ]


def _usable_gb(gpu_memory: float, unit: float) -> float:
    """Return what a GPU has to give, in GB or GiB.

    Args:
        gpu_memory: Its memory. A number that no GPU has in GB is in the unit of the peaks.
        unit: The unit of the peaks.
    """
    return _USABLE * (gpu_memory if gpu_memory < _MOST_GPU_GB else gpu_memory / unit)


def _unit_of(peaks: Sequence[float], expected_gb: Array) -> float:
    """Return how many units of measured peaks are a GB, from what the law that is included expects.

    Units differ by a factor of about 1,000, and laws of libraries by much less.
    """
    ratio = float(np.median(np.log(peaks) - np.log(expected_gb)))
    return 1000.0 ** round(ratio / math.log(1000.0))


def _variances_of_unknown(
    name: str, factor: float, plans: Sequence[FineTuningPlan], logarithms: Array
) -> Array:
    """Return how much of the logarithm's variance is due to a size that is not known, [plans]."""
    usual = {"parameters_b": 7.0, "sequence": 1024.0, "micro_batch": 1.0}[name]
    is_unknown = np.array([_lacks(plan, name) for plan in plans])
    low, high = (
        _log_memory(
            logarithms, _terms_of([replace(plan, **{name: usual * scale}) for plan in plans])
        )
        for scale in (1 / factor, factor)
    )
    return np.where(is_unknown, ((high - low) / 2) ** 2, 0.0)


def _lacks(plan: FineTuningPlan, name: str) -> bool:
    if name == "parameters_b" and plan.hidden is not None and plan.layers is not None:
        return False
    return getattr(plan, name) is None


def fit_fine_tuning_law(measured: Sequence[FineTuningPlan]) -> FineTuningLaw:
    """Fit the law to measured plans.

    Args:
        measured: Plans with their peaks. Those that did not fit teach that they need more than
            `gpu_memory_gb`.

    Returns:
        The law.

    Raises:
        DataError: If no plan has a peak.
    """
    used = [
        plan
        for plan in measured
        if plan.memory_gb is not None or (plan.out_of_memory and plan.gpu_memory_gb is not None)
    ]
    if not any(plan.memory_gb is not None for plan in used):
        raise DataError(
            "no plan has a measured peak",
            field="memory_gb",
            next_step="Leave out --measured to use the law that is included.",
        )
    terms = _terms_of(used)
    is_censored = np.array([plan.memory_gb is None for plan in used])
    means, deviations = np.array(list(_FACTORS.values())).T
    means = np.log(means)
    unit = _unit_of(
        [plan.memory_gb for plan in used if plan.memory_gb is not None],
        np.exp(_log_memory(means, terms))[~is_censored],
    )
    log_memory_gb = np.log(
        [
            plan.memory_gb / unit
            if plan.memory_gb is not None
            else _usable_gb(plan.gpu_memory_gb or 1.0, unit)
            for plan in used
        ]
    )

    def residuals(at: Array) -> Array:
        left = (_log_memory(at, terms) - log_memory_gb) / _MEMORY_NOISE
        return np.where(is_censored, np.minimum(left, 0.0), left)

    at = minimise(residuals, means, deviations, [means])
    left, slopes = jacobian(residuals, at)
    covariance = np.linalg.inv(slopes.T @ slopes + np.diag(deviations**-2.0))
    # The prior of the noise counts as ten peaks.
    num_peaks = int((~is_censored).sum())
    noise = _MEMORY_NOISE * math.sqrt((10 + float(left @ left)) / (10 + num_peaks))
    given = frozenset(
        name for name in _UNKNOWN_FACTORS if not any(_lacks(plan, name) for plan in used)
    )
    # In GiB, numbers are smaller.
    least = min(1.0, math.exp(at[list(_FACTORS).index("scale")]))
    return FineTuningLaw(
        logarithms=at,
        covariance=covariance,
        noise=noise,
        time_coefficients=_fit_times(measured),
        known=given,
        least=least,
        unit=unit,
    )


def _fit_times(measured: Sequence[FineTuningPlan]) -> Array | None:
    timed = [plan for plan in measured if plan.seconds_per_step is not None]
    if not timed:
        return None
    features = _time_features(timed) / _TIME_NOISE
    scaled_log_seconds = np.log([plan.seconds_per_step or 1.0 for plan in timed]) / _TIME_NOISE
    means, deviations = np.array(list(_TIME_FACTORS.values())).T
    precision = np.diag(deviations**-2.0)
    return np.linalg.solve(
        features.T @ features + precision, features.T @ scaled_log_seconds + precision @ means
    )


def _time_features(plans: Sequence[FineTuningPlan]) -> Array:
    rows: list[list[float]] = []
    for plan in plans:
        sizes = plan.shape
        tokens = (plan.sequence or 1024.0) * (plan.micro_batch or 1.0)
        saved = sum(sizes.input_width(name) / sizes.hidden for name in plan.targets)
        is_full = plan.kind == "full"
        rows.append(
            [
                1.0,
                math.log(tokens * sizes.active),
                0.0 if is_full else max(0.0, saved - 2.0),
                float(is_full),
                float(_BYTES_OF_WEIGHTS[_weights_of(plan)] < 2.0),
                float(bool(plan.recompute)),
                *(float(plan.kind == kind) for kind in _ADAPTED_KINDS),
            ]
        )
    return np.array(rows)


def shipped_law() -> FineTuningLaw:
    """Return the law that is included.

    Source: fitted by `python -m tests.benchmarks.fine_tuning_costs` to the peaks of 8 language
    models in Lightning AI's litgpt (`config_hub/finetune`, Apache-2.0), measured on GPUs of 24 GB.
    """
    stored: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return FineTuningLaw(
        np.array(stored["logarithms"]),
        np.array(stored["covariance"]),
        float(stored["noise"]),
        known=frozenset(_UNKNOWN_FACTORS),
    )


def nearest_that_fits(plan: FineTuningPlan, law: FineTuningLaw) -> FineTuningPlan | None:
    """Return the plan with the fewest and smallest changes that fits its GPU.

    A change keeps the samples of a step: activations are computed again, micro batches are smaller,
    or frozen weights have 4 bits. Only then is the sequence shorter, and a full training low-rank.

    Args:
        plan: A plan with `gpu_memory_gb`, a micro batch and a sequence.
        law: The law to judge with.

    Returns:
        The plan, or None if none fits.
    """
    candidates = sorted(_changed_plans(plan), key=lambda candidate: candidate[0])
    predictions = law.predict([changed for _, changed in candidates])
    for (_, changed), prediction in zip(candidates, predictions, strict=True):
        if prediction.fits:
            return changed
    return None


def _changed_plans(plan: FineTuningPlan) -> Iterator[tuple[float, FineTuningPlan]]:
    """Yield changed plans with a cost. Each kind of change costs more than all before it."""
    batches = _halvings(plan.micro_batch or 1.0)
    sequences = _halvings(plan.sequence or 1024.0)[:6]
    methods = [plan.method]
    if plan.kind == "full":
        methods += ["lora", "qlora"]
    elif plan.method == "lora":
        methods += ["qlora"]
    for method_cost, method in enumerate(methods):
        for sequence_cost, sequence in enumerate(sequences):
            for batch_cost, batch in enumerate(batches):
                for is_recomputed in (bool(plan.recompute), True):
                    cost = 1000 * method_cost + 100 * sequence_cost + batch_cost
                    changed = replace(
                        plan,
                        method=method,
                        weights=plan.weights if method == plan.method else None,
                        sequence=sequence,
                        micro_batch=batch,
                        recompute=is_recomputed,
                    )
                    yield cost + 0.5 * (is_recomputed != bool(plan.recompute)), changed


def _halvings(value: float) -> list[float]:
    """Return a whole number and its halves, down to 1."""
    values = [value]
    while values[-1] >= 2:
        values.append(float(values[-1] // 2))
    return values


def law_of(measured: Path | None) -> FineTuningLaw:
    """Return the law that is fitted to a CSV file, or the one that is included.

    Args:
        measured: Plans with memory_gb or memory_max_gb, and for times train_s and steps. None for
            the law that is included.

    Raises:
        DataError: If the file cannot be read, or no plan has a measured peak.
    """
    if measured is None:
        return shipped_law()
    return fit_fine_tuning_law(read_fine_tunings(measured))


def read_fine_tunings(path: Path) -> list[FineTuningPlan]:
    """Read plans, measured or not, from a CSV file. A missing column means that it is not known.

    Raises:
        DataError: If the file cannot be read or is empty, or a cell is wrong.
    """
    heads = set(read_heads(path))
    for name, other in _OTHER_NAMES.items():
        if name in heads and other in heads:
            raise DataError(
                f"{path} has both {name} and {other}, which mean the same",
                field=other,
                next_step="Remove one of the two columns.",
            )
    plans = [_plan_of(row) for row in read_table(path, *_COLUMNS)]
    if "method" not in heads:
        methods = " and ".join(sorted({plan.method for plan in plans}))
        warnings.warn(
            f"{path} has no column method. By the other columns, its plans are {methods}",
            stacklevel=2,
        )
    unknown = sorted({plan.method for plan in plans if plan.method not in _KIND_OF})
    if unknown:
        warnings.warn(
            f"{path} has methods that are not known, which count as low-rank: {', '.join(unknown)}",
            stacklevel=2,
        )
    strange = sorted({name for plan in plans for name in plan.unknown_targets})
    if strange:
        warnings.warn(
            f"{path} adapts layers that are not known, which need no memory: {', '.join(strange)}."
            f" Known are {', '.join(_TARGET_NAMES)}",
            stacklevel=2,
        )
    return check_has_plans(path, plans)


def _plan_of(row: dict[str, Any]) -> FineTuningPlan:
    given = {name: value for name, value in row.items() if value is not None}
    for name, other in _OTHER_NAMES.items():
        if other in given:
            given[name] = given.pop(other)
    total, seconds, steps = (
        given.pop(name, None) for name in ("total_parameters", "train_s", "steps")
    )
    for name in _DESCRIPTIONS:
        given.pop(name, None)
    if total is not None:
        given.setdefault("parameters_b", total / 1e9)
    if seconds is not None and steps is not None:
        given["seconds_per_step"] = seconds / steps
    plan = FineTuningPlan(**given)
    return plan if "method" in given else replace(plan, method=_likely_method(plan))


def _likely_method(plan: FineTuningPlan) -> str:
    """Return the usual method of a plan that does not say which it is.

    Without an adapter, all weights are trained. They then have at least 16 bits.
    """
    is_quantised = _BYTES_OF_WEIGHTS[plan.weights or "bf16"] < 2.0
    if plan.rank is None and plan.adapted is None and not is_quantised:
        return "full"
    return "qlora" if is_quantised else "lora"


def _empty_or(parse: Any) -> Any:
    def parse_cell(cell: str) -> Any:
        if cell.lower() in ("", "nan", "none"):
            return None
        return parse(cell)

    return parse_cell


def _number_of_trained(cell: str) -> float:
    return 0.0 if cell == "0" else _ANY_NUMBER(cell)


def _method(cell: str) -> str:
    if not cell:
        raise ValueError("full, lora, qlora or another method of PEFT")
    return cell.lower().replace("-", "_")


def _weight_type(cell: str) -> str:
    name = cell.lower().removeprefix("bnb.").removesuffix("-dq")
    name = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(name, name)
    if name not in _BYTES_OF_WEIGHTS:
        raise ValueError(", ".join(_BYTES_OF_WEIGHTS))
    return name


_OTHER_NAMES = {
    "micro_batch": "batch",
    "adapted": "targets",
    "memory_gb": "memory_max_gb",
    "weights": "dtype",
}
"""The names of columns, and other names for the same columns."""
# Columns that say where a measurement comes from, or that memory and time do not depend on.
_DESCRIPTIONS = (
    *("model", "name", "gpu", "alpha", "rslora", "learning_rate", "scheduler", "epochs"),
    *("precision", "global_batch"),
)
_NUMBERS = (
    *("parameters_b", "gpu_memory_gb", "memory_gb", "memory_max_gb", "train_s", "rank", "hidden"),
    *("layers", "heads", "kv_heads", "feed_forward", "vocabulary", "sequence", "micro_batch"),
    *("batch", "gpus", "steps", "total_parameters", "active_b"),
)
_LARGEST = 1e15
_LARGEST_B = 1e5
_IN_BILLIONS = number_between(1e-9, _LARGEST_B, "billion parameters")
_ANY_NUMBER = number_between(1 / _LARGEST, _LARGEST)
_COLUMNS = (
    Column("method", _method, required=False),
    *(
        Column(
            name,
            _empty_or(_IN_BILLIONS if name.endswith("_b") else _ANY_NUMBER),
            required=False,
        )
        for name in _NUMBERS
    ),
    Column("trainable_parameters", _empty_or(_number_of_trained), required=False),
    *(
        Column(name, _empty_or(truth_value), required=False)
        for name in ("tied", "dora", "autocast_adapter", "recompute", "out_of_memory")
    ),
    *(Column(name, _empty_or(_weight_type), required=False) for name in ("weights", "dtype")),
    *(
        Column(name, _empty_or(str), required=False)
        for name in ("adapted", "targets", "optimizer", *_DESCRIPTIONS)
    ),
)
