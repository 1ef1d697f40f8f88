"""Which strategy makes the steps of an experiment: the one of its plan, or one that its training needs."""

from __future__ import annotations

from workbench.experiment import Experiment
from workbench.experiment.private import is_private
from workbench.strategies import STRATEGIES
from workbench.strategies.strategy import Strategy


def strategy_of(experiment: Experiment, name: str) -> type[Strategy]:
    """Return the class of a strategy.

    Args:
        experiment: What is trained.
        name: The strategy of the plan.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    if is_private(experiment):
        from workbench.strategies.private import PrivateSteps

        return PrivateSteps
    if experiment.federated is not None:
        from workbench.strategies.client_steps import ClientSteps

        return ClientSteps
    if experiment.makes_own_steps:
        from workbench.strategies.phases import Phased

        return Phased
    return STRATEGIES.load(name, field="plan.strategy")
