"""Advice as a run stores it.

Plans measured, rates tested, candidates tried, trials trained, one answer.

Numbers follow simple laws with a little noise, so that figures look as those of a real run do.
"""

from __future__ import annotations

import math
import random
from typing import Any

from workbench.advisor.open_settings import base_params
from workbench.advisor.speed_history import setting_of
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AdviceGiven,
    AdviceRequested,
    CandidateTried,
    DriverStarted,
    Event,
    PlanMeasured,
    RatesTested,
    RunStateChanged,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.hardware.resources import likely_cluster

GIB = 2**30
START_UNIX_S = 1.7e9
SAMPLES_PER_EPOCH = 50_000
MICRO_BATCHES = (8, 16, 32, 64, 128, 256)

EXPERIMENT = Experiment(
    name="advised",
    train="package.module:function",
    objectives=[{"metric": "val_accuracy", "goal": "maximize", "target": 0.92}],
    search={"width": {"choices": [64, 128]}},
)


def step_s(workers: int, micro_batch: int) -> float:
    """Seconds of a step: a floor, then proportional to the samples, then what workers wait for each
    other.
    """
    waiting = 0.0 if workers == 1 else 0.006 * math.log2(2 * workers)
    return max(0.011, 0.004 + 0.00034 * micro_batch) + waiting


def peak_bytes(micro_batch: int) -> float:
    """What a worker holds at a micro batch."""
    return 1.1 * GIB + 0.034 * GIB * micro_batch


def plan(workers: int, micro_batch: int, accumulation: int = 1) -> dict[str, Any]:
    """A plan in full."""
    return {
        "workers": workers,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "global_batch": workers * micro_batch * accumulation,
        "precision": "bf16",
        "strategy": "single" if workers == 1 else "ddp",
        "recompute": "none",
    }


def interval(value: float, width: float = 0.08, *, extrapolated: bool = False) -> dict[str, Any]:
    """A predicted number as it is stored."""
    return {
        "value": value,
        "low": value / (1 + width),
        "high": value * (1 + width),
        "extrapolated": extrapolated,
    }


