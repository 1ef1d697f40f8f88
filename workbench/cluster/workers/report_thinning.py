"""Thin the reports of a trial where they are made, before they cross processes and reach the store.

The first reports of a trial all pass. Later ones that arrive quickly wait for a moment, and only
some of them pass: the last one, those with the lowest and the highest value of each objective, and
those that determine the value of the trial or a decision of its pruner. So both are the same as
with all reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench.experiment import Experiment
from workbench.experiment.goals import MeanLast
from workbench.experiment.trial_value import find_divergence
from workbench.foundation.events import Event, TrialReported

NUM_FREE = 1000
"""How many reports pass at any rate. A curve with so many points looks complete."""
SHORTEST_S, LONGEST_S = 0.5, 10.0
ELAPSED_FRACTION = 1e-3
"""Reports wait for this fraction of the time that the attempt has taken, between the two limits
above.
"""
NUM_WAITING = 256
NOTICE = (
    "workbench: reports arrive faster than twice a second, so not all of them are stored: the last"
    " of each interval is, and those with the lowest and the highest value of each objective. The"
    " value of the trial and pruning are the same as with all of them.\n"
)
_Waiting = list[tuple[TrialReported, int]]  # each with the number of reports dropped before it


class ReportThinning:
    """Decides which reports of one attempt pass.

    Attributes:
        num_left_out: How many reports have been dropped.
    """

    def __init__(
        self,
        experiment: Experiment,
        clock: Callable[[], float] = time.monotonic,
        num_free: int = NUM_FREE,
    ) -> None:
        """Start before the first report.

        Args:
            experiment: The experiment, with its objectives and its pruner.
            clock: Returns the time in seconds.
            num_free: Reports that pass whatever their rate.
        """
        self._num_free = num_free
        self.num_left_out = 0
        self._early_stop = experiment.early_stop
        self._experiment = experiment
        self._objectives = [item.metric for item in experiment.objectives]
        self._tails = {
            item.metric: item.value.mean_last
            for item in experiment.objectives
            if isinstance(item.value, MeanLast)
        }
        self._has_pruner = experiment.early_stop.pruner != "none"
        self._rung: int | None = None
        self._clock = clock
        self._began_s = self._passed_s = self._taken_s = clock()
        self._num_taken = 0
        self._waiting: _Waiting = []
        self._num_until_selection = NUM_WAITING

    def take(self, event: Event) -> list[Event]:
        """Return the events that pass now, in the order in which they were made.

        Args:
            event: The next event of the attempt. What is not a report, was returned or is not
                finite passes at once, after all that wait.
        """
        if not isinstance(event, TrialReported) or event.returned or not self._is_finite(event):
            return [*self.flush(), event]
        self._num_taken += 1
        self._taken_s = self._clock()
        self._waiting.append((event, 0))
        if self._is_judged(event) or self._num_taken <= self._num_free or self._has_waited():
            return self.flush()
        if len(self._waiting) >= self._num_until_selection:
            self._waiting = self._selected()
            self._num_until_selection = len(self._waiting) + NUM_WAITING
        return []

    def overdue(self) -> list[Event]:
        """Return the reports that have waited long enough, or that no others follow."""
        if self._waiting and (self._has_waited() or self._clock() - self._taken_s >= SHORTEST_S):
            return self.flush()
        return []

    def flush(self) -> list[Event]:
        """Return the waiting reports that pass."""
        if not self._waiting:
            return []
        selected, self._waiting = self._selected(), []
        self._num_until_selection = NUM_WAITING
        self._passed_s = self._clock()
        self.num_left_out += sum(left_out for _, left_out in selected)
        return [
            report.model_copy(update={"left_out": left_out}) if left_out else report
            for report, left_out in selected
        ]

    def _has_waited(self) -> bool:
        interval_s = ELAPSED_FRACTION * (self._clock() - self._began_s)
        return self._clock() - self._passed_s >= min(max(interval_s, SHORTEST_S), LONGEST_S)

    def _is_finite(self, report: TrialReported) -> bool:
        return find_divergence(self._experiment, report.values) is None

    def _is_judged(self, report: TrialReported) -> bool:
        """Return whether a pruner will judge the report."""
        if not self._has_pruner or self._objectives[0] not in report.values:
            return False
        rung = self._early_stop.rung_of(report)
        is_new = rung is not None and rung != self._rung
        self._rung = rung if is_new else self._rung
        return is_new

    def _selected(self) -> _Waiting:
        """Return what is kept of the waiting reports."""
        reports = [report for report, _ in self._waiting]
        kept = {len(reports) - 1, *_last_places(reports, range(len(reports)))}
        for metric in self._objectives:
            places = [place for place, report in enumerate(reports) if metric in report.values]
            kept.update(places[-self._tails.get(metric, 1) :])
            for extreme in (min, max) if places else ():
                kept.update(
                    _beside(reports, extreme(places, key=lambda at: reports[at].values[metric]))
                )
        selected: _Waiting = []
        left_out = 0
        for place, (report, left_out_before) in enumerate(self._waiting):
            left_out += left_out_before
            if place in kept:
                selected.append((report, left_out))
                left_out = 0
            else:
                left_out += 1
        return selected


def _beside(reports: list[TrialReported], place: int) -> set[int]:
    """Return the places of the reports that tell all metrics as they were at one of them.

    A best report represents all metrics: those before it and those that follow at its step.
    """
    step = reports[place].step
    following = range(place + 1, len(reports))
    same_step = [later for later in following if reports[later].step == step]
    return {place, *_last_places(reports, range(place + 1)), *_last_places(reports, same_step)}


def _last_places(reports: list[TrialReported], places: range | list[int]) -> set[int]:
    """Return where each metric was reported last, of some places."""
    return set({name: place for place in places for name in reports[place].values}.values())
