"""The value of a trial: how its reports become one number per objective.

Everything that compares trials uses these values: the sampler, the leaderboard, a target, and the
choice of checkpoints to keep. Only pruners compare single reports. A model that the workbench
trains is exported from one checkpoint, so all its objectives are read at that checkpoint.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workbench.experiment.goals import RESOURCES, MeanLast, Objective, sign_of
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

Mode = Literal["returned", "last", "best"] | MeanLast


@dataclass
class _Best:
    """The best report so far: its value, its attempt and step, and all metrics at that point."""

    value: float
    place: tuple[int, int]
    values: dict[str, float]


class TrialValue:
    """Follows the reports of one trial and computes its value."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first report.

        Args:
            experiment: Its objectives say how the value is computed.
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
        """Whether the value comes from the best report, not from the last ones."""
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
            step: The step of the report. If a later attempt repeats a step, it replaces the report.
            attempt: The attempt that made the report.
            returned: Whether the function returned the values instead of reporting them.

        Returns:
            Whether this is the best report so far. Always False if no objective follows the best.
        """
        if not all(math.isfinite(values[metric]) for metric in self._modes if metric in values):
            return False
        if returned:
            self._returned |= values
        else:
            self._known |= values
            for metric, tail in self._tails.items():
                if metric in values:
                    # A retry starts at the last checkpoint and repeats the steps after it.
                    while tail and tail[-1][0] != attempt and tail[-1][1] >= step:
                        tail.pop()
                    tail.append((attempt, step, values[metric]))
        return self._follow_best(values, (attempt, step))

    def _follow_best(self, values: Mapping[str, float], place: tuple[int, int]) -> bool:
        if self._leader is None:
            return False
        value, best = values.get(self._leader.metric), self._best
        if value is None:
            # One step may make several reports. The others of the best step belong to it.
            if best is not None and best.place == place:
                best.values |= values
            return False
        sign = sign_of(self._leader.goal)
        if best is not None and not sign * value > sign * best.value:
            return False
        self._best = _Best(value, place, {**self._known, **values})
        return True

    def result(self) -> dict[str, float]:
        """Return the values of the trial by metric. Empty before an objective was reported.

        Metrics that are not objectives come from the same report as the first objective. If they
        were not known at that point, they have their latest value.
        """
        result = self._read(self._modes[self._first])
        for metric, mode in self._modes.items():
            tail = self._tails.get(metric)
            if isinstance(mode, MeanLast) and tail:
                last = [value for _, _, value in tail[-mode.mean_last :]]
                result[metric] = math.fsum(last) / len(last)
            elif metric in (values := self._read(mode)):
                result[metric] = values[metric]
        if not self._modes.keys() & result.keys():
            return {}
        return result

    def _read(self, mode: Mode) -> dict[str, float]:
        if mode == "returned":
            return {**self._known, **self._returned}
        values = {**self._returned, **self._known}
        if mode == "best" and self._best is not None:
            values |= self._best.values
        return values

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs, as plain values."""
        best = None
        if self._best is not None:
            best = (self._best.value, self._best.place, dict(self._best.values))
        return {
            "known": dict(self._known),
            "returned": dict(self._returned),
            "best": best,
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
    """Return the metric that ends a trial as diverged, or None if there is none.

    An objective must be finite. A metric with a limit must not be NaN, but it may be infinite,
    because infinity can be compared with a limit. No other metric ends a trial.

    Args:
        experiment: The experiment, with its objectives and limits.
        values: Metrics that a trial reports, or its values.
    """
    improved, limited = {item.metric for item in experiment.objectives}, experiment.limited_metrics
    for name, value in values.items():
        if (name in improved and not math.isfinite(value)) or (
            name in limited and math.isnan(value)
        ):
            return name
    return None


def mode_of(experiment: Experiment, objective: Objective) -> Mode:
    """Return how the value of an objective is computed.

    For a model that the workbench trains, `returned` is the same as `best`, because the best
    checkpoint is exported. What a trial uses of the hardware is always counted to its end.

    Args:
        experiment: The experiment.
        objective: One of its objectives.
    """
    if experiment.trains_model and objective.metric in RESOURCES:
        return "last"
    if experiment.trains_model and objective.value == "returned":
        return "best"
    return objective.value


def describe_value(experiment: Experiment) -> str:
    """Describe the value of a trial in a few words, such as `the best report`.

    Args:
        experiment: The experiment. If its objectives differ in this, each one is described.
    """
    described = {item.metric: _describe(experiment, item) for item in experiment.objectives}
    if len(set(described.values())) == 1:
        return described[experiment.objectives[0].metric]
    return "; ".join(f"{metric}: {words}" for metric, words in described.items())


def describe_shown_values(experiment: Experiment) -> str:
    """Describe the values that tables show, including those of running and pruned trials.

    Args:
        experiment: The experiment.
    """
    words = describe_value(experiment)
    modes = [mode_of(experiment, item) for item in experiment.objectives]
    # A running trial and the pruner then use the last report as well.
    if all(mode in ("returned", "last") for mode in modes):
        return words
    report = _report_word(experiment)
    words += f"; while it runs, its last {report}"
    pruner = experiment.early_stop
    # The package of the pruner may not be installed where a run is only read.
    with contextlib.suppress(ExperimentError):
        if len(modes) == 1 and pruner.pruner != "none" and not pruner.kind.compares_repeats:
            words += f"; the reason of a pruned trial shows the single {report} that was compared"
    return words


def _report_word(experiment: Experiment) -> str:
    if experiment.trains_model:
        return "evaluation"
    return "report"


def _describe(experiment: Experiment, objective: Objective) -> str:
    mode, report = mode_of(experiment, objective), _report_word(experiment)
    if mode == "returned":
        if experiment.command:
            return "the last report"
        return "what the function returns, else its last report"
    exported = ", whose checkpoint is exported"
    leader = _leader(experiment)
    if isinstance(mode, MeanLast):
        words = f"the mean of the last {mode.mean_last} {report}s"
        exported = " (the last checkpoint is exported)"
    elif mode == "last":
        words = f"the last {report}"
    elif leader is not None and len(experiment.objectives) > 1:
        words = f"the best {report} by {leader.metric}"
    else:
        words = f"the best {report}"
    if experiment.trains_model:
        words += exported
    return words


def _leader(experiment: Experiment) -> Objective | None:
    """Return the objective that decides which report is the best, or None."""
    return next(
        (item for item in experiment.objectives if mode_of(experiment, item) == "best"), None
    )
