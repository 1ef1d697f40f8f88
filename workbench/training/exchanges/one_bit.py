"""Gradients travel as their signs, with the mean magnitude of each parameter.

A 32nd of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from workbench.training.exchanges.allreduce import kept_for_callback, num_bytes_of
from workbench.training.exchanges.capabilities import BUILT_IN
from workbench.training.exchanges.error_feedback import ErrorFeedback, begin_gather, slices
from workbench.training.exchanges.exchange import Traffic

_BITS = 8
_SCALE_BYTES = 4


class OneBit(ErrorFeedback):
    """The mean of signs times magnitudes."""

    capabilities = BUILT_IN["onebit"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends; see TrafficStating.traffic."""
        return Traffic(num_bytes_of(shapes) / 32 + _SCALE_BYTES * len(shapes), "gather")

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Send signs and magnitudes; see ErrorFeedback.send."""
        where = slices(parts.values())
        scales = torch.stack([wanted[part].abs().mean() for part in where]).float()
        payload = torch.cat([scales.view(torch.uint8), _pack(wanted >= 0)])
        own_rank, num_replicas = self._replicas.rank, self._num_replicas
        sent = _decode(payload, where)
        wanted.sub_(sent)

        def mean(rows: list[Tensor]) -> Tensor:
            kept_for_callback(sent)
            total = torch.zeros_like(sent)
            for rank, row in enumerate(
                rows
            ):  # in the same order everywhere, so that all round alike
                total.add_(sent if rank == own_rank else _decode(row, where))
            return total.div_(num_replicas)

        return begin_gather(payload, self._group, mean)


def _decode(payload: Tensor, where: list[slice]) -> Tensor:
    """Return what a payload stands for."""
    num_scale_bytes = _SCALE_BYTES * len(where)
    scales = payload[:num_scale_bytes].clone().view(torch.float32)
    values = _unpack(payload[num_scale_bytes:], where[-1].stop).float()
    for part, scale in zip(where, scales.tolist(), strict=True):
        values[part].mul_(2.0 * scale).sub_(scale)
    return values


def _pack(is_set: Tensor) -> Tensor:
    """Return truth values as bits, the first in the lowest."""
    if is_set.device.type == "cpu":
        return torch.from_numpy(np.packbits(is_set.numpy(), bitorder="little"))
    filled = torch.nn.functional.pad(is_set.to(torch.uint8), (0, -is_set.numel() % _BITS))
    powers = 2 ** torch.arange(_BITS, device=is_set.device, dtype=torch.uint8)
    return (filled.view(-1, _BITS) * powers).sum(1, dtype=torch.uint8)


def _unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first bits of what `_pack` returned, each as a byte."""
    if packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.numpy(), count=count, bitorder="little"))
    shifts = torch.arange(_BITS, device=packed.device, dtype=torch.uint8)
    return (packed[:, None] >> shifts & 1).view(-1)[:count]
