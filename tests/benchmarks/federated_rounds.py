"""Rounds to a target accuracy.

Published default settings beside what a sweep finds on the same clients.

Run `python -m tests.benchmarks.federated_rounds [--data mnist] [--targets .9] [--trials N] [--seeds
N] [--flower BIN]`.
50 clients hold the digits, or 10,000 images of MNIST, by a Dirichlet distribution of 0.3. Ten take
part in a round; for MNIST twenty, because with ten FedAvg stays below 95 % for 60 rounds. The model
has two hidden layers; for MNIST, of 200 units each, as in McMahan et al. The sweep searches the
local epochs, both rates, the server's rule and the proximal term for the fewest rounds to a target,
and begins with the published settings. For 95 % of MNIST it searches, pruned, for the best accuracy
within 15 rounds, which takes a fraction of the time. The best race over further seeds. Then, for
each target, the winner, and the defaults, train from seeds that no sweep has used, which also
divide the samples in other ways. Printed are the median rounds to both targets, and seconds a
round.

With the programs of an environment of Flower (`make bridges` makes one in `.flower/bin`), one of
the defaults is trained here and, as the application that `export --format flower` writes, by
Flower's simulation, and nothing else is done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

import workbench as wb
from workbench.deploy.flower.application import CLIENTS, write_application
from workbench.foundation.events import Event, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

RESULTS = Path(__file__).parent / "results"
DATA: dict[str, Any] = {"digits": "digits", "mnist": "tests.benchmarks.mnist_digits:load"}
TARGETS = (0.90, 0.95)
NUM_ROUNDS = {"digits": 60, "mnist": 50}
SWEEP_ROUNDS = 15
CONFIRM = {"best": 4, "trainings": 6}
FRACTION = {"digits": 0.2, "mnist": 0.4}
MODELS: dict[str, dict[str, Any]] = {"digits": {}, "mnist": {"hidden_width": 200, "num_layers": 2}}
"""What both trainings and the sweep keep as it is."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "FedAvg, 1 local epoch": {"lr": 0.1, "federated.local_epochs": 1},
    "FedAvg, 5 local epochs": {"lr": 0.1, "federated.local_epochs": 5},
    "FedProx 0.01, 5 local epochs": {
        "lr": 0.1,
        "federated.local_epochs": 5,
        "federated.proximal": 0.01,
    },
    "FedAvgM 0.9": {"lr": 0.1, "federated.local_epochs": 1, "federated.server": "fedavgm"},
    "FedAdam, rate 0.01": {"lr": 0.1, "federated.local_epochs": 1, "federated.server": "fedadam"},
}
"""Client batches of 10 at a rate of 0.1 (McMahan et al.).

Servers as published (Hsu et al., Reddi et al.).
"""
SEARCH: dict[str, dict[str, Any]] = {
    data: {
        "lr": {"low": low, "high": high, "log": True},
        "federated.local_epochs": {"choices": local_epochs},
        "federated.server": {"choices": ["fedavg", "fedavgm"]},
        "federated.server_lr": {"low": 0.3, "high": server_high, "log": True},
        "federated.proximal": {"choices": [0.0, 0.01, 0.1]},
    }
    for data, low, high, server_high, local_epochs in (
        ("digits", 0.01, 0.5, 3.0, [1, 2, 5, 10]),
        ("mnist", 0.03, 0.2, 1.5, [1, 2, 5]),
    )
}
"""With larger rates nothing learns MNIST.

Beyond 0.3 and 2.5, every trial diverges in its first round.
"""


_NUM_LAST_LINES = 30
IN_FLOWER = "FedAvg, 5 local epochs"


def experiment(
    search: dict[str, Any], data: str, seed: int, *, target: float, trials: int = 1
) -> wb.Experiment:
    return wb.Experiment(
        model="mlp",
        data=DATA[data],
        objectives=[{"metric": "rounds_to_target", "goal": "minimize"}],
        search={**{name: {"value": value} for name, value in MODELS[data].items()}, **search},
        seed=seed,
        federated={
            "clients": 50,
            "fraction": FRACTION[data],
            "partition": {"dirichlet": 0.3},
            "target": {"metric": "val_accuracy", "at_least": target},
        },
        training={
            "epochs": NUM_ROUNDS[data],
            "global_batch": 10,
            "reference_batch": 10,
            "optimizer": "sgd",
            "momentum": 0.0,
            "schedule": "constant",
        },
        budget={"trials": trials},
    )


