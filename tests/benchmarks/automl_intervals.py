"""How often the intervals of AutoML's scores hold the score on the rows that a table comes from.

Run `python -m tests.benchmarks.automl_intervals [--kind KIND] [--first SEED] [--num N]`. Each table
takes about two seconds of one core. Each run is stored when it has ended, and a later call only
makes those that are missing.

A run takes the way of `wb.automl` from the table to the stored result, with a linear model and
LightGBM. Only its trials are trained in this process, without Ray, and no column is shuffled. The
model that it delivers then predicts thousands of further rows of the same kind: other rows, other
groups, or the rows that follow in time. scikit-learn computes the scores of these predictions.
The folder in WORKBENCH_TABLES has the public tables, as `tests.benchmarks.tables` writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import metrics

import workbench as wb
from tests.benchmarks.clocked import describe_machine
from tests.benchmarks.interval_tables import KINDS, DrawnTable, draw
from tests.builders.ended_automl import create_automl, trained
from tests.builders.recorded_runs import append, begin
from workbench.foundation.events import RunStateChanged
from workbench.runs.automl import held_out_analysis
from workbench.runs.automl.candidates import first_configurations
from workbench.sweeps.conclusion import result_of

RESULTS = Path(__file__).parent / "results" / "automl_intervals.json"
NUM_RUNS = 20
NUM_CANDIDATES = 3
MOST_TREES = 120
"""Fewer than in a run of minutes, so that hundreds of runs are possible."""


def train(found: wb.AutoML) -> None:
    """Train the first candidates of a run on all their folds, in this process."""
    configurations: list[dict[str, Any]] = [
        params | {"lightgbm_num_trees": MOST_TREES, "lightgbm_shrinkage": 0.1}
        if "lightgbm_num_trees" in params
        else params
        for params in first_configurations(found.run.experiment)[:NUM_CANDIDATES]
    ]
    append(found.run.store, found.run.run_id, [*begin(), *trained(found, *configurations)])


def measure(drawn: DrawnTable, seed: int) -> dict[str, Any]:
    """Run AutoML on a table, and return its intervals with the scores on the further rows."""
    began_s = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        store = wb.Store.open(str(Path(folder, "store.sqlite")))
        run = create_automl(
            drawn.rows,
            drawn.target,
            time="10m",
            families="linear,lightgbm",
            metric=drawn.metric,
            seed=seed,
            store=store,
            **drawn.options,
        )
        train(run)
        ending = RunStateChanged(state="complete", reason="time")
        append(
            store,
            run.run.run_id,
            [*result_of(store, run.run.run_id, run.run.experiment, ending), ending],
        )
        result = run.to_json()
        truth = scores_of(run, drawn, list(result["intervals"]))
        store.close()
    scores = {
        name: [*result["intervals"][name], value, result["test"][name]]
        for name, value in truth.items()
    }
    return {
        "num_rows": len(drawn.rows),
        "model": result["model"],
        "was_refitted": bool(result["refit"]),
        "scores": scores,
        "processor_s": round(time.process_time() - began_s, 1),
    }


def scores_of(found: wb.AutoML, drawn: DrawnTable, names: list[str]) -> dict[str, float]:
    """Return the scores of the delivered model on the further rows."""
    targets = drawn.further[drawn.target].to_numpy()
    rows = drawn.further.drop(columns=drawn.target)
    weights = None
    if "weight_column" in drawn.options:
        weights = drawn.further[drawn.options["weight_column"]].to_numpy()
    predicted = found.predict(rows)
    options: dict[str, Any] = {"sample_weight": weights}
    if not found.classes:
        measured = {
            "r2": metrics.r2_score(targets, predicted, **options),
            "rmse": metrics.mean_squared_error(targets, predicted, **options) ** 0.5,
            "mae": metrics.mean_absolute_error(targets, predicted, **options),
            "median_absolute_error": metrics.median_absolute_error(targets, predicted, **options),
            "mape": metrics.mean_absolute_percentage_error(targets, predicted, **options),
        }
        return {name: float(measured[name]) for name in names}
    classes, shares = np.array(found.classes), found.predict_proba(rows)
    kept = np.isin(targets, classes)  # a class that is too rare to be learnt is not predicted
    targets, predicted, shares = targets[kept], predicted[kept], shares[kept]
    if weights is not None:
        options = {"sample_weight": weights[kept]}
    order = np.argsort(classes)
    numbers = np.searchsorted(classes[order], targets)
    is_class = np.eye(len(classes))[numbers]
    pair = {"average": "macro", "zero_division": 0.0, **options}
    positive: Any = pair
    if len(classes) == 2:
        positive = {"pos_label": classes[1], "zero_division": 0.0, **options}
    several = slice(None) if len(classes) > 2 else [int(np.flatnonzero(order == 1)[0])]
    sorted_shares = np.clip(shares[:, order], 1e-7, None)
    measured = {
        "accuracy": metrics.accuracy_score(targets, predicted, **options),
        "balanced_accuracy": metrics.balanced_accuracy_score(targets, predicted, **options),
        "log_loss": -float(
            np.average(
                np.log((sorted_shares * is_class).sum(axis=1)), weights=options["sample_weight"]
            )
        ),
        "macro_f1": metrics.f1_score(targets, predicted, **pair),
        "mcc": metrics.matthews_corrcoef(targets, predicted, **options),
        "f1": metrics.f1_score(targets, predicted, **positive),
        "precision": metrics.precision_score(targets, predicted, **positive),
        "recall": metrics.recall_score(targets, predicted, **positive),
        "roc_auc": metrics.roc_auc_score(
            is_class[:, several], sorted_shares[:, several], average="macro", **options
        ),
        "average_precision": metrics.average_precision_score(
            is_class[:, several], sorted_shares[:, several], average="macro", **options
        ),
    }
    return {name: float(measured[name]) for name in names}


def table_of(runs: dict[str, dict[str, Any]]) -> list[str]:
    """Return how often the intervals held the score, by kind, score and number of rows."""
    held: dict[str, dict[str, list[bool]]] = {
        "kind": defaultdict(list),
        "score": defaultdict(list),
        "rows": defaultdict(list),
        "all": defaultdict(list),
    }
    for name, run in runs.items():
        for score, (low, high, truth, _) in run["scores"].items():
            is_held = low <= truth <= high
            rows = next(most for most in (100, 250, 500, 10**9) if run["num_rows"] <= most)
            keys = (name.rpartition("/")[0], score, f"up to {rows}", "all")
            for by, key in zip(held, keys, strict=True):
                held[by][key].append(is_held)
    lines = []
    for by, measured in held.items():
        for key in sorted(measured):
            share = np.mean(measured[key])
            lines.append(f"{by:6} {key:24} {len(measured[key]):5} intervals  {share:.1%} held")
    return lines


def main() -> None:
    """Measure what is not measured yet, store each run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--num", type=int, default=NUM_RUNS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    held_out_analysis.MAX_SECONDS = -1.0
    tables = Path(os.environ.get("WORKBENCH_TABLES", ".tables"))
    runs: dict[str, dict[str, Any]] = {}
    if arguments.results.exists():
        runs = json.loads(arguments.results.read_text(encoding="utf-8"))["runs"]
    for seed in range(arguments.first, arguments.first + arguments.num):
        for kind in arguments.kind or KINDS:
            name = f"{kind}/{seed}"
            if name in runs or (kind == "public" and not tables.exists()):
                continue
            runs[name] = measure(draw(kind, seed, tables), seed)
            document = {"machine": describe_machine(), "runs": runs}
            arguments.results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(name, runs[name]["num_rows"], runs[name]["model"], flush=True)
    print("\n".join(table_of(runs)))


if __name__ == "__main__":
    main()
