"""The batch for the shortest time to accuracy: step times weighed against gradient noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.batch_choice import BatchPlan, SeenNoise, StepTimes, rank_batches, read_noise
from workbench.foundation.errors import DataError, ResourcesError

BATCHES = [64, 128, 256, 512, 1024]


def affine(start_s: float, per_sample_s: float) -> StepTimes:
    def step_times(plans: Sequence[BatchPlan]) -> list[float]:
        return [plan.accumulation * (start_s + per_sample_s * plan.micro_batch) for plan in plans]

    return step_times


def seen(scale: float, batch: int = 64) -> SeenNoise:
    return SeenNoise(64, {batch: ([1000.0], [scale])})


def best(noise: SeenNoise, step_times: StepTimes, workers: int = 1, most: int = 4096) -> int:
    ranking = rank_batches(BATCHES, noise, step_times, num_workers=workers, max_micro_batch=most)
    return ranking[0].global_batch


def test_without_noise_small_steps_win_and_with_much_of_it_large_ones() -> None:
    half_and_half = affine(0.1, 0.001)
    assert best(seen(0.01), half_and_half) == 64
    assert best(seen(1e9), half_and_half) == 1024
    assert best(seen(300.0), half_and_half) in (128, 256, 512)


def test_steps_that_cost_nothing_to_start_are_best_small() -> None:
    assert best(seen(1000.0), affine(0.0, 0.001)) == 64


def test_times_are_relative_to_the_best_and_steps_to_the_reference_batch() -> None:
    ranking = rank_batches(
        BATCHES, seen(1e12), affine(1.0, 1e-9), num_workers=1, max_micro_batch=4096
    )
    assert [ranked.global_batch for ranked in ranking] == BATCHES[::-1]
    # Steps of one length, each worth as many as it has samples.
    assert [ranked.time_to_accuracy_relative for ranked in ranking] == pytest.approx(
        [1, 2, 4, 8, 16]
    )
    assert [ranked.steps_relative for ranked in ranking] == pytest.approx(
        [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]
    )


@given(
    workers=st.integers(1, 16),
    most=st.integers(1, 300),
    batches=st.sets(st.integers(16, 5000), min_size=1, max_size=5),
)
def test_plans_fit_the_gpu_and_reach_the_batch_without_a_micro_step_too_many(
    workers: int, most: int, batches: set[int]
) -> None:
    ranking = rank_batches(
        sorted(batches), seen(500.0), affine(0.1, 0.001), num_workers=workers, max_micro_batch=most
    )
    assert {ranked.global_batch for ranked in ranking} == batches
    for ranked in ranking:
        plan = ranked.plan
        assert 1 <= plan.micro_batch <= most
        assert plan.workers == workers
        assert plan.global_batch >= ranked.global_batch
        assert plan.global_batch - ranked.global_batch < workers * plan.accumulation
        fewest = -(-ranked.global_batch // (workers * most))
        assert plan.accumulation == fewest or plan.global_batch > ranked.global_batch
    times = [ranked.time_to_accuracy_relative for ranked in ranking]
    assert times == sorted(times)
    assert times[0] == 1.0


def test_the_later_the_end_the_larger_the_batch_that_growing_noise_bears() -> None:
    step_times = affine(0.1, 0.001)

    def steps_of_the_largest(end: float) -> float:
        ranking = rank_batches(
            BATCHES, seen(100.0), step_times, num_workers=1, max_micro_batch=4096, end=end
        )
        return next(ranked.steps_relative for ranked in ranking if ranked.global_batch == 1024)

    assert steps_of_the_largest(100_000.0) < steps_of_the_largest(1000.0)


def test_the_best_batch_loses_least_on_average_over_what_the_noise_may_become() -> None:
    """In six cases, computed from the definitions alone."""
    noise, batches = SeenNoise(64, {64: ([1000.0], [400.0])}), [64, 256, 1024]
    step_times = affine(0.3, 0.001)
    cases = []
    for probability, growth in (
        (1 / 6, 1 - math.sqrt(3) / 2),
        (2 / 3, 1.0),
        (1 / 6, 1 + math.sqrt(3) / 2),
    ):
        for follows in (False, True):
            times = []
            for batch in batches:
                step_s = step_times([BatchPlan(1, batch, 1)])[0]
                moments = (np.arange(4000) + 0.5) / 4000 * 2000.0
                scales = 400.0 * (moments / 1000.0) ** growth
                if follows:  # scale (scale + 64) / (scale + batch) stays the same
                    half = (scales - 64) / 2
                    scales = half + np.sqrt(half**2 + scales * batch)
                steps = 2000.0 * np.mean(64 / batch * (scales + batch) / (scales + 64))
                times.append(step_s * steps)
            cases.append(probability / 2 * np.array(times) / min(times))
    losses = np.sum(cases, axis=0)
    ranking = rank_batches(batches, noise, step_times, num_workers=1, max_micro_batch=4096)
    answer = {ranked.global_batch: ranked.time_to_accuracy_relative for ranked in ranking}
    expected = dict(zip(batches, losses / losses.min(), strict=True))
    assert answer == pytest.approx(expected, rel=1e-3)


def drawn_scales(
    progress: np.ndarray,
    batch: int,
    *,
    first: int,
    end: float,
    at_end: float,
    growth: float,
    follows: bool,
) -> np.ndarray:
    """Return noise scales that grow by a power, and may depend on the batch."""
    scales = at_end * (progress / end) ** growth
    if follows:  # scale (scale + first) / (scale + batch) stays the same
        half = (scales - first) / 2
        scales = half + np.sqrt(half**2 + scales * batch)
    return scales


@pytest.mark.parametrize("growth", [0.2, 1.0, 1.8])
@pytest.mark.parametrize("follows", [False, True])
def test_drawn_trainings_lose_little_by_the_batch_that_their_first_fifth_advises(
    growth: float, follows: bool
) -> None:
    """With the likeliest course alone, the worst of these lost 0.44."""
    random = np.random.default_rng(3)
    losses = []
    for _ in range(16):
        first = int(2 ** random.integers(4, 8))
        batches = [first * 2**power for power in range(int(random.integers(4, 8)))]
        end, start_s = 10 ** random.uniform(3, 5), 0.1
        at_end = first * 10 ** random.uniform(-0.5, 3)
        per_sample_s = start_s / first / 10 ** random.uniform(0.5, 2.5)

        noise = partial(
            drawn_scales, first=first, end=end, at_end=at_end, growth=growth, follows=follows
        )
        moments = (np.arange(400) + 0.5) / 400 * end
        times = {}
        for batch in batches:
            scales = noise(moments, batch)
            steps = end * np.mean(first / batch * (scales + batch) / (scales + first))
            times[batch] = steps * (start_s + per_sample_s * batch)
        seen_at = batches[-1]
        progress = np.linspace(0.01, 0.2, 10) * end
        scales = noise(progress, seen_at) * np.exp(0.3 * random.normal(size=10))
        ranking = rank_batches(
            batches,
            SeenNoise(first, {seen_at: (progress.tolist(), scales.tolist())}),
            affine(start_s, per_sample_s),
            num_workers=1,
            max_micro_batch=max(batches),
        )
        losses.append(times[ranking[0].global_batch] / min(times.values()) - 1)
    assert max(losses) <= 0.3


def test_each_batch_is_judged_by_the_noise_of_the_run_nearest_to_it() -> None:
    noise = SeenNoise(64, {64: ([1000.0], [1e-3]), 1024: ([500.0], [1e9])})
    ranking = rank_batches(BATCHES, noise, affine(1.0, 1e-9), num_workers=1, max_micro_batch=4096)
    steps = {ranked.global_batch: ranked.steps_relative for ranked in ranking}
    assert steps[128] == pytest.approx(1.0, rel=1e-3)
    assert steps[1024] == pytest.approx(1 / 16, rel=1e-3)


def test_batches_of_fewer_samples_than_gpus_are_left_out_or_refused() -> None:
    step_times = affine(0.1, 0.001)
    ranking = rank_batches([4, 64], seen(10.0), step_times, num_workers=8, max_micro_batch=64)
    assert [ranked.global_batch for ranked in ranking] == [64]
    with pytest.raises(ResourcesError, match="8 GPUs"):
        rank_batches([4], seen(10.0), step_times, num_workers=8, max_micro_batch=64)


def write(folder: Path, rows: str) -> Path:
    path = folder / "noise.csv"
    path.write_text("global_batch,progress,grad_sqr,grad_var\n" + rows)
    return path


def test_noise_is_read_in_samples_of_the_smallest_batch_without_what_is_not_estimable(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path, "256,10,2,4\n256,20,-1,4\n256,30,0,4\n256,40,1,0\n256,50,1,8\n512,9,1,1\n"
    )
    with pytest.warns(
        UserWarning, match="3 rows are skipped because grad_sqr or grad_var is 0 or less"
    ):
        noise = read_noise(path, [128, 256])
    assert noise.reference_batch == 128
    assert noise.scales == {256: ([10.0, 50.0], [256.0, 1024.0]), 512: ([9.0], [128.0])}
    with pytest.warns(UserWarning, match="3 rows are skipped"):
        assert read_noise(path, [128], reference_batch=64).scales[512] == ([9.0], [64.0])


def test_noise_that_is_nowhere_estimable_is_no_noise_scale_of_infinity(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="grad_sqr and grad_var greater than 0"):
        read_noise(write(tmp_path, "256,10,-2,4\n"), [128])
    with pytest.raises(DataError, match="no row"):
        read_noise(write(tmp_path, ""), [128])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("256,0,1,1", "line 2, column progress: '0'"),
        ("256,1,nan,1", "line 2, column grad_sqr: 'nan' is not valid; allowed: a finite number"),
        ("1.5,1,1,1", "line 2, column global_batch"),
        ("256,1,1", "line 2, column grad_var: the line ends before it"),
    ],
)
def test_malformed_noise_is_refused_by_column_and_line(row: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_noise(write(tmp_path, row + "\n"), [128])
