"""Cheap trainings that show which configurations deserve a full one.

`fidelity: {image_size: [32, 128]}`.

The named setting has its last value in full trainings and smaller ones in cheap ones. Epochs of a
model are early stopping: see `aliases`. Which configuration is trained at which level is left to
the study.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, JsonValue

from workbench.experiment.samplers import samplers_for_fidelities
from workbench.experiment.searched_fields import check_training_value
from workbench.experiment.setting_types import no_truth_value
from workbench.experiment.space import Fixed, Params
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment

FACTOR = 3
"""Levels between the ends differ by about this factor."""
FULL_RUNG = 1000
"""Levels as whole numbers: thousandths of the full one."""
_EXAMPLE = "such as {image_size: [32, 128]}"

Number = Annotated[int | float, Field(gt=0), no_truth_value]


def _checked(given: dict[str, tuple[int | float, ...]]) -> dict[str, tuple[int | float, ...]]:
    if len(given) != 1:
        raise ExperimentError("only one setting makes trainings cheaper", allowed=_EXAMPLE)
    ((name, values),) = given.items()
    if len(values) < 2 or any(low >= high for low, high in itertools.pairwise(values)):
        raise ExperimentError(
            "a cheap training needs less than a full one",
            field=name,
            allowed="the smallest and the full value, or all values in ascending order",
        )
    return given


WrittenFidelity = Annotated[dict[str, tuple[Number, ...]], AfterValidator(_checked)]


@dataclass(frozen=True)
class Levels:
    """The levels of a fidelity.

    Attributes:
        name: The setting.
        values: Its values, ascending; the last one is that of full trainings.
    """

    name: str
    values: tuple[int | float, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> Levels | None:
        """Return the levels of an experiment; None if all trainings are full ones."""
        if experiment.fidelity is None:
            return None
        ((name, written),) = experiment.fidelity.items()
        if len(written) != 2:
            return cls(name, written)
        low, high = written
        num_steps = max(1, round(math.log(high / low, FACTOR)))
        between = [low * (high / low) ** (step / num_steps) for step in range(1, num_steps)]
        if all(isinstance(value, int) for value in written):
            between = [round(value) for value in between]
        return cls(name, tuple(dict.fromkeys([low, *between, high])))

    @property
    def full(self) -> int | float:
        """The value of full trainings."""
        return self.values[-1]

    def rung(self, value: int | float) -> int:
        """Return a level as a whole number, so that observations at different ones differ."""
        return max(1, round(FULL_RUNG * value / self.full))

    def lower(self, params: Mapping[str, JsonValue], level: int) -> Params:
        """Return what is trained at a level.

        Args:
            params: A configuration.
            level: Index of the level.
        """
        return {**params, self.name: self.values[level]}

    def complete(self, params: Mapping[str, JsonValue]) -> Params:
        """Return the configuration that was trained at any level."""
        return {**params, self.name: self.full}


def check_fidelity(experiment: Experiment) -> None:
    """Check that an experiment can be searched at several levels.

    Raises:
        ExperimentError: If a setting excludes it.
    """
    levels = Levels.of(experiment)
    if levels is None:
        return
    domain = experiment.search.root.get(levels.name)
    if not isinstance(domain, Fixed) or domain.value != levels.full:
        raise ExperimentError(
            f"{levels.name} has the value {levels.full} in full trainings and is also searched",
            field=f"search.{levels.name}",
            next_step="Remove one of the two.",
        )
    if experiment.trains_model:
        for value in levels.values:
            check_training_value(levels.name, value, field=f"fidelity.{levels.name}")
    _check_exclusions(experiment)


def _check_exclusions(experiment: Experiment) -> None:
    kind = experiment.sampler.kind
    if kind.learns_from_complete_only or kind.enumerates_grid or kind.is_population:
        raise ExperimentError(
            f"{experiment.sampler.name} learns nothing from trainings at a low fidelity",
            field="sampler.name",
            allowed=samplers_for_fidelities(),
        )
    if len(experiment.objectives) > 1:
        raise ExperimentError(
            "the value of one objective decides which configurations are trained at a higher level",
            field="fidelity",
            next_step="Remove it, or turn all objectives but one into constraints.",
        )
    if experiment.early_stop.pruner != "none":
        raise ExperimentError(
            "trainings at a low fidelity are compared at their ends",
            field="early_stop.pruner",
            next_step="Remove it, or fidelity.",
        )
    if experiment.repeats > 1:
        raise ExperimentError(
            "a configuration is trained once at each level of its fidelity",
            field="repeats",
            next_step="Remove it; confirm trains the best configurations again.",
        )
