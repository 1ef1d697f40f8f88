"""Proposes which plans to train, and with which learning rates, by an Optuna study.

Models predict which plans fit and are fast. Only trainings can show which plan and rate reach a
target first. The study starts with the favourites of the models, and only proposes plans that fit.
`race` judges the trainings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.advisor.open_settings import Choices
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.events import TrialEnded
from workbench.search import Study

METRIC = "seconds"
_MAX_PROPOSALS = 500
_NOTHING_TO_TRAIN = "elsewhere:train"
"""A placeholder, because the study trains nothing itself."""


@dataclass(frozen=True)
class RatedPlan:
    """A plan with a rate at the reference batch."""

    plan: Plan
    lr: float


class Proposer:
    """Proposes plans with rates: first the models' favourites, then proposals of a study."""

    def __init__(
        self,
        experiment: Experiment,
        choices: Choices,
        plans: Mapping[str, Plan],
        rates: tuple[float, float],
        favourites: Iterable[RatedPlan],
    ) -> None:
        """Start a study.

        Args:
            experiment: The experiment.
            choices: The allowed settings.
            plans: The plans to choose from, by name.
            rates: The lowest and the highest rate at the reference batch.
            favourites: The first candidates in order. The iterator only advances when the next one
                is needed, so it can depend on the results so far.
        """
        self._choices = choices
        self._plans = dict(plans)
        self._names = {plan: name for name, plan in plans.items()}
        search: dict[str, Any] = {"plan": {"choices": list(plans)}}
        low, high = rates
        if choices.listed_rates is not None:
            search["lr"] = {
                "choices": [rate for rate in choices.listed_rates if low <= rate <= high]
            }
        elif low < high:
            search["lr"] = {"low": low, "high": high, "log": True}
        else:
            search["lr"] = low
        document = experiment.model_dump(mode="json", include={"model", "data", "train", "seed"})
        if not experiment.trains_model:
            document["train"] = _NOTHING_TO_TRAIN
        inner = Experiment(
            **document,
            search=search,
            objectives=[{"metric": METRIC, "goal": "minimize"}],
            budget={"trials": _MAX_PROPOSALS},
        )
        self._study = Study(inner)
        self._favourites = iter(favourites)

    def ask(self) -> tuple[int, RatedPlan] | None:
        """Return the number of the next proposal and the plan with its rate, or None at the end."""
        favourite = next(self._favourites, None)
        if favourite is not None:
            self._study.enqueue({"plan": self._names[favourite.plan], "lr": favourite.lr})
        proposal = self._study.ask()
        if proposal is None:
            return None
        lr = proposal.params["lr"]
        assert isinstance(lr, float | int)
        # More than three digits make no difference to a training, but would appear everywhere.
        lr = float(lr) if self._choices.listed_rates is not None else float(f"{lr:.3g}")
        return proposal.trial, RatedPlan(self._plans[str(proposal.params["plan"])], lr)

    def tell(self, number: int, seconds: float | None) -> None:
        """Report the score of a proposal in seconds, or None if it never had a finite value."""
        ended = TrialEnded(trial=number, attempt=0, state="failed", reason="diverged")
        if seconds is not None:
            values = {METRIC: seconds}
            ended = TrialEnded(trial=number, attempt=0, state="complete", values=values)
        self._study.tell(number, ended)
