"""A candidate of advice: what a plan with a learning rate should bring, by what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from workbench.advisor.advice import Candidate
from workbench.advisor.plans import Knowledge
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.training.planning.learning_rate import rule_in_force
from workbench.training.planning.settings import resolve

PREDICTED = 2.0
"""What a predicted time to a target may be off by, beyond its step time."""
_CONTRADICTS = 2.0


def candidate_of(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    knowledge: Knowledge,
    plan: Plan,
    lr: float,
    *,
    num_train_samples: int | None,
    time_s: Estimate | None,
    reasons: Sequence[str] = (),
) -> Candidate:
    """Return what a plan should bring.

    Args:
        experiment: What is to be trained.
        params: The configuration whose other parameters stand.
        knowledge: What was measured.
        plan: The plan.
        lr: The rate at the reference batch.
        num_train_samples: Samples of the training data, or None if that is not known.
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


def describe_contradiction(step: Estimate, whose: str = "") -> str | None:
    """Describe by how much a measured step contradicts the model of the other plans.

    None unless by a lot.

    Args:
        step: As `Knowledge.step_times` returns it: a measured one beyond the model is an end of its
            interval.
        whose: Of which plan, such as " of the runner-up".
    """
    if step.value == step.low:
        how, shorter_s, longer_s = "shorter", step.value, step.high
    elif step.value == step.high:
        how, shorter_s, longer_s = "longer", step.low, step.value
    else:
        return None
    if longer_s < _CONTRADICTS * shorter_s or shorter_s <= 0.0:
        return None
    times = f"{longer_s / shorter_s:.1f} times"
    return (
        f"the measured step{whose} is up to {times} {how} than other plans let expect: measure it"
        " again"
    )


def doubt_of_runner_up(runner_up: Candidate, choice: Candidate) -> str | None:
    """Describe how the measured step of a runner-up contradicts the model.

    None unless it would be chosen by the model.

    Args:
        runner_up: What is next best.
        choice: What is recommended.
    """
    step, times_s = runner_up.step_time_s, (runner_up.time_to_target_s, choice.time_to_target_s)
    if times_s[0] is not None and times_s[1] is not None:
        would_win = times_s[0].value * step.low / step.value < times_s[1].value
    else:
        would_win = runner_up.samples_per_s.high > choice.samples_per_s.value
    return describe_contradiction(step, f" of {runner_up.written}") if would_win else None
