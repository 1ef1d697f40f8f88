"""Predict seconds per step of data-parallel plans from measured ones: fit once, then predict.

A law of a step (`step_law`) is fitted to logarithms of times. Its priors matter if there are few
measurements. If there are many, its residuals are interpolated. Held-out placements
decide on the law of communication, and held-out rows show how wide intervals must be. Plans beyond
the measurements are less certain, and are marked as extrapolated.

Logarithms of measured times differ from the law by noise and a sum of parts. Each part is a
Gaussian process: over topology, over topology and batch, over batch, over batch for each kind of
topology, and over placement. Topologies of different kinds share only the part that depends on the
batch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.corrected_law import (
    DISCOUNT,
    NORMAL_90,
    OUTLYING,
    on_one_thread,
    spread_over,
    trust_of,
)
from workbench.hardware.performance.least_squares import jacobian, minimise
from workbench.hardware.performance.step_law import LAWS, PARAMETERS, Array, Plans, StepLaw, believe
from workbench.hardware.performance.topology import Topology

_FACTORS = (2.0, 1.5)
_ROUNDS = 2
_MIN_GAIN = 1e-3
# A fitted law is trusted up to this factor beyond the measurements.
_FAR = 2.0
# How much the standard deviation of a logarithm grows per doubling beyond the measured batches or
# GPUs, and beyond twice the measured nodes.
_DEVIATION_PER_DOUBLING = 0.1
_DEVIATION_PER_DOUBLING_OF_FAR_NODES = 0.3
_PAIR = 2
MAX_ROWS = 2000
_POINTS_AT_ONCE = 1000
_ROWS_TO_ADAPT = 250
_ROWS_TO_FIT = 500
_LOWEST_TRUST = 0.7
# The error of (step - synchronisation) as the computing time: the two are not timed together.
_COMPUTE_DEVIATION = 0.15
_ROWS_OF_COMPUTE = 20
_MAX_SYNC_SHARE = 0.9
# More starts of the fit: a small or large share that grows with the batch, slow links between
# nodes, much overlap.
_FURTHER_STARTS = (("share", -1.0), ("share", 1.0), ("network", -1.0), ("overlap", 1.0))


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
_DOUBTS = _sizes(
    Misfit(
        topology=0.7,
        topology_and_batch=0.7,
        batch=0.7,
        kind_and_batch=0.7,
        placement=0.7,
        noise=0.7,
        topology_reach=0.3,
        batch_reach=0.4,
    )
)


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


@dataclass(frozen=True)
class Measurement:
    """One measured plan.

    Attributes:
        topology: The placement of its workers.
        micro_batch: Samples per GPU and micro step, > 0.
        step_time_s: Seconds per step, > 0.
        sync_time_s: Seconds of the step after the last gradient was computed, if that was measured.
    """

    topology: Topology
    micro_batch: float
    step_time_s: float
    sync_time_s: float | None = None


@dataclass(frozen=True)
class Point:
    """A plan to predict.

    Attributes:
        topology: The placement of its workers.
        micro_batch: Samples per GPU and micro step, > 0.
        accumulation: Micro steps per step, >= 1. Gradients are exchanged after the last one.
    """

    topology: Topology
    micro_batch: float
    accumulation: int = 1


class Prediction(NamedTuple):
    """The seconds per step, their 90 % interval, and whether they are beyond the measured plans."""

    step_time_s: float
    low_s: float
    high_s: float
    extrapolated: bool


@on_one_thread
def fit(measurements: Sequence[Measurement]) -> StepTimeModel:
    """Fit a model of step times. The same measurements always give the same model.

    The first law of communication is replaced by another one only if that is better on held-out
    placements by more than twice the standard error of the difference.

    Args:
        measurements: One or more measurements. At most 2,000 of them are used.

    Returns:
        The model.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measurements:
        raise ValueError("a step-time model needs at least one measurement")
    if len(measurements) > MAX_ROWS:
        chosen = np.random.default_rng(0).permutation(len(measurements))[:MAX_ROWS]
        measurements = [measurements[index] for index in np.sort(chosen)]
    first, *others = LAWS
    best = StepTimeModel(measurements, first)
    if np.sum(best.plans.num_nodes > 1) == 0:
        return best
    for communication in others:
        candidate = StepTimeModel(measurements, communication)
        gains = best.held_out_errors - candidate.held_out_errors
        if len(gains) > 2 and np.mean(gains) > 2.0 * np.std(gains, ddof=1) / np.sqrt(len(gains)):
            best = candidate
    return best


