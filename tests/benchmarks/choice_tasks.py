"""What the benchmarks of advice choose for.

Three small tasks, their domains, their true times to a target.

A task is a model on data with a metric to reach, and a domain: global batches, learning rates,
numbers of workers. Its true times come from trials of ours, trained alone on warm workers; they
count from the moment that data and model are there (`TrialPlanned`) to the report that reaches the
target.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import JsonValue

    from workbench.advisor.measuring import Report
    from workbench.experiment import Experiment
    from workbench.experiment.plan import Plan
    from workbench.store.database import Store

# Seconds that a first training may take, before anything is known.
LONGEST_S = 20.0


@dataclass(frozen=True)
class Task:
    """One model on one data set.

    Attributes:
        model: The model and its options.
        data: The data and its options.
        metric: What to reach.
        goal: Whether more of it is better.
        target: The value to reach.
        epochs: More than enough; trainings end at the target or at a cap of time.
        batches: Global batches, rising; each is twice the one before.
        rates: Learning rates, rising.
        optimizer: The optimizer.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    metric: str
    goal: str
    target: float
    epochs: int
    batches: tuple[int, ...]
    rates: tuple[float, ...]
    optimizer: str = "adamw"
    workers: tuple[int, ...] = (1, 2)

    @property
    def usual_batch(self) -> int:
        """The batch in the middle, at which rates are meant."""
        return self.batches[len(self.batches) // 2]

    def reached(self, value: float) -> bool:
        """Return whether a value of the metric is at the target or beyond."""
        return value >= self.target if self.goal == "maximize" else value <= self.target

    def sections(self) -> dict[str, Any]:
        """Return what all trainings of the task have in common, as fields of an experiment."""
        return {
            "model": dict(self.model),
            "data": dict(self.data),
            "objectives": [{"metric": self.metric, "goal": self.goal, "target": self.target}],
            "training": {
                "epochs": self.epochs,
                "optimizer": self.optimizer,
                "reference_batch": self.usual_batch,
                "schedule": "constant",
                "warmup_epochs": 0,
                # Nobody else writes checkpoints, and those of wide layers would be most of the
                # time.
                "checkpoint_every": self.epochs,
            },
        }

    def open_experiment(self, seed: int = 0) -> Experiment:
        """Return the experiment that leaves batch, rate and workers to be found."""
        from workbench.experiment import Experiment

        search = {
            "lr": {"low": self.rates[0], "high": self.rates[-1], "log": True},
            "global_batch": {"choices": list(self.batches)},
            "workers": {"choices": list(self.workers)},
        }
        return Experiment(**self.sections(), search=search, seed=seed)


TASKS = {
    "digits": Task(
        model={"name": "convnet", "width": 64},
        data={"name": "digits"},
        metric="val_loss",
        goal="minimize",
        target=0.06,
        epochs=200,
        batches=(16, 32, 64, 128, 256),
        rates=(1e-4, 6e-4, 3e-3, 2e-2, 0.1),
    ),
    "text": Task(
        model={"name": "transformer", "num_heads": 2, "width": 32, "num_layers": 1},
        data={"name": "text", "context": 32, "max_characters": 60_000},
        metric="val_loss",
        goal="minimize",
        target=2.4,
        epochs=200,
        batches=(8, 16, 32, 64, 128),
        rates=(1e-4, 6e-4, 3e-3, 2e-2, 0.1),
    ),
    "breast_cancer": Task(
        model={"name": "mlp", "hidden_width": 2048, "num_layers": 2, "dropout": 0.2},
        data={"name": "breast_cancer"},
        metric="val_loss",
        goal="minimize",
        target=0.1,
        epochs=2000,
        optimizer="sgd",
        batches=(8, 16, 32, 64, 128),
        rates=(1e-5, 1e-4, 6e-4, 3e-3, 2e-2),
    ),
}


@dataclass(frozen=True)
class Cell:
    """A plan with the rate that it really trains with."""

    workers: int
    global_batch: int
    lr: float
    accumulation: int = 1

    @classmethod
    def of_plan(cls, plan: Plan, lr: float) -> Cell:
        """Return the cell of a plan in full."""
        return cls(plan.workers, plan.global_batch, lr, plan.accumulation)

    @property
    def written(self) -> str:
        """The cell in short."""
        return f"{self.global_batch} on {self.workers} at {self.lr:.3g}"

    def plan(self) -> Plan:
        """Return the plan of its trial."""
        micro = self.global_batch // (self.workers * self.accumulation)
        from workbench.advisor.plan_variants import plan_with
        from workbench.experiment.plan import PartialPlan

        variant = PartialPlan.of(precision="fp32", strategy="ddp", recompute="none")
        return plan_with(variant, self.workers, micro, self.accumulation)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def grid_of(task: Task) -> list[Cell]:
    """Return all cells, the one in the middle of the domain first."""
    cells = [Cell(*values) for values in itertools.product(task.workers, task.batches, task.rates)]
    middle = Cell(task.workers[0], task.usual_batch, task.rates[len(task.rates) // 2])
    return [middle, *(cell for cell in cells if cell != middle)]


@dataclass(frozen=True)
class Timed:
    """One training: the seconds it took, and whether it reached the target in them."""

    time_s: float
    reached: bool


class Trainer:
    """Trains cells of one task, one after another, with nothing else beside them."""

    def __init__(self, task: Task, store: Store) -> None:
        """Prepare to train on the cluster that this process is attached to."""
        from workbench.advisor.measuring import Bench
        from workbench.cluster.remote.code_origin import Origin
        from workbench.cluster.workers.admission import capacity_of
        from workbench.experiment import Experiment
        from workbench.hardware.resources import cluster_inventory

        self._task = task
        sections = task.sections()
        sections["training"]["lr_rule"] = "constant"
        experiment = Experiment(**sections)
        run_id = store.create_run(experiment)
        capacity = capacity_of(experiment, cluster_inventory())
        self._bench = Bench(
            run_id,
            experiment,
            store.artifacts_of(run_id),
            capacity=capacity,
            origin=Origin.here(),
            sink=lambda event: None,
        )
        self._numbers = itertools.count()

    def warm_up(self) -> None:
        """Start the processes, and have them load what trainings need."""
        for workers in self._task.workers:
            self.time(
                Cell(workers, self._task.batches[-1], self._task.rates[0]), seed=0, limit_s=0.5
            )

    def time(self, cell: Cell, *, seed: int, limit_s: float) -> Timed:
        """Train a cell to the target, but no longer than `limit_s`."""
        task, last_s, reached = self._task, 0.0, False

        def goes_on(report: Report) -> bool:
            nonlocal last_s, reached
            last_s = report.elapsed_s
            value = report.event.values.get(task.metric)
            reached = value is not None and task.reached(value)
            return not reached and last_s < limit_s

        params: dict[str, JsonValue] = {"lr": cell.lr, "global_batch": cell.global_batch}
        self._bench.train(next(self._numbers), cell.plan(), params, seed, goes_on)
        if reached and last_s <= limit_s:
            return Timed(last_s, True)
        return Timed(min(last_s, limit_s), False)


def mean_s(trainings: Sequence[Timed], cap_s: float) -> float:
    """Return the mean time of trainings, where one that misses the target counts as the cap."""
    return sum(min(each.time_s, cap_s) if each.reached else cap_s for each in trainings) / len(
        trainings
    )
