"""One history of speeds.

Which measurements belong together, and what the newest runs of a store say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.advisor import speed_history
from workbench.advisor.speed_history import (
    earlier_runs,
    read_measurements,
    read_restarts,
    read_speeds,
    setting_of,
    work_params,
)
from workbench.cluster.workers.admission import Shape
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.events import Event, Noted, PlanMeasured, ResizeMeasured
from workbench.hardware.resources import ClusterInventory, NodeInventory
from workbench.store.database import Store

PAIR = {"workers": 2, "micro_batch": 32, "accumulation": 1, "precision": "fp32", "strategy": "ddp"}
ONE_CPU = Shape(1)
ONE = {**PAIR, "workers": 1, "strategy": "single"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def experiment(**fields: Any) -> Experiment:
    objective = {"metric": "val_loss", "goal": "minimize"}
    return Experiment(**{"model": "mlp", "data": "digits", "objectives": [objective], **fields})


def measured(setting: str = "here", speed: float = 1000.0, **fields: Any) -> PlanMeasured:
    plan = fields.pop("plan", PAIR)
    return PlanMeasured(
        setting=setting, plan=plan, step_time_s=64 / speed, samples_per_s=speed, **fields
    )


def record(store: Store, *events: Event, **fields: Any) -> str:
    run_id = store.create_run(experiment(**fields))
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        writer.append(*events)
    return run_id


def test_rows_say_what_was_measured_and_by_whom(store: Store) -> None:
    run_id = record(
        store,
        measured(plan=ONE),
        measured(by_trial=3, beside_others=False),
        measured(speed=900.0, by_trial=4, beside_others=True, workers_per_node=[2]),
        measured(setting="elsewhere"),
    )
    rows = {row.source: row for row in read_speeds(store, "here")}
    assert set(rows) == {"probe", "trial alone", "trial beside others"}
    assert {row.run_id for row in rows.values()} == {run_id}
    beside = rows["trial beside others"]
    assert beside.plan == Plan(2, 32, 1, "fp32", "ddp", "none", "none")
    assert (beside.samples_per_s, beside.step_time_s) == (900.0, 64 / 900.0)


def test_the_newest_measurement_of_a_plan_counts_and_one_run_can_be_left_out(store: Store) -> None:
    record(store, measured(speed=1000.0))
    newer = record(store, measured(speed=1100.0), measured(speed=1200.0))
    assert [row.samples_per_s for row in read_speeds(store, "here")] == [1200.0]
    assert [row.samples_per_s for row in read_speeds(store, "here", except_run=newer)] == [1000.0]
    assert [event.samples_per_s for event in read_measurements(store, "here")] == [1200.0]


def test_a_trial_that_did_not_record_its_neighbours_counts_as_beside_others(
    store: Store,
) -> None:
    record(store, measured(by_trial=0))
    assert [row.source for row in read_speeds(store, "here")] == ["trial beside others"]


def test_every_question_scans_the_same_number_of_runs(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(speed_history, "NUM_EARLIER_RUNS", 2)
    runs = [record(store, measured(speed=speed)) for speed in (1.0, 2.0, 3.0)]
    assert [run_id for run_id, _ in earlier_runs(store, ["plan_measured"])] == runs[:0:-1]


def test_only_the_wanted_types_of_wanted_experiments_are_read(store: Store) -> None:
    record(store, measured(), data="breast_cancer")
    wanted = record(store, Noted(level="info", message="unrelated"), measured())
    chosen = list(
        earlier_runs(store, ["plan_measured"], of=lambda other: other.data == experiment().data)
    )
    assert [(run_id, len(events)) for run_id, events in chosen] == [(wanted, 1)]


def test_restarts_are_those_of_the_same_model_and_data(store: Store) -> None:
    resized = ResizeMeasured(
        trial=0,
        attempt=1,
        samples_per_s=1.0,
        restart_s=4.0,
        from_workers=1,
        to_workers=2,
        saving_s=1.0,
    )
    record(store, resized, resized.model_copy(update={"restart_s": None}))
    record(store, resized.model_copy(update={"restart_s": 9.0}), data="breast_cancer")
    assert read_restarts(store, experiment()) == [4.0]


def test_a_setting_is_the_work_of_a_sample_on_one_kind_of_hardware() -> None:
    def setting(num_cpus: float = 2, shape: Shape = ONE_CPU, **params: Any) -> str:
        node = NodeInventory(
            node_id="a", host="a", num_cpus=num_cpus, num_gpus=0, memory_bytes=2**30
        )
        return setting_of(experiment(), params, shape, ClusterInventory((node,)))

    assert setting(hidden_width=64) == setting(
        hidden_width=64, lr=0.1, dropout=0.5, epochs=3, workers=2
    )
    assert setting(hidden_width=64) != setting(hidden_width=128)
    assert setting(optimizer="sgd") != setting(optimizer="adamw")
    assert setting() != setting(num_cpus=4)
    assert setting() != setting(shape=Shape(2))


def test_values_of_the_plan_fractions_and_lengths_do_not_change_the_work_of_a_sample() -> None:
    params = {
        "width": 8,
        "dropout": 0.1,
        "epochs": 3,
        "micro_batch": 32,
        "optimizer": "sgd",
        "seed": "x",
    }
    assert work_params(params) == {"width": 8, "optimizer": "sgd", "seed": "x"}
