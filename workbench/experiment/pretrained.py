"""What a training begins with.

Weights from a file, and small trained additions to frozen ones (LoRA).

Reading the file and changing the model are left to the models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat

from workbench.experiment.setting_types import PositiveInt, Section
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ExperimentError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


_Patterns = tuple[Annotated[str, AfterValidator(_check_pattern)], ...]


class PretrainedWeights(Section):
    """Weights of a local file, by the names of the model's parameters and buffers."""

    path: str = Field(
        min_length=1,
        description=(
            "A file of safetensors or of torch.save, or a folder that holds one, such as an export."
        ),
    )
    strict: bool = Field(
        default=True,
        description=(
            "Refuse weights whose names or shapes are not those of the model; false loads what"
            " fits."
        ),
    )
    strip: str | None = Field(
        default=None,
        min_length=1,
        description="A prefix to remove from the names in the file; other names are then left out.",
    )
    prefix: str | None = Field(
        default=None, min_length=1, description="A prefix to add to the names in the file."
    )
    skip: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for names of the model that keep their new values, such as ^head."
        ),
    )


def _with_path(given: Any) -> Any:
    return {"path": given} if isinstance(given, str) else given


class LowRankAdapter(Section):
    """Train low-rank additions to linear layers in place of their weights (LoRA)."""

    method: Literal["lora"] = "lora"
    rank: PositiveInt = Field(default=8, description="Rank of the additions.")
    alpha: PositiveFloat | None = Field(
        default=None, description="They are scaled by alpha / rank; null for twice the rank."
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Dropout before the additions."
    )
    targets: tuple[str, ...] | Literal["auto"] = Field(
        default="auto",
        description=(
            "Names of the layers, or last parts of these, such as q_proj; auto: all linear layers."
        ),
    )
    unfrozen: _Patterns = Field(
        default=(),
        description=(
            "Regular expressions for names of parameters that are trained as a whole, such as"
            " ^head."
        ),
    )


Weights = Annotated[PretrainedWeights | None, BeforeValidator(_with_path)]
Adapter = LowRankAdapter | None


def weights_of(experiment: Experiment) -> list[str]:
    """Return the paths of all weights that a training of an experiment may begin with, searched
    ones too.
    """
    fixed = experiment.training.weights
    searched = experiment.search.root.get("weights")
    found = [] if fixed is None else [fixed.path]
    for value in (
        (searched.values() or []) if searched is not None and experiment.trains_model else []
    ):
        path = value.get("path") if isinstance(value, Mapping) else value
        found += [path] if isinstance(path, str) else []
    return found


def uses_adapter(experiment: Experiment) -> bool:
    """Return whether a training of an experiment may train an adapter."""
    searched = experiment.search.root.get("adapter") if experiment.trains_model else None
    values = [] if searched is None else searched.values() or []
    if experiment.trains_model and any(
        name.startswith("adapter.") for name in experiment.search.root
    ):
        return True
    return experiment.training.adapter is not None or any(value is not None for value in values)
