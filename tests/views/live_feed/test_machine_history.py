"""Machines over time: samples of every age as one series, and the trials that ran on each."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.builders.machines import BUSY, SILENT
from workbench.experiment import Experiment
from workbench.hardware.resources import Rollup
from workbench.store.database import Store
from workbench.store.database.samples import SampleRow, keep_samples, replace_samples
from workbench.store.history.run_clock import RunClock
from workbench.store.history.trial import Trial
from workbench.views.live_feed.machine_history import MAX_POINTS, MachineHistory

EXPERIMENT = {
    "train": "package:function",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"x": {"low": 0.0, "high": 1.0}},
}


def sample(at_s: float, node: str = "b", span_s: int = 0) -> SampleRow:
    return SampleRow(span_s, at_s, node, Rollup(BUSY if node == "b" else SILENT).to_json())


def trial(
    number: int, begin: float | None, end: float | None, hosts: list[str] | None = None
) -> Trial:
    made = Trial(number, {}, number, 0, 0, "sampler", 0.0)
    made.started_unix_s, made.ended_unix_s, made.hosts = begin, end, hosts or []
    return made


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


@pytest.fixture
def run_id(store: Store) -> str:
    return store.create_run(Experiment(**EXPERIMENT))


def keep(store: Store, run_id: str, *rows: SampleRow) -> None:
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        keep_samples(writer, rows)


def test_each_machine_is_a_series_with_its_gpus_and_its_trials(store: Store, run_id: str) -> None:
    history = MachineHistory(store, run_id)
    assert history.series(RunClock.since(0.0), []).nodes == ()
    now = time.time()
    keep(store, run_id, sample(now, "b"), sample(now, "a"), sample(now + 2, "b"))
    trials = [
        trial(0, now, now + 1, ["big"]),
        trial(1, now, None, ["big", "far"]),
        trial(2, None, None, ["big"]),
        trial(3, now + 1, now + 2, ["big"]),
    ]
    big, far = history.series(RunClock.since(now - 10), trials).nodes
    assert (big.host, big.time_s, big.cpu, big.memory) == (
        "big",
        (10.0, 12.0),
        (0.5, 0.5),
        (0.5, 0.5),
    )
    assert [(gpu.index, gpu.utilisation) for gpu in big.gpus] == [
        (0, (0.9, 0.9)),
        (1, (None, None)),
    ]
    assert [(bar.trial, bar.begin_s, bar.end_s, bar.lane) for bar in big.trials] == [
        (0, 10.0, 11.0, 0),
        (1, 10.0, None, 1),
        (3, 11.0, 12.0, 0),
    ]
    assert (big.num_lanes, [bar.trial for bar in far.trials], far.cpu) == (2, [1], (None,))


def test_samples_that_became_part_of_a_rollup_are_shown_once(store: Store, run_id: str) -> None:
    history = MachineHistory(store, run_id)
    keep(store, run_id, *(sample(1000.0 + at) for at in range(0, 30, 2)))
    assert len(history.series(RunClock.since(0.0), []).nodes[0].time_s) == 15
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        replace_samples(
            writer, {0: (0.0, 1020.0)}, [sample(1000.0, span_s=10), sample(1010.0, span_s=10)]
        )
        keep_samples(writer, [sample(1030.0)])
    expected = (1000.0, 1010.0, 1020.0, 1022.0, 1024.0, 1026.0, 1028.0, 1030.0)
    assert history.series(RunClock.since(0.0), []).nodes[0].time_s == expected
    assert MachineHistory(store, run_id).series(RunClock.since(0.0), []).nodes[0].time_s == expected


def test_a_long_run_is_sent_as_means_of_few_parts(store: Store, run_id: str) -> None:
    keep(store, run_id, *(sample(1000.0 + at) for at in range(2000)))
    node = MachineHistory(store, run_id).series(RunClock.since(1000.0), []).nodes[0]
    assert len(node.time_s) == MAX_POINTS
    assert (node.time_s[0], node.time_s[-1]) == (2.0, 1997.0)


def test_a_trial_of_an_unknown_machine_belongs_to_the_only_one(store: Store, run_id: str) -> None:
    keep(store, run_id, sample(1000.0))
    assert [
        bar.trial
        for bar in MachineHistory(store, run_id)
        .series(RunClock.since(0.0), [trial(7, 1.0, 2.0)])
        .nodes[0]
        .trials
    ] == [7]
