"""The step of a loss that counts something other than samples, such as targets that are kept.

The count of a step is known after all of its micro batches were computed on all workers. So
gradients of totals are accumulated and exchanged, in units of the samples of the step, and then
divided by the count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from workbench.training.strategies.shards import local_part


def is_counted(loss: Any) -> bool:
    """Return whether the parts of a step count by something else than their samples.

    See CountedLoss.
    """
    # A test for the protocol would take longer at each step.
    return getattr(loss, "is_counted", False)


class CountedStep:
    """The totals and counts of one step on one worker.

    Attributes:
        count: The count of the finished step over all workers.
        factor: The factor of its gradients.
    """

    count: Tensor
    factor: Tensor

    def __init__(self, num_samples: int) -> None:
        """Begin.

        Args:
            num_samples: Samples of the step over all workers.
        """
        self._num_samples = num_samples
        self._sums: Tensor | None = None
        self._share: Tensor | None = None

    @property
    def is_settled(self) -> bool:
        """Whether gradients were divided by the count of the step."""
        return self._share is not None

    def part(self, weight: float) -> float:
        """Return the factor of a micro batch's total in the backward pass.

        Args:
            weight: Its part of the samples of the step; 0 if it only fills up the number.
        """
        if not weight:
            return 0.0
        return 1.0 / self._num_samples

    def add(self, measured: Tensor, weight: float) -> None:
        """Add a micro batch.

        Args:
            measured: Its total and count, as `stacked` returns them.
            weight: See `part`.
        """
        if weight:
            self._sums = measured if self._sums is None else self._sums + measured

    def settle(
        self,
        parameters: Iterable[Tensor],
        total_of: Callable[[Tensor], Tensor],
        device: torch.device,
    ) -> Tensor:
        """Divide the gradients so far by the count of the step, after everything was added.

        Args:
            parameters: The parameters with the gradients of the step.
            total_of: Adds up over the workers that make the step together.
            device: The device of the worker.

        Returns:
            The factor for gradients that follow in the step.
        """
        own = self._sums
        if own is None:
            own = torch.zeros(2, device=device)
        self.count = total_of(own[1])
        # A step that counts nothing has no gradient, as 0 / 0 would end the training.
        inverse = torch.where(self.count == 0, 0.0, 1.0 / self.count)
        self.factor = inverse * self._num_samples
        self._share = own[0] * inverse
        gradients = [
            local_part(parameter.grad) for parameter in parameters if parameter.grad is not None
        ]
        by_type: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for gradient in gradients:
            by_type.setdefault((gradient.dtype, gradient.device), []).append(gradient)
        with torch.no_grad():
            for (dtype, where), some in by_type.items():
                torch._foreach_mul_(some, self.factor.to(where, dtype))  # type: ignore[attr-defined]
        return self.factor

    def finish(
        self,
        parameters: Iterable[Tensor],
        total_of: Callable[[Tensor], Tensor],
        device: torch.device,
    ) -> Tensor:
        """Divide the gradients by the count of the step, unless that was done before.

        Args:
            parameters: See `settle`.
            total_of: See `settle`.
            device: See `settle`.

        Returns:
            This worker's share of the loss of the step.
        """
        if self._share is None:
            self.settle(parameters, total_of, device)
        assert self._share is not None
        return self._share


def stacked(total: Tensor, count: Tensor | int | float) -> Tensor:
    """Return a total and a count as one detached tensor on the device."""
    total = total.detach().float()
    if not isinstance(count, Tensor):  # without a copy from the host, so that it can be recorded
        return torch.stack([total, torch.full_like(total, float(count))])
    return torch.stack([total, count.detach().to(total)])
