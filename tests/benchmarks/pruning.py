"""What pruners save and what they lose, on public learning curves.

Run `make bench WHAT=search`. The same trainings, in the same random order, are given to every
pruner through the workbench's study. Printed are the share of all epochs that was trained, how
often the training that would have ended best was stopped, and how far the best complete one is from
it: 0 is the best of the drawn trainings, 1 their median or worse.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from tests.builders.measured_search import draw, read_search_tasks
from tests.builders.studies import make_experiment
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.search import Study

RESULTS = Path(__file__).parent / "results" / "pruning.json"
PRUNERS: dict[str, dict[str, Any]] = {
    "none": {},
    "asha": {"grace": 2},
    "median": {"grace": 2},
    "curves": {"grace": 2},
    "curves, nothing resumed": {"pruner": "curves", "grace": 2, "options": {"resume": False}},
    "curves, chance 0.05": {
        "pruner": "curves",
        "grace": 2,
        "options": {"chance": 0.05, "resume": False},
    },
    "curves, chance 0.2": {"pruner": "curves", "grace": 2, "options": {"chance": 0.2}},
}
NUM_DRAWN = 400


def read_curves(search: Path, texts: Path) -> dict[str, np.ndarray]:
    """Read learning curves, larger is better; each of shape [trainings, epochs]."""
    params = draw(NUM_DRAWN, np.random.default_rng(0))
    curves = {f"search {task.name}": task.curves(params)[0] for task in read_search_tasks(search)}
    for path in sorted(texts.glob("*.json.xz")):
        with lzma.open(path) as file:
            losses = np.array(
                [training["valid"]["loss"] for training in json.load(file)], dtype=float
            )
        curves[path.name.removesuffix(".json.xz")] = -losses[np.isfinite(losses).all(1)][:NUM_DRAWN]
    return curves


def prune(curves: np.ndarray, settings: dict[str, Any]) -> tuple[float, bool, float]:
    """Train along all curves.

    Args:
        curves: Shape [trainings, epochs].
        settings: The settings of early stopping.

    Returns:
        The share of epochs trained, whether the best was stopped, and the regret.
    """
    num_runs, num_epochs = curves.shape
    study = Study(
        make_experiment(
            train=None,
            model="mlp",
            data="digits",
            training={"epochs": num_epochs},
            sampler="random",
            search={"weight_decay": {"low": 0.0, "high": 1.0}},
            objectives=[{"metric": "loss", "goal": "maximize"}],
            early_stop=settings,
        )
    )
    num_trained, complete = 0, list[int]()
    reached = [0] * num_runs
    while True:
        # After the last training, only stopped ones are continued.
        proposal = study.ask(repeats_only=reached[-1] > 0)
        if proposal is None:
            break
        number = proposal.configuration
        before, values = reached[number], dict[str, float]()
        for epoch in range(before + 1, num_epochs + 1):
            reached[number] = epoch
            values = {"loss": float(curves[number, epoch - 1])}
            event = TrialReported(trial=proposal.trial, step=epoch, epoch=epoch, values=values)
            if study.take_report(event) and epoch < num_epochs:
                break
        num_trained += reached[number] - before
        state = "complete" if reached[number] == num_epochs else "pruned"
        complete += [number] if state == "complete" else []
        study.tell(
            proposal.trial,
            TrialEnded.model_validate(
                {"trial": proposal.trial, "attempt": 0, "state": state, "values": values}
            ),
        )
    ends = curves[:, -1]
    best, found = int(ends.argmax()), float(ends[complete].max())
    regret = (ends[best] - found) / max(float(ends[best] - np.median(ends)), 1e-12)
    return num_trained / curves.size, best not in complete, min(float(regret), 1.0)


def main() -> None:
    """Prune all curves with every pruner, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=40)
    chosen = parser.parse_args()
    search, texts = find_measured("hpo_surrogate"), find_measured("learning_curves")
    if search is None or texts is None:
        print(
            "skipped: no measurements; WORKBENCH_MEASURED names the folder of hpo_surrogate/ and "
            "learning_curves/"
        )
        return
    tasks = read_curves(search, texts)
    results: dict[str, dict[str, float]] = {}
    print(f"\n{chosen.trials} trainings each of {len(tasks)} tasks, {chosen.seeds} orders")
    for name, settings in PRUNERS.items():
        scores = []
        for curves, seed in itertools.product(tasks.values(), range(chosen.seeds)):
            order = np.random.default_rng(seed).permutation(len(curves))[: chosen.trials]
            scores.append(prune(curves[order], {"pruner": name, **settings}))
        epochs, lost, regret = np.array(scores, dtype=float).mean(0).tolist()
        print(
            f"{name:24s} {epochs:6.1%} of the epochs, best lost in {lost:6.1%}, regret {regret:.3f}"
        )
        results[name] = {"epochs_share": epochs, "lost_share": lost, "regret": regret}
    report = {
        "machine": describe_machine(),
        "tasks": len(tasks),
        "seeds": chosen.seeds,
        "trials": chosen.trials,
        "results_by_pruner": results,
    }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
