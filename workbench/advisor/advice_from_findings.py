"""From findings to advice: the choice, the runner-up, the reasons, and the uncertainties.

Trainings to the target decide which batch is chosen. If no training has shown that a large batch
converges, the batch must leave enough updates within the epochs of the experiment. To make the same
progress, a batch B needs (phi + B) / (phi + B0) times the samples of the batch B0, where phi is the
gradient noise scale. (McCandless et al. 2018: samples = E_min (1 + B / B_crit), where B_crit is
about phi.)

At the critical batch this is twice the minimum, so a recommended batch may need at most twice the
samples of the default batch: B <= 2 B0 + phi. An unmeasured noise scale counts as 0, which is safe
for any true value: half the updates of the default remain, and a few in each epoch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from workbench.advisor.advice import Advice, Candidate, Goal, NoiseStatus, Rejected
from workbench.advisor.candidates import (
    PREDICTED,
    candidate_of,
    describe_contradiction,
    doubt_of_runner_up,
)
from workbench.advisor.exchange_forecast import Progress, exchange_offers
from workbench.advisor.open_settings import MIN_STEPS_PER_EPOCH, Choices, believed_rate, is_open
from workbench.advisor.plan_study import RatedPlan
from workbench.advisor.plan_variants import (
    is_possible_on,
    plan_of,
    plan_with,
    read_plan,
    variant_of,
)
from workbench.advisor.plans import Knowledge
from workbench.advisor.race import Race, Standing
from workbench.advisor.stored_advice import Estimate
from workbench.cluster.workers.admission import Placement
from workbench.experiment import Experiment
from workbench.experiment.goals import sign_of
from workbench.experiment.plan import VARIANT, PartialPlan, Plan, PlanValue
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PlanMeasured, RatesTested
from workbench.foundation.events.trials import input_stall, loaders_to_hide
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_rate,
)
from workbench.hardware.performance.goodput import efficiency
from workbench.hardware.performance.noise import MAX_NOISE_SCALES
from workbench.training.planning.own_code import PREFIX
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import BY_AXIS, capabilities_of, strategy_on

# The time of nine of ten trainings with other seeds is within this factor of a single one.
_ONE_TRAINING = 1.35
# The range of several trainings is widened by this factor on both sides.
_SEVERAL_TRAININGS = 1.1
_MAX_OTHERS = 6
"""How many candidates are listed after the choice and the runner-up."""
_EDGE = 1.05
"""A rate within this factor of the end of its range is at the edge."""
_MAX_SAMPLES_RATIO = 2.0
"""A larger batch may need at most this many times the samples of the default batch."""


@dataclass(frozen=True)
class Findings:
    """All measurements and trainings on which the advice is based.

    Attributes:
        experiment: The experiment.
        goal: The goal of the advice.
        choices: The allowed settings.
        knowledge: The measurements, and the models fitted to them.
        reference: The measurement of the experiment without advice.
        plans: The best plan of each global batch, in the order in which the models rank them.
        rates: The range test of learning rates, or None.
        race: The trainings, or None.
        noise_scale: The gradient noise scale in samples, or None if it was not measured.
        placement: Whether the workers of a trial are placed on few nodes or on many.
        num_known: The number of earlier measurements.
        num_measured: The number of new measurements.
        cost_s: Seconds that everything took.
        placements_s: Step times of one plan on few nodes and on many, if both were measured.
        progress: The steps of the trainings.
        spare_cores: CPU cores that a worker may use for loading if only one trial runs at a time.
    """

    experiment: Experiment
    goal: Goal
    choices: Choices
    knowledge: Knowledge
    reference: PlanMeasured
    plans: Sequence[Plan]
    rates: RatesTested | None
    race: Race[RatedPlan] | None
    noise_scale: float | None
    placement: Placement
    num_known: int
    num_measured: int
    cost_s: float
    placements_s: Mapping[Placement, float] = field(default_factory=dict)
    progress: Progress = field(default_factory=dict)
    spare_cores: int = 0


def conclude(findings: Findings) -> Advice:
    """Compose the advice.

    Raises:
        ExperimentError: If no candidate reported a finite value of the objective.
    """
    raced = findings.race.standings() if findings.race else []
    standings = [standing for standing in raced if _has_result(standing)]
    if (
        not standings
        and findings.race is not None
        and any(course.has_reported for course in findings.race.courses)
    ):
        raise ExperimentError(
            "no candidate reported a finite value of the objective",
            field="objectives.0.metric",
            next_step="Run a sweep of one trial and read its log.",
        )
    ranked = [
        _Ranked(standing.entrant, _raced(findings, standing), _converged(findings, standing))
        for standing in standings
    ]
    limit = _largest_batch(findings)
    # If no trained candidate may be chosen, the predictions of the models follow.
    if not any(entry.may_be_chosen(limit) for entry in ranked):
        lr = believed_rate(findings.experiment, findings.choices, findings.rates)
        ranked += [
            _Ranked(RatedPlan(plan, lr), _predicted(findings, plan, lr)) for plan in findings.plans
        ]
    fastest = ranked[0]
    # A stable sort: candidates keep their order apart from this.
    ranked.sort(key=lambda entry: not entry.may_be_chosen(limit))
    plan, lr = ranked[0].rated.plan, ranked[0].rated.lr
    candidates = [entry.candidate for entry in ranked]
    rejected = None
    if plan.global_batch < fastest.rated.plan.global_batch:
        rejected = _rejected(findings, fastest)
    choice = candidates[0]
    return Advice(
        objective=findings.goal,
        has_target=findings.experiment.objectives[0].target is not None,
        choice=choice,
        runner_up=candidates[1] if len(candidates) > 1 else None,
        others=tuple(candidates[2 : 2 + _MAX_OTHERS]),
        reference=_reference(findings, standings),
        noise_scale_samples=findings.noise_scale,
        noise_status=_noise_status(findings),
        measured=tuple(_measured(findings)),
        would_change=tuple(_would_change(findings, plan, lr, candidates)),
        cost_s=findings.cost_s,
        settings=_settings(findings, plan, lr),
        curves=_curves(findings, standings),
        exchanges=exchange_offers(
            findings.knowledge.measured, plan, findings.race, findings.progress
        ),
        rejected=rejected,
    )


@dataclass(frozen=True)
class _Ranked:
    """A candidate, and whether a training has shown that it converges in time."""

    rated: RatedPlan
    candidate: Candidate
    has_converged: bool = False

    def may_be_chosen(self, largest_batch: float) -> bool:
        return self.has_converged or self.rated.plan.global_batch <= largest_batch


def _converged(findings: Findings, standing: Standing[RatedPlan]) -> bool:
    """Return whether a training reached the target or, without a target, ran all epochs."""
    has_target = findings.experiment.objectives[0].target is not None
    courses = findings.race.courses if findings.race and not has_target else []
    return bool(standing.times_s) or any(
        course.entrant == standing.entrant and course.is_whole and course.best_values
        for course in courses
    )


def _default_batch(findings: Findings) -> int:
    """Return the smaller of two batches: the one without advice, and the reference batch."""
    default = min(
        plan_of(findings.reference.plan).global_batch, findings.experiment.training.reference_batch
    )
    return max(default, min(findings.choices.global_batches))


def largest_batch(
    default_batch: int, noise_scale: float | None, num_train_samples: int | None
) -> int:
    """Return the largest batch that may be recommended without a training that shows convergence.

    Args:
        default_batch: The batch without advice, in samples.
        noise_scale: The gradient noise scale in samples, or None if it was not measured.
        num_train_samples: Samples of the training data, or None if unknown.
    """
    largest = int(
        _MAX_SAMPLES_RATIO * default_batch + (_MAX_SAMPLES_RATIO - 1.0) * (noise_scale or 0.0)
    )
    if noise_scale is None and num_train_samples is not None:
        largest = min(largest, num_train_samples // MIN_STEPS_PER_EPOCH)
    return max(default_batch, largest)


def describe_fewer_updates(
    experiment: Experiment, batch: int, default_batch: int, num_train_samples: int | None
) -> str:
    """Return why a larger batch is not recommended, in a sentence.

    Args:
        experiment: The experiment, for its number of epochs.
        batch: The larger batch.
        default_batch: The batch without advice.
        num_train_samples: Samples of the training data, or None if unknown.
    """
    if num_train_samples is None:
        leaves = f"{batch / default_batch:.3g} times fewer updates than {default_batch}"
    else:
        epochs = experiment.training.epochs
        few, many = (epochs * -(-num_train_samples // size) for size in (batch, default_batch))
        leaves = f"only {few:,} updates in {epochs} epochs ({many:,} at {default_batch})"
    return f"faster steps, but {leaves}, and no training has shown that it converges"


def _largest_batch(findings: Findings) -> float:
    if findings.goal == "throughput" or not findings.experiment.trains_model:
        return math.inf
    return largest_batch(
        _default_batch(findings), findings.noise_scale, findings.reference.num_train_samples
    )


def _rejected(findings: Findings, fastest: _Ranked) -> Rejected:
    """Return the plan that seemed the fastest, and why it is not recommended."""
    plan = fastest.rated.plan
    reason = describe_fewer_updates(
        findings.experiment,
        plan.global_batch,
        _default_batch(findings),
        findings.reference.num_train_samples,
    )
    return Rejected(
        plan.batch_text,
        fastest.candidate.samples_per_s.value,
        is_measured=bool(findings.knowledge.timings_s(plan)),
        reason=reason,
    )


def _has_result(standing: Standing[RatedPlan]) -> bool:
    return standing.time_s is not None or bool(standing.times_s) or standing.value is not None


def _candidate(
    findings: Findings, plan: Plan, lr: float, time_s: Estimate | None, reasons: Sequence[str]
) -> Candidate:
    samples = findings.reference.num_train_samples
    return candidate_of(
        findings.experiment,
        findings.choices.params,
        findings.knowledge,
        plan,
        lr,
        num_train_samples=samples,
        time_s=time_s,
        reasons=reasons,
    )


def _raced(findings: Findings, standing: Standing[RatedPlan]) -> Candidate:
    """Return a candidate with the results of its trainings."""
    plan, times = standing.entrant.plan, standing.times_s
    weight = findings.knowledge.price_over(plan, plan_of(findings.reference.plan), findings.goal)
    time_s = None
    if times:
        # If some trainings missed the target, this is the mean that includes them. Otherwise the
        # candidate could seem faster than the choice.
        mean_s = (standing.time_s or sum(times) / len(times)) / weight
        spread = _SEVERAL_TRAININGS
        slowest_s = max(mean_s, max(times) / weight)
        if len(times) == 1:
            spread = _ONE_TRAINING
            slowest_s = mean_s
        low_s = min(times) / weight / spread
        high_s = slowest_s * spread
        time_s = Estimate(mean_s, low_s, high_s)
    metric = findings.experiment.objectives[0]
    if times:
        trainings = format_count(len(times) + standing.num_missed, "training")
        reason = f"reached {metric.metric} {metric.target:g} in {len(times)} of {trainings}"
    else:
        sign = sign_of(metric.goal)
        assert standing.value is not None
        reason = (
            f"it reached {metric.metric} {sign * standing.value:.4g}"
            " in the time that every candidate had"
        )
        if metric.target is not None:
            reason += f" (no candidate reached the target of {metric.target:g})"
    return _candidate(findings, plan, standing.entrant.lr, time_s, [reason])


def _predicted(findings: Findings, plan: Plan, lr: float) -> Candidate:
    """Return a candidate with the predictions of the models.

    Without a noise scale, the number of epochs is unknown, so no time to the target is predicted.
    """
    base = findings.experiment.training.reference_batch
    candidate = _candidate(findings, plan, lr, None, [])
    how = "predicted by the model of step times"
    if findings.knowledge.timings_s(plan):
        how = "measured"
    reasons = [f"{format_rate(candidate.samples_per_s.value)} samples/s {how}"]
    time_s = None
    if findings.noise_scale is not None and candidate.epoch_time_s is not None:
        value = float(efficiency(plan.global_batch, base, findings.noise_scale))
        reasons.append(
            f"by the gradient noise, a sample is worth {value:.2f} samples at a batch of {base}"
        )
        epochs = findings.experiment.training.epochs / value
        whole = candidate.epoch_time_s.times(epochs)
        time_s = Estimate(
            whole.value, whole.low / PREDICTED, whole.high * PREDICTED, whole.extrapolated
        )
    return dataclasses.replace(
        candidate, time_to_target_s=time_s, is_by_speed=time_s is None, reasons=tuple(reasons)
    )


def _reference(findings: Findings, standings: Sequence[Standing[RatedPlan]]) -> Candidate:
    """Return the experiment without advice as a candidate, with its time if it was trained."""
    choice = plan_of(findings.reference.plan)
    lr = believed_rate(findings.experiment, findings.choices)
    for standing in standings:
        if standing.entrant.plan == choice and math.isclose(standing.entrant.lr, lr, rel_tol=0.01):
            return _raced(findings, standing)
    return _candidate(findings, choice, lr, None, ["your current settings"])


def _noise_status(findings: Findings) -> NoiseStatus:
    if findings.noise_scale is not None:
        return "measured"
    if findings.race is not None and findings.race.courses:
        return "not estimable yet"
    return "not measured"


def _measured(findings: Findings) -> Iterator[str]:
    if findings.choices.params:
        written = ", ".join(
            f"{name.removeprefix(PREFIX)}={value}"
            for name, value in findings.choices.params.items()
        )
        yield f"everything was measured with {written}"
    plans = _plans_measured(findings)
    counts = sorted({plan.workers for plan in plans})
    batches = sorted({plan.micro_batch for plan in plans})
    count = format_count(findings.num_measured, "plan")
    if findings.num_known:
        count += f", {findings.num_known} more from earlier runs"
    workers = ", ".join(map(str, counts))
    sizes = f"micro batches of {' to '.join(map(str, dict.fromkeys((batches[0], batches[-1]))))}"
    yield f"{count}: {sizes} on {workers} worker{'s' * (counts != [1])}"
    compiling_s = [
        measured.compile_s
        for measured in findings.knowledge.measured
        if measured.compile_s is not None
    ]
    if compiling_s:
        yield (
            f"compiling takes {format_duration(max(compiling_s))} at the start of a trial, "
            "which the times above do not include"
        )
    yield from describe_loading(findings.knowledge.measured)
    if findings.placements_s:
        packed_s, apart_s = findings.placements_s["pack"], findings.placements_s["spread"]
        chosen = "few"
        if findings.placement == "spread":
            chosen = "many"
        yield (
            f"a step takes {packed_s * 1e3:.3g} ms on few nodes and {apart_s * 1e3:.3g} ms on many,"
            f" so workers are placed on {chosen}"
        )
    # There are no rates if the loss was not finite even at the lowest.
    if findings.rates is not None and findings.rates.rates:
        suggested = findings.rates.suggested
        rates = findings.rates.rates
        tested = f"learning rates from {rates[0]:.2g} to {rates[-1]:.2g}"
        if suggested is None:
            yield f"{tested}: none made the loss fall"
        else:
            yield f"{tested}: the loss falls fastest at {suggested:.3g}"
    if findings.race is not None and findings.race.courses:
        entrants = len({course.entrant for course in findings.race.courses})
        yield f"{len(findings.race.courses)} short trainings of {entrants} candidates"


def _plans_measured(findings: Findings) -> list[Plan]:
    plans = (read_plan(measured.plan) for measured in findings.knowledge.measured)
    return [plan for plan in plans if plan is not None]


def _would_change(
    findings: Findings, plan: Plan, lr: float, candidates: Sequence[Candidate]
) -> Iterator[str]:
    """Yield the uncertainties that could change the answer, those about the choice first."""
    choice = candidates[0]
    runner_up = candidates[1] if len(candidates) > 1 else None
    if runner_up is not None and _is_within_interval(runner_up, choice):
        at = ""
        if runner_up.lr is not None:
            at = f" at {runner_up.lr:.3g}"
        yield f"{runner_up.written}{at} may be as good: more time (--time) would show which is"
    yield from _doubts_about_race(findings)
    if choice.step_time_s.extrapolated:
        yield "the step time is beyond what was measured: measure this plan before relying on it"
    if doubt := describe_contradiction(choice.step_time_s):
        yield doubt
    if runner_up is not None and (doubt := doubt_of_runner_up(runner_up, choice)):
        yield doubt
    if is_open(findings.experiment, "loaders"):
        yield from describe_missing_cores(
            findings.knowledge.measured, findings.reference, findings.spare_cores
        )
    yield from describe_unmeasured(_unmeasured(findings), findings.experiment.search)
    yield from _doubts_about_rate(findings, lr)
    yield from _doubts_about_batch(findings, plan)


def _is_within_interval(runner_up: Candidate, choice: Candidate) -> bool:
    """Return whether the runner-up may reach the target before the choice."""
    its_s, best_s = runner_up.time_to_target_s, choice.time_to_target_s
    return its_s is not None and best_s is not None and its_s.low < best_s.high


def _doubts_about_race(findings: Findings) -> Iterator[str]:
    courses = findings.race.courses if findings.race else []
    if courses and not any(course.has_reported for course in courses):
        yield "no candidate reached its first evaluation: give it more time with --time"
    reached = [course for course in courses if course.reached_s is not None]
    if reached and all(course.reached_s == course.elapsed_s[0] for course in reached):
        yield (
            "all candidates reached the target at their first evaluation: set a stricter target to"
            " compare them"
        )


def _doubts_about_rate(findings: Findings, lr: float) -> Iterator[str]:
    if _has_rate(findings):
        low, high = findings.choices.rates
        if lr >= high / _EDGE or lr <= low * _EDGE:
            yield (
                f"the learning rate is at the edge of its range ({low:.3g} to {high:.3g}): widen it"
            )
    if (why := findings.choices.why_rate_stays) is not None:
        yield f"the search still varies the learning rate: {why}"
    elif "training.lr" in findings.choices.open_fields and not _has_rate(findings):
        yield "the learning rate was not tuned: give it more time with --time"


def _doubts_about_batch(findings: Findings, plan: Plan) -> Iterator[str]:
    scale = findings.noise_scale
    if scale is not None and plan.global_batch > MAX_NOISE_SCALES * scale:
        yield (
            f"the batch is more than {MAX_NOISE_SCALES:g} times the noise scale of "
            f"{scale:.0f} samples: a smaller one may need no more steps"
        )
    elif scale is None and findings.experiment.trains_model:
        yield (
            "the gradient noise was not measured. It grows during training, so larger batches may"
            " pay later"
        )


def _settings(findings: Findings, plan: Plan, lr: float) -> dict[str, JsonValue]:
    """Return the settings for the experiment. Only settings that were open are among them."""
    decided = PartialPlan.of_plan(plan).applicable().values
    values: dict[str, JsonValue] = {f"plan.{name}": value for name, value in decided}
    values["training.global_batch"] = plan.global_batch
    if plan.workers > 1 and findings.placement == "spread":
        values["resources.placement"] = findings.placement
    if "training.lr" in findings.choices.open_fields and _has_rate(findings):
        values["training.lr"] = lr
    stays = {
        f"plan.{name}" for name in _unmeasured(findings) if name in findings.experiment.search.root
    }
    return {
        path: values[path]
        for path in findings.choices.open_fields
        if path in values and path not in stays and not _follows_by_itself(findings, plan, path)
    }


def _unmeasured(findings: Findings) -> dict[str, list[PlanValue]]:
    return unmeasured_values(findings.choices, findings.knowledge.measured)


def _has_rate(findings: Findings) -> bool:
    """Return whether rates were tried, if there is one to choose."""
    return findings.choices.is_rate_open and (
        findings.race is not None or findings.rates is not None
    )


def _follows_by_itself(findings: Findings, plan: Plan, path: str) -> bool:
    """Return whether a trial would decide the same by itself, so that the setting can stay open."""
    section, _, name = path.partition(".")
    if section != "plan" or not is_open(findings.experiment, name):
        return False
    value, usual = PartialPlan.of_plan(plan).get(name), findings.choices.usual_variant.get(name)
    if name in BY_AXIS:
        return value == 1 and not (
            plan.strategy in STRATEGIES and capabilities_of(plan.strategy).axis == name
        )
    if name == "strategy":
        return plan.strategy == strategy_on(str(usual), plan.workers)
    if name == "accumulation":
        return value == 1
    return value == usual


# These dimensions are only measured if a model predicts that it may pay. An unmeasured value is not
# a gap.
_FORECAST = frozenset({"exchange", "pipeline_schedule"})


def unmeasured_values(
    choices: Choices, measured: Sequence[PlanMeasured]
) -> dict[str, list[PlanValue]]:
    """Return the values that were not measured although they may make steps faster, by dimension.

    Args:
        choices: The allowed settings.
        measured: All measurements, including those of plans that turned out to be impossible.
    """
    plans = [
        PartialPlan.of_plan(plan)
        for event in measured
        if (plan := read_plan(event.plan)) is not None
    ]
    unmeasured: dict[str, list[PlanValue]] = {}
    for dimension in VARIANT:
        name = dimension.name
        if dimension.advised_for != "speed" or dimension.option_of or name in _FORECAST:
            continue
        measured_values = {plan.get(name) for plan in plans}
        missing = [
            value
            for value in choices.options[name]
            if value not in measured_values
            and _is_possible(choices, PartialPlan.of(**{name: value}))
        ]
        if missing:
            unmeasured[name] = missing
    return unmeasured


def describe_unmeasured(missing: Mapping[str, Sequence[PlanValue]], search: Space) -> Iterator[str]:
    """Yield which values were not measured, and which dimensions are still searched for that."""
    for name, values in missing.items():
        stays = ""
        if name in search.root:
            stays = f", so the search still varies {name}"
        yield (
            f"plan.{name} {' and '.join(map(str, values))} was not measured{stays}: give it more"
            " time with --time"
        )


def _is_possible(choices: Choices, change: PartialPlan) -> bool:
    return any(
        is_possible_on(choices.usual_variant | change, workers) for workers in choices.workers
    )


def _curves(findings: Findings, standings: Sequence[Standing[RatedPlan]]) -> dict[str, Any]:
    variant = variant_of(findings.plans[0])
    measured = _plans_measured(findings)
    batches = sorted({plan.micro_batch for plan in (*findings.plans, *measured)})
    plans = [
        plan_with(variant, workers, batch)
        for workers in findings.choices.workers
        for batch in batches
    ]
    step_times = [
        {
            "workers": plan.workers,
            "micro_batch": plan.micro_batch,
            "step_time_s": time.value,
            "low_s": time.low,
            "high_s": time.high,
            "extrapolated": time.extrapolated,
        }
        for plan, time in zip(plans, findings.knowledge.step_times(plans), strict=True)
    ]
    needs = [
        (batch, findings.knowledge.memory(plan_with(variant, findings.choices.workers[0], batch)))
        for batch in batches
    ]
    fastest: dict[int, Estimate] = {}
    for candidate in (_raced(findings, standing) for standing in standings):
        batch, time_s = candidate.plan.global_batch, candidate.time_to_target_s
        if time_s is not None and (batch not in fastest or time_s.value < fastest[batch].value):
            fastest[batch] = time_s
    return {
        "step_time": step_times,
        "memory": [
            {"micro_batch": batch, "peak_bytes": need.value}
            for batch, need in needs
            if need is not None
        ],
        "memory_limit_bytes": findings.knowledge.limit_bytes,
        "time_to_target": [
            {
                "global_batch": batch,
                "time_s": time_s.value,
                "low_s": time_s.low,
                "high_s": time_s.high,
            }
            for batch, time_s in sorted(fastest.items())
        ],
    }


def loader_numbers(reference: PlanMeasured, free_cores: int) -> tuple[int, ...]:
    """Return the numbers of loaders to measure, the usual one first.

    Args:
        reference: The measurement of the experiment without advice and without loaders.
        free_cores: CPU cores that each worker may use in addition to its own.
    """
    wanted = min(loaders_to_hide(reference.parts_s), free_cores)
    return (0, wanted) if wanted > 0 else (0,)


def describe_loading(measured: Sequence[PlanMeasured]) -> Iterator[str]:
    """Describe how long steps wait for data, and how much faster they are with loaders."""
    by_plan = {
        plan: event for event in measured if event.step_time_s and (plan := read_plan(event.plan))
    }
    gains: dict[int, tuple[float, Plan]] = {}
    for plan, event in by_plan.items():
        without = by_plan.get(replace(plan, loaders=0))
        if plan.loaders and without is not None:
            assert without.step_time_s is not None
            assert event.step_time_s is not None
            faster = (without.step_time_s / event.step_time_s, plan)
            best = gains.get(plan.loaders, faster)
            gains[plan.loaders] = max(best, faster, key=lambda gain: gain[0])
    for loaders, (gain, plan) in sorted(gains.items()):
        stall = input_stall(by_plan[replace(plan, loaders=0)].parts_s)
        yield (
            f"{format_percent(stall)} of a step waits for data. With"
            f" {format_count(loaders, 'loader')} it is {gain:.1f} times as fast at a micro batch of"
            f" {plan.micro_batch}"
        )


def describe_missing_cores(
    measured: Sequence[PlanMeasured], reference: PlanMeasured, spare_cores: int
) -> Iterator[str]:
    """Say what would shorten the wait for data, if there were too few CPU cores for loaders.

    Args:
        measured: The measured plans.
        reference: The measurement of the experiment without advice and without loaders.
        spare_cores: CPU cores that a worker may use besides its own if only one trial runs.
    """
    most_loaders = max(
        (plan.loaders for event in measured if (plan := read_plan(event.plan))),
        default=0,
    )
    wanted = loaders_to_hide(reference.parts_s)
    if wanted <= most_loaders:
        return
    waits = (
        f"free CPU cores: {format_percent(input_stall(reference.parts_s))} of a step waits for data"
    )
    possible = min(wanted, spare_cores)
    if possible <= most_loaders:
        yield (
            f"{waits}, and no core is left for more loaders."
            " Use a machine with more cores, or make samples cheaper to load"
        )
        return
    hides = "would hide that"
    if possible < wanted:
        hides = f"would shorten that ({wanted} would hide it)"
    yield (
        f"{waits}, and {format_count(possible, 'loader')} a worker {hides}."
        f" Set resources.concurrency to 1 and plan.loaders to {possible}"
    )
