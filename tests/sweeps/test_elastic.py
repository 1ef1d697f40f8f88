"""When trials grow, shrink and go back, judged by numbers; and trials that really do."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services.clusters import Cluster
from tests.services.sweeps import Sweep, make_experiment, start_on
from tests.services.waiting import wait_until
from workbench.cluster.workers.admission import Request, Shortage
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    DriverStarted,
    Noted,
    ResizeMeasured,
    RunStateChanged,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from workbench.hardware.resources import ClusterInventory
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.database.run_files import trial_folder
from workbench.sweeps.elastic import GUARD_REPORTS, ElasticTrials, is_behind
from workbench.sweeps.elastic_gain import MIN_SAVING, estimate_gain, fitness, is_better_shared
from workbench.sweeps.ledger import Ledger

SPEED = st.floats(0.1, 1e6)
SAMPLES = st.floats(0, 1e9)
SECONDS = st.floats(0, 1e4)


@pytest.mark.parametrize(
    ("left", "now", "expected", "restart_s", "left_s", "saving_s", "pays"),
    [
        (100_000, 1000, 2000, 10, 100, 40, True),
        (100_000, 1000, 1100, 10, 100, -0.909, False),  # hardly faster
        (15_000, 1000, 2000, 10, 15, -2.5, False),  # nearly done
        (100_000, 1000, 1000, 0, 100, 0, False),  # as fast
        (100_000, 1000, 500, 0, 100, -100, False),  # slower
        (100_000, 1000, 2000, 41, 100, 9, False),  # saves less than speeds are exact
        (0, 1000, 2000, 0, 0, 0, False),
    ],
)
def test_growing_pays_where_what_is_left_clearly_ends_earlier(
    *,
    left: float,
    now: float,
    expected: float,
    restart_s: float,
    left_s: float,
    saving_s: float,
    pays: bool,
) -> None:
    gain = estimate_gain(left, now, expected, restart_s)
    assert (gain.left_s, gain.saving_s) == (
        pytest.approx(left_s),
        pytest.approx(saving_s, abs=1e-3),
    )
    assert gain.pays is pays


@given(SAMPLES, SPEED, SPEED, SECONDS)
def test_what_pays_is_faster_and_saves_more_than_the_restart_costs(
    left: float, now: float, expected: float, restart_s: float
) -> None:
    gain = estimate_gain(left, now, expected, restart_s)
    if gain.pays:
        assert expected > now
        assert gain.left_s > restart_s
        assert left / expected + restart_s < (1 - MIN_SAVING) * left / now * (1 + 1e-9)


@given(st.floats(0, 1e4), SPEED, st.floats(0.5, 8), st.floats(0, 1e3), st.floats(1, 100))
def test_what_pays_also_pays_with_more_left_a_faster_gang_or_a_cheaper_restart(
    left_s: float, now: float, speedup: float, restart_s: float, factor: float
) -> None:
    left, expected = left_s * now, now * speedup
    pays = estimate_gain(left, now, expected, restart_s).pays
    assert pays <= estimate_gain(left * factor, now, expected, restart_s).pays
    assert pays <= estimate_gain(left, now, expected * factor, restart_s).pays
    assert pays <= estimate_gain(left, now, expected, restart_s / factor).pays


@given(st.lists(st.floats(0.1, 64), min_size=1, max_size=5))
def test_runs_are_served_as_well_as_the_harmonic_mean_of_their_speedups(
    speedups: list[float],
) -> None:
    assert fitness(speedups) == pytest.approx(statistics.harmonic_mean(speedups))
    assert fitness([*speedups, 0.0]) == 0.0


@pytest.mark.parametrize(
    ("own", "other", "loss", "gain", "is_better"),
    [
        (1.8, 0.0, 0.8, 1, True),  # the other run has nothing
        (8.0, 1.0, 1.0, 1, True),  # 2 * 8 / 9 = 1.78 -> 2 * 7 * 2 / 9 = 3.11
        (2.0, 2.0, 1.0, 1, False),  # 2 -> 1.5
        (4.0, 1.0, 3.0, 1, False),  # 1.6 -> 1.33: its batch can only be divided by 4
        (1.8, 1.0, 0.8, 1, False),  # 1.286 -> 1.333 is not worth a restart
        (2.0, 1.0, 2.0, 1, False),  # it would have nothing left
    ],
)
def test_workers_go_to_the_run_that_makes_more_of_them(
    *, own: float, other: float, loss: float, gain: float, is_better: bool
) -> None:
    assert is_better_shared(own, other, loss=loss, gain=gain) is is_better


def power_law(rungs: range, *, offset: float = 0.0) -> dict[int, float]:
    """A loss that falls as losses do, with a little noise."""
    rng = random.Random(len(rungs))
    return {rung: 0.2 + rung**-0.5 + offset + rng.gauss(0.0, 0.003) for rung in rungs}


OTHERS = [power_law(range(1, 41), offset=0.02 * number) for number in range(3)]


@pytest.mark.parametrize("others", [[], OTHERS])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_trial_is_behind_only_where_its_curve_leaves_its_forecast(
    others: list[dict[int, float]], sign: float
) -> None:
    def signed(curve: dict[int, float]) -> dict[int, float]:
        return {rung: -sign * value for rung, value in curve.items()}

    before, examples = signed(power_law(range(1, 17))), [signed(curve) for curve in others]
    as_expected = signed(power_law(range(17, 25)))
    spoiled = signed(power_law(range(17, 25), offset=0.3))
    better = signed(power_law(range(17, 25), offset=-0.2))
    assert not is_behind(before, as_expected, examples, sign)
    assert not is_behind(before, better, examples, sign)
    assert is_behind(before, spoiled, examples, sign)
    once = dict(list(as_expected.items())[:-1] + list(spoiled.items())[-1:])
    assert not is_behind(before, once, examples, sign)
    few = dict(list(spoiled.items())[: GUARD_REPORTS - 1])
    assert not is_behind(before, few, examples, sign)


def test_nothing_is_behind_where_nothing_can_be_forecast() -> None:
    assert not is_behind({}, {1: 9.0, 2: 9.0}, [], -1.0)
    assert not is_behind({1: 1.0}, {2: 9.0, 3: 9.0}, [], -1.0)


def experiment(sample_s: float = 0.001, epochs: tuple[int, ...] = (1, 6), **fields: Any) -> Any:
    """A model that two workers train twice as fast as one, for 1 and for 6 epochs at once."""
    return make_experiment(
        "none",
        **{
            "train": None,
            "model": {"name": "sweep_models:Waiting", "sample_s": sample_s},
            "data": "digits",
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "search": {"epochs": {"choices": list(epochs)}},
            "sampler": "grid",
            "training": {"global_batch": 64, "optimizer": "sgd", "lr": 0.05},
            "resources": {"elastic": True, "max_retries": 0},
            **fields,
        },
    )


class Recorded:
    """A trial whose reports are recorded in a store, as a driver would, without any process."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
        self.lacking: Shortage | None = None
        self.num_free = 0
        monkeypatch.setattr("workbench.sweeps.elastic.shortage", lambda *_: self.lacking)
        monkeypatch.setattr("workbench.sweeps.elastic.num_free", lambda *_: self.num_free)
        inventory = ClusterInventory(nodes=())
        monkeypatch.setattr("workbench.sweeps.elastic.cluster_inventory", lambda: inventory)
        monkeypatch.setattr("workbench.sweeps.elastic.CHECK_EVERY_S", 0.0)
        settings = {"plan": {"workers": workers}, "sampler": "random", "search": {}}
        self.run_id = store.create_run(experiment(training=TRAINING, **settings))
        self.ledger = Ledger(store, self.run_id)
        self.folder = store.artifacts_of(self.run_id).below(trial_folder(0))
        self.epoch = self.attempt = 0
        self._writer = store.writer(self.run_id, owner_pid=1, owner_host="elsewhere")
        self.ledger.replay(self._writer.__enter__())
        proposal = self.ledger.study.ask()
        assert proposal is not None
        self.ledger.record(proposal.event())
        self.growth = ElasticTrials(store, self.ledger, store.artifacts_of(self.run_id))

    def start(self, workers: int) -> None:
        plan: dict[str, Any] = {"workers": workers, "micro_batch": 64 // workers, "accumulation": 1}
        plan |= {"global_batch": 64, "strategy": "single" if workers == 1 else "ddp"}
        self.ledger.record(
            TrialStarted(trial=0, attempt=self.attempt, worker_pids=[1] * workers, plan=plan),
            TrialPlanned(trial=0, plan=PLAN | plan),
        )

    def train(self, *losses: float, speed: float = 1000.0) -> bool:
        """Report an epoch for each loss, and return whether the trial changes its workers."""
        for loss in losses:
            self.epoch += 1
            events: Any = [
                TrialReported(
                    trial=0,
                    attempt=self.attempt,
                    step=23 * self.epoch,
                    epoch=float(self.epoch),
                    values={"val_loss": loss},
                    samples_per_s=speed,
                ),
                CheckpointSaved(
                    trial=0, attempt=self.attempt, step=23 * self.epoch, path="last.pt"
                ),
            ]
            self.ledger.record(*events)
            self.ledger.study.take_report(events[0])
            request = Request(self.run_id, num_workers=1)
            if self.growth.decide(0, events, request, 0):
                self.attempt += 1
                return True
        return False

    @property
    def resized(self) -> TrialResized:
        return self.ledger.history.trials[0].resizes[-1].decided

    def close(self) -> None:
        self._writer.__exit__(None, None, None)


TRAINING = {"global_batch": 64, "optimizer": "sgd", "lr": 0.05, "epochs": 1000}
PLAN: dict[str, Any] = {
    "precision": "fp32",
    "recompute": "none",
    "compile": "none",
    "memory_format": "contiguous",
    "loaders": 0,
    "stages": 1,
    "tensor": 1,
    "bucket": "default",
    "pipeline_schedule": "1f1b",
    "exchange": "allreduce",
}
WAITS = Shortage("waiter", num_requested=1, num_missing=1, other_speedup=0.0, own_speedup=2.0)


@pytest.fixture
def recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    one = Recorded(store, monkeypatch, workers=2)
    yield one
    one.close()


def test_a_trial_shrinks_for_a_run_without_workers_and_keeps_its_batch(recorded: Recorded) -> None:
    recorded.start(2)
    assert not recorded.train(0.9, 0.8, 0.7)
    recorded.lacking = WAITS
    assert recorded.train(0.6)
    assert (recorded.resized.cause, recorded.resized.for_run) == ("request", "waiter")
    assert (recorded.resized.from_workers, recorded.resized.to_workers) == (2, 1)
    assert recorded.resized.rung == 4
    # One worker is at least half as fast as two.
    assert recorded.resized.expected_samples_per_s == 500.0
    assert recorded.resized.expected_saving_s < 0
    trial = recorded.ledger.history.trials[0]
    assert trial.decided_plan == PartialPlan.of(workers=1, micro_batch=32, accumulation=2)
    assert trial.setbacks[-1].message.startswith(
        "shrinks from 2 to 1 worker, because run waiter waits for workers"
    )
    assert recorded.growth.speedup(0) == 1.0


def test_a_trial_keeps_what_helps_it_more_than_the_other_run(recorded: Recorded) -> None:
    recorded.start(2)
    recorded.lacking = dataclasses.replace(WAITS, other_speedup=4.0)
    assert not recorded.train(0.9, 0.8, 0.7, 0.6)
    recorded.lacking = dataclasses.replace(WAITS, num_missing=2)  # it would have nothing left
    assert not recorded.train(0.5)


def test_a_trial_goes_back_to_the_files_from_before_and_stays_there(recorded: Recorded) -> None:
    checkpoints = recorded.folder.below("checkpoints")
    checkpoints.prepare()
    checkpoints.write("last.pt", b"before")
    recorded.start(2)
    recorded.train(*power_law(range(1, 17)).values())
    recorded.lacking = WAITS
    assert recorded.train(power_law(range(1, 18))[17])
    recorded.growth.prepare(recorded.ledger.history.trials[0])
    recorded.start(1)
    recorded.lacking = None
    checkpoints.delete("")
    checkpoints.write("last.pt", b"after")
    checkpoints.write("best.pt", b"after")

    assert not recorded.train(1.5)
    assert recorded.train(1.5)
    assert (recorded.resized.cause, recorded.resized.to_workers) == ("guard", 2)
    trial = recorded.ledger.history.trials[0]
    assert trial.decided_plan.workers == 2
    assert trial.decided_plan.global_batch == trial.plan.global_batch == 64
    recorded.growth.prepare(trial)
    assert checkpoints.read("last.pt") == b"before"
    assert not checkpoints.exists("best.pt")
    recorded.start(2)
    recorded.lacking, recorded.num_free = WAITS, 8
    assert not recorded.train(0.5, 0.5, 0.5)
    recorded.growth.tidy(0)
    assert not recorded.folder.below("before_resize").stamps()


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, ray_head: Path) -> Iterator[Store]:
    """A store with a run that has measured how fast two workers are."""
    with Store.open(str(tmp_path_factory.mktemp("taught") / "store.sqlite")) as store:
        pair = experiment(epochs=(3,), plan={"workers": 2}, resources={})
        sweep = Sweep(store, store.create_run(pair))
        assert sweep.launch("inline").state == "complete"
        yield store


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_the_trial_that_remains_grows_and_ends_as_if_it_had_not(
    taught: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.elastic.ElasticTrials._restart_s", lambda *_: 0.1)
    sweep = Sweep(taught, taught.create_run(experiment())).launch("inline")
    plain = Sweep(taught, taught.create_run(experiment(sample_s=0, resources={}))).launch("inline")

    [resized] = sweep.of(TrialResized)
    long = sweep.trial_with(epochs=6)
    assert (resized.trial, resized.attempt) == (long.number, 0)
    assert (resized.from_workers, resized.to_workers) == (1, 2)
    [ended] = sweep.of(AttemptEnded)
    plan = {"workers": 2, "micro_batch": 32, "accumulation": 1, "global_batch": 64}
    assert (ended.trial, ended.reason, ended.next_plan) == (long.number, "resized", plan)
    # Not before the other one has given its worker back.
    [short_end] = sweep.of(TrialEnded, sweep.trial_with(epochs=1).number)
    assert short_end.time_unix_s < resized.time_unix_s

    first, second = sweep.of(TrialStarted, long.number)
    assert (len(first.worker_pids), len(second.worker_pids)) == (1, 2)
    assert second.resumed_from is not None
    last = sweep.of(TrialPlanned, long.number)[-1].plan
    assert (last["global_batch"], last["strategy"]) == (64, "ddp")
    [measured] = sweep.of(ResizeMeasured)
    assert (measured.attempt, measured.to_workers) == (1, 2)
    assert measured.samples_per_s > resized.samples_per_s
    assert measured.restart_s is not None
    assert (
        Run(taught, sweep.run_id).to_json()["trials"][long.number]["resizes"][0]["measured"]
        is not None
    )

    undisturbed = plain.trial_with(epochs=6)
    assert (long.state, long.last_step) == ("complete", undisturbed.last_step)
    assert long.values == pytest.approx(undisturbed.values, abs=1e-3)
    assert plain.of(TrialResized) == []
    sweep.assert_sound()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_killed_driver_finds_the_decision_and_a_grown_trial_can_be_stopped(taught: Store) -> None:
    long = experiment(epochs=(2000,), early_stop={"pruner": "median"})
    sweep = Sweep(taught, taught.create_run(long)).launch()
    sweep.wait_for(TrialResized)
    os.kill(sweep.of(DriverStarted)[0].pid, signal.SIGKILL)

    again = sweep.wait_for(TrialStarted, lambda event: event.attempt == 1)
    assert len(again.worker_pids) == 2
    assert again.resumed_from is not None
    sweep.wait_for(ResizeMeasured)
    Run(taught, sweep.run_id).stop(trial=0)
    sweep.wait("complete")
    assert (sweep.trials[0].state, sweep.trials[0].attempts) == ("stopped", 2)
    assert len(sweep.of(DriverStarted)) == 2
    assert len(sweep.of(TrialResized)) == 1
    sweep.assert_sound()


@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_nothing_grows_onto_more_workers_than_were_ever_measured(store: Store) -> None:
    sweep = Sweep(store, store.create_run(experiment(sample_s=0.0005, epochs=(2000,)))).launch()
    reason = "the speed on 2 workers was never measured here"
    try:
        noted = sweep.wait_for(Noted, lambda event: reason in event.message)
    finally:
        Run(store, sweep.run_id).stop()
        sweep.wait("stopped")
    assert noted.level == "info"
    assert sum(reason in event.message for event in sweep.of(Noted)) == 1
    assert sweep.of(TrialResized) == []


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_grown_trial_goes_on_where_there_are_fewer_workers_by_now(store: Store) -> None:
    sweep = Sweep(store, store.create_run(experiment(sample_s=0, epochs=(1,))))
    plan: dict[str, Any] = {"workers": 1, "micro_batch": 64, "accumulation": 1, "global_batch": 64}
    grown: dict[str, Any] = {"workers": 8, "micro_batch": 8, "accumulation": 1}
    with store.writer(sweep.run_id, owner_pid=1, owner_host="elsewhere") as writer:
        writer.append(
            DriverStarted(pid=1, host="elsewhere", num_cpus=8),
            RunStateChanged(state="running"),
            TrialProposed(trial=0, params={"epochs": 1}, configuration=0, seed=1),
            TrialStarted(trial=0, attempt=0, worker_pids=[2]),
            TrialPlanned(trial=0, plan=plan),
            AttemptEnded(trial=0, attempt=0, reason="resized", message="it grows", next_plan=grown),
            RunStateChanged(state="stopped", reason="person"),
        )
    sweep.launch("inline")
    [trial] = sweep.trials
    assert (trial.state, trial.attempts) == ("complete", 2)
    assert (trial.plan.workers, trial.plan.global_batch) == (1, 64)
    assert "because 8 are no longer available" in sweep.of(AttemptEnded)[-1].message


def remember_restarts(store: Store, measured: Any) -> None:
    """Add a run that measured how little a restart costs, instead of the 10 s that are assumed."""
    with store.writer(store.create_run(measured), owner_pid=1, owner_host="elsewhere") as writer:
        writer.append(
            DriverStarted(pid=1, host="elsewhere", num_cpus=4),
            RunStateChanged(state="running"),
            TrialProposed(trial=0, params={"epochs": 6}, configuration=0, seed=1),
            ResizeMeasured(
                trial=0,
                attempt=1,
                samples_per_s=2.0,
                restart_s=0.1,
                from_workers=1,
                to_workers=2,
                saving_s=1.0,
            ),
            RunStateChanged(state="stopped", reason="person"),
        )


@pytest.mark.slow
@pytest.mark.ray
def test_a_copy_in_two_stages_grows_to_two_copies_and_ends_as_if_it_had_not(
    store: Store, tmp_path: Path
) -> None:
    def in_stages(workers: int, epochs: int, *, elastic: bool, sample_s: float = 0.0005) -> Any:
        return experiment(
            epochs=(epochs,),
            name="stages",
            resources={"elastic": elastic, "max_retries": 0},
            model={"name": "tests.sweeps.sweep_models:waiting_blocks", "sample_s": sample_s},
            # How many stages a model has is open where a strategy is written.
            plan={"workers": workers, "strategy": "pipeline"}
            | ({"stages": 2} if workers == 4 else {}),
        )

    cluster = Cluster(tmp_path / "cluster", head_cpus=4)
    try:
        start_on(cluster, store, in_stages(4, 2, elastic=False), tmp_path).wait(
            "complete", timeout_s=180
        )
        grows = in_stages(2, 6, elastic=True)
        remember_restarts(store, grows)
        sweep = start_on(cluster, store, grows, tmp_path).wait("complete", timeout_s=180)
        plain = start_on(cluster, store, in_stages(2, 6, elastic=False, sample_s=0.0), tmp_path)
        plain.wait("complete", timeout_s=180)
    finally:
        cluster.close()

    [resized] = sweep.of(TrialResized)
    assert (resized.from_workers, resized.to_workers) == (2, 4)
    first, second = sweep.of(TrialStarted)
    assert (len(first.worker_pids), len(second.worker_pids)) == (2, 4)
    assert second.resumed_from is not None
    before, after = (event.plan for event in sweep.of(TrialPlanned))
    assert (before["stages"], after["stages"], after["micro_batch"]) == (2, 2, 32)
    assert before["global_batch"] == after["global_batch"] == 64
    [trial], [undisturbed] = sweep.trials, plain.trials
    assert (trial.state, trial.last_step) == ("complete", undisturbed.last_step)
    assert trial.values == pytest.approx(undisturbed.values, abs=1e-5)
    sweep.assert_sound()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_trial_returns_a_worker_that_another_run_waits_for_and_takes_it_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.elastic.ElasticTrials._restart_s", lambda *_: 0.1)
    long = Sweep(store, store.create_run(experiment(epochs=(2000,), plan={"workers": 2}))).drive()
    try:
        long.wait_for(TrialPlanned)
        short = Sweep(store, store.create_run(experiment(epochs=(2,), resources={}))).drive()
        short.wait("complete")
        long.wait_for(TrialResized, lambda event: event.cause == "idle")
        wait_until(lambda: len(long.of(TrialPlanned)) == 3)
    finally:
        Run(store, long.run_id).stop()
        long.wait("stopped")

    shrunk, grown = long.of(TrialResized)[:2]
    assert (shrunk.cause, shrunk.for_run) == ("request", short.run_id)
    assert (shrunk.from_workers, shrunk.to_workers) == (2, 1)
    assert (grown.cause, grown.from_workers, grown.to_workers) == ("idle", 1, 2)
    [began], [ended] = short.of(TrialStarted), short.of(TrialEnded)
    assert shrunk.time_unix_s < began.time_unix_s < ended.time_unix_s < grown.time_unix_s
    starts = long.of(TrialStarted)[:3]
    assert [len(start.worker_pids) for start in starts] == [2, 1, 2]
    assert all(start.resumed_from is not None for start in starts[1:])
    plans = [event.plan for event in long.of(TrialPlanned)][:3]
    assert [plan["global_batch"] for plan in plans] == [64, 64, 64]
    long.assert_sound()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_trial_that_falls_behind_goes_back_and_ends_as_if_it_had_not_grown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.sweeps.elastic.ElasticTrials._restart_s", lambda *_: 0.1)

    def spoiled(*epochs: int, sample_s: float = 0.0005, **fields: Any) -> Any:
        model = {"name": "sweep_models:SpoiledBySmallParts", "sample_s": sample_s}
        return experiment(epochs=epochs, model=model, **fields)

    pair = spoiled(3, plan={"workers": 2}, resources={})
    Sweep(store, store.create_run(pair)).launch("inline")
    sweep = Sweep(store, store.create_run(spoiled(8, 30))).launch("inline")
    plain = Sweep(store, store.create_run(spoiled(8, 30, sample_s=0.0, resources={})))
    plain.launch("inline")

    grown, back = sweep.of(TrialResized)
    long = sweep.trial_with(epochs=30)
    assert {grown.trial, back.trial} == {long.number}
    assert (grown.cause, grown.to_workers) == ("idle", 2)
    assert (back.cause, back.from_workers, back.to_workers) == ("guard", 2, 1)
    assert [len(start.worker_pids) for start in sweep.of(TrialStarted, long.number)] == [1, 2, 1]
    undisturbed = plain.trial_with(epochs=30)
    assert (long.state, long.last_step) == ("complete", undisturbed.last_step)
    assert long.values == pytest.approx(undisturbed.values, abs=1e-3)
    folder = store.artifacts_of(sweep.run_id).below(trial_folder(long.number))
    assert not folder.below("before_resize").stamps()
    sweep.assert_sound()
