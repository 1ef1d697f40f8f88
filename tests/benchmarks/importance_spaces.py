"""Search spaces whose total effects are known.

What each parameter decides is computed from the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.builders.studies import Drive, make_experiment
from workbench.search.encoding import Encoding
from workbench.search.optuna_space import Parameters

KINDS = (
    "additive",
    "interactions",
    "dominant",
    "choices",
    "conditional",
    "cliffs",
    "plateaus",
    "zeros",
)
NUM_RUNGS = 9
_NUM_POINTS = 20_000
_NOISE = 0.01

Shape = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Space:
    """A search space with a function on it.

    Attributes:
        search: The space, as an experiment declares it.
        truth: Returns the true values at points of the unit cube and where parameters exist.
        effects: The total share of each parameter in the variance of the true values.
        deviation: The standard deviation of the true values.
    """

    search: dict[str, Any]
    parameters: Parameters
    encoding: Encoding
    truth: Callable[[np.ndarray, np.ndarray], np.ndarray]
    effects: dict[str, float]
    deviation: float


def make_space(kind: str, seed: int) -> Space:
    """Draw a space of a kind with 3 to 12 parameters."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    num = int(rng.integers(3, 13))
    search: dict[str, Any] = {f"p{index}": _domain(rng, kind) for index in range(num)}
    if kind == "conditional":
        search["p0"] = {"choices": ["a", "b"]}
        for name in ("p1", "p2"):
            search[name] = {"low": 0.0, "high": 1.0, "when": {"p0": "a" if name == "p1" else "b"}}
    parameters = Parameters(make_experiment(search=search).search)
    encoding = Encoding(parameters)
    truth = _function(kind, encoding, rng)
    effects, deviation = _true_effects(encoding, truth, rng)
    return Space(search, parameters, encoding, truth, effects, deviation)


def _domain(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    drawn = rng.random()
    if (kind == "choices" and drawn < 0.7) or drawn < 0.15:
        return {"choices": [f"c{index}" for index in range(int(rng.integers(2, 6)))]}
    if drawn < 0.4:
        return {"low": 1e-5, "high": 1e-1, "log": True}
    if drawn < 0.6:
        return {"low": 1, "high": int(rng.integers(4, 33))}
    if drawn < 0.7:
        return {"low": 8, "high": 512, "log": True}
    return {"low": 0.0, "high": 1.0}


def _shape(rng: np.random.Generator, kind: str) -> Shape:
    at, steep = rng.uniform(0.1, 0.9), rng.uniform(5, 15)
    choice = rng.integers(4)
    if kind == "cliffs" and choice < 2:
        return lambda u: (u > at).astype(float)
    if kind == "plateaus" and choice < 2:
        return lambda u: np.maximum(np.abs(u - at) - 0.2, 0.0)
    shapes: list[Shape] = [
        lambda u: (u - at) ** 2,
        lambda u: u,
        lambda u: 1 / (1 + np.exp(-steep * (u - at))),
        lambda u: np.sin(2 * np.pi * (0.8 * u + at)),
    ]
    return shapes[choice]


def _function(
    kind: str, encoding: Encoding, rng: np.random.Generator
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    num = len(encoding.distributions)
    weights = rng.exponential(1.0, num) ** 1.5
    num_zeros = num // 2 if kind == "zeros" else num // 4
    weights[rng.permutation(num)[:num_zeros]] = 0.0
    shapes = [_shape(rng, kind) for _ in range(num)]
    tables = [rng.standard_normal(64) for _ in range(num)]
    scales = np.ones(num)

    def terms(units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        columns = np.zeros_like(units)
        for at, distribution in enumerate(encoding.distributions.values()):
            if encoding.is_choice[at]:
                size = len(distribution.choices)  # type: ignore[attr-defined]
                column = tables[at][np.clip(np.floor(units[:, at] * size), 0, size - 1).astype(int)]
            else:
                column = shapes[at](units[:, at])
            columns[:, at] = np.where(exists[:, at], column * scales[at], 0.0)
        return columns

    trial = encoding.snap(rng.random((4000, num)))
    sample = terms(*trial)
    for at in range(num):
        here = sample[trial[1][:, at], at]
        scales[at] = 1 / max(float(here.std()) if len(here) else 1.0, 1e-9)
    centres = terms(*trial).mean(0)
    if kind == "dominant":
        weights[0] = np.sqrt(19 * max((weights[1:] ** 2).sum(), 1e-3))
    pairs = _interactions(kind, np.flatnonzero(weights), rng)
    if not weights.any():
        weights[0] = 1.0

    def truth(units: np.ndarray, exists: np.ndarray) -> np.ndarray:
        columns = terms(units, exists) - centres
        values = columns @ weights
        for first, second, weight in pairs:
            values = values + weight * columns[:, first] * columns[:, second]
        return values

    return truth


def _interactions(
    kind: str, alive: np.ndarray, rng: np.random.Generator
) -> list[tuple[int, int, float]]:
    """Draw pairs of parameters that have an effect together, and how large it is."""
    pairs: list[tuple[int, int, float]] = []
    if kind in ("interactions", "cliffs", "zeros", "choices") and len(alive) > 1:
        for _ in range(len(alive) if kind == "interactions" else 1):
            first, second = rng.choice(alive, 2, replace=False)
            pairs.append((int(first), int(second), float(rng.exponential(1.0))))
    return pairs


def _true_effects(
    encoding: Encoding,
    truth: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> tuple[dict[str, float], float]:
    num = len(encoding.distributions)
    first, others = rng.random((_NUM_POINTS, num)), rng.random((_NUM_POINTS, num))
    values = truth(*encoding.snap(first.copy()))
    effects: dict[str, float] = {}
    for at, name in enumerate(encoding.distributions):
        moved = first.copy()
        moved[:, at] = others[:, at]
        effects[name] = float(
            ((values - truth(*encoding.snap(moved))) ** 2).mean() / 2 / values.var()
        )
    return effects, float(values.std())


def search(space: Space, seed: int, num_trials: int = 300, sampler: str = "tpe") -> Drive:
    """Search a space with dependent proposals, pruning, and noise of 1 % of the variance."""
    rng = np.random.default_rng([seed, 77])
    pruner = {"pruner": "median"} if seed % 2 else {"pruner": "asha"}
    drive = Drive(
        make_experiment(search=space.search, sampler=sampler, seed=seed, early_stop=pruner)
    )
    start, speed = rng.uniform(1, 3), rng.uniform(0.4, 1.0)
    for _ in range(num_trials):
        off = rng.normal(0, np.sqrt(_NOISE)) * space.deviation
        tempo = speed * np.exp(rng.normal(0, 0.1))
        level: list[float] = []

        def loss(
            params: Any,
            rung: int,
            off: float = off,
            tempo: float = tempo,
            level: list[float] = level,
        ) -> float:
            if not level:
                located = space.encoding.locate([space.parameters.to_optuna(params)])
                level.append(float(space.truth(*located)[0]) + off)
            gone = start * space.deviation * (rung**-tempo - NUM_RUNGS**-tempo)
            return level[0] + gone

        drive.train(loss, rungs=NUM_RUNGS)
    return drive
