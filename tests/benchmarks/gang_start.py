"""How long a trial of two workers takes from its proposal to its first step.

Ours, and Ray Train inside Tune.

Run `python -m tests.benchmarks.gang_start [--trials N]`. The same model and the same digits, one
trial after another, two CPU processes that exchange through gloo; with two workers in every trial,
and with one and two in turns. The clock starts where the trial is proposed (our event
TrialProposed; Tune's call for a suggestion) and stops where the last rank ends its first optimizer
step. Ours runs before and after Ray's. The first trial of each sweep, which finds no process there
yet, is shown apart. Ray's side is the documented one: a Tune function that fits a TorchTrainer with
TuneReportCallback.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import clocked

LIMIT = 40.0
RESULTS = Path(__file__).parent / "results" / "gang_start.json"
BATCH = 128
WIDTH = 64
SIDES = ("ours", "ray")
CASES = {"two workers": (2,), "one and two in turns": (1, 2)}


def run_ours(folder: Path, cycle: tuple[int, ...], num_cycles: int) -> dict[str, float]:
    """Run a sweep of ours; return when each trial was proposed, by the name of its notes."""
    from workbench.experiment import Experiment
    from workbench.foundation.events import TrialEnded, TrialProposed
    from workbench.store.database import Store
    from workbench.sweeps.launchers import launch

    rates = [1e-3 * (1 + number) for number in range(num_cycles)]
    experiment = Experiment(
        model={
            "name": "tests.benchmarks.clocked:build_clocked",
            "folder": str(folder),
            "steps": 1,
            "width": WIDTH,
        },
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={
            "lr": {"choices": rates},
            "workers": {"choices": list(cycle)},
        },
        training={
            "epochs": 1,
            "global_batch": BATCH,
            "reference_batch": BATCH,
            "optimizer": "adamw",
        },
        budget={"trials": num_cycles * len(cycle)},
        resources={"concurrency": 1},
    )
    with Store.open(str(folder / "store.db")) as store:
        run_id = store.create_run(experiment)
        for lr in rates:
            for workers in cycle:
                store.command(run_id, "enqueue", {"params": {"lr": lr, "workers": workers}})
        launch(store, run_id, launcher="ray")
        while store.run(run_id).state not in ("complete", "failed", "stopped"):
            time.sleep(0.2)
        events = [stored.event for stored in store.events(run_id)]
        states = [event.state for event in events if isinstance(event, TrialEnded)]
        assert states == ["complete"] * num_cycles * len(cycle), states
        proposed = [event for event in events if isinstance(event, TrialProposed)]
    return {clocked.note_name(event.params): event.time_unix_s for event in proposed}


def train_rank(config: dict[str, Any]) -> None:
    """Train on one of Ray Train's workers, as its documentation shows it."""
    import ray.train
    import torch
    from ray.train.torch import prepare_data_loader, prepare_model
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset

    images, labels = load_digits(return_X_y=True)
    samples = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    loader = prepare_data_loader(
        DataLoader(samples, batch_size=BATCH // config["workers"], shuffle=True)
    )
    model = prepare_model(clocked.build_clocked(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loss = torch.zeros(())
    for inputs, targets in loader:
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ray.train.report({"loss": loss.item()})


def run_trainer(config: dict[str, Any]) -> None:
    """Fit a TorchTrainer as a trial of Tune's, as its documentation shows it."""
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    trainer = TorchTrainer(
        train_rank,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=config["workers"]),
        run_config=ray.train.RunConfig(
            name=f"trial-{tune.get_context().get_trial_id()}",
            storage_path=config["folder"],
            callbacks=[TuneReportCallback()],
        ),
    )
    trainer.fit()


def run_ray(folder: Path, cycle: tuple[int, ...], num_cycles: int) -> dict[str, float]:
    """Run Tune around Ray Train; return when each trial was proposed, by the name of its notes."""
    from ray import tune
    from ray.tune.search import Searcher

    waiting = [
        {
            "lr": 1e-3 * (1 + number),
            "workers": workers,
            "folder": str(folder),
            "steps": 1,
            "width": WIDTH,
        }
        for number in range(num_cycles)
        for workers in cycle
    ]
    num_trials, proposed = len(waiting), {}

    class Listed(Searcher):
        """Suggests one configuration after another, and notes when."""

        def suggest(self, trial_id: str) -> dict[str, Any]:
            config = waiting.pop(0)
            proposed[clocked.note_name(config)] = time.time()
            return config

        def on_trial_complete(
            self, trial_id: str, result: dict | None = None, error: bool = False
        ) -> None:
            pass

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    results = tune.Tuner(
        run_trainer,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=Listed(metric="loss", mode="min"),
            num_samples=num_trials,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()
    assert results.num_errors == 0, results.errors
    return proposed


def measure_here(side: str, num_cycles: int) -> dict[str, list[list[float]]]:
    """Measure one side in this process: [workers, seconds] of each trial, by case."""
    from workbench.cluster.head import attachment, local_head

    times: dict[str, list[list[float]]] = {}
    try:
        # A trial of Tune's holds one CPU itself: with two it would wait for its workers for ever.
        attachment.connect(num_cpus=3 if side == "ray" else 2, num_gpus=0)
        for case, cycle in CASES.items():
            with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
                folder = Path(name)
                proposed = (run_ours if side == "ours" else run_ray)(
                    folder, cycle, num_cycles * 2 // len(cycle)
                )
                times[case] = []
                for note, proposed_unix_s in proposed.items():
                    num_workers = int(note.rpartition("-")[2])
                    ended_unix_s = [
                        notes[0][0] for notes in clocked.read_notes(folder, note, num_workers)
                    ]
                    times[case].append([num_workers, max(ended_unix_s) - proposed_unix_s])
    finally:
        local_head.shutdown()
    return times


def measure(side: str, num_trials: int) -> dict[str, list[list[float]]]:
    """Measure one side in a process of its own, on a Ray head of its own."""
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        command = [sys.executable, "-m", "tests.benchmarks.gang_start", "--side", side]
        command += ["--trials", str(num_trials), "--to", str(Path(home) / "found.json")]
        environment = os.environ | {
            "WORKBENCH_HOME": home,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return json.loads((Path(home) / "found.json").read_text())


def main() -> None:
    """Measure both sides, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--to", type=Path)
    parser.add_argument(
        "--trials", type=int, default=4, help="of Ray's in each case; ours runs five times it"
    )
    arguments = parser.parse_args()
    if arguments.side:
        here = measure_here(arguments.side, arguments.trials // 2)
        arguments.to.write_text(json.dumps(here))
        return
    turns = [
        measure(side, arguments.trials * times)
        for side, times in (("ours", 3), ("ray", 1), ("ours", 2))
    ]
    cases = {case: compare(case, turns) for case in CASES}
    report = {"machine": clocked.describe_machine(), "limit": LIMIT, "cases": cases}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def compare(case: str, turns: list[dict[str, list[list[float]]]]) -> dict[str, Any]:
    """Print and return the seconds of both sides in one case."""
    sides = {"ours": [turns[0][case], turns[2][case]], "ray": [turns[1][case]]}
    table: dict[str, Any] = {}
    for side, sweeps in sides.items():
        warm = [spent_s for sweep in sweeps for _, spent_s in sweep[1:]]
        table[side] = {
            "first_s": [sweep[0][1] for sweep in sweeps],
            "num_trials": len(warm),
            "median_s": statistics.median(warm),
            "slowest_s": max(warm),
            "each": sweeps,
        }
    table["ratio"] = table["ray"]["median_s"] / table["ours"]["median_s"]
    print(f"\n{case}: seconds from a trial's proposal to its first step")
    for side in SIDES:
        row = table[side]
        firsts = ", ".join(f"{first_s:.2f}" for first_s in row["first_s"])
        print(
            f"  {side:<6}{row['median_s']:9.3f} (median of {row['num_trials']}, "
            f"slowest {row['slowest_s']:.3f}; the first trials of sweeps {firsts})"
        )
    print(f"  ours is {table['ratio']:.0f}x as fast; expected: at least {LIMIT:.0f}x", flush=True)
    return table


if __name__ == "__main__":
    main()
