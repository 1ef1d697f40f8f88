"""Machines compared by what was measured of a law that is known."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advisor.test_plans import PLAIN, law_s, make_experiment, measure
from tests.builders.recorded_runs import append
from workbench.advisor.plan_variants import plan_with
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import AdviceGiven, PlanMeasured, RunStateChanged
from workbench.runs.provisioning.catalogue import Catalogue, read_catalogue
from workbench.runs.provisioning.evidence import Evidence, evidence_of
from workbench.runs.provisioning.offers import (
    CPU_SLACK,
    DEVICE_SLACK,
    Offer,
    Requirements,
    compare,
    slowdown,
    transfer,
)
from workbench.store.database import Store

SAMPLES = 4096
GIB = 2**30
CATALOGUE = read_catalogue()
T4 = "Tesla T4"


def experiment(**changes: Any) -> Experiment:
    usual = {
        "training": {"epochs": 50, "global_batch": 128},
        "budget": {"trials": 40},
        "search": {"lr": {"low": 1e-4, "high": 0.1, "log": True}},
    }
    return make_experiment(**(usual | changes))


def measured(device: str = T4, counts: tuple[int, ...] = (1, 2)) -> list[PlanMeasured]:
    return [
        measure(workers, size, law_s(workers, size), GIB + size * 2**20).model_copy(
            update={"num_train_samples": SAMPLES, "device": device, "setting": f"of {device}"}
        )
        for workers in counts
        for size in (16, 32, 64, 128, 256)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def evidence(store: Store, *devices: str, of: Experiment | None = None) -> list[Evidence]:
    for device in devices:
        run_id = store.create_run(of or experiment())
        append(store, run_id, [*measured(device), RunStateChanged(state="complete")])
    return evidence_of(store, of or experiment())


def only(*types: str) -> Catalogue:
    machines = tuple(CATALOGUE.machine(each) for each in types)
    return CATALOGUE.model_copy(update={"machines": machines})


def priced(type: str, on_demand: float | None = None, spot: float | None = None) -> Catalogue:
    """A catalogue of one machine with prices of the test's own."""
    said = {"origin": "a test", "date": "2026-11-22"}
    machine = CATALOGUE.machine(type).model_dump()
    machine |= {
        "on_demand": {"usd_per_hour": on_demand, **said},
        "spot": {"usd_per_hour": spot, **said},
    }
    return Catalogue.model_validate(CATALOGUE.model_dump() | {"machines": [machine]})


def offer(found: list[Offer], market: str = "on demand", machine: str | None = None) -> Offer:
    return next(each for each in found if each.market == market and machine in (None, each.machine))


