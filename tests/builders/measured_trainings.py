"""What public measurements say of whole trainings.

Steps to a metric by batch, epochs to a target by seed.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.builders.measured import PlacedStep

# A metric counts as reached at this part of what the worst batch reaches in the end.
REACHED = 0.98
# The targets that the authors of the epochs trained for; their files tell of easier and harder ones
# too.
PUBLISHED_TARGETS = {"cifar100": 0.6, "movielens-1m": 0.41, "squad": 84.0}


@dataclass(frozen=True)
class TrainingCurve:
    """One `validation-<B>.csv`, in columns."""

    progress: np.ndarray
    iteration: np.ndarray
    metric: np.ndarray
    grad_sqr: np.ndarray
    grad_var: np.ndarray

    def iterations_to(self, metric: float) -> float:
        """Return the steps until a metric is first reached, by a straight line between the rows."""
        at = int(np.argmax(self.metric >= metric))
        before = (0.0, 0.0) if at == 0 else (self.metric[at - 1], self.iteration[at - 1])
        part = (metric - before[0]) / (self.metric[at] - before[0])
        return float(before[1] + part * (self.iteration[at] - before[1]))

    def noise_scales(self, reference_batch: int) -> np.ndarray:
        """Return the gradient noise scale of each row, in samples."""
        return reference_batch * self.grad_var / self.grad_sqr


def read_curves(folder: Path) -> dict[int, TrainingCurve]:
    """Read the training curves of one application, by global batch."""
    curves: dict[int, TrainingCurve] = {}
    for path in folder.glob("validation-*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
        curves[int(path.stem.split("-")[1])] = TrainingCurve(**columns)
    return dict(sorted(curves.items()))


def steps_to_accuracy(curves: Mapping[int, TrainingCurve]) -> dict[int, float]:
    """Return the measured steps by batch until the same metric is reached."""
    metric = REACHED * min(curve.metric.max() for curve in curves.values())
    return {batch: curve.iterations_to(metric) for batch, curve in curves.items()}


def measured_step_s(rows: Sequence[PlacedStep], global_batch: int) -> float | None:
    """Return the seconds of the fastest way to make a batch on one placement.

    None where none was measured.

    Args:
        rows: What was measured on the placement.
        global_batch: Samples per step.
    """
    micro_batches, steps_s, syncs_s = np.array(
        sorted((row.micro_batch, row.step_time_s, row.sync_time_s) for row in rows)
    ).T
    times: list[float] = []
    for accumulation in range(1, global_batch + 1):
        micro_batch = global_batch / sum(rows[0].gpus_per_node) / accumulation
        if micro_batch < micro_batches[0]:
            break
        if micro_batch <= micro_batches[-1] * 1.01:
            step_s = float(np.interp(micro_batch, micro_batches, steps_s))
            sync_s = float(np.interp(micro_batch, micro_batches, syncs_s))
            times.append(step_s + (accumulation - 1) * (step_s - sync_s))
    return min(times, default=None)


@dataclass(frozen=True)
class EpochsTask:
    """One target of one training: what each seed needed, by batch, and what an epoch takes.

    Attributes:
        name: Data, network and optimizer.
        target: The metric to reach.
        epochs: Epochs by batch and seed; None where a seed never got there.
        epoch_time_s: Seconds of an epoch by batch.
    """

    name: str
    target: float
    epochs: Mapping[int, Sequence[float | None]]
    epoch_time_s: Mapping[int, float]

    @property
    def is_published(self) -> bool:
        """Whether it is the target that the authors trained for."""
        return PUBLISHED_TARGETS.get(self.name.split()[0]) == self.target

    def times_to_target_s(self) -> dict[int, float]:
        """Return the mean time by batch; the batches with which most seeds got there."""
        reached = {
            batch: [seed for seed in seeds if seed is not None]
            for batch, seeds in self.epochs.items()
        }
        return {
            batch: self.epoch_time_s[batch] * float(np.mean(epochs))
            for batch, epochs in reached.items()
            if len(epochs) > len(self.epochs[batch]) / 2
        }


def read_epochs_tasks(folder: Path) -> list[EpochsTask]:
    """Read every target that most seeds of some batch reach; epochs at the highest power limit."""
    limits: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    with (folder / "summary_power_v100.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            batch, measured = (
                int(row["batch_size"]),
                (float(row["power_limit"]), float(row["time_per_epoch"])),
            )
            limits[_name(row)][batch] = max(limits[_name(row)].get(batch, (0.0, 0.0)), measured)
    epochs: dict[tuple[str, float], dict[int, list[float | None]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with (folder / "summary_train.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            batch, reached = int(row["batch_size"]), row["target_epoch"]
            if batch in limits[_name(row)]:
                task = epochs[_name(row), float(row["target_metric"])]
                task[batch].append(float(reached) if reached else None)
    tasks = [
        EpochsTask(
            name,
            target,
            dict(sorted(epoch.items())),
            {batch: limits[name][batch][1] for batch in epoch},
        )
        for (name, target), epoch in epochs.items()
    ]
    return [task for task in tasks if task.times_to_target_s()]


def _name(row: Mapping[str, str]) -> str:
    return f"{row['dataset']} {row['network']} {row['optimizer']}"
