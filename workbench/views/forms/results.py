"""The results of the queries of a form, by topic.

`answers` computes them. The TypeScript types of the form are also generated from this file.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from workbench.advisor.advice_card import AdviceCard
from workbench.foundation.errors import Problem
from workbench.views.forms.protocol import FormField, Mapping, Response


class Layer(Response):
    """One layer of a model."""

    name: str
    kind: str
    depth: int
    output_shape: tuple[int | str, ...] | None
    num_parameters: int = Field(description="Including the parameters of nested layers.")
    shares: str = Field(
        default="", description="The layer whose parameters it uses, or empty if it has its own."
    )


class WorkerMemory(Response):
    """The memory of a worker at the peak of a step."""

    micro_batch: int
    bytes: float
    parts: dict[str, float]
    fits: bool | None = None
    largest_micro_batch: int | None = Field(
        default=None, description="The largest micro batch that fits."
    )
    words: str | None = None


class ModelPreview(Response):
    """The layers, size and memory of a model."""

    layers: tuple[Layer, ...]
    num_parameters: int
    flops_per_sample: float | None
    memory: WorkerMemory | None
    problems: tuple[Problem, ...]
    words: str | None = Field(
        default=None,
        description="A description of a model without layers, or why the memory is unknown.",
    )


class ImageSample(Response):
    """A sample that is an image."""

    kind: Literal["image"]
    png: str = Field(description="As a data URL.")
    target: JsonValue


class RowSample(Response):
    """A sample that is a row of a table."""

    kind: Literal["row"]
    cells: Mapping
    target: JsonValue


class TextSample(Response):
    """A sample that is a text."""

    kind: Literal["text"]
    text: str
    target: JsonValue


class SplitSizes(Response):
    """Number of samples by split."""

    train: int
    validation: int | None
    test: int | None


class Histogram(Response):
    """Counts by bin. There is one more edge than bins."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class DataSummary(Response):
    """Size, classes, samples and loading speed of a data set."""

    name: str
    task: str
    sizes: SplitSizes
    input_shape: tuple[int, ...] | None
    class_names: tuple[str, ...] | None
    class_counts: tuple[int, ...] | None
    num_counted: int | None = Field(
        default=None, description="Number of training samples examined."
    )
    target_histogram: Histogram | None = Field(default=None, description="For regression.")
    samples: tuple[ImageSample | RowSample | TextSample, ...]
    load_samples_per_s: float | None
    needed_samples_per_s: float | None
    contents: tuple[str, ...] = Field(
        default=(), description="What a table consists of, in sentences."
    )
    warnings: tuple[str, ...]


class SampledParameter(Response):
    """How often each value of a parameter would be sampled."""

    name: str
    kind: Literal["range", "choices"]
    edges: tuple[float, ...] | None = None
    choices: tuple[JsonValue, ...] | None = None
    counts: tuple[int, ...]
    shares: tuple[float, ...] | None = Field(
        default=None, description="How probable each choice is, if that is known exactly."
    )
    exists_share: float = Field(description="Share of configurations that have it, from 0 to 1.")


class SampledSpace(Response):
    """A search space, sampled at random."""

    num_samples: int
    parameters: tuple[SampledParameter, ...]


class Figure(Response):
    """A figure of plotly."""

    data: list[Any]
    layout: dict[str, Any]


class NamedFigure(Response):
    """A figure with its title."""

    name: str
    title: str
    figure: Figure


class AdvisedSetting(Response):
    """One setting that the advice would change."""

    path: str
    label: str
    now: JsonValue
    value: JsonValue
    reason: str | None = None
    removals: tuple[str, ...] = Field(
        default=(), description="Searched parameters that it replaces."
    )


class AdviceSummary(Response):
    """Advice with its figures, and what can be applied and predicted with it."""

    card: AdviceCard | None = Field(description="The advice, if there is one.")
    figures: tuple[NamedFigure, ...]
    apply: tuple[AdvisedSetting, ...]
    controls: tuple[FormField, ...] = Field(description="Arguments of what-if queries.")


class Prediction(Response):
    """A predicted number with its interval, or why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    message: str | None = None


class WhatIfResult(Response):
    """What another plan would achieve."""

    samples_per_s: Prediction
    step_time_s: Prediction
    memory_bytes: Prediction
    time_to_target_s: Prediction
    fits: bool | None
    message: str | None = None
    messages: tuple[str, ...] = Field(
        default=(), description="What is not known, one sentence each."
    )


class PreflightReport(Response):
    """What is known before a run starts."""

    lines: tuple[str, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...]
    forecast: tuple[str, ...]
    duration: str = Field(default="", description="How long the run takes, in a few words.")


class StartedRun(Response):
    """A run that was started."""

    run_id: str = Field(
        description="Empty if the run is kept in a store that this kernel cannot read."
    )
    snapshot: str = Field(
        default="", description="Escaped HTML to show if live updates are unavailable."
    )
    message: str = Field(default="", description="How to follow a run that is kept elsewhere.")


class ResultRow(Response):
    """One trial of the leaderboard."""

    trial: int
    state: str
    values: dict[str, float | str]
    params: Mapping
    duration_s: float | None = None


class Snippet(Response):
    """A command and the equivalent Python."""

    command: str
    python: str


class LabelledSnippet(Snippet):
    """A command and the equivalent Python, with a label."""

    label: str


class DefaultComparison(Response):
    """The default configuration compared with the best one."""

    words: str
    default: ResultRow | None
    enqueue: Mapping | None = Field(
        description="The configuration to try, or None if it was tried."
    )
    try_it: Snippet | None = None


class RunResult(Response):
    """The result of a run so far."""

    run_id: str
    state: str
    counts: str = Field(description="Number of trials by state, as text.")
    metric: str
    best: ResultRow | None
    default_comparison: DefaultComparison | None
    certainty: tuple[str, ...] = Field(
        default=(),
        description="On how many samples its score rests and how sure it is, in sentences.",
    )
    leaderboard: tuple[ResultRow, ...]
    commands: tuple[LabelledSnippet, ...]


class Confirmation(Response):
    """What was done."""

    message: str


class Results(Response):
    """The type of the result of each query, by topic."""

    model: ModelPreview
    data: DataSummary
    samples: SampledSpace
    advice: AdviceSummary
    what_if: WhatIfResult
    stop_advice: Confirmation
    preflight: PreflightReport
    start: StartedRun
    result: RunResult
    export: Confirmation
    extend: Confirmation
    enqueue: Confirmation
    file: Confirmation
