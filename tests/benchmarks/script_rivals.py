"""What three public scripts need as trials of ours, of Optuna, of Ray Tune and of a W&B sweep.

Run `python -m tests.benchmarks.script_rivals [--quick]`. The scripts are those of the guide on
public scripts: they take the options and print the lines of the originals, and end within a second.
None is changed. Each side tries eight configurations, two at once, proposed by TPE, and stops those
that are worse than the median. Lines are those a user writes, without blank ones. Seconds are from
the start of a process to its end. The sides take turns.

A W&B sweep needs its server. Its lines follow its documentation, and it is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import clocked

RESULTS = Path(__file__).parent / "results" / "script_rivals.json"
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "training" / "programs" / "public"
GUIDE = ROOT / "docs" / "guides" / "public-scripts.md"
NUM_TRIALS, NUM_TURNS = 8, 3


@dataclass(frozen=True)
class Program:
    """A script, and what the rivals must be told about it.

    Attributes:
        name: The name of its file and of its experiment in the guide.
        words: What its command has besides what is searched.
        optuna: What Optuna suggests, as lines.
        tune: The same for Ray Tune, as lines.
        wandb: The same for a W&B sweep, as lines.
        passed: The searched options in a list of words.
        line: A pattern of the line with the metric.
        metric: The value of the metric, from the match.
        mode: max or min.
        logged: What must be added to the script so that W&B receives the metric.
    """

    name: str
    words: tuple[str, ...]
    optuna: tuple[str, ...]
    tune: tuple[str, ...]
    wandb: tuple[str, ...]
    passed: str
    line: str
    metric: str
    mode: str
    logged: tuple[str, ...]


PROGRAMS = (
    Program(
        "mnist",
        ("--epochs", "5"),
        (
            'lr = trial.suggest_float("lr", 0.1, 2.0, log=True)',
            'gamma = trial.suggest_float("gamma", 0.5, 0.95)',
        ),
        ('"lr": tune.loguniform(0.1, 2.0),', '"gamma": tune.uniform(0.5, 0.95),'),
        (
            "  lr: {distribution: log_uniform_values, min: 0.1, max: 2.0}",
            "  gamma: {min: 0.5, max: 0.95}",
        ),
        'f"--lr={lr}", f"--gamma={gamma}"',
        r"Accuracy: (\d+)/(\d+)",
        "int(match[1]) / int(match[2])",
        "max",
        (
            "import wandb",
            "wandb.init()",
            'wandb.log({"value": correct / 10000})',
        ),
    ),
    Program(
        "language_model",
        ("--epochs", "6", "--save", "{folder}/model.pt"),
        (
            'lr = trial.suggest_float("lr", 1.0, 30.0, log=True)',
            'tied = ["--tied"] if trial.suggest_categorical("tied", [True, False]) else []',
        ),
        ('"lr": tune.loguniform(1.0, 30.0),', '"tied": tune.choice([True, False]),'),
        (
            "  lr: {distribution: log_uniform_values, min: 1.0, max: 30.0}",
            "  tied: {values: [true, false]}",
        ),
        'f"--lr={lr}", *tied',
        r"valid loss\s+(\S+)",
        "float(match[1])",
        "min",
        ("import wandb", "wandb.init()", 'wandb.log({"value": val_loss})'),
    ),
    Program(
        "gpt_trainer",
        ("shakespeare_char.py", "--out_dir={folder}"),
        (
            'rate = trial.suggest_float("learning_rate", 0.0001, 0.01, log=True)',
            'size = trial.suggest_categorical("batch_size", [32, 64])',
        ),
        ('"learning_rate": tune.loguniform(0.0001, 0.01),', '"batch_size": tune.choice([32, 64]),'),
        (
            "  learning_rate: {distribution: log_uniform_values, min: 0.0001, max: 0.01}",
            "  batch_size: {values: [32, 64]}",
        ),
        'f"--learning_rate={rate}", f"--batch_size={size}"',
        r"val loss (\S+)",
        "float(match[1])",
        "min",
        ("import wandb", "wandb.init()", 'wandb.log({"value": val_loss})'),
    ),
)
OPTUNA = """
import re, subprocess, sys, tempfile
import optuna
def objective(trial):
    {suggested}
    folder, value = tempfile.mkdtemp(), None
    command = [sys.executable, "-u", {words}, {passed}]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for step, line in enumerate(process.stdout):
            if match := re.search(r"{line}", line):
                value = {metric}
                trial.report(value, step)
                if trial.should_prune():
                    process.terminate()
                    raise optuna.TrialPruned
    if process.returncode or value is None:
        raise RuntimeError(f"it ended with {{process.returncode}}")
    return value
