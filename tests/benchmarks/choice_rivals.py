"""How others choose batch, rate and workers in a given time: Ray Tune, and the Tuner of Lightning.

Both train the same model on the same data with the same optimizer, in plain PyTorch, and evaluate
after every epoch. They are used as their documentation shows them, with what makes them faster:
Tune's actors are used again and its loggers are off. What they find is trained by others
afterwards.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import time
import warnings
from typing import TYPE_CHECKING, Any

from tests.benchmarks.choice_tasks import TASKS, Cell, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

# What ASHA spares, and by how much it thins out: the values of its documentation.
GRACE_EPOCHS, REDUCTION = 1, 3
NUM_CPUS = 2
WARM_UP_S = 10.0


@functools.cache
def read_data(name: str) -> dict[str, Any]:
    """Read the data of a task into tensors, once a process."""
    import numpy as np
    import torch

    from workbench.data import load

    options = dict(TASKS[name].data)
    datasets = load(options.pop("name"), options, seed=0)
    shape = {"input_shape": datasets.input_shape, "num_outputs": datasets.num_outputs}
    if datasets.vocabulary_size is not None:
        shape["vocabulary_size"] = datasets.vocabulary_size
    data: dict[str, Any] = {"shape": shape}
    for part in ("train", "validation"):
        split = getattr(datasets, part)
        data[part] = tuple(torch.from_numpy(each) for each in split.batch(np.arange(len(split))))
    return data


def build(name: str, seed: int = 0) -> nn.Module:
    """Build the model of a task."""
    import torch

    from workbench.models.adapters import build_model

    torch.manual_seed(seed)
    options = dict(TASKS[name].model)
    return build_model(options.pop("name"), options, **read_data(name)["shape"])


def make_optimizer(task: Task, model: nn.Module, lr: float) -> Any:
    """Make the optimizer of a task, with the settings that our trials have."""
    import torch

    if task.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, fused=True)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of all predictions."""
    import torch

    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten().long())


class PlainTraining:
    """A training in plain PyTorch, an epoch at a time."""

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        """Begin a training; a worker is a thread of this process."""
        import torch

        self._name, self._task, self._batch = name, TASKS[name], config["global_batch"]
        torch.set_num_threads(config["workers"])
        self._model = build(name)
        self._optimizer = make_optimizer(self._task, self._model, config["lr"])

    def epoch(self) -> float:
        """Train for an epoch and return the metric of the task."""
        import torch

        data = read_data(self._name)
        inputs, targets = data["train"]
        self._model.train()
        for indices in torch.randperm(len(inputs)).split(self._batch):
            loss_of(self._model(inputs[indices]), targets[indices]).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        self._model.eval()
        total, (inputs, targets) = 0.0, data["validation"]
        with torch.inference_mode():
            for some_inputs, some_targets in zip(
                inputs.split(256), targets.split(256), strict=True
            ):
                outputs = self._model(some_inputs)
                if self._task.metric == "val_accuracy":
                    total += (outputs.argmax(-1) == some_targets).float().mean().item() * len(
                        some_inputs
                    )
                else:
                    total += loss_of(outputs, some_targets).item() * len(some_inputs)
        return total / len(inputs)


