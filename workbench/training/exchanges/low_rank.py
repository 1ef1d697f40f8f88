"""Gradients of matrices travel as products of two thin matrices.

Those of other parameters as they are.

Source: Vogels et al. 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from workbench.training.exchanges.allreduce import begin_sum, kept_for_callback
from workbench.training.exchanges.capabilities import BUILT_IN
from workbench.training.exchanges.error_feedback import ErrorFeedback, slices
from workbench.training.exchanges.exchange import Replicas, Traffic

dist: Any = torch.distributed  # some of its names are made in C++, without types


@dataclass(frozen=True)
class _Matrix:
    """A parameter whose gradient is sent as a product."""

    name: str
    wanted: Tensor
    """A view of what is to be sent, as a matrix."""


class LowRank(ErrorFeedback):
    """The mean of gradients of a low rank, found by a power iteration that goes on from step to
    step.
    """

    capabilities = BUILT_IN["powersgd"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends; see TrafficStating.traffic."""
        sent = [self._sent_of(shape) for shape in shapes]
        return Traffic(4 * sum(sent), num_rounds=2)

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Draw the matrices with which the iteration begins; see Exchange.setup."""
        super().setup(parameters, replicas)
        self._bases: dict[str, Tensor] = {}
        generator = torch.Generator().manual_seed(0)  # the same on every replica
        for name, parameter in parameters.items():
            rank = self._rank_of(parameter.shape)
            if rank:
                columns = parameter.numel() // parameter.shape[0]
                drawn = torch.randn(columns, rank, generator=generator)
                self._bases[name] = drawn.to(parameter.device)

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Send two thin matrices for each parameter; see ErrorFeedback.send."""
        matrices, whole = [], []
        for name, part in zip(parts, slices(parts.values()), strict=True):
            if name in self._bases:
                rows = self._parameters[name].shape[0]
                matrices.append(_Matrix(name, wanted[part].view(rows, -1)))
            else:
                whole.append(part)
        products = [each.wanted.float() @ self._bases[each.name] for each in matrices]
        first = torch.cat(
            [each.reshape(-1) for each in (*products, *(wanted[part] for part in whole))]
        )
        first = first.float().div_(self._num_replicas)
        dist.all_reduce(first, group=self._group)
        sizes = [each.numel() for each in products] + [part.stop - part.start for part in whole]
        means = [first[part] for part in slices(sizes)]
        lefts = [
            torch.linalg.qr(mean.view_as(product)).Q
            for mean, product in zip(means[: len(products)], products, strict=True)
        ]
        result = torch.empty_like(wanted)
        for part, mean in zip(whole, means[len(products) :], strict=True):
            result[part] = mean
            wanted[part] = 0.0
        return self._send_right(wanted, matrices, lefts, result)

    def state(self) -> dict[str, Any]:
        """Return residuals and where the iteration is; see Exchange.state."""
        return {
            **super().state(),
            "bases": {name: basis.cpu() for name, basis in self._bases.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over residuals and, of the same rank, where the iteration is; see Exchange.load."""
        super().load(state)
        for name, basis in state.get("bases", {}).items():
            if name in self._bases and basis.shape == self._bases[name].shape:
                self._bases[name].copy_(basis)

    def _send_right(
        self, wanted: Tensor, matrices: list[_Matrix], lefts: list[Tensor], result: Tensor
    ) -> torch.futures.Future[Tensor]:
        """Send the second factors, and leave what the products lack."""
        rights = []
        for each, left in zip(matrices, lefts, strict=True):
            right = (left.T @ each.wanted.float()).T.contiguous()
            each.wanted.addmm_(
                left.to(each.wanted.dtype), right.T.to(each.wanted.dtype), alpha=-1.0
            )
            rights.append(right)
        flat = torch.cat([each.reshape(-1) for each in rights]) if rights else result.new_zeros(1)
        begin = wanted.storage_offset()

        def multiply(summed: torch.futures.Future[list[Tensor]]) -> Tensor:
            kept_for_callback(*lefts)
            where = slices(each.numel() for each in rights)
            for each, left, right, part in zip(matrices, lefts, rights, where, strict=True):
                mean = summed.value()[0][part].view_as(right)
                self._bases[each.name].copy_(mean)
                first = each.wanted.storage_offset() - begin
                result[first : first + each.wanted.numel()] = (left @ mean.T).view(-1)
            return result

        return begin_sum(flat.div_(self._num_replicas), self._group).then(multiply)

    def _sent_of(self, shape: Sequence[int]) -> int:
        """Return how many values of a gradient are sent."""
        rank, num_values = self._rank_of(shape), math.prod(shape)
        return rank * (shape[0] + num_values // shape[0]) if rank else num_values

    def _rank_of(self, shape: Sequence[int]) -> int:
        """Return the rank at which a gradient is sent; 0 where that would be no fewer values."""
        if len(shape) < 2:
            return 0
        rows = shape[0]
        columns = math.prod(shape) // rows
        rank = min(self._plan.exchange_rank, rows, columns)
        return rank if rank * (rows + columns) < rows * columns else 0
