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
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from workbench.experiment.searched_fields import check_training_value
from workbench.experiment.setting_types import no_truth_value
from workbench.experiment.space import Fixed, Params, Space
from workbench.foundation.errors import ExperimentError

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
    def of(cls, fidelity: WrittenFidelity | None) -> Levels | None:
        """Return the levels of a fidelity; None if there is none, so all trainings are full."""
        if fidelity is None:
            return None
        ((name, written),) = fidelity.items()
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

    def check(self, search: Space, *, trains_model: bool) -> None:
        """Check that the setting is not searched as well, and may have each of the values.

        Raises:
            ExperimentError: If that is not so.
        """
        domain = search.root.get(self.name)
        if not isinstance(domain, Fixed) or domain.value != self.full:
            raise ExperimentError(
                f"{self.name} has the value {self.full} in full trainings and is also searched",
                field=f"search.{self.name}",
                next_step="Remove one of the two.",
            )
        if trains_model:
            for value in self.values:
                check_training_value(self.name, value, field=f"fidelity.{self.name}")
