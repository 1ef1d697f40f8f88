"""The section `fidelity`: cheap trainings that show which configurations deserve a full one.

With `{image_size: [32, 128]}`, a full training uses 128, and cheap ones use smaller images. If the
setting is the epochs of a model, it becomes early stopping: see `aliases`. The study decides which
configuration is trained at which level.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from workbench.experiment.searched_fields import check_training_value
from workbench.experiment.setting_types import no_truth_value
from workbench.experiment.space import Fixed, Params, Space
from workbench.foundation.errors import ExperimentError

FACTOR = 3
"""If only the ends are given, levels between them differ by about this factor."""
FULL_RUNG = 1000
"""The rung of a full training. Other levels are thousandths of it."""
_EXAMPLE = "such as {image_size: [32, 128]}"

_DURATIONS = frozenset(
    f"{unit}{ending}"
    for unit in ("epoch", "step", "iter", "iteration", "update", "round", "timestep")
    for ending in ("", "s")
)

Number = Annotated[int | float, Field(gt=0), no_truth_value]


def _checked(given: dict[str, tuple[int | float, ...]]) -> dict[str, tuple[int | float, ...]]:
    if len(given) != 1:
        raise ExperimentError("a fidelity needs exactly one setting", allowed=_EXAMPLE)
    ((name, values),) = given.items()
    if len(values) < 2 or any(low >= high for low, high in itertools.pairwise(values)):
        raise ExperimentError(
            "the values have to increase",
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
        values: Its values in ascending order. Full trainings use the last one.
    """

    name: str
    values: tuple[int | float, ...]

    @classmethod
    def of(cls, fidelity: WrittenFidelity | None) -> Levels | None:
        """Return the levels of a fidelity, or None if there is none and all trainings are full."""
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
    def is_duration(self) -> bool:
        """Whether the setting is how long a training takes, such as epochs or max_steps."""
        return not _DURATIONS.isdisjoint(re.split(r"[^a-z]+", self.name.lower()))

    @property
    def full(self) -> int | float:
        """The value of full trainings."""
        return self.values[-1]

    def rung(self, value: int | float) -> int:
        """Return a level as a whole number, by which results at different levels are told apart."""
        return max(1, round(FULL_RUNG * value / self.full))

    def lower(self, params: Mapping[str, JsonValue], level: int) -> Params:
        """Return a configuration for a training at a level.

        Args:
            params: A configuration.
            level: Index of the level.
        """
        return {**params, self.name: self.values[level]}

    def complete(self, params: Mapping[str, JsonValue]) -> Params:
        """Return a configuration for a full training."""
        return {**params, self.name: self.full}

    def check(self, search: Space, *, trains_model: bool) -> None:
        """Check that the setting is not searched, and can have each of the values.

        Args:
            search: What is searched.
            trains_model: Whether a model is trained, whose settings have types and limits.

        Raises:
            ExperimentError: If the setting is searched, or a value is not allowed.
        """
        domain = search.root.get(self.name)
        if not isinstance(domain, Fixed) or domain.value != self.full:
            raise ExperimentError(
                f"{self.name} is searched, but fidelity sets it to {self.full} in full trainings",
                field=f"search.{self.name}",
                next_step="Remove one of the two.",
            )
        if trains_model:
            for value in self.values:
                check_training_value(self.name, value, field=f"fidelity.{self.name}")
