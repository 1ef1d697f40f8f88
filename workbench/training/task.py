"""The order that one worker receives: which trial of which experiment, with which configuration."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from workbench.artifacts import Artifacts
from workbench.experiment import Experiment

LAST = "last.pt"
BEST = "best.pt"


@dataclass(frozen=True)
class PlanProbe:
    """Instead of a training: a few steps of each of several plans, measured.

    Attributes:
        plans: What of the plan differs, one mapping a plan: micro_batch, accumulation, precision, strategy,
            recompute. The number of workers is that of the gang. Plans that differ in size are best given in
            order of it: what fits at two sizes says whether a third one needs to be tried.
        warmup_steps: Steps before the first that is timed.
        num_steps: Steps that are timed, at most.
        longest_s: Seconds that the timed steps of one plan may take, and half as many those before; at least
            three are timed.
        limit_bytes: What one worker may hold on its device; None for what the device has.
        setting: What the measurements are stored under.
        measures_power: Whether to tell what the devices use; steps then go on until their counters can.
    """

    plans: tuple[Mapping[str, JsonValue], ...]
    warmup_steps: int = 5
    num_steps: int = 20
    longest_s: float = 5.0
    limit_bytes: int | None = None
    setting: str = ""
    measures_power: bool = False


@dataclass(frozen=True)
class RateTest:
    """Instead of a training: learning rates that rise from step to step, and what the loss does.

    Attributes:
        lowest: The first rate, > 0.
        highest: The last, > `lowest`.
        num_steps: Steps from one to the other.
        num_seeds: How often, each from the same weights with other batches.
        setting: What the result is stored under.
    """

    lowest: float = 1e-5
    highest: float = 10.0
    num_steps: int = 80
    num_seeds: int = 3
    setting: str = ""


@dataclass(frozen=True)
class TrialTask:
    """One attempt at a trial, as one worker is told of it; plain values, so that it travels.

    Attributes:
        run_id: The run that the trial belongs to.
        trial: Number of the trial.
        attempt: Which attempt, from 0.
        experiment_json: The experiment as JSON.
        objects: Path or URL of the folder with the bytes of embedded Python objects, each named by its
            SHA-256.
        params: The configuration: values of the searched parameters.
        seed: Seed of everything random in the training.
        folder: Path or URL of this trial's folder; checkpoints lie in `checkpoints` below it. A URL may hold
            keys, so it is not for showing.
        resume: Whether to go on from the last checkpoint in the folder, if there is one.
        rank: Which worker of the trial this is.
        num_workers: Number of workers of the trial.
        plan: What of the plan is decided for this attempt, over what the experiment and the configuration
            say: workers, micro_batch, accumulation.
        meeting: Where the workers meet, `host:port/prefix`; None for one worker.
        reported: What earlier attempts reported last, by metric.
        instead: What is measured instead of training; None for a training.
        patterns: Regular expressions that somebody looks for in what the workers print.
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
    plan: Mapping[str, JsonValue] = field(default_factory=dict)
    meeting: str | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    instead: PlanProbe | RateTest | None = None
    patterns: tuple[str, ...] = ()

    @property
    def experiment(self) -> Experiment:
        """The experiment, with the bytes of its embedded objects.

        Raises:
            ExperimentError: If the JSON is no experiment.
            RunError: If bytes are not those that the experiment names.
            ArtifactsError: If bytes cannot be read.
        """
        return _read_experiment(self.experiment_json, self.objects)

    @property
    def artifacts(self) -> Artifacts:
        """The folder of this trial."""
        return Artifacts.at(self.folder)

    @property
    def checkpoints(self) -> Artifacts:
        """The folder of this trial's checkpoints."""
        return self.artifacts.below("checkpoints")

    @property
    def last_checkpoint(self) -> str | None:
        """The checkpoint that a resumed training goes on from, as it is shown; None where there is none."""
        folder = self.checkpoints
        return f"{folder}/{LAST}" if folder.exists(LAST) else None


@functools.lru_cache(maxsize=8)
def _read_experiment(text: str, objects: str | None) -> Experiment:
    experiment = Experiment.model_validate_json(text)
    if objects is None:
        return experiment
    folder = Artifacts.at(objects)
    return experiment.with_payloads({name: folder.read(name) for name in experiment.payload_hashes()})
