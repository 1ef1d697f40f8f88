"""The energy that the trials of a run have used, in watt-hours, as far as it was metered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.foundation.formatting import format_number
from workbench.hardware.resources.attribution import JOULES_PER_WH, TrialEnergy, total_energy
from workbench.store.database import Store
from workbench.store.database.samples import read_energy


@dataclass(frozen=True)
class RunEnergy:
    """The energy that the trials of a run have used: of GPUs, and of CPUs if these are metered.

    Attributes:
        trials: The energy of each metered trial, by its number.
    """

    trials: Mapping[int, TrialEnergy]

    @property
    def total_wh(self) -> float | None:
        """The total in watt-hours, or None if nothing was metered."""
        known = [energy.total_wh for energy in self.trials.values() if energy.total_wh is not None]
        return sum(known) if known else None

    def of_trial(self, number: int) -> float | None:
        """Return the energy of one trial in watt-hours, or None if it was not metered."""
        energy = self.trials.get(number)
        return None if energy is None else energy.total_wh

    @property
    def watt_hours(self) -> dict[int, float | None]:
        """The energy of each metered trial in watt-hours, by its number."""
        return {number: used.total_wh for number, used in self.trials.items()}

    def describe(self) -> str | None:
        """Return the total as one line, or None if nothing was metered."""
        total_wh = self.total_wh
        if total_wh is None:
            return None
        together = total_energy(self.trials.values())
        parts = [
            name
            for name, used_j in (("GPUs", together.gpu_j), ("processors", together.cpu_j))
            if used_j
        ]
        return (
            f"energy: {format_number(total_wh)} Wh ({' and '.join(parts) or 'nothing'}, as metered)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the energy as plain values."""
        together = total_energy(self.trials.values())
        return {
            "total_wh": self.total_wh,
            "gpu_wh": _in_wh(together.gpu_j),
            "cpu_wh": _in_wh(together.cpu_j),
            "trials_wh": {str(number): energy.total_wh for number, energy in self.trials.items()},
        }


def energy_of(store: Store, run_id: str) -> RunEnergy:
    """Read the energy that the trials of a run have used.

    Args:
        store: The store of the run.
        run_id: The run.
    """
    rows = read_energy(store, run_id)
    return RunEnergy({row.trial: TrialEnergy(row.gpu_j, row.cpu_j) for row in rows})


def _in_wh(used_j: float | None) -> float | None:
    return None if used_j is None else used_j / JOULES_PER_WH
