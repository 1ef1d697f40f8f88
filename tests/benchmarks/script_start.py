"""What starting a script as a trial costs.

Ours, a plain agent, Ray Tune around a script, and our function.

Run `python -m tests.benchmarks.script_start [--quick]`. Every side tries configurations of TPE one
after another, in a process of its own, on a Ray head of its own that is up before the clock starts;
the sides take turns. The script reports once and does nothing else, so that all of a trial is
overhead. The agent stands for `wandb agent` without its server: it asks Optuna, starts the process
and reads its output, keeps nothing and could not stop it. Ray Tune runs the script by subprocess in
a function, as its users do. Our function does the same work in a warm worker.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "script_start.json"
SCRIPT = Path(__file__).parent / "script_to_start.py"
TASKS = {"plain": [], "torch": ["--torch"]}
NUM_TURNS = 2
Trials = list[tuple[float, float, float]]
"""When each trial was proposed, first reported, and had ended, in seconds of the clock."""


def train_plain(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Do what the script does, as a function."""
    report(step=1, loss=(config["x"] - 0.3) ** 2)


def train_torch(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Do what the script does with torch, as a function."""
    import torch

    report(step=1, loss=(torch.tensor(config["x"]).item() - 0.3) ** 2)


def run_ours(what: dict[str, Any], num_trials: int) -> Trials:
    """Run trials of ours with a command or a function."""
    from workbench.experiment import Experiment
    from workbench.foundation.events import TrialEnded, TrialProposed, TrialReported
    from workbench.store.database import Store
    from workbench.sweeps.launchers import launch

    experiment = Experiment(
        **what,
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
        sampler="tpe",
        budget={"trials": num_trials},
        resources={"concurrency": 1},
    )
    times: dict[str, dict[int, float]] = {}
    with Store.open(str(Path(os.environ["WORKBENCH_HOME"]) / "store.db")) as store:
        run_id = store.create_run(experiment)
        launch(store, run_id, launcher="inline")
        for stored in store.events(run_id):
            event = stored.event
            if isinstance(event, (TrialProposed, TrialReported, TrialEnded)):
                times.setdefault(event.type, {}).setdefault(event.trial, event.time_unix_s)
    columns = [times[kind] for kind in ("trial_proposed", "trial_reported", "trial_ended")]
    return [tuple(column[number] for column in columns) for number in range(num_trials)]  # type: ignore[misc]


def run_command(task: str, num_trials: int) -> Trials:
    """Run the script as it is."""
    command = ["python", str(SCRIPT), "--x", "{x}", *TASKS[task]]
    return run_ours({"command": command}, num_trials)


def run_function(task: str, num_trials: int) -> Trials:
    """Run the same work as a function."""
    return run_ours({"train": f"tests.benchmarks.script_start:train_{task}"}, num_trials)


def run_agent(task: str, num_trials: int) -> Trials:
    """Start a process for each configuration, and read what it prints."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    trials: Trials = []
    for _ in range(num_trials):
        proposed_s = time.time()
        trial = study.ask()
        loss, first_s = 0.0, proposed_s
        command = [
            sys.executable,
            "-u",
            str(SCRIPT),
            "--x",
            str(trial.suggest_float("x", 0.0, 1.0)),
        ]
        with subprocess.Popen(
            [*command, *TASKS[task]], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := re.search(r"loss=(\S+)", line):
                    loss, first_s = float(match[1]), time.time()
        study.tell(trial, loss)
        trials.append((proposed_s, first_s, time.time()))
    return trials


def run_tune(task: str, num_trials: int) -> Trials:
    """Run Ray Tune with a function that runs the script and reports what it printed."""
    from ray import tune
    from ray.tune import Callback
    from ray.tune.search.optuna import OptunaSearch

    command = [sys.executable, str(SCRIPT), *TASKS[task], "--x"]

    def objective(config: dict[str, float]) -> None:
        done = subprocess.run(
            [*command, str(config["x"])], stdout=subprocess.PIPE, text=True, check=True
        )
        tune.report({"loss": float(done.stdout.partition("=")[2])})

    proposed_s: dict[str, float] = {}
    first_s: dict[str, float] = {}
    ended_s: dict[str, float] = {}

    class Search(OptunaSearch):
        def suggest(self, trial_id: str) -> Any:
            proposed_s[trial_id] = time.time()
            return super().suggest(trial_id)

    class Clock(Callback):
        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: Any, **_: Any
        ) -> None:
            first_s.setdefault(trial.trial_id, time.time())

        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **_: Any
        ) -> None:
            ended_s[trial.trial_id] = time.time()

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    tuner = tune.Tuner(
        objective,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=Search(),
            num_samples=num_trials,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(
            storage_path=os.environ["WORKBENCH_HOME"], verbose=0, callbacks=[Clock()]
        ),
    )
    tuner.fit()
    return [(proposed_s[name], first_s[name], ended_s[name]) for name in ended_s]