def sweep_for(target: float, data: str, trials: int) -> wb.Experiment:
    """Return the sweep for a target, the best of which race over further seeds.

    Few rounds tell little.
    """
    searched = experiment(SEARCH[data], data, 0, trials=trials, target=target).model_dump(
        exclude_unset=True
    )
    searched |= {"repeats": 2, "confirm": CONFIRM}
    if data == "mnist":
        searched["training"] |= {"epochs": SWEEP_ROUNDS}
    if data == "mnist" and target == TARGETS[-1]:
        searched["federated"] |= {"target": None}
        searched |= {
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            "early_stop": {"pruner": "asha", "grace": 4},
            "repeats": 1,
        }
    return wb.Experiment.model_validate(searched)


def task_of(params: dict[str, Any], data: str, seed: int, folder: str, target: float) -> TrialTask:
    params = {**MODELS[data], **params}
    search = {name: {"value": value} for name, value in params.items()}
    document = experiment(search, data, seed, target=target).model_dump_json()
    return TrialTask("bench", 0, 0, document, params=params, seed=seed, folder=folder)


def train(
    params: dict[str, Any], data: str, seed: int, targets: Sequence[float]
) -> dict[str, float]:
    """Return the rounds to each target, and the seconds of a round."""
    accuracies: list[float] = []

    def report(event: Event) -> bool:
        if isinstance(event, TrialReported):
            accuracies.append(event.values["val_accuracy"])
        return False

    with tempfile.TemporaryDirectory() as folder:
        task = task_of(params, data, seed, folder, max(targets))
        began_s = time.perf_counter()
        ended = run_trial(task, report)
        took_s = time.perf_counter() - began_s
    assert ended.reason in (None, "diverged"), ended.message
    return {**rounds_to(accuracies, data, targets), "round_s": took_s / max(1, len(accuracies))}


def rounds_to(accuracies: list[float], data: str, targets: Sequence[float]) -> dict[str, float]:
    return {
        f"rounds_to_{target}": next(
            (number for number, value in enumerate(accuracies, 1) if value >= target),
            NUM_ROUNDS[data] + 1,
        )
        for target in targets
    }


def train_in_flower(
    params: dict[str, Any], data: str, seed: int, programs: Path
) -> dict[str, float]:
    """Return the same of Flower's simulation, and the seconds of all that came before the first
    round.

    Raises:
        RuntimeError: If it ended without its rounds; it has the last lines that Flower wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        app, home = Path(folder) / "app", Path(folder) / "home"
        write_application(app, task_of(params, data, seed, folder, TARGETS[-1]), "bench")
        words = f"samples='{app / CLIENTS}' results='{folder}/results'"
        began_s = time.perf_counter()
        try:
            done = subprocess.run(
                [
                    programs / "flwr",
                    "run",
                    ".",
                    "--stream",
                    "--federation-config",
                    "num-supernodes=50",
                    "--run-config",
                    words,
                ],
                check=False,
                cwd=app,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={
                    **os.environ,
                    "FLWR_HOME": str(home),
                    "FLWR_TELEMETRY_ENABLED": "0",
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "PATH": f"{programs}:{os.environ['PATH']}",
                },
            )
        finally:
            for process in psutil.process_iter(["cmdline"]):  # its server outlives the command
                if str(home) in " ".join(process.info["cmdline"] or []):
                    process.terminate()
        took_s = time.perf_counter() - began_s
        rounds = read_rounds(Path(folder) / "results" / "rounds.json", done)
    return {
        **rounds_to([each["accuracy"] for each in rounds], data, TARGETS),
        "round_s": statistics.median(each["round_s"] for each in rounds),
        "train_s": statistics.median(each["train_s"] for each in rounds),
        "around_s": took_s - sum(each["round_s"] for each in rounds),
    }


def read_rounds(path: Path, done: subprocess.CompletedProcess[str]) -> list[dict[str, float]]:
    """Return the rounds that Flower's application wrote.

    The command also ends with 0 where that has failed.

    Args:
        path: The file with the rounds.
        done: The command, with what it wrote.

    Raises:
        RuntimeError: If the command failed, or there are no rounds.
    """
    results = json.loads(path.read_text()) if path.exists() else {}
    if done.returncode or not results:
        last = "\n".join(done.stdout.strip().splitlines()[-_NUM_LAST_LINES:]) or "nothing"
        what = f"exit code {done.returncode} and {len(results)} rounds in {path.name}"
        raise RuntimeError(f"Flower's simulation ended with {what}. Its last lines:\n{last}")
    return list(results.values())


def beside_flower(data: str, seeds: range, programs: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train one of the defaults here and in Flower, in turn."""
    pairs = [
        (
            train(DEFAULTS[IN_FLOWER], data, seed, TARGETS),
            train_in_flower(DEFAULTS[IN_FLOWER], data, seed, programs),
        )
        for seed in seeds
    ]
    names = ("workbench", "Flower's simulation")
    for name, pair in zip(names, zip(*pairs, strict=True), strict=True):
        yield name, summary(name, DEFAULTS[IN_FLOWER], list(pair), TARGETS)


