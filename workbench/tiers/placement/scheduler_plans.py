"""Every scheduler compared on one system, at its thresholds and at others.

What is expected or played of each, which is recommended, and why. Reading the system from files is
left to `assembly`, printing to the command line, drawing to the widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.foundation.formatting import (
    MISSING,
    format_bytes,
    format_duration,
    format_number,
    format_percent,
    format_rate,
)
from workbench.tiers.placement.class_groups import early_at
from workbench.tiers.placement.link_queues import link_loads, without_heartbeats
from workbench.tiers.placement.schedulers import Outcome, Policy, left_out, policies_for
from workbench.tiers.placement.simulated_queues import draw_requests
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import Objective

_NUM_RESAMPLES = 40
_NUM_BLOCKS = 10
_STUDENT_T = 2.262
"""The 97.5 % quantile of Student's t with nine degrees of freedom."""
_EQUAL_ACCURACY = 0.002
_EQUAL_TIME = 1.02
_NUM_THRESHOLDS = 41


@dataclass(frozen=True)
class Plan:
    """One scheduler and what comes of it.

    Attributes:
        scheduler: Its name.
        outcome: What comes of it.
        p50_s: Half of the requests are answered within this time.
        p95_s: 95 of 100 requests are answered within this time.
        low: Lower end of the 95 % interval of `p95_s`.
        high: Upper end.
        group_accuracy: Share of the answers whose group of classes is right, or None without
            groups.
    """

    scheduler: str
    outcome: Outcome
    p50_s: float
    p95_s: float
    low: float
    high: float
    group_accuracy: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        groups = {} if self.group_accuracy is None else {"group_accuracy": self.group_accuracy}
        return {
            **groups,
            "scheduler": self.scheduler,
            "accuracy": self.outcome.accuracy,
            "p50_s": self.p50_s,
            "p95_s": self.p95_s,
            "bytes_per_sample": self.outcome.bytes_per_sample,
            "load": self.outcome.load,
            "link_load": self.outcome.link_load,
            "low": self.low,
            "high": self.high,
        }


def expected_plans(system: System, spread: float, *, seed: int = 0) -> list[Plan]:
    """Return what closed forms expect of each scheduler.

    The intervals come of resampling the validation samples, and of times that vary as they were
    measured.

    Args:
        system: The system.
        spread: Relative standard deviation of measured times.
        seed: Seed of the resampling.
    """
    return [
        _plan(
            name,
            policy.expect(system),
            _interval_of(policy, system, spread, seed),
            None if system.group_threshold is None else policy.expect(system.by_group()),
        )
        for name, policy in policies_for(system).items()
    ]


def played_plans(system: System, num_requests: int, *, seed: int = 0) -> list[Plan]:
    """Return what becomes of drawn requests under each scheduler.

    The intervals come of ten successive parts of the simulated time.

    Args:
        system: The system.
        num_requests: Number of requests. The first tenth is not counted.
        seed: Seed of the draws.
    """
    requests = draw_requests(
        num_requests, system.counts[0], system.arrivals_per_s, len(system.exits), seed=seed
    )
    plans = []
    for name, policy in policies_for(system).items():
        outcome = policy.play(system, requests)
        blocks = [
            np.quantile(part, 0.95) for part in np.array_split(outcome.response_s, _NUM_BLOCKS)
        ]
        # Successive requests share a queue, so their times are not independent. Quantiles of
        # long parts nearly are.
        half = _STUDENT_T * float(np.std(blocks, ddof=1)) / _NUM_BLOCKS**0.5
        p95_s = outcome.quantile_s(0.95)
        by_group = (
            None if system.group_threshold is None else policy.play(system.by_group(), requests)
        )
        plans.append(_plan(name, outcome, (max(0.0, p95_s - half), p95_s + half), by_group))
    return plans


