"""Which configurations are trained again at the next level of the fidelity: successive halving.

Values are compared at one level only. Which configurations begin, at the lowest one, is left to the
sampler.
"""

from __future__ import annotations

from workbench.experiment import Experiment
from workbench.experiment.fidelity import Levels
from workbench.foundation.events import LowFidelity

KEPT = 2
"""Of this many configurations at a level one goes on. Chosen by `make bench WHAT=search`."""


class Promotions:
    """What is known at each level, and what follows from it.

    Source: Li et al., A system for massively parallel hyperparameter tuning, MLSys 2020, algorithm
    2.
    """

    def __init__(self, experiment: Experiment, levels: Levels) -> None:
        """Start without any result.

        Args:
            experiment: What is tuned, by one objective.
            levels: The levels of its fidelity.
        """
        self.levels = levels
        self._sign = 1.0 if experiment.objectives[0].goal == "maximize" else -1.0
        self._values: list[dict[int, float]] = [{} for _ in levels.values]
        self._reached: dict[int, int] = {}

    def begin(self, configuration: int) -> LowFidelity | None:
        """Begin the next level of a configuration.

        Return what makes it cheaper, None at the last one.
        """
        level = self._reached.get(configuration, -1) + 1
        self._reached[configuration] = level
        value, full = self.levels.values[level], self.levels.full
        return None if value == full else LowFidelity(name=self.levels.name, value=value, full=full)

    def finish(self, configuration: int, value: float) -> int:
        """Learn the value of a configuration at the level that it has begun, and return the rung of
        that.
        """
        level = self._reached[configuration]
        self._values[level][configuration] = self._sign * value
        return self.levels.rung(self.levels.values[level])

    def next(self, *, is_over: bool) -> int | None:
        """Return the configuration to train at the next level; None if there is none.

        At each level these are the best ones of those trained there so far, one in `KEPT`.

        Args:
            is_over: Whether no configuration will begin any more, and none is trained: then one at
                least goes on, so that a full training is the result.
        """
        for level in reversed(range(len(self.levels.values) - 1)):
            values = self._values[level]
            num = max(len(values) // KEPT, int(is_over and not self._has_passed(level)))
            for configuration in sorted(values, key=lambda one: (-values[one], one))[:num]:
                if self._reached[configuration] == level:
                    return configuration
        return None

    def _has_passed(self, level: int) -> bool:
        return any(reached > level for reached in self._reached.values())
