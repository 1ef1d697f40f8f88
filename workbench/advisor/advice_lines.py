"""Writes stored advice for a terminal: about thirty lines of at most a hundred columns.

The answer comes first. Reasons, alternatives with their costs, measurements and the settings for
the experiment follow. Callers add colours and pages.
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
HEADLINE = ("global batch", "computing", "learning rate")
"""The facts that are settings. All other facts are predictions."""
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
CLEARLY_FASTER = 0.9
"""The part of an exact exchange's step time above which an approximation is not worth it."""
_AS_WRITTEN = "as in the experiment"
_LABEL_WIDTH = 16
_MAX_TEXTS = 3
_MAX_LINES_A_TEXT = 2


def lines_of(advice: Mapping[str, Any]) -> list[str]:
    """Write advice as a card.

    Args:
        advice: As `AdviceGiven` stores it. Lines without values are omitted.

    Returns:
        Lines of at most 100 columns, without colours.
    """
    choice = mapping(advice.get("choice"))
    lines = [f"Advice for {goal_of(advice)}", "", *_answer(advice, choice)]
    lines += _listed("why", reasons_of(advice))
    for name, key in (("runner-up", "runner_up"), ("without advice", "reference")):
        if other := mapping(advice.get(key)):
            lines += _labelled(name, describe_other(other))
            lines += _labelled("", compare(other, choice, str(advice.get("objective"))))
    lines += _listed("exchanges", describe_exchanges(advice))
    lines += _labelled("power limit", describe_power(advice))
    lines += _listed("measured", texts(advice.get("measured")))
    lines += _labelled("measuring took", describe_cost(advice))
    lines += _listed("uncertain", texts(advice.get("would_change")))
    decided = mapping(advice.get("settings"))
    if settings := yaml_lines(decided):
        lines += ["", "To use it, put this into your experiment, instead of searched values:"]
        lines += [f"  {line}" for line in settings]
    if "training.lr" in decided:
        lines.append("(lr is the learning rate at training.reference_batch.)")
    return lines


def _answer(advice: Mapping[str, Any], choice: Mapping[str, Any]) -> list[str]:
    """Write the settings, the faster plan that was rejected, if any, and the predictions."""
    lines: list[str] = []
    facts = rows_of(choice)
    for name, text in facts:
        if name in HEADLINE:
            lines += _labelled(name, text)
    for name, text in zip(("fastest plan", ""), describe_rejected(advice), strict=False):
        lines += _labelled(name, text)
    for name, text in facts:
        if name not in HEADLINE:
            lines += _labelled(name, text)
    if choice.get("lr_rule") or mapping(advice.get("noise")).get("scale_samples"):
        lines += _labelled("noise scale", describe_noise(advice))
    return lines


def describe_power(advice: Mapping[str, Any]) -> str:
    """Write the advised power limit and what it brings, or nothing if none was requested."""
    power = mapping(advice.get("power"))
    if not power:
        return ""
    now, bound = f"{power['now_w']:.0f} W", format_percent(power["max_slowdown"])
    if power["limit_w"] == power["now_w"]:
        return f"{now}, unchanged: no lower limit saves energy with steps at most {bound} longer"
    return (
        f"{power['limit_w']:.0f} W instead of {now}: steps take {format_percent(power['saved'])}"
        f" less energy and {format_percent(power['slowdown'])} longer (at most {bound})."
        f" To set it: sudo nvidia-smi -pl {power['limit_w']:.0f}"
    )


def goal_of(advice: Mapping[str, Any]) -> str:
    """Write the goal of advice. Without a target, it compares trainings of the same length.

    "The least time" would be too much to claim if the time to the target was not predicted.
    """
    objective = str(advice.get("objective"))
    if objective in _UNPREDICTED and not mapping(advice.get("choice")).get("time_to_target_s"):
        return _UNPREDICTED[objective]
    if objective not in _GOALS:
        return "this experiment"
    if objective == "throughput":
        return _GOALS[objective]
    if advice.get("has_target", True):
        return f"{_GOALS[objective]} to the target"
    return f"{_GOALS[objective]} of a training"


