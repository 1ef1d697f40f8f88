"""Declare the columns of the table of trials: name, meaning, unit, value and format.

`run.trials`, the panel and its file, the terminal and the report use these declarations, so a trial
has the same values with the same names and units everywhere. To add a column, declare it and add it
to `_COURSE`. Views choose which columns to show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.experiment.automl import STANDARDISED, shown_metric
from workbench.experiment.budget_units import parse_price
from workbench.experiment.goals import MONEY_SPENT, RESOURCES, Goal
from workbench.experiment.metric_declarations import unit_in
from workbench.foundation.formatting import MISSING, format_rate, format_value
from workbench.store.history.failures import describe_state
from workbench.store.history.history import History
from workbench.store.history.lineage import name_of_source, turn_now
from workbench.store.history.trial import Trial

Kind = Literal["number", "state", "param", "value", "progress"]
Format = Literal["value", "rate"]
"""How a view writes a value: with four significant digits, or as a rate."""

_Value = Callable[[History, Trial], Any]


@dataclass(frozen=True)
class TrialColumn:
    """One column of the table of trials.

    Attributes:
        name: Its name in Python and in filters. A quantity ends with its unit, as in `duration_s`.
        kind: Its group.
        meaning: The meaning of its values, in one sentence.
        label: Its heading in views.
        unit: The unit of its values, or "" if they have none.
        key: Identifies it in requests of a front end.
        format: How a view writes its values.
        goal: Which direction is better, or None if neither is or it is unknown.
        is_shown: Whether tables have a column for it. A reason is shown next to the state, and a
            message below it.
        is_short: Whether the terminal and the report also have a column for it, if any trial has a
            value.
        is_number: Whether its values are numbers. A missing number is NaN in Python.
    """

    name: str
    kind: Kind
    meaning: str
    of: _Value
    label: str = ""
    unit: str = ""
    key: str = ""
    format: Format = "value"
    goal: Goal | None = None
    is_shown: bool = True
    is_short: bool = False
    is_number: bool = False

    @property
    def heading(self) -> str:
        """Its heading."""
        return self.label or self.name

    @property
    def identity(self) -> str:
        """Its identity in a front end."""
        return self.key or self.name

    def value(self, history: History, trial: Trial) -> Any:
        """Return the value of a trial, or None if it has none."""
        return self.of(history, trial)

    def text(self, history: History, trial: Trial) -> str:
        """Return the value of a trial as views write it."""
        if self.name == STATE.name:
            return describe_state(history, trial)
        return self.write(self.of(history, trial))

    def write(self, value: Any) -> str:
        """Return a value as views write it."""
        if value is None:
            return MISSING
        if self.format == "rate":
            return format_rate(value)
        return format_value(value)


NUMBER = TrialColumn(
    "number",
    "number",
    "Its number, from 0.",
    lambda _, trial: trial.number,
    label="trial",
    is_number=True,
)
STATE = TrialColumn(
    "state",
    "state",
    "waiting, running, complete, pruned, stopped or failed.",
    lambda _, trial: trial.state,
)
REASON = TrialColumn(
    "reason",
    "state",
    "Why it ended like this, infeasible if it breaks a constraint, or target not reached.",
    History.reason_of,
    is_shown=False,
)
FEASIBLE = TrialColumn(
    "feasible",
    "progress",
    "Whether a complete trial keeps all constraints.",
    lambda history, trial: history.is_feasible(trial) if trial.state == "complete" else None,
)
MEMBER = TrialColumn(
    "member",
    "progress",
    "The member of the population that it trains.",
    lambda _, trial: trial.segment and trial.segment.member,
)
CONTINUES = TrialColumn(
    "continues",
    "progress",
    "The trial that it continues, or whose weights or configuration it has.",
    lambda _, trial: trial.continued,
    is_short=True,
)
TURN = TrialColumn(
    "turn",
    "progress",
    "The turn in which it trains, or the last one that it has finished.",
    turn_now,
    is_short=True,
    is_number=True,
)
CODE = TrialColumn(
    "code",
    "progress",
    "The version of the code that it ran. Different versions are not comparable.",
    lambda _, trial: trial.program if trial.attempts else None,
    is_short=True,
)
STEP = TrialColumn(
    "step",
    "progress",
    "The step of its last report: optimizer steps, or what a function or program counts.",
    lambda _, trial: trial.last_step,
    is_number=True,
)
STARTED = TrialColumn(
    "started_s",
    "progress",
    "When its first attempt started, in seconds of run time.",
    lambda history, trial: (
        None if trial.started_unix_s is None else history.clock.at(trial.started_unix_s)
    ),
    label="started (s)",
    unit="s",
    is_number=True,
)
DURATION = TrialColumn(
    "duration_s",
    "progress",
    "How long it ran, in seconds: the sum over its attempts, without the time in between.",
    lambda _, trial: trial.duration_s,
    label="duration (s)",
    unit="s",
    is_number=True,
)
SPEED = TrialColumn(
    "samples_per_s",
    "progress",
    "Samples trained per second, of all workers, as last reported.",
    lambda _, trial: trial.samples_per_s,
    label="samples/s",
    unit="samples/s",
    format="rate",
    goal="maximize",
    is_number=True,
)
TOKEN_SPEED = TrialColumn(
    "tokens_per_s",
    "progress",
    "Tokens trained per second, of all workers, without padding, as last reported.",
    lambda _, trial: trial.tokens_per_s,
    label="tokens/s",
    unit="tokens/s",
    format="rate",
    goal="maximize",
    is_short=True,
    is_number=True,
)
TOKENS = TrialColumn(
    "tokens",
    "progress",
    "Tokens that it has trained on, without padding.",
    lambda _, trial: None if trial.num_tokens is None else round(trial.num_tokens),
    format="rate",
    is_short=True,
    is_number=True,
)
UTILISATION = TrialColumn(
    "mfu",
    "progress",
    "The share of its GPUs' peak rate that its model uses. On CPUs there is none.",
    lambda _, trial: trial.utilisation,
    label="MFU",
    goal="maximize",
    is_short=True,
    is_number=True,
)
MEMORY = TrialColumn(
    "memory_share",
    "progress",
    "The largest share of its GPU's memory that the first worker has used.",
    lambda _, trial: trial.memory_share,
    label="GPU memory",
    is_short=True,
    is_number=True,
)
MEMORY_GB = TrialColumn(
    "memory_gb",
    "progress",
    "The most memory that the first worker has used of its GPU, in GB of 1e9 bytes.",
    lambda _, trial: trial.memory_gb,
    label="memory (GB)",
    unit="GB",
    is_short=True,
    is_number=True,
)
PREDICTED_MEMORY = TrialColumn(
    "predicted_memory_gb",
    "progress",
    "The GPU memory that was predicted before it started, in GB. Only for language models.",
    lambda _, trial: None if trial.predicted_memory is None else trial.predicted_memory.gb,
    label="predicted (GB)",
    unit="GB",
    is_short=True,
    is_number=True,
)
ENERGY = TrialColumn(
    "energy_wh",
    "progress",
    "Energy that its workers used on GPUs and processors, in watt-hours, if it was metered.",
    lambda history, trial: history.energy_of_trials.get(trial.number),
    label="energy (Wh)",
    unit="Wh",
    is_short=True,
    is_number=True,
)
EPOCH = TrialColumn(
    "epoch",
    "progress",
    "Epochs done at its last report.",
    lambda _, trial: trial.last_epoch,
    is_number=True,
)
ATTEMPTS = TrialColumn(
    "attempts",
    "progress",
    "How many times it was started.",
    lambda _, trial: trial.attempts,
    is_number=True,
)
REPORTS = TrialColumn(
    "reports",
    "progress",
    "How many of its reports are stored.",
    lambda _, trial: trial.reports,
    is_number=True,
)
MESSAGE = TrialColumn(
    "message",
    "state",
    "The error that ended it, or why it was pruned.",
    lambda _, trial: trial.message,
    is_shown=False,
)

_BEGINNING = (NUMBER, STATE, REASON)
_COURSE = (STEP, EPOCH, DURATION, SPEED, ATTEMPTS, REPORTS, STARTED, ENERGY, MESSAGE)
_OF_TOKENS = (TOKENS, TOKEN_SPEED, UTILISATION)
_OF_MEMORY = (MEMORY, MEMORY_GB, PREDICTED_MEMORY)
_DECLARED = (
    *_BEGINNING,
    FEASIBLE,
    MEMBER,
    TURN,
    CODE,
    CONTINUES,
    *_OF_TOKENS,
    *_OF_MEMORY,
    *_COURSE,
)
_TAKEN = frozenset(name for column in _DECLARED for name in (column.name, column.heading))


def columns_of(history: History) -> list[TrialColumn]:
    """Return the columns that a run has, in their order.

    Args:
        history: The run.

    Returns:
        The columns: number, state and reason, then columns for constraints, populations, turns,
        several versions of the code and continued trials if the run has them, then each parameter
        and each reported metric, and last the course of a trial.
    """
    course = [column for column in _COURSE if not _is_metric(history, column.name)]
    return [
        *_BEGINNING,
        *_judged(history),
        *parameters(history),
        *metrics(history),
        *_measured(history),
        *course,
    ]


def _is_metric(history: History, name: str) -> bool:
    """Return whether a metric takes the place of the column of its name that every run has.

    What a trial uses of the hardware does, and so do epochs that only a program counts.
    """
    if name not in history.metrics:
        return False
    if name == EPOCH.name:
        return all(trial.last_epoch is None for trial in history.trials.values())
    return name in RESOURCES


def _measured(history: History) -> Iterable[TrialColumn]:
    """Yield the columns of models of tokens, and of GPU memory, that some trial has values for."""
    trials = history.trials.values()
    if any(trial.tokens is not None for trial in trials):
        yield TOKENS
        yield TOKEN_SPEED
    if any(trial.utilisation is not None for trial in trials):
        yield UTILISATION
    if any(trial.memory_share is not None for trial in trials):
        yield MEMORY
    if any(trial.predicted_memory is not None for trial in trials):
        yield MEMORY_GB
        yield PREDICTED_MEMORY


def _judged(history: History) -> Iterable[TrialColumn]:
    trials = history.trials.values()
    if history.experiment.constraints:
        yield FEASIBLE
    if any(trial.segment is not None for trial in trials):
        yield MEMBER
    if history.experiment.early_stop.turns is not None:
        yield TURN
    if len(history.programs) > 1:
        yield CODE
    yield continues(history)


def course_of(history: History) -> list[TrialColumn]:
    """Return the columns on the course of a trial, for views that show a single trial."""
    return [column for column in columns_of(history) if column.kind == "progress"]


def columns_in_short(history: History, trials: Iterable[Trial]) -> list[TrialColumn]:
    """Return the columns on the course of trials for tables with little room.

    Args:
        history: The run.
        trials: The trials to show. Columns without values are dropped.
    """
    shown = list(trials)
    others = [column for column in columns_of(history) if column.is_short]
    return [
        STEP,
        DURATION,
        *(
            column
            for column in others
            if any(column.value(history, trial) is not None for trial in shown)
        ),
    ]


def continues(history: History) -> TrialColumn:
    """Return the column of the trial that a trial continues or repeats at a higher fidelity."""
    if name_of_source(history) == "continues":
        return CONTINUES
    return _AFTER


_AFTER = replace(CONTINUES, label="after")


def parameters(history: History) -> list[TrialColumn]:
    """Return a column for each parameter that is searched or that a trial has."""
    shown = {_short(history, name) for name in history.metrics}
    return [_parameter(name, shown) for name in history.params]


def _parameter(name: str, metrics: Collection[str]) -> TrialColumn:
    return TrialColumn(
        _apart("params", name, metrics),
        "param",
        f"The parameter {name}.",
        lambda _, trial: trial.params.get(name),
        key=f"param:{name}",
    )


def metrics(history: History) -> list[TrialColumn]:
    """Return a column for each objective and each metric that a trial has reported."""
    return [metric(history, name) for name in history.metrics]


def metric(history: History, name: str) -> TrialColumn:
    """Return the column of a metric: the result of a trial, or its last report until then.

    Args:
        history: The run.
        name: The metric, as trials report it.
    """
    label = shown_metric(history.experiment, name)
    if name in RESOURCES or _is_metric(history, name):
        return _resource(history, name)
    return TrialColumn(
        _apart("values", _short(history, name), history.params),
        "value",
        f"The result of the trial, or its last report of {name} until it has one.",
        lambda _, trial: trial.value_of(name),
        label=_apart("values", label, history.params),
        unit=unit_in(history.experiment, name),
        key=f"value:{name}",
        goal=history.goal_of(name),
        is_number=True,
    )


def _resource(history: History, name: str) -> TrialColumn:
    """Return the column of a metric in place of the one of its name that every run has, if any."""
    declared = next((column for column in _COURSE if column.name == name), None)
    unit = unit_in(history.experiment, name)
    label = name
    if name == MONEY_SPENT and history.experiment.budget.price is not None:
        unit = parse_price(history.experiment.budget.price).currency
        label = f"{name} ({unit})"
    if declared is not None:
        unit, label = declared.unit, declared.label
    return TrialColumn(
        name,
        "value",
        f"{declared.meaning if declared else 'The cost of the trial.'} It is a metric of the run.",
        lambda _, trial: trial.value_of(name),
        label=label,
        unit=unit,
        key=f"value:{name}",
        format="value" if declared is None else declared.format,
        goal=history.goal_of(name),
        is_number=True,
    )


def means_of(history: History, trial: Trial) -> dict[str, float]:
    """Return the means over the repeats of a trial's configuration, by the keys of columns."""
    return {f"value:{name}": value for name, value in history.mean_values(trial).items()}


def values_of_trial(history: History, trial: Trial) -> dict[str, float]:
    """Return the metrics of a trial by the names that tables show."""
    return {
        shown_metric(history.experiment, name): value for name, value in trial.shown_values.items()
    }


def _short(history: History, metric: str) -> str:
    """Return the name of a metric's column, without the note on its unit."""
    return shown_metric(history.experiment, metric).removesuffix(STANDARDISED)


def _apart(kind: str, name: str, others: Collection[str]) -> str:
    """Return a name for a column that no other column has."""
    if name in _TAKEN or name in others:
        return f"{kind}.{name}"
    return name
