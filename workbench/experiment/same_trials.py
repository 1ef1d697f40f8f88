"""What is stated of an experiment that allows several trials, but searches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def describe_same_trials(experiment: Experiment) -> str | None:
    """Return a sentence about a limit on trials that has no effect, as all would be the same; else None.

    Args:
        experiment: The experiment.
    """
    wanted, most = experiment.budget.trials, experiment.max_configurations()
    if wanted is None or most is None or most >= wanted:
        return None
    return (
        f"nothing is searched, so {wanted} trials would be the same one: only one runs; name parameters in "
        f"search, or set repeats: {wanted} to train it with that many seeds"
    )
