"""What a dimension of a plan declares.

Its values, their wording, and why the advisor may try others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes

PlanValue = int | str
AdvisedFor = Literal["speed", "memory", "nothing"]


@dataclass(frozen=True)
class Hardware:
    """What the default of a dimension may depend on.

    Attributes:
        has_gpu: Whether workers compute on GPUs.
        has_bf16: Whether these compute in bf16 at full speed.
        has_full_nodes: Whether there are several nodes, one of which holds several workers.
    """

    has_gpu: bool = False
    has_bf16: bool = False
    has_full_nodes: bool = False


@dataclass(frozen=True)
class Dimension:
    """The declaration of one dimension of a plan.

    Attributes:
        name: Name of the field, in Python, YAML and JSON.
        description: Help text, one sentence.
        default: The value of an old stored plan that does not have the dimension.
        choices: The values that may be written; None for any whole number from `minimum` on, or,
            where the default is a text, any name of a registry.
        minimum: The smallest number that may be written.
        unit: Unit of a number; None where it has none.
        wording: How `Plan.describe` writes a value; "" for the sizes, which it writes as a product.
        wordings: How it writes the values that have words of their own.
        unmentioned: The value that `Plan.describe` leaves out.
        aliases: Names of the same setting in other tools.
        short_names: Names in the section `plan`; elsewhere they may be parameters of a model.
        changes_result: Whether another value changes what is computed, not only how fast.
        advised_for: Why the advisor may try other values: for speed, to save memory where plans do
            not fit otherwise, or for nothing.
        candidates: The values that are tried where an experiment leaves the dimension open, by
            hardware. The first is the default. None for the sizes, which follow from the global
            batch.
        size_wording: How `Plan.describe` writes a size in bytes, which may be written besides
            choices; None where it may not.
        option_of: Name of the dimension to some values of which it belongs; at the others it is 0.

    Raises:
        TypeError: If there are no candidates, and it is none of the sizes.
    """

    name: str
    description: str
    default: PlanValue
    choices: tuple[PlanValue, ...] | None = None
    minimum: int = 1
    unit: str | None = None
    wording: str = "{}"
    wordings: Mapping[PlanValue, str] = field(default_factory=dict)
    unmentioned: PlanValue | None = None
    aliases: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    changes_result: bool = False
    advised_for: AdvisedFor = "nothing"
    candidates: Callable[[Hardware], tuple[PlanValue, ...]] | None = None
    size_wording: str | None = None
    option_of: str | None = None

    def __post_init__(self) -> None:
        if self.candidates is None and self.wording:
            raise TypeError(
                f"The dimension {self.name} of a plan needs `candidates`, of which the first is its"
                " value where an experiment leaves it open."
            )

    @property
    def is_number(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.default, int)

    @property
    def is_size(self) -> bool:
        """Whether it is a factor of the global batch."""
        return self.candidates is None

    @property
    def help(self) -> str:
        """The help text of forms and references."""
        also = " Changes the result, not only the speed." if self.changes_result else ""
        return self.description + also

    def accepts(self, value: object) -> bool:
        """Return whether a value is one of this dimension."""
        if self.choices is not None:
            return value in self.choices or (
                self.size_wording is not None and size_bytes(value) is not None
            )
        if isinstance(value, bool) or not isinstance(value, int if self.is_number else str):
            return False
        is_none = self.option_of is not None and value == 0
        return is_none or not isinstance(value, int) or value >= self.minimum

    def describe(self, value: PlanValue) -> str:
        """Return the words for a value; "" for one that goes without saying."""
        if self.size_wording is not None and size_bytes(value) is not None:
            return self.size_wording.format(value)
        wording = self.wordings.get(value, self.wording)
        words = "" if value == self.unmentioned else wording.format(value)
        return words.removesuffix("s") if value == 1 else words


def size_bytes(value: object) -> int | None:
    """Return the bytes of a size greater than 0; None for any other value.

    Example:
        >>> size_bytes("500MB"), size_bytes("blocks")
        (500000000, None)
    """
    try:
        found = parse_bytes(value) if isinstance(value, str) else 0
    except ExperimentError:
        return None
    return found or None


def declare(default: PlanValue, description: str, **declared: Any) -> Any:
    """Declare a dimension; arguments as the attributes of `Dimension`."""
    declared |= {"default": default, "description": description}
    return dataclasses.field(default=default, metadata={"dimension": declared})


def declare_exchange_option(
    description: str,
    wording: str,
    *,
    unit: str | None = None,
    minimum: int = 1,
    short_names: tuple[str, ...],
) -> Any:
    """Declare what belongs to some exchanges only."""
    return declare(
        0,
        description,
        wording=wording,
        unit=unit,
        minimum=minimum,
        unmentioned=0,
        changes_result=True,
        advised_for="speed",
        candidates=lambda hardware: (0,),
        option_of="exchange",
        short_names=short_names,
    )
