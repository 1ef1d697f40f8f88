"""What is kept of many looks.

Bounded in number, and true to energies, extremes and what was rare.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.resources import Gpu, GpuUsage, Inventory, NodeSample, Rollup, WorkerUsage
from workbench.hardware.resources.rollups import (
    LEVELS,
    MAX_WORKERS,
    Level,
    Moment,
    Range,
    aggregate,
    merge,
    next_span_s,
    outdated_before,
)

CARD = Gpu(0, "card", 8 << 30, "GPU-0", ("X",))
MACHINE = Inventory("node", 8, 1 << 34, (CARD,))
PERIOD_S = 2.0
parts = st.one_of(st.none(), st.floats(0, 1))
joules = st.one_of(st.none(), st.floats(0, 1e6))


@st.composite
def samples(draw: st.DrawFn) -> NodeSample:
    gpu = GpuUsage(
        utilisation=draw(parts),
        power_w=draw(joules),
        energy_j=draw(joules),
        memory_used_bytes=draw(st.one_of(st.none(), st.integers(0, 8 << 30))),
        temperature_c=draw(st.one_of(st.none(), st.integers(0, 110))),
    )
    return NodeSample(
        MACHINE,
        0.0,
        elapsed_s=PERIOD_S,
        cpu_utilisation=draw(parts),
        cpu_energy_j=draw(joules),
        gpus=(gpu,),
        memory_used_bytes=draw(st.integers(0, 1 << 34)),
    )


def moments(found: list[NodeSample]) -> list[Rollup]:
    return [
        Rollup(replace(sample, time_unix_s=1000.0 + PERIOD_S * n)) for n, sample in enumerate(found)
    ]


@given(st.lists(samples(), min_size=1, max_size=12), st.integers(1, 11))
def test_spans_of_spans_say_what_spans_of_looks_say(found: list[NodeSample], cut: int) -> None:
    looks = moments(found)
    once = merge(looks)
    halves = [part for part in (looks[:cut], looks[cut:]) if part]
    twice = merge([merge(part) for part in halves])
    assert once.num_looks == twice.num_looks == len(looks)
    assert once.mean.time_unix_s == twice.mean.time_unix_s == looks[-1].mean.time_unix_s
    assert once.mean.elapsed_s == pytest.approx(PERIOD_S * len(looks))
    for get in (lambda span: span.mean.cpu_energy_j, lambda span: span.mean.gpus[0].energy_j):
        known = [value for value in map(get, looks) if value is not None]
        assert get(once) == (pytest.approx(sum(known)) if known else None)
        assert get(twice) == (pytest.approx(sum(known)) if known else None)
    temperatures = [look.mean.gpus[0].temperature_c for look in looks]
    temperatures = [value for value in temperatures if value is not None]
    for span in (once, twice):
        range_c = span.extremes.gpus["GPU-0"].temperature_c
        assert range_c == (Range(min(temperatures), max(temperatures)) if temperatures else None)
        memory = [look.mean.memory_used_bytes for look in looks]
        assert span.extremes.memory_used_bytes == (min(memory), max(memory))
        assert min(memory) <= span.mean.memory_used_bytes <= max(memory)


@given(st.lists(samples(), min_size=1, max_size=4))
def test_a_span_is_read_as_it_was_written(found: list[NodeSample]) -> None:
    for span in (merge(moments(found)), Rollup(found[0])):
        assert Rollup.from_json(span.to_json()) == span


def test_what_is_rare_and_matters_is_kept() -> None:
    fine = NodeSample(MACHINE, 1.0, gpus=(GpuUsage(ecc_uncorrected=0),))
    hurt = NodeSample(
        MACHINE, 3.0, gpus=(GpuUsage(ecc_uncorrected=2, xids=(79,), slowed_by=("heat",)),)
    )
    gone = NodeSample(MACHINE, 5.0, "silent", gpus=(GpuUsage(state="lost", xids=(31,)),))
    merged = merge(
        [Rollup(sample) for sample in (fine, hurt, gone, replace(fine, time_unix_s=7.0))]
    )
    assert merged.mean.state == "silent"
    assert merged.mean.gpus == (
        GpuUsage(state="lost", ecc_uncorrected=2, xids=(79, 31), slowed_by=("heat",)),
    )


def test_a_span_tells_of_so_many_workers_and_those_that_stayed() -> None:
    def looked(number: int) -> Rollup:
        passing = WorkerUsage(pid=100 + number, trial=number, rank=0, cpus=1.0, memory_bytes=10)
        staying = WorkerUsage(pid=7, trial=999, rank=0, cpus=number / 10, memory_bytes=number)
        return Rollup(NodeSample(MACHINE, float(number), workers=(passing, staying)))

    workers = merge([looked(number) for number in range(60)]).mean.workers
    assert len(workers) == MAX_WORKERS
    stayed = next(worker for worker in workers if worker.trial == 999)
    assert (stayed.pid, stayed.cpus, stayed.memory_bytes) == (7, pytest.approx(2.95), 30)


def test_a_card_that_was_put_in_meanwhile_counts_from_then_on() -> None:
    alone = NodeSample(replace(MACHINE, gpus=()), 1.0)
    with_card = NodeSample(MACHINE, 3.0, gpus=(GpuUsage(utilisation=0.5, energy_j=8.0),))
    merged = merge([Rollup(alone), Rollup(with_card)])
    assert merged.mean.gpus == (GpuUsage(utilisation=0.5, energy_j=8.0),)


def thin(stored: dict[int, dict[Moment, Rollup]], now_s: float) -> None:
    """Do with a dictionary what the driver does with its store."""
    for level in LEVELS:
        until_s = outdated_before(level, now_s)
        old = {
            moment: span
            for moment, span in stored[level.span_s].items()
            if moment.time_unix_s < until_s
        }
        longer_s = next_span_s(level)
        for moment in old:
            del stored[level.span_s][moment]
        if longer_s is not None:
            longer = stored[longer_s]
            begins = {math.floor(moment.time_unix_s / longer_s) * longer_s for moment in old}
            old |= {
                moment: longer[moment] for moment in list(longer) if moment.time_unix_s in begins
            }
            longer |= aggregate(level, old.items())


def test_a_run_of_years_keeps_so_many_rows_and_every_joule_of_its_last_month() -> None:
    stored: dict[int, dict[Moment, Rollup]] = {level.span_s: {} for level in LEVELS}
    day_s, now_s, looked_s = 24 * 3600.0, 1e9, 500.0
    num_looks = 0
    hottest = 0.0
    while num_looks < 30 * day_s / looked_s:
        degrees = 40 + (num_looks * 7919) % 60
        hottest = max(hottest, degrees)
        usage = GpuUsage(energy_j=100.0, temperature_c=degrees)
        stored[0][Moment("node", now_s)] = Rollup(
            NodeSample(MACHINE, now_s, elapsed_s=looked_s, gpus=(usage,))
        )
        num_looks += 1
        now_s += looked_s
        if num_looks % 20 == 0:
            thin(stored, now_s)
    every = [span for level in stored.values() for span in level.values()]
    assert sum(span.num_looks for span in every) == num_looks
    assert sum(span.mean.gpus[0].energy_j or 0.0 for span in every) == pytest.approx(
        100.0 * num_looks
    )
    ranges = [span.extremes.gpus["GPU-0"].temperature_c for span in every]
    assert max(one.most for one in ranges if one is not None) == hottest
    assert min(one.least for one in ranges if one is not None) == 40
    thin(stored, now_s + 1000 * day_s)
    assert not stored[0]
    for _ in LEVELS:
        thin(stored, now_s + 1000 * day_s)
    assert not any(stored.values())


@given(st.floats(0, 2e9), st.sampled_from(LEVELS))
def test_a_level_holds_no_more_than_its_time_over_its_span(now_s: float, level: Level) -> None:
    oldest_kept_s = now_s - outdated_before(level, now_s)
    longer_s = next_span_s(level) or 0
    assert level.kept_s <= oldest_kept_s + 1e-6
    assert oldest_kept_s < level.kept_s + longer_s + 1e-6
    assert oldest_kept_s / (level.span_s or PERIOD_S) < 2500
