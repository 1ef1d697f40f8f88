"""Split samples into learning and test parts, and the learning part into encoded folds.

The run is given the folds only. The test samples are in another object that only the final score
opens. So no trial, pruner or choice between models can see a test sample. The encoder and the
target scale of a fold are learnt from the train part of that fold only.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import numpy as np

from workbench.data import Datasets
from workbench.data.category_targets import target_numbers
from workbench.data.dates import is_text
from workbench.data.encoders import (
    Encoder,
    SampleKind,
    TableEncoder,
    encode_train,
    learn_encoder,
)
from workbench.data.plain_frames import column_of
from workbench.data.row_splits import RowBlocks, folds_of, hold_out
from workbench.data.splits import ArraySplit, divisor
from workbench.data.unusual_rows import PREDICTION, ranges_of
from workbench.foundation.errors import ArgumentError, DataError, RunError
from workbench.models.quick_trees import FoldArrays, loss_of_trees
from workbench.models.trends import continues, slope_of
from workbench.runs.automl.class_decisions import factors_of
from workbench.runs.automl.error_bands import SizeRows
from workbench.runs.automl.given_data import LEARNING, TEST, VALIDATION, take
from workbench.runs.automl.latency import NUM_EXAMPLES
from workbench.runs.automl.presets import DEFAULT, PRESETS, PresetName
from workbench.runs.automl.row_roles import TEST_FRACTION, RowRoles
from workbench.runs.automl.scores import loss_of, simplest_guess
from workbench.runs.automl.targets import MAX_LOGARITHM, Task, logarithms_help
from workbench.runs.automl.task_detection import Problem

VALIDATION_FRACTION = 0.2
MAX_FOLDS = 5
# How often a sample of mean weight is repeated, and the most samples that come out.
_REPEATS, _MAX_REPEATED = 3, 100_000
# On how many folds trees compare encodings with and without pairs, and how much of the loss pairs
# may leave.
_JUDGED_FOLDS, _MOST_LEFT_BY_PAIRS = 2, 0.99
# Each fold is encoded and sent separately. Many samples are worth folds only if each is small.
_MAX_FOLDED_NUMBERS = 10_000_000
_MANY_SAMPLES, _MAX_NUMBERS_OF_MANY = 5_000, 3_000_000


@dataclass(frozen=True)
class Fold:
    """One split of the learning samples, encoded.

    Attributes:
        train_inputs: Encoded train samples.
        train_targets: Class numbers, or standardised numbers as float32.
        validation_inputs: Encoded validation samples.
        validation_targets: As `train_targets`.
        target_scale: The divisor of the numbers to predict, in their unit.
    """

    train_inputs: np.ndarray = field(repr=False)
    train_targets: np.ndarray = field(repr=False)
    validation_inputs: np.ndarray = field(repr=False)
    validation_targets: np.ndarray = field(repr=False)
    target_scale: float = 1.0

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one encoded sample."""
        return self.train_inputs.shape[1:]


@dataclass(frozen=True)
class LearningData:
    """The data that trials learn from and are compared on. A worker calls it to get a data set.

    Attributes:
        folds: A fold for each repeat of a training.
        training_seeds: The seed of the training on each fold.
        class_names: Names of the classes, by number, or empty for a regression.
        num_targets: Number of targets of a regression.
        is_log: Whether the targets are logarithms.
    """

    folds: tuple[Fold, ...]
    training_seeds: tuple[int, ...]
    class_names: tuple[str, ...]
    num_targets: int = 1
    is_log: bool = False

    def __call__(self, _options: Mapping[str, Any], training_seed: int | None = None) -> Datasets:
        """Return the fold of a training as a data set, or the first fold outside a training."""
        fold = self.folds[0]
        if training_seed in self.training_seeds:
            fold = self.folds[self.training_seeds.index(training_seed)]
        return Datasets(
            name="automl",
            task="classification" if self.class_names else "regression",
            train=ArraySplit(fold.train_inputs, fold.train_targets),
            validation=ArraySplit(fold.validation_inputs, fold.validation_targets),
            input_shape=fold.input_shape,
            num_outputs=self.num_outputs,
            class_names=self.class_names,
            target_scale=fold.target_scale,
        )

    @property
    def num_outputs(self) -> int:
        """The number of classes, or of targets of a regression."""
        return len(self.class_names) or self.num_targets


