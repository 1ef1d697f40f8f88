"""Fronts of error against size on real trainings.

`auto` with early stopping beside NSGA-II without any.

Run `make bench WHAT=search`. Networks are trained on the handwritten digits and on a table (breast
cancer), by the loop that trials run. Printed is the hypervolume that the complete trainings cover
after a share of the epochs that NSGA-II trains in all, as a share of what it covers at its end, and
after which share of its epochs `auto` covers as much. The reference point is the worst validation
loss of a constant answer, and the largest network of the space.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.search import Proposal, Study
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

RESULTS = Path(__file__).parent / "results" / "fronts.json"
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
EPOCHS = 16
SEARCH: dict[str, Any] = {
    "lr": {"low": 1e-4, "high": 0.3, "log": True},
    "hidden_width": {"low": 4, "high": 128, "log": True},
    "num_layers": {"low": 1, "high": 3},
    "weight_decay": {"low": 1e-6, "high": 0.1, "log": True},
    "dropout": {"low": 0.0, "high": 0.5},
}
NUM_CLASSES = {"digits": 10, "breast_cancer": 2}
NUM_FEATURES = {"digits": 64, "breast_cancer": 30}
METHODS: dict[str, dict[str, Any]] = {
    "nsga2": {"sampler": {"name": "nsga2", "options": {"population_size": 10}}},
    "auto": {"sampler": "auto"},
    "auto + curves": {"sampler": "auto", "early_stop": {"pruner": "curves", "grace": 2}},
}


@dataclass(frozen=True)
class Point:
    """A complete training: the epochs trained until its end by all, and its two objectives."""

    epochs: int
    loss: float
    size: float


def size_of(data: str, width: float, num_layers: float) -> float:
    """Return the logarithm to the base 2 of the number of weights of a network."""
    features, classes = NUM_FEATURES[data], NUM_CLASSES[data]
    return math.log2(width * (features + classes + (num_layers - 1) * width))


def make_experiment(data: str, seed: int, settings: dict[str, Any]) -> Experiment:
    """Make the experiment of one search."""
    return Experiment(
        model="mlp",
        data=data,
        search=SEARCH,
        seed=seed,
        objectives=[
            {"metric": "val_loss", "goal": "minimize"},
            {"metric": "size", "goal": "minimize"},
        ],
        training={
            "epochs": EPOCHS,
            "global_batch": 64,
            "reference_batch": 64,
            "schedule": "constant",
        },
        budget={"trials": 100_000},
        **settings,
    )


def train(experiment: Experiment, data: str, study: Study, proposal: Proposal, folder: str) -> int:
    """Train a proposal until its end, or until the study stops it; return its epochs."""
    hidden_width, num_layers = (
        float(str(proposal.params[name])) for name in ("hidden_width", "num_layers")
    )
    size = size_of(data, hidden_width, num_layers)
    epochs = 0

    def receive(event: Event) -> bool:
        nonlocal epochs
        if not isinstance(event, TrialReported):
            return False
        epochs = int(event.epoch or epochs)
        return study.take_report(
            event.model_copy(update={"values": {**event.values, "size": size}})
        )

    single = experiment.model_copy(update={"objectives": experiment.objectives[:1]})
    task = TrialTask(
        "benchmark",
        proposal.trial,
        0,
        single.model_dump_json(),
        params=proposal.params,
        seed=proposal.seed,
        folder=folder,
    )
    ended = run_trial(task, receive)
    assert isinstance(ended, TrialEnded), ended
    values = {**ended.values, "size": size}
    study.tell(proposal.trial, ended.model_copy(update={"values": values}))
    return epochs


def search(data: str, method: str, seed: int, num_epochs: int) -> tuple[list[Point], int]:
    """Search until so many epochs are trained.

    Return the complete trainings, and how many were begun.
    """
    experiment = make_experiment(data, seed, METHODS[method])
    study, points, spent = Study(experiment), list[Point](), 0
    num_begun = 0
    while spent < num_epochs:
        proposal = study.ask()
        assert proposal is not None
        num_begun += 1
        with tempfile.TemporaryDirectory() as folder:
            spent += train(experiment, data, study, proposal, folder)
        values = study.result(proposal.trial)
        if proposal.trial in study.best_trials():
            points.append(Point(spent, values["val_loss"], values["size"]))
    return points, num_begun


def hypervolume(data: str, points: list[Point]) -> float:
    """Return the area that some trainings dominate, as a share of the area below the reference
    point.
    """
    worst = math.log(NUM_CLASSES[data])
    low = size_of(data, SEARCH["hidden_width"]["low"], 1)
    high = size_of(data, SEARCH["hidden_width"]["high"], SEARCH["num_layers"]["high"])
    covered, best = 0.0, worst
    # From the smallest network on, each better one covers a strip up to the largest.
    for point in sorted(points, key=lambda one: (one.size, one.loss)):
        if point.loss < best:
            covered += (best - max(point.loss, 0.0)) * (high - point.size)
            best = point.loss
    return covered / (worst * (high - low))


def compare(data: str, num_seeds: int, num_trials: int) -> dict[str, Any]:
    """Search with every method for the same epochs; print and return what they covered when."""
    num_epochs = num_trials * EPOCHS
    covered: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    reached: dict[str, list[float]] = {method: [] for method in METHODS}
    begun: dict[str, list[int]] = {method: [] for method in METHODS}
    for seed in range(num_seeds):
        goal = 0.0
        for method in METHODS:
            points, num_begun = search(data, method, seed, num_epochs)
            by_end = {
                end: hypervolume(data, [point for point in points if point.epochs <= end])
                for end in sorted({point.epochs for point in points})
            }
            goal = goal or max(by_end.values())
            at = [
                max((by_end[end] for end in by_end if end <= share * num_epochs), default=0.0)
                for share in SHARES
            ]
            covered[method].append([value / goal for value in at])
            passed = (end for end, value in by_end.items() if value >= goal)
            reached[method].append(next(passed, math.inf) / num_epochs)
            begun[method].append(num_begun)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    print(f"\n{data}: hypervolume after {shares} of {num_epochs} epochs")
    results: dict[str, Any] = {}
    for method in METHODS:
        means = np.array(covered[method]).mean(0).tolist()
        share = median(reached[method])
        print(
            f"{method:16s}{''.join(f'{mean:8.3f}' for mean in means)}  as much as nsga2 after"
            f" {share:.2f}, {median(begun[method]):.0f} trainings"
        )
        results[method] = {
            "hypervolume": dict(zip(map(str, SHARES), means, strict=True)),
            "trainings": begun[method],
            "epochs_shares": [each if math.isfinite(each) else None for each in reached[method]],
        }
    return results


def main() -> None:
    """Search every task with every method, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=50, help="full trainings that NSGA-II makes")
    parser.add_argument("--data", nargs="+", default=list(NUM_CLASSES), choices=list(NUM_CLASSES))
    parser.add_argument("--to", type=Path, default=RESULTS, help="the file that holds the result")
    chosen = parser.parse_args()
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "load_average": os.getloadavg()[0],
        "seeds": chosen.seeds,
        "trials": chosen.trials,
        "epochs": EPOCHS,
        "results_by_data": {},
    }
    for data in chosen.data:
        report["results_by_data"][data] = compare(data, chosen.seeds, chosen.trials)
    report["load_average_after"] = os.getloadavg()[0]
    chosen.to.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