def recommend(
    plans: Sequence[Plan], objective: Objective, system: System | None = None
) -> Plan | None:
    """Return the plan that serves the objective best, or None if none keeps to its limits.

    Args:
        plans: The plans.
        objective: Limits, and what is made best.
        system: The system, whose tiers may have limits, too.
    """
    kept = [
        plan
        for plan in plans
        if plan.outcome.highest_load < 1.0
        and np.isfinite(plan.p95_s)
        and not (system is not None and plan.outcome.over(system))
    ]
    if isinstance(objective.p95_latency, float):
        kept = [plan for plan in kept if plan.p95_s <= objective.p95_latency]
    if isinstance(objective.accuracy, float):
        kept = [plan for plan in kept if plan.outcome.accuracy >= objective.accuracy]
    elif kept:
        # Smaller differences are noise of the validation split, for which nobody should wait.
        best = max(plan.outcome.accuracy for plan in kept)
        kept = [plan for plan in kept if plan.outcome.accuracy >= best - _EQUAL_ACCURACY]
    if not kept:
        return None
    fastest_s = min(plan.p95_s for plan in kept)
    equal = [plan for plan in kept if plan.p95_s <= fastest_s * _EQUAL_TIME]
    return min(equal, key=lambda plan: plan.outcome.bytes_per_sample)


@dataclass(frozen=True)
class ExitPoint:
    """One threshold of the first exit.

    Attributes:
        threshold: The probability from which an answer leaves there.
        share: Share of the samples that leave there if everything is computed on the first tier.
        outcomes: What closed forms expect of each scheduler.
        group_accuracy: By scheduler the share of the answers whose group of classes is right, or
            empty without groups.
    """

    threshold: float
    share: float
    outcomes: dict[str, Outcome]
    group_accuracy: dict[str, float]


def exit_curve(system: System) -> list[ExitPoint]:
    """Return the outcomes of thresholds of the first exit, from 0 (all answers leave there) to 1.

    There are equally many validation samples between two of them. The system's threshold is one of
    them.

    Args:
        system: The system. The thresholds of its other exits are kept. Where devices see one scene,
            nothing leaves at the first exit, which is the point with the threshold 1.
    """
    if system.num_views > 1:
        expected = {name: policy.expect(system) for name, policy in policies_for(system).items()}
        return [ExitPoint(1.0, 0.0, expected, {})]
    first, *others = system.thresholds
    levels = np.quantile(system.evidence.confidence[:, 0], np.linspace(0, 1, _NUM_THRESHOLDS))
    schedulers = policies_for(system)
    points = []
    # Probabilities may exceed 1 by rounding, and thresholds may not.
    for threshold in sorted({0.0, *np.clip(levels, 0, 1).tolist(), first, 1.0}):
        changed = replace(system, thresholds=(threshold, *others))
        outcomes = {name: scheduler.expect(changed) for name, scheduler in schedulers.items()}
        by_group = {}
        if system.group_threshold is not None:
            grouped = changed.by_group()
            by_group = {
                name: scheduler.expect(grouped).accuracy for name, scheduler in schedulers.items()
            }
        points.append(ExitPoint(threshold, float((changed.exits == 0).mean()), outcomes, by_group))
    return points


def verdict(system: System, plans: Sequence[Plan], recommended: Plan | None) -> list[str]:
    """Describe what is recommended, what is full, whether a cut pays, and what would change it.

    Args:
        system: The system.
        plans: The plans.
        recommended: That which is recommended.
    """
    full = {
        plan.scheduler: about_full(system, plan.outcome, (plan.p95_s, plan.high)) for plan in plans
    }
    lines = [_about_choice(system, plans, recommended)]
    lines += [f"{scheduler}: {why}" for scheduler, why in full.items() if why is not None]
    lines += about_limits(system, plans)
    lines += [*_about_left_out(system), *_about_views(system)]
    if len(system.names) > 1:
        has_parts = system.has_own_models or system.num_views > 1
        lines += [] if has_parts else [_about_cut(system)]
        lines += [*_about_groups(system), *_about_changes(system)]
    return lines


def about_limits(system: System, plans: Sequence[Plan], *, is_measured: bool = False) -> list[str]:
    """Describe which schedulers keep a tier busier than its limits allow.

    Args:
        system: The system.
        plans: The plans.
        is_measured: Whether the tiers have run.
    """
    lines, computes = [], "computed" if is_measured else "would compute"
    for plan in plans:
        for name in plan.outcome.over(system):
            limit = system.limits[system.names.index(name)]
            lines.append(
                f"{plan.scheduler}: a machine of {name} {computes}"
                f" {format_percent(plan.outcome.load[name])} of the time, and its max_load or"
                f" max_power allows {format_percent(limit)}."
            )
    return lines


def _about_views(system: System) -> list[str]:
    """Describe what is left when a device that sees a scene is lost."""
    if not system.accuracy_without:
        return []
    least, most = min(system.accuracy_without), max(system.accuracy_without)
    accuracy = f"{least:.4f}" if least == most else f"{least:.4f} to {most:.4f}"
    return [
        f"If one of the {system.num_views} devices that see a scene is lost, the accuracy of the"
        f" joined views is {accuracy}, depending on the device."
    ]


