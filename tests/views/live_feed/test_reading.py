"""While a large run is being read, every count of it says how much was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from workbench.cli import following
from workbench.experiment import Experiment
from workbench.runs import Run
from workbench.runs.plots import run_data
from workbench.store.database import Store
from workbench.store.history import History
from workbench.views.live_feed import run_tail
from workbench.views.live_feed.chart import Numbers, comparison
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import ComparisonQuery, TableQuery
from workbench.views.live_feed.run_summaries import run_detail
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_table import trial_table

NUM_TRIALS, CHUNK = 40, 60


def record(store: Store) -> str:
    run_id = store.create_run(Experiment(**EXPERIMENT))
    trials = [
        event for number in range(NUM_TRIALS) for event in trial_events(number, at_s=float(number))
    ]
    append(store, run_id, [*begin(), *trials, *finish(99.0)])
    return run_id


def test_the_panel_says_how_much_was_read_until_all_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "CHUNK_EVENTS", CHUNK)
    monkeypatch.setattr(run_tail, "CHUNK_EVENTS", CHUNK)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        tail = RunTail(store, record(store))
        total = tail.row.last_seq
        seen = []
        while tail.advance():
            detail, table = run_detail(tail), trial_table(tail, TableQuery())
            seen.append((detail.reading, sum(detail.counts.values())))
            assert table.reading == detail.reading
            assert (detail.loading is None) == (detail.reading is None) == (tail.cursor == total)
            compared = comparison([tail], ComparisonQuery(runs=(tail.run_id,)), Numbers())
            assert (detail.reading or "read)") in f"{compared.runs[0].label} read)"
    assert seen[0] == (f"{CHUNK} of {total} events read", 12), "5 events a trial, and 2 before"
    assert seen[-2][0] is not None, "also in the last chunk but one"
    assert seen[-1] == (None, NUM_TRIALS)


def test_the_run_that_was_asked_for_last_is_read_first_and_the_others_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "CHUNK_EVENTS", CHUNK)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        feed = Feed(lambda: store)
        try:
            with feed._lock:  # the feed's thread waits meanwhile
                first, second = (feed.tail(record(store)) for _ in range(2))
                progress = []
                while first.is_behind or second.is_behind:
                    feed._advance()
                    progress.append((first.cursor, second.cursor))
        finally:
            feed.close()
    until_read = next(at for at, (_, read) in enumerate(progress) if read == second.row.last_seq)
    others = progress[until_read][0]
    assert 0 < others <= second.row.last_seq / 2, "the other run advances, but more slowly"
    assert progress[-1] == (first.row.last_seq, second.row.last_seq)


def test_a_run_that_was_read_once_counts_as_read_while_it_grows(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        tail = RunTail(store, record(store))
        tail.catch_up()
        append(store, tail.run_id, trial_events(NUM_TRIALS, at_s=100.0))
        tail.row = store.run(tail.run_id)
        tail._note_reading()
        assert run_detail(tail).reading is None
        tail.catch_up()
        assert run_detail(tail).counts == {"complete": NUM_TRIALS + 1}


def test_the_terminal_says_how_much_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_CHUNK_EVENTS", CHUNK)
    seen = []

    class Watching:
        def __init__(self, history: History) -> None:
            self.history = history

        def show(self, event: object) -> None: ...

        def refresh(self, state: str) -> None:
            reading = self.history.reading
            seen.append((reading and reading.describe(), len(self.history.trials)))

        def close(self) -> None: ...

    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, record(store))
        following.follow_to_end(run, as_json=True, make_view=lambda history, _: Watching(history))
        total = run.row.last_seq
    assert seen[0] == (f"{CHUNK} of {total} events read", 12)
    assert seen[-1] == (None, NUM_TRIALS)
