"""A run as figures see it: its trials, its columns, what it measured and recommended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from typing_extensions import Self

from workbench.events import Event, from_json
from workbench.experiment import Experiment
from workbench.history import History
from workbench.history.reports import Batch, Reports
from workbench.plots.advice_record import AdviceRecord
from workbench.plots.series import RunSeries

_MANY = 8


class ReadRows(NamedTuple):
    """Rows of a store that were read but not yet added; reading them does not touch the run data.

    Attributes:
        reports: Reports, as columns where a trial has many.
        num_reports: Number of reports.
        others: All other events: (number of preceding reports, trial or None, seq, event).
        last_unix_s: Time at which the last row was stored; None if there are no rows.
    """

    reports: Batch
    num_reports: int
    others: list[tuple[int, int | None, int, Event]]
    last_unix_s: float | None


def read_rows(rows: Sequence[Sequence[Any]]) -> ReadRows:
    """Read rows of a store: reports as columns where there are many of a trial, else as the events they are.

    Args:
        rows: (seq, type, trial, time_unix_s, payload), the payload being the JSON text of the event.
    """
    others: list[tuple[int, int | None, int, Event]] = []
    trials: list[int] = []
    payloads: list[str] = []
    last_unix_s = None
    reporting = [row[2] for row in rows if row[1] == "trial_reported"]
    as_columns = len(reporting) >= _MANY * len(set(reporting))
    for seq, kind, trial, last_unix_s, payload in rows:  # noqa: B007
        if as_columns and kind == "trial_reported":
            trials.append(trial)
            payloads.append(payload)
        else:
            others.append((len(payloads), trial, seq, from_json(payload)))
    return ReadRows(Batch(trials, payloads), len(payloads), others, last_unix_s)


class RunData:
    """Everything that figures are drawn from, updated event by event."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin before the first event of a run of `experiment`."""
        self.history = History(experiment)
        self.series = RunSeries(experiment)
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
        # An event of a trial follows the reports of that trial so far; an event of the run follows all.
        for place, trial, _, event in read.others:
            self._take_reports(read.reports.take(trial, place))
            self.add(event)
        self._take_reports(read.reports.take(None, read.num_reports))
        self.last_unix_s = read.last_unix_s or self.last_unix_s
        return [(seq, event) for _, _, seq, event in read.others if event.type != "trial_reported"]

    def _take_reports(self, reports: Iterable[tuple[int, Reports]]) -> None:
        for trial, taken in reports:
            self.history.take_reports(trial, taken)
            self.series.add_reports(trial, taken)
            self.advice.take_reports(trial, taken)
