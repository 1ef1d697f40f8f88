"""Populations against random search and Ray Tune's population-based training, on a task with a
schedule.

Run `python -m tests.benchmarks populations`. The task is the one of Ray Tune's own example: the
best learning rate first rises with the accuracy and then falls, so that no constant one is good
throughout. Every method trains eight members for 200 steps with the same seeds: ours through the
study of a run, Ray's through `Tuner.fit`. Printed are medians of the best final accuracy, and ours
over Ray's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.studies import make_experiment
from workbench.foundation.events import TrialEnded
from workbench.search import Study

RESULTS = Path(__file__).parent / "results" / "populations.json"
NUM_MEMBERS, NUM_STEPS, EVERY = 8, 200, 20
RANGE = (1e-4, 2e-2)
QUANTILE = RESAMPLE = 0.25


def step(accuracy: float, lr: float, rng: random.Random) -> float:
    """Return the accuracy after a step of training.

    Source: Ray Tune's example `pbt_function`, with its constants.
    """
    midpoint, tolerance, noise = 100.0, 3.0, 2.0
    best = (
        0.01 * accuracy / midpoint
        if accuracy < midpoint
        else 0.01 - 0.01 * (accuracy - midpoint) / midpoint
    )
    best = min(max(best, 0.001), 0.01)
    error = max(best, lr) / min(best, lr)
    if error < tolerance:
        accuracy += rng.random() / error
    elif lr > best:
        accuracy -= (error - tolerance) * rng.random()
    return max(0.0, accuracy + noise * rng.gauss(0.0, 1.0))


def search_by(sampler: str, seed: int) -> float:
    """Train the members of one of our populations, or constant rates.

    Return the best final accuracy.
    """
    is_population = sampler != "random"
    options = (
        {
            "population": NUM_MEMBERS,
            "every": EVERY,
            "length": NUM_STEPS,
            "quantile": QUANTILE,
            "resample": RESAMPLE,
        }
        if is_population
        else {}
    )
    study = Study(
        make_experiment(
            sampler={"name": sampler, "options": options},
            seed=seed,
            objectives=[{"metric": "loss", "goal": "maximize"}],
            search={"lr": {"low": RANGE[0], "high": RANGE[1]}},
            budget={"trials": NUM_MEMBERS * NUM_STEPS},
        )
    )
    reached: dict[int, float] = {}
    finals: list[float] = []
    rng = random.Random(seed)
    while len(finals) < NUM_MEMBERS:
        proposal = study.ask()
        assert proposal is not None
        part, lr = proposal.segment, proposal.params["lr"]
        assert isinstance(lr, float)
        begin, end = (0, NUM_STEPS) if part is None else (part.begin, part.end)
        accuracy = 0.0 if part is None or part.continues is None else reached[part.continues]
        for _ in range(begin, end):
            accuracy = step(accuracy, lr, rng)
        reached[proposal.trial] = accuracy
        finals += [accuracy] if end == NUM_STEPS else []
        study.tell(
            proposal.trial,
            TrialEnded(
                trial=proposal.trial, attempt=0, state="complete", values={"loss": accuracy}
            ),
        )
    return max(finals)


def search_by_ray(seed: int, folder: str) -> float:
    """Train the members of Ray Tune's population; return the best final accuracy."""
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    class Member(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._accuracy, self._rng = 0.0, random.Random(f"{seed}/{config['member']}")

        def step(self) -> dict[str, Any]:
            for _ in range(EVERY):
                self._accuracy = step(self._accuracy, self.config["lr"], self._rng)
            return {"accuracy": self._accuracy, "done": self.iteration + 1 >= NUM_STEPS // EVERY}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            (Path(checkpoint_dir) / "accuracy").write_text(str(self._accuracy))

        def load_checkpoint(self, checkpoint: Any) -> None:
            self._accuracy = float((Path(checkpoint) / "accuracy").read_text())

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

    random.seed(seed)
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="accuracy",
        mode="max",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.uniform(*RANGE)},
        quantile_fraction=QUANTILE,
        resample_probability=RESAMPLE,
        synch=True,
    )
    tuner = tune.Tuner(
        tune.with_resources(Member, {"cpu": 0.01}),
        param_space={
            "lr": tune.uniform(*RANGE),
            "member": tune.grid_search(list(range(NUM_MEMBERS))),
        },
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    results = tuner.fit()
    return max(result.metrics["accuracy"] for result in results if result.metrics)


def main() -> None:
    """Measure, print, and store the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--ray-seeds", type=int, default=10, help="0 leaves Ray Tune out")
    arguments = parser.parse_args()
    scores: dict[str, list[float]] = {
        sampler: [search_by(sampler, seed) for seed in range(arguments.seeds)]
        for sampler in ("random", "pbt", "pb2")
    }
    if arguments.ray_seeds:
        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        with tempfile.TemporaryDirectory() as folder:
            scores["ray pbt"] = [search_by_ray(seed, folder) for seed in range(arguments.ray_seeds)]
    medians = {name: statistics.median(values) for name, values in scores.items()}
    for name, values in scores.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        print(
            f"{name:>8}: {medians[name]:6.1f}  (quartiles {quartiles[0]:.1f} to {quartiles[2]:.1f})"
        )
    if "ray pbt" in medians:
        num = arguments.ray_seeds
        for name in ("pbt", "pb2"):
            ratio = statistics.median(scores[name][:num]) / medians["ray pbt"]
            print(f"{name} / ray pbt, the first {num} seeds: {ratio:.2f}")
    result = {"machine": describe_machine(), "medians": medians, "accuracies": scores}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
