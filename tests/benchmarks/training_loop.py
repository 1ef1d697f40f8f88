"""What our loop costs beside a loop written by hand for the same model, data, steps and evaluation.

A step of the smallest batch is the worst case: there it is little but the calls that it makes.

Run `python -m tests.benchmarks.training_loop [--device cuda]`. Both train in one process, in turns,
on one thread, from the same seed and over the same batches, evaluate after every epoch, and save
model and optimizer there; the benchmark stops if the weights that they end with differ. On a GPU
both compute in bf16, with the data on the device, and ours trains with CUDA graphs as well. The
hand-written loop reports nothing, times nothing and keeps no random states; ours leaves out the
measuring of gradient noise, which `noise_cost` weighs by itself. Printed are the medians over the
repeats of the ratio of their times, wall and CPU, and the ratio of their fastest runs, which other
work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.data import load
from workbench.experiment import Experiment
from workbench.models.adapters import build_model
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

LIMIT = 1.02
RESULTS = Path(__file__).parent / "results"
LR = 2e-3
SEED = 3


@dataclass(frozen=True)
class Case:
    """One model on one data set."""

    name: str
    model: str
    options: dict[str, Any]
    data: str
    batch: int
    epochs: int


MODELS: dict[str, tuple[str, dict[str, Any], dict[int, int]]] = {
    "convnet": ("digits", {"width": 16}, {8: 2, 128: 12, 512: 12}),
    "mlp": ("digits", {"hidden_width": 512, "num_layers": 3}, {8: 2, 128: 12, 512: 12}),
    "transformer": ("text", {"width": 32, "num_layers": 2, "num_heads": 2}, {32: 1, 128: 1}),
}
"""The data of each model, its options, and its epochs by batch."""
CASES = [
    Case(f"{model}, batch {batch}", model, options, data, batch, epochs)
    for model, (data, options, batches) in MODELS.items()
    for batch, epochs in batches.items()
]
PRECISIONS = {"cpu": "fp32", "cuda": "bf16"}


def train_with_ours(case: Case, folder: Path, device: str, compile: str = "none") -> None:
    """Train through `run_trial`."""
    experiment = Experiment(
        model={"name": case.model, **case.options},
        data=case.data,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": case.epochs,
            "global_batch": case.batch,
            "reference_batch": case.batch,
            "lr": LR,
            "optimizer": "adamw",
            "measure_noise": False,
        },
        plan={"precision": PRECISIONS[device], "compile": compile},
        resources={"gpus_per_worker": 0 if device == "cpu" else 1},
    )
    task = TrialTask("benchmark", 0, 0, experiment.model_dump_json(), seed=SEED, folder=str(folder))
    events: list[Any] = []
    ended = run_trial(task, lambda event: events.append(event) is not None)
    assert ended.state == "complete", ended.traceback


def train_by_hand(case: Case, folder: Path, device: str) -> None:
    """Train with plain PyTorch, as one would write it who knows how."""
    (folder / "checkpoints").mkdir()
    last, best_so_far = folder / "checkpoints" / "last.pt", folder / "checkpoints" / "best.pt"
    datasets = _datasets(case.data, device)
    train_inputs, train_targets = datasets["train"]
    val_inputs, val_targets = datasets["validation"]
    torch.manual_seed(SEED)
    model = build_model(
        case.model,
        case.options,
        input_shape=datasets["input_shape"],
        num_outputs=datasets["num_outputs"],
        vocabulary_size=datasets["vocabulary_size"],
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)
    num_train = len(train_inputs)
    total_steps = math.ceil(num_train / case.batch) * case.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1.0 + math.cos(math.pi * min(step / total_steps, 1.0)))
    )
    best = math.inf
    faster = torch.autocast(device, torch.bfloat16, enabled=PRECISIONS[device] == "bf16")
    model.train()
    for epoch in range(case.epochs):
        order = torch.from_numpy(np.random.default_rng([SEED, epoch]).permutation(num_train)).to(
            device
        )
        for first in range(0, num_train, case.batch):
            indices = order[first : first + case.batch]
            with faster:
                loss = mean_cross_entropy(model(train_inputs[indices]), train_targets[indices])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        model.eval()
        with torch.inference_mode(), faster:
            loss_sum = torch.zeros((), device=device)
            num_correct = torch.zeros((), dtype=torch.int64, device=device)
            for first in range(0, len(val_inputs), case.batch):
                targets = val_targets[first : first + case.batch]
                outputs = model(val_inputs[first : first + case.batch])
                loss_sum += mean_cross_entropy(outputs, targets) * len(targets)
                num_correct += (outputs.argmax(dim=-1) == targets).sum()
        model.train()
        mean_loss, _ = loss_sum.item() / len(val_inputs), num_correct.item() / val_targets.numel()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({"strategy": state, "epoch": epoch}, folder / "temporary")
        os.replace(folder / "temporary", last)
        if mean_loss < best:
            best = mean_loss
            best_so_far.unlink(missing_ok=True)
            os.link(last, best_so_far)


def mean_cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over samples, or over tokens."""
    return nn.functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))


