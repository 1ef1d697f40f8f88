"""How many trials share a GPU follows from what copies do together, and from what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor import memory
from workbench.cluster.workers.admission import Capacity, Shape
from workbench.experiment import Experiment, Resources
from workbench.hardware.resources import ClusterInventory, Gpu, Inventory
from workbench.hardware.resources.inventory import CONTEXT_BYTES, allowed_bytes
from workbench.sweeps.gpu_sharing import MAX_PER_GPU, WORTHWHILE, Copies, find_sharing

GB, GIB = 10**9, 2**30
RATES = st.lists(st.floats(1.0, 1e6), min_size=MAX_PER_GPU, max_size=MAX_PER_GPU)


def find(*rates: float | None, most: int = 8, **memory: object) -> tuple[int, str, list[int]]:
    tried: list[int] = []

    def measure(number: int) -> Copies:
        tried.append(number)
        rate = rates[number - 1]
        return Copies(rate, None if rate is not None else "memory ran out")

    sharing = find_sharing(measure, most=most, why_most="there are no more cores", **memory)  # type: ignore[arg-type]
    return sharing.per_gpu, sharing.describe(), tried


def test_more_are_tried_in_doublings_while_all_together_are_faster() -> None:
    per_gpu, words, tried = find(*(100.0 * number for number in range(1, 9)))
    assert (per_gpu, tried) == (8, [1, 2, 4, 8])
    assert "there are no more cores" in words


def test_between_what_pays_and_what_does_not_the_distance_is_halved() -> None:
    per_gpu, words, tried = find(100.0, 190.0, 240.0, 270.0, 330.0, 340.0, 341.0, 320.0)
    assert (per_gpu, tried) == (6, [1, 2, 4, 8, 6, 7])
    assert words.startswith(
        "6 trials share each GPU: 7 make 1.00 times the samples per second of 6"
    )
    assert find(100.0, 190.0, 280.0, 195.0)[::2] == (3, [1, 2, 4, 3])


def test_a_full_device_is_not_shared() -> None:
    per_gpu, words, _ = find(100.0, 97.0)
    assert per_gpu == 1
    assert words.startswith("each trial has a GPU to itself: 2 make 0.97 times")


def test_copies_that_run_out_of_memory_are_one_too_many() -> None:
    per_gpu, words, tried = find(100.0, 190.0, None, None)
    assert (per_gpu, tried) == (2, [1, 2, 4, 3])
    assert "3 do not fit: memory ran out" in words
    assert find(None)[0] == 1


def test_there_are_never_more_than_cores_for_them() -> None:
    per_gpu, words, tried = find(100.0, 190.0, 280.0, most=2)
    assert per_gpu == 2
    assert tried == [1, 2]
    assert "there are no more cores" in words


def test_the_largest_training_of_the_search_must_fit_as_often() -> None:
    per_gpu, words, tried = find(
        100.0,
        190.0,
        280.0,
        370.0,
        peak_bytes=20 * GB,
        allowed_bytes=lambda number: allowed_bytes(80 * GB, 1.0 / number),
    )
    assert per_gpu == 3
    assert tried == [1, 2, 3], "what would run out of memory is not tried"
    assert "the largest training holds 18.6 GiB" in words


@given(RATES, st.integers(1, 12))
def test_what_is_chosen_pays_beside_what_was_measured_below_it(
    rates: list[float], most: int
) -> None:
    per_gpu, _, tried = find(*rates, most=most)
    assert 1 <= per_gpu <= min(most, MAX_PER_GPU)
    assert len(tried) == len(set(tried)) <= 6
    below = max((number for number in tried if number < per_gpu), default=None)
    if below is not None:
        assert rates[per_gpu - 1] >= WORTHWHILE ** (per_gpu - below) * rates[below - 1]
    if per_gpu < min(most, MAX_PER_GPU):
        assert per_gpu + 1 in tried
        assert rates[per_gpu] < WORTHWHILE * rates[per_gpu - 1]


@given(st.floats(4 * GB, 200 * GB), st.integers(2, 8))
def test_parts_and_their_contexts_fit_into_the_whole(total_bytes: float, number: int) -> None:
    share_bytes = allowed_bytes(total_bytes, 1.0 / number)
    assert share_bytes > 0.0
    if total_bytes >= 2 * number * CONTEXT_BYTES:
        assert number * (share_bytes + CONTEXT_BYTES) <= total_bytes * (1 + 1e-9)


@pytest.mark.parametrize("share", [1.0, 2.0, Resources().gpu_share])
def test_a_gpu_of_ones_own_may_be_filled(share: float) -> None:
    assert allowed_bytes(16 * GB, share) == 16 * GB


def test_no_further_number_is_measured_once_the_time_is_up() -> None:
    measured: list[int] = []

    def measure(number: int) -> Copies:
        measured.append(number)
        return Copies(100.0 * number)

    sharing = find_sharing(measure, most=8, why_most="never", has_time=lambda: len(measured) < 3)
    assert (sharing.per_gpu, measured) == (4, [1, 2, 4])
    assert sharing.reason == "the run's time is too short to measure more"


@pytest.mark.parametrize(("gpus", "expected_gib"), [(1.0, 16), (2.0, 16), (0.25, 3), (0.0625, 0.5)])
def test_a_worker_is_thought_to_have_what_it_may_hold_of_a_gpu(
    gpus: float, expected_gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Inventory("a", 8, 64 * GIB, (Gpu(0, "some GPU", 16 * GIB, "GPU-1"),))
    monkeypatch.setattr(memory, "inventory", lambda: here)
    capacity = Capacity(Shape(1, gpus), (1,), "pack")
    experiment = Experiment(
        model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}]
    )
    limit_bytes = memory.memory_limit_bytes(experiment, capacity, ClusterInventory(()))
    assert limit_bytes == expected_gib * GIB
