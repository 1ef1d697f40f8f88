"""The part of a budget that limits the cost of all trainings, and whether it ends a run first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.experiment import Experiment
from workbench.experiment.budget_units import parse_price


@dataclass(frozen=True)
class CostLimit:
    """The limits on seconds in a budget, and the limit on the number of trainings.

    Attributes:
        run_s: Seconds that the run may take, or infinite without a limit.
        held_s: The total seconds of all trials, or infinite without a limit.
        num_trainings: Trainings that the run may have, or infinite without a limit.
    """

    run_s: float
    held_s: float
    num_trainings: float

    @classmethod
    def of(cls, experiment: Experiment) -> CostLimit | None:
        """Return the limit of an experiment, or None if its budget limits no cost.

        With several objectives, costs are not modelled, so there is no limit either.
        """
        budget, price = experiment.budget, experiment.budget.price
        run_s, held_s = budget.time or math.inf, budget.gpu_time or math.inf
        most = experiment.max_trainings()
        if budget.money is not None and price is not None:
            parsed = parse_price(price)
            paid_s = 3600.0 * budget.money / parsed.amount
            run_s = run_s if parsed.is_per_gpu else min(run_s, paid_s)
            held_s = min(held_s, paid_s) if parsed.is_per_gpu else held_s
        # The energy of a second is unknown, so energy only counts if it is the only limit.
        is_energy_all = budget.energy is not None and most is None
        if len(experiment.objectives) > 1 or (math.isinf(min(run_s, held_s)) and not is_energy_all):
            return None
        gpus = experiment.resources.gpus_of_worker
        held_s = held_s if gpus in ("auto", 0) else held_s / gpus
        return cls(run_s, held_s, math.inf if most is None else most)

    def ends_first(self, seconds: float, num_at_once: int) -> bool:
        """Return whether the cost will end the run before the number of trainings does.

        Args:
            seconds: The mean seconds of a training, times its workers.
            num_at_once: The number of trainings that run at once.
        """
        if math.isinf(self.num_trainings):
            return True
        return seconds * self.num_trainings > min(self.held_s, self.run_s * num_at_once)
