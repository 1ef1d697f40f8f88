"""Which configurations of each family a run on a table should try first.

Run `python -m tests.benchmarks.table_portfolio [--table NAME] [--most-rows N]`; about five minutes
of one core. Each configuration of the pool learns from two thirds of the train rows of a table and
is measured on the others, as a trial is. Its regret is 0 for the best configuration of the table
and 1 for the simplest guess. Configurations are then picked greedily: the next one is that with
which the mean regret of the best of those picked falls the most, so that each covers the tables on
which the others are weak. `workbench.runs.automl.candidates` starts with the first of each family.

Test rows are never read. WORKBENCH_RIVALS_PYTHON names the interpreter with the tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tests.benchmarks.automl_tables import prepare as write_table
from tests.benchmarks.clocked import describe_machine
from workbench.models.configurations import FittedConfiguration, configure
from workbench.runs.automl.preparation import prepare
from workbench.runs.automl.scores import loss_of
from workbench.runs.automl.task_detection import read_problem

RESULTS = Path(__file__).parent / "results" / "table_portfolio.json"
USED_TABLES = (
    "wage",
    "loans",
    "orange_juice",
    "visits",
    "personality",
    "grades",
    "schooling",
    "college",
    "bikes",
    "restaurants",
)
NUM_ROUNDS = 10
_LIGHTGBM = {"num_trees": 500, "shrinkage": 0.06, "samples_per_tree": 0.8}
_XGBOOST = {"num_trees": 400, "shrinkage": 0.06}
_CATBOOST = {"num_trees": 300, "shrinkage": 0.08}
_FOREST = {"num_trees": 120}
POOL: list[tuple[str, dict[str, Any]]] = [
    ("lightgbm", {**_LIGHTGBM, "max_leaves": 31, "features_per_tree": 0.8}),
    (
        "lightgbm",
        {
            **_LIGHTGBM,
            "max_leaves": 7,
            "min_samples_leaf": 10,
            "l2": 1.0,
            "features_per_tree": 0.6,
        },
    ),
    ("lightgbm", {**_LIGHTGBM, "max_leaves": 4, "l2": 1.0, "features_per_tree": 0.5}),
    (
        "lightgbm",
        {**_LIGHTGBM, "max_leaves": 31, "features_per_tree": 0.8, "random_thresholds": True},
    ),
    (
        "lightgbm",
        {
            **_LIGHTGBM,
            "max_leaves": 12,
            "min_samples_leaf": 10,
            "l2": 0.1,
            "samples_per_tree": 0.7,
            "random_thresholds": True,
        },
    ),
    (
        "lightgbm",
        {
            **_LIGHTGBM,
            "max_leaves": 90,
            "min_samples_leaf": 5,
            "l2": 5.0,
            "features_per_tree": 0.4,
        },
    ),
    ("xgboost", {**_XGBOOST, "max_depth": 6, "features_per_tree": 0.8, "samples_per_tree": 0.8}),
    (
        "xgboost",
        {
            **_XGBOOST,
            "max_depth": 4,
            "min_child_weight": 5.0,
            "features_per_tree": 0.6,
            "samples_per_tree": 0.7,
        },
    ),
    (
        "xgboost",
        {
            **_XGBOOST,
            "max_depth": 9,
            "min_child_weight": 10.0,
            "l2": 5.0,
            "features_per_tree": 0.5,
            "samples_per_tree": 0.7,
        },
    ),
    ("catboost", {**_CATBOOST, "depth": 6}),
    ("catboost", {**_CATBOOST, "depth": 4, "l2": 5.0, "features_per_split": 0.7}),
    ("catboost", {**_CATBOOST, "depth": 7, "l2": 8.0, "features_per_split": 0.5}),
    ("extra_trees", {**_FOREST, "min_samples_leaf": 1, "features_per_split": 0.5}),
    ("extra_trees", {**_FOREST, "min_samples_leaf": 3, "features_per_split": 0.3}),
    ("extra_trees", {**_FOREST, "min_samples_leaf": 5, "features_per_split": 0.8}),
    ("linear", {"l2": 0.1}),
    ("linear", {"l2": 1.0}),
    ("linear", {"l2": 30.0}),
]


def measure(table: Path, most_rows: int) -> dict[str, Any]:
    """Return the loss and the time of each configuration on a table, and the loss of a guess."""
    about = json.loads((table / "about.json").read_text())
    rows = pd.read_csv(table / "train.csv")
    if len(rows) > most_rows:
        rows = rows.sample(most_rows, random_state=0)
    problem = read_problem(rows, about["target"])
    learning, held_out = prepare(problem, 0, [0, 1, 2, 3, 4], "fast")
    fold, reader = learning.folds[0], held_out.interpreter.readers[0]
    num_classes = len(learning.class_names) or None
    targets = fold.validation_targets
    guess = np.tile(held_out.guess, (len(targets), 1))
    if num_classes is None:
        guess = (guess - reader.target_mean) / reader.target_scale
    found: list[dict[str, float]] = []
    for family, values in POOL:
        configuration = configure(family, values)
        assert isinstance(configuration, FittedConfiguration)
        began_s, losses = time.process_time(), []
        for model in configuration.grow(
            fold.train_inputs,
            fold.train_targets,
            num_classes=num_classes,
            num_rounds=NUM_ROUNDS,
            seed=0,
        ):
            with torch.inference_mode():
                outputs = model(torch.from_numpy(fold.validation_inputs)).double()
            predicted = outputs if num_classes is None else outputs.softmax(dim=1)
            losses.append(loss_of(predicted.numpy(), targets, problem.task))
            if configuration.patience and len(losses) - np.argmin(losses) > configuration.patience:
                break
        found.append({"loss": min(losses), "time_s": time.process_time() - began_s})
    return {"guess": loss_of(guess, targets, problem.task), "found": found}


def regrets_of(tables: dict[str, Any]) -> np.ndarray:
    """Return the regret of each configuration on each table, (configurations, tables)."""
    columns = []
    for measured in tables.values():
        losses = np.array([row["loss"] for row in measured["found"]])
        columns.append((losses - losses.min()) / (measured["guess"] - losses.min()))
    return np.stack(columns, axis=1)


def picked(regrets: np.ndarray) -> list[int]:
    """Return configurations in the order in which each adds the most to those before it."""
    order: list[int] = []
    best = np.full(regrets.shape[1], np.inf)
    while len(order) < len(regrets):
        left = [number for number in range(len(regrets)) if number not in order]
        order.append(min(left, key=lambda each: np.minimum(best, regrets[each]).mean()))
        best = np.minimum(best, regrets[order[-1]])
    return order


def main() -> None:
    """Measure, print the order, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="append", choices=USED_TABLES)
    parser.add_argument("--most-rows", type=int, default=1600)
    arguments = parser.parse_args()
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.table or USED_TABLES:
            write_table(name, Path(folder, name))
            tables[name] = measure(Path(folder, name), arguments.most_rows)
            print(name, flush=True)
    regrets = regrets_of(tables)
    best = np.full(len(tables), np.inf)
    for number in picked(regrets):
        best = np.minimum(best, regrets[number])
        family, values = POOL[number]
        alone = regrets[number].mean()
        print(f"{alone:6.3f} alone  {best.mean():6.3f} with those above  {family} {values}")
    document = {"machine": describe_machine(), "pool": POOL, "tables": tables}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