SIDES: dict[str, Callable[[str, int], Trials]] = {
    "our command": run_command,
    "our function": run_function,
    "agent": run_agent,
    "ray tune": run_tune,
}


def measure_here(side: str, task: str, num_trials: int) -> None:
    """Measure one side in this process and print its times as JSON."""
    if side == "agent":
        print(json.dumps(run_agent(task, num_trials)))
        return
    from workbench.cluster.head import attachment, local_head

    try:
        attachment.connect(num_cpus=2, num_gpus=0)
        trials = SIDES[side](task, num_trials)
    finally:
        local_head.shutdown()
    print(json.dumps(trials))


def measure(side: str, task: str, num_trials: int) -> Trials:
    """Measure one side in a process of its own.

    Leave out the first trial, for which processes start.
    """
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.script_start",
            "--side",
            side,
            "--task",
            task,
        ]
        environment = os.environ | {
            "WORKBENCH_HOME": home,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
        }
        done = subprocess.run(
            [*command, "--trials", str(num_trials + 1)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return sorted(json.loads(done.stdout.strip().splitlines()[-1]))[1:]


def compare(task: str, num_trials: int, num_turns: int) -> dict[str, dict[str, float]]:
    """Measure all sides in turns, and print the table."""
    found: dict[str, Trials] = {side: [] for side in SIDES}
    for _ in range(num_turns):
        for side in SIDES:
            found[side] += measure(side, task, num_trials)
    table = {
        side: {
            "first_report_s": statistics.median(first - proposed for proposed, first, _ in trials),
            "trial_s": statistics.median(ended - proposed for proposed, _, ended in trials),
        }
        for side, trials in found.items()
    }
    ours = table["our command"]
    print(f"\n{task}: seconds, medians of {num_turns} turns of {num_trials} trials")
    print(f"  {'':<14}{'to first report':>16}{'ours / it':>11}{'whole trial':>14}{'ours / it':>11}")
    for side, figure in table.items():
        first, whole = (ours[name] / figure[name] for name in ("first_report_s", "trial_s"))
        first_s, whole_s = figure["first_report_s"], figure["trial_s"]
        print(
            f"  {side:<14}{first_s:>16.3f}{first:>11.2f}{whole_s:>14.3f}{whole:>11.2f}", flush=True
        )
    return table


def main() -> None:
    """Measure all sides, print the tables, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("--task", choices=list(TASKS), default="plain")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one turn of two trials")
    arguments = parser.parse_args()
    if arguments.side:
        measure_here(arguments.side, arguments.task, arguments.trials)
        return
    num_turns, num_trials = (1, 2) if arguments.quick else (NUM_TURNS, arguments.trials)
    report: dict[str, Any] = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
        },
        "load_average_at_start": os.getloadavg()[0],
        "tasks": {task: compare(task, num_trials, num_turns) for task in TASKS},
    }
    if not arguments.quick:
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
