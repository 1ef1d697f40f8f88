"""Where the members of a population gain most: a Gaussian process over parameters, time and level.

It chooses ranges only. Choices, and everything before enough is known, are left to `population`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from workbench.experiment.space import Params, Space
from workbench.search.encoding import Encoding
from workbench.search.gaussian_process import GaussianProcess, fit
from workbench.search.parameters import Parameters
from workbench.search.population_move import Move, Moves
from workbench.search.proposals import ON_ONE_THREAD

_NUM_CANDIDATES = 1024


def most_promising(
    space: Space,
    params: Params,
    names: Sequence[str],
    *,
    rng: random.Random,
    moves: Moves,
) -> Params:
    """Return a configuration with ranges where the most is expected, or too little is known.

    Source: Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with
    Population-Based Bandits, 2020, algorithm 2, with the weight of exploration of the authors'
    code. The process forgets with the distance in time by a length scale that is fitted, instead of
    at a fixed rate.

    Args:
        space: The search space.
        params: A configuration, of which everything but the ranges is kept.
        names: The ranges to choose.
        rng: Seeds the candidates.
        moves: What earlier parts of all members have gained, at least two. The parts that others
            will train beside it count as if they had gained what is expected of them.
    """
    parameters = Parameters(space)
    encoding = Encoding(parameters)
    columns = [
        column
        for column, name in enumerate(encoding.distributions)
        if name in names and name in params
    ]
    if not columns:
        return params
    base, _ = encoding.locate([parameters.to_optuna(params)])
    units = np.repeat(base, _NUM_CANDIDATES, axis=0)
    candidates = np.random.default_rng(rng.getrandbits(32))
    units[:, columns] = candidates.random((_NUM_CANDIDATES, len(columns)))
    points, exists = encoding.snap(units)
    with ON_ONE_THREAD():
        mean, deviation = _gains(encoding, parameters, moves, encoding.features(points, exists))
    optimism = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(moves.made))))
    best = int(np.argmax(mean + optimism * deviation))
    proposed = encoding.params(points[best], exists[best])
    return {**params, **{name: proposed[name] for name in names if name in proposed}}


def _gains(
    encoding: Encoding, parameters: Parameters, moves: Moves, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the candidates are expected to gain, and its standard deviations."""
    befores = np.array([move.before for move in moves.made])
    level, spread = befores.mean(), max(float(befores.std()), 1e-12)

    def with_time(features: np.ndarray, at: Sequence[Move]) -> np.ndarray:
        time = [move.number / (moves.following.number + 1) for move in at]
        return np.column_stack([features, time, [(move.before - level) / spread for move in at]])

    known = [*moves.made, *moves.chosen]
    located = encoding.locate([parameters.to_optuna(move.params) for move in known])
    rows = with_time(encoding.features(*located), known)
    gains = np.array([move.gain for move in moves.made])
    values = (gains - gains.mean()) / max(float(gains.std()), 1e-12)
    last = int(encoding.groups.max())
    groups = np.append(encoding.groups, [last + 1, last + 2])
    ended, waiting = np.split(rows, [len(moves.made)])
    kernel = fit(ended, groups, values)
    process = GaussianProcess(kernel, groups, ended, values)
    if moves.chosen:
        expected = process.predict(waiting)[0]
        process = GaussianProcess(kernel, groups, rows, np.concatenate([values, expected]))
    return process.predict(with_time(candidates, [moves.following] * len(candidates)))
