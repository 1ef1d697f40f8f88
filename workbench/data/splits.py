"""Loaded data sets: splits that return whole batches by index.

`batch(indices)` returns (inputs, targets) as numpy arrays, or as the tensors that a custom torch
data set returned. Several inputs are a tuple, and named inputs a mapping. Training moves them to a
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from workbench.data.collating import collate
from workbench.data.loader_arguments import PLAIN, LoaderArguments
from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError

_MANY_ROWS = 2_000
IGNORED = -100
"""The class of pixels and tokens that losses and metrics ignore."""


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
        is_whole: Whether the last window ends with the text. It then overlaps the one before it,
            and tokens that this one predicts are no targets again.
    """

    tokens: np.ndarray = field(repr=False)
    context: int
    stride: int
    is_whole: bool = False

    def __len__(self) -> int:
        num_left = len(self.tokens) - 1 - self.context
        if num_left < 0:
            return 0
        if self.is_whole:
            return math.ceil(num_left / self.stride) + 1
        return num_left // self.stride + 1

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (batch, context) inputs and targets as int64."""
        wanted = np.asarray(indices)[:, None] * self.stride
        starts = np.minimum(wanted, len(self.tokens) - 1 - self.context)
        places = np.arange(self.context)
        windows = self.tokens[starts + np.arange(self.context + 1)].astype(np.int64)
        targets = np.where(places < wanted - starts, IGNORED, windows[:, 1:])
        return windows[:, :-1], targets


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
class Prompt:
    """The beginning of a document, which a language model continues.

    Attributes:
        tokens: Its token ids, at least one.
        expected: The token ids of the answer in the data. The last one ends an answer.
        most_tokens: The most tokens that the model writes.
        decode: Returns the text of token ids.
    """

    tokens: np.ndarray
    expected: np.ndarray
    most_tokens: int
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class LanguageTasks:
    """Tasks of lm_eval on which a language model is measured at each evaluation.

    Attributes:
        names: Names of tasks or groups.
        folder: A folder with further tasks, or None.
        limit: The most samples of each task, or None for all.
        num_shots: Solved examples in each prompt, or None for the number of the task.
        uses_chat: Whether prompts are written by the chat template.
        tokenizer: The tokenizer of transformers.
        max_tokens: The most tokens of a prompt and its answer.
    """

    names: tuple[str, ...]
    folder: Path | None
    limit: int | None
    num_shots: int | None
    uses_chat: bool
    tokenizer: Any = field(repr=False)
    max_tokens: int


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
        bytes_per_target: Bytes of text of each validated target on average, in UTF-8, or None if
            targets are not text.
        loading: What DataLoaders of the user's state about train, validation and test, by part.
        prompts: What the model answers after each evaluation, so that you can read its answers.
        language_tasks: Tasks of lm_eval that the model is measured on at each evaluation.
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
    bytes_per_target: float | None = None
    loading: Mapping[str, LoaderArguments] = field(default_factory=dict, repr=False)
    prompts: tuple[Prompt, ...] = field(default=(), repr=False)
    language_tasks: LanguageTasks | None = field(default=None, repr=False)

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


Normalisation: TypeAlias = Literal["standard", "robust", "range", "none"]
"""How inputs are shifted and scaled by statistics of the train samples."""
_QUARTERS = (0.25, 0.5, 0.75)
_QUARTILES_OF_NORMAL = 1.3489795
"""The distance of the quartiles of a normal distribution, in standard deviations."""


def standardise(
    inputs: np.ndarray,
    train: np.ndarray,
    *,
    axis: int | tuple[int, ...] | None,
    how: Normalisation = "standard",
) -> np.ndarray:
    """Shift and scale by statistics of the train samples, such as their mean and deviation.

    Args:
        inputs: All samples, batch first.
        train: Sample numbers of the train split.
        axis: Axes to take the mean over: 0 for each feature by itself, None for all numbers
            together.
        how: The statistics, as `moments` returns them.

    Returns:
        The samples as float32. A feature that is constant in train becomes 0 there.
    """
    mean, scale = moments(inputs, train, axis=axis, how=how)
    return ((inputs - mean) / scale).astype(np.float32)


def moments(
    inputs: np.ndarray,
    train: np.ndarray,
    *,
    axis: int | tuple[int, ...] | None,
    how: Normalisation = "standard",
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `standardise` subtracts and what it divides by, with the same arguments.

    These are mean and standard deviation, or median and quartile distance divided by 1.349 (robust,
    the same for a normal distribution), or middle and half of the range, or 0 and 1 (none).

    Example:
        >>> moments(np.array([0.0, 1.0, 4.0]), np.arange(3), axis=None, how="range")
        (array(2.), array(2.))
    """
    known = inputs[train].astype(np.float64)
    if how == "range":
        low, high = np.asarray(known.min(axis=axis)), np.asarray(known.max(axis=axis))
        middle, spread = (high + low) / 2, (high - low) / 2
    elif how == "robust":
        first, middle, third = (np.asarray(part) for part in np.quantile(known, _QUARTERS, axis))
        spread = (third - first) / _QUARTILES_OF_NORMAL
    else:
        middle, spread = np.asarray(known.mean(axis=axis)), np.asarray(known.std(axis=axis))
    if how == "none":
        return np.zeros_like(middle), np.ones_like(spread)
    return middle, divisor(middle, spread)


def divisor(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return the divisor that standardises: the deviation, or 1 for a constant feature."""
    # The deviation of equal numbers can be a rounding error above 0. Dividing by it would amplify
    # noise.
    return np.where(deviation > 1e-12 * np.maximum(1.0, np.abs(mean)), deviation, 1.0)
