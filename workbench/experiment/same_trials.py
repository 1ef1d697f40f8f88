"""What is stated of an experiment that allows several trials, but searches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def tries_one_configuration(experiment: Experiment) -> bool:
    """Return whether all trials would be the same one, as nothing is searched and no population
    trains.

    Args:
        experiment: The experiment.
    """
    return not experiment.search.has_choice and experiment.max_configurations() == 1


def describe_same_trials(experiment: Experiment) -> str | None:
    """Return a sentence about a limit on trials that has no effect, as all would be the same.

    Else None.

    Args:
        experiment: The experiment.
    """
    wanted = experiment.budget.trials
    if wanted is None or wanted == 1 or not tries_one_configuration(experiment):
        return None
    return (
        f"nothing is searched, so {wanted} trials would be the same one: only one runs; name"
        f" parameters in search, or set repeats: {wanted} to train it with that many seeds"
    )
