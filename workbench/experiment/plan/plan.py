"""A plan as one typed value: complete, or with dimensions that are still open."""

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

    A replica consists of stages x tensor workers.

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
        """Copies of the model. The samples of a step are divided among them."""
        return self.workers // self.workers_per_replica

    @property
    def workers_per_replica(self) -> int:
        """Workers that share one copy of the model."""
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
        """Read a stored plan. Dimensions that it does not have get their defaults.

        Args:
            stored: What `to_json` wrote, in this version or another.

        Raises:
            ValueError: If workers, micro batch or accumulation is missing.
        """
        plan = PartialPlan.from_json(stored).complete()
        if plan is None:
            raise ValueError(f"a plan needs {', '.join(SIZES)}, got {dict(stored)}")
        return plan


@dataclass(frozen=True)
class PartialPlan:
    """A plan with dimensions that are still open, for an attempt or the advisor to decide.

    Attributes:
        values: Name and value of each decided dimension, in the order of `DIMENSIONS`.
    """

    values: tuple[tuple[str, PlanValue], ...] = ()

    @classmethod
    def of(cls, **values: PlanValue | None) -> PartialPlan:
        """Return a plan with these dimensions decided. None leaves a dimension open.

        Raises:
            ValueError: If there is no such dimension, or it cannot have this value.
        """
        for name, value in values.items():
            if name not in BY_NAME:
                raise ValueError(f"a plan has no {name!r}, only {', '.join(NAMES)}")
            if value is not None and not BY_NAME[name].accepts(value):
                raise ValueError(f"{value!r} is not a value of {name}")
        return cls(
            tuple((name, value) for name in NAMES if (value := values.get(name)) is not None)
        )

    @classmethod
    def of_plan(cls, plan: Plan) -> PartialPlan:
        """Return a complete plan as a partial one."""
        return cls(tuple(plan.items()))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PartialPlan:
        """Read a stored plan. Dimensions and values that this version does not know are ignored."""
        values = {name: stored[name] for name in NAMES if name in stored}
        return cls.of(
            **{name: value for name, value in values.items() if BY_NAME[name].accepts(value)}
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return the decided dimensions as they are stored and shown.

        The global batch is included if it is known. An option that does not apply is not.
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
        return any(name == other for other, _ in self.values)

    def __or__(self, other: PartialPlan) -> PartialPlan:
        """Return what either plan decides. If both decide a dimension, `other` wins."""
        return PartialPlan.of(**{**dict(self.values), **dict(other.values)})

    def only(self, names: Collection[str]) -> PartialPlan:
        """Return the plan with only some of its dimensions decided."""
        return PartialPlan(tuple(item for item in self.values if item[0] in names))

    def applicable(self) -> PartialPlan:
        """Return the plan without options that do not apply, such as those of another exchange."""
        return PartialPlan(
            tuple(
                (name, value)
                for name, value in self.values
                if value or BY_NAME[name].option_of is None
            )
        )

    def without(self, *names: str) -> PartialPlan:
        """Return the plan with some of its dimensions open."""
        return PartialPlan(tuple(item for item in self.values if item[0] not in names))

    def get(self, name: str) -> PlanValue | None:
        """Return the value of a dimension, or None if it is open."""
        return next((value for other, value in self.values if other == name), None)

    @property
    def workers(self) -> int | None:
        """The workers, or None if they are open."""
        return self._number("workers")

    @property
    def stages(self) -> int:
        """The stages of the model, or 1 if they are open."""
        return self._number("stages") or 1

    @property
    def tensor(self) -> int:
        """The parts of each large layer, or 1 if they are open."""
        return self._number("tensor") or 1

    @property
    def shard(self) -> int:
        """The replicas that divide the parameters, or 0 if it is open or the strategy decides."""
        return self._number("shard") or 0

    @property
    def workers_per_replica(self) -> int:
        """The workers that share one copy of the model, or 1 if that is open."""
        return self.stages * self.tensor

    @property
    def replicas(self) -> int | None:
        """The copies of the model, or None if the workers are open."""
        if self.workers is None:
            return None
        return self.workers // self.workers_per_replica

    @property
    def micro_batch(self) -> int | None:
        """The micro batch, or None if it is open."""
        return self._number("micro_batch")

    @property
    def accumulation(self) -> int | None:
        """The accumulation, or None if it is open."""
        return self._number("accumulation")

    @property
    def global_batch(self) -> int | None:
        """Samples per optimizer step, or None if one of the factors is open."""
        micro_batch, accumulation, replicas = self.micro_batch, self.accumulation, self.replicas
        if micro_batch is None or accumulation is None or replicas is None:
            return None
        return micro_batch * accumulation * replicas

    def complete(self) -> Plan | None:
        """Return the plan with defaults for open dimensions, or None if a size is open."""
        if any(name not in self for name in SIZES):
            return None
        values: dict[str, Any] = {dimension.name: dimension.default for dimension in DIMENSIONS}
        return Plan(**{**values, **dict(self.values)})

    def describe(self) -> str:
        """Write the plan for people, as `Plan.describe` does.

        If the global batch is open, it shows only the workers, and nothing for a single one.
        """
        if self.global_batch is not None:
            return ", ".join(words for words in (self.batch_text, self.work_text) if words)
        if self.workers in (None, 1):
            return ""
        return f"{self.workers} workers"

    @property
    def batch_text(self) -> str:
        """The global batch in full, as in `Plan.batch_text`, or "unknown" if a factor is open."""
        if self.global_batch is None or self.replicas is None:
            return "unknown"
        replicas = format_count(self.replicas, "replica")
        if self.workers_per_replica == 1:
            replicas = format_count(self.replicas, "worker")
        return (
            f"{format_count(self.global_batch, 'sample')} = {self.micro_batch} x"
            f" {self.accumulation} accumulated x {replicas}"
        )

    @property
    def work_text(self) -> str:
        """The plan without the factors of the global batch, such as `bf16, ddp`."""
        words = (BY_NAME[name].describe(value) for name, value in self.values)
        return ", ".join(word for word in words if word)

    def _number(self, name: str) -> int | None:
        value = self.get(name)
        if isinstance(value, int):
            return value
        return None
