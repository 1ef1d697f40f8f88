"""What a private training spends: the noise that a promise needs, and the epsilon after some steps.

The accountant is Opacus's, by Renyi differential privacy of subsampled Gaussian noise. Clipping and
adding noise is left to the strategy.

Source: Mironov, Talwar and Zhang, Renyi Differential Privacy of the Sampled Gaussian Mechanism,
2019.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from workbench.experiment import Training
from workbench.foundation.errors import ExperimentError, install_command
from workbench.training.strategies.strategy import Hiding


@dataclass(frozen=True)
class PrivacyBudget:
    """The noise of a training and what its steps spend.

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
            num_steps: Steps so far; 0 spends nothing.
        """
        if num_steps == 0:
            return 0.0
        accountant = _accountants().RDPAccountant()
        accountant.history = [(self.hiding.noise_multiplier, self.sample_rate, num_steps)]
        return float(accountant.get_epsilon(delta=self.delta))


def privacy_budget(
    training: Training, num_samples: int, global_batch: int, *, num_steps: int
) -> PrivacyBudget | None:
    """Return the noise with which the whole training spends what `training.private` allows.

    Args:
        training: The training section, searched values in place.
        num_samples: Samples to train on.
        global_batch: Samples that a step takes in the mean.
        num_steps: Steps of the whole training.

    Returns:
        None where the training is not private.

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
            next_step="Allow more, train for fewer epochs, or use a smaller batch.",
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
