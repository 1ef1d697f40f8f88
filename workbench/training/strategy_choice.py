"""Which strategy makes the steps of an experiment.

The one of its plan, or one that its training needs.
"""

from __future__ import annotations

from workbench.experiment import Experiment
from workbench.experiment.private import is_private
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import Strategy


def strategy_of(experiment: Experiment, name: str) -> type[Strategy]:
    """Return the class of a strategy.

    Args:
        experiment: What is trained.
        name: The strategy of the plan.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    if is_private(experiment):
        from workbench.training.strategies.private import PrivateSteps

        return PrivateSteps
    if experiment.federated is not None:
        from workbench.training.strategies.client_steps import ClientSteps

        return ClientSteps
    if experiment.makes_own_steps:
        from workbench.training.strategies.phases import Phased

        return Phased
    return STRATEGIES.load(name, field="plan.strategy")
