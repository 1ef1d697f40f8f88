"""Loaded data sets: splits that return whole batches by index.

`batch(indices)` returns (inputs, targets) as numpy arrays, or as the tensors that a custom torch
data set returned. Several inputs are a tuple, and named inputs a mapping. Training moves them to a
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from workbench.data.collating import collate
from workbench.data.loader_arguments import PLAIN, LoaderArguments
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError

_MANY_ROWS = 2_000


class Split(Protocol):
    """A part of a data set, as training uses it."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return the inputs and targets of the samples at `indices`, with the batch first."""
        ...


BeforeSample = Callable[[int], None]
"""Called with the number of a sample just before it is read."""


class MapStyle(Protocol):
    """A data set that is indexed by sample number and returns samples that `collate` takes."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return one sample, such as a pair (input, target)."""
        ...


@dataclass(frozen=True)
class ArraySplit:
    """Samples in two arrays, in memory or memory-mapped."""

    inputs: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise DataError(
                f"inputs of shape {self.inputs.shape} and targets of shape {self.targets.shape} do"
                " not have the same number of samples",
                field="data",
                allowed="one target for each input, the sample first",
            )

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the rows at `indices`."""
        return self.inputs[indices], self.targets[indices]


def test_split(arrays: Mapping[str, np.ndarray]) -> ArraySplit | None:
    """Return the test samples of cached arrays, or None if none are held out.

    Args:
        arrays: Arrays by name, among them `test_inputs` and `test_targets` if there are any.
    """
    if "test_inputs" not in arrays:
        return None
    return ArraySplit(arrays["test_inputs"], arrays["test_targets"])


@dataclass(frozen=True)
class TokenSplit:
    """Windows on a long text.

    Each sample is `context` tokens, its targets are the tokens that follow.

    Attributes:
        tokens: Token ids of the text, one after the other.
        context: Tokens in a window.
        stride: Tokens from the start of a window to the start of the next. `context` visits each
            token once.
    """

    tokens: np.ndarray = field(repr=False)
    context: int
    stride: int

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1 - self.context) // self.stride + 1)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (batch, context) inputs and targets as int64."""
        positions = np.asarray(indices)[:, None] * self.stride + np.arange(self.context + 1)
        windows = self.tokens[positions].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]


@dataclass(frozen=True)
class MapSplit:
    """A map-style data set, such as a torch Dataset, and the function that makes its batches."""

    dataset: MapStyle
    gather: Callable[[Sequence[Any]], tuple[Any, Any]] = collate
    draws_samples: ClassVar[bool] = True
    """Whether reading a sample may draw random numbers, as `workbench.data.sample_seeding`
    explains.
    """

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(
        self, indices: np.ndarray, *, before_sample: BeforeSample | None = None
    ) -> tuple[Any, Any]:
        """Return the samples at `indices` as one batch: tensors if the data set returns tensors.

        Args:
            indices: The samples.
            before_sample: Called before each sample. Samples are then read one by one.

        Raises:
            DataError: If the samples do not make a batch.
        """
        return self.gather(
            fetch_samples(self.dataset, [int(index) for index in indices], before_sample)
        )


def fetch_samples(
    dataset: Any, indices: list[int], before_sample: BeforeSample | None = None
) -> Sequence[Any]:
    """Return samples of a map-style data set, at once where it can: see torch's `__getitems__`."""
    if before_sample is not None:
        samples: list[Any] = []
        for index in indices:
            before_sample(index)
            samples += fetch_samples(dataset, [index])
        return samples
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]


