"""What is stored beside events: by the run's one writer, read by anybody, in both databases."""

from __future__ import annotations

import pytest

from tests.services.databases import execute
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError, RunNotFoundError, StoreError
from workbench.foundation.events import Noted, RunStateChanged
from workbench.store.database import RunWriter, Store
from workbench.store.database.samples import (
    EnergyRow,
    SampleRow,
    keep_samples,
    read_energy,
    read_newest_samples,
    read_samples,
    replace_samples,
)


def write(store: Store, run_id: str) -> RunWriter:
    return store.writer(run_id, owner_pid=1, owner_host="here")


def test_samples_are_read_by_length_and_time(store: Store, experiment: Experiment) -> None:
    run_id, other = store.create_run(experiment), store.create_run(experiment)
    looks = [
        SampleRow(0, float(time), node, f"{node}{time}") for time in (10, 12, 14) for node in "ab"
    ]
    with write(store, run_id) as writer:
        keep_samples(writer, [*looks, SampleRow(60, 0.0, "a", "minute")])
        assert writer.append(RunStateChanged(state="running")) == 1
    assert read_samples(store, run_id) == looks
    assert read_samples(store, run_id, since_unix_s=12.0, until_unix_s=14.0) == looks[2:4]
    assert read_samples(store, run_id, span_s=60) == [SampleRow(60, 0.0, "a", "minute")]
    assert read_newest_samples(store, run_id) == looks[4:]
    assert (read_newest_samples(store, other), read_samples(store, other)) == ([], [])
    assert store.run(run_id).last_seq == 1
    with pytest.raises(RunNotFoundError):
        read_newest_samples(store, "nobody")


def test_samples_are_replaced_all_or_none(store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    looks = [SampleRow(0, float(time), "a", str(time)) for time in range(20)]
    minute = SampleRow(60, 0.0, "a", "ten looks")
    with write(store, run_id) as writer:
        keep_samples(
            writer, [*looks, SampleRow(60, 0.0, "a", "older"), SampleRow(60, 60.0, "a", "later")]
        )
        replace_samples(writer, {0: (0.0, 10.0), 60: (0.0, 10.0)}, [minute])
        with pytest.raises(StoreError):
            replace_samples(writer, {0: (0.0, 99.0)}, [minute])
        assert writer.append(Noted(level="info", message="it goes on")) == 1
    assert read_samples(store, run_id) == looks[10:]
    assert read_samples(store, run_id, span_s=60) == [minute, SampleRow(60, 60.0, "a", "later")]


def test_what_trials_used_is_the_newest_sum(store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    assert read_energy(store, run_id) == []
    with write(store, run_id) as writer:
        keep_samples(writer, used=[EnergyRow(1, 5.0, None), EnergyRow(0, None, 2.5)])
        keep_samples(writer, used=[EnergyRow(1, 7.0, 0.5)])
    assert read_energy(store, run_id) == [EnergyRow(0, None, 2.5), EnergyRow(1, 7.0, 0.5)]


def test_who_lost_the_lease_stores_nothing(url: str, store: Store, experiment: Experiment) -> None:
    run_id = store.create_run(experiment)
    with write(store, run_id) as writer:
        execute(url, "UPDATE runs SET lease_token = 'other'")
        with pytest.raises(LeaseError, match="taken over"):
            keep_samples(writer, [SampleRow(0, 1.0, "a", "late")])
        assert writer.lost
    assert read_samples(store, run_id) == []
