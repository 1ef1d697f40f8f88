"""Advice from Python: measured, stored, applied, asked for again, interrupted, refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.services.postgresql import Server
from workbench.advisor.advice import Advice
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError, RunError
from workbench.foundation.events import (
    AdviceGiven,
    AdviceRequested,
    CandidateTried,
    CommandHandled,
    Event,
    PlanMeasured,
    RatesTested,
    RunStateChanged,
)
from workbench.store.database import Store
from workbench.sweeps.preflight import check

TIME_S = 12.0
PROGRAM = Path(__file__).parents[1] / "training" / "probes" / "speaking_program.py"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def make_experiment(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "model": "mlp",
        "data": "breast_cancer",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize", "target": 0.95}],
        "search": {
            "lr": {"low": 1e-4, "high": 0.3, "log": True},
            "global_batch": {"choices": [8, 32, 64]},
            "hidden_width": {"choices": [16, 32]},
        },
        "training": {"epochs": 20, "reference_batch": 32},
    }
    return Experiment(**(settings | changes))


def ask(store: Store, experiment: Experiment, heard: list[Event], **options: Any) -> Advice:
    settings: dict[str, Any] = {"time": TIME_S} | options
    return wb.advise(experiment, store=store, listener=heard.append, **settings)


@pytest.mark.slow
@pytest.mark.ray
def test_an_advice_is_measured_stored_and_can_be_followed(store: Store, ray_head: Path) -> None:
    heard: list[Event] = []
    experiment = make_experiment()
    advice = ask(store, experiment, heard)

    run = wb.attach(advice.run_id, store=store)
    assert run.state == "complete"
    assert run.is_advice
    assert run.advice == advice.to_json()
    kinds = [type(event) for event in heard]
    assert kinds[:2] == [AdviceRequested, RunStateChanged]
    assert {PlanMeasured, RatesTested, CandidateTried, AdviceGiven} <= set(kinds)
    assert [stored.event for stored in store.events(run.run_id)] == heard
    assert not list((store.folder(run.run_id)).glob("candidates/*")), (
        "candidates leave no files behind"
    )

    choice = advice.choice
    assert choice.plan.global_batch in (8, 32, 64)
    assert choice.time_to_target_s is not None
    reached = [
        event for event in heard if isinstance(event, CandidateTried) and event.reached_target
    ]
    assert choice.time_to_target_s.low <= max(event.elapsed_s for event in reached)
    assert choice.lr is not None
    assert 1e-4 <= choice.lr <= 0.3

    followed = advice.apply(experiment)
    assert set(followed.search.root) == {"hidden_width"}, (
        "what the advice does not decide is still searched"
    )
    assert followed.training.global_batch == choice.plan.global_batch
    check(followed)

    again: list[Event] = []
    second = ask(store, experiment, again, time=8.0)
    num_again = sum(isinstance(event, PlanMeasured) for event in again)
    assert num_again < kinds.count(PlanMeasured), (
        "the experiment as it stands is held against what was known"
    )
    assert second.to_json()["choice"]["written"]

    with pytest.raises(RunError, match="is advice"):
        run.extend(trials=3)


@pytest.mark.ray
@pytest.mark.slow
def test_an_advice_waits_for_a_store_that_is_away(
    postgresql: Server, postgresql_url: str, ray_head: Path
) -> None:
    back: list[threading.Timer] = []

    class Heard(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, PlanMeasured) and not back:
                postgresql.stop()
                back.append(threading.Timer(1.5, postgresql.start))
                back[0].start()

    heard = Heard()
    with Store.open(postgresql_url) as store:
        try:
            ask(store, make_experiment(), heard, objective="throughput")
        finally:
            back[0].join()
        assert wb.attach("last", store=store).state == "complete"
        assert [stored.event for stored in store.events("last")] == heard


@pytest.mark.ray
@pytest.mark.slow
def test_advice_for_throughput_trains_nothing(store: Store, ray_head: Path) -> None:
    heard: list[Event] = []
    experiment = make_experiment(search={"lr": {"low": 1e-4, "high": 0.3, "log": True}})
    advice = ask(store, experiment, heard, objective="throughput")
    assert not [event for event in heard if isinstance(event, CandidateTried)]
    assert "training.lr" not in advice.settings, "nothing is known of the rate"
    speeds = [event.samples_per_s or 0.0 for event in heard if isinstance(event, PlanMeasured)]
    assert advice.choice.samples_per_s.value >= 0.7 * max(speeds)
    assert advice.choice.time_to_target_s is None


@pytest.mark.ray
@pytest.mark.slow
def test_a_program_is_measured_on_several_workers_and_compared_in_trainings(
    store: Store, ray_head: Path
) -> None:
    experiment = Experiment(
        command=[sys.executable, str(PROGRAM), "trains", "{size}", "{rate}"],
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"size": {"choices": [8, 64]}, "rate": {"low": 0.01, "high": 1.0, "log": True}},
        advise={"batch": "size", "lr": "rate", "workers": True},
    )
    events: list[Event] = []
    advice = ask(store, experiment, events, objective="throughput")
    measured = [event for event in events if isinstance(event, PlanMeasured)]
    assert {str(event.plan["workers"]) for event in measured} == {"1", "2"}
    assert all(event.step_time_s == pytest.approx(0.01) for event in measured)
    assert advice.settings == {"search.size": 64, "plan.workers": 2, "advise.workers": False}
    assert "computing       as in the experiment" in str(advice)

    tried: list[Event] = []
    advice = ask(store, experiment, tried, time=8.0)
    assert any(isinstance(event, CandidateTried) for event in tried)
    followed = advice.apply(experiment)
    assert followed.search.root["size"].values() == [advice.choice.plan.micro_batch]
    assert followed.search.root["rate"].values() == [advice.choice.lr]


@pytest.mark.ray
@pytest.mark.slow
def test_an_interrupted_advice_is_a_stopped_run(store: Store, ray_head: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, CandidateTried):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wb.advise(make_experiment(), store=store, listener=interrupt, time=60)
    run = wb.attach("last", store=store)
    assert run.state == "stopped"
    assert not run.driven


@pytest.mark.ray
@pytest.mark.slow
def test_an_advice_that_somebody_else_stops_ends_at_its_next_measurement(
    store: Store, ray_head: Path
) -> None:
    def ask_to_stop(event: Event) -> None:
        if isinstance(event, PlanMeasured) and not store.commands(run_id()):
            store.command(run_id(), "set", {"settings": {}})
            store.command(run_id(), "stop", {})

    def run_id() -> str:
        return store.run("last").run_id

    with pytest.raises(KeyboardInterrupt):
        wb.advise(make_experiment(), store=store, listener=ask_to_stop, time=60)
    events = [item.event for item in store.events(run_id())]
    answers = [event for event in events if isinstance(event, CommandHandled)]
    assert [(answer.kind, answer.done) for answer in answers] == [("set", False), ("stop", True)]
    assert store.run(run_id()).state == "stopped"
    assert not [event for event in events if isinstance(event, CandidateTried)]


@pytest.mark.ray
def test_a_model_that_cannot_be_trained_fails_with_its_own_words(
    store: Store, ray_head: Path
) -> None:
    experiment = make_experiment(model="tests.runs.test_advising:build_broken", search={"lr": 0.1})
    with pytest.raises(RunError, match="no such layer"):
        ask(store, experiment, [])
    assert wb.attach("last", store=store).state == "failed"


def build_broken(config: Any) -> Any:
    raise ValueError("no such layer")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"objective": "speed"}, "objective"),
        ({"time": "soon"}, "time"),
        ({"time": -1}, "time"),
        ({"time": float("nan")}, "time"),
        ({"time": True}, "time"),
    ],
)
def test_wrong_questions_are_refused_before_anything_starts(
    store: Store, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ArgumentError, match=field):
        wb.advise(make_experiment(), store=store, **options)
    assert store.runs() == []


def test_train_functions_are_refused_before_anything_starts(store: Store) -> None:
    experiment = Experiment(
        train="json:loads", objectives=[{"metric": "loss", "goal": "minimize"}], search={"x": 0.5}
    )
    with pytest.raises(ExperimentError, match="Write advise:"):
        wb.advise(experiment, store=store)
    assert store.runs() == []
