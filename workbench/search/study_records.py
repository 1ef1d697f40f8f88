"""The study's records of trials and configurations, and what a sampler is asked with.

Nothing here depends on Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from optuna.trial import FrozenTrial

from workbench.experiment import Constraint, Experiment
from workbench.experiment.budget_units import parse_price
from workbench.experiment.space import Params
from workbench.experiment.trainings import turn_ends
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    Clone,
    LowFidelity,
    PriorTrialAdded,
    Reason,
    Segment,
    TrialEnded,
    TrialProposed,
    TrialReported,
)
from workbench.foundation.formatting import format_number

if TYPE_CHECKING:
    from workbench.search.gaussian_process import Kernel


# The violation of the memory limit is the logarithm of the used part. Below this part, it would be
# less than -1, which is the value of a training whose memory is unknown.
_SMALL_SHARE = math.exp(-1.0)
_BEFORE = -1  # stands for all attempts from before a training was stopped
_LIMIT_OF: dict[Reason, str] = {
    "oom": "fits in memory",
    "diverged": "stays finite",
    "error": "ends without an error",
    "timeout": "ends in time",
}
"""The limit that a failure breaks. Other failures are not caused by the configuration."""
MIN_PROCESS_RESULTS = 4
"""A Gaussian process is fitted from this many complete or pruned results on."""
_NUM_DECIDING = 2
_KEPT = -1.0  # the violation of a limit that a result does not contain


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
    clone: Clone | None = None

    def event(self) -> TrialProposed:
        """Return the proposal as an event with the current time."""
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
            clone=self.clone,
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a training.

    A study with ten thousand trials stores this instead of the events, which take more memory.
    """

    state: Literal["complete", "pruned", "stopped", "failed"]
    reason: Reason | None
    values: Mapping[str, float]
    fits: bool
    time_unix_s: float
    seconds: float
    memory_share: float | None


@dataclass
class Doubt:
    """A training that a pruner would stop, although it may be behind by luck alone.

    It goes on for a few values, and their mean decides.
    """

    bound: float
    """The value with which it would have gone on."""
    why: str
    """Why the pruner would stop it."""
    values: list[float]
    """Its values since the pruner decided, with the one that was behind."""

    @property
    def is_over(self) -> bool:
        """Whether there are enough values to decide."""
        return len(self.values) >= _NUM_DECIDING

    def verdict(self, sign: int) -> str | None:
        """Return why the training should stop, or None if it should go on.

        Args:
            sign: 1 if larger values are better, -1 if smaller ones are.
        """
        mean = math.fsum(self.values) / len(self.values)
        if sign * (mean - self.bound) >= 0:
            return None
        return f"{self.why}, as is the mean {format_number(mean)} of {len(self.values)} values"


