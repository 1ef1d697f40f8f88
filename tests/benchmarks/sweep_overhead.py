"""What a trial costs beyond its training.

Ours, Ray Tune as documented, Tune tuned by hand, plain Optuna.

Run `python -m tests.benchmarks.sweep_overhead [--quick]`. Every side samples the same space with
TPE, two trials at once, in a process of its own on a Ray head of its own with two CPUs that is up
before the clock starts; short sides take turns. Ours stores every event, and runs each trial in a
worker process that survives a crash of the trial; plain Optuna stores nothing and runs in one
process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results" / "sweep_overhead.json"
NUM_PARAMS = 4
NUM_CPUS = 2
TASKS = ("noop", "real", "short")
AT_TRIALS = (100, 1000, 5000)
WINDOW = 100
FEWER = 10
"""By how much fewer trials Tune as documented runs: each takes seconds."""
SAMPLE_S = 0.25
SHORT_S = 0.02
HOME = "WORKBENCH_HOME"


def noop(config: dict[str, float]) -> float:
    """Return a value of the configuration and do nothing else."""
    return sum((config[f"x{index}"] - 0.3) ** 2 for index in range(NUM_PARAMS))


def real(config: dict[str, float]) -> float:
    """Train a small network on scikit-learn's digits for one epoch and return its loss."""
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=10 ** (-3 * config["x0"]), momentum=0.9 * config["x1"]
    )
    loss = torch.zeros(())
    for batch in torch.randperm(len(inputs)).split(64):
        loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def train_noop(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Run the task that does nothing as a trial of ours."""
    report(step=1, loss=noop(config))


def train_real(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Run the short training as a trial of ours."""
    report(step=1, loss=real(config))


def train_short(config: dict[str, float], report: Callable[..., bool]) -> None:
    """Compute for 20 ms as a trial of ours."""
    until_s = time.thread_time() + SHORT_S
    while time.thread_time() < until_s:
        pass
    report(step=1, loss=noop(config))


def run_ours(task: str, num_trials: int, sampler: str = "tpe") -> list[float]:
    """Return the times at which our trials ended, in seconds since the start."""
    from workbench.experiment import Experiment
    from workbench.store.database import Store
    from workbench.sweeps.launchers import launch

    experiment = Experiment(
        train=f"tests.benchmarks.sweep_overhead:train_{task}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={f"x{index}": {"low": 0.0, "high": 1.0} for index in range(NUM_PARAMS)},
        sampler=sampler,
        budget={"trials": num_trials},
        resources={"concurrency": NUM_CPUS},
    )
    with Store.open(str(Path(os.environ[HOME]) / "store.db")) as store:
        run_id = store.create_run(experiment)
        start_s = time.time()
        launch(store, run_id, launcher="inline")
        ended = store.events(run_id, types=["trial_ended"])
    assert len(ended) == num_trials
    return [stored.event.time_unix_s - start_s for stored in ended]


def run_tune_documented(task: str, num_trials: int) -> list[float]:
    """Run Ray Tune with OptunaSearch as its documentation shows it."""
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    function = TASK_FUNCTIONS[task]

    def objective(config: dict[str, float]) -> None:
        tune.report({"loss": function(config)})

    tuner = tune.Tuner(
        objective,
        param_space={f"x{index}": tune.uniform(0.0, 1.0) for index in range(NUM_PARAMS)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", search_alg=OptunaSearch(), num_samples=num_trials
        ),
        run_config=tune.RunConfig(storage_path=os.environ[HOME], verbose=0),
    )
    return _fit(tuner)


def run_tune_by_hand(task: str, num_trials: int) -> list[float]:
    """Run Ray Tune with a class trainable, its actors used again and its loggers off."""
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    function = TASK_FUNCTIONS[task]

    class Trainable(tune.Trainable):
        def setup(self, config: dict[str, float]) -> None:
            self.current = config

        def reset_config(self, new_config: dict[str, float]) -> bool:
            self.current = new_config
            return True

        def step(self) -> dict[str, Any]:
            return {"loss": function(self.current), "done": True}

    tuner = tune.Tuner(
        Trainable,
        param_space={f"x{index}": tune.uniform(0.0, 1.0) for index in range(NUM_PARAMS)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=OptunaSearch(),
            num_samples=num_trials,
            reuse_actors=True,
            max_concurrent_trials=NUM_CPUS,
        ),
        run_config=tune.RunConfig(
            storage_path=os.environ[HOME],
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=0, checkpoint_at_end=False
            ),
        ),
    )
    return _fit(tuner)


