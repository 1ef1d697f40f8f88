"""What trials use of the hardware, as metrics that an experiment can improve or limit."""

from __future__ import annotations

from collections.abc import Callable

from workbench.experiment.budget_units import parse_price
from workbench.experiment.goals import ENERGY_USED, MONEY_SPENT, RESOURCES, SPEED
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.store.history import Trial
from workbench.store.history.history import money_of
from workbench.sweeps.ledger import Ledger


class ResourcesUsed:
    """Adds the resources that objectives and constraints name to the reports of trials."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        energy_wh_of: Callable[[int, bool], float | None],
        num_places: Callable[[], int],
    ) -> None:
        """Find out which resources the experiment names.

        Args:
            ledger: The run.
            energy_wh_of: Returns the watt-hours that a trial has used, or None if unknown. The
                second argument says whether to read the meters first.
            num_places: Returns how many trials share the hardware.
        """
        experiment = ledger.experiment
        named = {item.metric for item in (*experiment.objectives, *experiment.constraints)}
        self._ledger = ledger
        self._named = [name for name in RESOURCES if name in named]
        self._energy_wh_of, self._num_places = energy_wh_of, num_places
        self._own: set[str] = set()

    def added(self, report: TrialReported, trial: Trial) -> TrialReported:
        """Return a report with what its trial has used so far.

        A number that the training reports itself under the same name stays as it is.

        Args:
            report: A report of the trial.
            trial: The trial before this report.
        """
        if not self._named:
            return report
        self._own |= report.values.keys() & set(self._named)
        used = self._used(trial, report.time_unix_s, report.samples_per_s)
        return report.model_copy(update={"values": {**used, **report.values}})

    def at_end(self, trial: Trial, end: TrialEnded) -> dict[str, float]:
        """Return what a trial has used in all.

        Args:
            trial: The trial.
            end: Its end.
        """
        if not self._named:
            return {}
        return self._used(trial, end.time_unix_s, None, has_ended=True)

    def _used(
        self, trial: Trial, at_unix_s: float, samples_per_s: float | None, has_ended: bool = False
    ) -> dict[str, float]:
        used: dict[str, float | None] = {}
        for name in self._named:
            if name in self._own:
                continue
            if name == SPEED:
                used[name] = samples_per_s or trial.samples_per_s
            elif name == ENERGY_USED:
                used[name] = self._energy_wh_of(trial.number, has_ended)
            elif name == MONEY_SPENT:
                used[name] = self._cost(trial, at_unix_s)
        return {name: value for name, value in used.items() if value is not None}

    def _cost(self, trial: Trial, at_unix_s: float) -> float | None:
        """Return the cost of a trial: of the GPUs that it holds, or of its share of the machines.

        A price for an hour of the run buys all of its hardware, which several trials share.
        """
        if (text := self._ledger.experiment.budget.price) is None:
            return None
        share = self._ledger.history.in_force.resources.gpu_share
        active_s = (trial.trained_s + trial.attempt_s(at_unix_s)) / max(1, self._num_places())
        return money_of(parse_price(text), active_s, trial.gpu_s(at_unix_s) * share)
