"""What it costs a training to measure the noise of its gradients.

Run `python -m tests.benchmarks.noise_cost`. The same training is made with and without measuring,
in turns, on one thread a process, from the same seed over the same batches; where nothing is cut,
the benchmark stops if the weights that they end with differ. Printed are the medians over the
repeats of the ratio of their times, wall and CPU (of rank 0), and the ratio of their fastest runs,
which other work on the machine disturbs least. The smallest model is the worst case: there a step
is little but the calls that it makes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

LIMIT = 1.03
RESULTS = Path(__file__).parent / "results" / "noise_cost.json"
SEED = 3


@dataclass(frozen=True)
class Case:
    """One model on the digits, and how its steps are divided."""

    name: str
    model: str
    options: dict[str, Any]
    batch: int
    epochs: int
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def num_workers(self) -> int:
        """Processes that train."""
        return self.plan.get("workers", 1)


SMALL = {"hidden_width": 32, "num_layers": 2}
LARGE = {"hidden_width": 512, "num_layers": 3}
CASES = (
    Case("mlp 2x32, cut", "mlp", SMALL, 32, 40),
    Case("mlp 2x32, accumulated", "mlp", SMALL, 32, 24, {"micro_batch": 16}),
    Case("mlp 3x512, cut", "mlp", LARGE, 128, 12),
    Case("mlp 3x512, accumulated", "mlp", LARGE, 128, 12, {"micro_batch": 64}),
    Case("convnet, accumulated", "convnet", {"width": 16}, 128, 12, {"micro_batch": 64}),
    Case("mlp 3x512, two workers", "mlp", LARGE, 128, 12, {"workers": 2}),
)


def train(
    rank: int, num_workers: int, meeting: str | None, *, case: Case, folder: str, measures: bool
) -> tuple[float, float]:
    """Train; return the seconds that it took, and how many of them the process was on a CPU."""
    experiment = Experiment(
        model={"name": case.model, **case.options},
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        training={
            "epochs": case.epochs,
            "evaluate_every": case.epochs,
            "checkpoint_every": case.epochs,
            "global_batch": case.batch,
            "reference_batch": case.batch,
            "lr": 2e-3,
            "measure_noise": measures,
        },
        plan=case.plan,
    )
    task = TrialTask(
        "benchmark",
        0,
        0,
        experiment.model_dump_json(),
        seed=SEED,
        folder=folder,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
    )
    started_wall_s, started_cpu_s = time.perf_counter(), time.process_time()
    ended = run_trial(task, lambda event: False)
    times_s = time.perf_counter() - started_wall_s, time.process_time() - started_cpu_s
    assert ended.state == "complete", ended.traceback
    return times_s


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Train in turns and compare."""
    wall_s: dict[bool, list[float]] = {True: [], False: []}
    cpu_s: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats + 1):
        weights: dict[bool, dict[str, torch.Tensor]] = {}
        # Turns alternate in order too, so that neither always runs on the warmer machine.
        for measures in (True, False)[:: 1 if repeat % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                trained = partial(train, case=case, folder=folder, measures=measures)
                if case.num_workers == 1:
                    times_s = trained(0, 1, None)
                else:
                    times_s = run_together(trained, case.num_workers)[0]
                saved = torch.load(Path(folder) / "checkpoints" / "last.pt", weights_only=True)
            if repeat:
                wall_s[measures].append(times_s[0])
                cpu_s[measures].append(times_s[1])
            assert (saved["noise"]["smoother"]["num_steps"] > 0) is measures
            weights[measures] = saved["strategy"]["model"]
        for key, value in weights[False].items():
            if case.plan and not torch.equal(value, weights[True][key]):
                sys.exit(f"{case.name}: measuring changes {key}")
    return {
        "case": case.name,
        "repeats": repeats,
        "wall_ratio": _median_ratio(wall_s),
        "least_disturbed_ratio": min(wall_s[True]) / min(wall_s[False]),
        "cpu_ratio": _median_ratio(cpu_s),
        "with_wall_s": statistics.median(wall_s[True]),
        "without_wall_s": statistics.median(wall_s[False]),
    }


def _median_ratio(times_s: dict[bool, list[float]]) -> float:
    pairs = zip(times_s[True], times_s[False], strict=True)
    return statistics.median(with_s / without_s for with_s, without_s in pairs)


def main() -> None:
    """Measure every case, print the ratios, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    results = []
    for case in CASES:
        result = measure(case, repeats)
        results.append(result)
        print(
            f"{result['case']:<24} with {result['with_wall_s']:.3f} s, "
            f"without {result['without_wall_s']:.3f} s, "
            f"ratio {result['wall_ratio']:.3f} (wall), {result['cpu_ratio']:.3f} (cpu), "
            f"{result['least_disturbed_ratio']:.3f} (fastest runs); at most {LIMIT}",
            flush=True,
        )
    machine = {
        "host": platform.node(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"machine": machine, "limit": LIMIT, "results": results}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
