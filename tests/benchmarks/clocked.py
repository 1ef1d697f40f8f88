"""What the benchmarks of data-parallel training share.

A model that notes its steps, data, one of our trials.

The clock is a hook of torch's that every optimizer calls after its step, so that the code under
test, ours or a rival's, is as its author wrote it. Each rank notes on its own, in a file of its
own.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from workbench.cluster.workers.gang import Gang
    from workbench.data import Datasets
    from workbench.experiment import Experiment

NUM_FEATURES = 64
NUM_CLASSES = 10
Notes = list[tuple[float, float]]


def build_clocked(config: Mapping[str, Any]) -> nn.Module:
    """Build a multi-layer perceptron whose optimizer notes when its steps end.

    Args:
        config: `width`; `folder` for the notes; `steps` to note; what names the note besides: `lr`
            and `workers`, where they are there.
    """
    import torch
    from torch import nn

    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    note_steps(Path(config["folder"]) / f"{note_name(config)}-{rank}.json", config["steps"])
    width = config["width"]
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(NUM_FEATURES, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, NUM_CLASSES),
    )


def note_name(config: Mapping[str, Any]) -> str:
    """Return what the notes of a configuration are called."""
    return "-".join(str(config[name]) for name in ("lr", "workers") if name in config) or "steps"


def note_steps(path: Path, num_steps: int) -> None:
    """Write when the next optimizer steps end.

    [seconds since 1970, seconds of the process on a CPU] each.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ended: list[tuple[float, float]] = []

    def note(*_: Any) -> None:
        ended.append((time.time(), time.process_time()))
        if len(ended) == num_steps:
            handle.remove()
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps(ended))
            temporary.replace(path)

    handle = register_optimizer_step_post_hook(note)


def read_notes(folder: Path, name: str, num_workers: int) -> list[Notes]:
    """Return the times of the steps, by rank."""
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(num_workers)]


def step_s(notes: Notes) -> tuple[float, float]:
    """Return the mean seconds of a step without the first, and how many of them the process was on
    a CPU.
    """
    (first_s, first_cpu_s), (last_s, last_cpu_s) = notes[0], notes[-1]
    return (last_s - first_s) / (len(notes) - 1), (last_cpu_s - first_cpu_s) / (len(notes) - 1)


def load_samples(options: Mapping[str, Any]) -> Datasets:
    """Make data of the wanted size; what is in it does not matter here.

    Args:
        options: `num_samples` to train on.
    """
    import numpy as np

    from workbench.data import Datasets
    from workbench.data.splits import ArraySplit

    random = np.random.default_rng(0)

    def split(num_samples: int) -> ArraySplit:
        inputs = random.standard_normal((num_samples, NUM_FEATURES), dtype=np.float32)
        return ArraySplit(inputs, random.integers(NUM_CLASSES, size=num_samples))

    return Datasets(
        name="samples",
        task="classification",
        train=split(options["num_samples"]),
        validation=split(64),
        input_shape=(NUM_FEATURES,),
        num_outputs=NUM_CLASSES,
    )


def make_experiment(
    folder: Path, *, workers: int, micro_batch: int, steps: int, width: int, strategy: str = "auto"
) -> Experiment:
    """One epoch of so many steps by so many workers."""
    from workbench.experiment import Experiment

    options = {"folder": str(folder), "steps": steps, "width": width}
    num_samples = steps * micro_batch * workers
    return Experiment(
        model={"name": "tests.benchmarks.clocked:build_clocked", **options},
        data={"name": "tests.benchmarks.clocked:load_samples", "num_samples": num_samples},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": 1,
            "global_batch": micro_batch * workers,
            "optimizer": "adamw",
            "lr": 1e-3,
            "reference_batch": micro_batch * workers,
        },
        plan={"workers": workers, "micro_batch": micro_batch, "strategy": strategy},
    )


def run_in_pool(experiment: Experiment, run_id: str, folder: Path, num_workers: int) -> list[Notes]:
    """Run one trial of ours on leased workers, and return when its steps ended, by rank."""
    from workbench.cluster.remote.code_origin import Origin
    from workbench.cluster.workers.admission import Request
    from workbench.cluster.workers.gang import Gang
    from workbench.training.worker_task import TrialTask

    gang: Gang = Gang.lease(
        Request(run_id, num_workers=num_workers, preload=("workbench.training.loop",))
    )
    try:
        task = TrialTask(run_id, 0, 0, experiment.model_dump_json(), folder=str(folder / "trial"))
        gang.start(task, origin=Origin.here())
        while (progress := gang.next()).ended is None:
            assert progress.lost is None, progress.message
        assert progress.ended.state == "complete", progress.ended.traceback
    finally:
        gang.release()
    return read_notes(folder, "steps", num_workers)


def describe_machine() -> dict[str, Any]:
    """Return where and with what this was measured."""
    import ray
    import torch

    return {
        "host": platform.node(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "load_average": os.getloadavg()[0],
    }
