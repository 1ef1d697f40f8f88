"""Training with differential privacy (DP-SGD): private steps, and the privacy that they spend.

The gradient of each sample is clipped, and noise hides it. A step takes each sample with the same
small probability, so the size of the batch varies. The sum of the clipped gradients is divided by
the expected size. Opacus's accountant computes how much noise a promise needs and how much privacy
is spent, by Renyi differential privacy of subsampled Gaussian noise.

Sources: Abadi et al., Deep Learning with Differential Privacy, 2016, algorithm 1; Mironov, Talwar
and Zhang, Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils import _pytree

from workbench.experiment import Training
from workbench.foundation.errors import ExperimentError, first_line_of, install_command
from workbench.training.strategies.capabilities import BUILT_IN, Capabilities
from workbench.training.strategies.counted_losses import is_counted
from workbench.training.strategies.single import Single, normalisations
from workbench.training.strategies.strategy import (
    Hiding,
    MeasuredStep,
    OptimizerFactory,
    StepBatch,
    StepSettings,
    Worker,
)

_MIN_NORM = 1e-12


class PrivateSteps(Single):
    """Forward, backward and update on one worker, with differential privacy for each sample."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["single"]

    def __init__(self, settings: StepSettings) -> None:
        super().__init__(settings)
        assert settings.hiding is not None
        self._hiding = settings.hiding
        self._generator: torch.Generator | None = None

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer. See Strategy.setup.

        Raises:
            ExperimentError: If a sample can change the outputs of other samples.
        """
        mixing = normalisations(model)
        if mixing:
            raise ExperimentError(
                f"the model has {type(mixing[0]).__name__}, which mixes the samples of a batch, so"
                " the gradient of one sample cannot be hidden",
                field="training.private",
                next_step="Use a model without it, such as the convnet with normalisation: group.",
            )
        super().setup(model, optimizer, worker)
        self._trained_by_name = {
            name: parameter
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad
        }
        # Not seeded by the trial: somebody who knows the noise can subtract it.
        self._generator = torch.Generator(worker.device)
        self._generator.seed()

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the noisy gradient of a step. See Strategy.forward_backward."""
        mark = self._settings.mark
        hiding = self._hiding
        sums = {
            name: torch.zeros_like(parameter) for name, parameter in self._trained_by_name.items()
        }
        step_loss = torch.zeros((), device=self._worker.device)
        for inputs, targets, weight in batch:
            mark("data")
            if weight == 0.0:  # no sample was drawn for this step
                continue
            gradients, losses = self._of_samples(inputs, targets)
            factors = _clipping_factors(gradients, hiding.max_norm)
            for name, gradient in gradients.items():
                sums[name] += torch.tensordot(factors, gradient, dims=1)  # clip, then add up
            step_loss += losses.mean() * weight  # only reported, so it is not clipped or noisy
            mark("backward")
        for name, parameter in self._trained_by_name.items():
            noise = torch.randn(
                parameter.shape,
                dtype=parameter.dtype,
                device=parameter.device,
                generator=self._generator,
            )
            sums[name] += noise * (hiding.noise_multiplier * hiding.max_norm)
            parameter.grad = sums[name] / hiding.expected_batch
        mark("backward")
        return step_loss

    def measure(self, batch: StepBatch) -> MeasuredStep:
        """Raise an error, because norms would reveal gradients without noise."""
        raise AssertionError("the gradient noise of a private training is not measured")

    def _of_samples(self, inputs: Any, targets: Any) -> tuple[dict[str, Tensor], Tensor]:
        """Return the gradients, with a first dimension for the samples, and the losses."""
        fixed = {
            name: parameter
            for name, parameter in self._model.named_parameters()
            if name not in self._trained_by_name
        } | dict(self._model.named_buffers())

        def loss_of_one(trained: dict[str, Tensor], one_input: Any, one_target: Any) -> Tensor:
            given, wanted = _pytree.tree_map(
                lambda sample: sample.unsqueeze(0), (one_input, one_target)
            )
            called = _Called(self._model, self._settings.call)
            outputs = functional_call(
                called,
                {f"model.{name}": tensor for name, tensor in (trained | fixed).items()},
                (given,),
            )
            loss: Any = self._settings.loss
            if not is_counted(loss):
                return loss(outputs, wanted)
            total, count = loss.measure(outputs, wanted)
            # If a sample counts nothing, its loss is 0.
            return total / torch.as_tensor(count).clamp(min=1)

        trained = {name: parameter.detach() for name, parameter in self._trained_by_name.items()}
        try:
            return vmap(grad_and_value(loss_of_one), in_dims=(None, 0, 0), randomness="different")(
                trained, inputs, targets
            )
        except RuntimeError as error:
            if "vmap" not in str(error) and "functorch" not in str(error):
                raise
            raise ExperimentError(
                f"the gradients of single samples cannot be computed: {first_line_of(error)}",
                field="training.private",
                allowed="a model that works with torch.func.vmap",
            ) from error


