"""What a step leaves unsent of the gradients is kept, and added to those of the next step.

So a sum that is sent over many steps lacks no more than what is kept at its end. Sources: Seide et
al. 2014, "1-Bit Stochastic Gradient Descent"; Karimireddy et al. 2019, "Error Feedback Fixes
SignSGD".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from workbench.training.exchanges.allreduce import AllReduce, kept_for_callback
from workbench.training.exchanges.exchange import Bucket, Replicas

dist: Any = torch.distributed  # some of its names are made in C++, without types


class ErrorFeedback(AllReduce):
    """A lossy exchange that keeps a residual for each parameter."""

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Begin without residuals; see Exchange.setup."""
        super().setup(parameters, replicas)
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._residuals: dict[str, Tensor] = {}
        self._of_buckets: dict[tuple[str, ...], Tensor] = {}

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Send a part of a bucket and of what is left from earlier steps.

        See GradientExchange.reduce.
        """
        flat = bucket.buffer()
        parts = {self._names[id(each)]: each.numel() for each in bucket.parameters()}
        kept = self._kept(parts, flat)
        kept.add_(flat)
        return self.send(kept, parts).then(lambda mean: flat.copy_(mean.value()))

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Begin to send a part of what is wanted, and leave the rest there.

        Args:
            wanted: The gradients of a bucket and what earlier steps left of them.
            parts: The numbers of values of its parameters, by name, in order.

        Returns:
            The mean of what the replicas have sent.
        """
        raise NotImplementedError

    def residuals(self) -> dict[str, Tensor]:
        """Return what is still unsent, flat, by the name of the parameter."""
        return {
            name: (
                self._residuals[name]
                if name in self._residuals
                else _zeros(parameter.numel(), parameter)
            )
            for name, parameter in self._parameters.items()
        }

    def state(self) -> dict[str, Any]:
        """Return the residuals of all replicas, a row for each; see Exchange.state."""
        residuals = self.residuals()
        # On the CPU: a GPU would have to hold as many copies of the model as there are replicas.
        own = torch.cat([each.cpu() for each in residuals.values()])
        is_first, rows = self._replicas.rank == 0, None
        if is_first:
            rows = [torch.empty_like(own) for _ in range(self._num_replicas)]
        dist.gather(own, rows, dst=0, group=self._group)
        if rows is None:
            return {}
        split = torch.stack(rows).split([each.numel() for each in residuals.values()], dim=1)
        return {
            "residuals": {name: part.clone() for name, part in zip(residuals, split, strict=True)}
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over residuals; see Exchange.load.

        On another number of replicas each takes the mean, which leaves what they will send together
        as it is.
        """
        self._of_buckets = {}
        for name, rows in state.get("residuals", {}).items():
            parameter = self._parameters.get(name)
            if parameter is not None and rows.shape[1] == parameter.numel():
                own = rows[self._replicas.rank] if len(rows) == self._num_replicas else rows.mean(0)
                self._residuals[name] = _zeros(parameter.numel(), parameter).copy_(own)

    def _kept(self, parts: Mapping[str, int], flat: Tensor) -> Tensor:
        """Return the residual of a bucket; torch forms other buckets after the first step."""
        names = tuple(parts)
        if names not in self._of_buckets:
            held = _zeros(flat.numel(), flat)
            for name, part in zip(names, held.split(list(parts.values())), strict=True):
                if name in self._residuals:
                    part.copy_(self._residuals[name])
                self._residuals[name] = part
            outdated = [known for known in self._of_buckets if set(known) & set(names)]
            for known in outdated:
                del self._of_buckets[known]
            self._of_buckets[names] = held
        return self._of_buckets[names]


def begin_gather(
    payload: Tensor, group: torch.distributed.ProcessGroup, decode: Callable[[list[Tensor]], Tensor]
) -> torch.futures.Future[Tensor]:
    """Begin to gather what every replica sends, and make one tensor of it.

    Args:
        payload: Of the same size on every replica.
        group: The replicas.
        decode: From the payloads, by rank, to the mean.
    """
    rows = [torch.empty_like(payload) for _ in range(group.size())]
    work: Any = dist.all_gather(rows, payload, group=group, async_op=True)

    def decoded(gathered: torch.futures.Future[Any]) -> Tensor:
        gathered.value()  # raises what went wrong
        kept_for_callback(*rows)
        return decode(rows)

    return work.get_future().then(decoded)


def slices(sizes: Iterable[int]) -> list[slice]:
    """Return where parts of these sizes lie, one after the other."""
    found, first = [], 0
    for size in sizes:
        found.append(slice(first, first + size))
        first += size
    return found


def _zeros(size: int, like: Tensor) -> Tensor:
    """Return zeros that hold small residuals beside large gradients."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.zeros(size, dtype=dtype, device=like.device)
