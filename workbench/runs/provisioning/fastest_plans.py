"""Choose the plan with which a run ends first on machines of one kind, once for all offers of them.

What machines cost, and what users require of them, is left to `offers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workbench.advisor.advice import apply_settings
from workbench.advisor.open_settings import choices_of
from workbench.advisor.plan_variants import variant_of
from workbench.advisor.plans import Knowledge, enumerate_plans
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, Plan
from workbench.foundation.errors import ExperimentError
from workbench.runs.provisioning.evidence import Evidence
from workbench.sweeps.forecast import Forecast, forecast_of, num_epochs_of

TOLERANCE = 0.05
"""If plans or numbers of machines differ by less, the smaller is chosen."""


class FastestPlan(NamedTuple):
    """The plan with which the run ends first, its step time and its forecast.

    `has_known_memory` tells whether its memory is known.
    """

    plan: Plan
    step_s: Estimate
    forecast: Forecast
    has_known_memory: bool


class FastestPlans:
    """The fastest plans of a run, each chosen when it is first needed."""

    def __init__(self, experiment: Experiment) -> None:
        """Start without any.

        Args:
            experiment: What is to be run.
        """
        self._experiment = experiment
        self._found: dict[tuple[object, ...], tuple[Evidence, FastestPlan | None]] = {}

    def of(
        self,
        known: Evidence,
        workers_per_node: Sequence[int],
        limit_bytes: float | None,
        *,
        on_gpu: bool,
    ) -> FastestPlan | None:
        """Return the plan with which the run ends first, or None if none fits.

        Args:
            known: What was measured.
            workers_per_node: How many workers each node holds.
            limit_bytes: The memory of one worker, or None if that is not known.
            on_gpu: Whether workers train on GPUs.
        """
        key = (id(known), *workers_per_node, limit_bytes, on_gpu)
        if key not in self._found:
            knowledge = known.knowledge.on_nodes(workers_per_node, limit_bytes)
            chosen = self._choose(known, knowledge, sum(workers_per_node), on_gpu=on_gpu)
            self._found[key] = known, chosen  # the evidence is kept, so that no other has its id
        return self._found[key][1]

    def _choose(
        self, known: Evidence, knowledge: Knowledge, places: int, *, on_gpu: bool
    ) -> FastestPlan | None:
        experiment = self._experiment
        fixed = apply_settings(experiment, known.settings)
        try:
            choices = choices_of(
                fixed,
                num_train_samples=known.num_train_samples,
                max_workers=places,
                hardware=Hardware(on_gpu, has_bf16=known.usual.precision == "bf16"),
            )
        except ExperimentError:  # the experiment requires more workers than there are
            return None
        plans = list(enumerate_plans(choices, [variant_of(known.usual)], knowledge))
        if not plans:
            return None
        times = knowledge.step_times(plans)
        num_epochs = num_epochs_of(experiment)
        forecasts = [
            (
                plan,
                step_s,
                forecast_of(
                    experiment,
                    plan,
                    step_s,
                    num_epochs=num_epochs,
                    num_train_samples=known.num_train_samples,
                    num_places=places,
                    on_gpu=on_gpu,
                    state_bytes=None,
                ),
            )
            for plan, step_s in zip(plans, times, strict=True)
        ]

        def takes_s(candidate: tuple[Plan, Estimate, Forecast]) -> float:
            forecast = candidate[2]
            trial_s = forecast.trial_s.value
            # Without a number of trainings, the plan with the most of them an hour.
            if forecast.run_s is None:
                return trial_s / forecast.at_once
            return forecast.run_s.value

        fastest = min(map(takes_s, forecasts))
        near = [
            candidate for candidate in forecasts if takes_s(candidate) <= fastest * (1 + TOLERANCE)
        ]
        plan, step_s, forecast = min(
            near, key=lambda candidate: (candidate[0].workers, candidate[0].accumulation)
        )
        return FastestPlan(plan, step_s, forecast, knowledge.memory(plan) is not None)
