"""The energy that a run's trials have used, in watt-hours, as far as somebody metered it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.resources.attribution import JOULES_PER_WH, TrialEnergy, in_all
from workbench.run.words import format_number
from workbench.store import Store
from workbench.store.samples import read_energy


@dataclass(frozen=True)
class RunEnergy:
    """What the trials of a run have used: their share of GPUs, and of processors where those are metered.

    Attributes:
        trials: Those that were metered, by number.
    """

    trials: Mapping[int, TrialEnergy]

    @property
    def total_wh(self) -> float | None:
        """All of it in watt-hours; None where nobody knows."""
        known = [one.total_wh for one in self.trials.values() if one.total_wh is not None]
        return sum(known) if known else None

    def of_trial(self, number: int) -> float | None:
        """Return what one trial has used, in watt-hours; None where nobody knows."""
        found = self.trials.get(number)
        return None if found is None else found.total_wh

    def describe(self) -> str | None:
        """Say it in a line; None where nobody knows."""
        total_wh = self.total_wh
        if total_wh is None:
            return None
        together = in_all(self.trials.values())
        parts = [
            name for name, used_j in (("GPUs", together.gpu_j), ("processors", together.cpu_j)) if used_j
        ]
        return f"energy: {format_number(total_wh)} Wh ({' and '.join(parts) or 'nothing'}, as metered)"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        together = in_all(self.trials.values())
        return {
            "total_wh": self.total_wh,
            "gpu_wh": _in_wh(together.gpu_j),
            "cpu_wh": _in_wh(together.cpu_j),
            "trials_wh": {str(number): one.total_wh for number, one in self.trials.items()},
        }


def energy_of(store: Store, run_id: str) -> RunEnergy:
    """Read what the trials of a run have used.

    Args:
        store: The store that holds it.
        run_id: The run.
    """
    rows = read_energy(store, run_id)
    return RunEnergy({row.trial: TrialEnergy(row.gpu_j, row.cpu_j) for row in rows})


def _in_wh(used_j: float | None) -> float | None:
    return None if used_j is None else used_j / JOULES_PER_WH
