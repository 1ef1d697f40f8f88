"""The trials of a run as a pandas table."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from workbench.store.history import History
from workbench.store.history.trial_columns import CONTINUES, TrialColumn, columns_of


def to_table(history: History) -> pd.DataFrame:
    """Make a table with one row a trial, by number.

    Args:
        history: The run, with the energy of its trials.

    Returns:
        The columns that `columns_of` declares; the trial that one continues only where any does.
    """
    trials = list(history.trials.values())
    columns = [
        column
        for column in columns_of(history)
        if column.name != CONTINUES.name or any(trial.continued is not None for trial in trials)
    ]
    cells = {
        column.name: [_cell(column, column.value(history, trial)) for trial in trials]
        for column in columns
    }
    return pd.DataFrame(cells, columns=pd.Index([column.name for column in columns]))


def _cell(column: TrialColumn, value: Any) -> Any:
    return math.nan if value is None and column.is_number else value
