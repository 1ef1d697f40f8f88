"""What parts of a function's variance each group of its features decides, from few and noisy values of it.

The function is a Gaussian process whose covariance is a product over groups, each of which may be switched
off alone. Effects are those of functions drawn from the process after the values were seen, over points that
cover the whole space: where values were observed decides how sure an effect is, never how large. What an
observation is, and what follows from effects, is left to `importance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from workbench.study.gaussian_process import factorize

# Bounds and normal priors of the logarithms of each group's weight and length scale (features lie in the unit
# cube), of the noise as a share of the signal's variance, and of how wrong the stated variances are.
_WEIGHT_BOUNDS, _WEIGHT_MEAN, _WEIGHT_SD = (math.log(1e-6), math.log(1e2)), math.log(0.005), 2.5
_LENGTH_BOUNDS, _LENGTH_MEAN, _LENGTH_SD = (math.log(0.05), math.log(20.0)), math.log(0.6), 0.8
_NOISE_BOUNDS, _NOISE_MEAN, _NOISE_SD = (math.log(1e-7), math.log(1e2)), math.log(1e-2), 3.0
_STATED_BOUNDS, _STATED_MEAN, _STATED_SD = (math.log(1e-3), math.log(1e3)), 0.0, 1.5
_MAX_STEPS = 60
_JITTER = 1e-8
_ROOT5 = math.sqrt(5.0)
_FREEDOM = 5.0  # of the spectrum of Matérn 5/2, which is Student's
_NUM_WAVES = 400
_MIN_GAIN = 3.0
"""In log likelihood: observations that depend on no parameter gain less by chance."""
_NUM_KERNELS = 12
_NUM_FUNCTIONS = 10


@dataclass(frozen=True)
class Places:
    """Points at which effects are judged.

    Attributes:
        first: Features of points that cover the space, shape [points, features].
        moved: For each group, features of the same points with other values of it.
    """

    first: np.ndarray
    moved: tuple[np.ndarray, ...]


def draw_effects(
    features: np.ndarray,
    groups: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray,
    place: Callable[[np.random.Generator], Places],
    rng: np.random.Generator,
) -> np.ndarray | None:
    """Draw total effects from what is known of them after some observations.

    Args:
        features: Of the observations, shape [n, features].
        groups: Group of each feature, shape [features].
        values: What was observed, shape [n]; they are not all alike.
        variances: The stated variance of each observation beyond the noise that all have, shape [n].
        place: Draws where functions are judged.
        rng: Source of the draws.

    Returns:
        Shape [draws, groups]: for each drawn function, the part of its variance over the places in which each
        group has a share. None where chance alone explains the observations about as well.

    Source:
        Product covariance: Durrande et al., ANOVA kernels and RKHS of zero mean functions, 2013. Drawn
        functions: Wilson et al., Efficiently sampling functions from Gaussian process posteriors, ICML 2020.
        Total effects: Jansen, Analysis of variance designs for model output, 1999.
    """
    scale = float(values.std())
    observed = _Observed.of(features, groups, (values - values.mean()) / scale, variances / scale**2)
    best, spread = observed.fit()
    if observed.gain(best) < _MIN_GAIN:
        return None
    least = observed.loss(best)[0]
    draws = [_effects(observed, best, place(rng), rng)]
    for _ in range(_NUM_KERNELS - 1):
        theta = _near(observed, best, least, spread @ rng.standard_normal(len(best)))
        draws.append(_effects(observed, theta, place(rng), rng))
    return np.concatenate(draws)


@dataclass(frozen=True)
class _Observed:
    """Observations, and the distances of their pairs."""

    features: np.ndarray
    groups: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    roots: np.ndarray

    @classmethod
    def of(
        cls, features: np.ndarray, groups: np.ndarray, values: np.ndarray, variances: np.ndarray
    ) -> _Observed:
        rows, columns = np.tril_indices(len(features), -1)
        squares = (features[rows] - features[columns]) ** 2
        distances = np.stack([squares[:, groups == group].sum(1) for group in range(int(groups.max()) + 1)])
        return cls(features, groups, values, variances, rows, columns, _ROOT5 * np.sqrt(distances))

    @property
    def num_groups(self) -> int:
        return len(self.roots)

    @property
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        num = self.num_groups
        means = [_WEIGHT_MEAN] * num + [_LENGTH_MEAN] * num + [_NOISE_MEAN, _STATED_MEAN]
        return np.array(means), np.array([_WEIGHT_SD] * num + [_LENGTH_SD] * num + [_NOISE_SD, _STATED_SD])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        num = self.num_groups
        return [_WEIGHT_BOUNDS] * num + [_LENGTH_BOUNDS] * num + [_NOISE_BOUNDS, _STATED_BOUNDS]

    def fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the likeliest hyper-parameters, and a factor of their covariance."""
        start = self.prior[0]
        found = minimize(
            self.loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            options={"maxiter": _MAX_STEPS, "ftol": 1e-5},
        ).x
        return found, np.linalg.cholesky(np.linalg.inv(self.information(found)))

    def slopes(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the covariance of pairs, and its slopes along logarithms of weights and lengths."""
        num = self.num_groups
        weights, rates = np.exp(theta[:num]), np.exp(-theta[num : 2 * num])
        root = self.roots * rates[:, None]
        decay = np.exp(-root)
        terms = weights[:, None] * ((1 + root + root**2 / 3) * decay)
        covariance = np.prod(1 + terms, axis=0)
        ratio = covariance / (1 + terms)
        return covariance, ratio * terms, ratio * (weights[:, None] * (root**2 * (1 + root) / 3 * decay))

    def diagonal(self, theta: np.ndarray) -> float:
        return float(np.prod(1 + np.exp(theta[: self.num_groups])))

    def covariance(self, theta: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        n = len(self.values)
        full = np.zeros((n, n))
        full[self.rows, self.columns] = pairs
        full += full.T
        own = self.diagonal(theta) + math.exp(theta[-2]) + math.exp(theta[-1]) * self.variances
        full[np.diag_indices(n)] = own + _JITTER
        return full

    def loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log posterior and its gradient, for the signal's likeliest variance."""
        n, num = len(self.values), self.num_groups
        pairs, by_weight, by_length = self.slopes(theta)
        factor = factorize(self.covariance(theta, pairs))
        inverse = cho_solve((factor, True), np.eye(n))
        solved = inverse @ self.values
        variance = max(float(self.values @ solved) / n, 1e-12)
        loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
        outer = inverse[self.rows, self.columns] - solved[self.rows] * solved[self.columns] / variance
        own = np.diag(inverse) - solved**2 / variance
        weights = np.exp(theta[:num])
        gradient = np.empty_like(theta)
        gradient[:num] = by_weight @ outer + 0.5 * self.diagonal(theta) * weights / (1 + weights) * own.sum()
        gradient[num : 2 * num] = by_length @ outer
        gradient[-2] = 0.5 * math.exp(theta[-2]) * float(own.sum())
        gradient[-1] = 0.5 * math.exp(theta[-1]) * float(own @ self.variances)
        means, sds = self.prior
        off = (theta - means) / sds
        return loss + 0.5 * float(off @ off), gradient + off / sds

    def gain(self, theta: np.ndarray) -> float:
        """Return by how much parameters explain the values better than chance alone, in log likelihood."""
        off = (theta - self.prior[0]) / self.prior[1]
        # Of values with variance 1, chance alone has the loss 0.
        return 0.5 * float(off @ off) - self.loss(theta)[0]

    def information(self, theta: np.ndarray) -> np.ndarray:
        """Return the expected information about hyper-parameters, priors included.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.
        """
        n, num = len(self.values), self.num_groups
        pairs, by_weight, by_length = self.slopes(theta)
        factor = factorize(self.covariance(theta, pairs))
        inverse = cho_solve((factor, True), np.eye(n))
        weights = np.exp(theta[:num])
        own = self.diagonal(theta) * weights / (1 + weights)
        scaled: list[np.ndarray] = []
        for slope, diagonal in [*zip(by_weight, own, strict=True), *((each, 0.0) for each in by_length)]:
            full = np.zeros((n, n))
            full[self.rows, self.columns] = slope
            full += full.T
            full[np.diag_indices(n)] = diagonal
            scaled.append(inverse @ full)
        scaled.append(inverse * math.exp(theta[-2]))
        scaled.append(inverse * (math.exp(theta[-1]) * self.variances))
        flat = np.stack([each.ravel() for each in scaled])
        turned = np.stack([each.T.ravel() for each in scaled])
        traces = np.trace(np.stack(scaled), axis1=1, axis2=2)
        # The signal's variance is estimated, too, which takes what moves all values alike.
        found = 0.5 * (flat @ turned.T - np.outer(traces, traces) / n)
        return found + np.diag(self.prior[1] ** -2.0)


def _near(observed: _Observed, best: np.ndarray, least: float, step: np.ndarray) -> np.ndarray:
    """Shorten a step from the likeliest hyper-parameters until they are as likely as such steps should be.

    The posterior is flat where a group has no weight and steep where it would have some. A normal
    distribution around its mode knows only one of the two.
    """
    allowed = 0.5 * len(best) + 2.0
    for _ in range(6):
        theta = _within(best + step, observed)
        if observed.loss(theta)[0] - least < allowed:
            return theta
        step = step * 0.6
    return best


def _within(theta: np.ndarray, observed: _Observed) -> np.ndarray:
    low, high = np.array(observed.bounds).T
    return np.clip(theta, low, high)


def _terms(
    first: np.ndarray, second: np.ndarray, groups: np.ndarray, group: int, theta: np.ndarray
) -> np.ndarray:
    """Return 1 and what one group adds to the covariance of points, shape [first, second]."""
    num = int(groups.max()) + 1
    mine = groups == group
    a, b = first[:, mine], second[:, mine]
    squares = np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T, 0.0)
    root = np.sqrt(squares)
    root *= _ROOT5 * math.exp(-theta[num + group])
    return 1 + math.exp(theta[group]) * (1 + root + root**2 / 3) * np.exp(-root)


