"""Drawn systems are planned, simulated and run with one model: all three agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiers.processes.drawn_systems import draw_system
from workbench.tiers.placement.assembly import assemble
from workbench.tiers.placement.schedulers import policies_for
from workbench.tiers.placement.simulated_queues import draw_requests
from workbench.tiers.placement.system import System
from workbench.tiers.processes.prediction import measure_scheduler
from workbench.tiers.processes.profiling import profile_stages

NUM_REQUESTS = 400
SEEDS = [1, 9, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40))]


def quantile_s(times_s: np.ndarray, share: float) -> float:
    return float(np.quantile(times_s, share, method="lower"))


def interval_s(times_s: np.ndarray, share: float) -> tuple[float, float]:
    """Return the 99 % interval that so many requests leave for a quantile."""
    drawn = np.random.default_rng(0).choice(times_s, (2000, NUM_REQUESTS))
    low, high = np.quantile(np.quantile(drawn, share, axis=1), [0.005, 0.995])
    return float(low), float(high)


def agree(first_s: np.ndarray, other_s: np.ndarray) -> bool:
    """Return whether two distributions agree as closely as a run of some requests can tell."""
    for share, tolerance in ((0.5, 0.1), (0.95, 0.15)):
        known_s, found_s = quantile_s(first_s, share), quantile_s(other_s, share)
        low, high = interval_s(first_s, share)
        if abs(found_s / known_s - 1) > tolerance and not low <= found_s <= high:
            return False
    return True


def drawn_system(folder: Path, seed: int) -> System:
    drawn = draw_system(folder, seed)
    return assemble(drawn.file, folder, measure=profile_stages)[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_agrees_with_a_simulation_and_mapping_with_the_best(
    tmp_path: Path, seed: int
) -> None:
    system = drawn_system(tmp_path, seed)
    requests = draw_requests(
        40_000, system.counts[0], system.arrivals_per_s, len(system.exits), seed=1
    )
    p95_s = {}
    for name, policy in policies_for(system).items():
        # It moves its thresholds while it runs, between two levels that answer differently fast.
        if name == "threshold":
            continue
        settled = getattr(policy, "settled", lambda system, policy=policy: policy)(system)
        expected = settled.expect(system)
        if not np.isfinite(expected.quantile_s(0.95)):
            continue
        played = settled.play(system, requests)
        assert agree(expected.response_s, played.response_s), name
        # A device that cannot hold the model answers at an earlier exit.
        if name != "end" or system.can_finish_here:
            p95_s[name] = played.quantile_s(0.95)
    if len(p95_s) > 1 and "mapping" in p95_s:
        assert p95_s["mapping"] <= 1.05 * min(p95_s.values())


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["mapping", "next-tier"])
def test_processes_take_as_long_as_their_machines_would(tmp_path: Path, scheduler: str) -> None:
    drawn = draw_system(tmp_path, 3)
    system, _ = assemble(drawn.file, tmp_path, measure=profile_stages)
    rate = system.total_per_s
    moments_s = np.cumsum(np.random.default_rng(3).exponential(1 / rate, 300)).tolist()
    measured, expected, _ = measure_scheduler(
        scheduler,
        drawn.file,
        folder=tmp_path,
        bundle=drawn.bundle,
        system=system,
        samples=(drawn.samples, drawn.targets),
        moments_s=moments_s,
    )
    assert (measured.num_unanswered, measured.num_fallbacks, measured.accuracy) == (0, 0, 1.0)
    planned = policies_for(system)[scheduler].expect(system)
    # Processes never answer before their machines would. How much later depends on this machine.
    low, _ = interval_s(planned.response_s, 0.5)
    assert measured.p50_s >= min(low, 0.9 * planned.quantile_s(0.5))
    assert expected.p50_s >= 0.9 * planned.quantile_s(0.5)
    for name, load in planned.load.items():
        assert measured.load[name] == pytest.approx(load, rel=0.35, abs=0.06)
