"""Which samples make which batch.

Pure functions of (seed, epoch), so that any process can recompute them.

An epoch is one permutation of the samples, cut into global batches. Each global batch is cut into
one contiguous part for each worker. No sample is repeated. The last batch is smaller, or dropped if
the user's DataLoader drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

Indices = np.ndarray


class Groups(NamedTuple):
    """Samples that are fetched together, and how many groups may be in use at a time."""

    of_sample: np.ndarray
    """The number of the group of each sample."""
    num_at_once: int


def epoch_indices(
    num_samples: int, *, epoch: int, seed: int, shuffle: bool, groups: Groups | None = None
) -> Indices:
    """Return the order in which an epoch visits the samples.

    Args:
        num_samples: Number of samples in the split.
        epoch: Which epoch, from 0.
        seed: Seed of the training. Every pair of seed and epoch has its own order.
        shuffle: Whether to visit them in random order instead of from first to last.
        groups: Samples to visit near each other, or None if any order will do.

    Returns:
        All indices from 0 to num_samples - 1, int64.
    """
    if not shuffle:
        return np.arange(num_samples)
    rng = np.random.default_rng([seed, epoch])
    if groups is None:
        return rng.permutation(num_samples)
    # Groups start at random times. Each is spread over the time of as many groups as may be in use
    # at once.
    starts = rng.permutation(int(groups.of_sample.max(initial=0)) + 1)
    return np.argsort(
        starts[groups.of_sample] + rng.uniform(0, groups.num_at_once - 1, num_samples)
    )


def num_batches(num_samples: int, global_batch: int, *, drops_last: bool = False) -> int:
    """Return the number of global batches in an epoch, the last one unless it is dropped."""
    if drops_last:
        return num_samples // global_batch
    return -(-num_samples // global_batch)  # rounded up


def global_batches(
    num_samples: int,
    *,
    global_batch: int,
    epoch: int,
    seed: int,
    shuffle: bool,
    start: int = 0,
    groups: Groups | None = None,
    drops_last: bool = False,
) -> Iterator[Indices]:
    """Walk through the global batches of an epoch.

    Args:
        num_samples: Number of samples in the split.
        global_batch: Samples in a batch over all workers, at least 1.
        epoch: Which epoch, from 0.
        seed: Seed of the training.
        shuffle: Whether the epoch has a random order.
        start: Number of batches completed before an interruption.
        groups: Samples that should be visited near each other.
        drops_last: Whether a smaller last batch is dropped.

    Yields:
        The indices of each batch.
    """
    order = epoch_indices(num_samples, epoch=epoch, seed=seed, shuffle=shuffle, groups=groups)
    num = num_batches(num_samples, global_batch, drops_last=drops_last)
    for first in range(start * global_batch, num * global_batch, global_batch):
        yield order[first : first + global_batch]


def drawn_batches(num_samples: int, *, sample_rate: float, num_batches: int) -> Iterator[Indices]:
    """Draw batches that take each sample independently, as differential privacy requires.

    They follow from no seed. A reader who knew which samples a step used could learn more about
    them.

    Args:
        num_samples: Number of samples in the split.
        sample_rate: Probability with which a batch takes a sample.
        num_batches: How many to draw.

    Yields:
        The indices of each batch, in random order. The number of indices differs and can be 0.
    """
    rng = np.random.default_rng()
    for _ in range(num_batches):
        yield rng.permutation(np.flatnonzero(rng.random(num_samples) < sample_rate))


def worker_part(batch_indices: Indices, rank: int, num_workers: int) -> Indices:
    """Return the contiguous part of a batch that one worker computes.

    Args:
        batch_indices: Indices of a global batch, or of a micro-batch that is shared.
        rank: The worker, from 0 to num_workers - 1.
        num_workers: Number of workers that share the batch.

    Returns:
        A view. The sizes of the parts differ by at most one, larger ones first, and can be 0.
    """
    share, remainder = divmod(len(batch_indices), num_workers)
    first = rank * share + min(rank, remainder)
    return batch_indices[first : first + share + (rank < remainder)]


def num_equal_batches(num_samples: int, size: int, num_workers: int) -> int:
    """Return the number of batches per worker if all workers are to process equally many.

    Args:
        num_samples: Samples that the workers share as in `worker_part`.
        size: Samples per batch of a worker.
        num_workers: Number of workers.
    """
    largest_part = -(-num_samples // num_workers)
    return -(-largest_part // size)
