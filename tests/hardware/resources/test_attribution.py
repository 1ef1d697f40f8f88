"""Which trial used how much.

Nothing twice, nothing invented, and what is not known stays unknown.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.hardware.resources import (
    Assignment,
    Gpu,
    GpuUsage,
    Inventory,
    NodeSample,
    TrialEnergy,
    WorkerUsage,
)
from workbench.hardware.resources.attribution import attribute, total_energy

CARDS = tuple(Gpu(index, "card", 8 << 30, f"GPU-{index}") for index in range(2))
WITH_CARDS = Inventory("node", 8, 1 << 34, CARDS)
WITHOUT = Inventory("node", 8, 1 << 34)


def tenure(trial: int, began_s: float, ended_s: float | None = None, **more: object) -> Assignment:
    given_: dict[str, object] = {
        "rank": 0,
        "pid": 100 + trial,
        "node": "n",
        "gpus": ("0",),
        "gpu_share": 1.0,
    }
    return Assignment(trial=trial, began_unix_s=began_s, ended_unix_s=ended_s, **{**given_, **more})  # type: ignore[arg-type]


def look(
    *energies_j: float | None, until_s: float = 10.0, workers: tuple[WorkerUsage, ...] = ()
) -> NodeSample:
    usages = tuple(GpuUsage(energy_j=energy_j) for energy_j in energies_j)
    machine = WITH_CARDS if energies_j else WITHOUT
    return NodeSample(machine, until_s, elapsed_s=10.0, gpus=usages, workers=workers)


def worker(pid: int, cpu_energy_j: float | None) -> WorkerUsage:
    return WorkerUsage(pid, 0, 0, 1.0, 1, cpu_energy_j=cpu_energy_j)


def test_a_trial_used_what_its_gpus_used_while_it_held_them() -> None:
    tenures = [
        tenure(1, -5.0, 2.5),
        tenure(2, 5.0),
        tenure(3, 0.0, gpus=("GPU-1",)),
        tenure(4, 11.0),
    ]
    used = attribute("n", look(100.0, 40.0), tenures, {1: TrialEnergy(7.0, None)})
    assert {trial: usage.gpu_j for trial, usage in used.items()} == {
        1: 7.0 + 25.0,
        2: 50.0,
        3: 40.0,
    }
    assert attribute("other", look(100.0, 40.0), tenures, {}) == {}


def test_who_holds_a_part_of_a_gpu_used_that_part() -> None:
    tenures = [tenure(1, 0.0, gpu_share=0.5), tenure(2, 0.0, gpu_share=0.25)]
    used = attribute("n", look(100.0, 0.0), tenures, {})
    assert (used[1].gpu_j, used[2].gpu_j) == (50.0, 25.0)


def test_processors_are_divided_by_who_kept_them_busy() -> None:
    tenures = [
        tenure(1, 0.0, 5.0, pid=9, gpus=()),
        tenure(2, 5.0, pid=9, gpus=()),
        tenure(3, 0.0, gpus=()),
    ]
    used = attribute("n", look(workers=(worker(9, 60.0), worker(103, 12.0))), tenures, {})
    assert {trial: usage.cpu_j for trial, usage in used.items()} == {1: 30.0, 2: 30.0, 3: 12.0}
    assert {usage.gpu_j for usage in used.values()} == {0.0}


def test_what_nobody_metered_is_unknown_and_not_nothing() -> None:
    unmetered = attribute("n", look(None, 5.0), [tenure(1, 0.0)], {})[1]
    assert (unmetered, unmetered.total_wh, unmetered.is_known) == (TrialEnergy(), None, False)
    on_processors = attribute(
        "n", look(workers=(worker(101, None),)), [tenure(1, 0.0, gpus=())], {}
    )[1]
    assert (on_processors.total_wh, on_processors.is_known) == (None, False)
    on_gpus = attribute("n", look(3600.0, 0.0, workers=(worker(101, None),)), [tenure(1, 0.0)], {})[
        1
    ]
    assert on_gpus.total_wh == 1.0
    on_a_part_that_does_not_tell = tenure(1, 0.0, gpus=("MIG-1",))
    assert attribute("n", look(3600.0, 0.0), [on_a_part_that_does_not_tell], {})[1].total_wh is None
    assert total_energy([unmetered, on_gpus]).total_wh == 1.0
    assert total_energy([]).total_wh is None


times = st.floats(0.0, 100.0)


@given(st.lists(st.tuples(times, times, st.integers(0, 1)), max_size=8), st.floats(0, 1e6))
def test_trials_one_after_another_use_no_more_than_the_gpu_did(
    spans: list[tuple[float, float, int]], energy_j: float
) -> None:
    """However they lie to the looks: those on one card, that do not overlap, share what it used."""
    cuts = sorted(cut for begin, end, _ in spans for cut in (begin, end))
    tenures = [
        tenure(number, begin, end)
        for number, (begin, end) in enumerate(zip(cuts[::2], cuts[1::2], strict=True))
    ]
    so_far: dict[int, TrialEnergy] = {}
    for until_s in range(10, 120, 10):
        so_far |= attribute("n", look(energy_j, 0.0, until_s=until_s), tenures, so_far)
    held_s = sum(end - begin for begin, end in zip(cuts[::2], cuts[1::2], strict=True))
    total_j = total_energy(so_far.values()).gpu_j or 0.0
    assert total_j == pytest.approx(energy_j * held_s / 10.0, rel=1e-6, abs=1e-6)
