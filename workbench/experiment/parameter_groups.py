"""Settings for some of the parameters of a model, chosen by a pattern of their names."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeFloat

from workbench.experiment.setting_types import Section
from workbench.foundation.errors import ExperimentError


class ParameterGroup(Section):
    """What differs for the parameters whose names match."""

    lr_factor: NonNegativeFloat = Field(
        default=1.0, description="Factor by which their learning rate is multiplied."
    )
    weight_decay: NonNegativeFloat | None = Field(
        default=None, description="Their weight decay; null for that of the optimizer."
    )
    frozen: bool = Field(default=False, description="Leave them as they are.")
    frozen_epochs: NonNegativeFloat = Field(
        default=0.0, description="Leave them as they are for this many epochs, then train them."
    )


def _check_patterns(groups: dict[str, ParameterGroup]) -> dict[str, ParameterGroup]:
    for pattern, group in groups.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ExperimentError(f"is not a regular expression: {error}", field=pattern) from error
        if group.frozen and (group.lr_factor != 1.0 or group.weight_decay is not None):
            raise ExperimentError(
                "frozen parameters have neither a learning rate nor a weight decay", field=pattern
            )
        if group.frozen and group.frozen_epochs:
            raise ExperimentError(
                "parameters are frozen either for some epochs or always",
                field=pattern,
                next_step="Remove frozen or frozen_epochs.",
            )
    return groups


ParameterGroups = Annotated[dict[str, ParameterGroup], AfterValidator(_check_patterns)]
"""By a regular expression that is found in the names.

For each parameter the first that fits counts.
"""
