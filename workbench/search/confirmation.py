"""Which of the best configurations to train again, when the search itself is over.

The best ones race: in each round all that may still be the best are trained with another seed, the
same for all of them, and those that are clearly worse, or of which a training fails, leave. The
statistics are left to `workbench.store.history.certainty`.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.experiment import Experiment
from workbench.search.export import is_feasible
from workbench.search.records import ConfigurationRecord
from workbench.store.history.certainty import survivors


def next_training(
    experiment: Experiment, configurations: Sequence[ConfigurationRecord]
) -> tuple[ConfigurationRecord, int] | None:
    """Return the next training of the race, which depends on the trials so far alone.

    Args:
        experiment: The experiment.
        configurations: All configurations, by number.

    Returns:
        The configuration and the number of its repeat; None while something is awaited, and after
        the race.
    """
    confirm = experiment.confirm
    if confirm.best is None or any(record.outcome is None for record in configurations):
        return None
    metric, sign = experiment.objectives[0].metric, _sign(experiment)
    contenders = _contenders(experiment, configurations, confirm.best)
    racing = [record.number for record in contenders]
    for repeat in range(experiment.repeats, confirm.trainings):
        for record in contenders:
            if record.number in racing and not any(
                each.proposal.repeat == repeat for each in record.trials
            ):
                return record, repeat
        values: dict[int, list[float]] = {}
        for record in contenders:
            so_far = [each for each in record.trials if each.proposal.repeat <= repeat]
            if any(each.ended is None for each in so_far):
                return None
            outcomes = [each.outcome([metric]) for each in so_far]
            values[record.number] = [
                sign * each.values[metric] for each in outcomes if each and each.state == "complete"
            ]
            if len(values[record.number]) < len(so_far) and record.number in racing:
                racing.remove(record.number)
        if not racing:
            return None
        num_rounds = confirm.trainings - experiment.repeats
        racing = survivors(values, racing, certainty=confirm.certainty, num_rounds=num_rounds)
        if len(racing) == 1 < len(contenders):
            return None
    return None


def _contenders(
    experiment: Experiment, configurations: Sequence[ConfigurationRecord], most: int
) -> list[ConfigurationRecord]:
    """Return the best configurations by their first outcomes, best first."""
    metric, sign = experiment.objectives[0].metric, _sign(experiment)
    feasible = [
        (-sign * record.outcome.values[metric], record.number, record)
        for record in configurations
        if record.outcome is not None and is_feasible(experiment, record.outcome)
    ]
    return [record for _, _, record in sorted(feasible, key=lambda each: each[:2])[:most]]


def _sign(experiment: Experiment) -> float:
    return 1.0 if experiment.objectives[0].goal == "maximize" else -1.0
