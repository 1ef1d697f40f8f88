"""Choose one model from the trials of a run.

Judge each configuration on validation, combine the best.

A configuration was trained on each fold. Every sample is predicted by the model that had not learnt
from it, and a new sample by the mean of all of them. No function here receives test samples: the
choice cannot depend on them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from workbench.data.encoders import encode_all
from workbench.data.plain_frames import column_of
from workbench.data.unusual_rows import as_learned
from workbench.experiment.actions import suggest
from workbench.experiment.goals import sign_of
from workbench.foundation.errors import RunError
from workbench.models.ensemble_selection import select, weighted_mean
from workbench.models.second_layer import SecondLayer, learn_second_layer
from workbench.models.zoo import MORE_ROUNDS
from workbench.runs.automl.candidates import METRIC, NUM_ENSEMBLED, instant_models
from workbench.runs.automl.class_decisions import Decisions, above_0
from workbench.runs.automl.latency import is_within, limit_of, within
from workbench.runs.automl.preparation import Fold, Interpreter, LearningData, Reader
from workbench.runs.automl.presets import DEFAULT, PRESET, PRESETS, Preset
from workbench.runs.automl.scores import loss_of
from workbench.store.database.run_files import find_moved
from workbench.store.history import History, Trial
from workbench.store.history.failure_text import headline

if TYPE_CHECKING:
    from torch import nn

    from workbench.data.column_encoding import Column
    from workbench.experiment import Experiment
    from workbench.runs import Run

# A linear model of so many numbers is fitted in about a second.
_MAX_INSTANT, _FEWEST_INSTANT = 2_000_000, 200
_NUM_TIMED = 1_000


PUPIL = "boosted_trees"
"""The family of the small model that is taught by others."""
_FEWEST_TAUGHT = 1_000
# A second layer needs many rows, and must be better by a share of the loss that is not luck.
_FEWEST_STACKED, _MOST_STACKED, _STACKING_GAIN = 2_000, 8, 0.02

# Of the time that is left to fit to all rows. The test comes before.
_FIT_PART = 0.8
_LEAST_S = 1e-3
# By how much of its loss a model gets better if it is fitted to all rows.
_GAINED_BY_ALL_ROWS = 0.05
# By how much of the loss a candidate must be better for candidates to be compared on its folds.
_GAINED_BY_FEWER_FOLDS = 0.05


class PlainModel(Protocol):
    """A model that predicts without torch, which takes seconds to load."""

    def outputs(self, inputs: np.ndarray, *, classes: bool) -> np.ndarray | None:
        """Return what `outputs_of` returns, or None if a module is faster."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A configuration that was trained on all folds that count.

    Attributes:
        trial: Number of its first trial, or None if it was fitted when the result was chosen,
            because no trial was ready in time.
        family: Its model family.
        params: Its configuration.
        models: By fold, the module with its best weights, only if it is used, as a forest may be
            large.
        plain: By fold, the same model without torch, where there is one.
        predicted: Its predictions for the validation samples, fold after fold: (samples, classes)
            probabilities, or (samples, 1) numbers in the unit of the target.
        loss: Loss of these predictions.
        is_taught: Whether it learned what other candidates answer instead of the targets.
        teachers: Those candidates with their weights. A stored model has none.
    """

    trial: int | None
    family: str
    params: dict[str, object]
    models: Mapping[int, nn.Module] = field(repr=False)
    predicted: np.ndarray = field(repr=False)
    loss: float
    is_taught: bool = False
    teachers: tuple[tuple[Candidate, float], ...] = field(default=(), repr=False)
    plain: Mapping[int, PlainModel] = field(default_factory=dict, repr=False)

    def outputs(self, number: int, inputs: np.ndarray, *, classes: bool) -> np.ndarray:
        """Return what the model of a fold predicts, as `outputs_of` does.

        Args:
            number: The fold.
            inputs: Encoded samples.
            classes: Whether its outputs are scores of classes.
        """
        plain = self.plain.get(number)
        if plain is not None and (answers := plain.outputs(inputs, classes=classes)) is not None:
            return answers
        from workbench.training.trained_model import outputs_of

        return outputs_of(self.models[number], inputs, classes=classes)

    @property
    def title(self) -> str:
        """What it is called in results."""
        return f"{self.family} (distilled)" if self.is_taught else self.family


@dataclass(frozen=True)
class ChosenModel:
    """The model that was chosen: a weighted mean of candidates.

    Attributes:
        candidates: The best candidates of the run by validation loss, the best first.
        weights: The weight of each. They sum to 1, and most are 0.
        targets: The true values of the validation samples.
        interpreter: Reads samples.
        guess: The simplest guess, which is used where no candidate was ready in time.
        decisions: How probabilities are corrected, and which class follows from them.
        second: What answers from the probabilities of all used candidates, or None for the weighted
            mean.
        stacked: Its probabilities for the validation samples, which it has not learned from.
        offsets: The column of groups, whose encoding is added to a predicted number. None without
            any. A new group, or a table without the column, gets nothing.
    """

    candidates: tuple[Candidate, ...]
    weights: tuple[float, ...]
    targets: np.ndarray = field(repr=False)
    interpreter: Interpreter = field(repr=False)
    guess: np.ndarray = field(repr=False)
    decisions: Decisions = field(default_factory=Decisions)
    second: SecondLayer | None = None
    stacked: np.ndarray | None = field(default=None, repr=False)
    offsets: Column | None = None

    @property
    def used(self) -> list[tuple[Candidate, float]]:
        """The candidates with a weight, the largest weight first."""
        pairs = [pair for pair in zip(self.candidates, self.weights, strict=True) if pair[1] > 0.0]
        return sorted(pairs, key=lambda pair: -pair[1])

    def shown_weight(self, weight: float) -> float | None:
        """Return the weight of a candidate, or None if a second layer decides whom to believe.

        Args:
            weight: Its weight in `weights`. The members of a second layer have equal ones there.
        """
        return None if weight > 0.0 and self.second is not None else weight

    @property
    def predicted(self) -> np.ndarray:
        """Predictions for the validation samples."""
        if not self.used:
            return self._guessed(len(self.targets))
        if self.stacked is not None:
            return self._answers(self.stacked)
        mean = weighted_mean(
            [candidate.predicted for candidate, _ in self.used], [weight for _, weight in self.used]
        )
        return self._answers(mean)

    def _answers(self, mean: np.ndarray) -> np.ndarray:
        if self.interpreter.are_labels:
            return np.clip(mean, 0.0, 1.0)
        answers = self.decisions.calibrated(mean)
        return above_0(answers) if self.interpreter.task == "classification" else answers

    @property
    def columns(self) -> list[Column]:
        """The learned columns of a table, of all readers, or none for other samples."""
        readers = self.interpreter.readers
        return [column for reader in readers for column in getattr(reader.encoder, "columns", ())]

    def outputs_of_new(self, samples: Any) -> np.ndarray:
        """Return predictions as `outputs`, for rows whose values may be written in other ways.

        Args:
            samples: As in `outputs`.

        Raises:
            DataError: If they cannot be read.
        """
        if hasattr(samples, "columns"):
            samples, _ = as_learned(samples, self.columns)
        return self.outputs(samples)

    def outputs(self, samples: Any) -> np.ndarray:
        """Return predictions for samples: probabilities of classes, or numbers.

        Args:
            samples: Samples of the kind that the run was given.

        Raises:
            DataError: If they cannot be read.
        """
        if not self.used or not len(samples):
            return self._guessed(len(samples))
        classes = self.interpreter.task == "classification"
        folds = sorted({number for candidate, _ in self.used for number in candidate.models})
        readers = {number: self.interpreter.readers[number] for number in folds}
        encoders = [reader.encoder for reader in readers.values()]
        inputs = dict(zip(folds, encode_all(encoders, samples), strict=True))
        predictions = [
            np.mean(
                [
                    readers[number].in_units(
                        candidate.outputs(number, inputs[number], classes=classes), inputs[number]
                    )
                    for number in candidate.models
                ],
                axis=0,
            )
            for candidate, _ in self.used
        ]
        if self.second is not None:
            return self._answers(self.second.answers(predictions))
        mean = weighted_mean(predictions, [weight for _, weight in self.used])
        return self._answers(mean) + self._offsets_of(samples)

    def _offsets_of(self, samples: Any) -> np.ndarray | float:
        """Return what is added for the groups of samples, as (samples, 1)."""
        names = {str(name): name for name in getattr(samples, "columns", ())}
        if self.offsets is None or self.offsets.name not in names:
            return 0.0
        return self.offsets.encode(column_of(samples, names[self.offsets.name]))

    def _guessed(self, num_samples: int) -> np.ndarray:
        return np.tile(self.guess.astype(np.float64), (num_samples, 1))


def choose(
    run: Run,
    learning: LearningData,
    interpreter: Interpreter,
    guess: np.ndarray,
    *,
    most: int = NUM_ENSEMBLED,
    until_s: float = math.inf,
    fit_until_s: float = math.inf,
    num_rows: int = 0,
    quantiles: Sequence[float] = (),
    examples: Any = None,
    are_independent: bool = False,
) -> ChosenModel:
    """Choose among the configurations of a run by their predictions for the validation samples.

    Args:
        run: A run that has ended.
        learning: The data that it learnt from.
        interpreter: Reads its samples.
        guess: Used where the run was too short for any model.
        most: How many configurations are compared, those that seemed the best to the run.
        until_s: The time at which no further one is judged, by `time.monotonic`. One always is.
        fit_until_s: The time at which the used configurations should have been fitted to all rows,
            by `time.monotonic`. An ensemble has no more members than there is time for: those that
            only know some of the rows would make it worse.
        num_rows: How many rows that will be.
        quantiles: The quantiles that the user wants, for the pinball loss.
        examples: Some samples that were learned from, to time the prediction of one row, or None.
        are_independent: Whether no sample belongs to another one, by group, time or weight. A
            second layer needs it to be judged fairly.

    Raises:
        RunError: If models failed, and none was trained.
    """
    trained = _trained(run.history)
    if not can_choose(run.history):
        why = f": it {run.history.state}"
        if failed := run.history.in_state("failed"):
            why = f" (the last failed: {headline(failed[-1].message)})"
        raise RunError(
            f"no model of run {run.run_id} was trained{why}",
            next_step=suggest(
                "extend",
                run.run_id,
                time="5m",
                lead=f"Read its logs in {run.folder}. To give it more time",
            ),
        )
    folds = list(range(min(len(learning.folds), num_folds_compared(run.history))))
    whole = [by_fold for by_fold in trained if set(folds) <= set(by_fold)]
    targets = np.concatenate(
        [_targets(learning.folds[number], interpreter, number) for number in folds]
    )
    loss = functools.partial(
        loss_of,
        targets=targets,
        task=interpreter.task,
        metric=metric_of(run.experiment),
        quantiles=quantiles,
    )
    if not whole:
        instant = instant_model(run, learning, interpreter, loss)
        if instant is not None:
            return ChosenModel((instant,), (1.0,), targets, interpreter, guess)
    pairs: list[tuple[Candidate, dict[int, Trial]]] = []
    for by_fold in whole[:most]:
        if pairs and time.monotonic() > until_s:
            break
        candidate = _judge(
            run, by_fold, folds, learning=learning, interpreter=interpreter, loss=loss
        )
        pairs.append((candidate, by_fold))
    pairs.sort(key=lambda pair: (pair[0].loss, pair[0].trial or 0))
    chosen = ChosenModel((), (), targets, interpreter, guess)
    costs_s = [expected_fit_s(run, candidate, learning, num_rows) for candidate, _ in pairs]
    preset = preset_of(run.experiment)
    choose_from = functools.partial(
        select, loss=loss, max_members=preset.max_members, min_gain=preset.min_gain
    )

    def selected(among: Sequence[int]) -> list[float]:
        weights = np.zeros(len(pairs))
        weights[list(among)] = _weights_of(
            [pairs[number][0].predicted for number in among],
            choose_from,
            [costs_s[number] for number in among],
            loss=loss,
            limit_s=_FIT_PART * (fit_until_s - time.monotonic()),
        )
        return weights.tolist()

    teach = functools.partial(
        _taught, learning=learning, loss=loss, seed=run.experiment.seed or 0, until_s=until_s
    )
    stack = None
    has_log_loss = metric_of(run.experiment) in (None, "log_loss")
    has_time = preset.max_members > 1 and time.monotonic() < until_s
    if are_independent and has_log_loss and has_time:
        stack = functools.partial(
            _second_layer, [candidate for candidate, _ in pairs], chosen, learning, loss=loss
        )
    return _combined(
        run,
        pairs,
        folds,
        learning,
        chosen,
        selected=selected,
        examples=examples,
        loss=loss,
        teach=teach,
        stack=stack,
    )


def _second_layer(
    candidates: Sequence[Candidate],
    nothing: ChosenModel,
    learning: LearningData,
    weights: Sequence[float],
    *,
    loss: Callable[[np.ndarray], float],
) -> tuple[list[float], SecondLayer, np.ndarray] | None:
    """Return a second layer on some candidates if it is clearly better than their weighted mean.

    Where features tell the targets of a few rows, predictions for other rows do so, too. A second
    layer then looks better than it is: on restaurants, it was 12 % better on validation and 5 %
    worse on test rows.

    Args:
        candidates: The candidates, the best one first.
        nothing: A model without any of them.
        learning: The data that they learnt from.
        weights: The weight of each candidate in the mean.
        loss: The loss of predictions for the validation samples.

    Returns:
        Equal weights of its members, the second layer, and its predictions for the validation
        samples. None if the weighted mean is better.
    """
    interpreter, targets = nothing.interpreter, nothing.targets
    encoders: list[Any] = [reader.encoder for reader in interpreter.readers]
    if interpreter.task != "classification" or interpreter.kind != "table":
        return None
    is_small = len(learning.folds) == 1 or len(targets) < _FEWEST_STACKED
    if is_small or any(encoder.shows_few_rows for encoder in encoders):
        return None
    families: set[str] = set()
    members = []
    for number, candidate in enumerate(candidates):
        if weights[number] > 0.0 or candidate.family not in families:
            members.append(number)
        families.add(candidate.family)
    members = members[:_MOST_STACKED]
    if len(members) < 2:
        return None
    predictions = [candidates[number].predicted for number in members]
    layer, unseen = learn_second_layer(predictions, targets, loss=loss, seed=0)
    used = [(candidates[n].predicted, weight) for n, weight in enumerate(weights) if weight > 0.0]
    mean = weighted_mean(*zip(*used, strict=True))
    if loss(unseen) > (1.0 - _STACKING_GAIN) * loss(mean):
        return None
    equal = [1.0 / len(members) if n in members else 0.0 for n in range(len(candidates))]
    return equal, layer, unseen


def _combined(
    run: Run,
    pairs: Sequence[tuple[Candidate, dict[int, Trial]]],
    folds: Sequence[int],
    learning: LearningData,
    nothing: ChosenModel,
    *,
    selected: Callable[[Sequence[int]], list[float]],
    examples: Any,
    loss: Callable[[np.ndarray], float],
    teach: Callable[[ChosenModel], ChosenModel | None],
    stack: Callable[[Sequence[float]], tuple[list[float], SecondLayer, np.ndarray] | None] | None,
) -> ChosenModel:
    """Combine candidates, the best one first, and keep the limit on the time to predict a row.

    `nothing` is a model without any of them. If the limit costs some of them, a small model that is
    taught by all may be better than those that are left.
    """

    def made(weights: Sequence[float], has_all_folds: bool) -> ChosenModel:
        candidates = []
        for (candidate, trials), weight in zip(pairs, weights, strict=True):
            if weight > 0.0:  # only what is used is kept in memory
                numbers = folds if has_all_folds else folds[:1]
                models = {
                    number: _model(run, trials[number], learning, number) for number in numbers
                }
                candidate = dataclasses.replace(candidate, models=models)
            candidates.append(candidate)
        return dataclasses.replace(nothing, candidates=tuple(candidates), weights=tuple(weights))

    weights = selected(range(len(pairs)))
    limit_s = limit_of(run.experiment)
    if limit_s is None or not pairs or examples is None:
        stacked = stack(weights) if stack is not None and pairs else None
        if stacked is None:
            return made(weights, True)
        equal, layer, unseen = stacked
        return dataclasses.replace(made(equal, True), second=layer, stacked=unseen)
    kept = within(limit_s, weights, make=made, select=selected, rows=examples)
    if kept.weights == tuple(weights):
        return kept
    small = teach(made(weights, True))
    if small is None or not is_within(limit_s, small, examples):
        return kept
    (pupil, _), *_ = small.used
    return small if pupil.loss < loss(kept.predicted) else kept


def _taught(
    whole: ChosenModel,
    *,
    learning: LearningData,
    loss: Callable[[np.ndarray], float],
    seed: int,
    until_s: float,
) -> ChosenModel | None:
    """Return a small model that learned the answers of another one, or None if there is no time.

    For each fold, the models of that fold teach. So the validation samples of a fold were seen by
    neither of them.

    Args:
        whole: The model, with the models of all folds.
        learning: The data that it learnt from.
        loss: The loss of predictions for all validation samples.
        seed: Seed of everything random.
        until_s: When it should be done, by `time.monotonic`.
    """
    from workbench.training.trained_model import outputs_of

    interpreter = whole.interpreter
    classes = interpreter.task == "classification"
    numbers = sorted(whole.used[0][0].models) if whole.used else []
    if interpreter.kind != "table" or not numbers:
        return None
    models: list[nn.Module] = []
    predicted = []
    for place in numbers:
        fold, reader = learning.folds[place], interpreter.readers[place]
        left_s = (until_s - time.monotonic()) / (len(numbers) - len(models))
        model = teach(
            whole.used, place, reader, fold.train_inputs, is_class=classes, seed=seed, time_s=left_s
        )
        if model is None:
            return None
        models.append(model)
        outputs = outputs_of(model, fold.validation_inputs, classes=classes)
        predicted.append(reader.in_units(outputs, fold.validation_inputs))
    of_all = np.concatenate(predicted)
    pupil = Candidate(
        trial=None,
        family=PUPIL,
        params={"family": PUPIL},
        models={numbers[0]: models[0]},
        predicted=of_all,
        loss=loss(of_all),
        is_taught=True,
        teachers=tuple(whole.used),
    )
    others = tuple(dataclasses.replace(other, models={}) for other in whole.candidates)
    return dataclasses.replace(
        whole, candidates=(pupil, *others), weights=(1.0, *[0.0] * len(others))
    )


def teach(
    teachers: Sequence[tuple[Candidate, float]],
    place: int,
    reader: Reader,
    inputs: np.ndarray,
    *,
    is_class: bool,
    seed: int,
    time_s: float,
) -> nn.Module | None:
    """Return a small model that learned the answers of others, or None if there is no time.

    Args:
        teachers: The others with their weights, which sum to 1.
        place: The place of the models that teach, and of their reader.
        reader: What encoded the samples.
        inputs: The encoded samples that the teachers have learned from.
        is_class: Whether a class is predicted.
        seed: Seed of everything random.
        time_s: How long it may take, in seconds.
    """
    from workbench.models.distillation import distilled, most_rows_in
    from workbench.training.trained_model import outputs_of

    def answers(rows: np.ndarray) -> np.ndarray:
        predictions = [
            reader.in_units(outputs_of(teacher.models[place], rows, classes=is_class), rows)
            for teacher, _ in teachers
        ]
        mean = weighted_mean(predictions, [weight for _, weight in teachers])
        return mean if is_class else reader.standardised(mean, rows)

    encoder: Any = reader.encoder
    num_outputs = outputs_of(teachers[0][0].models[place], inputs[:1], classes=is_class).shape[1]
    most_rows = most_rows_in(time_s, num_outputs)
    if most_rows < min(len(inputs), _FEWEST_TAUGHT):
        return None
    return distilled(
        inputs,
        answers,
        widths=encoder.widths,
        are_probabilities=is_class,
        most_rows=most_rows,
        seed=seed,
    )


def _weights_of(
    predictions: Sequence[np.ndarray],
    choose_from: Callable[[Sequence[np.ndarray]], np.ndarray],
    costs_s: Sequence[float],
    *,
    loss: Callable[[np.ndarray], float],
    limit_s: float,
) -> np.ndarray:
    """Return the weight of each candidate.

    A member that cannot be fitted to all rows in time predicts by the models of its folds. It is
    left out only if what the others gain by that is more than what it adds.

    Args:
        predictions: Predictions of each candidate for the validation samples.
        choose_from: Returns the weights of some of them.
        costs_s: How long it takes to fit each of them to all rows, in seconds.
        loss: The loss of predictions.
        limit_s: How much time there is to fit them, in seconds.
    """
    if not predictions:
        return np.zeros(0)
    weights = choose_from(predictions)
    kept = _affordable(weights, costs_s, limit_s)
    share = weights[kept].sum()
    if not kept or share == weights.sum():
        return weights
    fewer = np.zeros(len(predictions))
    fewer[kept] = choose_from([predictions[place] for place in kept])
    loss_of_all, loss_of_fewer = (
        loss(weighted_mean(predictions, chosen.tolist())) for chosen in (weights, fewer)
    )
    gained = _GAINED_BY_ALL_ROWS * (1.0 - share) * abs(loss_of_fewer)
    return weights if loss_of_all < loss_of_fewer - gained else fewer


def _affordable(weights: np.ndarray, costs_s: Sequence[float], limit_s: float) -> list[int]:
    """Return the places of the members that can be fitted in some time.

    Those with much weight for their time come first.
    """
    kept: list[int] = []
    total_s = 0.0
    for place in np.argsort(-weights / np.maximum(costs_s, _LEAST_S), kind="stable").tolist():
        if weights[place] > 0.0 and total_s + costs_s[place] <= limit_s:
            kept.append(place)
            total_s += costs_s[place]
    return kept


def expected_fit_s(run: Run, candidate: Candidate, learning: LearningData, num_rows: int) -> float:
    """Return how long it takes to fit a candidate to some rows, in seconds.

    It is known from the time of its folds on one core, and from the rounds that they made after the
    best one, which are not made again. The median of the folds counts, from their first report on:
    before it, the first one waited for libraries to load. A model that only trains in steps is not
    fitted again.

    Args:
        run: The run.
        candidate: A candidate that was trained.
        learning: The data that it learnt from.
        num_rows: Number of rows.
    """
    from workbench.training.planning.settings import fitted_of

    params: Any = candidate.params
    if candidate.trial is None or (fitted := fitted_of(run.experiment, params)) is None:
        return 0.0
    trials = run.history.trials
    configuration = trials[candidate.trial].configuration
    num_rounds = min(run.experiment.training.epochs, fitted.max_rounds)
    took_s = []
    for trial in trials.values():
        if trial.configuration != configuration or trial.planned_unix_s is None:
            continue
        per_step = fitted.round_ratio ** (-num_rounds / run.experiment.training.epochs)
        part = min(1.0, MORE_ROUNDS * per_step ** (trial.last_step - trial.saved_step))
        took_s.append(part * _fit_s(trial, per_step))
    fold_s = statistics.median(took_s) if took_s else 0.0
    return fold_s * num_rows / len(learning.folds[0].train_targets)


def _fit_s(trial: Trial, per_step: float) -> float:
    """Return how long the rounds of a trial took, in seconds.

    Args:
        trial: A trial that was planned.
        per_step: How many times the rounds until a step are the rounds until the next one.
    """
    assert trial.planned_unix_s is not None
    whole_s = trial.last_event_unix_s - trial.planned_unix_s  # without the start of its process
    if trial.first_report is None:
        return whole_s
    first_unix_s, first_step, _ = trial.first_report
    share = 1.0 - per_step ** (trial.last_step - first_step)  # of the rounds, after that report
    if share <= 0.5:  # what came before it is mostly rounds, or unknown
        return whole_s
    return min(whole_s, (trial.last_event_unix_s - first_unix_s) / share)


def instant_model(
    run: Run, learning: LearningData, interpreter: Interpreter, loss: Callable[[np.ndarray], float]
) -> Candidate | None:
    """Fit the best of a few quick models here and now, for a run that had no time for a trial.

    A busy machine may take longer to start processes than the user allows. The same data gives the
    same model, so that it need not be stored.

    Args:
        run: The run.
        learning: Its data. Models learn from the first fold, or a part of many rows.
        interpreter: Reads its samples.
        loss: The loss of predictions for the validation samples of the first fold.

    Returns:
        The model, or None if none can be fitted to such samples.
    """
    from threadpoolctl import threadpool_limits

    from workbench.models.configurations import FittedConfiguration, configure
    from workbench.training.trained_model import outputs_of

    fold = learning.folds[0]
    num_features = math.prod(fold.input_shape)
    num_rows = num_instant_rows(learning)
    rows = np.random.default_rng(0).permutation(len(fold.train_inputs))[:num_rows]
    inputs = fold.train_inputs[rows].reshape(num_rows, num_features)
    fitted: list[Candidate] = []
    for family, options in instant_models(run.experiment, inputs, learning.num_outputs).items():
        configuration = configure(family, options)
        assert isinstance(configuration, FittedConfiguration)
        try:
            with threadpool_limits(limits=1):  # on a busy machine, threads wait for each other
                *_, grown = configuration.grow(
                    inputs,
                    fold.train_targets[rows],
                    num_classes=len(learning.class_names) or None,
                    num_rounds=1,
                    seed=0,
                )
        except (ValueError, MemoryError):  # too large, or a single class among these rows
            continue
        # The model as a trial would store it: trees without their library.
        model = configuration.build(
            input_shape=fold.input_shape, num_outputs=learning.num_outputs, vocabulary_size=None
        )
        model.load_state_dict(grown.state_dict())
        model.eval()
        outputs = outputs_of(
            model, fold.validation_inputs, classes=interpreter.task == "classification"
        )
        predicted = interpreter.readers[0].in_units(outputs, fold.validation_inputs)
        params = {f"{family}_{name}": value for name, value in options.items()}
        params = {"family": family, **params}
        fitted.append(
            Candidate(
                trial=None,
                family=family,
                params=params,
                models={0: model},
                predicted=predicted,
                loss=loss(predicted),
            )
        )
    return min(fitted, key=lambda candidate: candidate.loss, default=None)


def num_instant_rows(learning: LearningData) -> int:
    """Return from how many rows the models learn that are fitted at once."""
    fold = learning.folds[0]
    most = max(_FEWEST_INSTANT, _MAX_INSTANT // math.prod(fold.input_shape))
    return min(len(fold.train_inputs), most)


def can_choose(history: History) -> bool:
    """Return whether a run has trained a model, or was merely too short for one."""
    was_short = history.state in ("complete", "stopped") and not history.in_state("failed")
    return was_short or any(_has_weights(trial) for trial in history.trials.values())


def num_folds_compared(history: History) -> int:
    """Return on how many of the first folds candidates are compared at the end of a run.

    Those are all folds on which a candidate was trained, unless one that was cut short is clearly
    better on its folds than the best one that was not. In a short run on many rows, nothing but a
    linear model may be complete.

    Args:
        history: A run that has ended.
    """
    trained = _trained(history)
    most = max(map(len, trained), default=1)
    loss = _loss_in(history)
    best = next((by_fold for by_fold in trained if _num_complete(by_fold) == most), None)
    least_gain, num_folds = _GAINED_BY_FEWER_FOLDS, most
    for by_fold in trained:
        if best is None or any(trial.state == "pruned" for trial in by_fold.values()):
            continue
        common = range(max(1, _num_complete(by_fold)))
        before, after = (sum(loss(of[fold]) for fold in common) for of in (best, by_fold))
        if len(common) < most and before - after > least_gain * abs(before):
            least_gain, num_folds = (before - after) / abs(before), len(common)
    return num_folds


def _num_complete(by_fold: Mapping[int, Trial]) -> int:
    """Return on how many of the first folds a training was not cut short."""
    states = [by_fold[fold].state for fold in sorted(by_fold)]
    return next((n for n, state in enumerate(states) if state != "complete"), len(states))


def _loss_in(history: History) -> Callable[[Trial], float]:
    """Return what gives the value of a trial by which configurations are compared, less is better.

    It is infinite where it is unknown.
    """
    objective = history.experiment.objectives[0]
    sign = -sign_of(objective.goal)

    def loss(trial: Trial) -> float:
        value = (trial.values or trial.last_values).get(objective.metric, math.nan)
        if math.isnan(value):
            return math.inf
        return sign * value

    return loss


def _trained(history: History) -> list[dict[int, Trial]]:
    """Return the trials of each configuration by fold, the best configuration first.

    Trials that were cut short come after complete ones. Their best weights are used as they are, so
    that a short run has a result as well.
    """
    loss = _loss_in(history)
    cut_short = sorted(
        history.in_state("stopped", "pruned"), key=lambda trial: (loss(trial), trial.number)
    )
    by_configuration: dict[int, dict[int, Trial]] = {}
    for trial in [*history.ranked(), *cut_short]:
        if _has_weights(trial):
            by_configuration.setdefault(trial.configuration, {})[trial.repeat] = trial
    # A later repeat is only trained once the first is complete. Folds after a missing one are not
    # used.
    return [kept for kept in map(_without_gaps, by_configuration.values()) if kept]


def _has_weights(trial: Trial) -> bool:
    return trial.best_checkpoint is not None and trial.checkpoints_deleted is None


def _without_gaps(trials: dict[int, Trial]) -> dict[int, Trial]:
    first_missing = next(number for number in range(len(trials) + 1) if number not in trials)
    return {number: trials[number] for number in range(first_missing)}


def _targets(fold: Fold, interpreter: Interpreter, number: int) -> np.ndarray:
    if interpreter.task == "classification":
        return fold.validation_targets
    targets = fold.validation_targets.astype(np.float64)
    return interpreter.readers[number].in_units(targets, fold.validation_inputs)


def _judge(
    run: Run,
    trials: dict[int, Trial],
    folds: Sequence[int],
    *,
    learning: LearningData,
    interpreter: Interpreter,
    loss: Callable[[np.ndarray], float],
) -> Candidate:
    """Predict the validation samples with a configuration, one model in memory at a time.

    A model that was fitted at once has stored its predictions.
    """
    from workbench.training.trained_model import outputs_of, stored_outputs

    classes = interpreter.task == "classification"
    predictions = []
    for number in folds:
        inputs = learning.folds[number].validation_inputs
        with _checkpoint(run, trials[number]) as path:
            outputs = stored_outputs(path, len(inputs), classes=classes)
        if outputs is None:
            model = _model(run, trials[number], learning, number)
            outputs = outputs_of(model, inputs, classes=classes)
        predictions.append(interpreter.readers[number].in_units(outputs, inputs))
    predicted = np.concatenate(predictions)
    first = trials[folds[0]]
    family = family_of(first.params, run.experiment)
    return Candidate(
        trial=first.number,
        family=family,
        params=dict(first.params),
        models={},
        predicted=predicted,
        loss=loss(predicted),
    )


def predict_s(run: Run, candidate: Candidate, learning: LearningData, num_folds: int) -> float:
    """Return how long a candidate takes to predict 1,000 rows with the models of all folds.

    Args:
        run: The run.
        candidate: The candidate. A model that is not in memory is loaded.
        learning: The data that it learnt from.
        num_folds: Number of its models.
    """
    from workbench.training.trained_model import outputs_of

    fold = learning.folds[0]
    model = next(iter(candidate.models.values()), None)
    if model is None:
        assert candidate.trial is not None, "a model that was fitted here is in memory"
        model = _model(run, run.history.trials[candidate.trial], learning, 0)
    inputs = fold.validation_inputs
    rows = inputs[np.arange(_NUM_TIMED) % len(inputs)]
    classes = bool(learning.class_names)
    outputs_of(model, rows[:1], classes=classes)
    began_s = time.perf_counter()
    outputs_of(model, rows, classes=classes)
    return num_folds * (time.perf_counter() - began_s)


@contextlib.contextmanager
def _checkpoint(run: Run, trial: Trial) -> Iterator[Path]:
    from workbench.training.checkpoint import fetched

    assert trial.best_checkpoint is not None
    artifacts, name = find_moved(
        run.store.artifacts_of(run.run_id), run.run_id, trial.best_checkpoint
    )
    with fetched(artifacts, name) as path:
        yield path


def _model(run: Run, trial: Trial, learning: LearningData, number: int) -> nn.Module:
    from workbench.training.trained_model import load_model

    with _checkpoint(run, trial) as path:
        return load_model(
            run.experiment,
            trial.params,
            path,
            input_shape=learning.folds[number].input_shape,
            num_outputs=learning.num_outputs,
        )


def preset_of(experiment: Experiment) -> Preset:
    """Return the preset of a run.

    Args:
        experiment: The experiment of an AutoML run.
    """
    name: Any = DEFAULT
    if experiment.data is not None:
        name = experiment.data.options.get(PRESET, DEFAULT)
    return PRESETS[name]


def metric_of(experiment: Experiment) -> str | None:
    """Return the metric that the user chose to optimise, or None for the default.

    Args:
        experiment: The experiment of an AutoML run.
    """
    if experiment.data is None or METRIC not in experiment.data.options:
        return None
    return str(experiment.data.options[METRIC])


def family_of(params: Mapping[str, object], experiment: Experiment) -> str:
    """Return the model family of a configuration.

    The model of the experiment where it is not searched.

    Args:
        params: The configuration.
        experiment: The experiment of its run.
    """
    model = "model"
    if experiment.model is not None:
        model = experiment.model.short_name
    return str(params.get("family", model))


def describe(params: Mapping[str, object], family: str) -> str:
    """Describe a configuration in one line, without the name of its model family.

    Args:
        params: The configuration.
        family: The model family.
    """
    shown: Sequence[tuple[str, object]] = [
        (name.removeprefix(f"{family}_"), value)
        for name, value in params.items()
        if name != "family"
    ]
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in shown
    )
