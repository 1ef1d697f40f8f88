"""The `plan` section of an experiment.

Its fields follow from the dimensions that `plan` declares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, create_model

from workbench.experiment.plan import DIMENSIONS, Dimension, PartialPlan, PlanValue
from workbench.experiment.plan.dimension import size_bytes
from workbench.experiment.setting_types import Auto, Section, exact_number, no_truth_value
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError


def _fields() -> Iterator[tuple[str, Any]]:
    for dimension in DIMENSIONS:
        yield dimension.name, (_type(dimension), _field(dimension))


def _type(dimension: Dimension) -> Any:
    if dimension.choices is not None:
        named = ("auto", *dimension.choices)
        return Literal[named] if dimension.size_wording is None else _name_or_size(named)
    if not dimension.is_number:
        return str
    number = Annotated[int, Field(ge=dimension.minimum), no_truth_value, exact_number]
    if dimension.minimum == 1:
        number = Annotated[int, Field(gt=0), no_truth_value, exact_number]
    return number | Auto


def _name_or_size(names: tuple[PlanValue, ...]) -> Any:
    def checked(written: str) -> str:
        if written not in names and size_bytes(written) is None:
            raise ExperimentError(
                f"{written!r} is neither a size nor one of its names",
                allowed=(
                    f"{', '.join(map(str, names))}, or a size such as 500MB, 1.5GiB or a number of"
                    " bytes"
                ),
            )
        return written

    def as_size(written: object) -> object:
        is_number = isinstance(written, int) and not isinstance(written, bool)
        return f"{written}B" if is_number else written

    schema = {"anyOf": [{"type": "string", "enum": list(names)}, {"type": "string"}]}
    return Annotated[str, BeforeValidator(as_size), AfterValidator(checked), WithJsonSchema(schema)]


def _field(dimension: Dimension) -> Any:
    is_name = dimension.choices is None and not dimension.is_number
    return Field(
        default="auto",
        description=dimension.help,
        min_length=1 if is_name else None,
        json_schema_extra={"unit": dimension.unit} if dimension.unit else None,
    )


_Fields: Any = create_model("_Fields", __base__=Section, **dict(_fields()))


class PlanSettings(_Fields):
    """How a trial uses hardware: global_batch = micro_batch x accumulation x replicas."""

    @property
    def decided(self) -> PartialPlan:
        """What is written; what is `auto` is open."""
        values = {dimension.name: getattr(self, dimension.name) for dimension in DIMENSIONS}
        return PartialPlan.of(**{name: value for name, value in values.items() if value != "auto"})


def find_other_value(
    plan: PlanSettings, search: Space, allowed: Mapping[str, Collection[PlanValue]]
) -> tuple[str, str] | None:
    """Return the first dimension that is written or searched with another value, and its dotted
    field.

    Args:
        plan: What is written.
        search: What is searched.
        allowed: The values that a dimension may have besides auto, by its name.
    """
    for name, values in allowed.items():
        searched, written = search.root.get(name), plan.decided.get(name)
        given = [written] if searched is None else searched.values() or []
        if any(value is not None and value not in values for value in given):
            return name, f"{'plan' if searched is None else 'search'}.{name}"
    return None