class StepTimeModel:
    """A model of step times from measured ones, with one law of communication.

    Attributes:
        law: The law of a step.
        parameters: Its fitted parameters, in the order of `step_law.PARAMETERS`.
        plans: The measured plans.
        held_out_errors: Mean absolute error of the logarithm for each placement, if it is held out.
    """

    def __init__(self, measurements: Sequence[Measurement], communication: str) -> None:
        """Fit one law. `fit` chooses among laws."""
        self.plans = Plans.of(
            [measurement.topology for measurement in measurements],
            [measurement.micro_batch for measurement in measurements],
        )
        self._log_times = np.log([measurement.step_time_s for measurement in measurements])
        self._support = Support(self.plans)
        self.law = StepLaw(communication, float(np.exp(np.mean(np.log(self.plans.micro_batch)))))
        self._beliefs = believe(self.plans, float(np.exp(np.median(self._log_times))))
        self._computing = _Computing.of(self.plans, measurements)
        self._misfit = Misfit()
        self._noise_factors = np.ones(len(measurements))
        self.parameters = self._fit_parameters(first=True)
        for _ in range(_ROUNDS):
            self._condition()
            self._discount_outliers()
            self._adapt_misfit()
            self.parameters = self._fit_parameters(first=False)
        self._condition()

    @on_one_thread
    def predict(self, points: Sequence[Point]) -> list[Prediction]:
        """Predict the steps of plans.

        Args:
            points: The plans.

        Returns:
            One prediction per point, in order.
        """
        predictions: list[Prediction] = []
        for start in range(0, len(points), _POINTS_AT_ONCE):
            predictions += self._predict_some(points[start : start + _POINTS_AT_ONCE])
        return predictions

    def _predict_some(self, points: Sequence[Point]) -> list[Prediction]:
        plans = Plans.of(
            [point.topology for point in points], [point.micro_batch for point in points]
        )
        logs, deviations = self._predict_logs(plans)
        accumulation = np.array([point.accumulation for point in points], float)
        last_s = np.exp(logs)
        # Only the last micro step exchanges gradients. The others take the law's share of
        # computing.
        computing = self.law.compute_s(self.parameters, plans) / np.exp(
            self.law.log_step(self.parameters, plans)
        )
        times_s = last_s * (1.0 + (accumulation - 1.0) * computing)
        widths = np.exp(NORMAL_90 * deviations)
        return [
            Prediction(float(time_s), float(time_s / width), float(time_s * width), bool(beyond))
            for time_s, width, beyond in zip(
                times_s, widths, self._support.is_beyond(plans), strict=True
            )
        ]

    def _fit_parameters(self, *, first: bool) -> Array:
        rows = spread_over(len(self.plans), _ROWS_TO_FIT)
        plans, log_times = self.plans.rows(rows), self._log_times[rows]
        means, deviations = self._beliefs
        whiten = np.linalg.inv(
            np.linalg.cholesky(noisy_covariance(plans, self._misfit, self._noise_factors[rows]))
        )

        def residuals(parameters: Array) -> Array:
            left = (self.law.log_step(parameters, plans) - log_times) @ whiten.T
            return np.concatenate([left, self._computing.residuals(self.law, parameters)], axis=-1)

        if not first:
            return minimise(residuals, means, deviations, [self.parameters])
        starts = [means]
        for name, shift in _FURTHER_STARTS:
            start = means.copy()
            start[PARAMETERS.index(name)] += shift
            starts.append(start)
        return minimise(residuals, means, deviations, starts)

    def _adapt_misfit(self) -> None:
        rows = spread_over(len(self.plans), _ROWS_TO_ADAPT)
        plans = self.plans.rows(rows)
        means, deviations = self._beliefs
        logs, slopes = jacobian(lambda at: self.law.log_step(at, plans), self.parameters)
        left = self._log_times[rows] - logs + slopes @ (self.parameters - means)
        self._misfit = adapt(
            self._misfit,
            plans,
            self._noise_factors[rows],
            left,
            (slopes * deviations**2) @ slopes.T,
        )

    def _condition(self) -> None:
        """Compute the terms that all predictions need, and the errors of held-out rows."""
        logs, slopes = jacobian(lambda at: self.law.log_step(at, self.plans), self.parameters)
        precision = np.linalg.inv(noisy_covariance(self.plans, self._misfit, self._noise_factors))
        believed = np.diag(self._beliefs[1] ** -2) + self._computing.curvature(
            self.law, self.parameters
        )
        self._slopes, self._precision = slopes, precision
        self._parameter_covariance = np.linalg.inv(slopes.T @ precision @ slopes + believed)
        self._weights = precision @ (self._log_times - logs)
        across = precision @ slopes
        self._hold_out(
            precision - across @ self._parameter_covariance @ across.T, self._log_times - logs
        )

    def _hold_out(self, precision: Array, left: Array) -> None:
        """Predict each row and each placement from the others.

        For a Gaussian process this has a closed form, so nothing is fitted again.

        Args:
            precision: The inverse of the covariance of `left`, including the parameters' part, [n,
                n].
            left: The residuals of the law, [n].

        Source: Rasmussen & Williams, Gaussian Processes for Machine Learning, equation 5.12.
        """
        weights = precision @ left
        placements = (
            np.flatnonzero(self.plans.placement == name) for name in np.unique(self.plans.placement)
        )
        self.held_out_errors = np.array(
            [
                np.mean(np.abs(np.linalg.solve(precision[np.ix_(rows, rows)], weights[rows])))
                for rows in placements
            ]
        )
        variances = 1.0 / np.diag(precision)
        # A discounted row is still judged by the usual noise, or it would no longer look odd.
        usual = variances - self._misfit.noise**2 * (self._noise_factors**2 - 1.0)
        self._held_out = weights * variances / np.sqrt(usual)
        self._trust = trust_of(self._held_out, _LOWEST_TRUST)

    def _discount_outliers(self) -> None:
        off = np.abs(self._held_out)
        self._noise_factors = np.where(off > OUTLYING, DISCOUNT * off, 1.0)

    def _predict_logs(self, plans: Plans) -> tuple[Array, Array]:
        """Return the logarithms of step times and their standard deviations."""
        logs, slopes = jacobian(lambda at: self.law.log_step(at, plans), self.parameters)
        shared = covariance(plans, self.plans, self._misfit)
        known = shared @ self._precision
        unexplained = slopes - known @ self._slopes
        variance = self._misfit.variance - np.sum(known * shared, axis=1)
        of_parameters = np.sum((unexplained @ self._parameter_covariance) * unexplained, axis=1)
        beyond = self._support.deviation_beyond(plans)
        deviations = np.sqrt(variance * self._trust**2 + of_parameters + beyond**2)
        return logs + shared @ self._weights, deviations