_loaded: dict[str, dict[str, Any]] = {}


def _datasets(name: str, device: str) -> dict[str, Any]:
    if name not in _loaded:
        datasets = load(name, {}, seed=0)
        _loaded[name] = {
            "input_shape": datasets.input_shape,
            "num_outputs": datasets.num_outputs,
            "vocabulary_size": datasets.vocabulary_size,
        }
        for part in ("train", "validation"):
            split = getattr(datasets, part)
            inputs, targets = split.batch(np.arange(len(split)))
            _loaded[name][part] = (
                torch.from_numpy(inputs).to(device),
                torch.from_numpy(targets).to(device),
            )
    return _loaded[name]


def measure(case: Case, repeats: int, device: str) -> dict[str, Any]:
    """Train in turns and compare."""
    contenders: dict[str, Callable[[Case, Path, str], None]] = {
        "ours": train_with_ours,
        "by_hand": train_by_hand,
    }
    if device == "cuda":
        contenders["ours_replayed"] = functools.partial(train_with_ours, compile="cuda_graphs")
    wall_s: dict[str, list[float]] = {name: [] for name in contenders}
    cpu_s: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        weights: dict[str, dict[str, torch.Tensor]] = {}
        # Turns alternate in order too, so that neither always runs on the warmer machine.
        for name in list(contenders)[:: 1 if repeat % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                started_wall_s, started_cpu_s = time.perf_counter(), time.process_time()
                contenders[name](case, Path(folder), device)
                if repeat:
                    cpu_s[name].append(time.process_time() - started_cpu_s)
                    wall_s[name].append(time.perf_counter() - started_wall_s)
                saved = torch.load(Path(folder) / "checkpoints" / "last.pt", weights_only=True)
                weights[name] = saved["strategy"]["model"]
        for name, key in itertools.product(contenders, weights["by_hand"]):
            if not torch.equal(weights["by_hand"][key], weights[name][key]):
                sys.exit(f"{case.name}: by hand and {name} end with different weights in {key}")
    replayed = {}
    if device == "cuda":
        replayed["replayed_wall_ratio"] = _median_ratio(wall_s, "ours_replayed")
        replayed["replayed_wall_s"] = statistics.median(wall_s["ours_replayed"])
    return {
        "case": case.name,
        "repeats": repeats,
        "wall_ratio": _median_ratio(wall_s),
        "least_disturbed_ratio": min(wall_s["ours"]) / min(wall_s["by_hand"]),
        "cpu_ratio": _median_ratio(cpu_s),
        **replayed,
        "ours_wall_s": statistics.median(wall_s["ours"]),
        "by_hand_wall_s": statistics.median(wall_s["by_hand"]),
    }


def _median_ratio(times_s: dict[str, list[float]], name: str = "ours") -> float:
    pairs = zip(times_s[name], times_s["by_hand"], strict=True)
    return statistics.median(ours / by_hand for ours, by_hand in pairs)


def main() -> None:
    """Measure every case, print the ratios, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--device", choices=list(PRECISIONS), default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(case, arguments.repeats, arguments.device) for case in CASES]
    for result in results:
        print(
            f"{result['case']:<22} ours {result['ours_wall_s']:.3f} s, "
            f"by hand {result['by_hand_wall_s']:.3f} s, "
            f"ratio {result['wall_ratio']:.3f} (wall), {result['cpu_ratio']:.3f} (cpu), "
            f"{result['least_disturbed_ratio']:.3f} (fastest runs); at most {LIMIT}"
        )
        if "replayed_wall_ratio" in result:
            print(f"{'':<22} with CUDA graphs {result['replayed_wall_ratio']:.3f} (wall)")
    on_gpu = arguments.device == "cuda"
    machine = {
        "host": platform.node(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("training_loop_on_gpu.json" if on_gpu else "training_loop.json")
    path.write_text(
        json.dumps({"machine": machine, "limit": LIMIT, "results": results}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