study = optuna.create_study(
    direction="{mode}imize", storage="sqlite:///study.db", pruner=optuna.pruners.MedianPruner()
)
study.optimize(objective, n_trials={num}, n_jobs=2)
"""
TUNE = """
import re, subprocess, sys, tempfile
from ray import tune
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.search.optuna import OptunaSearch
def train(config):
    {suggested}
    folder = tempfile.mkdtemp()
    command = [sys.executable, "-u", {words}, {passed}]
    process = subprocess.Popen(command, cwd="{cwd}", stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if match := re.search(r"{line}", line):
                tune.report({{"value": {metric}}})
    finally:
        process.terminate()
    if process.wait() not in (0, -15):
        raise RuntimeError(f"it ended with {{process.returncode}}")
space = {{
    {space}
}}
tuner = tune.Tuner(
    train,
    param_space=space,
    tune_config=tune.TuneConfig(
        metric="value", mode="{mode}", search_alg=OptunaSearch(), num_samples={num},
        scheduler=MedianStoppingRule(), max_concurrent_trials=2,
    ),
)
tuner.fit()
"""
WANDB = """
program: {name}.py
method: bayes
metric: {{name: value, goal: {mode}imize}}
early_terminate: {{type: hyperband, min_iter: 2}}
run_cap: {num}
command: ["${{interpreter}}", "${{program}}", {arguments}, "${{args_no_boolean_flags}}"]
parameters:
{space}
"""


def ours(program: Program) -> str:
    """Return the experiment of the guide, with the budget of this comparison."""
    files = dict(re.findall(r":caption: (\w+)\.yaml\n\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    lines = [line for line in files[program.name].strip().splitlines() if "plan:" not in line]
    lines = [line for line in lines if "early_stop:" not in line]
    return "\n".join(
        [
            *lines,
            "early_stop: {pruner: median}",
            f"budget: {{trials: {NUM_TRIALS}}}",
            "sampler: tpe",
        ]
    )


def written_for(program: Program, side: str, folder: Path) -> str:
    """Return what a user of one side writes for a program."""
    if side == "workbench":
        return ours(program)
    words = [f'"{program.name}.py"']
    words += [f'{"f" if "{" in word else ""}"{word}"' for word in program.words]
    fields = {
        "name": program.name,
        "words": ", ".join(words),
        "passed": program.passed,
        "line": program.line,
        "metric": program.metric,
        "mode": program.mode,
        "num": NUM_TRIALS,
        "cwd": folder,
    }
    if side == "optuna":
        return OPTUNA.format(suggested="\n    ".join(program.optuna), **fields)
    if side == "wandb":
        arguments = ", ".join(f'"{word.replace("{folder}", "out")}"' for word in program.words)
        return WANDB.format(space="\n".join(program.wandb), arguments=arguments, **fields)
    suggested = [
        re.sub(r'trial\.suggest_\w+\(("\w+").*?\)(?= else|$)', r"config[\1]", line)
        for line in program.optuna
    ]
    return TUNE.format(
        suggested="\n    ".join(suggested), space="\n    ".join(program.tune), **fields
    )


def num_lines(text: str) -> int:
    """Return the number of lines that are not blank."""
    return sum(bool(line.strip()) for line in text.splitlines())


def run(program: Program, side: str) -> float:
    """Run one side on one program in a folder of its own, and return the seconds it took."""
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        folder = Path(name)
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, folder)
        file = folder / ("trials.yaml" if side == "workbench" else "trials.py")
        file.write_text(written_for(program, side, folder))
        command = [sys.executable, file.name]
        if side == "workbench":
            command = [sys.executable, "-m", "workbench", "sweep", file.name]
        environment = os.environ | {
            "WORKBENCH_HOME": str(folder / "home"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
            "PYTHONPATH": str(ROOT),
        }
        for variable in ("WORKBENCH_STORE", "WORKBENCH_ARTIFACTS"):
            environment.pop(variable, None)
        started_s = time.perf_counter()
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - started_s
        if side == "workbench":
            stop = "from workbench.cluster.head import local_head; local_head.shutdown()"
            subprocess.run([sys.executable, "-c", stop], env=environment, check=True)
    if ended.returncode:
        raise RuntimeError(f"{side} failed on {program.name}:\n{ended.stdout}\n{ended.stderr}")
    return seconds


def main() -> None:
    """Count lines, measure all sides, print the table, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn")
    parser.add_argument("--lines", action="store_true", help="count lines and time nothing")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, dict[str, float]]] = {}
    num_turns = 1 if arguments.quick else NUM_TURNS
    for program in PROGRAMS:
        row: dict[str, dict[str, float]] = {}
        for side in ("workbench", "optuna", "ray tune", "wandb"):
            lines = num_lines(written_for(program, side, Path("folder")))
            in_script = len(program.logged) if side == "wandb" else 0
            row[side] = {"lines": lines, "lines_in_script": in_script}
        timed = [] if arguments.lines else ["workbench", "optuna", "ray tune"]
        seconds: dict[str, list[float]] = {side: [] for side in timed}
        for turn in range(num_turns):
            for side in timed if turn % 2 == 0 else reversed(timed):
                seconds[side].append(run(program, side))
        for side, values in seconds.items():
            row[side]["seconds"] = statistics.median(values)
        rows[program.name] = row
        print(
            f"{program.name:<15}"
            + "  ".join(
                f"{side} {figures['lines']:.0f}+{figures['lines_in_script']:.0f} lines"
                + (f" {figures['seconds']:.1f} s" if "seconds" in figures else "")
                for side, figures in row.items()
            ),
            flush=True,
        )
    if not (arguments.quick or arguments.lines):
        report = {
            "machine": clocked.describe_machine(),
            "load_average_at_start": os.getloadavg()[0],
            "num_trials": NUM_TRIALS,
            "programs": rows,
        }
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
