"""From the trials of a run to one model: what each configuration says on validation, and which are joined.

A configuration was trained on each fold; its validation predictions are those of every sample by the model
that had not learnt from it, and what it says of a new sample is the mean over its models. Nothing here takes
test samples: what is chosen cannot depend on them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.artifacts import Artifacts
from workbench.automatic.candidates import NUM_ENSEMBLED
from workbench.automatic.ensemble import select, weighted_mean
from workbench.automatic.preparation import Fold, Interpreter, LearningData
from workbench.automatic.scores import loss_of
from workbench.errors import RunError
from workbench.history import History, Trial

if TYPE_CHECKING:
    from torch import nn

    from workbench.run import Run


@dataclass(frozen=True)
class Candidate:
    """A configuration that was trained on all folds that count.

    Attributes:
        trial: Number of its first trial.
        family: Its kind of model.
        params: Its values.
        models: By fold, the module with its best weights, where it is used; a forest may be large.
        predicted: What it says of the validation samples, fold after fold: (samples, classes) probabilities,
            or (samples, 1) numbers in the unit of the target.
        loss: What that is worth; less is better.
    """

    trial: int
    family: str
    params: dict[str, object]
    models: dict[int, nn.Module] = field(repr=False)
    predicted: np.ndarray = field(repr=False)
    loss: float


@dataclass(frozen=True)
class Chosen:
    """Trained configurations, the best first, and the weight of each in what is used.

    Attributes:
        candidates: The best of the run by validation.
        weights: One each; they sum to 1, and most are 0.
        targets: What would have been right on validation.
        interpreter: How samples are read.
        guess: The simplest guess: what is used where no candidate was ready in time.
    """

    candidates: tuple[Candidate, ...]
    weights: tuple[float, ...]
    targets: np.ndarray = field(repr=False)
    interpreter: Interpreter = field(repr=False)
    guess: np.ndarray = field(repr=False)

    @property
    def used(self) -> list[tuple[Candidate, float]]:
        """Those that have a weight, the heaviest first."""
        pairs = [pair for pair in zip(self.candidates, self.weights, strict=True) if pair[1] > 0.0]
        return sorted(pairs, key=lambda pair: -pair[1])

    @property
    def predicted(self) -> np.ndarray:
        """What is used says of the validation samples."""
        if not self.used:
            return self._guessed(len(self.targets))
        return weighted_mean([each.predicted for each, _ in self.used], [weight for _, weight in self.used])

    def outputs(self, samples: Any) -> np.ndarray:
        """Return what is used says of samples: probabilities of classes, or numbers.

        Args:
            samples: Of the kind that the run was given.

        Raises:
            DataError: If they cannot be read.
        """
        from workbench.training.inference import outputs_of

        if not self.used or not len(samples):
            return self._guessed(len(samples))
        classes = self.interpreter.asked == "classification"
        folds = sorted(self.used[0][0].models)
        readers = {number: self.interpreter.readers[number] for number in folds}
        inputs = {number: reader.encoder.encode(samples) for number, reader in readers.items()}
        said = [
            np.mean(
                [
                    readers[number].in_units(outputs_of(model, inputs[number], classes=classes))
                    for number, model in each.models.items()
                ],
                axis=0,
            )
            for each, _ in self.used
        ]
        return weighted_mean(said, [weight for _, weight in self.used])

    def _guessed(self, num_samples: int) -> np.ndarray:
        return np.tile(self.guess.astype(np.float64), (num_samples, 1))


def choose(run: Run, learning: LearningData, interpreter: Interpreter, guess: np.ndarray) -> Chosen:
    """Choose among the configurations of a run by what they say of the validation samples.

    Args:
        run: A run that has ended.
        learning: What it learnt from.
        interpreter: How its samples are read.
        guess: What is used where the run was too short for any model.

    Raises:
        RunError: If models failed, and none was trained.
    """
    trained = _trained(run)
    if not can_choose(run.history):
        failed = run.history.in_state("failed")
        raise RunError(
            f"no model of run {run.run_id} was trained"
            + (f"; the last failed: {failed[-1].message}" if failed else f": it {run.history.state}"),
            next_step=f"Look at its logs in {run.folder}, or give it more time: "
            f"workbench extend {run.run_id} --time 5m",
        )
    folds = list(range(min(len(learning.folds), max((len(each) for each in trained), default=1))))
    whole = [each for each in trained if set(folds) <= set(each)]
    targets = np.concatenate([_targets(learning.folds[number], interpreter, number) for number in folds])
    pairs = [
        (_judge(run, each, folds, learning, interpreter, targets), each) for each in whole[:NUM_ENSEMBLED]
    ]
    pairs.sort(key=lambda pair: (pair[0].loss, pair[0].trial))
    said = [candidate.predicted for candidate, _ in pairs]
    weights = [float(weight) for weight in select(said, targets, interpreter.asked)] if said else []
    found = [
        dataclasses.replace(
            candidate, models={number: _model(run, trials[number], learning, number) for number in folds}
        )
        if weight > 0.0
        else candidate
        for (candidate, trials), weight in zip(pairs, weights, strict=True)
    ]
    return Chosen(tuple(found), tuple(weights), targets, interpreter, guess)


def can_choose(history: History) -> bool:
    """Tell whether a run has left a model, or was merely too short for one."""
    was_short = history.state in ("complete", "stopped") and not history.in_state("failed")
    return was_short or any(_has_weights(trial) for trial in history.trials.values())


def _trained(run: Run) -> list[dict[int, Trial]]:
    """Return the trainings of each configuration by fold, the best configuration first.

    Trainings that were cut short come after complete ones: their best weights count as they are, so that a
    short run has a result, too.
    """
    history = run.history
    cut_short = sorted(
        history.in_state("stopped", "pruned"),
        key=lambda trial: (trial.last_values.get("val_loss", math.inf), trial.number),
    )
    found: dict[int, dict[int, Trial]] = {}
    for trial in [*history.ranked(), *cut_short]:
        if _has_weights(trial):
            found.setdefault(trial.configuration, {})[trial.repeat] = trial
    # A later repeat is only trained once the first is complete; one that is missing in between ends the row.
    return [kept for kept in map(_without_gaps, found.values()) if kept]


def _has_weights(trial: Trial) -> bool:
    return trial.best_checkpoint is not None and trial.checkpoints_deleted is None


def _without_gaps(trials: dict[int, Trial]) -> dict[int, Trial]:
    first_missing = next(number for number in range(len(trials) + 1) if number not in trials)
    return {number: trials[number] for number in range(first_missing)}


def _targets(fold: Fold, interpreter: Interpreter, number: int) -> np.ndarray:
    if interpreter.asked == "classification":
        return fold.validation_targets
    return interpreter.readers[number].in_units(fold.validation_targets.astype(np.float64))


def _judge(
    run: Run, trials: dict[int, Trial], folds: Sequence[int], learning: LearningData,
    interpreter: Interpreter, targets: np.ndarray,
) -> Candidate:  # fmt: skip
    """Ask a configuration about the validation samples; only one of its models is held at a time."""
    from workbench.training.inference import outputs_of

    classes = interpreter.asked == "classification"
    said = []
    for number in folds:
        model = _model(run, trials[number], learning, number)
        outputs = outputs_of(model, learning.folds[number].validation_inputs, classes=classes)
        said.append(interpreter.readers[number].in_units(outputs))
    predicted, first = np.concatenate(said), trials[folds[0]]
    loss = loss_of(predicted, targets, interpreter.asked)
    return Candidate(first.number, str(first.params["family"]), dict(first.params), {}, predicted, loss)


def _model(run: Run, trial: Trial, learning: LearningData, number: int) -> nn.Module:
    from workbench.training.inference import load_model

    assert trial.best_checkpoint is not None
    artifacts = run.store.artifacts_of(run.run_id)
    name = artifacts.name_of(trial.best_checkpoint)
    if name is None:  # the artifacts of the run were elsewhere then
        folder, _, name = trial.best_checkpoint.rpartition("/")
        artifacts = Artifacts.at(folder)
    with artifacts.as_file(name) as path:
        return load_model(
            run.experiment, trial.params, path,
            input_shape=learning.folds[number].input_shape, num_outputs=learning.num_outputs,
        )  # fmt: skip


def describe(params: Mapping[str, object], family: str) -> str:
    """Return a configuration in one line, without what its kind of model says already.

    Args:
        params: The configuration.
        family: The kind of model.
    """
    shown: Sequence[tuple[str, object]] = [
        (name.removeprefix(f"{family}_"), value) for name, value in params.items() if name != "family"
    ]
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in shown
    )