@dataclass(frozen=True)
class Reader:
    """Encodes samples for the models of one fold, and returns outputs in the target's unit.

    Attributes:
        encoder: Learnt from the train part of the fold.
        target_mean: Added to a predicted number after scaling. Several targets have one each.
        target_scale: Factor of a predicted number. Several targets have one each.
        trend: The place of the time among the encoded inputs, and how much is added for each unit
            of it. None without a trend over time.
        is_log: Whether models predict the logarithm of the target.
    """

    encoder: Encoder = field(repr=False)
    target_mean: float | np.ndarray = 0.0
    target_scale: float | np.ndarray = 1.0
    trend: tuple[int, float] | None = None
    is_log: bool = False

    def in_units(self, outputs: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Return numbers in the unit of the target. Probabilities are unchanged.

        Args:
            outputs: What a model returned, or standardised targets.
            inputs: The encoded samples.
        """
        numbers = outputs * self.target_scale + self.target_mean
        if self.is_log:
            return np.exp(np.minimum(numbers, MAX_LOGARITHM))
        return numbers + self._trend_of(inputs, numbers.ndim)

    def standardised(self, numbers: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Return what a model should answer for numbers in the unit of the target.

        Args:
            numbers: The numbers, as `in_units` returns them. Logarithms need them above 0.
            inputs: The encoded samples.
        """
        if self.is_log:
            numbers = np.log(numbers)
        else:
            numbers = numbers - self._trend_of(inputs, numbers.ndim)
        return (numbers - self.target_mean) / self.target_scale

    def _trend_of(self, inputs: np.ndarray, num_dimensions: int) -> np.ndarray | float:
        if self.trend is None:
            return 0.0
        place, slope = self.trend
        times = inputs[:, place].astype(np.float64)
        return slope * times.reshape(-1, *[1] * (num_dimensions - 1))


@dataclass(frozen=True)
class Interpreter:
    """Everything needed to read the user's samples and to return predictions in the user's terms.

    Attributes:
        kind: The kind of sample.
        task: Whether a class or a number is predicted.
        readers: One for each fold.
        labels: The value of each class as it was given, by number.
        target_name: The name of the target, if it has one.
        text_columns: The columns of a table that hold sentences.
        target_unit: The sign or word after the numbers of the target, such as CHF, or "" for none.
        are_files: Whether the samples are image files.
        target_names: The names of several targets, or empty if there is one.
        are_labels: Whether several targets are labels, whose predictions are probabilities.
        group: The column with the groups of rows, or None.
    """

    kind: SampleKind
    task: Task
    readers: tuple[Reader, ...] = field(repr=False)
    labels: tuple[Any, ...] = field(repr=False)
    target_name: str | None
    text_columns: tuple[str, ...] = ()
    target_unit: str = ""
    are_files: bool = False
    target_names: tuple[str, ...] = ()
    are_labels: bool = False
    group: str | None = None

    @property
    def decimal_commas(self) -> set[str]:
        """The columns of a table whose numbers had decimal commas."""
        encoders = [reader.encoder for reader in self.readers]
        return {
            column.name
            for encoder in encoders
            for column in getattr(encoder, "columns", ())
            if column.number_text.has_decimal_comma
        }

    def meant(self, samples: Any) -> Any:
        """Return a table with the numbers and dates that its texts mean, None for other samples.

        Args:
            samples: Samples as they were given.
        """
        if self.kind != "table" or not hasattr(samples, "assign"):
            return None
        columns = [
            column
            for reader in self.readers[:1]
            for column in getattr(reader.encoder, "columns", ())
            if column.kind in ("number", "time") and is_text(column_of(samples, column.name))
        ]
        if not columns:
            return None
        read = {column.name: column.numbers(samples[column.name]) for column in columns}
        return samples.assign(
            **{
                column.name: (read[column.name] / 1000.0).astype("datetime64[us]")
                if column.kind == "time"
                else read[column.name]
                for column in columns
            }
        )


@dataclass(frozen=True)
class AllRows:
    """All rows that a final model may learn from.

    Those of the test part are among them, unless the user gave it. Then only the validation rows of
    each fold are new to its model.

    Attributes:
        inputs: Encoded samples.
        targets: Class numbers, or standardised numbers as float32.
        reader: Reads samples for a model that learnt from them.
        groups: The group of each row as text, None where it is missing. None without groups, or if
            rows are repeated.
    """

    inputs: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)
    reader: Reader
    groups: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class HeldOut:
    """The part that no trial sees: the test samples, and what is needed to predict them.

    Attributes:
        interpreter: Reads samples.
        samples: Test samples as they were given.
        targets: Class numbers, or numbers in their own unit.
        guess: The simplest guess, from the learning targets.
        num_samples: Number of learning and of test samples.
        notes: What the user should know about the data.
        roles: Which test samples belong together, and the columns that say so.
        own_parts: The parts that the user gave: "test", "validation", both or none.
        class_factors: The factor of each class by which the user weighs mistakes, or empty.
        weights: The weight of each test sample, or None if all are equal.
        weight_column: The column with the weights, or None.
        ranges: The range of each column of numbers in the samples to learn from, and of the
            numbers to predict.
        all_rows: What the final model may learn from after the test, or None.
        size_rows: The validation rows for trees that tell how far off a prediction may be, or None.
        quantiles: The quantiles that the user wants of each row, or empty.
        validation_blocks: Which validation samples of each fold belong together, and their times.
        examples: Some samples to learn from, as they were given, on which a prediction is timed.
        validation_weights: For each fold, the weight of each of its validation samples. The mean of
            the rows is 1, and copies of a row share its weight. Empty if all are equal.
    """

    interpreter: Interpreter
    samples: Any = field(repr=False)
    targets: np.ndarray = field(repr=False)
    guess: np.ndarray = field(repr=False)
    num_samples: tuple[int, int]
    notes: tuple[str, ...]
    roles: RowRoles = field(default_factory=RowRoles)
    own_parts: tuple[str, ...] = ()
    class_factors: tuple[float, ...] = ()
    weights: np.ndarray | None = field(default=None, repr=False)
    weight_column: str | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    all_rows: AllRows | None = field(default=None, repr=False)
    size_rows: SizeRows | None = field(default=None, repr=False)
    quantiles: tuple[float, ...] = ()
    validation_blocks: tuple[RowBlocks, ...] = field(default=(), repr=False)
    examples: Any = field(default=None, repr=False)
    validation_weights: tuple[np.ndarray, ...] = field(default=(), repr=False)

    def weights_of_validation(self, num_samples: int) -> np.ndarray | None:
        """Return the weights of the validation samples of the first folds, None if all are equal.

        Args:
            num_samples: The number of these samples.
        """
        if not self.validation_weights:
            return None
        return np.concatenate(self.validation_weights)[:num_samples]

    def blocks_of_validation(self, num_samples: int) -> RowBlocks | None:
        """Return which of the validation samples of the first folds belong together.

        Args:
            num_samples: The number of these samples.

        Returns:
            None if they are not those of whole folds.
        """
        groups: list[np.ndarray] = []
        times: list[np.ndarray] = []
        num_taken = 0
        for blocks in self.validation_blocks:
            if num_taken >= num_samples:
                break
            assert blocks.groups is not None
            num_taken += len(blocks.groups)
            groups.append(blocks.groups)
            times += [] if blocks.times is None else [blocks.times]
        if num_taken != num_samples or not num_taken:
            return None
        return RowBlocks(np.concatenate(groups), np.concatenate(times) if times else None)


