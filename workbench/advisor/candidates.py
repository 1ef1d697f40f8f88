"""Candidates of advice: predictions for a plan with a learning rate, from measurements."""

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
"""The factor by which a predicted number of steps to a target may be wrong."""
_CONTRADICTS = 2.0
"""A measured step that differs from the model by this factor is worth a second measurement."""


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
    """Return a plan with its predicted speed, memory and time.

    Args:
        experiment: The experiment.
        params: The configuration that provides all other parameters.
        knowledge: The measurements.
        plan: The plan.
        lr: The rate at the reference batch.
        num_train_samples: Samples of the training data, or None if unknown.
        time_s: The time to the target, or None if unknown.
        reasons: Why it is recommended, in sentences.
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
    """Describe how far a measured step is from the prediction of the model.

    Args:
        step: A step time of `Knowledge.step_times`. A measured value outside the model's range is
            an end of its interval.
        whose: Words that say which plan it is, such as " of the runner-up".

    Returns:
        A sentence, or None unless they differ by a factor of two or more.
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
        f"the measured step{whose} is up to {times} {how} than the other plans suggest: measure it"
        " again"
    )


def doubt_of_runner_up(runner_up: Candidate, choice: Candidate) -> str | None:
    """Describe how far the measured step of a runner-up is from the prediction of the model.

    Args:
        runner_up: The second best candidate.
        choice: The recommended candidate.

    Returns:
        A sentence, or None unless the runner-up would win if the model were right.
    """
    step, times_s = runner_up.step_time_s, (runner_up.time_to_target_s, choice.time_to_target_s)
    if times_s[0] is not None and times_s[1] is not None:
        would_win = times_s[0].value * step.low / step.value < times_s[1].value
    else:
        would_win = runner_up.samples_per_s.high > choice.samples_per_s.value
    return describe_contradiction(step, f" of {runner_up.written}") if would_win else None