def summary(
    name: str, params: dict[str, Any], found: list[dict[str, float]], targets: Sequence[float]
) -> dict[str, Any]:
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    means = {key: statistics.fmean(each[key] for each in found) for key in found[0]}
    reached = [
        f"{medians[f'rounds_to_{target}']:4.0f} ({means[f'rounds_to_{target}']:.1f}) rounds to"
        f" {target:.0%}"
        for target in targets
    ]
    print(f"  {name:<30} {', '.join(reached)}, {medians['round_s']:.2f} s a round", flush=True)
    return {"params": params, "median": medians, "mean": means, "each": found}


def beside_sweep(
    data: str, seeds: range, trials: int, targets: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Search for each target, train what was found, and train the defaults."""
    chosen = {
        f"best of the sweep for {target:.0%}": best_of(sweep_for(target, data, trials), data)
        for target in targets
    }
    for name, params in {**chosen, **DEFAULTS}.items():
        yield (
            name,
            summary(name, params, [train(params, data, seed, targets) for seed in seeds], targets),
        )


def best_of(searched: wb.Experiment, data: str) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        wb.Store.open(f"sqlite:///{folder}/store.sqlite") as store,
    ):
        run = wb.sweep(searched, store=store)
        for params in searched_defaults(data):
            run.enqueue(params)
        run.wait()
        assert run.best is not None
        print(f"  {run.best.params}", flush=True)
        return dict(run.best.params)


def searched_defaults(data: str) -> Iterator[dict[str, Any]]:
    """Yield those of the published settings that lie in the search space.

    The sweep begins with them.
    """
    usual = {"federated.server": "fedavg", "federated.server_lr": 1.0, "federated.proximal": 0.0}
    for params in DEFAULTS.values():
        chosen = {**usual, **params}
        if chosen["federated.server"] in SEARCH[data]["federated.server"]["choices"]:
            yield chosen


def main() -> None:
    """Compare, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--targets", type=float, nargs="+", default=TARGETS)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--flower", type=Path, help="The folder of the programs of an environment of Flower."
    )
    options = parser.parse_args()
    name_of_file = "federated_rounds" if options.flower is None else "federated_flower"
    parts = [name_of_file, *([] if options.data == "digits" else [options.data])]
    if tuple(options.targets) != TARGETS:
        parts += [f"{target:.0%}".removesuffix("%") for target in options.targets]
    path = RESULTS / f"{'_'.join(parts)}.json"
    seeds = range(1, 1 + options.seeds)
    results: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "num_rounds": NUM_ROUNDS[options.data],
        "trials": options.trials,
        "load": os.getloadavg()[0],
        "cases": {},
    }
    print(
        f"Medians (means) over {options.seeds} seeds; {NUM_ROUNDS[options.data] + 1} rounds: not"
        " reached",
        flush=True,
    )
    found = (
        beside_sweep(options.data, seeds, options.trials, options.targets)
        if options.flower is None
        else beside_flower(options.data, seeds, options.flower.absolute())
    )
    for name, case in found:
        results["cases"][name] = case
        path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
