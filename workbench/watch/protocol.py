"""What a front end and the server say to each other: looks one way, pictures the other.

A front end says what it shows: a *look*. The server answers with a *picture* of it, and with another one
whenever something in it has changed. A picture holds only the parts that changed since the last one, and
is bounded however many trials there are: the server chooses, sorts and thins, the browser draws. Looks are
checked here, so that nothing a browser sends reaches the rooms below unchecked. The TypeScript types of the
front end are generated from this file. How pictures are made is left to `picture`, bytes to `frames`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.events import Reason, RunState, TrialState
from workbench.experiment.changing import Setting
from workbench.watch.machines import ResourcesPicture

MAX_WINDOW = 200
MAX_COMPARED = 12
MAX_CHOSEN = 40
MAX_TEXT = 200

Name = Annotated[str, Field(max_length=MAX_TEXT)]
TrialNumber = Annotated[int, Field(ge=0)]
Json = dict[str, Any]


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class RunsLook(_Asked):
    """The list of runs."""

    text: Name = Field(default="", description="Only runs whose id, name or owner contains it.")
    states: tuple[RunState, ...] = Field(default=(), description="Only runs in these states; none: all.")
    limit: int = Field(default=50, ge=1, le=MAX_WINDOW)


class ChartLook(_Asked):
    """Curves of one run, or of several beside each other."""

    metric: Name = Field(default="", description="A metric, or samples_per_s; empty: the first objective.")
    axis: Literal["", "step", "epoch", "time"] = Field(default="", description="Empty: what fits.")
    shown: Literal["best", "chosen", "all"] = Field(
        default="best", description="The best trials and a band of quantiles, only the chosen, or all."
    )
    chosen: tuple[TrialNumber, ...] = Field(
        default=(), max_length=MAX_CHOSEN, description="Trials that are drawn whatever happens."
    )


class TableLook(_Asked):
    """A window of the table of trials."""

    sort: Name = Field(default="number", description="A column's key.")
    descending: bool = False
    text: Name = Field(default="", description="Only trials with it in number, state, reason or values.")
    states: tuple[TrialState, ...] = ()
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=40, ge=1, le=MAX_WINDOW)


class Look(_Asked):
    """Everything that a front end shows at the moment; what it does not show is not sent."""

    runs: RunsLook | None = None
    run: Name | None = Field(default=None, description="A run id, or last.")
    chart: ChartLook | None = None
    table: TableLook | None = None
    trial: TrialNumber | None = Field(default=None, description="One trial in full.")
    log_after: int | None = Field(default=None, ge=0, description="What happened, after this event.")
    compared: tuple[Name, ...] = Field(default=(), max_length=MAX_COMPARED, description="Run ids.")
    resources: bool = False


class LookMessage(_Asked):
    """The front end shows something else from here on."""

    type: Literal["look"]
    number: int = Field(ge=0, description="Counted up by the front end; frames repeat it.")
    look: Look


class TakenMessage(_Asked):
    """The front end has drawn a frame and can take the next one."""

    type: Literal["taken"]
    frame: int = Field(ge=0)


class Column(_Told):
    """Where the numbers of a column lie in a frame."""

    offset: int = Field(description="In bytes from the beginning of the numbers, a multiple of 8.")
    count: int
    type: Literal["f32", "f64"]


class Best(_Told):
    """The best trial of a run so far."""

    trial: int
    values: dict[str, float | str] = Field(description="NaN and infinities are texts.")
    params: Json


class RunItem(_Told):
    """A run in the list of runs."""

    run_id: str
    name: str
    state: RunState
    kind: Literal["sweep", "advice"]
    created_unix_s: float
    owner: str | None = Field(description="process on machine")
    progress: float | None = Field(description="From 0 to 1; None where nobody can tell.")
    best: str | None = Field(description="The first objective of the best trial, written out.")
    num_trials: int


class RunsPicture(_Told):
    """The runs, newest first."""

    items: tuple[RunItem, ...]
    total: int = Field(description="Runs that the look asks for, shown or not.")


class ObjectivePicture(_Told):
    """What a run optimises."""

    metric: str
    goal: Literal["maximize", "minimize"]
    target: float | None


class Offer(_Told):
    """Something that can be done with a run or trial, and the command and the Python that do the same."""

    kind: Literal[
        "stop", "resume", "extend", "set", "enqueue", "stop_trial", "report", "save_report", "export",
        "replay", "attach",
    ]  # fmt: skip
    label: str
    command: str
    python: str
    dangerous: bool = Field(default=False, description="Ask before doing it.")


class RunPicture(_Told):
    """How a run stands."""

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
    progress: float | None
    owner: str | None
    counts: dict[str, int] = Field(description="Trials by state.")
    best: Best | None
    objectives: tuple[ObjectivePicture, ...]
    metrics: tuple[str, ...] = Field(description="What was reported, objectives first.")
    params: tuple[str, ...] = Field(description="What is searched.")
    settings: dict[Setting, Any] = Field(description="What is in force by now and can be changed.")
    experiment_hash: str
    figures: tuple[str, ...] = Field(description="Analysis figures that it can be drawn with.")
    card: tuple[str, ...] = Field(description="The advice in words, where there is one.")
    loading: float | None = Field(description="Part of its events that was read; None when all are.")
    offers: tuple[Offer, ...]


class CurvePicture(_Told):
    """New points of one curve: cut what is there at `start`, then append these."""

    trial: int
    start: int
    x: Column
    y: Column


class BandPicture(_Told):
    """Quantiles over all trials."""

    x: Column
    low: Column
    middle: Column
    high: Column
    num_trials: int


class StairPicture(_Told):
    """The best value so far: a stair."""

    x: Column
    y: Column


class ChartPicture(_Told):
    """What changed in the curves."""

    metric: str
    axis: Literal["step", "epoch", "time"]
    x_title: str
    y_title: str
    goal: Literal["maximize", "minimize"]
    target: float | None
    shown: tuple[int, ...] = Field(description="Trials with a curve, in the order of drawing.")
    states: tuple[TrialState, ...] = Field(description="Their states, in the same order.")
    best_trial: int | None
    y_range: tuple[float, float] | None = Field(description="Where some values would squeeze the others.")
    num_trials: int = Field(description="Trials that have such a curve, drawn or not.")
    curves: tuple[CurvePicture, ...]
    is_overview: bool = Field(description="Whether band and best are told anew, also where they are None.")
    band: BandPicture | None
    best: StairPicture | None


class ComparedPicture(_Told):
    """The best so far of a run that is compared with others."""

    run_id: str
    name: str
    metric: str
    x: Column = Field(description="Seconds since the run began.")
    y: Column


class TableColumn(_Told):
    """A column of the table of trials."""

    key: str
    label: str
    kind: Literal["number", "state", "param", "value", "course"]


class TrialRow(_Told):
    """A row of it."""

    number: int
    state: TrialState
    reason: Reason | None
    is_best: bool
    cells: tuple[float | int | bool | str | None, ...] = Field(description="By column.")


class TablePicture(_Told):
    """A window of the table of trials."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TrialRow, ...]
    offset: int
    total: int = Field(description="Trials that the look asks for.")


