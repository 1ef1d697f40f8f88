"""Rounds to a target accuracy: published default settings beside what a sweep finds on the same clients.

Run `python -m tests.benchmarks.federated_rounds [--trials N] [--seeds N]`. 50 clients hold the digits, by a
Dirichlet distribution of 0.3; ten take part in a round. The sweep searches the local epochs, both rates, the
server's rule and the proximal term for the fewest rounds to the higher target with one seed. Then its best
configuration and the defaults train from other seeds, which also divide the digits in other ways. Printed are
the median rounds to both targets, and seconds a round.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import workbench as wb
from workbench.events import Event, TrialReported
from workbench.training import TrialTask, run_trial

RESULTS = Path(__file__).parent / "results" / "federated_rounds.json"
TARGETS = (0.90, 0.95)
NUM_ROUNDS = 60
DEFAULTS: dict[str, dict[str, Any]] = {
    "FedAvg, 1 local epoch": {"lr": 0.1, "federated.local_epochs": 1},
    "FedAvg, 5 local epochs": {"lr": 0.1, "federated.local_epochs": 5},
    "FedProx 0.01, 5 local epochs": {"lr": 0.1, "federated.local_epochs": 5, "federated.proximal": 0.01},
    "FedAvgM 0.9": {"lr": 0.1, "federated.local_epochs": 1, "federated.server": "fedavgm"},
    "FedAdam, rate 0.01": {"lr": 0.1, "federated.local_epochs": 1, "federated.server": "fedadam"},
}
"""Client batches of 10 at a rate of 0.1 (McMahan et al.); servers as published (Hsu et al., Reddi et al.)."""
SEARCH: dict[str, Any] = {
    "lr": {"low": 0.01, "high": 0.5, "log": True},
    "federated.local_epochs": {"choices": [1, 2, 5, 10]},
    "federated.server": {"choices": ["fedavg", "fedavgm"]},
    "federated.server_lr": {"low": 0.3, "high": 3.0, "log": True},
    "federated.proximal": {"choices": [0.0, 0.01, 0.1]},
}


def experiment(search: dict[str, Any], seed: int, trials: int = 1) -> wb.Experiment:
    return wb.Experiment(
        model="mlp", data="digits",
        objectives=[{"metric": "rounds_to_target", "goal": "minimize"}], search=search, seed=seed,
        federated={
            "clients": 50, "fraction": 0.2, "partition": {"dirichlet": 0.3},
            "target": {"metric": "val_accuracy", "at_least": TARGETS[1]},
        },
        training={
            "epochs": NUM_ROUNDS, "global_batch": 10, "reference_batch": 10, "optimizer": "sgd",
            "momentum": 0.0, "schedule": "constant",
        },
        budget={"trials": trials},
    )  # fmt: skip


def train(params: dict[str, Any], seed: int) -> dict[str, float]:
    """Return the rounds to each target, and the seconds of a round."""
    accuracies: list[float] = []

    def report(event: Event) -> bool:
        if isinstance(event, TrialReported):
            accuracies.append(event.values["val_accuracy"])
        return False

    search = {name: {"value": value} for name, value in params.items()}
    with tempfile.TemporaryDirectory() as folder:
        task = TrialTask(
            "bench", 0, 0, experiment(search, seed).model_dump_json(), params=params, seed=seed, folder=folder
        )
        began_s = time.perf_counter()
        ended = run_trial(task, report)
        took_s = time.perf_counter() - began_s
    assert ended.reason in (None, "diverged"), ended.message
    rounds = {
        f"rounds_to_{target}": next(
            (number for number, value in enumerate(accuracies, 1) if value >= target), NUM_ROUNDS + 1
        )
        for target in TARGETS
    }
    return {**rounds, "round_s": took_s / max(1, len(accuracies))}


def compare(name: str, params: dict[str, Any], seeds: range) -> dict[str, Any]:
    found = [train(params, seed) for seed in seeds]
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    low, high = (f"{medians[f'rounds_to_{target}']:4.0f}" for target in TARGETS)
    speed = f"{medians['round_s']:.2f} s a round"
    print(f"  {name:<30} {low} rounds to 90 %, {high} to 95 %, {speed}", flush=True)
    return {"params": params, "median": medians, "each": found}


def main() -> None:
    """Train the defaults, search, train what was found, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    seeds = range(1, 1 + options.seeds)
    results: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(), "torch": torch.__version__,
        "num_rounds": NUM_ROUNDS, "trials": options.trials, "cases": {},
    }  # fmt: skip
    print(f"Medians over {options.seeds} seeds; {NUM_ROUNDS + 1} rounds: not reached", flush=True)
    for name, params in DEFAULTS.items():
        results["cases"][name] = compare(name, params, seeds)
    with tempfile.TemporaryDirectory() as folder, wb.Store.open(f"sqlite:///{folder}/store.sqlite") as store:
        run = wb.sweep(experiment(SEARCH, 0, options.trials), store=store, wait=True)
        assert run.best is not None
        params = dict(run.best.params)
    results["cases"]["best of the sweep"] = compare("best of the sweep", params, seeds)
    print(f"    {params}", flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