@dataclass(slots=True)
class TrialRecord:
    """One training: its proposal, its reports and its end."""

    proposal: Proposal
    value: TrialValue | None
    """The value so far, or None once the training has ended."""
    num_epochs: float | None = None
    """How many epochs it trains unless it is stopped, or None if only the function knows."""
    first_turn: int = 0
    """The rung at which its first turn ends, before which it is not stopped. 0 without turns."""
    proposed_unix_s: float | None = None
    reports: dict[int, float] = field(default_factory=dict)
    last_seen: tuple[float, float] | None = None
    """The epoch and the value of the last report that has both."""
    elapsed_s: dict[int, float] = field(default_factory=dict)
    """Seconds until the last report of each attempt."""
    memory_share: float | None = None
    """The largest part of its GPU's memory that it has used so far."""
    doubt: Doubt | None = None
    """Whether it is behind by so little that further values decide if it should stop."""
    why_pruned: str | None = None
    """Why it should stop, if a pruner has decided that."""
    ended: Ending | None = None

    @property
    def prune(self) -> bool:
        """Whether a pruner has decided that it should stop."""
        return self.why_pruned is not None

    def end(self, event: TrialEnded) -> None:
        """Record the end of the training, and drop everything that only a running one needs."""
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

    def take(self, reached: Mapping[int, float], epoch: float | None, value: float) -> list[int]:
        """Record the value of a report.

        Args:
            reached: The values at the rungs that the trial reaches with it.
            epoch: Its epoch, if known.
            value: Its value, which is finite.

        Returns:
            The rungs that have a value only now, in ascending order.
        """
        self.last_seen = None if epoch is None else (epoch, value)
        new = {rung: at for rung, at in reached.items() if rung not in self.reports}
        self.reports |= new
        return list(new)

    def continue_from(self, before: TrialRecord) -> None:
        """Take over the reports of a stopped training, as if it had never stopped."""
        assert before.ended is not None
        self.reports |= before.reports
        self.elapsed_s[_BEFORE] = before.ended.seconds

    def result(self) -> dict[str, float]:
        """Return the values of the training so far or at its end."""
        if self.ended is not None:
            return dict(self.ended.values)
        return {} if self.value is None else self.value.result()

    def is_over_with(self, report: TrialReported) -> bool:
        """Return whether the training ends by itself with this report."""
        if report.returned or self.num_epochs is None or report.epoch is None:
            return report.returned
        return report.epoch >= self.num_epochs

    def seen(self, metrics: Sequence[str], value: float) -> list[float]:
        """Return the value of each objective for the pruner.

        A single objective is judged by its value in the report. Several objectives are judged by
        the values that the trial would have if it ended now, or NaN if one was not reported yet.

        Args:
            metrics: The objectives' metrics.
            value: The value of the first objective in the report.
        """
        if len(metrics) == 1:
            return [value]
        assert self.value is not None  # nothing judges a report of a trial that has ended
        worth = self.value.result()
        return [worth.get(metric, math.nan) for metric in metrics]

    def outcome(self, metrics: Sequence[str]) -> Outcome | None:
        """Return the outcome of the training for the sampler, or None while it runs.

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
            # Only the objectives are used. Other metrics of a training at a low fidelity do not
            # show which limits a full training would keep.
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
    """Seconds until the last report of a complete or pruned training, or 0 if unknown."""
    memory_share: float | None = None
    """The largest part of a GPU's memory that such a training used, or None if unknown."""

    def violations(self, constraints: Sequence[Constraint]) -> dict[str, float]:
        """Return by how much each limit is broken, by the limit's text. At most 0 if it is kept.

        A training that never reported the metric of a limit breaks it, unless it was stopped early.
        A failure that the configuration may have caused breaks a separate limit.

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
            raise ExperimentError(
                "a complete trial must have a value of every objective", field=f"values.{metric}"
            )
        if event.state == "complete" and not math.isfinite(event.values[metric]):
            outcome = Outcome("failed", event.values, "diverged")
    return outcome


@dataclass(slots=True)
class ConfigurationRecord:
    """One configuration with its trainings, and the outcome that the sampler has learned."""

    number: int
    params: Params
    trials: list[TrialRecord] = field(default_factory=list)
    num_waiting: int = 0
    prune: bool = False
    outcome: Outcome | None = None
    confirmed: Outcome | None = None
    """The outcome over all trainings, if it was trained again after the search."""
    inherits: bool = False
    """Whether it began with the weights of another trial, so that the sampler cannot learn from it.
    """

    def combine(self, metrics: Sequence[str]) -> Outcome | None:
        """Return the mean outcome of the complete trainings, or the first outcome if none is.

        Args:
            metrics: The objectives' metrics.

        Returns:
            The outcome, or None while a training runs or waits.
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
    """Return the number of epochs of a training, or None if only its function knows."""
    if not experiment.trains_model:
        return None
    epochs = params.get("epochs", experiment.training.epochs)
    if not isinstance(epochs, int | float):
        return None
    return float(epochs)


def first_turn(experiment: Experiment, params: Params) -> int:
    """Return the rung at which the first turn of a training ends, or 0 without turns."""
    try:
        ends = turn_ends(experiment, params)
    except ExperimentError:  # this configuration is trained in one go
        return 0
    return ends[0] if ends else 0


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


@dataclass(frozen=True)
class Result:
    """A configuration that has ended."""

    trial: FrozenTrial
    violations: Mapping[str, float]
    """By how much each limit is broken. At most 0 if the limit is kept."""
    seconds: float = 0.0
    """Seconds of training until the last report, or 0 if unknown."""


