"""The messages between a front end and the server: subscriptions one way, updates the other.

A front end sends a *subscription*: what it shows now. The server answers with an *update*, and
sends another whenever something in it changes. An update contains only the parts that changed since
the last one, and its size is bounded regardless of the number of trials: the server selects, sorts
and thins, the browser draws. Subscriptions are validated here, so that nothing unchecked from a
browser reaches the packages below. The TypeScript types are generated from this file. Building
updates is left to `updates`, encoding to `frames`, actions to `action_messages`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.advisor.advice_card import AdviceCard
from workbench.experiment.changes import Setting
from workbench.experiment.goals import Goal
from workbench.foundation.errors import Problem
from workbench.foundation.events import RunState, TrialState
from workbench.runs.comparison import Part
from workbench.runs.plots.prepare_comparison import ComparisonAxis
from workbench.store.database.labels import MAX_TAGS, Archive
from workbench.store.history.trial_columns import Format, Kind
from workbench.views.live_feed.action_messages import Json, Name, Offer
from workbench.views.live_feed.chosen_model import Candidates, ChosenModel
from workbench.views.live_feed.machine_history import MachinesHistory
from workbench.views.live_feed.machines import MachinesStatus
from workbench.views.live_feed.trial_log import TrialLog, TrialLogQuery

MAX_WINDOW = 200
MAX_COMPARED = 12
MAX_CHOSEN = 40
MAX_FURTHER = 5
MAX_PARAMS = 20

TrialNumber = Annotated[int, Field(ge=0)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True)


class Best(_Response):
    """The best trial of a run so far, with means where its configuration is repeated."""

    trial: int
    values: dict[str, float | str] = Field(description="NaN and infinities are strings.")
    params: dict[str, Any]
    num_repeats: int = Field(default=1, description="Over how many trials the values are means.")
    certainty: tuple[str, ...] = Field(
        default=(),
        description="On how many samples the value rests and how sure it is, in sentences.",
    )


class Summary(_Response):
    """A run that has ended, in three to five sentences."""

    sentences: tuple[str, ...]
    next_lead: str | None = Field(default=None, description="What to do next, such as: extend it.")
    next_kind: str | None = Field(default=None, description="The action that does it.")
    next_trial: int | None = Field(default=None, description="Or the trial to look at.")
    confirm: Offer | None = Field(
        default=None, description="Trains the best again, if its lead may be luck."
    )


class Chosen(_Response):
    """The trial that a user chose by hand."""

    trial: int
    words: str = Field(description="Its objectives with the best values.")


class CodeDecision(_Response):
    """The decision about a version of the code, and what a person made of it."""

    version: str
    baseline: str
    decision: Literal["better", "not better", "more"] | None
    words: str = Field(description="The decision in words, or why there is none.")
    effect: float | None = Field(description="Positive if the version is better.")
    low: float | None
    high: float | None
    verdict: Literal["accepted", "reverted"] | None
    by: str | None = Field(description="The person who accepted or reverted it.")


class Failure(_Response):
    """Trials that failed with one message."""

    reason: str
    message: str
    place: str | None = Field(default=None, description="The line of the user's code.")
    num_trials: int
    trials: tuple[int, ...] = Field(description="The first of them.")


class EndedAttempt(_Response):
    """An attempt of a trial that ended early."""

    attempt: int
    reason: str
    message: str
    next_plan: dict[str, Any]


class Extreme(_Response):
    """The best value of one of several objectives."""

    metric: str
    value: float
    trial: int


class Front(_Response):
    """The trials that no other beats in every objective."""

    num_trials: int
    extremes: tuple[Extreme, ...]


class ObjectiveSummary(_Response):
    """What a run optimises."""

    metric: str
    goal: Literal["maximize", "minimize"]
    target: float | None


RunOrder = Literal["newest", "result", "time", "cost"]


class RunsQuery(_Request):
    """The list of runs."""

    text: Name = Field(
        default="", description="Only runs whose id, name, owner, tags or notes contain it."
    )
    states: tuple[RunState, ...] = Field(
        default=(), description="Only runs in these states. If empty, all."
    )
    tags: tuple[Name, ...] = Field(
        default=(), max_length=MAX_TAGS, description="Only runs with all of these."
    )
    archive: Archive = Field(default="without", description="What happens to archived runs.")
    pinned: bool = Field(default=False, description="Only pinned runs.")
    sort: RunOrder = Field(
        default="newest",
        description="What comes first below the pinned runs. Results are compared by metric.",
    )
    is_table: bool = Field(
        default=False, description="Whether parameters and groups are shown as well."
    )
    params: tuple[Name, ...] = Field(
        default=(),
        max_length=MAX_PARAMS,
        description="Parameters of the best trial of each run that a column shows.",
    )
    group: Name = Field(
        default="",
        description="What groups the runs: name, tag or a parameter such as params.lr. Or empty.",
    )
    member: Name | None = Field(default=None, description="Only the runs of this group.")
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=50, ge=1, le=MAX_WINDOW)


class ChartQuery(_Request):
    """The curves of one run."""

    metric: Name = Field(
        default="", description="A metric or samples_per_s. If empty, the first objective."
    )
    axis: Literal["", "step", "epoch", "time"] = Field(
        default="", description="If empty, the axis that fits the data."
    )
    shown: Literal["best", "chosen", "all"] = Field(
        default="best",
        description="The best trials with a quantile band, only the selected trials, or all.",
    )
    chosen: tuple[TrialNumber, ...] = Field(
        default=(), max_length=MAX_CHOSEN, description="Selected trials, which are always drawn."
    )
    further: tuple[Name, ...] = Field(
        default=(),
        max_length=MAX_FURTHER,
        description="More metrics, each in a separate chart.",
    )
    text: Name = Field(
        default="", description="Only trials that match this filter, which the table shares."
    )


class TableQuery(_Request):
    """A window of the table of trials."""

    sort: Name = Field(default="number", description="A column's key, or rank for the best first.")
    descending: bool = False
    text: Name = Field(
        default="",
        description=(
            "Words that number, state, reason or values contain, and comparisons such as lr < 0.01."
        ),
    )
    columns: tuple[Name, ...] = Field(
        default=(),
        max_length=MAX_WINDOW,
        description="Keys of the columns of a download. If empty, all.",
    )
    states: tuple[TrialState, ...] = ()
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=40, ge=1, le=MAX_WINDOW)


class ComparisonQuery(_Request):
    """The runs that are compared, and by what."""

    runs: tuple[Name, ...] = Field(max_length=MAX_COMPARED, description="Run IDs.")
    metric: Name = Field(default="", description="If empty, the first objective of each run.")
    axis: ComparisonAxis = "time"


class AnalysisQuery(_Request):
    """The analysis of one run."""

    text: Name = Field(
        default="", description="Importance is computed from the trials that match this filter."
    )
    attempt: int = Field(
        default=0, ge=0, description="Increases when a user asks to compute importance again."
    )


class Subscription(_Request):
    """Everything that a front end shows at the moment. Nothing else is sent to it."""

    runs: RunsQuery | None = None
    run: Name | None = Field(default=None, description="A run ID, or last.")
    chart: ChartQuery | None = None
    table: TableQuery | None = None
    analysis: AnalysisQuery | None = None
    importance: bool = Field(
        default=False, description="The importance of parameters, without the rest of the analysis."
    )
    trial: TrialNumber | None = Field(default=None, description="The trial shown in detail.")
    trial_log: TrialLogQuery | None = Field(default=None, description="The log of that trial.")
    log_after: int | None = Field(default=None, ge=0, description="Log lines after this event.")
    compared: ComparisonQuery | None = None
    resources: bool = Field(
        default=False, description="The machines of the run, now and over time."
    )


class SubscribeMessage(_Request):
    """Replaces the subscription of the front end."""

    type: Literal["subscribe"]
    number: int = Field(ge=0, description="Increases with each message. Updates repeat it.")
    subscription: Subscription


class AcknowledgeMessage(_Request):
    """The front end has drawn a frame and is ready for the next."""

    type: Literal["acknowledge"]
    frame: int = Field(ge=0)


class Column(_Response):
    """The position of a column of numbers in a frame."""

    offset: int = Field(description="In bytes from the start of the numbers, a multiple of 8.")
    count: int
    type: Literal["f32", "f64"]


class RunItem(_Response):
    """A run in the list of runs."""

    run_id: str
    name: str
    state: RunState
    kind: Literal["sweep", "advice"]
    created_unix_s: float
    owner: str | None = Field(description="As 'PID on HOST'.")
    progress: float | None = Field(description="From 0 to 1, or None if unknown.")
    best: str | None = Field(
        description="First objective of the best trial, or the size of the front."
    )
    num_trials: int | None = Field(description="None until the events of the run are read.")
    num_candidates: int | None = Field(
        default=None, description="Only for an AutoML run, whose trials are folds of candidates."
    )
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    has_notes: bool = False
    spark: tuple[float, ...] = Field(
        default=(),
        description="The best value so far, in the order in which trials ended. Thinned.",
    )
    goal: Goal = "maximize"
    metric: str = Field(default="", description="The metric of its value.")
    value: float | None = Field(default=None, description="The value of its best trial.")
    elapsed_s: float | None = Field(default=None, description="How long it was active.")
    cost: float | None = Field(default=None, description="In the currency of its price, if any.")
    cost_text: str | None = Field(default=None, description="The cost with its currency.")
    version: int | None = Field(
        default=None, description="The id of its experiment, if several have its name."
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="Values of its best trial, of the parameters asked for."
    )


class RunGroup(_Response):
    """Runs that have something in common, and the best of them."""

    member: str = Field(description="What they have in common. Empty if nothing.")
    num_runs: int
    best: RunItem | None = Field(
        description="The best by the metric that most of them have, or None without a result."
    )


class RunList(_Response):
    """A window of the list of runs: pinned ones first."""

    items: tuple[RunItem, ...]
    offset: int = 0
    total: int = Field(description="Number of matching runs, including those not listed.")
    tags: tuple[str, ...] = Field(
        default=(), description="The tags in use, the most frequent first."
    )
    num_pinned: int = Field(default=0, description="Archived runs count where they are listed.")
    num_archived: int = 0
    params: tuple[str, ...] = Field(
        default=(), description="What a column can show, the most frequent first. For a table."
    )
    groups: tuple[RunGroup, ...] = Field(
        default=(), description="The largest first. For a table with groups."
    )


class RunDetail(_Response):
    """The state and progress of a run."""

    run_id: str
    name: str
    kind: Literal["sweep", "advice"]
    state: RunState
    reason: str | None
    message: str | None
    created_unix_s: float
    ended_unix_s: float | None
    elapsed_s: float
    left_s: float | None
    left_low_s: float | None = Field(description="The interval in which it should lie.")
    left_high_s: float | None
    progress: float | None
    owner: str | None
    counts: dict[str, int] = Field(description="Number of trials by state.")
    num_configurations: int = Field(description="With repeats, less than the number of trials.")
    chosen: ChosenModel | None = Field(description="The result of an automatic run.")
    candidates: Candidates | None = Field(
        default=None, description="The leaderboard of an automatic run that is under way."
    )
    best: Best | None = Field(description="None without one, or with several objectives.")
    front: Front | None = Field(description="None with one objective.")
    no_best: str | None = Field(
        default=None, description="Why there is no best trial, as a sentence."
    )
    summary: Summary | None = None
    chosen_by_hand: Chosen | None = None
    decisions: tuple[CodeDecision, ...] = Field(
        default=(), description="Of versions of the code, once the run has ended."
    )
    failures: tuple[Failure, ...] = Field(description="The most frequent first.")
    verdicts: tuple[str, ...] = Field(
        default=(), description="Activities that took much of its time, and how to reduce them."
    )
    objectives: tuple[ObjectiveSummary, ...]
    metrics: tuple[str, ...] = Field(description="Reported metrics, objectives first.")
    params: tuple[str, ...] = Field(description="Names of the searched parameters.")
    axes: tuple[Literal["step", "epoch", "time"], ...] = Field(
        default=("step", "epoch", "time"), description="What curves can be drawn over."
    )
    has_throughput: bool = Field(
        default=True, description="Whether a trial reports samples per second, or may still do so."
    )
    settings: dict[Setting, Any] = Field(
        description="Current values of the settings that can be changed."
    )
    experiment_hash: str
    tags: tuple[str, ...] = ()
    notes: str = ""
    pinned: bool = False
    archived: bool = False
    figures: tuple[str, ...] = Field(description="Available analysis figures.")
    card: AdviceCard | None = Field(description="The advice.")
    latest: str | None = Field(
        default=None, description="The last line of its log before a trial or advice."
    )
    loading: float | None = Field(description="Share of its events read so far, None once all are.")
    reading: str | None = Field(
        default=None,
        description="The same in words. Counts, progress and best are of the events read so far.",
    )
    offers: tuple[Offer, ...]


class CurveUpdate(_Response):
    """New points of one curve: truncate it at `start`, then append these."""

    trial: int
    start: int
    x: Column
    y: Column


class QuantileBand(_Response):
    """Quantiles of a metric over all trials."""

    x: Column
    low: Column
    middle: Column
    high: Column
    num_trials: int


class BestSoFar(_Response):
    """The best value so far, as a step function."""

    x: Column
    y: Column


class Joint(_Response):
    """Where the curve of a trial continues that of another one."""

    trial: int
    x: float
    y: float


class ChartUpdate(_Response):
    """What changed in the chart."""

    metric: str
    axis: Literal["step", "epoch", "time"]
    x_title: str
    y_title: str
    goal: Goal | None = Field(
        description="None where nobody has declared which direction is better."
    )
    target: float | None
    shown: tuple[int, ...] = Field(description="Trials with a curve, in drawing order.")
    states: tuple[TrialState, ...] = Field(description="States of these trials, in the same order.")
    no_result: tuple[int, ...] = Field(
        default=(),
        description="Complete trials that break a constraint, or did not reach their target.",
    )
    num_workers: tuple[int | None, ...] = Field(
        default=(), description="Workers of these trials. Empty if all have equally many."
    )
    joints: tuple[Joint, ...] = ()
    path: tuple[int, ...] = Field(
        default=(), description="The trials that lead to the best one, if it continues others."
    )
    best_trial: int | None
    y_range: tuple[float, float] | None = Field(
        description="Set if outliers would squeeze the other values."
    )
    num_trials: int = Field(description="Trials with such a curve, drawn or not.")
    curves: tuple[CurveUpdate, ...]
    is_overview: bool = Field(
        description="Whether band and best replace the earlier ones, even if None."
    )
    band: QuantileBand | None
    best: BestSoFar | None


class ComparedRun(_Response):
    """The best value so far of a run in a comparison."""

    run_id: str
    label: str = Field(description="A name that no other compared run has.")
    metric: str
    goal: Goal | None = Field(
        description="None where nobody has declared which direction is better."
    )
    x: Column = Field(
        description="Seconds, epochs, numbers of trials, or seconds of all workers together."
    )
    y: Column


class ComparedFact(_Response):
    """One line of the table of a comparison."""

    part: Part
    name: str
    cells: tuple[str | None, ...] = Field(description="One per run.")
    differs: bool
    best: int | None = Field(description="Position of the best cell.")


class Comparison(_Response):
    """Several runs side by side."""

    axis: ComparisonAxis
    x_title: str
    runs: tuple[ComparedRun, ...]
    metrics: tuple[str, ...] = Field(description="Reported by any of the runs, objectives first.")
    facts: tuple[ComparedFact, ...]


class AnalysisAxis(_Response):
    """A parameter as an axis from 0 to 1."""

    name: str
    scale: Literal["linear", "log", "category"]
    ticks: tuple[tuple[float, str], ...] = Field(description="Positions with their labels.")
    low: float | None = Field(description="The number at 0, or None for categories.")
    high: float | None = Field(description="The number at 1.")
    is_whole: bool = Field(description="Whether its values are whole numbers.")
    is_conditional: bool = Field(description="Whether some configurations do not have it.")
    levels: tuple[tuple[float, str], ...] = Field(
        description="All values with their positions, if they are few enough for a colour each."
    )
    places: Column = Field(description="One per trial, or NaN if the parameter does not exist.")


class AnalysisLimit(_Response):
    """A limit on an objective."""

    side: Literal["at most", "at least"]
    value: float


class AnalysisObjective(_Response):
    """An objective of the trials of an analysis."""

    metric: str
    title: str
    goal: Goal
    limits: tuple[AnalysisLimit, ...]
    base: float | None = Field(
        description="The value of the model that a compression began with, or None."
    )
    values: Column = Field(description="One per trial, or NaN.")
    y_range: tuple[float, float] | None = Field(
        default=None, description="Set if outliers would squeeze the other values."
    )


class AnalysisGrid(_Response):
    """The first objective between the trials, over two parameters."""

    x: int = Field(description="Place of the horizontal parameter among the axes.")
    y: int
    size: int = Field(description="Number of rows, and of values per row. 0 for too few trials.")
    values: Column = Field(description="Row by row from the lowest y.")


class Analysis(_Response):
    """The trials of a run in columns, from which the figures of the analysis are drawn."""

    trials: Column
    standings: Column = Field(description="0: has a result, 1: complete without one, 2: pruned.")
    ranks: Column = Field(description="From 0, the best, to 1, the worst, or NaN.")
    shares: Column = Field(description="Share of results that are at most as large, or NaN.")
    best: Column = Field(description="The best value up to the trial, or NaN.")
    axes: tuple[AnalysisAxis, ...]
    objectives: tuple[AnalysisObjective, ...]
    grids: tuple[AnalysisGrid, ...]
    best_trial: int | None
    front: tuple[int, ...] = Field(description="Empty with one objective.")
    chosen: int | None
    num_left_out: int = Field(description="Trials without an entry.")


class ImportanceBar(_Response):
    """The share of one parameter in the variance of the objective."""

    name: str
    share: float
    low: float = Field(description="The ends of its 90 % interval.")
    high: float


class Importance(_Response):
    """How much each parameter decided, or how far that is computed."""

    state: Literal["ready", "computing", "failed"]
    words: str = Field(description="What it is computed from, or why there is none.")
    bars: tuple[ImportanceBar, ...] = Field(default=(), description="The largest first.")
    notes: tuple[str, ...] = Field(
        default=(), description="The parameters that the shares do not settle."
    )


class Matching(_Response):
    """The trials that match the filter."""

    text: str
    trials: tuple[int, ...] | None = Field(description="None without a filter: all do.")


class TableColumn(_Response):
    """A column of the table of trials."""

    key: str
    label: str
    kind: Kind
    meaning: str = Field(default="", description="The meaning of its values.")
    unit: str = Field(default="", description="Empty where they have none.")
    format: Format = Field(default="value", description="How its values are written.")
    goal: Goal | None = Field(
        default=None, description="Which direction is better, or None if nobody has declared it."
    )
    is_empty: bool = Field(default=False, description="Whether no trial has a value in it.")


class TrialRow(_Response):
    """A row of the table of trials."""

    number: int
    state: TrialState
    reason: str | None = Field(
        description="Also infeasible, of a complete trial that breaks a constraint."
    )
    is_best: bool
    is_chosen: bool = Field(default=False, description="By hand.")
    num_repeats: int = Field(
        default=1,
        description="Over how many trials of its configuration the values of the best are means.",
    )
    cells: tuple[float | int | bool | str | None, ...] = Field(description="One per column.")


class TrialTable(_Response):
    """A window of the table of trials."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TrialRow, ...]
    offset: int
    total: int = Field(description="Number of matching trials.")
    reading: str | None = Field(
        default=None, description="How many events of the run were read so far, None once all are."
    )
    best: TrialRow | None = Field(
        default=None, description="The best trial, also where it does not match."
    )