def _about_left_out(system: System) -> list[str]:
    # Of these, the lines on cuts and the guide say more.
    known = {"cut", "next-tier"} if len(system.names) < 3 else {"cut"}
    return [
        f"{name} is left out: {why}." for name, why in left_out(system).items() if name not in known
    ]


def about_full(system: System, outcome: Outcome, times_s: Sequence[float]) -> str | None:
    """Return which tier or link is full, and its limit, or None if none is.

    Args:
        system: The system.
        outcome: What comes of it.
        times_s: The times that are shown of it, or infinite if there is no steady state.
    """
    loads = _loads(outcome)
    busiest = max(loads, key=loads.__getitem__)
    has_steady_times = bool(np.isfinite(times_s).all())
    if loads[busiest] < 1.0 and has_steady_times:
        return None
    what = "may be full within the interval"
    if loads[busiest] >= 1.0:
        what = "is full"
    times = f"there are no steady times ({MISSING})"
    if has_steady_times:
        times = "times grow with the requests"
    return (
        f"{busiest} {what} (load {format_percent(loads[busiest])}), so that its queue grows without"
        f" end and {times}. Its limit is {format_rate(_limits_per_s(system, outcome)[busiest])}"
        f" requests per second and machine of {system.names[0]}."
    )


def _about_choice(system: System, plans: Sequence[Plan], recommended: Plan | None) -> str:
    if recommended is None:
        keeping_up = [plan for plan in plans if plan.outcome.highest_load < 1.0]
        if not keeping_up:
            return _about_too_many(system, plans)
        fastest = min(keeping_up, key=lambda plan: plan.p95_s)
        return (
            f"No scheduler meets place.objective. The fastest is {fastest.scheduler}, with p95"
            f" {format_duration(fastest.p95_s)} and accuracy {fastest.outcome.accuracy:.4f}."
        )
    cut, what = system.cut, recommended.scheduler
    if what == "cut" and cut is not None and cut.scheduler != "end-cloud":
        place = system.names[0 if cut.scheduler == "end" else -1]
        what += f", which here is the whole model without exits on {place}"
    return (
        f"Recommended: {what}, with p95 {format_duration(recommended.p95_s)} and accuracy "
        f"{recommended.outcome.accuracy:.4f}."
    )


def _about_too_many(system: System, plans: Sequence[Plan]) -> str:
    """Describe the closest scheduler if none keeps up, and what would make the requests fit."""
    closest = min(
        plans, key=lambda plan: (plan.outcome.highest_load, sum(_loads(plan.outcome).values()))
    )
    first, now = system.names[0], format_rate(system.arrivals_per_s)
    limit = format_rate(min(_limits_per_s(system, closest.outcome).values()))
    needs = []
    for name, load in _loads(closest.outcome).items():
        if load >= 1.0:
            if name == first:
                what = "speed"
            else:
                what = "machines" if name in closest.outcome.load else "bandwidth"
            needs.append(f"{format_number(load)} times the {what} of {name}")
    return (
        f"No scheduler keeps up with {now} requests per second and machine of {first}."
        f" {closest.scheduler} comes closest, with fewer than {limit}: for {now} it needs more than"
        f" {' and '.join(needs)}."
    )


def _loads(outcome: Outcome) -> dict[str, float]:
    """Return the load of each tier and used link, by its name in sentences."""
    return outcome.load | {f"the link {name}": load for name, load in outcome.link_load.items()}


def _limits_per_s(system: System, outcome: Outcome) -> dict[str, float]:
    """Return the requests per second and first-tier machine at which each tier and link is full."""
    of_requests = replace(outcome, link_load=without_heartbeats(system, outcome.link_load))
    return {
        name: system.arrivals_per_s / load if load > 0 else np.inf
        for name, load in _loads(of_requests).items()
    }


