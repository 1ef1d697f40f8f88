"""Blocks of a run are made while events come, and readers use them wherever they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import StoreUnavailableError
from workbench.foundation.events import Event, Noted, TrialProposed, TrialReported
from workbench.runs.figures import data_of
from workbench.runs.plots import run_data
from workbench.runs.plots.run_data import RunData
from workbench.runs.stored_run import StoredRun
from workbench.store.database import RunWriter, Store
from workbench.store.database.blocks import last_block_seq, read_block
from workbench.sweeps import ledger as event_blocks
from workbench.sweeps.ledger import Ledger
from workbench.views.live_feed.run_tail import RunTail

NUM_TRIALS = 2


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_blocks, "BLOCK_EVENTS", 50)
    monkeypatch.setattr(run_data, "CHUNK_EVENTS", 30)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = (
        str(tmp_path / "store.sqlite")
        if request.param == "sqlite"
        else request.getfixturevalue("postgresql_url")
    )
    with Store.open(url, artifacts=tmp_path / "artifacts") as opened:
        yield opened


@pytest.fixture
def experiment() -> Experiment:
    return Experiment(
        train="package.module:function", objectives=[{"metric": "loss", "goal": "minimize"}]
    )


def open_ledger(store: Store, run_id: str) -> tuple[Ledger, RunWriter]:
    ledger = Ledger(store, run_id)
    writer = store.writer(run_id, owner_pid=os.getpid(), owner_host="here")
    ledger.replay(writer)
    return ledger, writer


def propose() -> list[Event]:
    return [TrialProposed(trial=n, configuration=n, seed=n, params={}) for n in range(NUM_TRIALS)]


def report(step: int) -> TrialReported:
    return TrialReported(trial=step % NUM_TRIALS, step=step, values={"loss": 1 / (1 + step)})


def assert_reads_like_its_events(store: Store, run_id: str, data: RunData) -> None:
    slowly = RunData.of(store.experiment(run_id), (event for _, event in store.events(run_id)))
    assert repr(data.history.to_json()) == repr(slowly.history.to_json())
    at_once = StoredRun(store, run_id).history
    assert repr(at_once.to_json()) == repr(slowly.history.to_json())
    for one, other in zip(data.series.curves("loss"), slowly.series.curves("loss"), strict=True):
        np.testing.assert_array_equal(one.points, other.points)


def test_a_long_run_is_read_from_blocks_and_the_rest_from_rows(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    with writer:
        ledger.record(*propose())
        for step in range(127):
            ledger.record(report(step))
            if step == 60:
                ledger.record(Noted(level="info", message="between"))
    assert last_block_seq(store, run_id) == 100
    seqs = [chunk.last_seq for chunk in run_data.read_chunks(store, run_id)]
    assert seqs == [50, 100, 130]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))
    # From within a block, the rows up to the next one.
    assert [chunk.last_seq for chunk in run_data.read_chunks(store, run_id, after=10)] == [
        40,
        50,
        100,
        130,
    ]


def test_the_next_driver_continues_behind_the_last_block(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    for first in (0, 70):
        ledger, writer = open_ledger(store, run_id)
        with writer:
            if first == 0:
                ledger.record(*propose())
            for step in range(first, first + 70):
                ledger.record(report(step))
    assert [after for after in range(142) if read_block(store, run_id, after) is not None] == [
        0,
        50,
    ]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))


def test_a_tail_that_follows_while_blocks_are_made_misses_and_repeats_nothing(
    store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    tail = RunTail(store, run_id)
    with writer:
        ledger.record(*propose())
        for step in range(230):
            ledger.record(report(step))
            if step % 7 == 0:
                tail.catch_up()
                assert tail.cursor == step + 3
    tail.catch_up()
    assert_reads_like_its_events(store, run_id, tail.data)
    late = RunTail(store, run_id)
    late.catch_up()
    assert_reads_like_its_events(store, run_id, late.data)


def test_events_are_stored_though_their_block_cannot_be(
    store: Store, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    run_id = store.create_run(experiment)
    ledger, writer = open_ledger(store, run_id)
    with writer:
        ledger.record(*propose())
        with monkeypatch.context() as patch:
            patch.setattr(event_blocks, "keep_block", refuse)
            for step in range(60):
                ledger.record(report(step))
        for step in range(60, 120):
            ledger.record(report(step))
    assert [after for after in range(122) if read_block(store, run_id, after) is not None] == [50]
    assert_reads_like_its_events(store, run_id, data_of(StoredRun(store, run_id)))
