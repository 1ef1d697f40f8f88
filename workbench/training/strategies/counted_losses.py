"""Steps of a loss that counts something other than samples, such as targets that are not ignored.

The count of a step is known only when all workers have computed all of its micro batches. So the
gradients of totals are accumulated and exchanged first, and divided by the count afterwards. Until
then they are divided by the number of samples, which keeps them in the usual range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from workbench.training.strategies.tensor_shards import local_part


def is_counted(loss: Any) -> bool:
    """Return whether a loss counts something other than samples. See CountedLoss."""
    # Not isinstance with the protocol, which takes longer, and this runs at each step.
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
        """Start a step.

        Args:
            num_samples: Samples of the step over all workers.
        """
        self._num_samples = num_samples
        self._sums: Tensor | None = None
        self._share: Tensor | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the gradients have been divided by the count of the step."""
        return self._share is not None

    def part(self, weight: float) -> float:
        """Return the factor of a micro batch's total in the backward pass.

        Args:
            weight: Its part of the samples of the step. 0 means padding, so that all workers
                compute equally many micro batches.
        """
        if not weight:
            return 0.0
        return 1.0 / self._num_samples

    def add(self, measured: Tensor, weight: float) -> None:
        """Add a micro batch.

        Args:
            measured: The total and the count of the micro batch, as `stacked` returns them.
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
        """Divide the gradients so far by the count of the step. All micro batches must be added.

        Args:
            parameters: The parameters with the gradients of the step.
            total_of: Adds up a value over the workers that make the step together.
            device: The device of the worker.

        Returns:
            The factor for gradients that are still to come in this step.
        """
        own = self._sums
        if own is None:
            own = torch.zeros(2, device=device)
        self.count = total_of(own[1])
        # If a step counts nothing, its gradient is 0. Dividing 0 by 0 would end the training.
        inverse = torch.where(self.count == 0, 0.0, 1.0 / self.count)
        self.factor = inverse * self._num_samples
        self._share = own[0] * inverse
        gradients = [
            local_part(parameter.grad) for parameter in parameters if parameter.grad is not None
        ]
        # One kernel for all gradients of a type, instead of one for each gradient.
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
        """Divide the gradients by the count of the step, unless `settle` has done so already.

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
    if not isinstance(count, Tensor):
        # No copy from the host to the device, which CUDA graphs could not record.
        return torch.stack([total, torch.full_like(total, float(count))])
    return torch.stack([total, count.detach().to(total)])
