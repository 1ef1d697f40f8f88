"""Note before the first trial of a run what is notable about its table, such as columns that identify rows.

What is notable is left to the data.
"""

from __future__ import annotations

import logging
from pathlib import Path

from workbench.data import summary_of
from workbench.errors import WorkbenchError
from workbench.events import Noted
from workbench.sweeps.ledger import Ledger

logger = logging.getLogger(__name__)

# Reading a larger file here would take long, beside the workers that read it.
_MAX_READ_BYTES = 64 * 2**20


def note_data(ledger: Ledger) -> None:
    """Record notes on the table of a run that has no trials yet; larger files are left to `check`.

    Args:
        ledger: The events of the run, to which the notes are added.
    """
    data = ledger.history.experiment.data
    if ledger.history.trials or data is None or data.is_reference:
        return
    path = data.options.get("path")
    try:
        if isinstance(path, str) and Path(path).expanduser().stat().st_size > _MAX_READ_BYTES:
            return
        summary = summary_of(data)
    except (OSError, WorkbenchError) as error:  # the trials report this
        logger.warning("the data was not summarised: %s", error)
        return
    if summary is not None and summary.notes:
        ledger.record(*(Noted(level="info", message=note) for note in summary.notes))
