"""What an Optuna study adds to the plans that were enumerated: rates and plans to try next.

The models predict which plans exist, fit and are fast; which rate and plan reach a target first
only trainings can show. The study proposes them, starts with what the models favour, and only names
plans that fit. How a training goes is left to `race`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.advisor.choices import Choices
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.events import TrialEnded
from workbench.search import Study

METRIC = "seconds"
_MAX_PROPOSALS = 500
_NOTHING_TO_TRAIN = "elsewhere:train"
"""A placeholder: the study only proposes plans, and trains nothing."""


@dataclass(frozen=True)
class RatedPlan:
    """A plan with a rate at the reference batch."""

    plan: Plan
    lr: float


class Proposer:
    """Proposes rated plans: the models' favourites, then what an Optuna study finds."""

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
            experiment: What is to be trained.
            choices: What rates are allowed.
            plans: The plans to choose among, by name.
            rates: The lowest and the highest rate at the reference batch.
            favourites: What to try first, in order. Each is taken when it is its turn.
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
        """Return the next rated plan and its number, or None if there are no more."""
        favourite = next(self._favourites, None)
        if favourite is not None:
            self._study.enqueue({"plan": self._names[favourite.plan], "lr": favourite.lr})
        proposal = self._study.ask()
        if proposal is None:
            return None
        lr = proposal.params["lr"]
        assert isinstance(lr, float | int)
        # Further digits make no difference and would be written everywhere.
        lr = float(lr) if self._choices.listed_rates is not None else float(f"{lr:.3g}")
        return proposal.trial, RatedPlan(self._plans[str(proposal.params["plan"])], lr)

    def tell(self, number: int, seconds: float | None) -> None:
        """Report how long a rated plan took, or would have.

        None if it never reported anything finite.
        """
        ended = TrialEnded(trial=number, attempt=0, state="failed", reason="diverged")
        if seconds is not None:
            values = {METRIC: seconds}
            ended = TrialEnded(trial=number, attempt=0, state="complete", values=values)
        self._study.tell(number, ended)