def time_to_target_s(global_batch: int) -> float:
    """Few samples at small batches, few steps at large ones."""
    best_s = min(
        step_s(2, max(1, global_batch // 2)) / global_batch, step_s(1, global_batch) / global_batch
    )
    return 1.2e6 * (1 + global_batch / 420) * best_s


def candidate(
    workers: int, micro_batch: int, accumulation: int, lr: float, reasons: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A candidate as it is stored."""
    its_plan = plan(workers, micro_batch, accumulation)
    seconds = accumulation * step_s(workers, micro_batch)
    samples_per_s = its_plan["global_batch"] / seconds
    return {
        "plan": its_plan,
        "written": f"{its_plan['global_batch']} = {micro_batch} x {accumulation} x {workers}",
        "lr": lr,
        "lr_rule": "sqrt",
        "warmup_epochs": 1.0,
        "samples_per_s": interval(samples_per_s),
        "step_time_s": interval(seconds),
        "memory_bytes": {"value": peak_bytes(micro_batch), "limit": 8.0 * GIB, "measured": True},
        "time_to_target_s": interval(
            time_to_target_s(its_plan["global_batch"]), 0.25, extrapolated=True
        ),
        "epoch_time_s": interval(SAMPLES_PER_EPOCH / samples_per_s),
        "reasons": list(reasons),
    }


def advice() -> dict[str, Any]:
    """Advice as it is stored."""
    return {
        "objective": "time",
        "choice": candidate(
            2,
            128,
            1,
            0.003,
            (
                (
                    "two workers together do 1.65 times the samples of one, each at its best micro"
                    " batch"
                ),
                "the noise scale of 520 samples makes a step of 256 worth 1.7 steps of 128",
                "a micro batch of 256 does not fit the memory of the device",
            ),
        ),
        "runner_up": candidate(2, 64, 1, 0.0021),
        "others": [candidate(1, 128, 1, 0.0021)],
        "reference": candidate(1, 32, 1, 0.001),
        "noise": {"scale_samples": 520.0, "status": "measured"},
        "measured": [
            "11 plans in one setting, 30 steps each",
            "a rate range test at a global batch of 128, 2 seeds",
            "the 2 best candidates beside each other for 60 s",
        ],
        "would_change": [
            "more than 2 workers: nothing was measured beyond 2",
            "a noise scale below 200 samples: then"
            " 128 samples = 64 x 1 accumulated x 2 workers is faster",
        ],
        "cost_s": 200.4,
        "settings": {
            "plan.workers": 2,
            "plan.micro_batch": 128,
            "plan.accumulation": 1,
            "plan.precision": "bf16",
            "plan.strategy": "ddp",
            "training.lr": 0.003,
            "training.lr_rule": "sqrt",
            "training.warmup_epochs": 1.0,
        },
        "curves": {
            "step_time": [
                {
                    "workers": workers,
                    "micro_batch": micro_batch,
                    "step_time_s": step_s(workers, micro_batch),
                    "low_s": step_s(workers, micro_batch) / (1.06 if workers < 3 else 1.3),
                    "high_s": step_s(workers, micro_batch) * (1.06 if workers < 3 else 1.3),
                    "extrapolated": workers > 2 or micro_batch > 128,
                }
                for workers in (1, 2, 4)
                for micro_batch in MICRO_BATCHES
            ],
            "memory": [
                {"micro_batch": size, "peak_bytes": peak_bytes(size)} for size in MICRO_BATCHES
            ],
            "memory_limit_bytes": 8.0 * GIB,
            "time_to_target": [
                {
                    "global_batch": batch,
                    "time_s": time_to_target_s(batch),
                    "low_s": time_to_target_s(batch) / 1.25,
                    "high_s": time_to_target_s(batch) * 1.25,
                }
                for batch in (16, 32, 64, 128, 256, 512, 1024)
            ],
        },
    }


def events(*, with_trials: bool = True) -> list[Event]:
    """Everything that such a run stores, oldest first."""
    draw = random.Random(0)
    recorded: list[Event] = [
        DriverStarted(time_unix_s=START_UNIX_S, pid=1, host="here", num_cpus=2),
        RunStateChanged(time_unix_s=START_UNIX_S, state="running"),
        AdviceRequested(time_unix_s=START_UNIX_S + 1, objective="time", host="here"),
        *_measurements(draw),
        _rate_test(draw),
        *_candidates(draw),
        AdviceGiven(time_unix_s=START_UNIX_S + 210, advice=advice()),
    ]
    if with_trials:
        for trial, (workers, micro_batch) in enumerate(((2, 128), (2, 64), (1, 128))):
            recorded += _trial(draw, trial, workers, micro_batch)
    return recorded


def _measurements(draw: random.Random) -> list[Event]:
    plans = [
        plan(workers, micro_batch) for workers in (1, 2) for micro_batch in (8, 16, 32, 64, 128)
    ]
    recorded: list[Event] = []
    for number, planned in enumerate([*plans, {**plan(1, 64), "precision": "fp32"}, plan(1, 256)]):
        fits = planned["micro_batch"] < 256
        slow = 1.7 if planned["precision"] == "fp32" else 1.0
        seconds = slow * step_s(planned["workers"], planned["micro_batch"]) * draw.gauss(1.0, 0.03)
        recorded.append(
            PlanMeasured(
                time_unix_s=START_UNIX_S + 5 + 5 * number,
                setting="5f1e",
                plan=planned,
                fits=fits,
                message=None if fits else "CUDA out of memory",
                num_steps=30 if fits else 0,
                step_time_s=seconds if fits else None,
                step_time_spread_s=0.08 * seconds if fits else None,
                samples_per_s=planned["global_batch"] / seconds if fits else None,
                peak_bytes=(
                    int(peak_bytes(planned["micro_batch"]) * draw.gauss(1.0, 0.02))
                    if fits
                    else None
                ),
            )
        )
    return recorded


def _rate_test(draw: random.Random) -> Event:
    rates = [1e-5 * 10 ** (number / 20) for number in range(90)]
    losses = [
        2.3 - 1.1 / (1 + (8e-4 / rate) ** 1.5) + draw.gauss(0, 0.01) + (rate / 0.05) ** 3
        for rate in rates
    ]
    losses[-4:] = [math.inf, math.nan, math.nan, math.nan]
    return RatesTested(
        time_unix_s=START_UNIX_S + 100,
        setting="5f1e",
        global_batch=128,
        rates=rates,
        losses=losses,
        num_seeds=2,
        suggested=2.1e-3,
        highest_stable=1.6e-2,
    )


def _candidates(draw: random.Random) -> list[Event]:
    recorded: list[Event] = []
    for second in range(5, 65, 5):
        for its_plan, lr, slope in ((plan(2, 128), 0.003, 22.0), (plan(2, 64), 0.0021, 30.0)):
            accuracy = 0.96 - 0.6 * math.exp(-second / slope) + draw.gauss(0, 0.004)
            recorded.append(
                CandidateTried(
                    time_unix_s=START_UNIX_S + 110 + second,
                    plan=its_plan,
                    lr=lr,
                    elapsed_s=float(second),
                    step=20 * second,
                    epoch=second / 10,
                    values={"val_accuracy": accuracy},
                    reached_target=accuracy >= 0.92,
                )
            )
            if accuracy >= 0.92 and lr == 0.003:
                break
    return recorded


def _trial(draw: random.Random, trial: int, workers: int, micro_batch: int) -> list[Event]:
    begin, its_plan = START_UNIX_S + 300 + 100 * trial, plan(workers, micro_batch)
    seconds = step_s(workers, micro_batch)
    recorded: list[Event] = [
        TrialProposed(
            time_unix_s=begin, trial=trial, params={"width": 64}, configuration=trial, seed=trial
        ),
        TrialStarted(time_unix_s=begin, trial=trial, attempt=0, worker_pids=[7]),
        TrialPlanned(time_unix_s=begin + 1, trial=trial, plan=its_plan),
    ]
    accuracy = 0.0
    for report in range(1, 41):
        epoch = report / 4
        accuracy = 0.95 - 0.5 * math.exp(-epoch / 3)
        scale = (90 + 60 * epoch) * math.exp(draw.gauss(0, 0.15))
        recorded.append(
            TrialReported(
                time_unix_s=begin + 1 + 2 * report,
                trial=trial,
                step=int(epoch * SAMPLES_PER_EPOCH / its_plan["global_batch"]),
                epoch=epoch,
                values={"val_accuracy": accuracy},
                samples_per_s=its_plan["global_batch"] / seconds * draw.gauss(0.96, 0.03),
                gradient_signal_sqr=None if report == 1 else 0.04,
                gradient_noise=None if report == 1 else 0.04 * scale,
            )
        )
    values = {"val_accuracy": accuracy}
    recorded.append(
        TrialEnded(time_unix_s=begin + 90, trial=trial, attempt=0, state="complete", values=values)
    )
    return recorded


def measured_here(experiment: Experiment) -> PlanMeasured:
    """The plain plan of digits, measured on this machine: 10 ms for a step of 128 samples."""
    cluster = likely_cluster()
    setting = setting_of(
        experiment, base_params(experiment), capacity_of(experiment, cluster).shape, cluster
    )
    plan = {
        "workers": 1,
        "micro_batch": 128,
        "accumulation": 1,
        "global_batch": 128,
        "precision": "fp32",
        "strategy": "single",
        "recompute": "none",
    }
    return PlanMeasured(
        setting=setting,
        plan=plan,
        workers_per_node=[1],
        num_train_samples=1438,
        step_time_s=0.01,
        samples_per_s=12800.0,
        state_bytes=1000,
    )
