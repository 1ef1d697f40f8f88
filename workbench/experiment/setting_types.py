"""The building blocks of settings: the class `Section`, and number types with units and limits.

The settings themselves are in the modules of the sections.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from workbench.experiment.budget_units import parse_energy_wh, parse_money, price_text
from workbench.experiment.domain import MAX_EXACT
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes, parse_count, parse_duration_s
from workbench.foundation.validation_errors import Checked

Auto = Literal["auto"]
TokenKind = Literal["words", "spaces"]
"""How to split a text. words: words and signs in lower case. spaces: at spaces, unchanged."""
no_truth_value = BeforeValidator(lambda given: _no_truth_value(given))
exact_number = AfterValidator(lambda given: _exact(given))
ExactInt = Annotated[int, exact_number]
GradientHook = Annotated[str, Field(pattern=r"^[^:\s]+:[^:\s]+$")]
"""A function outside the workbench: package.module:function."""
PositiveInt = Annotated[int, Field(gt=0), no_truth_value, exact_number]


def unit(name: str) -> Any:
    """Add the unit of a number to the schema, where forms read it."""
    return Field(json_schema_extra={"unit": name})


OptionalBytes = Annotated[PositiveInt | None, BeforeValidator(parse_bytes), unit("bytes")]
OptionalSeconds = Annotated[PositiveFloat | None, BeforeValidator(parse_duration_s), unit("s")]
OptionalEnergy = Annotated[PositiveFloat | None, BeforeValidator(parse_energy_wh), unit("Wh")]
OptionalPrice = Annotated[str | None, BeforeValidator(price_text)]
OptionalMoney = Annotated[
    PositiveFloat | None,
    BeforeValidator(lambda given, info: parse_money(given, info.data.get("price"))),
]
Epochs = Annotated[PositiveInt, unit("epochs")]
Samples = Annotated[PositiveInt, unit("samples")]
OptionalTokens = Annotated[PositiveInt | None, BeforeValidator(parse_count), unit("tokens")]
OpenSamples = Annotated[PositiveInt | Auto, unit("samples")]


def _no_truth_value(given: Any) -> Any:
    if isinstance(given, bool):
        raise PydanticCustomError("int_type", "a whole number")
    return given


def _exact(given: int) -> int:
    """Raise an error for a whole number that floats cannot represent exactly."""
    if abs(given) > MAX_EXACT:
        raise ExperimentError("the number is too large", allowed=f"at most {MAX_EXACT:,}")
    return given


class Section(Checked):
    """A part of an experiment.

    It is frozen, and an unknown key is an error. It writes only values that differ from their
    defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in written.items()
            if fields[key].is_required()
            or getattr(self, key) != fields[key].get_default(call_default_factory=True)
        }
