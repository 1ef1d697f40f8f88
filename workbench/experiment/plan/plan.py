"""A plan as one typed value, complete or with dimensions that are still open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from workbench.experiment.plan.dimensions import (
    BY_NAME,
    DIMENSIONS,
    NAMES,
    SIZES,
    Dimensions,
    PlanValue,
)
from workbench.foundation.formatting import format_count


@dataclass(frozen=True)
class Plan(Dimensions):
    """How a trial uses hardware: global_batch = micro_batch x accumulation x replicas.

    A replica takes stages x tensor workers.

    Example:
        >>> plan = Plan(workers=2, micro_batch=32, accumulation=4, precision="bf16", strategy="ddp")
        >>> plan.global_batch
        256
        >>> plan.describe()
        '256 samples = 32 x 4 accumulated x 2 workers, bf16, ddp'
    """

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, over all workers."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def replicas(self) -> int:
        """Copies of the model, among which the samples of a step are divided."""
        return self.workers // self.workers_per_replica

    @property
    def workers_per_replica(self) -> int:
        """Workers that hold one copy of the model together."""
        return PartialPlan.of_plan(self).workers_per_replica

    @property
    def batch_text(self) -> str:
        """The global batch in full: `256 samples = 32 x 4 accumulated x 2 workers`."""
        return PartialPlan.of_plan(self).batch_text

    def describe(self) -> str:
        """Write the plan for people: `256 samples = 32 x 4 accumulated x 2 workers, bf16, ddp`."""
        return PartialPlan.of_plan(self).describe()

    def items(self) -> Iterator[tuple[str, PlanValue]]:
        """Yield the name and the value of each dimension."""
        for dimension in DIMENSIONS:
            yield dimension.name, getattr(self, dimension.name)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the plan as it is stored and shown, with its global batch."""
        return PartialPlan.of_plan(self).to_json()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Plan:
        """Read a stored plan; dimensions that it does not have are at their defaults.

        Args:
            stored: What `to_json` wrote, in this version or another.

        Raises:
            ValueError: If it does not state workers, micro batch and accumulation.
        """
        plan = PartialPlan.from_json(stored).complete()
        if plan is None:
            raise ValueError(f"a plan needs {', '.join(SIZES)}, got {dict(stored)}")
        return plan