class CourseValue(_Response):
    """A value on the course of a trial, with the name that the table of trials gives it."""

    key: str = Field(description="The key of its column in the table of trials.")
    label: str
    meaning: str
    format: Format = Field(default="value", description="How it is written.")
    unit: str = ""
    value: float | int | bool | str


class TrialDetail(_Response):
    """One trial in full."""

    number: int
    state: TrialState
    reason: str | None = Field(
        description="Also infeasible, of a complete trial that breaks a constraint."
    )
    message: str | None
    traceback: str | None
    params: Json
    plan: str = Field(
        description="The formatted plan, such as 256 samples = 64 x 2 accumulated x 2 workers."
    )
    values: dict[str, float | str]
    source: str
    seed: int
    course: tuple[CourseValue, ...] = Field(
        description="How far it came, as in the table of trials, without missing values."
    )
    parts_s: dict[str, float] = Field(description="Seconds per step, by part.")
    setbacks: tuple[EndedAttempt, ...]
    resizes: tuple[str, ...]
    workers: tuple[str, ...] = Field(description="As 'GPU 0 of HOST' or '2 x CPU of HOST'.")
    processes: tuple[int, ...] = Field(
        description="The process IDs of the workers while they run, by rank."
    )
    attachments: tuple[AttachedFile, ...] = ()
    offers: tuple[Offer, ...]


