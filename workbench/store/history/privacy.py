"""Compute the privacy that all trials of a private run have spent together."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.experiment.training_section import EPSILON_METRIC
from workbench.experiment.training_section import PRIVATE_PREFIX as PREFIX
from workbench.foundation.formatting import format_count, format_number
from workbench.store.history.history import History


@dataclass(frozen=True)
class PrivacySpent:
    """A bound on how much the results of a run reveal about any single training sample.

    Attributes:
        epsilon: The sum over trials.
        delta: The sum of the probabilities that an epsilon does not hold.
        num_trials: Number of trials that have reported their privacy.
    """

    epsilon: float
    delta: float
    num_trials: int

    def describe(self) -> str:
        """Describe it, such as `privacy: all 3 trials together spent at most epsilon 24 ...`."""
        who = "the trial"
        if self.num_trials > 1:
            who = f"all {format_count(self.num_trials, 'trial')} together"
        spent = f"epsilon {format_number(self.epsilon)} at delta {format_number(self.delta)}"
        why = ", because they trained on the same samples" if self.num_trials > 1 else ""
        return f"privacy: {who} spent at most {spent}{why}"


def describe_privacy(history: History) -> str | None:
    """Describe the spent privacy, or return None if the run is not private or has no reports."""
    spent = spent_privacy(history)
    if spent is None:
        return None
    return spent.describe()


def spent_privacy(history: History) -> PrivacySpent | None:
    """Return the spent privacy by simple composition, or None if the training is not private.

    Args:
        history: The run so far.

    Source: Dwork and Roth, The Algorithmic Foundations of Differential Privacy, 2014, theorem 3.16.
    """
    private = history.experiment.training.private
    if private is None:
        return None
    spent: list[tuple[float, float]] = []
    for trial in history.trials.values():
        epsilon = trial.last_values.get(EPSILON_METRIC)
        if epsilon is not None:
            delta = trial.params.get(f"{PREFIX}delta", private.delta)
            assert isinstance(delta, int | float)
            spent.append((epsilon, float(delta)))
    if not spent:
        return None
    # Simple composition: the epsilons and the deltas of trainings on the same samples add up.
    return PrivacySpent(
        math.fsum(epsilon for epsilon, _ in spent),
        math.fsum(delta for _, delta in spent),
        len(spent),
    )
