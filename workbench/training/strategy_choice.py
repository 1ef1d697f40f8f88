"""Which strategy makes the steps of an experiment: the one of its plan, or one that its training needs."""

from __future__ import annotations

import functools
from collections.abc import Callable

from workbench.experiment import Experiment
from workbench.strategies import STRATEGIES
from workbench.strategies.strategy import StepSettings, Strategy
from workbench.training.privacy import PrivacyBudget


def strategy_of(
    experiment: Experiment, name: str, privacy: PrivacyBudget | None = None
) -> Callable[[StepSettings], Strategy]:
    """Return what makes a strategy from the settings of a step.

    Args:
        experiment: What is trained.
        name: The strategy of the plan.
        privacy: How samples are hidden; None where the training is not private.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    if privacy is not None:
        from workbench.strategies.private import PrivateSteps

        return functools.partial(PrivateSteps, hiding=privacy.hiding)
    if experiment.federated is not None:
        from workbench.strategies.client_steps import ClientSteps

        return ClientSteps
    if experiment.makes_own_steps:
        from workbench.strategies.phases import Phased

        return Phased
    return STRATEGIES.load(name, field="plan.strategy")
