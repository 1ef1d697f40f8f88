"""Tiers: predictions beside measurements, a cascade beside the cloud alone, schedulers, and the
simulator.

Run `python -m tests.benchmarks.tiers [--time SECONDS] [--bundle FOLDER]`. A convnet with an early
exit is trained on the digits, or taken from a folder. Then, on this machine:

- exits: the mean time of a cascade in one process beside the sum of share times exit time, whose
  calls take turns; of both the medians of calls count, as what else the machine does reaches a few
  calls only;
- response: a process for each tier over a link of 1 Mbit/s and 20 ms under mutual TLS beside what
  is expected, and the mean of the cascade beside that of the cloud alone, in turn;
- schedulers: `mapping` beside `end` and `end-cloud` at p95, simulated under loads of 0.5 to 1.5;
- simulator: 600,000 requests of 100,000 devices, and its errors against M/M/c and M/D/1.

The load of the machine is kept with the result: processes wake up late on a busy one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import workbench as wb
from workbench.deploy.stages import exits_at, mean_time_s, read_evidence, read_stages, shares_at
from workbench.tiers.placement.assembly import assemble
from workbench.tiers.placement.mapping import Mapping
from workbench.tiers.placement.policies import End, EndCloud
from workbench.tiers.placement.queues import wait_of
from workbench.tiers.placement.simulated_queues import (
    draw_requests,
    ends_at_devices,
    ends_at_servers,
)
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.measured_run import measure_tiers, poisson_moments_s
from workbench.tiers.processes.prediction import expected_of, framings_of, system_here
from workbench.tiers.processes.profiling import profile_stages
from workbench.tiers.processes.samples import bundle_samples
from workbench.tiers.processes.sent_evidence import with_sent_evidence
from workbench.tiers.processes.stage_model import Input, Result, StageModels
from workbench.tiers.processes.tier_settings import StageSettings

RESULT = Path(__file__).parent / "results" / "tiers.json"
ROUNDS, PASSES = 3, 3
LOADS = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
NUM_REQUESTS, NUM_DEVICES = 600_000, 100_000
RATE_PER_S = 20.0


def train(folder: Path) -> Path:
    """Train a convnet with an exit on the digits, and export it."""
    with wb.Store.open(f"sqlite:///{folder}/store.sqlite") as store:
        run = wb.sweep(
            wb.Experiment(
                name="tiers",
                model="convnet",
                data="digits",
                objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
                search={
                    "exits": {"value": 1},
                    "exit_weight": {"value": 0.8},
                    "lr": {"value": 0.05},
                },
                training={
                    "epochs": 12,
                    "global_batch": 64,
                    "reference_batch": 64,
                    "schedule": "cosine",
                },
                budget={"trials": 1},
            ),
            store=store,
            wait=True,
        )
        run.export(folder / "bundle", format="onnx")
    return folder / "bundle"


def tiers_file(bundle: Path, scheduler: str = "end-cloud") -> TiersFile:
    return TiersFile.model_validate(
        {
            "tiers": {
                "end": {"count": NUM_DEVICES, "arrivals": "0.1/s"},
                "cloud": {"count": 4, "batch": 16},
            },
            "links": {"end-cloud": {"bandwidth": "1Mbit", "rtt": "20ms"}},
            "place": {"from": str(bundle), "scheduler": scheduler},
            "privacy": {"features": "uint8"},
        }
    )


def exits(bundle: Path) -> dict[str, Any]:
    """Compare the mean time of a cascade in this process with the sum of share times exit time.

    Stages by themselves and the cascade take turns, sample by sample, so that other work of the
    machine reaches both; of each the median counts. What a profile, which times each stage many
    times in a row, would predict is kept beside it.
    """
    stages, evidence = read_stages(bundle), read_evidence(bundle)
    thresholds = [stage.threshold for stage in stages.stages]
    shares = shares_at(exits_at(evidence, thresholds), len(thresholds))
    models = StageModels(
        [
            StageSettings(number, str(bundle / stage.file), stage.threshold)
            for number, stage in enumerate(stages.stages)
        ],
        threads=1,
    )
    inputs, _ = bundle_samples(bundle)
    predicted_s, measured_s = [], []
    for _ in range(ROUNDS):
        alone_s: dict[int, list[float]] = {number: [] for number in range(len(thresholds))}
        times_s: dict[int, list[float]] = {number: [] for number in range(len(thresholds))}
        for values in np.concatenate([inputs] * PASSES):
            taken = values
            for number, times in alone_s.items():
                took_s, part = _timed_call(models, (number, taken, None, 0, number))
                times.append(took_s)
                taken = part.onward
            took_s, whole = _timed_call(models, (0, values, None, 0, None))
            times_s[whole.stage].append(took_s)
        predicted_s.append(
            mean_time_s(shares.tolist(), [statistics.median(found) for found in alone_s.values()])
        )
        num_answers = sum(map(len, times_s.values()))
        measured_s.append(
            sum(
                len(each) / num_answers * statistics.median(each)
                for each in times_s.values()
                if each
            )
        )
    ratios = [
        predicted / measured for predicted, measured in zip(predicted_s, measured_s, strict=True)
    ]
    profiled = [profile.p50_s for profile in profile_stages(bundle).timings]
    return {
        "shares": shares.tolist(),
        "predicted_s": statistics.median(predicted_s),
        "measured_s": statistics.median(measured_s),
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "profiled_s": mean_time_s(shares.tolist(), profiled),
    }


def _timed_call(models: StageModels, given: Input) -> tuple[float, Result]:
    began_s = time.perf_counter()
    (result,) = models.predict([given])
    return time.perf_counter() - began_s, result


def responses(bundle: Path, time_s: float) -> dict[str, Any]:
    """Compare real processes with what is expected of them; the schedulers take turns."""
    inputs, targets = bundle_samples(bundle)
    file = tiers_file(bundle)
    here = system_here(file, bundle, RATE_PER_S)
    system = with_sent_evidence(here, file.privacy, bundle, inputs, targets)
    framings_s = framings_of(read_stages(bundle), file.privacy)
    found: dict[str, list[dict[str, Any]]] = {"cloud": [], "end-cloud": [], "end": []}
    for number in range(ROUNDS):
        moments_s = poisson_moments_s(RATE_PER_S, time_s, seed=number)
        for scheduler, replies in found.items():
            load = os.getloadavg()[0]
            measured = measure_tiers(
                file, bundle, bundle, inputs, targets, scheduler=scheduler, moments_s=moments_s
            )
            expected = expected_of(
                system, measured.probes, framings_s, bytes_per_sample=measured.bytes_per_sample
            )[scheduler]
            answered_far = measured.answered_by["cloud"]
            replies.append(
                {
                    "load": load,
                    "mean_s": measured.mean_s,
                    "p50_s": measured.p50_s,
                    "p95_s": measured.p95_s,
                    "accuracy": measured.accuracy,
                    "num_unanswered": measured.num_unanswered,
                    "share_of_cloud": answered_far,
                    "expected": asdict(expected),
                    "ratio_mean": expected.mean_s / measured.mean_s,
                    "ratio_p50": expected.p50_s / measured.p50_s,
                }
            )
    shares = [
        sent["mean_s"] / alone["mean_s"]
        for sent, alone in zip(found["end-cloud"], found["cloud"], strict=True)
    ]
    return {
        "schedulers": found,
        "cascade_of_cloud": shares,
        "cascade_of_cloud_median": statistics.median(shares),
    }


def schedulers(bundle: Path) -> list[dict[str, Any]]:
    """Simulate schedulers under loads of the servers, where half of the samples do not leave early.

    1,000 devices take 5 ms for the first stage and 200 ms for the second, 8 servers 1 and 40 ms,
    and the link 40 ms there and back.
    """
    evidence = read_evidence(bundle)
    system, _ = assemble(tiers_file(bundle), bundle, measure=profile_stages, with_frames=False)
    system = replace(
        system,
        counts=(1_000, 8),
        stage_s=np.array([[0.005, 0.2], [0.001, 0.04]]),
        evidence=evidence,
        thresholds=(float(np.median(evidence.confidence[:, 0])), 0.0),
        row_s=None,
        batches=(),
        send_s=np.array([0.0, 0.03]),
        back_s=np.array([0.0, 0.01]),
    )
    rows = []
    for load in LOADS:
        given = system.with_load(load)
        requests = draw_requests(
            200_000, given.counts[0], given.arrivals_per_s, len(given.exits), seed=0
        )
        played = {
            name: policy.play(given, requests)
            for name, policy in (("mapping", Mapping()), ("end", End()), ("end-cloud", EndCloud()))
        }
        rows.append(
            {
                "load": load,
                "p95_s": {name: run.quantile_s(0.95) for name, run in played.items()},
                "mean_s": {name: float(run.response_s.mean()) for name, run in played.items()},
                "accuracy": {name: run.accuracy for name, run in played.items()},
            }
        )
    return rows


def simulator(bundle: Path) -> dict[str, Any]:
    """Time the simulator, and compare it with closed forms."""
    system, _ = assemble(tiers_file(bundle), bundle, measure=profile_stages)
    seconds: dict[str, list[float]] = {"end": [], "end-cloud": [], "mapping": []}
    for _ in range(ROUNDS):
        for name, policy in (("end", End()), ("end-cloud", EndCloud()), ("mapping", Mapping())):

            def play(policy: Any = policy) -> None:
                requests = draw_requests(
                    NUM_REQUESTS, NUM_DEVICES, system.arrivals_per_s, len(system.exits), seed=0
                )
                policy.play(system, requests)

            seconds[name].append(_processor_s(play))
    return {
        "num_requests": NUM_REQUESTS,
        "num_devices": NUM_DEVICES,
        "processor_s": {name: min(second) for name, second in seconds.items()},
        "error_m_m_c": _error_of_servers(4, 0.8),
        "error_m_d_1": _error_of_device(0.7),
    }


def _processor_s(work: Callable[[], None]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def _error_of_servers(num_servers: int, load: float) -> float:
    """Return by which part the mean wait of many servers differs from Erlang's."""
    random = np.random.default_rng(0)
    number, service_s = 4_000_000, 1.0
    arrivals = np.cumsum(random.exponential(service_s / (load * num_servers), number))
    took_s = random.exponential(service_s, number)
    waits_s = ends_at_servers(arrivals, took_s, num_servers) - arrivals - took_s
    expected_s = wait_of(
        load * num_servers / service_s, service_s, num_servers, variation=1.0
    ).mean_s
    return float(waits_s[number // 10 :].mean() / expected_s - 1)


def _error_of_device(load: float) -> float:
    """Return by which part the mean wait at many devices differs from that of Pollaczek and
    Khinchine.
    """
    requests = draw_requests(4_000_000, 100, load, 1, seed=0)
    took_s = np.ones(len(requests.arrival_s))
    waits_s = ends_at_devices(requests, took_s) - requests.arrival_s - took_s
    return float(waits_s[requests.counted].mean() / wait_of(load, 1.0).mean_s - 1)


def show(results: dict[str, Any]) -> None:
    """Print the result."""
    exits = results["exits"]
    print(
        f"exits: {exits['predicted_s'] * 1e6:.1f} us predicted, {exits['measured_s'] * 1e6:.1f} us"
        f" measured, ratio {exits['ratio']:.3f}"
    )
    for name, scheduler in results["response"]["schedulers"].items():
        for run in scheduler:
            times = "  ".join(
                f"{what} {run[f'{what}_s'] * 1e3:.2f} ms, expected"
                f" {run['expected'][f'{what}_s'] * 1e3:.2f} ({run[f'ratio_{what}']:.3f})"
                for what in ("mean", "p50")
            )
            print(f"{name:<10} load {run['load']:4.1f}  {times}  accuracy {run['accuracy']:.4f}")
    shares = ", ".join(f"{share:.3f}" for share in results["response"]["cascade_of_cloud"])
    print(f"the cascade takes {shares} of the mean time of the cloud alone")
    for row in results["schedulers"]:
        times = ", ".join(f"{name} {p95_s * 1e3:.2f} ms" for name, p95_s in row["p95_s"].items())
        print(f"load {row['load']}: p95 {times}")
    exits = results["simulator"]
    times = ", ".join(f"{name} {seconds:.2f}" for name, seconds in exits["processor_s"].items())
    print(
        f"simulator: {times} s of processor time; errors {exits['error_m_m_c']:+.4f} (M/M/c), "
        f"{exits['error_m_d_1']:+.4f} (M/D/1)"
    )


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--time", type=float, default=15.0, help="Seconds for each scheduler and round."
    )
    parser.add_argument(
        "--bundle", type=Path, help="A bundle with early exits, instead of training one."
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = (options.bundle or train(Path(folder))).absolute()
        results: dict[str, Any] = {
            "machine": platform.processor() or platform.machine(),
            "onnxruntime": onnxruntime.__version__,
            "num_cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "exits": exits(bundle),
            "response": responses(bundle, options.time),
            "schedulers": schedulers(bundle),
            "simulator": simulator(bundle),
        }
    show(results)
    RESULT.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
