"""Note once in a run what its limit on trials cannot do, or what is notable about its table.

The table is read in a thread, so that no trial waits for it. What is notable is left to the data.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from workbench.data import notes_of
from workbench.experiment import Component
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Noted
from workbench.hardware.resources import cluster_inventory
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.run_notes import notes_of_limits

logger = logging.getLogger(__name__)

# Reading a larger file here would take long, beside the workers that read it.
_MAX_READ_BYTES = 64 * 2**20
_END_PATIENCE_S = 5.0


class DataNotes:
    """Records notes on the table of a run that has no trials yet.

    Larger files are left to `check`.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Record the notes in `ledger`, in the thread that calls `tick` and `end`."""
        self._ledger = ledger
        self._found: Future[tuple[str, ...]] | None = None

    def begin(self) -> None:
        """Record that trials cannot differ, or are too few for a population, and start to read the
        table.
        """
        experiment = self._ledger.history.experiment
        if self._ledger.history.trials:
            return
        # Of auto it is noted what was measured.
        shares = experiment.resources.per_gpu not in (1, "auto")
        for note in notes_of_limits(experiment, cluster_inventory().num_gpus if shares else None):
            self._ledger.record(Noted(level="warning", message=note))
        data = experiment.data
        if data is None or data.is_reference:
            return
        reader = ThreadPoolExecutor(1, thread_name_prefix="data notes")
        self._found = reader.submit(_notes_of, data)
        reader.shutdown(wait=False)

    def tick(self) -> None:
        """Record the notes if they are known by now; never waits."""
        if self._found is None or not self._found.done():
            return
        notes, self._found = self._found.result(), None
        if notes:
            self._ledger.record(*(Noted(level="info", message=note) for note in notes))

    def end(self) -> None:
        """Record the notes of a run that ends, and wait a few seconds for them."""
        if self._found is not None:
            wait([self._found], timeout=_END_PATIENCE_S)
            self.tick()


def _notes_of(data: Component) -> tuple[str, ...]:
    path = data.options.get("path")
    try:
        if isinstance(path, str) and Path(path).expanduser().stat().st_size > _MAX_READ_BYTES:
            return ()
        return notes_of(data)
    except (OSError, WorkbenchError) as error:  # the trials report this
        logger.warning("the data was not summarised: %s", error)
        return ()
