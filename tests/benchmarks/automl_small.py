"""What three lines bring.

`wb.automl` beside FLAML and plain scikit-learn, on the same rows in the same time.

Run `python -m tests.benchmarks.automl_small [--quick] [--time S] [--seeds N] [--task NAME]`;
about an hour on two cores, which should do nothing else. Data ships with scikit-learn (digits as
images, breast_cancer, wine, diabetes) or with Python (docstrings of its standard library, by the
package that they come from).

For each seed `automl` sets a fifth of the samples aside; everybody is tested on exactly these and
may use all others as they like. All get the same wall-clock time and two cores. Scikit-learn takes
boosted trees or a linear model with their defaults, whichever is better on the validation samples,
and fits it again on all. Ray is up before our clock starts, imports are outside of the others'
clocks. FLAML is skipped where it is not installed (`pip install "flaml[automl]"`);
WORKBENCH_RIVALS_PYTHON names the interpreter that has it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tests.benchmarks.clocked import describe_machine

RESULTS = Path(__file__).parent / "results" / "automl.json"
RIVALS = Path(__file__).with_name("automl_rivals.py")
TASKS = ("digits", "breast_cancer", "wine", "diabetes", "docstrings")
SIDES = ("ours", "FLAML", "scikit-learn")
PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "logging",
    "multiprocessing",
    "unittest",
    "xml",
)
NUM_CPUS = 2
TIME_S, NUM_SEEDS = 60.0, 5
QUICK_TIME_S = 15.0


def read_task(name: str) -> tuple[Any, np.ndarray]:
    """Return the samples and the targets of a task."""
    from sklearn import datasets

    if name == "docstrings":
        return docstrings()
    loaded = getattr(datasets, f"load_{name}")()
    return (loaded.images if name == "digits" else loaded.data), loaded.target


def docstrings() -> tuple[np.ndarray, np.ndarray]:
    """Return first lines of docstrings of the standard library, and the package of each."""
    texts: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted(Path(sysconfig.get_path("stdlib"), package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                    line = (ast.get_docstring(node) or "").split("\n")[0].strip()
                    if len(line.split()) >= 3:
                        texts.setdefault(line, package)
    return np.array(list(texts), dtype=object), np.array(list(texts.values()))


def run_ours(task: str, seed: int, time_s: float) -> dict[str, Any]:
    """Run `automl` in this process, on a head that is up."""
    import workbench as wb

    samples, targets = read_task(task)
    began_s = time.monotonic()
    run = wb.automl((samples, targets), time=time_s, seed=seed).wait()
    score = run.score()
    took_s = time.monotonic() - began_s
    name = next(iter(score))
    return {
        "score": score[name],
        "time_s": took_s,
        "guess": run.baseline[name],
        "model": run.to_json()["model"],
        "trials": len(run.run.trials),
    }


def run_rival(side: str, task: str, seed: int, time_s: float) -> dict[str, Any] | None:
    """Run a rival on the rows that ours may use, and score it on those that ours is tested on."""
    from workbench.data.splits import split_indices
    from workbench.runs.automl.given_data import take
    from workbench.runs.automl.preparation import VALIDATION_FRACTION, divide
    from workbench.runs.automl.scores import scores_of
    from workbench.runs.automl.task_detection import read_problem

    samples, targets = read_task(task)
    question = read_problem((samples, targets))
    rest, test = divide(question, seed)
    classes = question.targets[rest] if question.class_names else None
    parts = split_indices(
        len(rest), validation_fraction=VALIDATION_FRACTION, seed=seed, classes=classes
    )
    validation = np.isin(np.arange(len(rest)), parts[1])
    samples = np.asarray(question.samples)
    if question.kind == "texts":
        samples = samples.astype(str)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.npz")
        np.savez(
            path,
            inputs=take(samples, rest),
            targets=question.targets[rest],
            test_inputs=take(samples, test),
            validation=validation,
            task=question.task,
        )
        python = os.environ.get("WORKBENCH_RIVALS_PYTHON", sys.executable)
        command = [python, str(RIVALS), side, str(path), str(time_s), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        if "No module named" not in done.stderr:
            print(done.stderr, file=sys.stderr)
        return None
    said = json.loads(done.stdout.strip().splitlines()[-1])
    predicted = np.array(said["predicted"])
    outputs = (
        predicted[:, None]
        if question.task == "regression"
        else np.eye(len(question.class_names))[predicted.astype(int)]
    )
    score = scores_of(outputs, question.targets[test], question.task)
    return {"score": next(iter(score.values())), "time_s": said["time_s"]}


def measure_ours(tasks: list[str], seeds: range, time_s: float) -> dict[str, list[dict[str, Any]]]:
    """Run `automl` on all tasks on a Ray head of its own."""
    import workbench as wb
    from workbench.cluster.head import attachment, local_head

    attachment.connect(num_cpus=NUM_CPUS, num_gpus=0)
    try:
        wb.automl(read_task("wine"), time=10).wait()  # processes and imports
        return {task: [run_ours(task, seed, time_s) for seed in seeds] for task in tasks}
    finally:
        local_head.shutdown()


def measure_in_a_process_of_its_own(
    tasks: list[str], num_seeds: int, time_s: float
) -> dict[str, Any]:
    """Run ours with a home and a store that nobody else uses."""
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.automl_small",
            "--ours",
            "--time",
            str(time_s),
        ]
        command += [
            "--seeds",
            str(num_seeds),
            *(word for task in tasks for word in ("--task", task)),
        ]
        environment = os.environ | {
            "WORKBENCH_HOME": home,
            "WORKBENCH_STORE": str(Path(home, "store.sqlite")),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def summarise(table: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, float]:
    """Print the table, and return the mean score of each side over all tasks."""
    print(f"\n{'':<14}{'guess':>8}" + "".join(f"{side:>28}" for side in SIDES))
    for task, sides in table.items():
        cells = [f"{task:<14}{fmean(each['guess'] for each in sides['ours']):>8.3f}"]
        for side in SIDES:
            measured = sides.get(side)
            if not measured:
                cells.append(f"{'not installed':>28}")
                continue
            scores = [row["score"] for row in measured]
            spread = stdev(scores) if len(scores) > 1 else 0.0
            took_s = fmean(each["time_s"] for each in measured)
            cells.append(f"{fmean(scores):>14.4f} ±{spread:.4f}{took_s:>5.0f} s")
        print("".join(cells))
    means = {
        side: fmean(each["score"] for sides in table.values() for each in sides[side])
        for side in SIDES
        if all(sides.get(side) for sides in table.values())
    }
    print(
        f"{'mean':<14}{'':>8}"
        + "".join(f"{means.get(side, float('nan')):>28.4f}" for side in SIDES)
    )
    return means


def main() -> None:
    """Measure all sides, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed and a quarter of the time")
    parser.add_argument("--time", type=float, help="seconds for each side")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tasks: list[str] = arguments.task or [*TASKS]
    time_s = arguments.time or (QUICK_TIME_S if arguments.quick else TIME_S)
    num_seeds = arguments.seeds or (1 if arguments.quick else NUM_SEEDS)
    if arguments.ours:
        print(json.dumps(measure_ours(tasks, range(num_seeds), time_s)))
        return
    ours = measure_in_a_process_of_its_own(tasks, num_seeds, time_s)
    table: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for task in tasks:
        table[task] = {"ours": ours[task]}
        for side in SIDES[1:]:
            measured = [run_rival(side, task, seed, time_s) for seed in range(num_seeds)]
            if all(measured):
                table[task][side] = [row for row in measured if row]
    means = summarise(table)
    if not arguments.quick and not arguments.task:
        report = {
            "machine": describe_machine(),
            "time_s": time_s,
            "seeds": num_seeds,
            "tasks": table,
            "mean_scores": means,
            "load_average_at_end": os.getloadavg()[0],
        }
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
