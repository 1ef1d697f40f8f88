"""Record how much of its energy budget a run has used, so that its history knows, and everybody who
reads it.

Metering is left to the monitor, ending the run to the driver's limits.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.foundation.errors import ResourcesError
from workbench.foundation.events import EnergyMetered, steady_unix_s
from workbench.foundation.formatting import format_duration
from workbench.sweeps.ledger import Ledger

STEP = 0.01
"""Which share of the limit is recorded at once."""
UNMETERED_S = 60.0
"""How long trials may train without any energy being known, in seconds."""


class EnergyLimit:
    """Notices what the trials use, where the budget limits their energy."""

    def __init__(self, ledger: Ledger, metered_wh: Callable[[], float | None]) -> None:
        """Record in `ledger` what `metered_wh` returns.

        Watt-hours, or None while nothing is known.
        """
        self._ledger = ledger
        self._metered_wh = metered_wh

    def tick(self) -> None:
        """Record what was used since the last time, if it is worth an event.

        Raises:
            ResourcesError: If trials have trained for a while, and nothing meters them.
        """
        history = self._ledger.history
        limit_wh = history.in_force.budget.energy
        if limit_wh is None:
            return
        used_wh = self._metered_wh()
        if used_wh is None:
            self._check_meter()
            return
        known_wh = history.energy_wh or 0.0
        if used_wh - known_wh >= STEP * limit_wh or known_wh < limit_wh <= used_wh:
            self._ledger.record(EnergyMetered(total_wh=used_wh))

    def _check_meter(self) -> None:
        now_s = steady_unix_s()
        trained_s = sum(
            trial.trained_s
            + trial.attempt_s(now_s if trial.state == "running" else trial.last_event_unix_s)
            for trial in self._ledger.history.trials.values()
            if trial.attempts
        )
        if trained_s > UNMETERED_S:
            raise ResourcesError(
                f"trials have trained for {format_duration(round(trained_s))} and nothing meters"
                " their energy, so an energy budget can never end the run",
                field="budget.energy",
                next_step="Limit the run by budget.time or budget.trials.",
            )