def test_on_the_device_that_was_measured_time_and_cost_follow_from_the_steps(store: Store) -> None:
    known = evidence(store, T4)
    line = offer(
        compare(experiment(), known, priced("g4dn.xlarge", 0.5), Requirements(max_nodes=1))
    )
    assert line.measured
    assert (line.plan, line.at_once, line.fits) == (
        "128 samples = 128 x 1 accumulated x 1 worker",
        1,
        True,
    )
    assert line.step_s is not None
    assert line.run_s is not None
    assert line.cost_usd is not None
    run_s = 40 * 50 * (SAMPLES // 128) * law_s(1, 128)
    assert line.step_s.value == pytest.approx(law_s(1, 128))
    assert line.run_s.value == pytest.approx(run_s + 300.0)
    assert line.run_s.low < line.run_s.value < line.run_s.high
    assert line.cost_usd.value == pytest.approx((run_s + 300.0) / 3600 * 0.5)
    assert line.notes == ("measured on Tesla T4",)


def test_on_another_device_the_interval_spans_both_data_sheets_and_no_gain_at_all(
    store: Store,
) -> None:
    known = evidence(store, T4)
    line = offer(compare(experiment(), known, only("a2-highgpu-1g"), Requirements(max_nodes=1)))
    assert not line.measured
    assert line.step_s is not None
    assert line.step_s.extrapolated
    assert line.step_s.low < law_s(1, 128) * 320 / 1555 / DEVICE_SLACK * 1.01
    assert line.step_s.high > law_s(1, 128)
    assert "measured on Tesla T4, not on A100-40GB" in line.notes[0]


def test_the_nearest_device_is_taken_of_several_that_were_measured(store: Store) -> None:
    known = evidence(store, "cpu", T4, "NVIDIA L4")
    assert {measurement.device for measurement in known} == {"cpu", T4, "NVIDIA L4"}
    comparison = compare(
        experiment(), known, only("g4dn.xlarge", "g2-standard-4", "c5.2xlarge"), Requirements()
    )
    assert offer(comparison, machine="g4dn.xlarge").notes[0] == "measured on Tesla T4"
    assert offer(comparison, machine="g2-standard-4").notes[0] == "measured on NVIDIA L4"
    assert "measured on CPUs" in offer(comparison, machine="c5.2xlarge").notes[0]


def test_carrying_from_a_device_to_another_and_back_is_the_same_turned_round() -> None:
    a100, h100 = CATALOGUE.device("A100-40GB"), CATALOGUE.device("H100")
    there = transfer(a100, h100, precision="bf16", measured_name="a").factor
    back = transfer(h100, a100, precision="bf16", measured_name="h").factor
    assert there is not None
    assert back is not None
    assert there.value * back.value == pytest.approx(1.0)
    assert there.value == pytest.approx((312 / 989.5 * 1555 / 3350) ** 0.5)
    assert there.low == pytest.approx(312 / 989.5 / DEVICE_SLACK)
    assert there.high == DEVICE_SLACK  # a step that waits for its host is as long


def test_what_nothing_tells_of_is_not_guessed() -> None:
    t4 = CATALOGUE.device("T4")
    unknown = transfer(None, t4, precision="fp32", measured_name="NVIDIA B900")
    assert unknown.factor is None
    assert "Add it to `devices`" in unknown.reason
    assert transfer(t4, None, precision="fp32", measured_name=T4).factor is None
    assert transfer(None, t4, precision="fp32", measured_name="cpu").factor is None
    assert (
        transfer(None, t4, precision="bf16", measured_name="cpu", step_flops_per_s=1e9).factor
        is None
    )
    same = transfer(None, None, precision="fp32", measured_name="cpu").factor
    assert same is not None
    assert (same.low, same.high) == (1 / CPU_SLACK, CPU_SLACK)
    wide = transfer(None, t4, precision="fp32", measured_name="cpu", step_flops_per_s=8.1e9).factor
    assert wide is not None
    assert (wide.low, wide.high) == pytest.approx((8.1e9 / (0.6 * 8.1e12), 1.0))


def test_a_price_that_nobody_knows_stays_unknown(store: Store) -> None:
    line = offer(compare(experiment(), evidence(store, T4), priced("g4dn.xlarge"), Requirements()))
    assert line.cost_usd is None
    assert line.run_s is not None
    assert "its price is unknown" in line.notes
    assert not line.is_recommendable


def test_spot_machines_take_longer_by_what_interruptions_cost(store: Store) -> None:
    known = evidence(store, T4)
    comparison = compare(
        experiment(), known, priced("Standard_NC4as_T4_v3", 1.0, 0.3), Requirements(max_nodes=1)
    )
    steady, spot = offer(comparison), offer(comparison, "spot")
    assert steady.run_s is not None
    assert spot.run_s is not None
    assert spot.lost is not None
    trial_s = 50 * (SAMPLES // 128) * law_s(1, 128)
    expected = slowdown(0.1053605, trial_s / 50, 300.0)
    assert spot.run_s.value - 300 == pytest.approx((steady.run_s.value - 300) * expected, rel=1e-5)
    assert spot.lost.value == pytest.approx(1 - 1 / expected, rel=1e-5)
    assert spot.lost.low == 0.0
    assert spot.interruptions is not None
    assert spot.interruptions.value == pytest.approx(0.1053605 * spot.run_s.value / 3600, rel=1e-5)
    assert comparison[0] is spot  # a third of the price outweighs it


def test_where_nobody_says_how_often_it_is_interrupted_that_is_told(store: Store) -> None:
    line = offer(
        compare(experiment(), evidence(store, T4), only("a2-highgpu-1g"), Requirements()), "spot"
    )
    assert line.lost is None
    assert line.interruptions is None
    assert "how often it is interrupted is unknown and not taken into account" in line.notes


def test_more_machines_are_taken_where_the_deadline_asks_for_them(store: Store) -> None:
    known, catalogue = evidence(store, T4), priced("g4dn.xlarge", 0.5)
    long_run = offer(compare(experiment(), known, catalogue, Requirements(max_nodes=1)))
    assert long_run.run_s is not None
    deadline_s = 300.0 + (long_run.run_s.value - 300.0) / 3
    several = offer(compare(experiment(), known, catalogue, Requirements(deadline_s, max_nodes=8)))
    assert several.nodes >= 4
    assert several.run_s is not None
    assert several.run_s.value < deadline_s
    assert several.in_time in ("yes", "perhaps")
    late = offer(compare(experiment(), known, catalogue, Requirements(deadline_s, max_nodes=1)))
    assert late.in_time == "no"
    assert not late.is_recommendable


def test_lines_that_miss_a_wish_are_marked_and_come_after_those_that_do_not(store: Store) -> None:
    comparison = compare(
        experiment(),
        evidence(store, T4),
        CATALOGUE,
        Requirements(budget_usd=2.0, deadline_s=36_000.0),
    )
    assert len(comparison) == sum(len(machine.markets) for machine in CATALOGUE.machines)
    assert [line.rank() for line in comparison] == sorted(each.rank() for each in comparison)
    assert comparison[0].is_recommendable
    assert any(each.in_budget == "no" for each in comparison)


def test_after_what_has_a_price_comes_what_only_lacks_one_and_then_what_nothing_is_known_of(
    store: Store,
) -> None:
    vague = [measurement.model_copy(update={"step_flops": 1e6}) for measurement in measured("cpu")]
    append(store, store.create_run(experiment()), [*vague, RunStateChanged(state="complete")])
    machines = only("g4dn.xlarge", "c5.2xlarge", "e2-standard-32")
    comparison = compare(
        experiment(), evidence_of(store, experiment()), machines, Requirements(max_nodes=1)
    )
    assert [(line.machine, line.cost_usd is not None) for line in comparison] == [
        ("e2-standard-32", True),
        ("e2-standard-32", True),
        ("c5.2xlarge", False),
        ("c5.2xlarge", False),
        ("g4dn.xlarge", True),
        ("g4dn.xlarge", False),
    ]


def test_what_does_not_fit_into_memory_says_so(store: Store) -> None:
    huge = [
        measurement.model_copy(update={"peak_bytes": (measurement.peak_bytes or 0) * 40})
        for measurement in measured()
    ]
    run_id = store.create_run(experiment())
    append(store, run_id, [*huge, RunStateChanged(state="complete")])
    line = offer(
        compare(
            experiment(),
            evidence_of(store, experiment()),
            priced("g4dn.xlarge", 0.5),
            Requirements(),
        )
    )
    assert line.fits is False
    assert "no plan fits into 16 GiB of a worker" in line.notes
    assert not line.is_recommendable


def test_one_long_training_takes_several_gpus_and_says_that_they_were_not_measured(
    store: Store,
) -> None:
    long_run = experiment(budget={"trials": 1}, training={"epochs": 50, "global_batch": 2048})
    known = evidence(store, T4, of=long_run)
    line = offer(
        compare(long_run, known, CATALOGUE, Requirements(max_nodes=1)), machine="p4d.24xlarge"
    )
    assert line.plan is not None
    assert line.plan.startswith("2,048 samples = ")
    assert int(line.plan.rpartition(" x ")[2].partition(" ")[0]) > 2
    assert any("were not measured" in note for note in line.notes)


def test_a_run_that_its_time_ends_takes_that_time(store: Store) -> None:
    short = experiment(budget={"time": 600})
    line = offer(
        compare(short, evidence(store, T4, of=short), priced("g4dn.xlarge", 0.5), Requirements())
    )
    assert line.run_s is not None
    assert line.run_s.value == 900.0
    assert any("its time limit of 10 min ends it after about" in note for note in line.notes)


def test_the_advice_decides_batch_and_precision(store: Store) -> None:
    free = experiment(training={"epochs": 50})
    run_id = store.create_run(free)
    advice = {"choice": {"plan": plan_with(PLAIN, 1, 64, 4).to_json()}}
    append(
        store, run_id, [*measured(), AdviceGiven(advice=advice), RunStateChanged(state="complete")]
    )
    assert evidence_of(store, free)[0].usual.global_batch == 256


def test_without_a_measurement_it_says_how_to_get_one(store: Store) -> None:
    store.create_run(experiment())
    append(store, store.create_run(experiment(data="digits")), measured())
    with pytest.raises(
        ExperimentError, match=r"no measurement of this experiment.*workbench advise FILE"
    ):
        evidence_of(store, experiment())
    with pytest.raises(ExperimentError, match="machines can only be recommended for models"):
        evidence_of(
            store,
            Experiment(
                name="own",
                train="package.module:function",
                search={"x": {"low": 0.0, "high": 1.0}},
                objectives=[{"metric": "loss", "goal": "minimize"}],
            ),
        )


def test_offers_are_plain_values(store: Store) -> None:
    comparison = compare(experiment(), evidence(store, T4), only("g5.xlarge"), Requirements())
    assert comparison[0].to_json()["run_s"] == dataclasses.asdict(comparison[0].run_s)  # type: ignore[arg-type]


def test_where_next_to_nothing_is_known_nothing_is_recommended(store: Store) -> None:
    counted = [
        measurement.model_copy(update={"step_flops": 1e6}) for measurement in measured("cpu")
    ]
    append(store, store.create_run(experiment()), [*counted, RunStateChanged(state="complete")])
    known = evidence_of(store, experiment())
    comparison = compare(experiment(), known, priced("g4dn.xlarge", 0.5), Requirements())
    assert offer(comparison).is_vague
    assert offer(comparison).cost_usd is not None
    assert not any(each.is_recommendable for each in comparison)


def test_a_run_that_interruptions_keep_from_ending_has_no_time(store: Store) -> None:
    restless = priced("g4dn.xlarge", 0.5, 0.1).model_dump()
    often = {"least": 0.999, "most": 0.9999999, "per": "hour"}
    restless["interruptions"] = [interruption | often for interruption in restless["interruptions"]]
    training = {
        "epochs": 10**7,
        "global_batch": 128,
        "checkpoint_every": 10**7,
        "checkpoint_after": None,
    }
    whole = experiment(training=training)
    comparison = compare(
        whole, evidence(store, T4, of=whole), Catalogue.model_validate(restless), Requirements()
    )
    assert offer(comparison, "spot").run_s is None
    assert any(
        "it never gets from one checkpoint to the next" in note
        for note in offer(comparison, "spot").notes
    )
    assert not offer(comparison, "spot").is_recommendable


def test_without_interruptions_only_writing_checkpoints_costs() -> None:
    assert slowdown(0.0, 600.0, 300.0) == 1.0
    assert slowdown(0.0, 600.0, 300.0, write_s=6.0) == pytest.approx(1.01)


def test_the_formula_at_a_point() -> None:
    # M = 3600 s, tau = 600 s, R = 300 s: M exp(R/M) (exp(tau/M) - 1) / tau
    assert slowdown(1.0, 600.0, 300.0) == pytest.approx(
        6.0 * math.exp(1 / 12) * (math.exp(1 / 6) - 1)
    )
    assert slowdown(1.0, 600.0, 300.0) == pytest.approx(1.182728, abs=1e-6)


def test_rare_interruptions_cost_half_a_checkpoint_and_the_restart_each() -> None:
    rate = 1e-3
    assert slowdown(rate, 600.0, 300.0) == pytest.approx(
        1.0 + rate / 3600.0 * (300.0 + 300.0), rel=1e-6
    )


@given(
    rate=st.floats(0.0, 5.0),
    more=st.floats(0.0, 5.0),
    checkpoint_s=st.floats(1.0, 7200.0),
    restart_s=st.floats(0.0, 600.0),
)
def test_more_interruptions_never_cost_less(rate, more, checkpoint_s, restart_s):
    usual = slowdown(rate, checkpoint_s, restart_s)
    assert 1.0 - 1e-12 <= usual <= slowdown(rate + more, checkpoint_s, restart_s) + 1e-9


def test_a_training_that_never_ends_takes_for_ever() -> None:
    assert slowdown(3600.0, 1e6, 0.0) == math.inf


def test_it_is_what_playing_it_comes_to() -> None:
    rng, rate, tau, restart, segments = random.Random(0), 2.0, 900.0, 120.0, 4000
    elapsed_s = 0.0
    for _ in range(segments):
        fails_s = rng.expovariate(rate / 3600.0)
        while fails_s < tau:
            elapsed_s += fails_s
            while (again_s := rng.expovariate(rate / 3600.0)) < restart:
                elapsed_s += again_s
            elapsed_s += restart
            fails_s = rng.expovariate(rate / 3600.0)
        elapsed_s += tau
    assert elapsed_s / (segments * tau) == pytest.approx(slowdown(rate, tau, restart), rel=0.03)
