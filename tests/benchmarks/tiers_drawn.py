"""Fifty drawn systems of two to five tiers: plan, simulation and run beside each other.

Run `python -m tests.benchmarks.tiers_drawn [--systems N] [--at-once N]`. Machines, links, memories
and models are drawn as in `tests.tiers.processes.drawn_systems`. Processes wait as long as the
drawn machines would compute, so this machine hardly computes. In every second system `mapping` is
run, and in the others a drawn scheduler that has a steady state. Each run has 400 requests.

Two of plan, simulation and run agree if p50 differs by at most 10 % and p95 by at most 15 %, or by
no more than 400 requests leave: within the 99 % interval of the quantile over 200 simulations of so
many requests. A run that does not agree is repeated with other moments, and both are kept.

Where the system allows it, the runs have real-time priority: other work of this machine would
otherwise decide when their processes wake up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiers.processes.drawn_systems import Drawn, draw_system
from workbench.tiers.placement.assembly import assemble
from workbench.tiers.placement.schedulers import Policy, policies_for
from workbench.tiers.placement.simulated_queues import Requests, draw_requests
from workbench.tiers.placement.system import System
from workbench.tiers.processes.prediction import measure_scheduler
from workbench.tiers.processes.profiling import profile_stages

RESULT = Path(__file__).parent / "results" / "tiers_drawn.json"
NUM_REQUESTS, NUM_SIMULATED, NUM_REPEATED = 400, 40_000, 200
TOLERANCES = {"p50": 0.1, "p95": 0.15}
SHARES = {"p50": 0.5, "p95": 0.95}
_FIRST_SEED = 1_000
_PRIORITY = 10


class _FromTheStart(Requests):
    """Requests that all count, as those of a run do."""

    @property
    def counted(self) -> slice:
        return slice(0, None)


def settled(name: str, system: System) -> Policy:
    policy: Any = policies_for(system)[name]
    return policy.settled(system) if hasattr(policy, "settled") else policy


def quantiles_s(response_s: np.ndarray) -> dict[str, float]:
    return {
        name: float(np.quantile(response_s, share, method="lower"))
        for name, share in SHARES.items()
    }


def intervals_s(policy: Policy, system: System) -> dict[str, tuple[float, float]]:
    """Return the 99 % interval that as many requests as in a run leave for each quantile."""
    repeated = []
    for seed in range(NUM_REPEATED):
        drawn = draw_requests(
            NUM_REQUESTS, system.counts[0], system.arrivals_per_s, len(system.exits), seed=seed
        )
        # A run takes each sample once.
        samples = np.random.default_rng(seed).permutation(len(system.exits))[:NUM_REQUESTS]
        requests = _FromTheStart(drawn.arrival_s, drawn.device, samples)
        repeated.append(quantiles_s(policy.play(system, requests).response_s))
    return {
        name: tuple(np.quantile([sample[name] for sample in repeated], [0.005, 0.995]).tolist())
        for name in SHARES
    }


def differences(
    first_s: dict[str, float],
    other_s: dict[str, float],
    leaves_s: dict[str, tuple[float, float]],
) -> dict[str, float]:
    """Return by which share quantiles differ that do not agree."""
    return {
        name: other_s[name] / first_s[name] - 1
        for name, (low_s, high_s) in leaves_s.items()
        if abs(other_s[name] / first_s[name] - 1) > TOLERANCES[name]
        and not low_s <= other_s[name] <= high_s
    }


@contextlib.contextmanager
def undisturbed() -> Iterator[bool]:
    """Give this process and those that it starts real-time priority, where that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    except (AttributeError, OSError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def run(
    name: str, drawn: Drawn, folder: Path, system: System, *, seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the quantiles of a run, and what else is kept of it."""
    random = np.random.default_rng(seed)
    moments_s = np.cumsum(random.exponential(1 / system.total_per_s, NUM_REQUESTS)).tolist()
    with undisturbed() as is_undisturbed:
        measured, _, _ = measure_scheduler(
            name,
            drawn.file,
            folder=folder,
            bundle=drawn.bundle,
            system=system,
            samples=(drawn.samples, drawn.targets),
            moments_s=moments_s,
        )
    return {"p50": measured.p50_s, "p95": measured.p95_s}, {
        "has_real_time_priority": is_undisturbed,
        "machine_load": os.getloadavg()[0],
        "num_unanswered": measured.num_unanswered,
        "num_fallbacks": measured.num_fallbacks,
        "load": measured.load,
    }


def compare(seed: int, *, is_mapping: bool) -> dict[str, Any] | None:
    """Plan, simulate and run one system with one scheduler. None if all queues of it grow."""
    with tempfile.TemporaryDirectory(prefix="workbench-drawn-") as temporary:
        folder = Path(temporary)
        drawn = draw_system(folder, seed)
        system, _ = assemble(drawn.file, folder, measure=profile_stages)
        simulated = draw_requests(
            NUM_SIMULATED, system.counts[0], system.arrivals_per_s, len(system.exits), seed=seed
        )
        plans, simulations, accuracies = {}, {}, {}
        # `cut` runs as another bundle, and `threshold` moves between two levels while it runs.
        for name in policies_for(system).keys() - {"cut", "threshold"}:
            policy = settled(name, system)
            expected = policy.expect(system)
            if np.isfinite(expected.quantile_s(0.95)):
                plans[name] = quantiles_s(expected.response_s)
                simulations[name] = quantiles_s(policy.play(system, simulated).response_s)
                accuracies[name] = expected.accuracy
        if not (names := sorted(plans)):
            return None
        drawn_name = names[int(np.random.default_rng(seed).integers(len(names)))]
        name = "mapping" if is_mapping and "mapping" in plans else drawn_name
        leaves_s = intervals_s(settled(name, system), system)
        runs = []
        for attempt in range(2):
            ran_s, about = run(name, drawn, folder, system, seed=seed + 10_000 * attempt)
            unequal = {
                "plan": differences(plans[name], ran_s, leaves_s),
                "simulation": differences(simulations[name], ran_s, leaves_s),
            }
            runs.append({"quantiles_s": ran_s, "differences": unequal, **about})
            if not any(unequal.values()):
                break
    others = [
        other_s["p95"]
        for other, other_s in simulations.items()
        if other != "mapping" and accuracies[other] >= accuracies.get("mapping", 0.0) - 0.002
        # A device that cannot hold the model answers at an earlier exit.
        if other != "end" or system.can_finish_here
    ]
    has_both = "mapping" in simulations and bool(others)
    return {
        "seed": seed,
        "num_tiers": len(system.names),
        "scheduler": name,
        "plan_s": plans[name],
        "simulation_s": simulations[name],
        "leaves_s": leaves_s,
        "plan_and_simulation": differences(plans[name], simulations[name], leaves_s),
        "runs": runs,
        "mapping_of_best": simulations["mapping"]["p95"] / min(others) if has_both else None,
    }


def summary(systems: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many agree, and how far quantiles of runs are from those of plans."""
    first = [not any(one["runs"][0]["differences"].values()) for one in systems]
    last = [not any(one["runs"][-1]["differences"].values()) for one in systems]
    apart = {
        name: [one["runs"][0]["quantiles_s"][name] / one["plan_s"][name] - 1 for one in systems]
        for name in SHARES
    }
    of_best = [one["mapping_of_best"] for one in systems if one["mapping_of_best"] is not None]
    return {
        "num_systems": len(systems),
        "num_plan_and_simulation": sum(not one["plan_and_simulation"] for one in systems),
        "num_run_agrees": sum(first),
        "num_run_agrees_repeated": sum(last),
        "median_difference": {
            name: float(np.median(np.abs(values))) for name, values in apart.items()
        },
        "largest_difference": {name: float(np.abs(values).max()) for name, values in apart.items()},
        "num_mapping_compared": len(of_best),
        "worst_mapping_of_best": max(of_best, default=None),
        "median_mapping_of_best": float(np.median(of_best)) if of_best else None,
    }


def show(results: dict[str, Any]) -> None:
    """Print the result."""
    for one in results["systems"]:
        ran = one["runs"][0]
        apart = "  ".join(
            f"{name} {one['plan_s'][name] * 1e3:6.1f} ms"
            f" {ran['quantiles_s'][name] / one['plan_s'][name] - 1:+7.1%}"
            for name in SHARES
        )
        agrees = "agrees" if not any(ran["differences"].values()) else "differs"
        print(f"{one['seed']} {one['num_tiers']} tiers {one['scheduler']:<10} {apart}  {agrees}")
    print(json.dumps(results["summary"], indent=2))


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--systems", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=1, help="Systems that run at a time.")
    options = parser.parse_args()
    seeds = range(_FIRST_SEED, _FIRST_SEED + 2 * options.systems)
    systems: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(options.at_once, multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(partial(compare, is_mapping=seed % 2 == 0), seed) for seed in seeds]
        for task in tasks:
            if len(systems) == options.systems:
                task.cancel()
                continue
            if (compared := task.result()) is None:
                continue
            systems.append(compared)
            results = {
                "num_cores": os.cpu_count(),
                "summary": summary(systems),
                "systems": systems,
            }
            RESULT.write_text(json.dumps(results, indent=2) + "\n")
    show(results)


if __name__ == "__main__":
    main()
