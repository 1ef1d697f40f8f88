"""An optimizer divided among workers. Each worker updates some of the parameters.

Parameters are never cut. So an update is the same as on one worker, as long as it does not depend
on other parameters. The state is gathered on rank 0, which holds each tensor once. Dividing the
parameters and exchanging gradients is left to the strategies.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.strategy import OptimizerFactory, Worker, parameters_in
from workbench.training.strategies.tensor_shards import gathered, own_shard
from workbench.training.strategies.worker_group import Group, dist, receive_on_cpu

BUFFER_BYTES = 25 << 20
"""Parameters are sent in pieces of this size, like the gradients of `ddp`."""
Key = TypeVar("Key", int, str)


def owners(sizes: Sequence[int], num_workers: int) -> list[int]:
    """Return which worker updates each parameter, such that the largest share is small.

    Args:
        sizes: Bytes of each parameter.
        num_workers: Workers to divide them among.

    Example:
        >>> owners([10, 30, 20, 10], 2)
        [1, 0, 1, 0]
    """
    # Greedy: the largest parameter goes to the worker that holds the least.
    held, chosen = [0] * num_workers, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        chosen[index] = min(range(num_workers), key=lambda worker: held[worker])
        held[chosen[index]] += sizes[index]
    return chosen


class PartialOptimizer:
    """The optimizer of one worker's parameters. Its state uses the numbers of the whole model."""

    def __init__(
        self,
        make: OptimizerFactory,
        groups: Sequence[dict[str, Any]],
        held: Sequence[int],
        sent: Iterable[int],
        group: Group,
    ) -> None:
        """Make the optimizer of this worker.

        Args:
            make: Makes an optimizer.
            groups: All parameters in groups.
            held: The numbers of the parameters that this worker updates, in ascending order.
            sent: The numbers for which this worker contributes the state to the whole.
            group: The workers.
        """
        self._group, self._held, self._sent = group, list(held), frozenset(sent)
        numbers = itertools.count()
        ours = frozenset(held)
        self._numbers = [[next(numbers) for _ in item["params"]] for item in groups]
        own_groups = []
        for numbered, item in zip(self._numbers, groups, strict=True):
            pairs = zip(numbered, item["params"], strict=True)
            own_groups.append({**item, "params": [held for key, held in pairs if key in ours]})
        self._own = make(own_groups)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups, each with the parameters that this worker holds."""
        return self._own.param_groups

    def step(self) -> None:
        """Update the parameters of this worker."""
        if self._held:  # some optimizers fail without parameters
            self._own.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self._own.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that one worker would have, gathered on rank 0.

        Every worker must call it. The other ranks return their own part.
        """
        held = self.held_state()
        state = {
            number: {name: gathered(value) for name, value in values.items()}
            for number, values in held["state"].items()
        }
        sent = {number: values for number, values in state.items() if number in self._sent}
        state |= gather_on_first(sent, self._group)
        return {**held, "state": dict(sorted(state.items()))}

    def held_state(self) -> dict[str, Any]:
        """Return this worker's part of the state."""
        stored = self._own.state_dict()
        state = {self._held[place]: values for place, values in stored["state"].items()}
        groups = [
            {**item, "params": numbered}
            for item, numbered in zip(stored["param_groups"], self._numbers, strict=True)
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load this worker's part of the state of any optimizer of the same parameters."""
        places = {number: place for place, number in enumerate(self._held)}
        parameters = parameters_in(self._own.param_groups)
        groups = [
            {**item, "params": [places[number] for number in item["params"] if number in places]}
            for item in state["param_groups"]
        ]
        own = {}
        for number, values in state["state"].items():
            if number in places:
                place = places[number]
                like = parameters[place]
                own[place] = {name: own_shard(value, like) for name, value in values.items()}
        self._own.load_state_dict({"state": own, "param_groups": groups})


class DividedOptimizer(PartialOptimizer):
    """An optimizer divided among workers with the same parameters and gradients.

    Each worker sends its updated parameters to the others.

    Attributes:
        is_alone: Whether updates stay on this worker, for probes.
    """

    def __init__(self, make: OptimizerFactory, parameters: Iterable[Any], group: Group) -> None:
        """Make the optimizer of this worker's share.

        Args:
            make: Makes an optimizer.
            parameters: All parameters, or groups of them, the same on every worker.
            group: The workers.
        """
        given = list(parameters)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        self.is_alone = False
        self._parameters: list[Tensor] = parameters_in(groups)
        self._owners = owners(
            [parameter.nbytes for parameter in self._parameters], group.num_workers
        )
        held = [number for number, owner in enumerate(self._owners) if owner == group.rank]
        super().__init__(make, groups, held, held, group)
        self._groups = [
            {**own, "params": list(item["params"])}
            for own, item in zip(self._own.param_groups, groups, strict=True)
        ]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups that one worker would have."""
        return self._groups

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load this worker's part. See PartialOptimizer.load_state_dict."""
        super().load_state_dict(state)
        for own, whole in zip(self._own.param_groups, self._groups, strict=True):
            whole.update(_settings(own))

    def step(self) -> None:
        """Update this worker's share, and exchange the updated parameters."""
        # Schedules change the learning rate in the groups that they see, which are the whole ones.
        for own, whole in zip(self._own.param_groups, self._groups, strict=True):
            own.update(_settings(whole))
        super().step()
        if self._group.num_workers == 1 or self.is_alone:
            return
        for owner in range(self._group.num_workers):
            pairs = zip(self._parameters, self._owners, strict=True)
            updated = [parameter.detach() for parameter, its_owner in pairs if its_owner == owner]
            if updated:
                dist._broadcast_coalesced(self._group.torch_group(), updated, BUFFER_BYTES, owner)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self._parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def gather_on_first(
    parts: Mapping[Key, Mapping[str, Any]], group: Group
) -> dict[Key, dict[str, Any]]:
    """Return the parts of all workers on rank 0, and each worker's own part on the others.

    Every worker must call it. Tensors are sent one after another, from CPU to CPU, so that rank 0
    never holds more than one copy. Its own tensors are not copied.

    Args:
        parts: Tensors and plain values by two keys. No two workers share a first key.
        group: The workers.
    """
    gathered_parts = {key: dict(values) for key, values in parts.items()}
    for sender, described in enumerate(group.gather(_described(parts))):
        if sender == 0:
            continue
        if group.rank == 0:
            for key, values in described.items():
                gathered_parts[key] = {
                    name: _receive(value, sender) for name, value in values.items()
                }
        elif group.rank == sender:
            for values in parts.values():
                _send(values.values(), group)
    return gathered_parts


class _Form(NamedTuple):
    """The shape and type of a tensor that will be sent."""

    shape: torch.Size
    dtype: torch.dtype


def _described(parts: Mapping[Key, Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    return {
        key: {
            name: _Form(value.shape, value.dtype) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for key, values in parts.items()
    }


def _send(values: Iterable[Any], group: Group) -> None:
    for value in values:
        if isinstance(value, Tensor):
            group.send(value, 0, is_known=True).wait()


def _receive(value: Any, sender: int) -> Any:
    if not isinstance(value, _Form):
        return value
    return receive_on_cpu(value.shape, value.dtype, sender)


class DividedState(DataParallel):
    """The step of `ddp`, with the state of the optimizer divided among the workers."""

    capabilities = BUILT_IN["zero1"]

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer. See Strategy.setup."""
        divided: Any = functools.partial(DividedOptimizer, optimizer, group=worker.group)
        super().setup(model, divided, worker)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute without the other workers in this context. See Probeable.alone."""
        optimizer = cast(DividedOptimizer, self._optimizer)
        optimizer.is_alone = True
        try:
            with super().alone():
                yield
        finally:
            optimizer.is_alone = False