def has_same_plan(candidate: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two candidates have the same plan. Their learning rates may differ."""
    plan = stored_plan(candidate)
    return bool(plan.values) and plan == stored_plan(other)


def reasons_of(advice: Mapping[str, Any]) -> list[str]:
    """Return why the choice is recommended. That your plan is already the best comes first."""
    choice = mapping(advice.get("choice"))
    reasons = []
    if has_same_plan(mapping(advice.get("reference")), choice):
        reasons.append("no plan is better than your current one")
    is_by_speed = choice.get("is_by_speed") is True and not mapping(advice.get("rejected"))
    if is_by_speed and str(advice.get("objective")) in _UNPREDICTED:
        reasons.append(_BY_SPEED)
    return [*reasons, *texts(choice.get("reasons"))]


def rows_of(candidate: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings and the predictions of a candidate as pairs of name and text."""
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
        power = f"{format_number(power_w)} W"
        if target:
            power += f", {format_number(power_w * target.value)} J to the target"
        named.append(("power", power))
    time = "not predicted"
    if target:
        time = _describe_interval(target, format_duration)
    named.append(("time to target", time))
    return named


def describe_rejected(advice: Mapping[str, Any]) -> list[str]:
    """Describe the plan that seemed the fastest and why it is not recommended.

    Args:
        advice: As `AdviceGiven` stores it.

    Returns:
        The plan with its throughput, and the reason, or nothing if the fastest is recommended.
    """
    rejected = mapping(advice.get("rejected"))
    speed = finite(rejected.get("samples_per_s"))
    if speed is None:
        return []
    how = "measured" if rejected.get("is_measured") is True else "predicted"
    return [
        f"{rejected.get('written')}, {format_rate(speed)} samples/s ({how})",
        f"not recommended: {rejected.get('reason')}",
    ]


def describe_memory(candidate: Mapping[str, Any]) -> str:
    """Describe the memory that a worker needs and has, or return "" if it is not known."""
    memory = mapping(candidate.get("memory_bytes"))
    value = finite(memory.get("value"))
    limit = finite(memory.get("limit"))
    if value is None:
        return ""
    used = format_bytes(value)
    if limit:
        used += f" of {format_bytes(limit)} ({format_percent(value / limit)})"
    how = "measured" if memory.get("measured") else "estimated"
    return f"{used} a worker, {how}"


def describe_noise(advice: Mapping[str, Any]) -> str:
    """Describe the gradient noise scale, or say why it is unknown."""
    noise = mapping(advice.get("noise"))
    scale = finite(noise.get("scale_samples"))
    status = str(noise.get("status", "not measured"))
    if scale is None:
        return status
    return f"{format_count(scale, 'sample')}, {status}"


def describe_cost(advice: Mapping[str, Any]) -> str:
    """Describe how long measuring took, and why if it took longer than allowed."""
    cost_s = finite(advice.get("cost_s"))
    if cost_s is None:
        return str(advice.get("overrun") or "")
    return f"{format_duration(cost_s)} {advice.get('overrun') or ''}".rstrip()


def compare(other: Mapping[str, Any], choice: Mapping[str, Any], objective: str) -> str:
    """Describe what it would cost to use another candidate instead of the choice.

    Args:
        other: The other candidate.
        choice: The recommended candidate.
        objective: The goal. For money, workers x time is also compared. For energy, the energy is.

    Returns:
        The ratios of their predictions, or "" if they cannot be compared.
    """
    words = []
    times = _both("time_to_target_s", other, choice)
    speeds = _both("samples_per_s", other, choice)
    if has_same_plan(other, choice):
        words.append("the same plan")
        speeds = []
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
    """Write settings as YAML, one line per section if it fits.

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
            if isinstance(inner, dict):
                part = inner
        part[name] = value
    lines: list[str] = []
    for name, value in document.items():
        # The writer puts a mapping of plain values into braces. Such a line could not be pasted
        # into an experiment file, so the outer braces are removed.
        whole = write_yaml({name: value}).strip()
        if whole.startswith("{"):
            whole = whole[1:-1]
        written = whole.splitlines()
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
    if len(values) < len(candidates):
        return []
    return values


def _describe_rate(candidate: Mapping[str, Any]) -> str:
    rate = finite(candidate.get("lr"))
    rule = candidate.get("lr_rule")
    warmup_epochs = finite(candidate.get("warmup_epochs"))
    words = ["unknown" if rate is None else format_number(rate)]
    if rule == "constant":
        words.append("the same at larger batches")
    elif rule:
        words.append(f"rule {rule}")
    if warmup_epochs:
        words.append(
            f"warm-up over {format_number(warmup_epochs)} {counted_noun(warmup_epochs, 'epoch')}"
        )
    return ", ".join(words)


def _describe_interval(interval: Estimate, write: Callable[[float], str]) -> str:
    low = write(interval.low)
    high = write(interval.high)
    text = write(interval.value)
    # A measured value outside the range of the model is stored as an end of its interval.
    if interval.has_width and interval.value == interval.low:
        text += f"  (measured, up to {high} expected)"
    elif interval.has_width and interval.value == interval.high:
        text += f"  (measured, down to {low} expected)"
    elif interval.has_width:
        text += f"  ({low} to {high})"
    if interval.extrapolated:
        text += f", {BEYOND}"
    return text


def describe_other(candidate: Mapping[str, Any]) -> str:
    """Describe a candidate in one line: its batch, how it computes, and its rate."""
    plan = stored_plan(candidate)
    words = [plan.batch_text, plan.work_text or _AS_WRITTEN]
    rate = finite(candidate.get("lr"))
    if rate is not None:
        words.append(f"lr {format_number(rate)}")
    return ", ".join(words)


def describe_exchanges(advice: Mapping[str, Any]) -> list[str]:
    """Describe what other exchanges would bring. Empty if no links were measured.

    Args:
        advice: As `AdviceGiven` stores it.

    Returns:
        The exact exchange, then the approximate ones with clearly faster steps, the fastest first.
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
            f"{offer.get('exchange')}, approximate: {_describe_step(offer, step)}, worth it up to"
            f" {gain:.2f} times the steps: {describe_step_cost(offer, gain)}"
        )
    if not faster:
        texts.append("no approximate exchange would make its steps clearly faster")
    return texts


def describe_step_cost(offer: Mapping[str, Any], gain: float) -> str:
    """Describe how many more steps an exchange needs, and how certain that is.

    Args:
        offer: A stored offer.
        gain: How many times as many steps it makes in the same time.
    """
    cost = mapping(offer.get("cost"))
    factor = Estimate.of(cost.get("factor"))
    count = finite(cost.get("num_pairs"))
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
    if step is None or not step.is_time:
        return None
    return step


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
    if len(items) > _MAX_TEXTS:
        lines += _labelled("", f"and {len(items) - _MAX_TEXTS} more")
    return lines


def _labelled(name: str, text: str) -> list[str]:
    """Write one line, or a few, with a label in front of the first."""
    wrapped = textwrap.wrap(
        text, WIDTH - _LABEL_WIDTH, max_lines=_MAX_LINES_A_TEXT, placeholder=" ..."
    )
    return [
        f"{name if index == 0 else '':<{_LABEL_WIDTH}}{line}" for index, line in enumerate(wrapped)
    ]
