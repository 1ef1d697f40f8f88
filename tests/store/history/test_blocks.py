"""Blocks of events: what is read from one is what its events contain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.foundation.events import (
    Event,
    Noted,
    TrialProposed,
    TrialReported,
    TrialStarted,
    to_json,
)
from workbench.runs.plots.run_data import RunData
from workbench.store.history import blocks
from workbench.store.history.blocks import decode_block, encode_block
from workbench.store.history.reports import ReadRows, read_rows

EXPERIMENT = Experiment(
    train="package.module:function", objectives=[{"metric": "loss", "goal": "minimize"}]
)
NUM_TRIALS = 3

numbers = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.just(0.0),
    st.just(-0.0),
    st.just(math.nan),
    st.just(math.inf),
)
finite = st.floats(min_value=0, max_value=1e12)
reports = st.builds(
    TrialReported,
    trial=st.integers(0, NUM_TRIALS - 1),
    attempt=st.integers(0, 2),
    step=st.integers(0, 2**40),
    epoch=st.none() | finite,
    values=st.dictionaries(st.sampled_from(["loss", "a", "b"]), numbers, max_size=3),
    samples_per_s=st.none() | finite,
    parts_s=st.dictionaries(st.sampled_from(["data", "update"]), finite, max_size=2),
    gradient_signal_sqr=st.none() | finite,
    gradient_noise=st.none() | finite,
    slowest_rank=st.none() | st.integers(0, 7),
    slowest_rank_factor=st.none() | finite,
    memory_share=st.none() | st.floats(min_value=0, max_value=1),
    left_out=st.integers(0, 3),
)
others = st.one_of(
    st.builds(Noted, level=st.just("info"), message=st.text(max_size=5)),
    st.builds(TrialStarted, trial=st.integers(0, NUM_TRIALS - 1), attempt=st.integers(0, 2)),
)
runs = st.lists(st.one_of(reports, reports, reports, others), max_size=60)
BEGINNING: list[Event] = [
    TrialProposed(trial=n, configuration=n, seed=n, params={}) for n in range(NUM_TRIALS)
]


def rows_of(events: list[Event]) -> list[tuple[Any, ...]]:
    timed = [
        event.model_copy(update={"time_unix_s": 1000.0 + n / 3}) for n, event in enumerate(events)
    ]
    return [
        (seq, event.type, getattr(event, "trial", None), event.time_unix_s, to_json(event))
        for seq, event in enumerate(timed, 1)
    ]


def contents(read: ReadRows) -> list[object]:
    """Return everything that was read, in comparable form."""
    values: list[object] = [read.num_reports, read.last_unix_s, read.others]
    for step in read.steps():
        if isinstance(step, tuple):
            trial, taken = step
            values.append((trial, taken.attempts.tolist()))
            for columns in (taken.numbers, taken.values, taken.parts_s):
                # A column that a trial never fills is there or not, depending on the other trials.
                known = {name: column for name, column in columns.items() if column.is_known.any()}
                values += [
                    (
                        name,
                        np.where(column.is_known, column.values, -1.0).tobytes(),
                        column.is_known.tolist(),
                    )
                    for name, column in sorted(known.items())
                ]
        else:
            values.append(step)
    return values


def force_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("workbench.store.history.reports", "workbench.store.history.blocks"):
        monkeypatch.setattr(f"{module}.are_many_reports", lambda _rows: True)


@given(runs)
def test_a_block_reads_as_its_rows_do(events: list[Event]) -> None:
    rows = rows_of(BEGINNING + events)
    with pytest.MonkeyPatch.context() as patch:
        force_columns(patch)
        block, read = encode_block(rows), read_rows(rows)
    if block is None:
        assert not any(isinstance(event, TrialReported) for event in events)
        return
    decoded = decode_block(block)
    assert decoded is not None
    assert contents(decoded) == contents(read)


@given(runs)
def test_a_run_read_from_a_block_is_the_run_read_event_by_event(events: list[Event]) -> None:
    rows = rows_of(BEGINNING + events)
    with pytest.MonkeyPatch.context() as patch:
        force_columns(patch)
        block = encode_block(rows)
    if block is None or (decoded := decode_block(block)) is None:
        return
    at_once, slowly = RunData(EXPERIMENT), RunData(EXPERIMENT)
    at_once.add_read(decoded)
    for row in rows:
        slowly.add_rows([row])
    assert repr(at_once.history.to_json()) == repr(slowly.history.to_json())
    assert at_once.last_unix_s == slowly.last_unix_s
    for metric in ("loss", "a", "b", "samples_per_s"):
        for curve, other in zip(
            at_once.series.curves(metric), slowly.series.curves(metric), strict=True
        ):
            np.testing.assert_array_equal(curve.points, other.points)


def test_reports_with_numbers_that_json_lacks_are_read_from_a_block_of_any_size() -> None:
    values = [math.nan, math.inf, -math.inf, 0.1, 1e300, 2.0]
    events: list[Event] = [
        TrialReported(trial=n % 2, step=n, values={"loss": values[n % len(values)]})
        for n in range(1200)
    ]
    rows = rows_of(events)
    block = encode_block(rows)
    assert block is not None
    decoded = decode_block(block)
    assert decoded is not None
    assert contents(decoded) == contents(read_rows(rows))
    assert len(block) < sum(len(row[4]) for row in rows) / 10


def test_few_reports_of_each_trial_make_no_block() -> None:
    assert encode_block(rows_of([TrialReported(trial=n, step=1) for n in range(100)])) is None
    assert encode_block(rows_of(BEGINNING)) is None


def test_a_block_of_another_version_is_left_to_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of([TrialReported(trial=0, step=n) for n in range(20)])
    monkeypatch.setattr(blocks, "VERSION", blocks.VERSION + 1)
    later = encode_block(rows)
    monkeypatch.undo()
    assert later is not None
    assert decode_block(later) is None