def _fit(tuner: Any) -> list[float]:
    from ray.tune import Callback

    ended: list[float] = []
    start_s = time.time()

    class Clock(Callback):
        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            ended.append(time.time() - start_s)

    tuner._local_tuner._run_config.callbacks = [Clock()]
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    tuner.fit()
    return ended


def run_optuna(task: str, num_trials: int) -> list[float]:
    """Run plain Optuna in this process, one trial after another."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    function = TASK_FUNCTIONS[task]
    ended: list[float] = []
    start_s = time.time()

    def objective(trial: optuna.Trial) -> float:
        return function(
            {f"x{index}": trial.suggest_float(f"x{index}", 0.0, 1.0) for index in range(NUM_PARAMS)}
        )

    study = optuna.create_study()
    study.optimize(
        objective, n_trials=num_trials, callbacks=[lambda *_: ended.append(time.time() - start_s)]
    )
    return ended


TASK_FUNCTIONS = {"noop": noop, "real": real}
SIDES: dict[str, Callable[..., list[float]]] = {
    "ours": run_ours,
    "tune documented": run_tune_documented,
    "tune by hand": run_tune_by_hand,
    "optuna alone": run_optuna,
}


@dataclass(frozen=True)
class Measured:
    """What the trials of one side took, in milliseconds a trial."""

    ended_s: list[float]
    """When each ended, since the start."""
    cpu_ms: float
    """Processor time after the first quarter of the trials, in which processes start."""

    @property
    def whole_ms(self) -> float:
        """The time of the whole run."""
        return 1000 * max(self.ended_s) / len(self.ended_s)

    @property
    def steady_ms(self) -> float:
        """The time after the first quarter of the trials."""
        first, ordered = len(self.ended_s) // 4, sorted(self.ended_s)
        return 1000 * (ordered[-1] - ordered[first]) / (len(ordered) - first - 1)


class ProcessorTime:
    """Samples the processor time of this process and of all that share its home, in a thread."""

    def __init__(self) -> None:
        self._own: dict[int, psutil.Process | None] = {}
        self._used_s: dict[int, float] = {}
        self._samples: list[tuple[float, float]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessorTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def used_s(self, until_unix_s: float) -> float:
        """Return what was used until a moment, in seconds."""
        return max((used_s for at_s, used_s in self._samples if at_s <= until_unix_s), default=0.0)

    def _watch(self) -> None:
        while True:
            is_last = self._ending.wait(SAMPLE_S)
            for pid in psutil.pids():
                if pid not in self._own:
                    self._own[pid] = self._find(pid)
                if (process := self._own[pid]) is not None:
                    try:
                        times = process.cpu_times()
                        self._used_s[pid] = times.user + times.system
                    except psutil.Error:  # it has ended; what it used counts
                        self._own[pid] = None
            self._samples.append((time.time(), sum(self._used_s.values())))
            if is_last:
                return

    def _find(self, pid: int) -> psutil.Process | None:
        try:
            process = psutil.Process(pid)
            return process if process.environ().get(HOME) == os.environ[HOME] else None
        except psutil.Error:
            return None


def measure_here(side: str, task: str, num_trials: int, sampler: str) -> None:
    """Measure one side in this process and print the times, and the processor time, as JSON."""
    from workbench.cluster.head import attachment, local_head

    is_ray = side != "optuna alone"
    try:
        if is_ray:
            attachment.connect(num_cpus=NUM_CPUS, num_gpus=0)
        start_unix_s = time.time()
        with ProcessorTime() as processor_time:
            ended_s = SIDES[side](task, num_trials, *([sampler] if side == "ours" else []))
    finally:
        if is_ray:
            local_head.shutdown()
    first = len(ended_s) // 4
    used_s = processor_time.used_s(time.time()) - processor_time.used_s(
        start_unix_s + sorted(ended_s)[first]
    )
    print(json.dumps({"ended_s": ended_s, "cpu_ms": 1000 * used_s / (len(ended_s) - first)}))


def measure(side: str, task: str, num_trials: int, sampler: str = "tpe") -> Measured:
    """Measure one side in a process of its own, on a Ray head of its own."""
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.sweep_overhead",
            "--side",
            side,
            "--task",
            task,
        ]
        command += ["--trials", str(num_trials), "--sampler", sampler]
        environment = os.environ | {
            HOME: home,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
        }
        if side == "tune documented":
            environment["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0"
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    """Measure all sides, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("--task", choices=TASKS, default="noop")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--quick", action="store_true", help="one turn, and no long run")
    arguments = parser.parse_args()
    if arguments.side:
        measure_here(arguments.side, arguments.task, arguments.trials, arguments.sampler)
        return
    report: dict[str, Any] = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
        },
        "tasks": {},
    }
    for task, num_trials in (("noop", 200), ("real", 60)):
        report["tasks"][task] = compare(task, num_trials, num_turns=1 if arguments.quick else 3)
    if not arguments.quick:
        report["ours_ms_at_trial"] = cost_as_a_run_grows()
    report["load_average_at_end"] = os.getloadavg()[0]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def compare(task: str, num_trials: int, num_turns: int) -> dict[str, Any]:
    """Measure all sides on one task, the short ones in turns, and print the table."""
    turns: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for turn in range(num_turns):
        for side in SIDES:
            if side != "tune documented":
                turns[side].append(measure(side, task, num_trials))
            elif turn == 0:  # two orders of magnitude away
                turns[side].append(measure(side, task, num_trials // FEWER))
    names = ("whole_ms", "steady_ms", "cpu_ms")
    table = {
        side: {
            name: statistics.median(getattr(measured, name) for measured in values)
            for name in names
        }
        for side, values in turns.items()
    }
    ours = table["ours"]
    print(f"\n{num_trials} trials, {task}: milliseconds a trial (medians of {num_turns})")
    heads = f"{'whole run':>12}{'steady':>10}{'processor':>12}"
    print(f"  {'':<18}{heads}{'ours, steady':>22}{'processor':>12}")
    for side, figure in table.items():
        ratios = [ours[name] / figure[name] for name in names[1:]]
        whole_ms, steady_ms, cpu_ms = (figure[name] for name in names)
        print(
            f"  {side:<18}{whole_ms:>12.1f}{steady_ms:>10.1f}{cpu_ms:>12.1f}"
            f"{ratios[0]:>15.2f} times{ratios[1]:>12.2f}",
            flush=True,
        )
    return table


def cost_as_a_run_grows() -> dict[str, float]:
    """Measure what a trial of ours costs around the 100th, the 1,000th and the 5,000th, without
    sampling.
    """
    ended = sorted(measure("ours", "noop", max(AT_TRIALS) + WINDOW // 2, "random").ended_s)
    costs: dict[str, float] = {}
    print("\nours, random sampler, as the run grows")
    for number in AT_TRIALS:
        low, high = number - WINDOW // 2, number + WINDOW // 2 - 1
        costs[str(number)] = 1000 * (ended[high] - ended[low]) / (high - low)
        print(f"  around trial {number:>5}: {costs[str(number)]:.1f} ms a trial")
    return costs


if __name__ == "__main__":
    main()