def _about_cut(system: System) -> str:
    """Compare the best cut without exits with the whole model on one tier."""
    if system.cut is None:
        return "Whether a cut alone pays is not known: the nodes of the model were not measured."
    cut, (first, last) = system.cut, (system.names[0], system.names[-1])
    times = (
        f"all on {first} takes {format_duration(cut.alone_s['end'])} for one request, all on {last}"
        f" {format_duration(cut.alone_s['cloud'])}"
    )
    if cut.scheduler != "end-cloud":
        place = first if cut.scheduler == "end" else last
        return (
            f"A cut alone, without exits, does not pay: of all cuts between {len(cut.is_there)}"
            f" nodes, the best leaves all of them on {place}; {times}."
        )
    return (
        f"A cut alone, without exits, pays: one request takes {format_duration(cut.alone_s['cut'])}"
        f" cut after {', '.join(cut.sent)} ({int((~cut.is_there).sum())} of {len(cut.is_there)}"
        f" nodes on {first}, {format_bytes(float(cut.sent_bytes[-1]))} sent); {times}."
    )


def _about_changes(system: System) -> list[str]:
    if "end-cloud" in left_out(system):
        return []
    system, last = system.sending(), len(system.names) - 1
    mean_s = float(system.rest_s[last][system.exits].mean())
    lines = []
    if mean_s > 0:
        rate = system.counts[last] / mean_s / system.counts[0]
        lines.append(
            f"With end-cloud, {system.names[last]} reaches the load {system.busy:g} at"
            f" {format_rate(rate * system.busy)} requests per second and machine of"
            f" {system.names[0]}. Its limit is {format_rate(rate)}, and now there are"
            f" {format_rate(system.arrivals_per_s)}."
        )
    goes_on = system.exits > 0
    loads = link_loads(system, system.links_s, system.total_per_s * float(goes_on.mean()))
    busiest = max(loads, key=loads.__getitem__)
    of_requests = without_heartbeats(system, loads)[busiest]
    if of_requests > 0:
        lines.append(
            f"With end-cloud, the link {busiest} has the load {format_percent(loads[busiest])}. Its"
            f" limit is {format_rate(system.arrivals_per_s / of_requests)} requests per second and"
            f" machine of {system.names[0]}."
        )
    if goes_on.any() and system.can_finish_here:
        saved_s = float((system.rest_s[0] - system.rest_s[last])[system.exits[goes_on]].mean())
        link_s = float(system.send_s[last] + system.back_s[last])
        if saved_s > 0:
            lines.append(
                "Sending pays for a request while the link takes less than"
                f" {format_duration(saved_s)} there and back. It takes {format_duration(link_s)}."
            )
        else:
            slower, faster = system.names[last], system.names[0]
            # A tier between them may still be faster.
            what = f"Sending to {slower}" if last > 1 else "Sending"
            lines.append(f"{what} never pays: {slower} is not faster than {faster}.")
    return lines


def _about_groups(system: System) -> list[str]:
    if system.group_threshold is None:
        return []
    is_early = early_at(system.evidence, system.thresholds, system.group_threshold)
    share = f"{format_percent(float(is_early.mean()))} of the requests"
    if not is_early.any():
        return [f"{share} are answered by their group before they are sent on."]
    right = system.evidence.by_group().is_correct[is_early, 0].mean()
    return [
        f"{share} are answered by their group before they are sent on, after the first stage"
        f" ({format_duration(float(system.stage_s[0, 0]))}). The group is right in"
        f" {format_percent(float(right))} of these."
    ]


def _plan(
    name: str, outcome: Outcome, interval: tuple[float, float], by_group: Outcome | None = None
) -> Plan:
    low, high = interval
    return Plan(
        scheduler=name,
        outcome=outcome,
        p50_s=outcome.quantile_s(0.5),
        p95_s=outcome.quantile_s(0.95),
        low=low,
        high=high,
        group_accuracy=None if by_group is None else by_group.accuracy,
    )


def _interval_of(policy: Policy, system: System, spread: float, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    quantiles_s = []
    settled = getattr(policy, "settled", None)
    if settled is not None:  # what is placed where does not change with the samples
        policy = settled(system)
    for _ in range(_NUM_RESAMPLES):
        drawn = random.integers(len(system.exits), size=len(system.exits))
        # One factor for all stages of a tier: what makes a machine slow slows all of them.
        factors = np.exp(random.normal(0.0, spread, size=(len(system.names), 1)))
        varied = system.of_samples(drawn).with_times(factors)
        quantiles_s.append(policy.expect(varied).quantile_s(0.95))
    # "nearest" does not interpolate, which gives nan between a finite time and infinity.
    low, high = np.quantile(quantiles_s, [0.025, 0.975], method="nearest")
    return float(low), float(high)
