"""Checks of how an experiment divides its trials that concern more than one of its settings."""

from __future__ import annotations

from workbench.errors import ExperimentError
from workbench.exchanges.capabilities import USUAL
from workbench.experiment import Experiment
from workbench.plan import Plan
from workbench.planning.plan_resolution import field_of


def check_exchange(experiment: Experiment, plan: Plan) -> None:
    """Refuse an exchange that has nothing to exchange.

    Args:
        experiment: The experiment.
        plan: That of one of its configurations.

    Raises:
        ExperimentError: If the exchange is not the usual one, and there is a single replica.
    """
    if plan.exchange != USUAL and plan.workers == 1:
        raise ExperimentError(
            f"one worker has no other replica for the exchange {plan.exchange}",
            field=field_of("plan", "workers", experiment.search.root),
            allowed=f"2 or more with plan.exchange {plan.exchange}",
            next_step="Set the number of workers to 2 or more, or remove the exchange.",
        )
