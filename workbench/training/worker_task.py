"""The task of one worker: which trial of which experiment, with which configuration."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import Clone, Segment

if TYPE_CHECKING:
    from workbench.training.probes.measurements import Measurement

LAST = "last.pt"
BEST = "best.pt"


@dataclass(frozen=True)
class Turn:
    """The part of a training after which the other trials have their turn.

    Attributes:
        number: Number of the turn, from 1.
        num_turns: Turns of the training.
        end: The epoch, or the step of a function or a program, at which it ends. None for the last
            turn, which ends with the training.
        first_step: The first step that the trial ever reported, or None before its first report.
        known_step: The last step that the run knows.
    """

    number: int
    num_turns: int
    end: int | None
    first_step: int | None = None
    known_step: int = 0

    def is_over(self, progress: float) -> bool:
        """Return whether a training has reached the end of the turn."""
        return self.end is not None and progress >= self.end

    def check_continues(self, step: int) -> None:
        """Check the first step that an attempt reports.

        Args:
            step: The step.

        Raises:
            ExperimentError: If the training has started again from its beginning. Its turns would
                never lead to an end.
        """
        if self.number == 1 or self.first_step is None or step > self.first_step:
            return
        raise ExperimentError(
            f"turn {self.number} starts at step {step} again, although the trial has reached step"
            f" {self.known_step}",
            field="early_stop.turns",
            next_step=(
                "Save a checkpoint in the trial's folder before each report, load it at the start,"
                " and report the step. Or remove turns."
            ),
        )


@dataclass(frozen=True)
class TrialTask:
    """One attempt at a trial for one worker, in plain values that can be sent.

    Attributes:
        run_id: The run that the trial belongs to.
        trial: Number of the trial.
        attempt: Number of the attempt, from 0.
        experiment_json: The experiment as JSON.
        objects: Path or URL of the folder with the bytes of embedded Python objects. The name of
            each file is its SHA-256.
        params: The configuration: values of the searched parameters.
        seed: Seed of everything random in the training.
        folder: Path or URL of this trial's folder, with checkpoints in `checkpoints` below it. A
            URL may contain keys, so it must not be shown.
        resume: Whether to continue from the last checkpoint in the folder, if there is one.
        rank: Rank of this worker in the trial.
        num_workers: Number of workers of the trial.
        plan: Decisions about the plan for this attempt. They take precedence over the experiment
            and the configuration.
        meeting: The address where the workers meet, `host:port/prefix`, or None for one worker.
        reported: The last values that earlier attempts reported, by metric.
        reported_step: The last step that earlier attempts reported.
        measurement: A measurement to make instead of training, or None for a training.
        patterns: Regular expressions to find in the output of the workers.
        segment: The part of a training in a population, or None for a whole training.
        continued: Path or URL of the folder of another trial. This trial continues from its
            checkpoint, unless it has its own. None for a training from its start. A URL may contain
            keys.
        turn: The turn to train, or None for a training without turns.
        clone: The trial from which this one was cloned, if it continues from a checkpoint of it.
        branches: The steps at which to keep a checkpoint for clones of this trial.
        kept_epochs: The epochs after which to keep the checkpoints for trials that only decay
            otherwise.
        trunk_of: The trial whose checkpoints are in `continued`, if it has trained the same so far.
    """

    run_id: str
    trial: int
    attempt: int
    experiment_json: str
    objects: str | None = None
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    seed: int = 0
    folder: str = "."
    resume: bool = False
    rank: int = 0
    num_workers: int = 1
    plan: PartialPlan = field(default_factory=PartialPlan)
    meeting: str | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    reported_step: int = 0
    measurement: Measurement | None = None
    patterns: tuple[str, ...] = ()
    segment: Segment | None = None
    continued: str | None = None
    turn: Turn | None = None
    clone: Clone | None = None
    branches: tuple[int, ...] = ()
    kept_epochs: tuple[int, ...] = ()
    trunk_of: int | None = None

    @property
    def experiment(self) -> Experiment:
        """The experiment, with the bytes of its embedded objects.

        Raises:
            ExperimentError: If the JSON is not an experiment.
            RunError: If bytes do not match the hash in the experiment.
            ArtifactsError: If bytes cannot be read.
        """
        return _read_experiment(self.experiment_json, self.objects)

    @property
    def artifacts(self) -> Artifacts:
        """The folder of this trial."""
        return open_artifacts(self.folder)

    @property
    def checkpoints(self) -> Artifacts:
        """The folder of this trial's checkpoints."""
        return self.artifacts.below("checkpoints")

    @property
    def continued_checkpoints(self) -> Artifacts | None:
        """The checkpoints of the trial whose training this one continues."""
        if self.continued is None:
            return None
        return open_artifacts(self.continued).below("checkpoints")

    @property
    def last_checkpoint(self) -> str | None:
        """The path of the checkpoint that a resumed training continues from, for messages.

        None if there is no checkpoint.
        """
        folders = [self.checkpoints]
        if self.continued_checkpoints:
            folders.append(self.continued_checkpoints)
        return next((f"{folder}/{LAST}" for folder in folders if folder.exists(LAST)), None)

    def nothing_to_continue(self) -> RunError:
        """Return the error for a training whose earlier part has not saved a checkpoint."""
        before = None if self.segment is None else self.segment.continues
        if self.clone is not None:
            before = self.clone.of
        return RunError(
            f"trial {before}, which this one continues, has not saved a checkpoint",
            next_step="Save a checkpoint before each report of an objective.",
        )

    def nothing_left(self) -> ExperimentError:
        """Return the error for a clone that ends without training anything."""
        assert self.clone is not None
        return ExperimentError(
            f"the training was over at the checkpoint of trial {self.clone.of} that the clone"
            " received, so nothing was left to train",
            next_step="Clone a trial that is still training, or clone it from its start.",
        )

    def check_inherits(self, step: int) -> None:
        """Check the first step that a clone reports.

        Args:
            step: The step.

        Raises:
            ExperimentError: If the training has started again from its beginning. Its curve would
                look as if it had the weights of its parent.
        """
        clone = self.clone
        if clone is None or clone.first_step is None or step > clone.first_step:
            return
        raise ExperimentError(
            f"the clone starts at step {step} again, although trial {clone.of}, whose checkpoint it"
            f" received, had reached step {clone.step}",
            field="train" if self.experiment.command is None else "command",
            next_step=(
                "Load the checkpoint in the trial's folder at the start, and report the step. Or"
                " clone the trial from its start."
            ),
        )


@functools.lru_cache(maxsize=8)
def _read_experiment(text: str, objects: str | None) -> Experiment:
    experiment = Experiment.model_validate_json(text)
    if objects is None:
        return experiment
    folder = open_artifacts(objects)
    return experiment.with_payloads(
        {name: folder.read(name) for name in experiment.payload_hashes()}
    )
