"""A run in three to five sentences: what won, whether that is luck, what the best have in common,
where the time went, and what to do next.

They are computed here once, and the panel, the cell, the report and the terminal show them. How
certain a result is, is decided in `workbench.store.history.certainty`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.foundation.errors import Suggestion
from workbench.foundation.formatting import (
    counted_noun,
    format_count,
    format_duration,
    format_number,
    format_params,
    format_value,
)
from workbench.runs.descriptions import describe_cost, next_steps
from workbench.store.history import failure_groups
from workbench.store.history.certainty import describe_luck, num_to_confirm
from workbench.store.history.standings import describe_limit, keeps

if TYPE_CHECKING:
    from workbench.foundation.events import RunState
    from workbench.store.history import History, Trial

_LEAST_TRIALS = 8
"""With fewer complete trials, whatever the best have in common may be chance."""
_SHARE_OF_BEST = 0.3
_LEAST_BEST = 3
_CHANCE = 0.05
_FEW_VALUES = 6
"""A number with so many values in a run is compared by its values, and not by its range."""
_MOST_IN_COMMON = 2
_MOST_PARAMS = 4
_REMEDIES = {
    "oom": "Run fewer trials at once, or search smaller models and batches.",
    "diverged": "Lower the highest learning rate, if there is one. Or look for a division by zero.",
    "timeout": "Raise resources.trial_time, or train for less.",
    "lost": "The logs of the trials show what their workers did last.",
}
"""What helps against a failure, by its reason. Against an error, only reading it helps."""
_WASTE = 0.2
"""From which share of the training on trials without a result is worth a sentence."""


@dataclass(frozen=True)
class RunSummary:
    """A run in sentences.

    Attributes:
        sentences: Three to five, each with its full stop.
        next_step: The command that continues it, or None if there is none.
        num_to_confirm: How many of the best configurations `extend` would train again, to see if
            the best was lucky. 0 if that is known, or the run does not continue.
    """

    sentences: tuple[str, ...]
    next_step: Suggestion | None
    num_to_confirm: int = 0


def summarize(
    run_id: str, state: RunState, history: History, took_s: float, *, energy: str | None = None
) -> RunSummary | None:
    """Return a run that has ended, or was lost, in sentences.

    Args:
        run_id: The run.
        state: Its state. It may be lost, which no history knows.
        history: Its history.
        took_s: Its run time, in seconds.
        energy: What it used, in words.

    Returns:
        The sentences, or None for a run that goes on or has no trials.
    """
    if state in ("waiting", "running", "stopping") or not history.trials:
        return None
    sentences = [*_what_won(history), *_limits(history), *_luck(history), *_common(history)]
    sentences.append(_time(history, took_s, energy))
    steps = next_steps(run_id, state, history)
    may_continue = state == "complete" and not history.is_imported and history.replay_of is None
    return RunSummary(
        tuple(sentences),
        steps[0] if steps else None,
        num_to_confirm(history) if may_continue else 0,
    )


def _what_won(history: History) -> list[str]:
    if history.result is not None:
        lines: Any = history.result.get("summary") or []
        return [_sentence(str(line)) for line in lines[:2]]
    best = history.best()
    if best is None:
        return _no_best(history)
    if len(history.objectives) > 1:
        ends = ", ".join(
            f"the best {metric} is {format_number(trial.values[metric])} (trial {trial.number})"
            for metric, trial in history.extremes().items()
        )
        num_front, num_all = len(history.front()), format_count(len(history.trials), "trial")
        verb = counted_noun(num_front, "is", "are")
        them = counted_noun(num_front, "it", "them")
        other = "no other trial that keeps all limits" if _num_broken(history) else "no other trial"
        return [
            f"{num_front} of {num_all} {verb} on the front: {other} beats {them} everywhere.",
            _sentence(ends),
        ]
    metric = history.objectives[0].metric
    value = history.mean_values(best)[metric]
    params = dict(list(best.params.items())[:_MOST_PARAMS])
    written = f" with {format_params(params)}" if params else ""
    more = len(best.params) - len(params)
    if more > 0:
        written += f" and {format_count(more, 'other value')}"
    return [f"Trial {best.number} is the best: {metric} {format_number(value)}{written}."]


def _no_best(history: History) -> list[str]:
    """Return why a run has no result, its most frequent failure, and what helps against it."""
    sentence = _sentence(history.why_no_best() or "No trial has a result")
    groups = failure_groups(history)
    if not groups:
        return [sentence]
    most = groups[0]
    reason = most.message or most.reason
    if most.place is not None:
        reason += f" at {Path(most.place).name}"
    remedy = _REMEDIES.get(most.reason)
    remedies = [] if remedy is None else [remedy]
    if len(most.trials) == len(history.trials):
        return [_sentence(f"Every trial failed: {reason}"), *remedies]
    num_trials = format_count(len(most.trials), "trial")
    lead = (
        f"{num_trials} failed"
        if len(groups) == 1
        else f"The most frequent failure, in {num_trials}"
    )
    return [sentence, _sentence(f"{lead}: {reason}"), *remedies]


def _num_broken(history: History) -> int:
    """Return how many complete trials break a limit."""
    limits = history.experiment.constraints
    return sum(
        not all(keeps(limit, trial.values) for limit in limits)
        for trial in history.in_state("complete")
    )


def _limits(history: History) -> list[str]:
    """Return that complete trials do not count because they break a limit, if others count."""
    num_broken = _num_broken(history)
    if not num_broken or history.best() is None:
        return []
    limits = " or ".join(describe_limit(limit) for limit in history.experiment.constraints)
    trials = counted_noun(num_broken, "complete trial does", "complete trials do")
    breaks = counted_noun(num_broken, "it breaks", "they break")
    return [f"{num_broken} {trials} not count, because {breaks} a limit: {limits}."]


def _luck(history: History) -> list[str]:
    luck = describe_luck(history)
    return [] if luck is None else [f"{luck}."]


def _common(history: History) -> list[str]:
    """Return what sets the best trials apart, if that is more than chance would give."""
    if len(history.objectives) > 1 or history.result is not None:
        return []
    trials = history.ranked()
    # Repeats of a configuration share its parameters, which would look like more than chance.
    by_configuration: dict[tuple[int, str], Trial] = {}
    for trial in trials:
        by_configuration.setdefault(history.key_of(trial), trial)
    ranked = list(by_configuration.values())
    noun = "trials" if len(ranked) == len(trials) else "configurations"
    if len(ranked) < _LEAST_TRIALS:
        return []
    num_best = max(_LEAST_BEST, round(_SHARE_OF_BEST * len(ranked)))
    best_of_all = f"best {format_count(num_best)} of {format_count(len(ranked))} {noun}"
    names = [
        name for name in history.searched.root if all(name in trial.params for trial in ranked)
    ]
    marks = [mark for name in names if (mark := _mark(name, ranked, num_best)) is not None]
    # The more parameters are looked at, the sooner one of them seems to matter.
    marks = sorted(mark for mark in marks if mark[0] * len(names) < _CHANCE)
    if not marks:
        return [f"No parameter sets the {best_of_all} apart."]
    words = " and ".join(text for _, text in marks[:_MOST_IN_COMMON])
    return [f"The {best_of_all} have {words}."]


def _mark(name: str, ranked: Sequence[Trial], num_best: int) -> tuple[float, str] | None:
    """Return how probable it is that so many trials share a value or a range, and what it is."""
    values = [trial.params[name] for trial in ranked]
    counts = Counter(format_value(value) for value in values)
    if len(counts) < 2:
        return None
    are_numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    if not are_numbers or len(counts) <= _FEW_VALUES:
        best = {format_value(value) for value in values[:num_best]}
        if len(best) != 1:
            return None
        ways = sum(math.comb(count, num_best) for count in counts.values())
        return ways / math.comb(len(values), num_best), f"{name}={best.pop()}"
    numbers: list[Any] = values
    low, high = min(numbers[:num_best]), max(numbers[:num_best])
    num_within = sum(low <= value <= high for value in numbers)
    chance = _chance_of_span(num_within, num_best, len(numbers))
    return chance, f"{name} from {format_value(low)} to {format_value(high)}"


def _chance_of_span(span: int, num_chosen: int, num_all: int) -> float:
    """Return the probability that chosen ranks lie within so many neighbouring ones.

    Args:
        span: The number of neighbouring ranks, at least `num_chosen`.
        num_chosen: How many ranks are chosen at random, at least 2.
        num_all: Of how many.

    Source: Counting by the lowest rank: the others lie on the span - 1 ranks above it, or on all
    that are left there, whose sum is a binomial coefficient as well.
    """
    lowest = (num_all - span + 1) * math.comb(span - 1, num_chosen - 1)
    return (lowest + math.comb(span - 1, num_chosen)) / math.comb(num_all, num_chosen)


def _time(history: History, took_s: float, energy: str | None) -> str:
    """Return where time and money went."""
    trained_s: dict[str, float] = defaultdict(float)
    for trial in history.trials.values():
        trained_s[trial.state] += trial.duration_s or 0.0
    total_s = math.fsum(trained_s.values())
    sentence = f"It took {format_duration(took_s)} for {format_count(len(history.trials), 'trial')}"
    if total_s > 0:
        lost = [
            f"{100 * trained_s[state] / total_s:.0f} % to {state} trials"
            for state in ("failed", "pruned")
            if _WASTE * total_s <= trained_s[state] < total_s
        ]
        if lost:
            shares = " and ".join(lost).replace(" % to", " % of the training time went to", 1)
            sentence += f"; {shares}"
    for used in (_shared(history), describe_cost(history), energy):
        if used is not None:
            sentence += f"; {used}"
    return f"{sentence}."


def _shared(history: History) -> str | None:
    """Return what was saved because trials shared their training before the decay of wsd."""
    shared = [trial for trial in history.trials.values() if trial.trunk_of is not None]
    if not shared:
        return None
    saved_s = math.fsum(trial.trunk_s for trial in shared)
    return (
        f"{format_count(len(shared), 'trial')} reused the stable part of another one, which"
        f" saved {format_duration(saved_s)} of training"
    )


def _sentence(text: str) -> str:
    text = text.strip()
    if not text.endswith((".", "!", "?")):
        text += "."
    return text[:1].upper() + text[1:]