def choose_with_tune(name: str, budget_s: float, seed: int) -> dict[str, Any]:
    """Search with Ray Tune, OptunaSearch and ASHA over the grid of a task; return what was chosen.

    A trial on two workers holds two CPUs and computes with two threads, which starts at once; Ray
    Train inside of Tune would take longer to start than there is time. The choice is the
    configuration that reported the target after the least time of training, or else the one with
    the best value.

    Args:
        name: Name of the task.
        budget_s: Seconds that the search may take, after a first one that is not counted.
        seed: Of the search.
    """
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    task = TASKS[name]
    mode = "max" if task.goal == "maximize" else "min"

    class Trainable(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._training, self._spent_s = PlainTraining(name, config), 0.0

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Any]:
            started_s = time.perf_counter()
            value = self._training.epoch()
            self._spent_s += time.perf_counter() - started_s
            return {task.metric: value, "spent_s": self._spent_s, "done": task.reached(value)}

    ray.get([ray.remote(_warm_up).remote(name) for _ in range(NUM_CPUS)])
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    def search(**limits: Any) -> Any:
        return tune.Tuner(
            tune.with_resources(
                Trainable, lambda config: tune.PlacementGroupFactory([{"CPU": config["workers"]}])
            ),
            param_space={
                "global_batch": tune.choice(list(task.batches)),
                "lr": tune.choice(list(task.rates)),
                "workers": tune.choice(list(task.workers)),
            },
            tune_config=tune.TuneConfig(
                metric=task.metric,
                mode=mode,
                search_alg=OptunaSearch(seed=seed),
                scheduler=ASHAScheduler(
                    max_t=task.epochs, grace_period=GRACE_EPOCHS, reduction_factor=REDUCTION
                ),
                reuse_actors=True,
                max_concurrent_trials=NUM_CPUS,
                **limits,
            ),
            run_config=tune.RunConfig(
                storage_path=os.environ["WORKBENCH_HOME"],
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        ).fit()

    # A first search is not part of the time: it imports what Tune needs in this process.
    search(num_samples=1, time_budget_s=WARM_UP_S)
    started_s = time.monotonic()
    results = search(num_samples=-1, time_budget_s=budget_s)
    cost_s = time.monotonic() - started_s
    reported = [
        (result.metrics, result.config)
        for result in results
        if result.metrics and result.config and task.metric in result.metrics
    ]
    if not reported:
        return {"skipped": f"no trial reported anything in {cost_s:.1f} s"}
    sign = -1.0 if mode == "max" else 1.0
    reached = [pair for pair in reported if task.reached(pair[0][task.metric])]
    _, config = min(
        reached or reported,
        key=lambda pair: pair[0]["spent_s"] if reached else sign * pair[0][task.metric],
    )
    return {
        "cell": Cell(config["workers"], config["global_batch"], config["lr"]).to_json(),
        "cost_s": cost_s,
        "found": f"{len(reported)} trials, {len(reached)} reached the target",
    }


def _warm_up(name: str) -> None:
    """Have a process of Ray's import torch and read the data."""
    build(name)
    # Long enough that one process does not take both tasks.
    time.sleep(2.0)


def choose_with_lightning(name: str, seed: int) -> dict[str, Any]:
    """Choose batch and rate with the Tuner of Lightning, which knows one worker and no target.

    `scale_batch_size` doubles from the least batch of the domain to the largest, as long as memory
    suffices, and `lr_find` tests the rates of the domain in a hundred steps.

    Args:
        name: Name of the task.
        seed: Of weights and batches.
    """
    if importlib.util.find_spec("lightning") is None:
        return {"skipped": "Lightning is not installed: pip install '.[rivals]'"}
    import torch
    from lightning import LightningModule, Trainer
    from lightning.pytorch.tuner.tuning import Tuner
    from torch.utils.data import DataLoader, TensorDataset

    task, samples = TASKS[name], TensorDataset(*read_data(name)["train"])

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size, self.lr = task.batches[0], task.rates[len(task.rates) // 2]
            self.model = build(name, seed)

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            return loss_of(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return make_optimizer(task, self.model, self.lr)

        def train_dataloader(self) -> Any:
            return DataLoader(samples, batch_size=self.batch_size, shuffle=True)

    for quiet in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(quiet).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    # One worker is one thread here, as it is in our trials.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    module = Module()
    started_s = time.monotonic()
    tuner = Tuner(
        Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=task.epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=os.environ["WORKBENCH_HOME"],
        )
    )
    tuner.scale_batch_size(
        module, mode="power", init_val=task.batches[0], max_trials=len(task.batches)
    )
    batch = min(task.batches, key=lambda each: abs(each - module.batch_size))
    module.batch_size = batch
    finder = tuner.lr_find(module, min_lr=task.rates[0], max_lr=task.rates[-1], num_training=100)
    suggested = finder.suggestion() if finder is not None else None
    lr = float(suggested) if suggested is not None else task.rates[len(task.rates) // 2]
    return {
        "cell": Cell(1, batch, lr).to_json(),
        "cost_s": time.monotonic() - started_s,
        "found": "a rate" if suggested is not None else "no rate: that in the middle is taken",
    }
