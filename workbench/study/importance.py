"""How much each searched parameter decides, and what of that chance alone could do.

PED-ANOVA compares the best of the trials with all of them. With few trials some parameter always looks
decisive, so its results are kept only where they exceed what shuffled results give. Optuna's implementation
is imported when there are enough trials: it imports scikit-learn, which takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import optuna
from optuna.trial import FrozenTrial, create_trial

from workbench.experiment import Experiment
from workbench.study.optuna_logging import quiet
from workbench.study.parameters import Parameters
from workbench.study.records import ConfigurationRecord, Outcome

MIN_TRIALS = 10
MAX_NEGLIGIBLE = 0.1
"""Up to this share of what decides, a parameter is better frozen than searched."""
_NUM_SHUFFLES = 60
_NUM_RESAMPLES = 30
_INTERVAL = (0.05, 0.95)
_CHANCE = 0.98
_NUM_GOOD = 8
_MIN_GOOD, _MAX_GOOD = 0.1, 0.5
_MAX_TRIALS = 400

Importance = dict[str, tuple[float, float, float]]
"""Per parameter its share, and the ends of the 90 % interval; share and lower end are 0 for a parameter that
chance could explain, and its upper end is the share that chance reaches."""


def importance(
    experiment: Experiment,
    parameters: Parameters,
    finished: Iterable[tuple[ConfigurationRecord, Outcome]],
) -> Importance:
    """Return the share of each searched parameter in what made trials good, with its uncertainty.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        finished: Finished configurations with their outcomes.

    Returns:
        Shares of the whole, the largest first; those that chance could explain count as 0. Empty where
        there are fewer than MIN_TRIALS complete trials, several objectives, or no parameter with two
        values.

    Source:
        Watanabe et al., PED-ANOVA, IJCAI 2023.
    """
    metrics = [objective.metric for objective in experiment.objectives]
    complete = [(record, outcome) for record, outcome in finished if outcome.state == "complete"]
    if len(metrics) > 1 or len(complete) < MIN_TRIALS:
        return {}
    complete = complete[-_MAX_TRIALS:]
    values = np.array([outcome.values[metrics[0]] for _, outcome in complete])
    trials = [
        create_trial(
            params=parameters.to_optuna(record.params),
            distributions=parameters.distributions(record.params),
            value=float(value),
        )
        for (record, _), value in zip(complete, values, strict=True)
    ]
    goal = experiment.objectives[0].goal
    rng = np.random.default_rng(0)
    with quiet():
        seen = _decisive(goal, trials)
        shuffled = [
            _decisive(goal, _with_values(trials, rng.permutation(values))) for _ in range(_NUM_SHUFFLES)
        ]
        resampled = [
            _decisive(goal, [trials[index] for index in rng.integers(len(trials), size=len(trials))])
            for _ in range(_NUM_RESAMPLES)
        ]
    return _compared_with_chance(seen, shuffled, resampled)


def negligible(found: Importance) -> list[str]:
    """Return the parameters that decide nothing that matters, as far as the trials show.

    A parameter with few trials is not among them: chance alone could then hide much of what it decides.

    Args:
        found: What `importance` returned.
    """
    return [name for name, (share, _, high) in found.items() if share == 0 and high <= MAX_NEGLIGIBLE]


def _decisive(goal: Literal["minimize", "maximize"], trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Return PED-ANOVA's divergence of each parameter that all trials have and that varies."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    study = optuna.create_study(direction=goal)
    study.add_trials(trials)
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_share_of_good(len(trials)))
    found = get_param_importances(study, evaluator=evaluator, normalize=False)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _share_of_good(num_trials: int) -> float:
    """Return which share of the trials counts as good: a tenth, or more where that would be a handful."""
    return min(_MAX_GOOD, max(_MIN_GOOD, _NUM_GOOD / num_trials))


def _with_values(trials: Sequence[FrozenTrial], values: Sequence[float] | np.ndarray) -> list[FrozenTrial]:
    return [
        create_trial(params=trial.params, distributions=trial.distributions, value=float(value))
        for trial, value in zip(trials, values, strict=True)
    ]


def _compared_with_chance(
    seen: dict[str, float], shuffled: Sequence[dict[str, float]], resampled: Sequence[dict[str, float]]
) -> Importance:
    """Keep what is above chance; the largest of all parameters counts, as one of many is large by chance."""
    by_chance = {name: np.array([one.get(name, 0.0) for one in shuffled]) for name in seen}
    scale = {name: (column.mean(), column.std() or 1.0) for name, column in by_chance.items()}
    largest = np.max(
        [(column - scale[name][0]) / scale[name][1] for name, column in by_chance.items()], axis=0
    )
    limit = float(np.quantile(largest, _CHANCE)) if seen else 0.0
    levels = {name: mean + limit * spread for name, (mean, spread) in scale.items()}
    whole = sum(seen.values())
    kept = [name for name, value in seen.items() if value > levels[name]]
    found: Importance = {}
    for name in sorted(kept, key=lambda name: -seen[name]):
        shares = [one.get(name, 0.0) / total for one in resampled if (total := sum(one.values())) > 0]
        low, high = (float(edge) for edge in np.quantile(shares, _INTERVAL))
        share = seen[name] / whole
        found[name] = (share, min(low, share), max(high, share))
    for name in sorted(seen.keys() - set(kept)):
        found[name] = (0.0, 0.0, min(1.0, float(levels[name]) / whole) if whole > 0 else 1.0)
    return found