@dataclass(frozen=True)
class PartialPlan:
    """A plan of which some dimensions are still open: what an attempt or the advisor decides of it.

    Attributes:
        values: Name and value of each dimension that is decided, in the order of `DIMENSIONS`.
    """

    values: tuple[tuple[str, PlanValue], ...] = ()

    @classmethod
    def of(cls, **values: PlanValue | None) -> PartialPlan:
        """Return a plan with these dimensions decided; None leaves one open.

        Raises:
            ValueError: If there is no such dimension, or it does not have this value.
        """
        for name, value in values.items():
            if name not in BY_NAME:
                raise ValueError(f"a plan has no {name!r}, only {', '.join(NAMES)}")
            if value is not None and not BY_NAME[name].accepts(value):
                raise ValueError(f"{value!r} is not a value of {name}")
        return cls(
            tuple((name, found) for name in NAMES if (found := values.get(name)) is not None)
        )

    @classmethod
    def of_plan(cls, plan: Plan) -> PartialPlan:
        """Return a complete plan as a partial one."""
        return cls(tuple(plan.items()))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PartialPlan:
        """Read a stored plan; what this version does not know is left out."""
        known = {name: stored[name] for name in NAMES if name in stored}
        return cls.of(
            **{name: value for name, value in known.items() if BY_NAME[name].accepts(value)}
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return what is decided as it is stored and shown, with the global batch where that is
        known.

        An option that does not apply is left out.
        """
        stored: dict[str, JsonValue] = {}
        for name, value in self.applicable().values:
            stored[name] = value
            if name == SIZES[-1] and self.global_batch is not None:
                stored["global_batch"] = self.global_batch
        return stored

    def __bool__(self) -> bool:
        """Whether anything is decided."""
        return bool(self.values)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known, _ in self.values)

    def __or__(self, other: PartialPlan) -> PartialPlan:
        """Return what either decides; `other` wins where both do."""
        return PartialPlan.of(**{**dict(self.values), **dict(other.values)})

    def only(self, names: Collection[str]) -> PartialPlan:
        """Return what is decided of some dimensions."""
        return PartialPlan(tuple(item for item in self.values if item[0] in names))

    def applicable(self) -> PartialPlan:
        """Return what is decided, without options of an exchange that does not have them."""
        return PartialPlan(
            tuple(
                (name, value)
                for name, value in self.values
                if value or BY_NAME[name].option_of is None
            )
        )

    def without(self, *names: str) -> PartialPlan:
        """Return what is decided of all other dimensions."""
        return PartialPlan(tuple(item for item in self.values if item[0] not in names))

    def get(self, name: str) -> PlanValue | None:
        """Return the value of a dimension, None where it is open."""
        return next((value for known, value in self.values if known == name), None)

    @property
    def workers(self) -> int | None:
        """The workers, None where they are open."""
        return self._number("workers")

    @property
    def stages(self) -> int:
        """The stages of the model, 1 where they are open."""
        return self._number("stages") or 1

    @property
    def tensor(self) -> int:
        """The parts of each large layer, 1 where they are open."""
        return self._number("tensor") or 1

    @property
    def shard(self) -> int:
        """The replicas that divide parameters among them, 0 where that is left to the strategy or
        open.
        """
        return self._number("shard") or 0

    @property
    def workers_per_replica(self) -> int:
        """The workers that hold one copy of the model together, 1 where that is open."""
        return self.stages * self.tensor

    @property
    def replicas(self) -> int | None:
        """The copies of the model, None where the workers are open."""
        return None if self.workers is None else self.workers // self.workers_per_replica

    @property
    def micro_batch(self) -> int | None:
        """The micro batch, None where it is open."""
        return self._number("micro_batch")

    @property
    def accumulation(self) -> int | None:
        """The accumulation, None where it is open."""
        return self._number("accumulation")

    @property
    def global_batch(self) -> int | None:
        """Samples per optimizer step, None where one of its factors is open."""
        micro_batch, accumulation, replicas = self.micro_batch, self.accumulation, self.replicas
        if micro_batch is None or accumulation is None or replicas is None:
            return None
        return micro_batch * accumulation * replicas

    def complete(self) -> Plan | None:
        """Return the plan with its open dimensions at their defaults, None where a size is open."""
        if any(name not in self for name in SIZES):
            return None
        values: dict[str, Any] = {dimension.name: dimension.default for dimension in DIMENSIONS}
        return Plan(**{**values, **dict(self.values)})

    def describe(self) -> str:
        """Write what is decided for people, as `Plan.describe` does.

        Where the global batch is open, so may be the hardware: then only the workers are named.
        """
        if self.global_batch is None:
            return "" if self.workers in (None, 1) else f"{self.workers} workers"
        return ", ".join(words for words in (self.batch_text, self.work_text) if words)

    @property
    def batch_text(self) -> str:
        """The global batch in full, as in `Plan.batch_text`; "unknown" where a factor is open."""
        if self.global_batch is None or self.replicas is None:
            return "unknown"
        unit = "worker" if self.workers_per_replica == 1 else "replica"
        replicas = format_count(self.replicas, unit)
        return (
            f"{format_count(self.global_batch, 'sample')} = {self.micro_batch} x"
            f" {self.accumulation} accumulated x {replicas}"
        )

    @property
    def work_text(self) -> str:
        """What is decided apart from the factors of the global batch.

        Bf16, ddp, blocks recomputed.
        """
        words = (BY_NAME[name].describe(value) for name, value in self.values)
        return ", ".join(word for word in words if word)

    def _number(self, name: str) -> int | None:
        value = self.get(name)
        return value if isinstance(value, int) else None