class _Called(nn.Module):
    """A model with the prefix `model.`, called as the settings of the step say."""

    def __init__(self, model: nn.Module, call: Any) -> None:
        super().__init__()
        self.model, self._call = model, call

    def forward(self, inputs: Any) -> Any:
        """Call the model."""
        return self._call(self.model, inputs)


def _clipping_factors(gradients: dict[str, Tensor], max_norm: float) -> Tensor:
    """Return a factor for each sample that limits the norm of its gradient to `max_norm`."""
    sqr_norms = sum(gradient.flatten(1).square().sum(1) for gradient in gradients.values())
    assert isinstance(sqr_norms, Tensor)
    return (max_norm / sqr_norms.sqrt().clamp(min=_MIN_NORM)).clamp(max=1.0)


@dataclass(frozen=True)
class PrivacyBudget:
    """The noise of a training, and the privacy that its steps spend.

    Attributes:
        hiding: How each sample is hidden.
        sample_rate: Probability with which a step takes a sample.
        delta: Probability that epsilon does not hold.
    """

    hiding: Hiding
    sample_rate: float
    delta: float

    def spent_epsilon(self, num_steps: int) -> float:
        """Return the epsilon that a number of steps has spent.

        Args:
            num_steps: Steps so far.
        """
        if num_steps == 0:
            return 0.0
        accountant = _accountants().RDPAccountant()
        accountant.history = [(self.hiding.noise_multiplier, self.sample_rate, num_steps)]
        return float(accountant.get_epsilon(delta=self.delta))


def privacy_budget(
    training: Training, num_samples: int, global_batch: int, *, num_steps: int
) -> PrivacyBudget | None:
    """Return the noise for which the whole training stays within `training.private`.

    Args:
        training: The training section, searched values in place.
        num_samples: Samples to train on.
        global_batch: Samples that a step takes on average.
        num_steps: Steps of the whole training.

    Returns:
        None if the training is not private.

    Raises:
        ExperimentError: If Opacus is not installed, or no noise keeps the promise.
    """
    private = training.private
    if private is None:
        return None
    rate = min(1.0, global_batch / num_samples)
    multiplier = _noise_multiplier(private.epsilon, private.delta, rate, num_steps)
    return PrivacyBudget(Hiding(private.max_norm, multiplier, global_batch), rate, private.delta)


@functools.lru_cache(maxsize=32)
def _noise_multiplier(epsilon: float, delta: float, rate: float, num_steps: int) -> float:
    utils = _accountants().utils
    try:
        return float(
            utils.get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=num_steps,
                accountant="rdp",
            )
        )
    except ValueError as error:
        raise ExperimentError(
            f"no amount of noise keeps epsilon at {epsilon} over {num_steps} steps",
            field="training.private.epsilon",
            next_step="Increase it, train for fewer epochs, or use a smaller batch.",
        ) from error


def _accountants() -> Any:
    try:
        import opacus.accountants.utils  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ExperimentError(
            f"training with differential privacy needs the package opacus: {error}",
            field="training.private",
            next_step=f"Install it: {install_command('private')}",
        ) from error
    return opacus.accountants