def divide(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split samples into those to learn from and those to test on, stratified by class.

    Groups stay whole. With times, the test samples are the last ones.

    Args:
        problem: The samples.
        seed: Seed of the split.

    Returns:
        Sorted sample numbers: disjoint, none empty. They are complete unless samples have groups
        and times.

    Raises:
        DataError: If only one class is left to learn from.
    """
    classes = None
    if problem.task == "classification":
        classes = problem.targets
    parts = problem.parts
    if parts is None:
        parts = np.zeros(len(problem), dtype=np.int8)
    free = np.flatnonzero(parts == LEARNING)
    test = np.flatnonzero(parts == TEST)
    if not len(test):
        free_classes = None if classes is None else classes[free]
        blocks = problem.roles.blocks.take(free)
        places = hold_out(len(free), TEST_FRACTION, seed, classes=free_classes, blocks=blocks)
        free, test = (free[part] for part in places)
    learning = np.sort(np.concatenate([free, np.flatnonzero(parts == VALIDATION)]))
    if classes is not None and len(np.unique(classes[learning])) < 2:
        raise _too_uniform(problem, "left to learn from")
    return learning, test


def _too_uniform(problem: Problem, when: str) -> DataError:
    roles = problem.roles
    option, name = "time_column", roles.time
    if name is None:
        option, name = "group_column", roles.group
    return DataError(
        f"only one class is {when} if the samples are split by {name!r}",
        field=option,
        next_step=f"Set {option} to none, or name another column.",
    )


def num_folds_for(num_learning: int, num_numbers: int, preset: PresetName = DEFAULT) -> int:
    """Return the number of folds for a data set.

    Args:
        num_learning: Samples to learn from.
        num_numbers: Numbers that the encoded samples consist of.
        preset: The preset of the run.
    """
    most_numbers = _MAX_FOLDED_NUMBERS
    if num_learning > _MANY_SAMPLES:
        most_numbers = _MAX_NUMBERS_OF_MANY
    if num_numbers > most_numbers:
        return 1
    return next((folds for most, folds in PRESETS[preset].folds if num_learning <= most), 1)


def prepare(
    problem: Problem,
    seed: int,
    training_seeds: Sequence[int],
    preset: PresetName = DEFAULT,
    *,
    class_weights: str | Mapping[str, float] | None = None,
    quantiles: tuple[float, ...] = (),
    metric: str | None = None,
) -> tuple[LearningData, HeldOut]:
    """Split and encode samples.

    Args:
        problem: The samples.
        seed: Seed of the split.
        training_seeds: Seeds of the repeats of a training, at least as many as there may be folds.
        preset: The preset of the run, which decides on the number of folds.
        class_weights: "balanced", what a mistake in each class costs, or None.
        quantiles: The quantiles that the user wants of each row, or empty.
        metric: The optimised metric, or None for the default.

    Raises:
        DataError: If nothing can be learnt from the learning samples.
        ArgumentError: If the weight of a class is invalid.
    """
    learning, test = divide(problem, seed)
    given, problem = problem.samples, _with_numbers(problem)
    targets = problem.targets[learning]
    made, blocks = _encode_folds(problem, learning, preset, seed)
    has_pairs = _pairs_help(made, problem.task, seed)
    if not has_pairs:
        made = [_without_pairs(*pair) for pair in made]
    all_rows = _all_rows(problem, learning, test, has_pairs=has_pairs)
    notes = problem.notes
    if _has_trend(problem, made, seed):
        made = [_without_trend(*pair, str(problem.roles.time)) for pair in made]
        notes += (
            f"the target has a trend over `{problem.roles.time}`: it is continued by a straight"
            " line, because that is better on later rows",
        )
        if all_rows is not None:
            all_rows = _all_without_trend(all_rows, str(problem.roles.time))
    elif _has_logarithms(problem, made, metric, seed):
        logarithms = replace(problem, targets=np.log(problem.targets))
        made, _ = _encode_folds(logarithms, learning, preset, seed, has_pairs=has_pairs)
        made = [(fold, replace(reader, is_log=True)) for fold, reader in made]
        notes += (
            "models learn the logarithm of the target, because that is better on validation rows",
        )
        all_rows = _all_rows(logarithms, learning, test, has_pairs=has_pairs)
        if all_rows is not None:
            all_rows = replace(all_rows, reader=replace(all_rows.reader, is_log=True))
    interpreter = Interpreter(
        kind=problem.kind,
        task=problem.task,
        readers=tuple(reader for _, reader in made),
        labels=problem.labels,
        target_name=problem.target_name,
        text_columns=problem.text_columns,
        target_unit=problem.target_unit,
        are_files=problem.are_files,
        target_names=problem.target_names,
        are_labels=problem.are_labels,
        group=problem.roles.group,
    )
    folds = tuple(encoded for encoded, _ in made)
    weights = None if problem.weights is None else problem.weights[learning]
    guess = simplest_guess(targets, len(problem.class_names) or None, weights)
    if class_weights is not None and problem.task == "regression":
        raise ArgumentError(
            "numbers have no classes", field="class_weights", next_step="Remove it."
        )
    held_out = HeldOut(
        interpreter=interpreter,
        samples=take(given, test),
        targets=problem.targets[test],
        guess=guess,
        num_samples=(len(learning), len(test)),
        notes=notes,
        roles=replace(problem.roles, blocks=problem.roles.blocks.take(test)),
        own_parts=_own_parts(problem),
        class_factors=factors_of(class_weights, problem.labels, guess),
        weights=None if problem.weights is None else problem.weights[test],
        weight_column=problem.weight_column,
        ranges=_ranges(problem, learning, interpreter),
        all_rows=all_rows,
        size_rows=_size_rows(problem, learning, len(folds), seed),
        quantiles=quantiles,
        validation_blocks=blocks,
        examples=take(given, learning[:NUM_EXAMPLES]),
        validation_weights=_validation_weights(problem, learning, len(folds), seed),
    )
    seeds = tuple(training_seeds[: len(folds)])
    learned = LearningData(
        folds,
        seeds,
        problem.class_names,
        max(1, len(problem.target_names)),
        made[0][1].is_log,
    )
    return learned, held_out


def _with_numbers(problem: Problem) -> Problem:
    """Return samples whose numbers in text are read, once for all folds."""
    forms = {name: form for name, form in problem.text_forms.items() if not isinstance(form, str)}
    if problem.kind != "table" or not forms:
        return problem
    samples = problem.samples.copy(deep=False)
    for place, name in enumerate(samples.columns):
        if (form := forms.get(str(name))) is not None and str(name) not in problem.text_columns:
            samples.isetitem(place, form.parse_all(samples.iloc[:, place]))
    return replace(problem, samples=samples)


def _pairs_help(made: Sequence[tuple[Fold, Reader]], task: Task, seed: int) -> bool:
    """Return whether trees are better if columns are also encoded in pairs.

    A pair may tell more than each of its columns, but not more than all columns do. Then its means
    of few rows only mislead. On test rows of seven tables, pairs lowered the loss of LightGBM by
    22 % and 4 %, and raised that of the others by 1, 2, 6, 14 and 56 %. The latter are found, and
    one of the former.
    """
    pairs = [(fold, reader) for fold, reader in made if _has_pairs(reader)]
    if 2 * len(pairs) <= len(made):
        return False
    for fold, reader in pairs[:_JUDGED_FOLDS]:
        few, _ = _without_pairs(fold, reader)
        before, after = (loss_of_trees(_arrays(part), task, seed) for part in (few, fold))
        if after >= _MOST_LEFT_BY_PAIRS * before:
            return False
    return True


def _has_pairs(reader: Reader) -> bool:
    return isinstance(reader.encoder, TableEncoder) and bool(reader.encoder.pairs)


def _arrays(fold: Fold) -> FoldArrays:
    return (
        fold.train_inputs,
        fold.train_targets,
        fold.validation_inputs,
        fold.validation_targets,
    )


def _without_pairs(fold: Fold, reader: Reader) -> tuple[Fold, Reader]:
    """Return a fold whose columns are not encoded in pairs, and its reader."""
    encoder = reader.encoder
    if not isinstance(encoder, TableEncoder):
        return fold, reader
    places = encoder.pair_features
    fold = replace(
        fold,
        train_inputs=np.delete(fold.train_inputs, places, axis=1),
        validation_inputs=np.delete(fold.validation_inputs, places, axis=1),
    )
    return fold, replace(reader, encoder=replace(encoder, pairs=()))


def _has_trend(problem: Problem, made: Sequence[tuple[Fold, Reader]], seed: int) -> bool:
    """Return whether models should learn what is left without a trend over time."""
    if problem.task != "regression" or problem.roles.time is None or problem.target_names:
        return False
    places = [_place_of(reader, problem.roles.time) for _, reader in made]
    if None in places or len(set(places)) > 1:
        return False
    folds = [_arrays(fold) for fold, _ in made]
    return continues(folds, int(places[0] or 0), seed)


def _has_logarithms(
    problem: Problem, made: Sequence[tuple[Fold, Reader]], metric: str | None, seed: int
) -> bool:
    """Return whether models should learn the logarithm of the target."""
    if problem.task != "regression" or problem.kind != "table" or problem.target_names:
        return False
    if not problem.targets.min() > 0:
        return False
    folds = [
        (
            fold.train_inputs,
            _in_units(reader, fold.train_targets, fold.train_inputs),
            fold.validation_inputs,
            _in_units(reader, fold.validation_targets, fold.validation_inputs),
        )
        for fold, reader in made
    ]
    loss = functools.partial(loss_of, task=problem.task, metric=metric)
    return logarithms_help(folds, loss, seed)


def _in_units(reader: Reader, targets: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    return reader.in_units(targets.astype(np.float64), inputs)


def _place_of(reader: Reader, name: str) -> int | None:
    """Return the place of a column of times or numbers among the encoded inputs."""
    place = 0
    for column in getattr(reader.encoder, "columns", ()):
        if column.name == name and column.kind in ("time", "number"):
            return place
        place += column.width
    return None


def _without_trend(fold: Fold, reader: Reader, time: str) -> tuple[Fold, Reader]:
    """Return a fold whose targets have no trend, and a reader that adds it again."""
    place = _place_of(reader, time)
    assert place is not None
    slope = slope_of(fold.train_inputs, fold.train_targets, place)
    left = fold.train_targets - slope * fold.train_inputs[:, place]
    later = fold.validation_targets - slope * fold.validation_inputs[:, place]
    mean = float(left.mean())
    scale = float(divisor(np.asarray(mean), left.std()))
    fold = replace(
        fold,
        train_targets=((left - mean) / scale).astype(np.float32),
        validation_targets=((later - mean) / scale).astype(np.float32),
        target_scale=fold.target_scale * scale,
    )
    reader = replace(
        reader,
        target_mean=reader.target_mean + mean * reader.target_scale,
        target_scale=reader.target_scale * scale,
        trend=(place, slope * reader.target_scale),
    )
    return fold, reader


def _all_without_trend(rows: AllRows, time: str) -> AllRows:
    nothing = rows.inputs[:1], rows.targets[:1]
    if _place_of(rows.reader, time) is None:
        return rows
    fold, reader = _without_trend(Fold(rows.inputs, rows.targets, *nothing), rows.reader, time)
    return replace(rows, targets=fold.train_targets, reader=reader)


def _ranges(
    problem: Problem, learning: np.ndarray, interpreter: Interpreter
) -> dict[str, tuple[float, float]]:
    rows = take(problem.samples, learning)
    meant = interpreter.meant(rows)
    ranges = ranges_of(rows if meant is None else meant)
    if problem.task == "regression":
        targets = problem.targets[learning]
        if targets.ndim == 1:
            ranges[PREDICTION] = (float(targets.min()), float(targets.max()))
    return ranges


def repeated(weights: np.ndarray) -> np.ndarray:
    """Return sample numbers in which each sample occurs about in proportion to its weight.

    So every model respects weights without knowing of them. Weights that are small whole numbers
    are exact. Scores use the weights themselves.

    Args:
        weights: The weight of each sample. At least one is above 0.
    """
    total = max(len(weights), min(_MAX_REPEATED, _REPEATS * len(weights)))
    counts = weights.astype(np.int64)
    if not np.array_equal(counts, weights) or counts.sum() > total:
        ends = np.cumsum(weights) / weights.sum() * total
        counts = np.diff(np.floor(ends + 0.5), prepend=0.0).astype(np.int64)
    return np.repeat(np.arange(len(weights)), counts)


def _all_rows(
    problem: Problem, learning: np.ndarray, test: np.ndarray, *, has_pairs: bool
) -> AllRows | None:
    """Encode all rows of a table that may be learnt from once the test is over."""
    if problem.kind != "table":
        return None
    known = learning
    if "test" not in _own_parts(problem):  # a test part of the user stays a test part
        known = np.sort(np.concatenate([learning, test]))
    everything = np.arange(len(known))
    samples, targets = take(problem.samples, known), problem.targets[known]
    encoded, reader = _encode(
        problem, samples, targets, everything, everything[:1], has_pairs=has_pairs
    )
    if encoded.train_inputs.size > _MAX_FOLDED_NUMBERS:
        return None
    rows = everything
    if problem.weights is not None:
        rows = repeated(problem.weights[known])
    has_groups = problem.groups is not None and problem.weights is None
    groups = problem.groups[known] if has_groups and problem.groups is not None else None
    return AllRows(encoded.train_inputs[rows], encoded.train_targets[rows], reader, groups)


def _size_rows(
    problem: Problem, learning: np.ndarray, num_folds: int, seed: int
) -> SizeRows | None:
    """Encode the validation rows of all folds for trees that tell how large their errors are."""
    if problem.kind != "table" or problem.task != "regression" or problem.target_names:
        return None
    samples = take(problem.samples, learning)
    if problem.text_columns:  # the other columns tell enough, and faster
        samples = samples.drop(columns=list(problem.text_columns))
        if all(samples[name].nunique(dropna=False) <= 1 for name in samples):
            return None
    encoder = learn_encoder(problem.kind, samples, text_forms=problem.text_forms)
    parts = []
    for _, validation in _folds(problem, learning, num_folds, seed):
        rows = validation
        if problem.weights is not None:
            rows = validation[repeated(problem.weights[learning][validation])]
        parts.append(rows)
    rows = np.concatenate(parts)
    inputs = encoder.encode(samples)
    if inputs[0].size * len(rows) > _MAX_FOLDED_NUMBERS:
        return None
    return SizeRows(encoder, inputs[rows], rows)


def _validation_weights(
    problem: Problem, learning: np.ndarray, num_folds: int, seed: int
) -> tuple[np.ndarray, ...]:
    if problem.weights is None:
        return ()
    weights = problem.weights[learning]
    shares = []
    for _, validation in _folds(problem, learning, num_folds, seed):
        places = repeated(weights[validation])
        copies = np.bincount(places, minlength=len(validation))
        shares.append((weights[validation] / weights.mean() / np.maximum(copies, 1))[places])
    return tuple(shares)


def _own_parts(problem: Problem) -> tuple[str, ...]:
    parts = () if problem.parts is None else problem.parts
    return tuple(
        name for part, name in ((TEST, "test"), (VALIDATION, "validation")) if part in parts
    )


def _encode_folds(
    problem: Problem,
    learning: np.ndarray,
    preset: PresetName,
    seed: int,
    *,
    has_pairs: bool = True,
) -> tuple[list[tuple[Fold, Reader]], tuple[RowBlocks, ...]]:
    """Encode each fold. Return the folds, and which of their validation samples belong together."""
    samples, targets = take(problem.samples, learning), problem.targets[learning]
    encode = functools.partial(_encode, problem, samples, targets, has_pairs=has_pairs)
    num_folds = num_folds_for(len(learning), 0, preset)
    folds = _folds(problem, learning, num_folds, seed)
    made = [encode(*folds[0])]
    # Only an encoded sample tells how many numbers it has.
    num_numbers = made[0][0].train_inputs[0].size * len(learning)
    if len(folds) > 1 and num_folds_for(len(learning), num_numbers, preset) == 1:
        folds = _folds(problem, learning, 1, seed)
        made = [encode(*folds[0])]
    made += [encode(*parts) for parts in folds[1:]]
    validated = [part for _, part in folds]
    if problem.weights is not None:
        weights = problem.weights[learning]
        pairs = zip(made, folds, strict=True)
        made = [
            (_weighted(fold, *(weights[part] for part in parts)), reader)
            for (fold, reader), parts in pairs
        ]
        validated = [part[repeated(weights[part])] for part in validated]
    known = problem.roles.blocks.take(learning)
    groups = known.groups
    if groups is None:
        groups = np.arange(len(learning))
    blocks = tuple(
        RowBlocks(groups[rows], None if known.times is None else known.times[rows])
        for rows in validated
    )
    return made, blocks


def _folds(
    problem: Problem, learning: np.ndarray, num_folds: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the train and the validation part of each fold, as places among learning samples."""
    if "validation" in _own_parts(problem):
        assert problem.parts is not None
        of_user = problem.parts[learning] == VALIDATION
        return [(np.flatnonzero(~of_user), np.flatnonzero(of_user))]
    targets = problem.targets[learning]
    classes = targets if problem.task == "classification" else None
    folds = folds_of(
        len(targets),
        num_folds,
        seed,
        fraction=VALIDATION_FRACTION,
        classes=classes,
        blocks=problem.roles.blocks.take(learning),
    )
    if classes is not None and any(len(np.unique(classes[train])) < 2 for train, _ in folds):
        raise _too_uniform(problem, "in the train part of a fold")
    return folds


def _weighted(fold: Fold, of_train: np.ndarray, of_validation: np.ndarray) -> Fold:
    """Return a fold with its samples repeated in proportion to their weights.

    They are repeated once they are encoded: the encoding of a category would know the target of a
    row from its copies.
    """
    train, validation = repeated(of_train), repeated(of_validation)
    return replace(
        fold,
        train_inputs=fold.train_inputs[train],
        train_targets=fold.train_targets[train],
        validation_inputs=fold.validation_inputs[validation],
        validation_targets=fold.validation_targets[validation],
    )


def _encode(
    problem: Problem,
    samples: Any,
    targets: np.ndarray,
    train: np.ndarray,
    validation: np.ndarray,
    *,
    has_pairs: bool,
) -> tuple[Fold, Reader]:
    """Encode learning samples with what the train part tells."""
    mean: Any = 0.0
    scale: Any = 1.0
    scaled = targets
    if problem.task == "regression":
        mean = targets[train].mean(axis=0)
        scale = divisor(np.asarray(mean), targets[train].std(axis=0))
        if targets.ndim == 1:
            mean, scale = float(mean), float(scale)
        scaled = ((targets - mean) / scale).astype(np.float32)
    known = take(samples, train)
    numbers = target_numbers(scaled[train], len(problem.class_names) or None)
    encoder = learn_encoder(
        problem.kind,
        known,
        text_forms=problem.text_forms,
        targets=numbers,
        text_columns=problem.text_columns,
        has_pairs=has_pairs,
    )
    encoded = Fold(
        encode_train(encoder, known, numbers),
        scaled[train],
        encoder.encode(take(samples, validation)),
        scaled[validation],
        scale if isinstance(scale, float) else 1.0,
    )
    return encoded, Reader(encoder, mean, scale)


def pack(part: Any) -> tuple[str, bytes]:
    """Serialize a part of a run, such as its test part. Return the SHA-256 and the bytes."""
    payload = cloudpickle.dumps(part)
    return hashlib.sha256(payload).hexdigest(), payload


def unpack(sha256: str, payload: bytes) -> Any:
    """Return the part that was packed, such as the test part.

    Args:
        sha256: The expected hash of the bytes, which can execute code when they are loaded.
        payload: The bytes.

    Raises:
        RunError: If the hash differs.
    """
    if hashlib.sha256(payload).hexdigest() != sha256:
        raise RunError(
            "a part of this run, such as its test part, is not the one that was stored",
            next_step="Start a new run from the data: wb.automl(data).",
        )
    return cloudpickle.loads(payload)
