"""Trainings that follow from earlier ones without a sampler: confirmations, promotions, replays.

When the search is over, the best configurations race. In each round, all that may still be the best
are trained with one further seed. A configuration drops out if it is clearly worse, or if one of
its trainings fails. The statistics are in `workbench.store.history.certainty`.

With a fidelity, promising configurations are trained again at its next level, by successive
halving. The sampler only chooses those at the lowest level.

A replay proposes what another run has proposed, in the same order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter

from workbench.experiment import Experiment
from workbench.experiment.code_versions import CODE
from workbench.experiment.fidelity import Levels
from workbench.experiment.goals import sign_of
from workbench.foundation.events import LowFidelity, RepeatsInherited, TrialProposed
from workbench.search.export import is_feasible
from workbench.search.study_records import ConfigurationRecord
from workbench.store.history.certainty import survivors

KEPT = 2
"""One in this many configurations of a level is promoted. Chosen by `make bench WHAT=search`."""


def next_confirmation(
    experiment: Experiment,
    configurations: Sequence[ConfigurationRecord],
    inherited: RepeatsInherited | None = None,
) -> tuple[ConfigurationRecord, int] | None:
    """Return the next training of the race. It only depends on the trials so far.

    Versions of the code do not race each other: a decision between them needs fresh trainings of
    both. So there is a race for each version.

    Args:
        experiment: The experiment.
        configurations: All configurations, by number.
        inherited: Trainings of earlier runs, which also show the noise.

    Returns:
        The configuration and the number of its repeat. None while trainings of a round are running,
        and after the race.
    """
    if experiment.confirm.best is None:
        return None
    if any(record.outcome is None for record in configurations):
        return None
    versions = experiment.search.code_versions
    if not versions:
        return _next_of_race(experiment, configurations, inherited)
    races = [
        _next_of_race(
            experiment, [item for item in configurations if item.params[CODE] == name], inherited
        )
        for name in versions
    ]
    return next((training for training in races if training is not None), None)


def _next_of_race(
    experiment: Experiment,
    configurations: Sequence[ConfigurationRecord],
    inherited: RepeatsInherited | None,
) -> tuple[ConfigurationRecord, int] | None:
    """Return the next training of a race, and the number of its repeat."""
    confirm = experiment.confirm
    assert confirm.best is not None
    metric, sign = experiment.objectives[0].metric, _sign(experiment)
    contenders = _contenders(experiment, configurations, confirm.best)
    racing = [record.number for record in contenders]
    if inherited is not None:
        inherited = inherited.without(_seeds_and_values(contenders, metric))
    # The race is replayed from its first round on each call, because a study stores no state except
    # for its trials. The loop returns at the first training that is missing or still running.
    for repeat in range(experiment.repeats, confirm.trainings):
        for record in contenders:
            is_trained = any(trial.proposal.repeat == repeat for trial in record.trials)
            if record.number in racing and not is_trained:
                return record, repeat
        values: dict[int, list[float]] = {}
        for record in contenders:
            so_far = [trial for trial in record.trials if trial.proposal.repeat <= repeat]
            if any(trial.ended is None for trial in so_far):
                return None
            outcomes = [trial.outcome([metric]) for trial in so_far]
            values[record.number] = [
                sign * outcome.values[metric]
                for outcome in outcomes
                if outcome and outcome.state == "complete"
            ]
            if len(values[record.number]) < len(so_far) and record.number in racing:
                racing.remove(record.number)
        if not racing:
            return None
        num_rounds = confirm.trainings - experiment.repeats
        racing = survivors(
            values,
            racing,
            certainty=confirm.certainty,
            num_rounds=num_rounds,
            inherited=inherited,
        )
        if len(racing) == 1 < len(contenders):
            return None
    return None


def _seeds_and_values(
    records: Sequence[ConfigurationRecord], metric: str
) -> set[tuple[int, float]]:
    """Return the seed and the value of each complete training of some configurations."""
    return {
        (trial.proposal.seed, outcome.values[metric])
        for record in records
        for trial in record.trials
        if (outcome := trial.outcome([metric])) is not None and outcome.state == "complete"
    }


def _contenders(
    experiment: Experiment, configurations: Sequence[ConfigurationRecord], most: int
) -> list[ConfigurationRecord]:
    """Return the best configurations by their first outcomes, best first.

    A configuration that was proposed again is the same one.
    """
    metric, sign = experiment.objectives[0].metric, _sign(experiment)
    feasible = [
        (-sign * record.outcome.values[metric], record.number, record)
        for record in configurations
        if record.outcome is not None and is_feasible(experiment, record.outcome)
    ]
    different: dict[str, ConfigurationRecord] = {}
    for _, _, record in sorted(feasible, key=itemgetter(0, 1)):
        different.setdefault(experiment.search.key_of(record.params), record)
    return list(different.values())[:most]


def _sign(experiment: Experiment) -> float:
    return sign_of(experiment.objectives[0].goal)


class Promotions:
    """The results at each level of a fidelity, and the promotions that follow from them.

    Source: Li et al., A system for massively parallel hyperparameter tuning, MLSys 2020, algorithm
    2.
    """

    def __init__(self, experiment: Experiment, levels: Levels) -> None:
        """Start without any result.

        Args:
            experiment: The experiment, which has one objective.
            levels: The levels of its fidelity.
        """
        self.levels = levels
        self._sign = _sign(experiment)
        self._values: list[dict[int, float]] = [{} for _ in levels.values]
        self._reached: dict[int, int] = {}

    def begin(self, configuration: int) -> LowFidelity | None:
        """Start the next level of a configuration, and return its fidelity if it is reduced."""
        level = self._reached.get(configuration, -1) + 1
        self._reached[configuration] = level
        value, full = self.levels.values[level], self.levels.full
        if value == full:
            return None
        return LowFidelity(name=self.levels.name, value=value, full=full)

    def finish(self, configuration: int, value: float) -> int:
        """Learn the value of a configuration at its current level, and return its rung."""
        level = self._reached[configuration]
        self._values[level][configuration] = self._sign * value
        return self.levels.rung(self.levels.values[level])

    def next(self, *, is_over: bool) -> int | None:
        """Return the configuration to train at the next level, or None if there is none.

        At each level, the best of those trained there so far are promoted, one in `KEPT`.

        Args:
            is_over: Whether no configuration is running and no further one will start. Then at
                least one is promoted, so that the run ends with a full training.
        """
        # The highest level comes first: a training near full fidelity is worth the most.
        for level in reversed(range(len(self.levels.values) - 1)):
            values = self._values[level]
            num = max(len(values) // KEPT, int(is_over and not self._has_passed(level)))
            best = sorted(values, key=lambda number: (-values[number], number))
            for configuration in best[:num]:
                if self._reached[configuration] == level:
                    return configuration
        return None

    def _has_passed(self, level: int) -> bool:
        return any(reached > level for reached in self._reached.values())


class Recording:
    """The recorded proposals of a run that have not been repeated yet."""

    def __init__(self, proposals: Iterable[TrialProposed]) -> None:
        """Start before the first of `proposals`, which are in the order of their trials."""
        self._left = deque(proposals)
        self.num_trainings = Counter(
            proposal.configuration for proposal in self._left if proposal.resumes is None
        )
        """The total number of trainings of each configuration."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return not self._left

    @property
    def repeats(self) -> bool:
        """Whether the next proposal trains a configuration again."""
        return bool(self._left) and (self._left[0].repeat > 0 or self._left[0].resumes is not None)

    def next(self, running: Collection[int], *, repeats_only: bool) -> TrialProposed | None:
        """Return the next proposal, or None if it must wait.

        Args:
            running: Trials that have not ended. A part of a training waits until the trial that it
                continues has ended.
            repeats_only: Whether the budget has no room for a new configuration.
        """
        if not self._left or (repeats_only and not self.repeats):
            return None
        if self._left[0].continued in running:
            return None
        return self._left.popleft()

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others will continue."""
        sources = (proposal.continued for proposal in self._left)
        return {trial for trial in sources if trial is not None}

    def branches(self, trial: int) -> list[int]:
        """Return the steps of a trial from which clones will continue, in order."""
        clones = [proposal.clone for proposal in self._left]
        return sorted({item.step for item in clones if item and item.inherits and item.of == trial})
