"""Predicts the speed, memory and time of another plan from the measurements of advice.

Nothing is run. The models are the same as in the advice: step times and memory fitted to measured
plans, and the value of a sample by the gradient noise. If they do not apply, the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from workbench.advisor.advice import Candidate, Goal, apply_settings
from workbench.advisor.advice_lines import compare, rows_of
from workbench.advisor.candidates import PREDICTED, candidate_of
from workbench.advisor.open_settings import Choices, choices_of, is_open, with_divided_models
from workbench.advisor.plan_variants import Variant, plan_of, read_plan, variant_of
from workbench.advisor.plans import Knowledge, best_plans, enumerate_plans
from workbench.advisor.speed_history import hardware_of
from workbench.advisor.stored_advice import Estimate, finite, mapping, rows
from workbench.advisor.worker_scaling import nodes_of
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.goodput import efficiency
from workbench.training.planning.settings import reference_lr, resolve

MAX_WORKERS = 1024
_GOALS: tuple[Goal, ...] = ("time", "money", "energy", "throughput")


@dataclass(frozen=True)
class PlanQuery:
    """The fixed settings of a plan. Those that are None are chosen for the objective.

    Attributes:
        workers: Workers of a trial, from 1 to 1,024.
        global_batch: Samples per optimizer step.
        micro_batch: Samples that one worker takes at once.
        precision: fp32, bf16 or fp16.
        objective: The objective by which the rest is chosen. None means that of the advice.
    """

    workers: int | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    precision: str | None = None
    objective: Goal | None = None


class WhatIf:
    """The fitted models of the advice."""

    def __init__(
        self, experiment: Experiment, advice: Mapping[str, Any], measured: Sequence[PlanMeasured]
    ) -> None:
        """Read advice.

        Args:
            experiment: The experiment of the advice.
            advice: The stored advice.
            measured: The measurements of its setting, from the same run and earlier ones.

        Raises:
            RunError: If nothing was measured, or the experiment is a function or program.
        """
        if not experiment.trains_model:
            raise RunError(
                "what-if only works for models, because the steps per epoch of a function or"
                " program are unknown",
                field="train" if experiment.command is None else "command",
                next_step="To see the measured plans, use `workbench show RUN`.",
            )
        timed = [event for event in measured if event.step_time_s is not None]
        samples = next(
            (event.num_train_samples for event in measured if event.num_train_samples),
            None,
        )
        if not timed or samples is None:
            raise RunError(
                "the run has no measurement to predict from",
                next_step="Run `workbench advise FILE` first.",
            )
        self._experiment, self._advice, self._num_train_samples = experiment, advice, samples
        placement = mapping(advice.get("settings")).get("resources.placement")
        self._knowledge = Knowledge(
            measured,
            nodes_of(measured, MAX_WORKERS),
            placement="spread" if placement == "spread" else "pack",
            limit_bytes=finite(mapping(advice.get("curves")).get("memory_limit_bytes")),
        )
        self._choices = self._choices_of(experiment, 1)
        stored_goal = advice.get("objective")
        self._goal: Goal = stored_goal if stored_goal in _GOALS else "time"
        self._noise_scale = finite(mapping(advice.get("noise")).get("scale_samples"))

    def controls(self) -> dict[str, list[JsonValue]]:
        """Return the values that can be answered, by attribute of `PlanQuery`."""
        precisions = {variant.get("precision"): None for variant in self._knowledge.variants}
        return {
            "workers": list(self._choices.workers),
            "global_batch": list(self._choices.global_batches),
            "precision": list(precisions),
            "objective": list(_GOALS),
        }

    def answer(self, query: PlanQuery) -> dict[str, Any]:
        """Return the predicted effect of the best plan that matches a query.

        Args:
            query: The fixed settings.

        Returns:
            A candidate in plain values. Each predicted number has a value, low, high, and a message
            if the models do not cover it. Unknown values are None, also of `fits`. `rows` describes
            the candidate, `message` compares it with the choice of the advice, and `messages` lists
            what is not known.

        Raises:
            ExperimentError: If there is no such plan, or no measurement of its precision.
        """
        goal = query.objective or self._goal
        query = replace(query, objective=goal)
        plan, fits = self._chosen(query) or self._best(self._narrowed(query), goal)
        time_s, unknown = self._time_to_target(plan)
        candidate = self._candidate(plan, time_s)
        answer: dict[str, Any] = candidate.to_json()
        compared = compare(answer, mapping(self._advice.get("choice")), goal)
        words = {
            "step_time_s": self._beyond(plan, candidate),
            "memory_bytes": _about_memory(fits),
            "time_to_target_s": unknown,
        }
        for name, text in words.items():
            answer[name] = {"value": None, **(answer[name] or {}), "message": text}
        metered = None
        if goal == "energy" and candidate.power_w is None:
            metered = (
                "the power of the devices was not measured, so plans are compared by time alone"
            )
        return {
            **answer,
            "fits": fits,
            "rows": [list(row) for row in rows_of(answer)],
            "message": f"{plan.batch_text}: {compared or 'it cannot be compared with the advice'}",
            "messages": [text for text in (*words.values(), metered) if text is not None],
        }

    def _narrowed(self, query: PlanQuery) -> Choices:
        """Return the choices that a query leaves. A query overrides the experiment."""
        if query.workers is not None and not 1 <= query.workers <= MAX_WORKERS:
            raise ExperimentError(
                f"{query.workers} workers are not possible",
                field="plan.workers",
                allowed=f"1 to {MAX_WORKERS}",
            )
        wished = {
            "plan.workers": query.workers,
            "training.global_batch": query.global_batch,
            "plan.micro_batch": query.micro_batch,
            "plan.precision": query.precision,
        }
        fixed = {path: value for path, value in wished.items() if value is not None}
        return self._choices_of(apply_settings(self._experiment, fixed), query.workers or 1)

    def _choices_of(self, experiment: Experiment, workers: int) -> Choices:
        measured = self._knowledge.measured
        plans = [read_plan(event.plan) for event in measured]
        choices = choices_of(
            experiment,
            num_train_samples=self._num_train_samples,
            hardware=hardware_of(
                measured, has_gpu=any(event.device != "cpu" for event in measured)
            ),
            max_workers=max(workers, *(plan.workers for plan in plans if plan is not None)),
        )
        divides = any(plan.workers_per_replica > 1 for plan in plans if plan is not None)
        may_divide = divides and is_open(experiment, "strategy")
        return with_divided_models(choices, experiment) if may_divide else choices

    def _chosen(self, query: PlanQuery) -> tuple[Plan, bool | None] | None:
        """Return the plan that the advice chose, if it answers the query.

        Its trainings say more than the models do, so the models do not choose again.
        """
        stored = mapping(mapping(self._advice.get("choice")).get("plan"))
        plan = read_plan(stored) if stored else None
        if plan is None or query.objective != self._goal:
            return None
        asked = (
            (query.workers, plan.workers),
            (query.global_batch, plan.global_batch),
            (query.micro_batch, plan.micro_batch),
            (query.precision, plan.precision),
        )
        if any(wanted not in (None, own) for wanted, own in asked):
            return None
        need = self._knowledge.memory(plan)
        if need is None or need.limit is None:
            return plan, None
        return plan, need.value <= need.limit

    def _best(self, choices: Choices, goal: Goal) -> tuple[Plan, bool | None]:
        """Return the best plan that fits, or the one that needs the least memory if none does."""
        knowledge = self._knowledge
        variants = [variant for variant in knowledge.variants if choices.allows(variant)]
        if not variants:
            raise self._unmeasured(choices)
        plans = list(enumerate_plans(choices, variants))
        if not plans:
            batches = ", ".join(map(str, choices.global_batches))
            raise ExperimentError(
                f"a global batch of {batches} cannot be divided among these micro batches and"
                " workers",
                field="training.global_batch",
                allowed="micro batch x accumulation x workers",
            )
        fitting = list(enumerate_plans(choices, variants, knowledge))
        if not fitting:
            return min(plans, key=lambda plan: plan.micro_batch), False
        plan = best_plans(
            fitting,
            knowledge,
            goal,
            base_batch=self._experiment.training.reference_batch,
            noise_scale=self._noise_scale,
        )[0]
        need = knowledge.memory(plan)
        return plan, None if need is None or need.limit is None else True

    def _unmeasured(self, choices: Choices) -> ExperimentError:
        measured_precisions = {
            str(variant.get("precision")): None for variant in self._knowledge.variants
        }
        wanted = [str(precision) for precision in choices.options["precision"]]
        return ExperimentError(
            f"nothing was measured in {' or '.join(wanted)}",
            field="plan.precision",
            allowed=list(measured_precisions),
            next_step=f"Run `workbench advise` with plan.precision: {wanted[0]}.",
        )

    def _candidate(self, plan: Plan, time_s: Estimate | None) -> Candidate:
        params = self._choices.params
        advised = finite(mapping(self._advice.get("settings")).get("training.lr"))
        lr = advised or reference_lr(resolve(self._experiment, params).training)
        return candidate_of(
            self._experiment,
            params,
            self._knowledge,
            plan,
            lr,
            num_train_samples=self._num_train_samples,
            time_s=time_s,
        )

    def _time_to_target(self, plan: Plan) -> tuple[Estimate | None, str | None]:
        """Return the time to the target of a plan, or None and the reason why it is unknown.

        A plan that was trained has its own time. For others, the time of the choice is scaled by
        the seconds per sample and by the value of a sample.
        """
        choice = mapping(self._advice.get("choice"))
        named = [mapping(self._advice.get(name)) for name in ("choice", "runner_up", "reference")]
        for candidate in (*named, *rows(self._advice.get("others"))):
            time_s = Estimate.of(candidate.get("time_to_target_s"))
            if time_s is not None and read_plan(mapping(candidate.get("plan"))) == plan:
                return time_s, None
        of_choice = Estimate.of(choice.get("time_to_target_s"))
        if of_choice is None:
            return None, "no training reached the target, so the time to it is not known"
        chosen = plan_of(mapping(choice.get("plan")))
        own_s, its_s = self._knowledge.step_times([plan, chosen])
        factor = own_s.value / plan.global_batch / (its_s.value / chosen.global_batch)
        spread = 1.0
        if plan.global_batch != chosen.global_batch:
            if self._noise_scale is None:
                return (
                    None,
                    (
                        "the gradient noise was not measured, so it is unknown how many more"
                        f" samples a batch of {plan.global_batch} needs than one of"
                        f" {chosen.global_batch}"
                    ),
                )
            base = self._experiment.training.reference_batch
            value, its_value = (
                float(efficiency(either.global_batch, base, self._noise_scale))
                for either in (plan, chosen)
            )
            factor, spread = factor * its_value / value, PREDICTED
        return (
            Estimate(
                of_choice.value * factor,
                of_choice.low * factor * own_s.low / own_s.value / spread,
                of_choice.high * factor * own_s.high / own_s.value * spread,
                of_choice.extrapolated or own_s.extrapolated,
            ),
            None,
        )

    def _beyond(self, plan: Plan, candidate: Candidate) -> str | None:
        """Return the range of the measurements if a plan is outside of it, otherwise None."""
        if not candidate.step_time_s.extrapolated:
            return None
        timed = self._timed(variant_of(plan))
        counts = {plan.workers for plan in timed}
        batches = [plan.micro_batch for plan in timed]
        return (
            f"beyond what was measured: micro batches of {min(batches)} to {max(batches)} on "
            f"{', '.join(map(str, sorted(counts)))} worker{'s' * (counts != {1})}"
        )

    def _timed(self, variant: Variant) -> list[Plan]:
        timed = [event for event in self._knowledge.measured if event.step_time_s is not None]
        plans = [plan for event in timed if (plan := read_plan(event.plan)) is not None]
        return [plan for plan in plans if variant_of(plan) == variant]


def _about_memory(fits: bool | None) -> str | None:
    if fits is None:
        return "the memory that a worker needs or has is unknown"
    return None if fits else "it does not fit into the memory of a worker"
