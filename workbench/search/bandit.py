"""Chooses the ranges of a population's next member by a Gaussian process (PB2).

The process predicts the gain of the next part of a training from the parameters, the time and the
score at its start. `population` changes choices, and all parameters until enough is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from workbench.experiment.space import Params, Space
from workbench.search.encoding import Encoding
from workbench.search.gaussian_process import GaussianProcess, fit
from workbench.search.gaussian_process_sampler import ON_ONE_THREAD
from workbench.search.optuna_space import Parameters
from workbench.search.study_records import Move, Moves

_NUM_CANDIDATES = 1024


def most_promising(
    space: Space,
    params: Params,
    names: Sequence[str],
    *,
    rng: random.Random,
    moves: Moves,
) -> Params:
    """Return a configuration whose ranges promise the largest gain, or are least explored.

    Source: Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with
    Population-Based Bandits, 2020, algorithm 2, with the weight of exploration of the authors'
    code. The process forgets with the distance in time by a length scale that is fitted, instead of
    at a fixed rate.

    Args:
        space: The search space.
        params: A configuration. Only the values of its ranges are replaced.
        names: The ranges to choose.
        rng: Seeds the candidates.
        moves: The gains of earlier parts of all members, at least two. Parts that other members
            will train at the same time count as if they had their expected gain.
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
    # The weight of exploration in the authors' code. It grows slowly with the number of moves.
    optimism = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(moves.made))))
    best = int(np.argmax(mean + optimism * deviation))
    proposed = encoding.params(points[best], exists[best])
    return {**params, **{name: proposed[name] for name in names if name in proposed}}


def _gains(
    encoding: Encoding, parameters: Parameters, moves: Moves, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected gains of the candidates, and their standard deviations."""
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
        # The uncertainty near chosen moves shrinks, so that members move to different places.
        expected = process.predict(waiting)[0]
        process = GaussianProcess(kernel, groups, rows, np.concatenate([values, expected]))
    return process.predict(with_time(candidates, [moves.following] * len(candidates)))
