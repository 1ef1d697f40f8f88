"""What a plan with a learning rate should bring, from what was measured: one candidate of advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from workbench.advisor.advice import Candidate, Estimate
from workbench.advisor.plans import Knowledge
from workbench.experiment import Experiment
from workbench.plan import Hardware, PartialPlan, Plan
from workbench.planning.learning_rate import rule_in_force
from workbench.planning.settings import resolve

PREDICTED = 2.0
"""What a predicted time to a target may be off by, beyond its step time."""


def candidate_of(
    experiment: Experiment, params: Mapping[str, JsonValue], knowledge: Knowledge, plan: Plan,
    lr: float, *, num_train_samples: int | None, time_s: Estimate | None, reasons: Sequence[str] = (),
) -> Candidate:  # fmt: skip
    """Return what a plan should bring.

    Args:
        experiment: What is to be trained.
        params: The configuration whose other parameters stand.
        knowledge: What was measured.
        plan: The plan.
        lr: The rate at the reference batch.
        num_train_samples: Samples of the training data; None where that is not known.
        time_s: The time to the target, where something is known of it.
        reasons: Why, in sentences.
    """
    rated: dict[str, JsonValue] = {**params, "lr": lr, "global_batch": plan.global_batch}
    settings = resolve(
        experiment,
        rated,
        num_train_samples=num_train_samples,
        decided=PartialPlan.of_plan(plan),
        hardware=Hardware(has_gpu=True),
    )
    step_s = knowledge.step_times([plan])[0]
    rule = epoch_s = None
    if experiment.trains_model:
        rule = rule_in_force(
            settings.training.lr_rule,
            optimizer=settings.training.optimizer,
            going_up=plan.global_batch >= settings.training.reference_batch,
        )
    if num_train_samples is not None:
        epoch_s = step_s.times(math.ceil(num_train_samples / plan.global_batch))
    return Candidate(
        plan=plan,
        lr=settings.lr if experiment.advise is None or experiment.advise.lr is not None else None,
        lr_rule=rule,
        warmup_epochs=settings.warmup_epochs,
        samples_per_s=step_s.inverse(plan.global_batch),
        step_time_s=step_s,
        epoch_time_s=epoch_s,
        memory_bytes=knowledge.memory(plan),
        power_w=knowledge.power_w(plan),
        time_to_target_s=time_s,
        reasons=tuple(reasons),
    )
