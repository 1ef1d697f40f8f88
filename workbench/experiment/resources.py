"""The section of an experiment that states how much hardware its run may use, and for how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from workbench.experiment.sections import (
    Auto,
    ExactInt,
    OptionalBytes,
    OptionalSeconds,
    PositiveInt,
    Section,
    in_unit,
)
from workbench.formatting import parse_bytes, parse_duration_s


class Resources(Section):
    """How much hardware the run may use."""

    concurrency: PositiveInt | Auto = Field(
        default="auto", description="Trials that run at once; auto fills the hardware."
    )
    autoscaling: bool = Field(
        default=False,
        description="Let the cluster start machines on demand: trials wait for workers that do not fit "
        "yet. Requires a number for concurrency; plans are not measured first.",
    )
    cpus_per_worker: PositiveInt = Field(
        default=1, title="CPU cores per worker", description="CPU cores, and torch threads, of one worker."
    )
    gpus_per_worker: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto",
        title="GPUs per worker",
        description="GPUs of one worker; auto: 1 where there are any.",
    )
    placement: Literal["auto", "pack", "spread"] = Field(
        default="auto",
        description="Place the workers of a trial on few nodes (pack) or many (spread); auto: few, unless an "
        "advice measured that many are faster.",
    )
    priority: ExactInt = Field(
        default=0,
        description="Runs with a higher priority get workers first; among equals, those with fewest.",
    )
    max_retries: ExactInt = Field(
        default=2, ge=0, description="How often a trial is retried after its worker was lost."
    )
    keep_best: PositiveInt | Literal["all"] = Field(
        default=10,
        description="Number of finished trials whose checkpoints are kept: the best, or all.",
    )
    max_checkpoints_size: OptionalBytes = Field(
        default=None,
        description="Limit on all checkpoints of a run, such as 10GB; the worst trials lose theirs.",
    )
    trial_time: OptionalSeconds = Field(
        default=None, description="Time limit of a trial; a longer one fails with reason timeout."
    )
    stop_grace: Annotated[PositiveFloat, BeforeValidator(parse_duration_s), in_unit("s")] = Field(
        default=10.0,
        description="Time between the request to end a command (SIGTERM) and its end (SIGKILL).",
    )
    max_log_size: Annotated[PositiveInt, BeforeValidator(parse_bytes), in_unit("bytes")] = Field(
        default=100_000_000,
        description="How much of what a command prints is kept with each attempt, such as 100MB.",
    )
    advice: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Measure plans before the first trial, to decide what `plan` leaves auto; auto: if "
        "budget.time is 10 minutes or more.",
    )
    worker: Literal["warm", "fresh"] = Field(
        default="warm",
        description="Processes that train: warm ones serve one trial after another, and their state is "
        "restored in between; fresh starts a new one for each trial, which takes seconds.",
    )
    elastic: bool = Field(
        default=False,
        description="Let trials grow onto idle workers at a checkpoint, if speeds measured so far predict "
        "a benefit; global batch and learning rate stay the same.",
    )
