"""Rows of a store as `History` and the plots take them.

Reports in bulk, other events one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from workbench.foundation.events import Event, from_json
from workbench.store.history.reports import Batch, Reports

_MANY = 8


class ReadRows(NamedTuple):
    """Rows of a store that were read but not yet applied to anything.

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

    def steps(self) -> Iterator[tuple[int, Reports] | Event]:
        """Yield, once, what happened.

        (trial, its reports) and other events, each trial's in their order.
        """
        # An event of a trial follows the reports of that trial so far; an event of the run follows
        # all.
        for place, trial, _, event in self.others:
            yield from self.reports.take(trial, place)
            yield event
        yield from self.reports.take(None, self.num_reports)


def read_rows(rows: Sequence[Sequence[Any]]) -> ReadRows:
    """Read rows of a store.

    Reports as columns where there are many of a trial, else as the events they are.

    Args:
        rows: (seq, type, trial, time_unix_s, payload), the payload being the JSON text of the
            event.
    """
    others: list[tuple[int, int | None, int, Event]] = []
    trials: list[int] = []
    payloads: list[str] = []
    last_unix_s = None
    as_columns = are_many_reports(rows)
    for seq, kind, trial, last_unix_s, payload in rows:  # noqa: B007
        if as_columns and kind == "trial_reported":
            trials.append(trial)
            payloads.append(payload)
        else:
            others.append((len(payloads), trial, seq, from_json(payload)))
    return ReadRows(Batch.of(trials, payloads), len(payloads), others, last_unix_s)


def are_many_reports(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the reports among some rows are so many of each trial that columns pay."""
    reporting = [row[2] for row in rows if row[1] == "trial_reported"]
    return len(reporting) >= _MANY * len(set(reporting))
