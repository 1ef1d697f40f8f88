"""A stored advice as lines for a terminal, about thirty of at most a hundred columns.

The answer first, then why, what else there would be and what it would cost, what all of this rests
on, and what to write into the experiment. Deciding is left to the advisor. Colours and pages to
those who show it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.advisor.stored_advice import Estimate, finite, mapping, rows, stored_plan, texts
from workbench.experiment.yaml_file import write_yaml
from workbench.foundation.formatting import (
    counted_noun,
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_rate,
)

WIDTH = 100
BEYOND = "beyond what was measured"
_GOALS = {
    "time": "the least time",
    "money": "the least money",
    "energy": "the least energy",
    "throughput": "the most samples per second",
}
_UNPREDICTED = {
    "time": "fast training",
    "money": "cheap training",
    "energy": "training with little energy",
}
_BY_SPEED = (
    "chosen by the speed of its steps alone: a smaller batch may reach the target in fewer epochs"
)
NOT_SHOWN = "no training showed that it converges"
"""Why a batch of faster steps is not recommended."""
COMPARED = "in the time that every candidate had"
"""What a candidate was recommended for that was trained, but not to a target."""
CLEARLY_FASTER = 0.9
"""Of the step of the exact exchange.

One that takes longer than that is not worth an approximation.
"""
_AS_WRITTEN = "as the experiment states"
_LABEL_WIDTH = 16
_MAX_TEXTS = 3
_MAX_LINES_A_TEXT = 2


def lines_of(advice: Mapping[str, Any]) -> list[str]:
    """Write advice as a card.

    Args:
        advice: As `AdviceGiven` stores it. What is missing is omitted.

    Returns:
        Lines of at most 100 columns, without colours.
    """
    choice, runner_up = mapping(advice.get("choice")), mapping(advice.get("runner_up"))
    lines = [f"Advice for {goal_of(advice)}", ""]
    for name, text in rows_of(choice):
        lines += _labelled(name, text)
    if choice.get("lr_rule") or mapping(advice.get("noise")).get("scale_samples"):
        lines += _labelled("noise scale", describe_noise(advice))
    lines += _listed("why", reasons_of(advice))
    for name, other in (
        ("runner-up", runner_up),
        ("without advice", mapping(advice.get("reference"))),
    ):
        if other:
            lines += _labelled(name, describe_other(other))
            lines += _labelled("", compare(other, choice, str(advice.get("objective"))))
    lines += _listed("exchanges", describe_exchanges(advice))
    lines += _listed("measured", texts(advice.get("measured")))
    if cost := describe_cost(advice):
        lines += _labelled("measuring took", cost)
    lines += _listed("would change it", texts(advice.get("would_change")))
    decided = mapping(advice.get("settings"))
    settings = yaml_lines(decided)
    if settings:
        meant = " (lr is meant at training.reference_batch)" if "training.lr" in decided else ""
        lines += ["", f"To use it, write into the experiment, in place of what it searches{meant}:"]
        lines += [f"  {line}" for line in settings]
    return lines


def goal_of(advice: Mapping[str, Any]) -> str:
    """Write what advice is best for. Without a target, trainings of the same length are compared.

    Where the time to the target is not predicted, it claims no least of anything.
    """
    objective = str(advice.get("objective"))
    if objective in _UNPREDICTED and not mapping(advice.get("choice")).get("time_to_target_s"):
        return _UNPREDICTED[objective]
    if objective not in _GOALS:
        return "this experiment"
    if objective == "throughput":
        return _GOALS[objective]
    until = "to the target" if advice.get("has_target", True) else "of a training"
    return f"{_GOALS[objective]} {until}"


def has_same_plan(candidate: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two candidates compute equally. Their rates may differ."""
    plan = stored_plan(candidate)
    return bool(plan.values) and plan == stored_plan(other)


def reasons_of(advice: Mapping[str, Any]) -> list[str]:
    """Return why the choice is recommended.

    First, if that is so, that its plan needed no advice.
    """
    choice = mapping(advice.get("choice"))
    is_kept = has_same_plan(mapping(advice.get("reference")), choice)
    kept = ["no plan is better than that of the experiment without advice"] if is_kept else []
    reasons = texts(choice.get("reasons"))
    is_unpredicted = str(advice.get("objective")) in _UNPREDICTED and not choice.get(
        "time_to_target_s"
    )
    is_by_speed = is_unpredicted and not any(
        text in reason for reason in reasons for text in (NOT_SHOWN, COMPARED)
    )
    return [*kept, *([_BY_SPEED] if is_by_speed else []), *reasons]


