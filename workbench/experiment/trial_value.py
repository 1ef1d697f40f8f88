"""What a trial's value is.

One rule, read from its objectives, over what the trial reported and returned.

Pruners judge single reports; everything else that compares trials (the sampler, the leaderboard,
the budget's target, retention) compares these values. A model that the workbench trains is exported
from one checkpoint, and its value is the value of that checkpoint, so all its objectives are read
at one evaluation. Where the values are stored and who sees them is left to others.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workbench.experiment.goals import MeanLast, Objective, sign_of
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

Mode = Literal["returned", "last", "best"] | MeanLast


@dataclass
class _Best:
    """The best report so far: its value, where it was made, and every metric as it was there."""

    value: float
    place: tuple[int, int]
    values: dict[str, float]


class TrialValue:
    """Follows the reports of one trial and returns what the trial is worth."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin before the first report.

        Args:
            experiment: States of each objective how its value is read.
        """
        self._modes: dict[str, Mode] = {
            item.metric: mode_of(experiment, item) for item in experiment.objectives
        }
        self._first = experiment.objectives[0].metric
        self._leader = _leader(experiment)
        self._known: dict[str, float] = {}
        self._returned: dict[str, float] = {}
        self._best: _Best | None = None
        self._tails: dict[str, list[tuple[int, int, float]]] = {
            metric: [] for metric, mode in self._modes.items() if isinstance(mode, MeanLast)
        }

    @property
    def follows_best(self) -> bool:
        """Whether the value belongs to the best report; otherwise it belongs to the last ones."""
        return self._modes[self._first] == "best"

    def report(
        self,
        values: Mapping[str, float],
        *,
        step: int = 0,
        attempt: int = 0,
        returned: bool = False,
    ) -> bool:
        """Take the next report into account.

        Args:
            values: Metrics by name. If an objective among them is not finite, the report does not
                count.
            step: The step of the report; a later attempt that repeats a step replaces it.
            attempt: The attempt that made the report.
            returned: Whether the function returned the values instead of reporting them.

        Returns:
            Whether it is the best report so far, where `best` is what counts.
        """
        if not all(math.isfinite(values[metric]) for metric in self._modes if metric in values):
            return False
        if returned:
            self._returned |= values
        else:
            self._known |= values
            for metric, tail in self._tails.items():
                if metric in values:
                    while tail and tail[-1][0] != attempt and tail[-1][1] >= step:
                        tail.pop()
                    tail.append((attempt, step, values[metric]))
        return self._follow_best(values, (attempt, step))

    def _follow_best(self, values: Mapping[str, float], place: tuple[int, int]) -> bool:
        if self._leader is None:
            return False
        value, best = values.get(self._leader.metric), self._best
        if value is None:
            if (
                best is not None and best.place == place
            ):  # the rest of what is reported at that step
                best.values |= values
            return False
        sign = sign_of(self._leader.goal)
        if best is not None and not sign * value > sign * best.value:
            return False
        self._best = _Best(value, place, {**self._known, **values})
        return True

    def result(self) -> dict[str, float]:
        """Return the values that the trial stands for, by metric.

        None before an objective was reported.

        Metrics that are no objective come from the report to which the first objective's value
        belongs, as far as they were known there; otherwise they have the value that was known last.
        """
        found = self._read(self._modes[self._first])
        for metric, mode in self._modes.items():
            tail = self._tails.get(metric)
            if isinstance(mode, MeanLast) and tail:
                last = [value for _, _, value in tail[-mode.mean_last :]]
                found[metric] = math.fsum(last) / len(last)
            elif metric in (values := self._read(mode)):
                found[metric] = values[metric]
        return found if self._modes.keys() & found.keys() else {}

    def _read(self, mode: Mode) -> dict[str, float]:
        if mode == "returned":
            return {**self._known, **self._returned}
        values = {**self._returned, **self._known}
        if mode == "best" and self._best is not None:
            values |= self._best.values
        return values

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs, as plain values."""
        best = self._best
        return {
            "known": dict(self._known),
            "returned": dict(self._returned),
            "best": None if best is None else (best.value, best.place, dict(best.values)),
            "tails": {metric: list(tail) for metric, tail in self._tails.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._known, self._returned = dict(state["known"]), dict(state["returned"])
        if state["best"] is not None:
            value, (attempt, step), values = state["best"]
            self._best = _Best(value, (attempt, step), dict(values))
        for metric, tail in state["tails"].items():
            self._tails[metric] = [tuple(entry) for entry in tail]


def find_divergence(experiment: Experiment, values: Mapping[str, float]) -> str | None:
    """Return the name of a metric that ends a trial as diverged; None where there is none.

    That is an objective that is NaN or infinite, or a metric with a limit that is NaN, as infinity
    can be compared with a limit. No other metric ends a trial.

    Args:
        experiment: What has objectives and limits.
        values: Metrics that a trial reports, or that it is worth.
    """
    improved, limited = {item.metric for item in experiment.objectives}, experiment.limited_metrics
    for name, value in values.items():
        if (name in improved and not math.isfinite(value)) or (
            name in limited and math.isnan(value)
        ):
            return name
    return None


def mode_of(experiment: Experiment, objective: Objective) -> Mode:
    """Return how the value of an objective is read.

    A model that the workbench trains returns what its best checkpoint reached, because that is the
    checkpoint that is exported; there, `returned` and `best` are the same.

    Args:
        experiment: The experiment.
        objective: One of its objectives.
    """
    if experiment.trains_model and objective.value == "returned":
        return "best"
    return objective.value


def describe_value(experiment: Experiment) -> str:
    """Return in a few words what the value of a trial is, such as `the best report`.

    Args:
        experiment: The experiment. Where its objectives differ in this, each is named.
    """
    described = {item.metric: _describe(experiment, item) for item in experiment.objectives}
    if len(set(described.values())) == 1:
        return described[experiment.objectives[0].metric]
    return "; ".join(f"{metric}: {words}" for metric, words in described.items())


def describe_shown_values(experiment: Experiment) -> str:
    """Return what the values are that tables show of trials.

    The value, and where another one is shown.

    Args:
        experiment: The experiment.
    """
    words = describe_value(experiment)
    modes = [mode_of(experiment, item) for item in experiment.objectives]
    if all(mode in ("returned", "last") for mode in modes):
        return words  # also while it runs, and to the pruner
    report = "evaluation" if experiment.trains_model else "report"
    words += f"; while it runs, its last {report}"
    pruner = experiment.early_stop
    with contextlib.suppress(
        ExperimentError
    ):  # a run can be read where the package of its pruner is gone
        if len(modes) == 1 and pruner.pruner != "none" and not pruner.kind.compares_repeats:
            words += f"; early_stop compares single {report}s, which the reasons of pruning name"
    return words


def _describe(experiment: Experiment, objective: Objective) -> str:
    mode = mode_of(experiment, objective)
    trains_model = experiment.trains_model
    reports = "evaluation" if trains_model else "report"
    if isinstance(mode, MeanLast):
        words = f"the mean of the last {mode.mean_last} {reports}s"
        return f"{words}; the last checkpoint is exported" if trains_model else words
    if mode == "returned":
        return (
            "the last report"
            if experiment.command
            else "what the function returns, else its last report"
        )
    leader = _leader(experiment)
    of = f" by {leader.metric}" if leader is not None and len(experiment.objectives) > 1 else ""
    words = f"the best {reports}{of}" if mode == "best" else f"the last {reports}"
    return f"{words}, whose checkpoint is exported" if trains_model else words


def _leader(experiment: Experiment) -> Objective | None:
    """Return the objective that decides which report is the best.

    None where none follows the best.
    """
    return next(
        (item for item in experiment.objectives if mode_of(experiment, item) == "best"), None
    )
