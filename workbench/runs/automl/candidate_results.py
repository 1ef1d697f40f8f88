"""The candidates of an AutoML run and their results: each candidate is trained on all folds.

A run counts trials. The trials of one candidate differ only in the fold that they are validated on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from workbench.experiment.automl import short_errors, shown_metric, standardises_target
from workbench.experiment.goals import sign_of
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_count
from workbench.runs.automl.model_selection import describe, family_of, num_folds_compared
from workbench.store.history import History, Trial
from workbench.store.history.failure_text import headline

State = Literal["under way", "complete", "set aside", "cut short", "failed"]

_NAMES = {"accuracy": "accuracy", "mae": "mean absolute error in the unit of the target"}


@dataclass(frozen=True)
class CandidateResult:
    """A candidate and its result so far.

    Attributes:
        number: Its number, from 1.
        family: Its model family.
        params: Its configuration.
        state: "set aside": worse than others after a few folds. "cut short": the run ended before
            the candidate did.
        num_folds: Folds on which its training is complete.
        has_model: Whether a fold has left a model, even one whose training was cut short.
        of_folds: Number of all folds.
        values: Mean validation metrics over those folds, by name without `val_`. If there are
            none, over the folds that were cut short. Errors (`mae`, `rmse`) are in the unit of the
            target.
        trained_s: Time of training on all folds so far, in seconds.
        message: Why it failed.
        loss_label: The name of its loss. The loss of numbers is computed from standardised ones.
        optimised: The value by which candidates are compared.
        is_maximized: Whether more of it is better.
    """

    number: int
    family: str
    params: dict[str, JsonValue]
    state: State
    num_folds: int
    has_model: bool
    of_folds: int
    values: dict[str, float]
    message: str | None
    trained_s: float
    loss_label: str = "loss"
    optimised: str = "loss"
    is_maximized: bool = False

    @property
    def loss(self) -> float:
        """The value by which candidates are compared, less being better.

        Infinite where it is unknown.
        """
        value = self.values.get(self.optimised, math.nan)
        if math.isnan(value):
            return math.inf
        if self.is_maximized:
            return -value
        return value

    @property
    def optimised_label(self) -> str:
        """The name of that value."""
        if self.optimised == "loss":
            return self.loss_label
        return self.optimised

    def line(self, *, is_best: bool) -> str:
        """Describe it in one line.

        Args:
            is_best: Whether it is the best so far.
        """
        parts = [f"candidate {self.number:>3}", f"{self.family:<13}"]
        if self.state == "failed":
            return "  ".join([*parts, f"failed: {self.message}"])
        names = {self.optimised: self.optimised_label, "loss": self.loss_label, **_NAMES}
        scores = [
            f"{label} {self.values[name]:.4f}"
            for name, label in names.items()
            if name in self.values
        ]
        parts.append(f"validation: {', '.join(scores)}" if scores else "no score yet")
        if self.state != "complete":
            whole = f"{self.num_folds} of {self.of_folds} folds"
            after = "in the first fold"
            if self.num_folds:
                after = f"after {whole}"
            parts.append(f"{self.state} {after}")
        if is_best:
            parts.append("(best so far)")
        return "  ".join([*parts, describe(self.params, self.family)])


def candidate(history: History, configuration: int) -> CandidateResult:
    """Return one candidate of a run.

    Args:
        history: The run.
        configuration: Its number, from 0.
    """
    return _read(
        history,
        [trial for trial in history.trials.values() if trial.configuration == configuration],
    )


def candidates_of(history: History) -> list[CandidateResult]:
    """Return all candidates of a run in the order in which they were started."""
    by_configuration: dict[int, list[Trial]] = {}
    for trial in history.trials.values():
        by_configuration.setdefault(trial.configuration, []).append(trial)
    return [_read(history, trials) for trials in by_configuration.values()]


def ranked_candidates(history: History) -> list[CandidateResult]:
    """Return all candidates of a run, the best first, those without a model last."""
    return sorted(
        candidates_of(history),
        key=lambda candidate: (
            not candidate.has_model,
            candidate.state != "complete",
            candidate.loss,
        ),
    )


def score_labels(candidates: Sequence[CandidateResult]) -> dict[str, str]:
    """Return what tables call the scores of candidates, by the name in `values`."""
    labels = {name: name for candidate in candidates for name in candidate.values}
    if "loss" in labels:
        labels["loss"] = candidates[0].loss_label
    return labels


def _read(history: History, trials: list[Trial]) -> CandidateResult:
    complete = [trial for trial in trials if trial.state == "complete"]
    failed = [trial for trial in trials if trial.state == "failed"]
    of_folds = history.experiment.repeats
    state: State = "under way"
    if failed:
        state = "failed"
    elif len(complete) == of_folds:
        state = "complete"
    elif any(trial.state == "pruned" for trial in trials):
        state = "set aside"
    elif history.state in FINISHED_RUN_STATES or any(trial.state == "stopped" for trial in trials):
        state = "cut short"
    cut = [
        trial.last_values for trial in trials if trial.best_checkpoint and trial.state == "stopped"
    ]
    measured = [trial.values for trial in complete] or cut
    names = [name for name in next(iter(measured), ()) if name.startswith("val_")]
    known = {
        name.removeprefix("val_"): [values[name] for values in measured if name in values]
        for name in names
    }
    first = trials[0]
    means = {name: math.fsum(values) / len(values) for name, values in known.items()}
    is_standardised = standardises_target(history.experiment)
    short = short_errors(history.experiment)
    if is_standardised:
        means = {short.get(name, name): value for name, value in means.items()}
    objective = history.experiment.objectives[0]
    optimised = objective.metric.removeprefix("val_")
    loss_label = "loss"
    if is_standardised:
        loss_label = "loss (standardised)"
        optimised = short.get(optimised, optimised)
    message = None
    if failed:
        message = headline(failed[-1].message)
    return CandidateResult(
        number=first.configuration + 1,
        family=family_of(first.params, history.experiment),
        params=first.params,
        state=state,
        num_folds=len(complete),
        has_model=any(trial.best_checkpoint is not None for trial in trials),
        of_folds=of_folds,
        values=means,
        trained_s=sum(trial.duration_s or 0.0 for trial in trials),
        message=message,
        loss_label=loss_label,
        optimised=optimised,
        is_maximized=objective.goal == "maximize",
    )


def describe_counts(candidates: list[CandidateResult]) -> str:
    """Return the number of candidates by state, in words. "Tried" means that it left a model."""
    states = Counter(candidate.state for candidate in candidates)
    cut_short = sum(
        candidate.state == "cut short" and candidate.has_model for candidate in candidates
    )
    tried = states["complete"] + states["set aside"] + cut_short
    note = ""
    if cut_short:
        note = f" ({cut_short} not to the end)"
        if cut_short == tried:
            note = " (not to the end)"
    counts = {
        f"tried{note}": tried,
        "failed": states["failed"],
        "stopped before it had a model": states["cut short"] - cut_short,
        "under way": states["under way"],
    }
    (first, number), *rest = [item for item in counts.items() if item[1]] or [("tried", 0)]
    parts = [f"{format_count(number, 'candidate')} {first}"]
    return ", ".join(parts + [f"{number} more {state}" for state, number in rest])


def describe_best(candidates: list[CandidateResult]) -> str | None:
    """Return the result of the best candidate, in words, or None if none has a score."""
    scored = [candidate for candidate in candidates if candidate.values]
    # A few folds may be the easy ones: they count only where nothing was trained on all.
    best = min(
        scored, key=lambda candidate: (candidate.state != "complete", candidate.loss), default=None
    )
    if best is None:
        return None
    folds = ""
    if best.state != "complete":
        folds = f" after {best.num_folds} of {best.of_folds} folds"
    value = best.values.get(best.optimised, math.nan)
    return f"best validation {best.optimised_label} {value:.4g} ({best.family}){folds}"


def describe_cut_short(history: History) -> str | None:
    """Return a sentence about the best candidate that was cut short while it was ahead, or None.

    Candidates with all folds are compared at the end, unless another one is clearly better on its
    own folds. Without that, they are compared here, as a few may be the easy ones.
    """
    ranked = ranked_candidates(history)
    best = next((candidate for candidate in ranked if candidate.state == "complete"), None)
    if best is None or best.of_folds == 1:
        return None
    if (num_folds := num_folds_compared(history)) < best.of_folds:
        first = "the first fold" if num_folds == 1 else f"the first {num_folds} folds"
        return (
            f"candidates were compared on {first} only, because time was over before a better one"
            " had all of them. With more time, they are compared on all"
        )
    return _describe_ahead(history, ranked, best)


def _describe_ahead(
    history: History, ranked: Sequence[CandidateResult], best: CandidateResult
) -> str | None:
    """Return a sentence about the candidate that was cut short and is furthest ahead, or None."""
    objective = history.experiment.objectives[0]
    sign = -sign_of(objective.goal)
    label = shown_metric(history.experiment, objective.metric)
    others = _value_by_fold(history, best, objective.metric)
    leading = []
    for candidate in ranked:
        own = {}
        if candidate.state == "cut short":
            own = _value_by_fold(history, candidate, objective.metric)
        pairs = [(value, others[fold]) for fold, value in own.items() if fold in others]
        if pairs:
            mean, other = (math.fsum(values) / len(pairs) for values in zip(*pairs, strict=True))
            if sign * mean < sign * other and f"{mean:.4g}" != f"{other:.4g}":  # shown apart
                leading.append((sign * (mean - other), candidate, mean, other))
    if not leading:
        return None
    _, ahead, mean, other = min(leading, key=lambda entry: entry[0])
    more = ""
    if len(leading) > 1:
        more = f", the most of {len(leading)} such candidates"
    on_the_same = "on the same fold"
    if ahead.num_folds > 1:
        on_the_same += "s"
    when = "in its first fold"
    if ahead.num_folds:
        when = f"after {ahead.num_folds} of {ahead.of_folds} folds"
    return (
        f"candidate {ahead.number} ({ahead.family}) was cut short {when} with a {label} of"
        f" {mean:.4g}. Candidate {best.number}, the best complete one, had {other:.4g}"
        f" {on_the_same}{more}. More time may find a better model"
    )


def _value_by_fold(history: History, candidate: CandidateResult, metric: str) -> dict[int, float]:
    """Return the value of a candidate on each of its complete folds.

    Without any, on the one that was cut.
    """
    trials = history.trainings_of(candidate.number - 1)
    complete = [trial for trial in trials if trial.state == "complete"]
    cut = [
        trial for trial in trials if trial.state == "stopped" and trial.best_checkpoint is not None
    ]
    measured = [
        (trial.repeat, (trial.values or trial.last_values).get(metric)) for trial in complete or cut
    ]
    return {fold: value for fold, value in measured if value is not None and math.isfinite(value)}
