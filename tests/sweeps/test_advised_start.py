"""A sweep begins with what earlier advice on the same training recommends."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pydantic import JsonValue

from workbench.advisor.open_settings import drawn_params
from workbench.advisor.speed_history import setting_of
from workbench.cluster.workers.admission import Shape
from workbench.experiment import Experiment
from workbench.foundation.events import AdviceGiven, PlanMeasured, TrialEnqueued
from workbench.foundation.formatting import format_value
from workbench.hardware.resources import ClusterInventory, NodeInventory
from workbench.runs.event_lines import describe_advised
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_plans import begin_with_advice

ADVICE: dict[str, JsonValue] = {
    "training.lr": 0.02,
    "training.global_batch": 256,
    "plan.workers": 2,
}
SEARCH = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "global_batch": {"choices": [64, 256]},
    "hidden_width": {"low": 16, "high": 256},
    "dropout": {"low": 0.0, "high": 0.5},
}


def cluster(num_cpus: float = 2) -> ClusterInventory:
    node = NodeInventory(node_id="a", host="a", num_cpus=num_cpus, num_gpus=0, memory_bytes=2**30)
    return ClusterInventory((node,))


def make_experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": SEARCH,
    }
    return Experiment(**(settings | changes))


def advise(store: Store, num_cpus: float = 2, **changes: Any) -> str:
    """Store a run of advice, as `workbench advise` leaves it."""
    experiment = make_experiment(**changes)
    run_id = store.create_run(experiment)
    params = {
        name: value
        for name, value in drawn_params(experiment).items()
        if name not in ("lr", "global_batch")
    }
    setting = setting_of(experiment, params, Shape(1), cluster(num_cpus))
    plan: dict[str, JsonValue] = {"workers": 1, "micro_batch": 64, "accumulation": 1}
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        writer.append(
            PlanMeasured(setting=setting, plan=plan, step_time_s=0.01, samples_per_s=6400),
            AdviceGiven(advice={"settings": ADVICE}),
        )
    return run_id


def begun(
    store: Store, *, num_times: int = 1, **changes: Any
) -> tuple[list[TrialEnqueued], dict[str, Any]]:
    """Begin a sweep; return what was enqueued, and the first configuration."""
    run_id, first = store.create_run(make_experiment(**changes)), dict[str, Any]()
    for _ in range(num_times):
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            ledger = Ledger(store, run_id)
            ledger.replay(writer)
            begin_with_advice(store, ledger, cluster)
            proposal = ledger.study.ask()
            assert proposal is not None
            first = proposal.params
    events = [stored.event for stored in store.events(run_id)]
    return [event for event in events if isinstance(event, TrialEnqueued)], first


def test_the_first_configuration_is_the_advised_one_as_it_was_measured(store: Store) -> None:
    run_id = advise(store, seed=3)
    [enqueued], params = begun(store, num_times=2)
    assert enqueued.advice_run_id == run_id
    assert (
        params
        == enqueued.params
        == {**drawn_params(make_experiment(seed=3)), "lr": 0.02, "global_batch": 256}
    )


def test_only_what_the_advice_chose_is_named_as_advised(store: Store) -> None:
    run_id = advise(store)
    [enqueued], _ = begun(store)
    assert enqueued.advised == {"lr": 0.02, "global_batch": 256}
    width, dropout = (enqueued.params[name] for name in ("hidden_width", "dropout"))
    assert describe_advised(enqueued) == (
        f"lr=0.02 global_batch=256, as {run_id} advises,"
        f" with hidden_width={format_value(width)} dropout={format_value(dropout)}"
    )


def test_values_outside_the_space_are_replaced_by_the_nearest(store: Store) -> None:
    advise(store)
    search = {
        **SEARCH,
        "lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "global_batch": {"choices": [32, 128]},
        "dropout": {"low": 0.0, "high": 0.2, "prior": {"near": 0.1}},
    }
    [enqueued], params = begun(store, search=search)
    assert enqueued.advised == {"lr": 0.02, "global_batch": 256}
    assert describe_advised(enqueued).startswith(
        "lr=0.01 (advised: 0.02) global_batch=128 (advised: 256), as "
    )
    assert "advises, with hidden_width=" in describe_advised(enqueued)
    assert (params["lr"], params["global_batch"], params["dropout"]) == (1e-2, 128, 0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "breast_cancer"},
        {"training": {"optimizer": "sgd"}},
        {"sampler": "random"},
        {"resources": {"advice": "never"}},
        {"search": {"hidden_width": SEARCH["hidden_width"]}},
    ],
)
def test_what_was_advised_for_another_training_or_not_wanted_does_not_count(
    store: Store, changes: dict[str, Any]
) -> None:
    advise(store)
    assert begun(store, **changes)[0] == []


def test_advice_of_other_hardware_does_not_count(store: Store) -> None:
    advise(store, num_cpus=64)
    assert begun(store)[0] == []