class LogLine(_Response):
    """One line of the log."""

    seq: int
    time_unix_s: float
    run_time_s: float = Field(default=0.0, description="The same by the clock of the run.")
    level: Literal["info", "good", "warning", "error"]
    trial: int | None
    text: str
    alert: bool = Field(default=False, description="Whether an alert rule fired: notify once.")


class LogUpdate(_Response):
    """Log lines since the last update."""

    lines: tuple[LogLine, ...]
    skipped: int = Field(description="Number of older lines omitted. The REST API has all.")
    last_seq: int


class Update(_Response):
    """The parts of a subscription that changed. Missing parts are unchanged."""

    subscription: int = Field(description="Number of the subscription it answers.")
    frame: int
    seq: int = Field(default=0, description="The last event of the run that it includes.")
    problem: Problem | None = None
    runs: RunList | None = None
    run: RunDetail | None = None
    chart: ChartUpdate | None = None
    further: tuple[ChartUpdate, ...] | None = Field(
        default=None, description="What changed in the charts of further metrics."
    )
    table: TrialTable | None = None
    analysis: Analysis | None = None
    importance: Importance | None = None
    matching: Matching | None = None
    trial: TrialDetail | None = None
    trial_log: TrialLog | None = None
    log: LogUpdate | None = None
    compared: Comparison | None = None
    resources: MachinesStatus | None = None
    machines: MachinesHistory | None = None


class AttachedFile(BaseModel):
    """A picture, a table or a text that a trial reported."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Literal["image", "table", "text"]
    step: int
    file: str = Field(description="The name of its file.")
    size_bytes: int
