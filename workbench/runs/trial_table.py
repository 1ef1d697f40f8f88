"""The trials of a run as a pandas table."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from workbench.history import History, Trial
from workbench.history.failures import reason_of
from workbench.runs.energy import RunEnergy

_COURSE = (
    "number", "state", "reason", "step", "epoch", "reports", "attempts", "duration_s", "samples_per_s",
    "energy_wh", "message",
)  # fmt: skip


def to_table(history: History, energy: RunEnergy) -> pd.DataFrame:
    """Make a table with one row a trial, by number.

    Args:
        history: The run.
        energy: What its trials have used.

    Returns:
        Columns number, state, reason (of a complete trial that breaks a constraint, infeasible); feasible,
        where there are constraints; member and continues (the trial whose training it continues), in a
        population; one for each parameter that any trial has, missing where it does not exist; one for each
        result; then step, epoch, reports, attempts, duration_s, samples_per_s, energy_wh (missing where
        unmetered), message.
    """
    trials = list(history.trials.values())
    params = _ordered(name for name in history.experiment.search.root) | _ordered(
        name for trial in trials for name in trial.params
    )
    values = _ordered(item.metric for item in history.objectives) | _ordered(
        name for trial in trials for name in trial.values
    )
    param_columns = {name: f"params.{name}" if name in values or name in _COURSE else name for name in params}
    value_columns = {name: f"values.{name}" if name in params or name in _COURSE else name for name in values}
    rows = [
        _row(history, trial, param_columns, value_columns) | {"energy_wh": energy.of_trial(trial.number)}
        for trial in trials
    ]
    judged: list[str] = []
    if history.experiment.constraints:
        judged = ["feasible"]
        for row, trial in zip(rows, trials, strict=True):
            row["feasible"] = history.is_feasible(trial) if trial.state == "complete" else None
    if any(trial.resumes is not None for trial in trials):
        judged += ["continues"]
        for row, trial in zip(rows, trials, strict=True):
            row["continues"] = trial.resumes
    if any(trial.segment is not None for trial in trials):
        judged += ["member", "continues"]
        for row, trial in zip(rows, trials, strict=True):
            segment = trial.segment
            row["member"], row["continues"] = segment and segment.member, segment and segment.continues
    columns = [*_COURSE[:3], *judged, *param_columns.values(), *value_columns.values(), *_COURSE[3:]]
    return pd.DataFrame(rows, columns=pd.Index(columns))


def _ordered(names: Any) -> dict[str, None]:
    return dict.fromkeys(names)


def _row(history: History, trial: Trial, params: dict[str, str], values: dict[str, str]) -> dict[str, Any]:
    started, ended = trial.started_unix_s, trial.ended_unix_s
    row: dict[str, Any] = {
        "number": trial.number,
        "state": trial.state,
        "reason": reason_of(history, trial),
        "step": trial.last_step,
        "epoch": trial.last_epoch,
        "reports": trial.reports,
        "attempts": trial.attempts,
        "duration_s": math.nan if started is None or ended is None else ended - started,
        "samples_per_s": trial.samples_per_s,
        "message": trial.message,
    }
    row |= {column: trial.params.get(name) for name, column in params.items()}
    row |= {column: trial.values.get(name, math.nan) for name, column in values.items()}
    return row
