"""Makes the steps of a trial in torch, and hands its model and data to another framework as arrays.

Both start with the same weights. Building the model in the other framework is left to `bridges`,
and comparing the times to the advisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from workbench.data import Datasets
from workbench.experiment import Experiment, Training
from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import ModelConfiguration, configure
from workbench.models.layers import LayerWeights, weights_of_layers
from workbench.training.assembly import assemble, build_trial_model
from workbench.training.device import choose_device
from workbench.training.loss_and_metrics import call_of
from workbench.training.planning.settings import TrialSettings
from workbench.training.probes.timed_steps import PeakMemory, TimedSteps
from workbench.training.strategies.strategy import Worker, compiled
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source
from workbench.training.worker_task import TrialTask

Array = np.ndarray[Any, Any]

_NUM_COMPARED = 16
"""Samples whose predictions are compared."""
_HELD_BYTES = 1 << 28
"""Samples that another framework gets as arrays. More steps repeat them."""
_USUAL_LOSSES = {"classification": "cross_entropy", "regression": "mean_squared_error"}
_ONLY_TORCH = (
    "gradient_hook",
    "adapter",
    "augment",
    "parameter_groups",
    "average_decay",
    "average_start",
)
"""Settings of the training that change a step, and that other frameworks do not have here."""


@dataclass(frozen=True)
class SameModel:
    """What another framework needs to make the same steps.

    Attributes:
        layers: The layers that have weights, in the order of their definition.
        inputs: Inputs of the training, samples first.
        targets: Their targets. Numbers have the shape of the outputs.
        outputs: The predictions of torch for the first samples.
        loss: The mean loss of these predictions.
        loss_name: The name of the loss.
        values: The fixed options and the configuration, for a function that builds the model.
        optimizer: The name of the optimizer.
        optimizer_values: Its values: lr, momentum, weight_decay, clip_norm, and its options.
    """

    layers: tuple[LayerWeights, ...]
    inputs: Array
    targets: Array
    outputs: Array
    loss: float
    loss_name: str
    values: dict[str, Any]
    optimizer: str
    optimizer_values: dict[str, Any]


class TorchSteps:
    """The steps of a trial on one worker, on the device of this machine."""

    def __init__(self, task: TrialTask) -> None:
        """Load the data and build the model.

        Args:
            task: The trial, with a plan for one worker.

        Raises:
            WorkbenchError: If a name, a value or the data is wrong.
        """
        self._device = choose_device(task.experiment)
        self._task = task
        alone = Worker(0, 1, self._device, Group(0, 1, self._device, None))
        self._parts = assemble(task, alone)
        self._parts.strategy.train(True)
        self._steps = TimedSteps(self._parts, PeakMemory(self._device), task.seed)

    @property
    def device(self) -> str:
        """The kind of the device: cpu or cuda."""
        return self._device.type

    @property
    def num_steps(self) -> int:
        """Steps of the whole training."""
        settings = self._parts.settings
        per_epoch = self._parts.train.num_batches(settings.plan.global_batch)
        return max(1, round(per_epoch * settings.training.epochs))

    @property
    def settings(self) -> TrialSettings:
        """The settings of the trial."""
        return self._parts.settings

    def make_first(self, num_steps: int) -> None:
        """Make the first steps, of which some may compile."""
        self._steps.warm_up(num_steps, float("inf"))

    def make(self, longest_s: float) -> int:
        """Make steps for some seconds, at least three, and return their number."""
        return self._steps.make(longest_s)

    @property
    def configuration(self) -> ModelConfiguration:
        """The configuration of a model of the zoo.

        Raises:
            ExperimentError: If the model is your own.
        """
        component = self._task.experiment.trained
        assert component is not None
        if component.is_reference:
            raise ExperimentError(
                "your own model is not built in Keras by itself",
                field="model",
                next_step="Pass your own Keras model with --keras package.module:function.",
            )
        return configure(component.name, self.settings.model)

    @property
    def shapes(self) -> dict[str, Any]:
        """The shapes of the data, as `ModelConfiguration.build` takes them."""
        datasets = self._parts.datasets
        return {
            "input_shape": datasets.input_shape,
            "num_outputs": datasets.num_outputs,
            "vocabulary_size": datasets.vocabulary_size,
        }

    def compiled_difference(self) -> tuple[float, float]:
        """Return how much a prediction changes if the model is compiled, and the largest one."""
        model = self._model()
        inputs, _ = self._samples(_NUM_COMPARED)
        with torch.no_grad():
            plain, other = (tree_leaves(self._call(m, inputs)) for m in (model, compiled(model)))
        pairs = [pair for pair in zip(plain, other, strict=True) if isinstance(pair[0], Tensor)]
        difference = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
        return difference, max((float(a.abs().max()) for a, _ in pairs), default=0.0)

    def for_another_framework(self) -> SameModel:
        """Return the model and the data as arrays.

        Raises:
            ExperimentError: If a setting or the form of the data has no counterpart.
        """
        experiment, training = self._task.experiment, self.settings.training
        _check_settings(experiment, training)
        loss_name = _name_of_loss(experiment, self._parts.datasets)
        model = self._model()
        inputs, targets = self._samples(_NUM_COMPARED)
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            raise _refusal("samples of several inputs or targets", "data")
        with torch.no_grad():
            outputs = self._call(model, inputs)
        if not isinstance(outputs, Tensor):
            raise _refusal("a model that returns more than one tensor", "model")
        sample_bytes = max(1, inputs[:1].nbytes + targets[:1].nbytes)
        num_held = max(self.settings.plan.micro_batch, _HELD_BYTES // sample_bytes)
        held_inputs, held_targets = self._samples(num_held)
        component = experiment.model
        assert component is not None
        return SameModel(
            layers=tuple(weights_of_layers(model)),
            inputs=held_inputs.cpu().numpy(),
            targets=_paired(held_targets, outputs, loss_name).cpu().numpy(),
            outputs=outputs.cpu().numpy(),
            loss=float(self._parts.loss(outputs, targets)),
            loss_name=loss_name,
            values={**component.options, **self._task.params},
            optimizer=training.optimizer.lower(),
            optimizer_values={
                "lr": self.settings.lr,
                "momentum": training.momentum,
                "weight_decay": training.weight_decay,
                "clip_norm": training.clip_norm,
                **training.optimizer_options,
            },
        )

    def _model(self) -> nn.Module:
        """Build the model with its first weights, to make predictions."""
        torch.manual_seed(self._task.seed)
        model = build_trial_model(
            self._task.experiment, self._task.params, self.settings, self._parts.datasets
        )
        return model.to(self._device).eval()

    def _call(self, model: nn.Module, inputs: Any) -> Any:
        call = call_of(self._task.experiment)
        return call(model, inputs)

    def _samples(self, num_samples: int) -> tuple[Any, Any]:
        source = Source(self._parts.datasets.train, self._device)
        return source.fetch(source.all_indices[:num_samples])


def _check_settings(experiment: Experiment, training: Training) -> None:
    if experiment.makes_own_steps:
        raise _refusal("your own training steps", "train")
    for name in _ONLY_TORCH:
        if getattr(training, name):
            raise _refusal(name, f"training.{name}")


def _name_of_loss(experiment: Experiment, datasets: Datasets) -> str:
    if experiment.loss is not None:
        return experiment.loss.title
    if datasets.task not in _USUAL_LOSSES:
        raise _refusal(f"the loss of {datasets.task}", "loss")
    return _USUAL_LOSSES[datasets.task]


def _paired(targets: Tensor, outputs: Tensor, loss_name: str) -> Tensor:
    """Return targets that meet the outputs position by position."""
    if loss_name != "cross_entropy":
        return targets.reshape(len(targets), *outputs.shape[1:])
    if outputs.shape[-1] == 1 or targets.is_floating_point() or bool((targets < 0).any()):
        raise _refusal("single scores, shares of classes, or targets that do not count", "data")
    return targets


def _refusal(what: str, field: str) -> ExperimentError:
    return ExperimentError(
        f"{what} cannot be compared with another framework",
        field=field,
        allowed="one tensor of inputs, one of targets, and the settings of a plain step",
    )