def _effects(observed: _Observed, theta: np.ndarray, places: Places, rng: np.random.Generator) -> np.ndarray:
    """Draw functions for one choice of hyper-parameters, and return their total effects."""
    groups, num = observed.groups, observed.num_groups
    n = len(observed.values)
    pairs = observed.slopes(theta)[0]
    factor = factorize(observed.covariance(theta, pairs))
    whitened = solve_triangular(factor, observed.values, lower=True)
    # The variance of the signal, given the values, is an inverse chi-squared one.
    scale = math.sqrt(float(whitened @ whitened) / rng.chisquare(n))

    waves, shifts, heights = _waves(groups, theta, rng)
    amplitudes = rng.standard_normal((len(shifts) + 1, _NUM_FUNCTIONS)) * scale

    def prior(phases: np.ndarray) -> np.ndarray:
        return amplitudes[0] + (np.cos(phases) * heights) @ amplitudes[1:]

    noise = np.sqrt(math.exp(theta[-2]) + math.exp(theta[-1]) * observed.variances) * scale
    noisy = prior(observed.features @ waves + shifts)
    noisy += noise[:, None] * rng.standard_normal((n, _NUM_FUNCTIONS))
    correction = cho_solve((factor, True), observed.values[:, None] - noisy)

    terms = [_terms(places.first, observed.features, groups, group, theta) for group in range(num)]
    whole = np.prod(terms, axis=0)
    phases = places.first @ waves + shifts
    at_first = prior(phases) + whole @ correction
    effects = np.empty((_NUM_FUNCTIONS, num))
    sums, squares = at_first.sum(0), (at_first**2).sum(0)
    for group, moved in enumerate(places.moved):
        changed = whole / terms[group] * _terms(moved, observed.features, groups, group, theta)
        # A parameter that decides whether others exist moves their features, too.
        others = np.flatnonzero((moved != places.first).any(0) & (groups != group))
        for other in np.unique(groups[others]):
            changed = changed / terms[other] * _terms(moved, observed.features, groups, int(other), theta)
        at_moved = prior(moved @ waves + shifts) + changed @ correction
        effects[:, group] = ((at_first - at_moved) ** 2).mean(0) / 2
        sums += at_moved.sum(0)
        squares += (at_moved**2).sum(0)
    count = len(places.first) * (1 + num)
    variance = squares / count - (sums / count) ** 2
    return np.minimum(effects / np.maximum(variance, 1e-300)[:, None], 1.0)


