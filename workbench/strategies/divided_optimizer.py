"""An optimizer whose state is divided among workers that have the same parameters and gradients.

Each worker updates some of the parameters, whole ones, and sends them to the others. So the update is what it
is on one worker, as long as that of a parameter depends on no other parameter. Who exchanges gradients, and
how, is left to the strategies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.strategies.group import Group, dist
from workbench.strategies.strategy import OptimizerFactory

BUFFER_BYTES = 25 << 20
"""Parameters are sent in pieces of this size, like the gradients of `ddp`."""


def owners(sizes: Sequence[int], num_workers: int) -> list[int]:
    """Return which worker updates each parameter, so that the largest share is small.

    Args:
        sizes: Bytes of each parameter.
        num_workers: Workers to divide them among.

    Example:
        >>> owners([10, 30, 20, 10], 2)
        [1, 0, 1, 0]
    """
    held, chosen = [0] * num_workers, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        chosen[index] = min(range(num_workers), key=lambda worker: held[worker])
        held[chosen[index]] += sizes[index]
    return chosen


class DividedOptimizer:
    """What a strategy needs of an optimizer; the parameters and the state of a checkpoint are whole.

    Attributes:
        param_groups: The groups as they would be on one worker.
        is_alone: Whether updates stay on this worker, as probes need it.
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
        self._group, self.is_alone = group, False
        self._parameters: list[Tensor] = [each for item in groups for each in item["params"]]
        self._owners = owners([each.nbytes for each in self._parameters], group.num_workers)
        self._owned = [index for index, owner in enumerate(self._owners) if owner == group.rank]
        ours = {id(self._parameters[index]) for index in self._owned}
        self._share = make(
            [{**item, "params": [p for p in item["params"] if id(p) in ours]} for item in groups]
        )
        self.param_groups: list[dict[str, Any]] = [
            {**share, "params": list(item["params"])}
            for share, item in zip(self._share.param_groups, groups, strict=True)
        ]

    def step(self) -> None:
        """Update this worker's share, and exchange what was updated."""
        for share, whole in zip(self._share.param_groups, self.param_groups, strict=True):
            share["lr"] = whole["lr"]
        if self._owned:  # some optimizers refuse to update nothing
            self._share.step()
        if self._group.num_workers == 1 or self.is_alone:
            return
        for owner in range(self._group.num_workers):
            updated = [
                parameter.detach()
                for parameter, its_owner in zip(self._parameters, self._owners, strict=True)
                if its_owner == owner
            ]
            if updated:
                dist._broadcast_coalesced(self._group.torch_group(), updated, BUFFER_BYTES, owner)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self._parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as one worker would have it, gathered on rank 0; every worker must call it.

        One tensor after the other is sent to rank 0, which holds each once. The others return their share.
        """
        stored = self._share.state_dict()
        state = {self._owned[place]: values for place, values in stored["state"].items()}
        for owner, described in enumerate(self._group.gather(_described(state))):
            if owner == 0:
                continue
            for index, values in described.items():
                if self._group.rank == 0:
                    state[index] = {name: _receive(value, owner) for name, value in values.items()}
                elif self._group.rank == owner:
                    _send(state[index].values())
        return {"state": dict(sorted(state.items())), "param_groups": self._numbered(stored["param_groups"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this worker's share of what `state_dict` of any optimizer of the same parameters returned."""
        places = {index: place for place, index in enumerate(self._owned)}
        groups = [
            {**item, "params": [places[index] for index in item["params"] if index in places]}
            for item in state["param_groups"]
        ]
        share = {places[index]: values for index, values in state["state"].items() if index in places}
        self._share.load_state_dict({"state": share, "param_groups": groups})

    def _numbered(self, groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        numbers = itertools.count()
        return [
            {**share, "params": [next(numbers) for _ in whole["params"]]}
            for share, whole in zip(groups, self.param_groups, strict=True)
        ]


def _described(state: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return a state with the forms of its tensors in their place."""
    return {
        index: {
            name: (value.shape, value.dtype, value.device.type) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for index, values in state.items()
    }


def _send(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            dist.send(value.contiguous(), 0)


def _receive(value: Any, owner: int) -> Any:
    """Return a value of another worker, a tensor from there onto the CPU."""
    if not (isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], torch.dtype)):
        return value
    shape, dtype, device = value
    received = torch.empty(shape, dtype=dtype, device=device)
    dist.recv(received, owner)
    return received.cpu()
