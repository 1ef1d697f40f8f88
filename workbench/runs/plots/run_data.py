"""A run as figures see it: its trials, its columns, what it measured and recommended.

It is a projection of events, which are read from the store in chunks: from blocks if there are any,
else from rows. The modules that prepare figures decide what is shown of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import Self

from workbench.advisor.stored_advice import mapping
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AdviceGiven,
    AdviceRequested,
    CandidateTried,
    Event,
    PlanMeasured,
    RatesTested,
    TrialReported,
)
from workbench.foundation.garbage import no_garbage_search
from workbench.hardware.performance.noise import GradientMoments
from workbench.runs.plots.series import THROUGHPUT, Curve, RunSeries
from workbench.store.database import Store
from workbench.store.database.samples import next_block_seq, read_block
from workbench.store.history import History
from workbench.store.history.reports import NumberColumn, ReadRows, Reports, read_rows

NOISE_SCALE = "noise_scale"
CHUNK_EVENTS = 20_000


class RunData:
    """Everything that figures are drawn from, updated event by event."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first event of a run of `experiment`."""
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
        if not isinstance(event, TrialReported) or event.gradient_noise is not None:
            self.advice.add(event)
        self.last_unix_s = event.time_unix_s

    def add_rows(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, Event]]:
        """Process the next rows of a store. Reports are processed in bulk: there may be a million.

        Args:
            rows: As `read_rows` takes them.

        Returns:
            The events that are not reports, each with its number.
        """
        return self.add_read(read_rows(rows))

    def add_read(self, read: ReadRows) -> list[tuple[int, Event]]:
        """Process what `read_rows` returned. Like `add_rows`."""
        with no_garbage_search():
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


class AdviceRecord:
    """The events of a run that concern advice."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first event of a run of `experiment`."""
        self.requested: AdviceRequested | None = None
        self.measured: list[PlanMeasured] = []
        self.rate_tests: list[RatesTested] = []
        self.candidates: list[CandidateTried] = []
        self.advice: Mapping[str, Any] = {}
        # Separate columns, so that noise is thinned, and rewound after lost attempts, like metrics.
        self._noise = RunSeries(experiment)

    def add(self, event: Event) -> None:
        """Process the next event of the run."""
        match event:
            case AdviceRequested():
                self.requested = event
            case PlanMeasured(by_trial=None):
                self.measured.append(event)
            case RatesTested():
                self.rate_tests.append(event)
            case CandidateTried():
                self.candidates.append(event)
            case AdviceGiven():
                self.advice = event.advice
            case TrialReported() if event.gradient_noise is not None:
                self.take_reports(event.trial, Reports.of([event.model_dump()]))
            case _:
                pass

    @property
    def exists(self) -> bool:
        """Whether advice was requested, measured for or given."""
        contents = self.measured or self.rate_tests or self.candidates or self.advice
        return self.requested is not None or bool(contents)

    @property
    def choice(self) -> Mapping[str, Any]:
        """The recommendation, or empty until there is one."""
        return mapping(self.advice.get("choice"))

    def of_one_setting(self) -> list[PlanMeasured]:
        """Return the measurements of the setting that was measured most often.

        Only those are comparable.
        """
        often = Counter(event.setting for event in self.measured).most_common(1)
        return [event for event in self.measured if event.setting == often[0][0]]

    def noise_scales(self) -> list[Curve]:
        """Return the noise scale in samples of every trial that reported one, by trial number."""
        return self._noise.curves(NOISE_SCALE)

    def take_reports(self, trial: int, reports: Reports) -> None:
        """Add the next reports of one trial."""
        signals = reports.numbers.get("gradient_signal_sqr")
        noises = reports.numbers.get("gradient_noise")
        if signals is None or noises is None:
            return
        places = np.flatnonzero(signals.is_known & noises.is_known)
        if not len(places):
            return
        scales = np.full(len(reports), np.nan)
        for place in places:
            moments = GradientMoments(float(signals.values[place]), float(noises.values[place]))
            scale = moments.noise_scale()
            if scale is not None:
                scales[place] = scale
        finite = np.flatnonzero(np.isfinite(scales))
        if len(finite):
            reports_with_noise = reports.at(finite)
            nothing = NumberColumn(scales[finite], np.zeros(len(finite), dtype=np.bool_))
            numbers = {**reports_with_noise.numbers, THROUGHPUT: nothing}
            values = {
                NOISE_SCALE: NumberColumn(scales[finite], np.ones(len(finite), dtype=np.bool_))
            }
            self._noise.add_reports(
                trial, Reports(reports_with_noise.attempts, numbers, values, {})
            )


class Chunk(NamedTuple):
    """The next events of a run.

    Attributes:
        rows: The rows, or empty if nothing is new.
        last_seq: The number of the last of them, or the number that they would follow.
        is_full: Whether there may be more.
    """

    rows: ReadRows
    last_seq: int
    is_full: bool


def read_chunk(store: Store, run_id: str, after: int) -> Chunk:
    """Read the next events of a run.

    Args:
        store: The store.
        run_id: The run.
        after: Only events with a greater number.

    Raises:
        RunNotFoundError: If there is no such run.
        StoreError: If this version does not know an event.
    """
    block = read_block(store, run_id, after)
    if block is not None:
        from workbench.store.history.blocks import decode_block

        with no_garbage_search():
            decoded = decode_block(block.payload)
        if decoded is not None:
            return Chunk(decoded, block.last_seq, is_full=True)
        until = block.last_seq
    else:
        first = next_block_seq(store, run_id, after)
        until = first and first - 1
    limit = CHUNK_EVENTS
    if until is not None:
        limit = min(limit, until - after)
    with no_garbage_search():
        rows = next(store.event_rows(run_id, after=after, limit=limit), [])
        read = read_rows(rows)
    last = after
    if rows:
        last = rows[-1][0]
    return Chunk(read, last, is_full=len(rows) == limit)


def read_chunks(store: Store, run_id: str, after: int = 0) -> Iterator[Chunk]:
    """Read the events of a run to the end, in chunks of which none is empty.

    Arguments as `read_chunk`.
    """
    while True:
        chunk = read_chunk(store, run_id, after)
        if chunk.last_seq > after:
            yield chunk
        if not chunk.is_full:
            return
        after = chunk.last_seq