@dataclass(frozen=True)
class Expected:
    """What the results so far let expect of a configuration."""

    value: float
    """The expected value of the objective."""
    deviation: float
    """The standard deviation of that value."""
    chance: float
    """The probability that it fails neither for memory nor as diverged, and keeps the limits."""


@dataclass
class Knowledge:
    """Everything that has ended, in this run and in earlier ones."""

    results: list[Result] = field(default_factory=list)
    """The results of this run, in the order in which they arrived."""
    priors: list[FrozenTrial] = field(default_factory=list)
    """Complete trials of earlier runs."""
    earlier: dict[str, list[Result]] = field(default_factory=dict)
    """The results of each earlier run by its id, without those of this run."""
    memory: list[tuple[Mapping[str, Any], float]] = field(default_factory=list)
    """Configurations in Optuna's terms, with the part of the memory that they should need."""
    kernels: dict[tuple[str, int], Kernel] = field(default_factory=dict)
    """A cache of fitted hyper-parameters, by the quantity and the number of results."""
    located: tuple[np.ndarray, np.ndarray] | None = None
    """A cache of the points of the first results, as `Encoding.locate` returns them."""


def violations_of(results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return by how much each result breaks each limit. A limit without a value is kept."""
    names = sorted({name for result in results for name in result.violations})
    return {
        name: np.array([result.violations.get(name, _KEPT) for result in results]) for name in names
    }


@dataclass(frozen=True)
class CostLimit:
    """The limits on seconds in a budget, and the limit on the number of trainings.

    Attributes:
        run_s: Seconds that the run may take, or infinite without a limit.
        held_s: The total seconds of all trials, or infinite without a limit.
        num_trainings: Trainings that the run may have, or infinite without a limit.
    """

    run_s: float
    held_s: float
    num_trainings: float

    @classmethod
    def of(cls, experiment: Experiment) -> CostLimit | None:
        """Return the limit of an experiment, or None if its budget limits no cost.

        With several objectives, costs are not modelled, so there is no limit either.
        """
        budget, price = experiment.budget, experiment.budget.price
        run_s, held_s = budget.time or math.inf, budget.gpu_time or math.inf
        most = experiment.max_trainings()
        if budget.money is not None and price is not None:
            parsed = parse_price(price)
            paid_s = 3600.0 * budget.money / parsed.amount
            run_s = run_s if parsed.is_per_gpu else min(run_s, paid_s)
            held_s = min(held_s, paid_s) if parsed.is_per_gpu else held_s
        # The energy of a second is unknown, so energy only counts if it is the only limit.
        is_energy_all = budget.energy is not None and most is None
        if len(experiment.objectives) > 1 or (math.isinf(min(run_s, held_s)) and not is_energy_all):
            return None
        gpus = experiment.resources.gpus_of_worker
        held_s = held_s if gpus in ("auto", 0) else held_s / gpus
        return cls(run_s, held_s, math.inf if most is None else most)

    def ends_first(self, seconds: float, num_at_once: int) -> bool:
        """Return whether the cost will end the run before the number of trainings does.

        Args:
            seconds: The mean seconds of a training, times its workers.
            num_at_once: The number of trainings that run at once.
        """
        if math.isinf(self.num_trainings):
            return True
        return seconds * self.num_trainings > min(self.held_s, self.run_s * num_at_once)


@dataclass(frozen=True)
class Move:
    """One part of a training, with its configuration and its gain.

    Attributes:
        number: The number of the part, from 0.
        params: The configuration.
        before: The score at its start. Larger is better.
        gain: The score at its end minus the score at its start.
    """

    number: int
    params: Params
    before: float
    gain: float


@dataclass(frozen=True)
class Moves:
    """The knowledge from which the next part of a training is chosen.

    Attributes:
        made: Earlier parts of all members.
        chosen: Parts that other members will train at the same time.
        following: The next part itself. Only its number and its score at the start are used.
    """

    made: Sequence[Move]
    chosen: Sequence[Move]
    following: Move