class AttemptPicture(_Told):
    """An attempt of a trial that ended early."""

    attempt: int
    reason: str
    message: str
    next_plan: Json


class TrialPicture(_Told):
    """One trial in full."""

    number: int
    state: TrialState
    reason: Reason | None
    message: str | None
    traceback: str | None
    params: Json
    plan: str = Field(description="The plan written out, such as 256 = 64 x 2 x 2.")
    values: dict[str, float | str]
    source: str
    seed: int
    step: int
    epoch: float | None
    duration_s: float | None
    samples_per_s: float | None
    parts_s: dict[str, float] = Field(description="Seconds a step, by part.")
    attempts: int
    setbacks: tuple[AttemptPicture, ...]
    resizes: tuple[str, ...]
    workers: tuple[str, ...] = Field(description="process on machine")
    log: str = Field(description="The end of what it printed.")
    offers: tuple[Offer, ...]


class LogLine(_Told):
    """Something that happened, in words."""

    seq: int
    time_unix_s: float
    level: Literal["info", "good", "warning", "error"]
    trial: int | None
    text: str
    alert: bool = Field(default=False, description="Whether a rule of somebody's speaks: tell them once.")


class LogPicture(_Told):
    """What happened since the last picture."""

    lines: tuple[LogLine, ...]
    skipped: int = Field(description="Older lines that are left out; REST has them all.")
    last_seq: int


class Problem(_Told):
    """Why a look cannot be answered, or an action not done."""

    problem: str
    field: str | None = None
    allowed: str | None = None
    next_step: str | None = None


class Picture(_Told):
    """The parts of a look that changed; a part that is missing is as it was."""

    look: int = Field(description="The number of the look that it answers.")
    frame: int
    seq: int = Field(default=0, description="The last event of the run that is in it.")
    problem: Problem | None = None
    runs: RunsPicture | None = None
    run: RunPicture | None = None
    chart: ChartPicture | None = None
    table: TablePicture | None = None
    trial: TrialPicture | None = None
    log: LogPicture | None = None
    compared: tuple[ComparedPicture, ...] | None = None
    resources: ResourcesPicture | None = None


class Action(_Asked):
    """Something to be done, sent by POST."""

    kind: Literal[
        "start", "stop", "stop_trial", "resume", "extend", "set", "enqueue", "replay", "export", "save_report"
    ]
    run: Name | None = None
    arguments: Json = Field(default_factory=dict)


class Done(_Told):
    """What came of an action."""

    run_id: str | None
    answer: str | None = Field(description="What the driver said; None if it has not answered yet.")
    command: str = Field(description="The command that does the same.")
    python: str


class ExperimentFile(_Told):
    """A file that a run can be started from."""

    path: str = Field(description="Below the folder of the server.")
    name: str
