"""What another plan would bring, answered at once from what an advice measured; nothing is run.

The models are those that the advice was made with: step times and memory fitted to measured plans, and the
worth of a sample by the gradient noise. Where they do not reach, the answer says so instead of guessing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from workbench.advisor.advice import Candidate, Estimate, Goal, apply_settings
from workbench.advisor.candidates import PREDICTED, candidate_of
from workbench.advisor.card import compare, rows_of
from workbench.advisor.choices import Choices, Variant, choices_of
from workbench.advisor.plans import (
    Knowledge,
    PlanChoice,
    best_plans,
    enumerate_plans,
    plan_of,
    variant_of,
)
from workbench.advisor.stored_advice import Interval, finite, mapping, rows
from workbench.errors import ExperimentError
from workbench.events import PlanMeasured
from workbench.experiment import Experiment
from workbench.performance.goodput import efficiency
from workbench.training.settings import reference_lr, resolve

MOST_WORKERS = 1024
_GOALS: tuple[Goal, ...] = ("time", "money", "energy", "throughput")


@dataclass(frozen=True)
class Wish:
    """What somebody fixes of a plan; what is None is chosen as the experiment allows and the objective asks.

    Attributes:
        workers: Workers of a trial, from 1 to 1,024.
        global_batch: Samples per optimizer step.
        micro_batch: Samples that one worker takes at once.
        precision: fp32, bf16 or fp16.
        objective: What the rest is chosen for.
    """

    workers: int | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    precision: str | None = None
    objective: Goal = "time"


class WhatIf:
    """The fitted models of one advice."""

    def __init__(
        self, experiment: Experiment, advice: Mapping[str, Any], measured: Sequence[PlanMeasured]
    ) -> None:
        """Look at an advice.

        Args:
            experiment: What was advised on.
            advice: What was said, as it is stored.
            measured: What was measured of its setting, in that run and before.

        Raises:
            ExperimentError: If nothing was measured.
        """
        timed = [each for each in measured if each.step_time_s is not None]
        samples = next((each.num_train_samples for each in measured if each.num_train_samples), None)
        if not timed or samples is None:
            raise ExperimentError(
                "nothing was measured that could be asked", next_step="Ask for an advice first."
            )
        self._experiment, self._advice, self._num_train_samples = experiment, advice, samples
        placement = mapping(advice.get("settings")).get("resources.placement")
        self._knowledge = Knowledge(
            measured, _nodes(measured), placement="spread" if placement == "spread" else "pack",
            limit_bytes=finite(mapping(advice.get("curves")).get("memory_limit_bytes")),
        )  # fmt: skip
        self._choices = self._choices_of(experiment, 1)
        self._noise_scale = finite(mapping(advice.get("noise")).get("scale_samples"))

    def controls(self) -> dict[str, list[JsonValue]]:
        """Return what may sensibly be asked, by attribute of `Wish`."""
        precisions = {variant.precision: None for variant in self._knowledge.variants}
        return {
            "workers": list(self._choices.workers),
            "global_batch": list(self._choices.global_batches),
            "precision": list(precisions),
            "objective": list(_GOALS),
        }

    def ask(self, wish: Wish) -> dict[str, Any]:
        """Say what the best plan that fulfils a wish would bring.

        Args:
            wish: What is fixed.

        Returns:
            A candidate in plain values. Each predicted number has a value (None where it is not known), low,
            high, and words where the models do not reach; `fits` is None where nobody knows; `rows` is the
            candidate in words, `words` compares it with the choice of the advice, and `limits` gathers all
            that is not known, in sentences.

        Raises:
            ExperimentError: If there is no such plan, or nothing was measured that tells of it.
        """
        plan, fits = self._best(self._narrowed(wish), wish)
        time_s, unknown = self._time_to_target(plan)
        candidate = self._candidate(plan, time_s)
        told: dict[str, Any] = dataclasses.asdict(candidate) | {"written": candidate.written}
        compared = compare(told, mapping(self._advice.get("choice")), wish.objective)
        words = {
            "step_time_s": self._beyond(plan, candidate),
            "memory_bytes": _about_memory(fits),
            "time_to_target_s": unknown,
        }
        for name, said in words.items():
            told[name] = {"value": None, **(told[name] or {}), "words": said}
        no_meter = wish.objective == "energy" and candidate.power_w is None
        metered = (
            "nothing metered what the devices use, so plans are compared by time alone" if no_meter else None
        )
        return {
            **told,
            "fits": fits,
            "rows": [list(row) for row in rows_of(told)],
            "words": f"{plan.text}: {compared or 'it cannot be compared with what was advised'}",
            "limits": [said for said in (*words.values(), metered) if said is not None],
        }

    def _narrowed(self, wish: Wish) -> Choices:
        """Return what may be chosen once a wish is fulfilled; it goes before what the experiment says."""
        if wish.workers is not None and not 1 <= wish.workers <= MOST_WORKERS:
            raise ExperimentError(
                f"{wish.workers} workers cannot be", field="plan.workers", allowed=f"1 to {MOST_WORKERS}"
            )
        wished = {
            "plan.workers": wish.workers, "training.global_batch": wish.global_batch,
            "plan.micro_batch": wish.micro_batch, "plan.precision": wish.precision,
        }  # fmt: skip
        fixed = {path: value for path, value in wished.items() if value is not None}
        return self._choices_of(apply_settings(self._experiment, fixed), wish.workers or 1)

    def _choices_of(self, experiment: Experiment, workers: int) -> Choices:
        return choices_of(
            experiment, num_train_samples=self._num_train_samples,
            on_gpu=any(each.device != "cpu" for each in self._knowledge.measured),
            has_bf16=any(each.plan.get("precision") == "bf16" for each in self._knowledge.measured),
            most_workers=max(workers, *(plan_of(each.plan).workers for each in self._knowledge.measured)),
        )  # fmt: skip

    def _best(self, choices: Choices, wish: Wish) -> tuple[PlanChoice, bool | None]:
        """Return the best plan of those that fit, or else the one that needs the least memory."""
        knowledge = self._knowledge
        variants = [variant for variant in knowledge.variants if choices.allows(variant)]
        if not variants:
            raise self._unmeasured(choices)
        plans = list(enumerate_plans(choices, variants))
        if not plans:
            batches = ", ".join(map(str, choices.global_batches))
            raise ExperimentError(
                f"a global batch of {batches} cannot be divided so",
                field="training.global_batch",
                allowed="micro batch x accumulation x workers",
            )
        fitting = list(enumerate_plans(choices, variants, knowledge))
        if not fitting:
            return min(plans, key=lambda plan: plan.micro_batch), False
        plan = best_plans(
            fitting, knowledge, wish.objective,
            base_batch=self._experiment.training.reference_batch, noise_scale=self._noise_scale,
        )[0]  # fmt: skip
        need = knowledge.memory(plan)
        return plan, None if need is None or need.limit is None else True

    def _unmeasured(self, choices: Choices) -> ExperimentError:
        known = {variant.precision: None for variant in self._knowledge.variants}
        return ExperimentError(
            f"nothing was measured in {' or '.join(choices.precisions)}",
            field="plan.precision",
            allowed=list(known),
            next_step=f"Ask for an advice with plan.precision: {choices.precisions[0]}.",
        )

    def _candidate(self, plan: PlanChoice, time_s: Estimate | None) -> Candidate:
        params = self._choices.params
        advised = finite(mapping(self._advice.get("settings")).get("training.lr"))
        lr = advised or reference_lr(resolve(self._experiment, params).training)
        return candidate_of(
            self._experiment, params, self._knowledge, plan, lr,
            num_train_samples=self._num_train_samples, time_s=time_s,
        )  # fmt: skip

    def _time_to_target(self, plan: PlanChoice) -> tuple[Estimate | None, str | None]:
        """Carry the time of the choice, or of a candidate that was tried, over to a plan; or say why not."""
        choice = mapping(self._advice.get("choice"))
        told = [mapping(self._advice.get(name)) for name in ("choice", "runner_up", "reference")]
        for candidate in (*told, *rows(self._advice.get("others"))):
            known = Interval.of(candidate.get("time_to_target_s"))
            if known is not None and candidate.get("plan") == plan.written():
                return Estimate(known.value, known.low, known.high, known.extrapolated), None
        of_choice = Interval.of(choice.get("time_to_target_s"))
        if of_choice is None:
            return None, "no training was seen to the target, so the time to it is not known"
        chosen = plan_of(mapping(choice.get("plan")))
        own_s, its_s = self._knowledge.step_times([plan, chosen])
        factor = own_s.value / plan.global_batch / (its_s.value / chosen.global_batch)
        spread = 1.0
        if plan.global_batch != chosen.global_batch:
            if self._noise_scale is None:
                return None, (
                    f"the gradient noise was not measured, so what a sample is worth at a batch of "
                    f"{plan.global_batch} rather than {chosen.global_batch} is not known"
                )
            base = self._experiment.training.reference_batch
            worth, its_worth = (
                float(efficiency(each.global_batch, base, self._noise_scale)) for each in (plan, chosen)
            )
            factor, spread = factor * its_worth / worth, PREDICTED
        return Estimate(
            of_choice.value * factor,
            of_choice.low * factor * own_s.low / own_s.value / spread,
            of_choice.high * factor * own_s.high / own_s.value * spread,
            of_choice.extrapolated or own_s.extrapolated,
        ), None

    def _beyond(self, plan: PlanChoice, candidate: Candidate) -> str | None:
        """Say what was measured, where a plan lies beyond that."""
        if not candidate.step_time_s.extrapolated:
            return None
        timed = [plan_of(each.plan) for each in self._timed(plan.variant)]
        counts, batches = ({each.workers for each in timed}, [each.micro_batch for each in timed])
        return (
            f"beyond what was measured: micro batches of {min(batches)} to {max(batches)} on "
            f"{', '.join(map(str, sorted(counts)))} worker{'s' * (counts != {1})}"
        )

    def _timed(self, variant: Variant) -> list[PlanMeasured]:
        known = self._knowledge.measured
        return [each for each in known if each.step_time_s is not None and variant_of(each.plan) == variant]


def _about_memory(fits: bool | None) -> str | None:
    if fits is None:
        return "what a worker holds, or may hold, is not known"
    return None if fits else "it does not fit into the memory of a worker"


def _nodes(measured: Sequence[PlanMeasured]) -> list[int]:
    """Return how many workers nodes hold, as far as measurements tell, with room for any number of them."""
    seen = [each.workers_per_node for each in measured if each.workers_per_node]
    if all(len(placed) == 1 for placed in seen):
        return [MOST_WORKERS]
    largest = max(max(placed) for placed in seen)
    return [largest] * (MOST_WORKERS // largest + 1)