def _waves(
    groups: np.ndarray, theta: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw waves whose sum, with normal amplitudes, has the covariance without its constant.

    Returns:
        Their frequencies, shape [features, waves], and their phases and heights, shape [waves].
    """
    num = int(groups.max()) + 1
    weights = np.exp(theta[:num])
    chance = weights / (1 + weights)
    # Which groups a wave depends on, given that there is one: the first of them, and then the rest.
    none_before = np.concatenate([[1.0], np.cumprod(1 - chance)])
    leads = rng.choice(num, _NUM_WAVES, p=none_before[:-1] * chance / (1 - none_before[-1]))
    order = np.arange(num)
    takes = (rng.random((_NUM_WAVES, num)) < chance) & (order > leads[:, None])
    takes[np.arange(_NUM_WAVES), leads] = True
    drawn = rng.standard_normal((_NUM_WAVES, len(groups)))
    stretch = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, (_NUM_WAVES, num))) * np.exp(-theta[num : 2 * num])
    waves = (drawn * (stretch * takes)[:, groups]).T
    total = math.exp(float(np.log1p(weights).sum())) - 1.0
    heights = np.full(_NUM_WAVES, math.sqrt(2 * total / _NUM_WAVES))
    return waves, rng.random(_NUM_WAVES) * 2 * math.pi, heights
