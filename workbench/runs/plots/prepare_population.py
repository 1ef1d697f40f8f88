"""What the figure of a population shows: the values of its changing parameters over epochs."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.space import Fixed
from workbench.runs.plots.run_data import RunData
from workbench.store.history import Trial
from workbench.store.history.lineage import lineage


@dataclass(frozen=True)
class Piece:
    """One part of a training in one panel.

    Attributes:
        trial: Its trial.
        begin: The epoch, or step, at which it begins.
        end: The one at which it ends.
        value: The value of the parameter.
        before: The value in the part that it continues; None for the first.
    """

    trial: int
    begin: int
    end: int
    value: float | str
    before: float | str | None


@dataclass(frozen=True)
class SchedulePanel:
    """One parameter.

    Attributes:
        name: Its name.
        is_log: Whether its range is logarithmic.
        others: The parts of all trainings.
        best: The parts that lead to the best trial, in their order.
    """

    name: str
    is_log: bool
    others: tuple[Piece, ...]
    best: tuple[Piece, ...]


@dataclass(frozen=True)
class ScheduleData:
    """The panels, the unit of their common axis, and the best trial."""

    panels: tuple[SchedulePanel, ...]
    unit: str
    best_trial: int | None


def prepare_schedule(run: RunData) -> ScheduleData:
    """Collect the values of the parameters that differ between trials of a population.

    Args:
        run: The run; of one without a population nothing is collected.
    """
    history = run.history
    parts = [trial for trial in history.trials.values() if trial.segment is not None]
    best = history.best()
    leading = [] if best is None or best.segment is None else lineage(history.trials, best)

    def piece(trial: Trial, name: str) -> Piece | None:
        segment = trial.segment
        if segment is None or name not in trial.params:
            return None
        before = (
            None
            if segment.continues is None
            else history.trials[segment.continues].params.get(name)
        )
        return Piece(
            trial.number,
            segment.begin,
            segment.end,
            _shown(trial.params[name]),
            None if before is None else _shown(before),
        )

    def pieces(trials: list[Trial], name: str) -> tuple[Piece, ...]:
        return tuple(found for trial in trials if (found := piece(trial, name)) is not None)

    panels = tuple(
        SchedulePanel(
            name, bool(getattr(domain, "log", False)), pieces(parts, name), pieces(leading, name)
        )
        for name, domain in history.searched.root.items()
        if not isinstance(domain, Fixed)
        and len({str(trial.params.get(name)) for trial in parts}) > 1
    )
    unit = "Epoch" if run.experiment.trains_model else "Step"
    return ScheduleData(panels, unit, best.number if leading and best is not None else None)


def _shown(value: object) -> float | str:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value)
    )
