from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError, RunNotFoundError
from workbench.foundation.events import (
    DriverStarted,
    Event,
    TrialEnded,
    TrialProposed,
    TrialReported,
)
from workbench.runs.trial_decisions import decide, decide_from_runs
from workbench.store.database import Store

SPREAD = (0.0, 0.01, -0.01, 0.005)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def training(number: int, configuration: int, repeat: int, accuracy: float) -> list[Event]:
    """Return the events of one training of a configuration."""
    lr = 0.01 * (configuration + 1)
    events = trial_events(number, at_s=number, lr=lr, accuracy=accuracy)
    if math.isnan(accuracy):
        events = trial_events(number, at_s=number, lr=lr, state="failed", reason="diverged")
    proposed = events[0]
    assert isinstance(proposed, TrialProposed)
    events[0] = proposed.model_copy(update={"configuration": configuration, "repeat": repeat})
    return events


def record(
    store: Store, groups: list[list[float]], driver: DriverStarted | None = None, **changes: object
) -> str:
    """Store a run of configurations with repeats."""
    run_id = store.create_run(Experiment(**{**EXPERIMENT, **changes}))
    events = begin()
    if driver is not None:
        events[0] = driver
    number = 0
    for configuration, values in enumerate(groups):
        for repeat, value in enumerate(values):
            events += training(number, configuration, repeat, value)
            number += 1
    append(store, run_id, events)
    return run_id


def around(middle: float) -> list[float]:
    return [middle + away for away in SPREAD]


def test_a_trial_stands_for_all_repeats_of_its_configuration(store: Store) -> None:
    baseline, candidate = record(store, [around(0.7)]), record(store, [around(0.9)])
    answer = decide_from_runs(f"{baseline}/2", candidate, store=store)
    assert (answer.num_baseline, answer.num_candidate) == (4, 4)
    assert answer.decision == "better"
    assert answer.effect == pytest.approx(0.2)
    worse = decide_from_runs(candidate, baseline, store=store)
    assert worse.decision == "not better"
    assert worse.effect == pytest.approx(-0.2)


def test_trials_of_one_run_are_compared_too(store: Store) -> None:
    run_id = record(store, [around(0.7), around(0.8), around(0.9)])
    answer = decide_from_runs(f"{run_id}/0", f"{run_id}/4", store=store)
    assert answer.effect == pytest.approx(0.1)
    assert answer.floor is not None  # from the third configuration
    assert answer.floor.num_trainings == 4


def test_the_training_that_chose_a_configuration_does_not_count(store: Store) -> None:
    run_id = record(store, [around(0.7), [0.99, 0.8, 0.81]])
    answer = decide_from_runs(f"{run_id}/0", f"{run_id}/best", store=store)
    assert answer.num_candidate == 2
    assert answer.effect == pytest.approx(0.805 - 0.70125)


def test_a_chosen_configuration_without_repeats_has_no_result(store: Store) -> None:
    baseline, candidate = record(store, [around(0.7)]), record(store, [[0.8], [0.99]])
    answer = decide_from_runs(baseline, candidate, store=store)
    assert (answer.decision, answer.effect) == ("more", None)
    assert "was also lucky and does not count" in answer.notes[0]
    assert "extend --confirm 1" in answer.notes[0]


def test_runs_with_the_same_metric_and_data_share_the_floor(store: Store) -> None:
    record(store, [around(0.6), around(0.65)])
    record(store, [around(0.6)], objectives=[{"metric": "val_loss", "goal": "minimize"}])
    baseline, candidate = record(store, [[0.7]]), record(store, [[0.9]])
    answer = decide_from_runs(baseline, candidate, store=store)
    assert answer.floor is not None
    assert (answer.floor.num_groups, answer.floor.num_trainings) == (2, 8)
    assert answer.floor.deviation == pytest.approx(0.0085, rel=0.2)


def test_a_diverged_training_is_worse_than_every_result(store: Store) -> None:
    baseline = record(store, [around(0.7)])
    candidate = record(store, [[0.9, math.nan, 0.91]])
    answer = decide_from_runs(baseline, f"{candidate}/0", store=store)
    assert answer.decision == "not better"
    assert "candidate: trial 1 diverged" in answer.notes[0]


def test_the_curve_of_a_running_trial_moves_the_probability(store: Store) -> None:
    baseline, candidate = record(store, [around(0.7)]), record(store, [around(0.705)[:3]])
    plain = decide_from_runs(baseline, candidate, store=store)
    running = [event for event in training(3, 0, 3, 0.9) if not isinstance(event, TrialEnded)]
    reports = [event for event in running if isinstance(event, TrialReported)]
    running.remove(reports[1])
    append(store, candidate, running)
    sharper = decide_from_runs(baseline, candidate, store=store)
    assert sharper.probability > plain.probability
    assert (sharper.low, sharper.effect) == (plain.low, plain.effect)