@dataclass(frozen=True)
class _Computing:
    """Computing times, as step times less synchronisation times."""

    plans: Plans
    log_times: Array

    @classmethod
    def of(cls, plans: Plans, measurements: Sequence[Measurement]) -> _Computing:
        known = [
            index
            for index, measurement in enumerate(measurements)
            if measurement.topology.num_gpus > 1
            and measurement.sync_time_s is not None
            and measurement.sync_time_s < _MAX_SYNC_SHARE * measurement.step_time_s
        ]
        left_s = [
            measurements[index].step_time_s - (measurements[index].sync_time_s or 0.0)
            for index in known
        ]
        return cls(plans.rows(np.array(known, int)), np.log(np.array(left_s, float)))

    @cached_property
    def _deviation(self) -> float:
        # The errors of rows are correlated, so many rows are hardly better than a few.
        return _COMPUTE_DEVIATION * max(1.0, float(np.sqrt(len(self.plans) / _ROWS_OF_COMPUTE)))

    def residuals(self, law: StepLaw, parameters: Array) -> Array:
        return (np.log(law.compute_s(parameters, self.plans)) - self.log_times) / self._deviation

    def curvature(self, law: StepLaw, parameters: Array) -> Array:
        slopes = jacobian(lambda at: self.residuals(law, at), parameters)[1]
        return slopes.T @ slopes


class Support:
    """The range of the measured plans, which decides what can be predicted."""

    def __init__(self, measured: Plans) -> None:
        """Find the range of the measured plans, one row or more."""
        self._kinds = np.unique(measured.kind)
        self._has_ring = bool(np.any(measured.num_gpus > _PAIR))
        self._most_gpus = float(np.max(measured.num_gpus))
        self._most_nodes = float(np.max(measured.num_nodes))
        self._least_batch = float(np.min(measured.micro_batch))
        self._most_batch = float(np.max(measured.micro_batch))

    def is_beyond(self, plans: Plans) -> NDArray[np.bool_]:
        """Return which plans are beyond the measured ones, [n].

        A plan is beyond if its kind of topology was not measured, or if it is a ring of three or
        more GPUs and no such ring was measured. It is also beyond if its GPUs, nodes or micro batch
        are more than twice the largest measured value, or its micro batch is less than half of the
        smallest.
        """
        return (
            ~np.isin(plans.kind, self._kinds)
            | ((plans.num_gpus > _PAIR) & (not self._has_ring))
            | (plans.num_gpus > _FAR * self._most_gpus)
            | (plans.num_nodes > _FAR * self._most_nodes)
            | (self._doublings_of_batch(plans) > np.log2(_FAR) + 1e-9)
        )

    def deviation_beyond(self, plans: Plans) -> Array:
        """Return the additional deviation of a time's logarithm beyond the range, [n]."""
        gpus = np.maximum(np.log2(plans.num_gpus / self._most_gpus), 0.0)
        far_nodes = np.maximum(np.log2(plans.num_nodes / (_FAR * self._most_nodes)), 0.0)
        near = _DEVIATION_PER_DOUBLING * (gpus + self._doublings_of_batch(plans))
        return near + _DEVIATION_PER_DOUBLING_OF_FAR_NODES * far_nodes

    def _doublings_of_batch(self, plans: Plans) -> Array:
        above = np.log2(plans.micro_batch / self._most_batch)
        below = np.log2(self._least_batch / plans.micro_batch)
        return np.maximum(np.maximum(above, below), 0.0)
