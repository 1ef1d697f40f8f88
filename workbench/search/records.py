"""The study's records of trials and configurations, independent of Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from workbench.experiment import Constraint, Experiment
from workbench.experiment.space import Params
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    LowFidelity,
    PriorTrialAdded,
    Reason,
    Segment,
    TrialEnded,
    TrialProposed,
    TrialReported,
)

# A training that holds less is as far from running out of memory as one of which nothing is known.
_SMALL_SHARE = math.exp(-1.0)
_BEFORE = -1  # the attempt as which those count that a training had before it was stopped
_LIMIT_OF: dict[Reason, str] = {
    "oom": "fits in memory",
    "diverged": "stays finite",
    "error": "ends without an error",
    "timeout": "ends in time",
}
"""The limit that a failure breaks. What else ends a trial says nothing about its configuration."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One training that the study proposes."""

    trial: int
    params: Params
    configuration: int
    repeat: int
    seed: int
    source: Literal["sampler", "enqueued"]
    segment: Segment | None = None
    resumes: int | None = None
    fidelity: LowFidelity | None = None

    def event(self) -> TrialProposed:
        """Return the proposal as an event, dated now."""
        return TrialProposed(
            trial=self.trial,
            params=self.params,
            configuration=self.configuration,
            repeat=self.repeat,
            seed=self.seed,
            source=self.source,
            segment=self.segment,
            resumes=self.resumes,
            fidelity=self.fidelity,
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """How a training ended.

    A study of ten thousand trials keeps this of each, rather than the event.
    """

    state: Literal["complete", "pruned", "stopped", "failed"]
    reason: Reason | None
    values: Mapping[str, float]
    fits: bool
    time_unix_s: float
    seconds: float
    memory_share: float | None


@dataclass(slots=True)
class TrialRecord:
    """One training: what was proposed, what it reported, how it ended."""

    proposal: Proposal
    value: TrialValue | None
    """Its value so far, or None once it has ended."""
    num_epochs: float | None = None
    """How many epochs it trains unless it is stopped, or None if only the function knows."""
    proposed_unix_s: float | None = None
    reports: dict[int, float] = field(default_factory=dict)
    elapsed_s: dict[int, float] = field(default_factory=dict)
    """By attempt, seconds until its last report."""
    memory_share: float | None = None
    """The largest part of its GPU's memory that it has held so far."""
    why_pruned: str | None = None
    """Why it should stop, once a pruner has decided that."""
    ended: Ending | None = None

    @property
    def prune(self) -> bool:
        """Whether a pruner has decided that it should stop."""
        return self.why_pruned is not None

    def end(self, event: TrialEnded) -> None:
        """Record how the training ended, and forget what only a running one needs."""
        values = event.values or self.result()
        seconds = math.fsum(self.elapsed_s.values())
        self.ended = Ending(
            state=event.state,
            reason=event.reason,
            values=values,
            fits=event.fits,
            time_unix_s=event.time_unix_s,
            seconds=seconds,
            memory_share=self.memory_share,
        )
        self.value = None
        self.elapsed_s = {}

    def continue_from(self, before: TrialRecord) -> None:
        """Count what a stopped training has shown as if it had never stopped."""
        assert before.ended is not None
        self.reports |= before.reports
        self.elapsed_s[_BEFORE] = before.ended.seconds

    def result(self) -> dict[str, float]:
        """Return the values by which the training is judged, so far or at its end."""
        if self.ended is not None:
            return dict(self.ended.values)
        return {} if self.value is None else self.value.result()

    def is_over_with(self, report: TrialReported) -> bool:
        """Return whether the training ends by itself with a report: nothing is left to stop."""
        if report.returned or self.num_epochs is None or report.epoch is None:
            return report.returned
        return report.epoch >= self.num_epochs

    def seen(self, metrics: Sequence[str], value: float) -> list[float]:
        """Return what a report shows of each objective, for the pruner.

        Args:
            metrics: The objectives' metrics.
            value: What the first one was in the report. One objective is judged by that; several by
                what the trial would be worth if it ended there, NaN where one has not been
                reported.
        """
        if len(metrics) == 1:
            return [value]
        assert self.value is not None  # nothing judges a report of a trial that has ended
        worth = self.value.result()
        return [worth.get(metric, math.nan) for metric in metrics]

    def outcome(self, metrics: Sequence[str]) -> Outcome | None:
        """Return how the training ended as far as the sampler is concerned, None while it runs.

        Args:
            metrics: The objectives' metrics.
        """
        if self.ended is None:
            return None
        values, is_low = self.ended.values, self.proposal.fidelity is not None
        if self.ended.state in ("complete", "pruned"):
            is_whole = self.ended.state == "complete" or is_low
            if is_whole and not all(metric in values for metric in metrics):
                return Outcome("failed", values, "error")
            if is_whole and not all(math.isfinite(values[name]) for name in metrics):
                return Outcome("failed", values, "diverged")
            # Its objective alone: which limits a full training keeps is not known from it.
            if is_low:
                return Outcome(
                    "pruned",
                    {name: values[name] for name in metrics},
                    fits=self.ended.fits,
                    seconds=self.ended.seconds,
                )
            return Outcome(
                self.ended.state,
                values,
                fits=self.ended.fits,
                seconds=self.ended.seconds,
                memory_share=self.ended.memory_share,
            )
        return Outcome("failed", values, self.ended.reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a training, or of a configuration over all its trainings."""

    state: Literal["complete", "pruned", "failed"]
    values: Mapping[str, float]
    reason: Reason | None = None
    fits: bool = True
    seconds: float = 0.0
    """How long a training took that was complete or pruned, until its last report.

    0 if that is unknown.
    """
    memory_share: float | None = None
    """The largest part of a GPU's memory that such a training held, or None if that is unknown."""

    def violations(self, constraints: Sequence[Constraint]) -> dict[str, float]:
        """Return by how much each limit is broken, by the limit's text. At most 0 if it is kept.

        A training that never reported the metric of a limit breaks it, unless it was stopped early
        and may not have got that far. A failure that may lie in the configuration breaks a limit of
        its own.

        Args:
            constraints: The limits of the experiment.
        """
        violations: dict[str, float] = {}
        for constraint in constraints:
            value = self.values.get(constraint.metric)
            if value is not None and math.isfinite(value):
                violations[describe_limit(constraint)] = constraint.violation(value)
            elif value is not None or self.state != "pruned":
                violations[describe_limit(constraint)] = 1.0
        if self.memory_share is not None and self.memory_share > _SMALL_SHARE:
            violations[_LIMIT_OF["oom"]] = math.log(min(self.memory_share, 1.0))
        broken = {self.reason} if self.fits else {self.reason, "oom"}
        return violations | {limit: 1.0 for reason, limit in _LIMIT_OF.items() if reason in broken}


def outcome_of_prior(event: PriorTrialAdded, metrics: Sequence[str]) -> Outcome:
    """Return the outcome of a trial of an earlier run.

    Args:
        event: The trial.
        metrics: The objectives' metrics.

    Raises:
        ExperimentError: If a complete trial does not have an objective.
    """
    outcome = Outcome(event.state, event.values)
    for metric in metrics:
        if event.state == "complete" and metric not in event.values:
            raise ExperimentError("missing in a complete trial", field=f"values.{metric}")
        if event.state == "complete" and not math.isfinite(event.values[metric]):
            outcome = Outcome("failed", event.values, "diverged")
    return outcome


@dataclass(slots=True)
class ConfigurationRecord:
    """One configuration: its trainings, and the outcome that was reported to the sampler."""

    number: int
    params: Params
    trials: list[TrialRecord] = field(default_factory=list)
    num_waiting: int = 0
    prune: bool = False
    outcome: Outcome | None = None
    confirmed: Outcome | None = None
    """The outcome over all trainings, where it was trained again after the search."""

    def combine(self, metrics: Sequence[str]) -> Outcome | None:
        """Return the mean over the trainings that completed, or why there is none.

        Args:
            metrics: The objectives' metrics.

        Returns:
            None while a training runs or waits.
        """
        outcomes = [trial.outcome(metrics) for trial in self.trials]
        if self.num_waiting or any(outcome is None for outcome in outcomes):
            return None
        ended = [outcome for outcome in outcomes if outcome is not None]
        complete = [outcome.values for outcome in ended if outcome.state == "complete"]
        seconds = [outcome.seconds for outcome in ended if outcome.state == "complete"]
        if not complete:
            return ended[0]
        shared = [metric for metric in complete[0] if all(metric in values for values in complete)]
        means = {metric: _mean([values[metric] for values in complete]) for metric in shared}
        fits = all(outcome.fits for outcome in ended)
        shares = [outcome.memory_share for outcome in ended if outcome.memory_share is not None]
        return Outcome(
            "pruned" if self.prune else "complete",
            means,
            fits=fits,
            seconds=math.fsum(seconds) / len(seconds),
            memory_share=max(shares, default=None),
        )


def num_epochs(experiment: Experiment, params: Params) -> float | None:
    """Return how many epochs a training of `params` takes, or None if only its function knows."""
    if not experiment.trains_model:
        return None
    epochs = params.get("epochs", experiment.training.epochs)
    if not isinstance(epochs, int | float):
        return None
    return float(epochs)


def _mean(values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan  # fsum would raise for inf and -inf together
    return math.fsum(values) / len(values)


def better(experiment: Experiment, first: float, second: float) -> bool:
    """Return whether `first` is strictly better than `second` for the first objective."""
    if experiment.objectives[0].goal == "maximize":
        return first > second
    return first < second


def describe_limit(constraint: Constraint) -> str:
    """Return the text of a limit, such as `latency_s <= 0.1`."""
    if constraint.at_most is not None:
        return f"{constraint.metric} <= {constraint.at_most}"
    return f"{constraint.metric} >= {constraint.at_least}"
