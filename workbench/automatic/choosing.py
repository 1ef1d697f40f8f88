"""From the trials of a run to one model: what each says on validation, and which of them are joined.

Nothing here takes test samples: what is chosen cannot depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from workbench.artifacts import Artifacts
from workbench.automatic.candidates import NUM_ENSEMBLED
from workbench.automatic.ensemble import select, weighted_mean
from workbench.automatic.preparation import LearningData
from workbench.automatic.question import Asked
from workbench.automatic.scores import loss_of
from workbench.errors import RunError
from workbench.history import Trial

if TYPE_CHECKING:
    from torch import nn

    from workbench.run import Run


@dataclass(frozen=True)
class Candidate:
    """A trained trial.

    Attributes:
        trial: Its number.
        family: Its kind of model.
        params: Its configuration.
        model: The module, with its best weights.
        predicted: What it says of the validation samples: (samples, classes) probabilities, or (samples, 1)
            standardised numbers.
        loss: What that is worth; less is better.
    """

    trial: int
    family: str
    params: dict[str, object]
    model: nn.Module = field(repr=False)
    predicted: np.ndarray = field(repr=False)
    loss: float


@dataclass(frozen=True)
class Chosen:
    """Trained trials, the best first, and the weight of each in what is used.

    Attributes:
        candidates: The best of the run by validation.
        weights: One each; they sum to 1, and most are 0.
    """

    candidates: tuple[Candidate, ...]
    weights: tuple[float, ...]

    @property
    def used(self) -> list[tuple[Candidate, float]]:
        """Those that have a weight, the heaviest first."""
        pairs = [pair for pair in zip(self.candidates, self.weights, strict=True) if pair[1] > 0.0]
        return sorted(pairs, key=lambda pair: -pair[1])

    @property
    def label(self) -> str:
        """What is used, in words."""
        used = self.used
        return used[0][0].family if len(used) == 1 else f"ensemble of {len(used)}"

    @property
    def predicted(self) -> np.ndarray:
        """What is used says of the validation samples."""
        return weighted_mean([each.predicted for each, _ in self.used], [weight for _, weight in self.used])

    def outputs(self, inputs: np.ndarray, asked: Asked) -> np.ndarray:
        """Return what is used says of encoded samples, as (samples, outputs).

        Args:
            inputs: Encoded samples.
            asked: Whether outputs are probabilities of classes, or standardised numbers.
        """
        from workbench.training.inference import outputs_of

        said = [outputs_of(each.model, inputs, classes=asked == "classification") for each, _ in self.used]
        return weighted_mean(said, [weight for _, weight in self.used])


def choose(run: Run, learning: LearningData, asked: Asked) -> Chosen:
    """Choose among the trials of a run by what they say of the validation samples.

    Args:
        run: A run that has ended.
        learning: What it learnt from.
        asked: What is predicted.

    Raises:
        RunError: If no trial is complete.
    """
    ranked = [trial for trial in run.history.ranked() if _has_weights(trial)][:NUM_ENSEMBLED]
    if not ranked:
        failed = run.history.in_state("failed")
        raise RunError(
            f"no model of run {run.run_id} was trained to its end"
            + (f"; the last failed: {failed[-1].message}" if failed else ""),
            next_step=f"Give it more time: workbench extend {run.run_id} --time 5m",
        )
    found = sorted(
        (_load(run, trial, learning, asked) for trial in ranked), key=lambda each: (each.loss, each.trial)
    )
    weights = select([each.predicted for each in found], learning.validation_targets, asked)
    return Chosen(tuple(found), tuple(float(weight) for weight in weights))


def _has_weights(trial: Trial) -> bool:
    return trial.best_checkpoint is not None and trial.checkpoints_deleted is None


def _load(run: Run, trial: Trial, learning: LearningData, asked: Asked) -> Candidate:
    from workbench.training.inference import load_model, outputs_of

    assert trial.best_checkpoint is not None
    artifacts = run.store.artifacts_of(run.run_id)
    name = artifacts.name_of(trial.best_checkpoint)
    if name is None:  # the artifacts of the run were elsewhere then
        folder, _, name = trial.best_checkpoint.rpartition("/")
        artifacts = Artifacts.at(folder)
    with artifacts.as_file(name) as path:
        model = load_model(
            run.experiment, trial.params, path,
            input_shape=learning.input_shape, num_outputs=learning.num_outputs,
        )  # fmt: skip
    predicted = outputs_of(model, learning.validation_inputs, classes=asked == "classification")
    loss = loss_of(predicted, learning.validation_targets, asked)
    family = str(trial.params["family"])
    return Candidate(trial.number, family, dict(trial.params), model, predicted, loss)


def describe(params: dict[str, object], family: str) -> str:
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