def rows_of(candidate: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is recommended and predicted of a candidate, as pairs of name and text.

    The batch first.
    """
    plan = stored_plan(candidate)
    named = [("global batch", plan.batch_text), ("computing", plan.work_text or _AS_WRITTEN)]
    if candidate.get("lr") is not None or candidate.get("lr_rule"):
        named.append(("learning rate", _describe_rate(candidate)))
    for name, key, write in (
        ("samples/s", "samples_per_s", format_rate),
        ("step time", "step_time_s", format_duration),
        ("epoch time", "epoch_time_s", format_duration),
    ):
        interval = Estimate.of(candidate.get(key))
        if interval is not None:
            named.append((name, _describe_interval(interval, write)))
    memory = describe_memory(candidate)
    if memory:
        named.append(("memory", memory))
    target = Estimate.of(candidate.get("time_to_target_s"))
    power_w = finite(candidate.get("power_w"))
    if power_w is not None:
        whole = f", {format_number(power_w * target.value)} J to the target" if target else ""
        named.append(("power", f"{format_number(power_w)} W{whole}"))
    time = _describe_interval(target, format_duration) if target else "not predicted"
    named.append(("time to target", time))
    return named


def describe_memory(candidate: Mapping[str, Any]) -> str:
    """Describe what a worker holds, and of how much, or "" if it is not known."""
    memory = mapping(candidate.get("memory_bytes"))
    value, limit = finite(memory.get("value")), finite(memory.get("limit"))
    if value is None:
        return ""
    share = f" of {format_bytes(limit)} ({format_percent(value / limit)})" if limit else ""
    return (
        f"{format_bytes(value)}{share} a worker,"
        f" {'measured' if memory.get('measured') else 'estimated'}"
    )


def describe_noise(advice: Mapping[str, Any]) -> str:
    """Describe how large the gradient noise scale is, or why it is not known."""
    noise = mapping(advice.get("noise"))
    scale = finite(noise.get("scale_samples"))
    status = str(noise.get("status", "not measured"))
    return status if scale is None else f"{format_count(scale, 'sample')}, {status}"


def describe_cost(advice: Mapping[str, Any]) -> str:
    """Describe how long measuring took, and by how much and why that was longer than allowed."""
    cost_s, overrun = finite(advice.get("cost_s")), advice.get("overrun")
    parts = [
        "" if cost_s is None else format_duration(cost_s),
        *([str(overrun)] if overrun else []),
    ]
    return ", ".join(part for part in parts if part)


def compare(other: Mapping[str, Any], choice: Mapping[str, Any], objective: str) -> str:
    """Describe what it would cost to use another candidate instead of the choice.

    Args:
        other: The other candidate.
        choice: What is recommended.
        objective: What for. Money also compares workers x time, energy that.

    Returns:
        Ratios of what both are predicted of, or "" if they cannot be compared.
    """
    is_same = has_same_plan(other, choice)
    words = ["the same plan"] if is_same else []
    times = _both("time_to_target_s", other, choice)
    speeds = [] if is_same else _both("samples_per_s", other, choice)
    if times and objective != "throughput":
        words.append(f"{times[0] / times[1]:.2f} times the time to the target")
        workers = [stored_plan(candidate).workers for candidate in (other, choice)]
        if objective == "money" and workers[0] and workers[1]:
            ratio = times[0] / times[1] * (workers[0] / workers[1])
            words.append(f"{ratio:.2f} times the workers x time")
        powers_w = [finite(candidate.get("power_w")) for candidate in (other, choice)]
        if objective == "energy" and powers_w[0] and powers_w[1]:
            words.append(
                f"{times[0] / times[1] * (powers_w[0] / powers_w[1]):.2f} times the energy"
            )
    if speeds:
        words.append(f"{speeds[0] / speeds[1]:.2f} times the samples/s")
    return ", ".join(words)


def yaml_lines(settings: Mapping[str, Any], width: int = WIDTH - 2) -> list[str]:
    """Write settings as YAML, a section a line where it fits.

    Args:
        settings: Values by dotted path, such as plan.workers.
        width: Columns of a line, at most. A single longer value stays whole.

    Returns:
        Lines without line breaks.
    """
    document: dict[str, Any] = {}
    for path, value in settings.items():
        *sections, name = path.split(".")
        part = document
        for section in sections:
            inner = part.setdefault(section, {})
            part = inner if isinstance(inner, dict) else part
        part[name] = value
    lines: list[str] = []
    for name, value in document.items():
        # A mapping of nothing but plain values comes in braces, which is not a line of a larger
        # document.
        whole = write_yaml({name: value}).strip()
        written = (whole[1:-1] if whole.startswith("{") else whole).splitlines()
        if isinstance(value, dict) and (len(written) > 1 or len(written[0]) > width):
            nested = yaml_lines(value, width - 2)
            written = [f"{name}:", *(f"  {line}" for line in nested)]
        lines += written
    return lines


def _both(key: str, *candidates: Mapping[str, Any]) -> list[float]:
    intervals = [Estimate.of(candidate.get(key)) for candidate in candidates]
    values = [
        interval.value for interval in intervals if interval is not None and interval.value > 0
    ]
    return values if len(values) == len(candidates) else []


def _describe_rate(candidate: Mapping[str, Any]) -> str:
    rate, rule = finite(candidate.get("lr")), candidate.get("lr_rule")
    warmup_epochs = finite(candidate.get("warmup_epochs"))
    words = ["unknown" if rate is None else format_number(rate)]
    if rule:
        words.append("the same at larger batches" if rule == "constant" else f"rule {rule}")
    if warmup_epochs:
        words.append(
            f"warm-up over {format_number(warmup_epochs)} {counted_noun(warmup_epochs, 'epoch')}"
        )
    return ", ".join(words)


def _describe_interval(interval: Estimate, write: Callable[[float], str]) -> str:
    low, high = write(interval.low), write(interval.high)
    width = f"  ({low} to {high})" if interval.has_width else ""
    if interval.has_width and interval.value in (interval.low, interval.high):
        # It was measured, and lies beyond what the model of step times expects.
        end = f"up to {high}" if interval.value == interval.low else f"down to {low}"
        width = f"  (measured; the model of step times expects {end})"
    return f"{write(interval.value)}{width}{f', {BEYOND}' if interval.extrapolated else ''}"


def describe_other(candidate: Mapping[str, Any]) -> str:
    """Describe a candidate in one line: its batch, how it computes, and its rate."""
    plan = stored_plan(candidate)
    words = [plan.batch_text, plan.work_text or _AS_WRITTEN]
    rate = finite(candidate.get("lr"))
    return ", ".join(words if rate is None else [*words, f"lr {format_number(rate)}"])


def describe_exchanges(advice: Mapping[str, Any]) -> list[str]:
    """Describe what other exchanges would bring: nothing where no links were measured.

    Args:
        advice: As `AdviceGiven` stores it.

    Returns:
        The exact exchange, then those approximate ones whose step would clearly be faster, the
        fastest first.
    """
    timed = [
        (offer, step)
        for offer in rows(advice.get("exchanges"))
        if (step := _step(offer)) is not None
    ]
    exact = [item for item in timed if item[0].get("is_exact") is True]
    if not exact:
        return []
    usual, usual_s = min(exact, key=lambda item: item[1].value)
    texts = [
        f"{usual.get('exchange')}, exact: {_describe_step(usual, usual_s)} of"
        f" {usual.get('batch_text')}"
    ]
    faster = [
        item
        for item in timed
        if item not in exact and item[1].value < CLEARLY_FASTER * usual_s.value
    ]
    for offer, step in sorted(faster, key=lambda item: item[1].value):
        gain = usual_s.value / step.value
        texts.append(
            f"{offer.get('exchange')}, approximate: {_describe_step(offer, step)}; "
            f"pays below {gain:.2f} times the steps: {describe_step_cost(offer, gain)}"
        )
    if not faster:
        texts.append("no approximate exchange would make its steps clearly faster")
    return texts


def describe_step_cost(offer: Mapping[str, Any], gain: float) -> str:
    """Describe how many steps an exchange needs more, and how sure that is.

    Args:
        offer: A stored offer.
        gain: How many times as many steps it makes in the same time.
    """
    cost = mapping(offer.get("cost"))
    factor, count = Estimate.of(cost.get("factor")), finite(cost.get("num_pairs"))
    if factor is None or count is None:
        return "not known, search plan.exchange to race it"
    pairs = format_count(int(count), "pair of trainings", "pairs of trainings")
    verdict = "which may be chance"
    if factor.high < gain:
        verdict = "so it pays"
    elif factor.low > gain:
        verdict = "so it does not pay"
    return (
        f"{factor.value:.2f} of them ({factor.low:.2f} to {factor.high:.2f} in {pairs}), {verdict}"
    )


def _step(offer: Mapping[str, Any]) -> Estimate | None:
    step = Estimate.of(offer.get("step_time_s"))
    return step if step is not None and step.is_time else None


def _describe_step(offer: Mapping[str, Any], step: Estimate) -> str:
    how = "measured" if offer.get("is_measured") is True else "predicted"
    return (
        f"{format_duration(step.value)} a step "
        f"({format_duration(step.low)} to {format_duration(step.high)}, {how})"
    )


def _listed(name: str, items: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for index, text in enumerate(items[:_MAX_TEXTS]):
        lines += _labelled(name if index == 0 else "", f"- {text}")
    return lines + _labelled(
        "", f"and {len(items) - _MAX_TEXTS} more" if len(items) > _MAX_TEXTS else ""
    )


def _labelled(name: str, text: str) -> list[str]:
    """Write one line, or a few, with what they are about in front of the first."""
    wrapped = textwrap.wrap(
        text, WIDTH - _LABEL_WIDTH, max_lines=_MAX_LINES_A_TEXT, placeholder=" ..."
    )
    return [
        f"{name if index == 0 else '':<{_LABEL_WIDTH}}{line}" for index, line in enumerate(wrapped)
    ]