@dataclass(frozen=True)
class Datasets:
    """A data set, split and described.

    Attributes:
        name: Its display name.
        task: What to predict: a class, a number, the next token, boxes, or what only the model
            knows.
        train: Samples to learn from.
        validation: Samples to choose the best configuration by.
        test: Samples that no decision has used, if the data set has some.
        input_shape: Shape of one sample: (features,), (channels, height, width), (time, features),
            or (context,) for token ids.
        num_outputs: Classes, regression targets, or the vocabulary size for a language model.
        vocabulary_size: Number of token ids if inputs are token ids.
        class_names: Names of the classes, or of the tokens, by number, if they have names.
        target_shape: Shape of one sample's targets if it has several. It is (height, width) or
            (context,) if each pixel or token has a class, and (horizon, series) for a forecast,
            whose targets are flat. Boxes are (boxes, 5): class (-1 for none), left, top, right and
            bottom as shares of the image.
        token_names: The texts of the token ids if classes have other names.
        owners: The client of each sample of train and of validation, by number from 0, if the data
            have clients.
        target_scale: The divisor of the numbers to predict, in their unit, or 1 if they keep it.
        loading: What DataLoaders of the user's state about train, validation and test, by part.
    """

    name: str
    task: Task
    train: Split
    validation: Split
    input_shape: tuple[int, ...]
    num_outputs: int
    test: Split | None = None
    vocabulary_size: int | None = None
    class_names: tuple[str, ...] = field(default=(), repr=False)
    target_shape: tuple[int, ...] = ()
    token_names: tuple[str, ...] = field(default=(), repr=False)
    owners: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    target_scale: float = 1.0
    loading: Mapping[str, LoaderArguments] = field(default_factory=dict, repr=False)

    @property
    def tokens_per_sample(self) -> float | None:
        """Tokens of a training sample on average, without known padding.

        None if inputs are not tokens.
        """
        counted = getattr(self.train, "num_tokens", None)
        if counted is not None:
            return counted / max(1, len(self.train))
        if self.vocabulary_size is None:
            return None
        if self.token_names[:1] == ("",) and len(self.train):
            # The first token is padding. Some rows, evenly spaced, are enough for a mean.
            chosen = np.arange(0, len(self.train), max(1, len(self.train) // _MANY_ROWS))
            return np.count_nonzero(np.asarray(self.train.batch(chosen)[0])) / len(chosen)
        return float(math.prod(self.input_shape))

    @property
    def order(self) -> LoaderArguments:
        """How an epoch of training walks through the samples."""
        return self.loading.get("train", PLAIN)


def split_indices(
    num_samples: int, *, validation_fraction: float, seed: int, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Divide sample numbers into train and validation, the same way for the same seed.

    Args:
        num_samples: Number of samples, at least 2.
        validation_fraction: Share of the samples that is held out, of each class if `classes` is
            given. Between 0 and 1, both excluded.
        seed: Seed of the division.
        classes: Class of each sample, for a division that keeps the share of each class. A class of
            one sample stays in train.

    Returns:
        Sorted sample numbers of train and of validation: disjoint, complete, neither empty.
    """
    train, validation, _ = split_in_three(
        num_samples,
        validation_fraction=validation_fraction,
        test_fraction=0.0,
        seed=seed,
        classes=classes,
    )
    return train, validation


def split_in_three(
    num_samples: int,
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
    classes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide sample numbers into train, validation and test, the same way for the same seed.

    Validation has the same samples whatever the share of the test is: these come out of train.

    Args:
        num_samples: Number of samples, at least 2.
        validation_fraction: As in `split_indices`.
        test_fraction: Share of the samples that no decision uses, of each class if `classes` is
            given. From 0, and below 1 together with `validation_fraction`.
        seed: Seed of the division.
        classes: As in `split_indices`.

    Returns:
        Sorted sample numbers: disjoint and complete. Only the test numbers may be empty.
    """
    order = np.random.default_rng(seed).permutation(num_samples)
    part = np.zeros(num_samples, dtype=np.int8)  # 0 is train, 1 validation and 2 test
    groups = [order]
    if classes is not None:
        groups = [order[classes[order] == number] for number in np.unique(classes)]
    for group in groups:
        num_validation = min(max(round(len(group) * validation_fraction), 1), len(group) - 1)
        num_test = min(round(len(group) * test_fraction), len(group) - 1 - num_validation)
        part[group[:num_validation]] = 1
        part[group[num_validation : num_validation + num_test]] = 2
    if not (part == 1).any():
        part[order[0]] = 1
    return np.flatnonzero(part == 0), np.flatnonzero(part == 1), np.flatnonzero(part == 2)


def standardise(
    inputs: np.ndarray, train: np.ndarray, *, axis: int | tuple[int, ...] | None
) -> np.ndarray:
    """Shift and scale by the mean and standard deviation of the train samples.

    Args:
        inputs: All samples, batch first.
        train: Sample numbers of the train split.
        axis: Axes to take the mean over: 0 for each feature by itself, None for all numbers
            together.

    Returns:
        The samples as float32. A feature that is constant in train becomes 0 there.
    """
    mean, scale = moments(inputs, train, axis=axis)
    return ((inputs - mean) / scale).astype(np.float32)


def moments(
    inputs: np.ndarray, train: np.ndarray, *, axis: int | tuple[int, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `standardise` subtracts and what it divides by, with the same arguments."""
    known = inputs[train].astype(np.float64)
    mean, deviation = np.asarray(known.mean(axis=axis)), np.asarray(known.std(axis=axis))
    return mean, divisor(mean, deviation)


def divisor(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return the divisor that standardises: the deviation, or 1 for a constant feature."""
    # The deviation of equal numbers can be a rounding error above 0. Dividing by it would amplify
    # noise.
    return np.where(deviation > 1e-12 * np.maximum(1.0, np.abs(mean)), deviation, 1.0)
