"""What a strategy can do, known without importing torch.

Planning reads it before any worker starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from workbench.foundation.errors import ExperimentError
from workbench.training.strategies import STRATEGIES


@dataclass(frozen=True)
class Capabilities:
    """What a strategy can do.

    Attributes:
        max_workers: The most workers that can share a step; None for any number.
        holds_whole_model: Whether each worker holds all parameters, so that it can compute on its
            own.
        on_one_worker: Name of the strategy that makes the same step on a single worker with less
            overhead; None for this one itself.
        takes_exchange: Whether replicas can agree in other ways than by averaging each gradient.
        divides_state: Whether each worker holds only its share of the optimizer's state.
        axis: The dimension of the plan by which the workers of a replica divide the model; None
            where each worker is a replica.
        takes_shard: Whether replicas may divide parameters among as many of them as `plan.shard`
            says.
        is_exact: Whether N workers make the step of one worker, up to rounding.
        records_kernels: Whether CUDA graphs can record its passes, which wait for no other worker.
    """

    max_workers: int | None = None
    holds_whole_model: bool = True
    on_one_worker: str | None = None
    takes_exchange: bool = False
    divides_state: bool = False
    axis: str | None = None
    takes_shard: bool = False
    is_exact: bool = True
    records_kernels: bool = False

    @property
    def has_whole_step(self) -> bool:
        """Whether each worker can make a whole step.

        It holds the model and the optimizer's state.
        """
        return self.holds_whole_model and not self.divides_state

    @property
    def needs_replicas(self) -> bool:
        """Whether all it does is to divide among replicas: a single one only pays for it."""
        return self.divides_state and self.axis is None


BUILT_IN = {
    "single": Capabilities(max_workers=1, records_kernels=True),
    "ddp": Capabilities(on_one_worker="single", takes_exchange=True),
    "zero1": Capabilities(divides_state=True),
    "fsdp": Capabilities(divides_state=True, holds_whole_model=False, takes_shard=True),
    "tensor": Capabilities(holds_whole_model=False, axis="tensor", takes_shard=True),
    "pipeline": Capabilities(
        divides_state=True, holds_whole_model=False, axis="stages", takes_shard=True
    ),
}
BY_AXIS = {able.axis: name for name, able in BUILT_IN.items() if able.axis is not None}
"""The strategy for a model that is to be divided, by the dimension of the plan."""


def capabilities_of(name: str, *, field: str | None = "plan.strategy") -> Capabilities:
    """Return what a strategy can do; that of another package is imported for it.

    Args:
        name: A registered name.
        field: The dotted field to name where the name is unknown.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    return BUILT_IN.get(name) or STRATEGIES.load(name, field=field).capabilities


def strategies_that(can: Callable[[Capabilities], bool]) -> list[str]:
    """Return the strategies that can do something; those that cannot be imported are no choice.

    Args:
        can: From what a strategy can do to whether it is wanted.
    """
    found: list[str] = []
    for name in STRATEGIES.names():
        with contextlib.suppress(ExperimentError):
            if can(capabilities_of(name)):
                found.append(name)
    return found


def strategy_on(name: str, num_workers: int) -> str:
    """Return the strategy to use for a number of workers in place of `name`."""
    if num_workers == 1 and name in STRATEGIES:
        return capabilities_of(name).on_one_worker or name
    return name


def strategy_for_many(name: str) -> str:
    """Return the strategy that `name` stands in for on a single worker, or `name` itself."""
    return next((many for many, able in BUILT_IN.items() if able.on_one_worker == name), name)
