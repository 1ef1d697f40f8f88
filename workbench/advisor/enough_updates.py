"""Which batches leave a training enough updates within the epochs of its experiment, as far as is
known.

For the same progress a batch B takes (phi + B) / (phi + B0) times the samples of the batch B0,
where phi is the gradient noise scale (McCandless et al. 2018: samples = E_min (1 + B / B_crit),
B_crit being about phi). At the critical batch that is twice the fewest samples possible, so twice
those of the default batch are the most that a recommendation may need: B <= 2 B0 + phi. A noise
scale that was not measured counts as 0, which holds whatever it is: then half the updates of the
default remain, and some in each epoch. Where a candidate was trained to the target, or to the end,
its training decides instead.
"""

from __future__ import annotations

from workbench.advisor.advice_lines import NOT_SHOWN
from workbench.advisor.choices import MIN_STEPS_PER_EPOCH
from workbench.experiment import Experiment

_MAX_SAMPLES_RATIO = 2.0
"""How many times the samples of the default batch a larger one may need."""


def largest_batch(
    default_batch: int, noise_scale: float | None, num_train_samples: int | None
) -> int:
    """Return the largest batch that may be recommended without a training that shows its
    convergence.

    Args:
        default_batch: The batch without advice, in samples.
        noise_scale: The gradient noise scale in samples; None where it was not measured.
        num_train_samples: Samples of the training data; None where that is not known.
    """
    largest = int(
        _MAX_SAMPLES_RATIO * default_batch + (_MAX_SAMPLES_RATIO - 1.0) * (noise_scale or 0.0)
    )
    if noise_scale is None and num_train_samples is not None:
        largest = min(largest, num_train_samples // MIN_STEPS_PER_EPOCH)
    return max(default_batch, largest)


def describe_fewer_updates(
    experiment: Experiment, batch: int, default_batch: int, num_train_samples: int | None
) -> str:
    """Return why a batch is not recommended, in a sentence.

    Args:
        experiment: Its epochs count.
        batch: The batch whose steps are faster per sample.
        default_batch: The batch without advice.
        num_train_samples: Samples of the training data; None where that is not known.
    """
    if num_train_samples is None:
        leaves = f"{batch / default_batch:.3g} times fewer updates than {default_batch}"
    else:
        epochs = experiment.training.epochs
        few, many = (epochs * -(-num_train_samples // each) for each in (batch, default_batch))
        leaves = f"{few:,} updates in {epochs} epochs instead of {many:,} at {default_batch}"
    return f"a batch of {batch} has faster steps, but leaves {leaves}, and {NOT_SHOWN}"
