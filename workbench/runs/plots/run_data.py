"""A run as figures see it: its trials, its columns, what it measured and recommended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import Self

from workbench.experiment import Experiment
from workbench.foundation.events import Event
from workbench.runs.plots.advice_record import AdviceRecord
from workbench.runs.plots.series import RunSeries
from workbench.store.history import History
from workbench.store.history.reports import ReadRows, Reports, read_rows


class RunData:
    """Everything that figures are drawn from, updated event by event."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin before the first event of a run of `experiment`."""
        self.history = History(experiment)
        self.series = RunSeries(experiment, clock=self.history.clock)
        self.advice = AdviceRecord(experiment)
        self.last_unix_s = 0.0

    @classmethod
    def of(cls, experiment: Experiment, events: Iterable[Event]) -> Self:
        """Build the data from the events of a run, oldest first."""
        run = cls(experiment)
        for event in events:
            run.add(event)
        return run

    @property
    def experiment(self) -> Experiment:
        """What the run tunes."""
        return self.history.experiment

    def add(self, event: Event) -> None:
        """Process the next event."""
        self.history.apply(event)
        self.series.add((event,))
        self.advice.add(event)
        self.last_unix_s = event.time_unix_s

    def add_rows(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, Event]]:
        """Process the next rows of a store; reports, of which there may be a million, in bulk.

        Args:
            rows: As `read_rows` takes them.

        Returns:
            The events that are not reports, each with its number.
        """
        return self.add_read(read_rows(rows))

    def add_read(self, read: ReadRows) -> list[tuple[int, Event]]:
        """Process what `read_rows` returned; like `add_rows`."""
        for step in read.steps():
            if isinstance(step, tuple):
                self._take_reports(*step)
            else:
                self.add(step)
        self.last_unix_s = read.last_unix_s or self.last_unix_s
        return [(seq, event) for _, _, seq, event in read.others if event.type != "trial_reported"]

    def _take_reports(self, trial: int, reports: Reports) -> None:
        self.history.take_reports(trial, reports)
        self.series.add_reports(trial, reports)
        self.advice.take_reports(trial, reports)