def test_other_machines_and_versions_are_noted(store: Store) -> None:
    drivers = [
        DriverStarted(pid=1, host=host, num_cpus=2, versions={"torch": version, "ray": "2.60"})
        for host, version in (("one", "2.12"), ("two", "2.13"))
    ]
    baseline = record(store, [around(0.7)], drivers[0])
    candidate = record(store, [around(0.9)], drivers[1])
    notes = decide_from_runs(baseline, candidate, store=store).notes
    assert list(notes) == [
        "the machines differ: one for the baseline, two for the candidate",
        "library versions differ: torch 2.12 and 2.13",
    ]


def test_wrong_sides_are_errors(store: Store) -> None:
    run_id = record(store, [around(0.7), around(0.8)])
    other = record(store, [[1.0]], objectives=[{"metric": "val_loss", "goal": "minimize"}])
    with pytest.raises(ArgumentError, match="metric: the objectives differ"):
        decide_from_runs(run_id, f"{other}/0", store=store)
    with pytest.raises(ArgumentError, match="candidate: both are trainings of the same"):
        decide_from_runs(f"{run_id}/0", f"{run_id}/1", store=store)
    with pytest.raises(ArgumentError, match=r"candidate: the run has no trial 99; allowed: 0 to 7"):
        decide_from_runs(run_id, f"{run_id}/99", store=store)
    with pytest.raises(ArgumentError, match="baseline: 'good' is not a trial; allowed: RUN"):
        decide_from_runs(f"{run_id}/good", run_id, store=store)
    with pytest.raises(ArgumentError, match="metric: 'speed' is not an objective of both runs"):
        decide_from_runs(f"{run_id}/0", f"{run_id}/4", metric="speed", store=store)
    with pytest.raises(RunNotFoundError):
        decide_from_runs("missing", run_id, store=store)


def test_one_function_takes_runs_and_files(store: Store, tmp_path: Path) -> None:
    run_id = record(store, [around(0.7), around(0.8)])
    trials = (f"{run_id}/0", f"{run_id}/4")
    of_runs = decide_from_runs(*trials, store=store)
    assert decide(*trials, store=store) == of_runs
    file = tmp_path / "runs.csv"
    file.write_text("run,step,value\n1,9,1.0\n2,9,1.1\n")
    assert decide(file, str(file)).effect == 0
    with pytest.raises(ArgumentError, match="one side is a file"):
        decide(file, trials[0], store=store)
    with pytest.raises(ArgumentError, match="runs have their own goal"):
        decide(*trials, goal="minimize", store=store)
    with pytest.raises(ArgumentError, match="a file has one column of values"):
        decide(file, file, metric="val_loss")


def record_costs(store: Store, middle: float, speed: float, size_bytes: float) -> str:
    """Store trainings of one configuration that have a speed and a size."""
    run_id = store.create_run(Experiment(**EXPERIMENT))
    events = begin()
    for number, value in enumerate(around(middle)):
        for event in training(number, 0, number, value):
            if isinstance(event, TrialReported):
                event = event.model_copy(update={"samples_per_s": speed})
            if isinstance(event, TrialEnded):
                values = {**event.values, "size_bytes": size_bytes}
                event = event.model_copy(update={"values": values})
            events.append(event)
    append(store, run_id, events)
    return run_id


def test_a_better_candidate_that_costs_too_much_is_reported_as_that(store: Store) -> None:
    baseline = record_costs(store, 0.7, 1120.0, 2e9)
    candidate = record_costs(store, 0.9, 1000.0, 3e9)
    answer = decide(baseline, candidate, constraints={"slower": "5%", "size": "2.5GB"}, store=store)
    assert answer.decision == "better"
    assert answer.to_json()["broken"] == [
        "it is 12% slower than the baseline (allowed: 5%)",
        "its size is 2.79 GiB (allowed: 2.5GB)",
    ]
    assert answer.describe()[0].startswith("better, but it is 12% slower than the baseline")
    kept = decide(baseline, candidate, constraints={"slower": "15%"}, store=store)
    assert kept.to_json()["broken"] == []
    assert kept.describe()[0] == "better: accept the candidate."
    assert "broken" not in decide(baseline, candidate, store=store).to_json()


def test_wrong_constraints_are_errors(store: Store) -> None:
    sides = (record(store, [around(0.7)]), record(store, [around(0.9)]))
    for constraints, problem in (
        (
            {"speed": "5%"},
            r"constraints.speed: .* allowed: slower, size, latency",
        ),
        ({"slower": "5"}, r"constraints.slower: '5' is not valid; allowed: a share such as 5%"),
        ({"size": "big"}, r"constraints.size: 'big' is not a size"),
        ({"size": "1GB"}, r"constraints.size: this was not measured in the trainings"),
    ):
        with pytest.raises((ArgumentError, ExperimentError), match=problem):
            decide(*sides, constraints=constraints, store=store)
