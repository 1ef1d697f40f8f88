"""A zoo entry that is one of several others, so that one sweep can search over kinds of models.

`family` names the other entry; its parameters are called `<family>_<parameter>`, and exist in a
search with `when: {family: <family>}`. What each parameter means is left to the entry that it
belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, Field, create_model, model_validator
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import (
    FittedConfiguration,
    ModelConfiguration,
    configuration_type,
    configure,
)

if TYPE_CHECKING:
    from torch import nn

Family = Literal["mlp", "convnet", "resnet", "boosted_trees", "forest"]
FAMILIES: tuple[Family, ...] = ("mlp", "convnet", "resnet", "boosted_trees", "forest")


class _OneOf(ModelConfiguration):
    """One of several models of the zoo, so that a sweep can search over kinds of models."""

    name = "one_of"

    # The fields beside it are added below, from those of the families.
    family: Family = Field("mlp", description="Which entry of the zoo.")

    @model_validator(mode="after")
    def _check_families(self) -> Self:
        for family in FAMILIES:
            _configured(self, family)
        return self

    @property
    def fitted(self) -> FittedConfiguration | None:
        """What is fitted, if the chosen family is; see ModelConfiguration.fitted."""
        return _configured(self, self.family).fitted

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the chosen family's model; see ModelConfiguration.build."""
        return _configured(self, self.family).build(
            input_shape=input_shape, num_outputs=num_outputs, vocabulary_size=vocabulary_size
        )


def _configured(chosen: BaseModel, family: Family) -> ModelConfiguration:
    prefix = f"{family}_"
    values = {
        name.removeprefix(prefix): getattr(chosen, name)
        for name in chosen.model_fields_set
        if name.startswith(prefix)
    }
    try:
        return configure(family, values, field="")
    except ExperimentError as error:
        raise error.about(f"{prefix}{(error.field or '').strip('.')}") from error


def _fields() -> dict[str, Any]:
    return {
        f"{family}_{name}": (
            field.rebuild_annotation(),
            Field(field.default, description=field.description),
        )
        for family in FAMILIES
        for name, field in configuration_type(family).model_fields.items()
    }


OneOfConfiguration = cast(
    "type[_OneOf]", create_model("OneOfConfiguration", __base__=_OneOf, **_fields())
)
