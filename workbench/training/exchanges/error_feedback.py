"""Lossy exchanges, which add the unsent part of a step's gradients to the next step.

Nothing is lost for good: over many steps, only what is still unsent at the end is missing. Replicas
send the largest values, the signs, or products of thin matrices.

Sources: Seide et al. 2014, "1-Bit Stochastic Gradient Descent"; Karimireddy et al. 2019, "Error
Feedback Fixes SignSGD"; Vogels et al. 2019, "PowerSGD: Practical Low-Rank Gradient Compression for
Distributed Optimization".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from workbench.training.exchanges.allreduce import (
    AllReduce,
    begin_sum,
    kept_for_callback,
    num_bytes_of,
)
from workbench.training.exchanges.capabilities import BUILT_IN
from workbench.training.exchanges.exchange import Bucket, Replicas, Traffic

dist: Any = torch.distributed  # some of its names are made in C++, without types
_SAMPLED = 4096
"""How many values the threshold is estimated from."""
_MARGIN = 2.0
"""The estimated threshold lets through about this many times the values that are needed."""
_BITS = 8
_SCALE_BYTES = 4


class ErrorFeedback(AllReduce):
    """A lossy exchange that keeps a residual for each parameter."""

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Start without residuals. See Exchange.setup."""
        super().setup(parameters, replicas)
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._residuals: dict[str, Tensor] = {}
        self._of_buckets: dict[tuple[str, ...], Tensor] = {}

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Send a part of the bucket plus what earlier steps left unsent.

        See GradientExchange.reduce.
        """
        flat = bucket.buffer()
        parts = {self._names[id(parameter)]: parameter.numel() for parameter in bucket.parameters()}
        kept = self._kept(parts, flat)
        kept.add_(flat)
        # `send` takes what it sends out of `kept`, so the rest waits there for the next step.
        return self.send(kept, parts).then(lambda mean: flat.copy_(mean.value()))

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Start to send a part of `wanted`, and leave the rest in it.

        Args:
            wanted: The gradients of a bucket plus the unsent rest of earlier steps.
            parts: The number of values of each parameter, by name, in the order of `wanted`.

        Returns:
            The mean of the parts that the replicas have sent.
        """
        raise NotImplementedError

    def residuals(self) -> dict[str, Tensor]:
        """Return the unsent values, flat, by the name of the parameter."""
        nothing = {
            name: _zeros(parameter.numel(), parameter)
            for name, parameter in self._parameters.items()
            if name not in self._residuals
        }
        known = self._residuals | nothing
        return {name: known[name] for name in self._parameters}

    def state(self) -> dict[str, Any]:
        """Return the residuals of all replicas, a row for each. See Exchange.state."""
        residuals = self.residuals()
        # On the CPU: a GPU would have to hold as many copies of the model as there are replicas.
        own = torch.cat([residual.cpu() for residual in residuals.values()])
        is_first = self._replicas.rank == 0
        rows = None
        if is_first:
            rows = [torch.empty_like(own) for _ in range(self._num_replicas)]
        dist.gather(own, rows, dst=0, group=self._group)
        if rows is None:
            return {}
        split = torch.stack(rows).split([part.numel() for part in residuals.values()], dim=1)
        parts = zip(residuals, split, strict=True)
        return {"residuals": {name: part.clone() for name, part in parts}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load residuals. See Exchange.load.

        If the number of replicas has changed, each one takes the mean. Replicas send means, so the
        unsent total stays the same.
        """
        self._of_buckets = {}
        for name, rows in state.get("residuals", {}).items():
            parameter = self._parameters.get(name)
            if parameter is None or rows.shape[1] != parameter.numel():
                continue
            own = rows.mean(0)
            if len(rows) == self._num_replicas:
                own = rows[self._replicas.rank]
            self._residuals[name] = _zeros(parameter.numel(), parameter).copy_(own)

    def _kept(self, parts: Mapping[str, int], flat: Tensor) -> Tensor:
        """Return the residual of a bucket, one flat tensor for its parameters."""
        names = tuple(parts)
        # Torch rebuilds the buckets after the first step. A parameter may then be in another
        # bucket, and its residual moves along.
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


class Largest(ErrorFeedback):
    """The mean of the largest values of each bucket."""

    capabilities = BUILT_IN["topk"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends: values and their places. See KnowsTraffic.traffic."""
        return Traffic(2 * num_bytes_of(shapes) / self._plan.exchange_compression, "gather")

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Send the largest values. See ErrorFeedback.send."""
        places = _places_of_largest(
            wanted, math.ceil(wanted.numel() / self._plan.exchange_compression)
        )
        sent = wanted[places].float()
        wanted[places] -= sent
        num_values = wanted.numel()
        num_replicas = self._num_replicas

        def mean(rows: list[Tensor]) -> Tensor:
            total = torch.zeros(num_values, device=wanted.device)
            for row in rows:
                values, where = row.chunk(2)
                total.index_add_(0, where, values.clone().view(torch.float32))
            return total.div_(num_replicas)

        # The bits of the values are read as integers, so that one message carries both.
        payload = torch.cat([sent.view(torch.int32), places.int()])
        return begin_gather(payload, self._group, mean)


class OneBit(ErrorFeedback):
    """The mean of signs times magnitudes."""

    capabilities = BUILT_IN["onebit"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        return Traffic(num_bytes_of(shapes) / 32 + _SCALE_BYTES * len(shapes), "gather")

    def send(self, wanted: Tensor, parts: Mapping[str, int]) -> torch.futures.Future[Tensor]:
        """Send signs and magnitudes. See ErrorFeedback.send."""
        where = slices(parts.values())
        # With the mean magnitude of a parameter, its signs are off by the least squared error.
        scales = torch.stack([wanted[part].abs().mean() for part in where]).float()
        payload = torch.cat([scales.view(torch.uint8), _pack(wanted >= 0)])
        own_rank = self._replicas.rank
        num_replicas = self._num_replicas
        sent = _decode(payload, where)
        wanted.sub_(sent)

        def mean(rows: list[Tensor]) -> Tensor:
            kept_for_callback(sent)
            total = torch.zeros_like(sent)
            # Every replica adds in the same order, so rounding is the same on all of them.
            for rank, row in enumerate(rows):
                total.add_(sent if rank == own_rank else _decode(row, where))
            return total.div_(num_replicas)

        return begin_gather(payload, self._group, mean)


class LowRank(ErrorFeedback):
    """The mean of low-rank gradients (PowerSGD). Each step is one iteration of the power method."""

    # Torch has `powerSGD_hook`, but it sends whole gradients in the first steps. It also keeps
    # residuals by bucket, so a checkpoint could not continue on another number of replicas.
    capabilities = BUILT_IN["powersgd"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        sent = [self._sent_of(shape) for shape in shapes]
        return Traffic(4 * sum(sent), num_rounds=2)

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Draw the matrices that the iteration starts with. See Exchange.setup."""
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
        """Send two thin matrices for each parameter. See ErrorFeedback.send."""
        matrices, whole = [], []
        for name, part in zip(parts, slices(parts.values()), strict=True):
            if name in self._bases:
                rows = self._parameters[name].shape[0]
                matrices.append(_Matrix(name, wanted[part].view(rows, -1)))
            else:
                whole.append(part)
        # Algorithm 1 of Vogels et al. With the gradient M and the basis Q of the last step:
        # P = M Q is averaged and made orthonormal, Q = M^T P is averaged, and P Q^T is the result.
        # Only P and Q travel. Parameters without a basis travel whole, together with P.
        products = [matrix.wanted.float() @ self._bases[matrix.name] for matrix in matrices]
        sent = [*products, *(wanted[part] for part in whole)]
        first = torch.cat([values.reshape(-1) for values in sent]).float().div_(self._num_replicas)
        dist.all_reduce(first, group=self._group)
        sizes = [product.numel() for product in products]
        sizes += [part.stop - part.start for part in whole]
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
        """Return the residuals and the bases of the iteration. See Exchange.state."""
        return {
            **super().state(),
            "bases": {name: basis.cpu() for name, basis in self._bases.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Load residuals, and the bases if the rank is the same. See Exchange.load."""
        super().load(state)
        for name, basis in state.get("bases", {}).items():
            if name in self._bases and basis.shape == self._bases[name].shape:
                self._bases[name].copy_(basis)

    def _send_right(
        self, wanted: Tensor, matrices: list[_Matrix], lefts: list[Tensor], result: Tensor
    ) -> torch.futures.Future[Tensor]:
        """Send the second factors, and leave the error of the products in `wanted`."""
        rights = []
        for matrix, left in zip(matrices, lefts, strict=True):
            right = (left.T @ matrix.wanted.float()).T.contiguous()
            # The residual is the error of this replica's own product, before the mean is taken.
            matrix.wanted.addmm_(
                left.to(matrix.wanted.dtype), right.T.to(matrix.wanted.dtype), alpha=-1.0
            )
            rights.append(right)
        flat = torch.cat([right.reshape(-1) for right in rights]) if rights else result.new_zeros(1)
        # The matrices are views of `wanted`, which may itself be a view. Their places in `result`
        # follow from the offsets in the common storage.
        begin = wanted.storage_offset()

        def multiply(summed: torch.futures.Future[list[Tensor]]) -> Tensor:
            kept_for_callback(*lefts)
            where = slices(right.numel() for right in rights)
            for matrix, left, right, part in zip(matrices, lefts, rights, where, strict=True):
                mean = summed.value()[0][part].view_as(right)
                self._bases[matrix.name].copy_(mean)
                first = matrix.wanted.storage_offset() - begin
                result[first : first + matrix.wanted.numel()] = (left @ mean.T).view(-1)
            return result

        return begin_sum(flat.div_(self._num_replicas), self._group).then(multiply)

    def _sent_of(self, shape: Sequence[int]) -> int:
        """Return how many values are sent for a gradient."""
        rank, num_values = self._rank_of(shape), math.prod(shape)
        if not rank:
            return num_values
        return rank * (shape[0] + num_values // shape[0])

    def _rank_of(self, shape: Sequence[int]) -> int:
        """Return the rank at which a gradient is sent, or 0 if sending all of it costs no more."""
        if len(shape) < 2:
            return 0
        rows = shape[0]
        columns = math.prod(shape) // rows
        rank = min(self._plan.exchange_rank, rows, columns)
        if rank * (rows + columns) >= rows * columns:  # the factors are no smaller than the matrix
            return 0
        return rank


def begin_gather(
    payload: Tensor, group: torch.distributed.ProcessGroup, decode: Callable[[list[Tensor]], Tensor]
) -> torch.futures.Future[Tensor]:
    """Start to gather the payloads of all replicas, and make one tensor of them.

    Args:
        payload: A tensor of the same size on every replica.
        group: The replicas.
        decode: Computes the mean from the payloads, by rank.
    """
    rows = [torch.empty_like(payload) for _ in range(group.size())]
    work: Any = dist.all_gather(rows, payload, group=group, async_op=True)

    def decoded(gathered: torch.futures.Future[Any]) -> Tensor:
        gathered.value()  # raises the error if the exchange failed
        kept_for_callback(*rows)
        return decode(rows)

    return work.get_future().then(decoded)


def slices(sizes: Iterable[int]) -> list[slice]:
    """Return the slices of parts of these sizes, which follow each other."""
    places = []
    first = 0
    for size in sizes:
        places.append(slice(first, first + size))
        first += size
    return places


def _zeros(size: int, like: Tensor) -> Tensor:
    """Return zeros that are precise enough for small residuals next to large gradients."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.zeros(size, dtype=dtype, device=like.device)


def _places_of_largest(values: Tensor, count: int) -> Tensor:
    """Return the places of the values of the largest magnitude.

    Selecting from all of them takes long. So a threshold is estimated from a sample, and only the
    values above it are compared.
    """
    magnitudes = values.abs()
    size = values.numel()
    step = max(1, size // _SAMPLED)
    sampled = magnitudes[::step]
    # Aim at more values than needed: too low a threshold costs little, too high a threshold means
    # that all values must be compared after all.
    rank = math.ceil(_MARGIN * count / size * sampled.numel()) + 1
    if rank < sampled.numel():
        threshold = sampled.topk(rank, sorted=False).values.min()
        candidates = (magnitudes >= threshold).nonzero().view(-1)
        if len(candidates) >= count:
            return candidates[magnitudes[candidates].topk(count, sorted=False).indices]
    return magnitudes.topk(count, sorted=False).indices


def _decode(payload: Tensor, where: list[slice]) -> Tensor:
    """Return the values of a payload of `OneBit`."""
    num_scale_bytes = _SCALE_BYTES * len(where)
    scales = payload[:num_scale_bytes].clone().view(torch.float32)
    values = _unpack(payload[num_scale_bytes:], where[-1].stop).float()
    for part, scale in zip(where, scales.tolist(), strict=True):
        values[part].mul_(2.0 * scale).sub_(scale)  # a set bit is +scale, any other -scale
    return values


def _pack(is_set: Tensor) -> Tensor:
    """Pack truth values into bytes. The first value is the lowest bit."""
    if is_set.device.type == "cpu":  # numpy has a function for it, but cannot read a GPU
        return torch.from_numpy(np.packbits(is_set.numpy(), bitorder="little"))
    filled = torch.nn.functional.pad(is_set.to(torch.uint8), (0, -is_set.numel() % _BITS))
    powers = 2 ** torch.arange(_BITS, device=is_set.device, dtype=torch.uint8)
    return (filled.view(-1, _BITS) * powers).sum(1, dtype=torch.uint8)


def _unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first `count` bits that `_pack` has packed, each as a byte."""
    if packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.numpy(), count=count, bitorder="little"))
    shifts = torch.arange(_BITS, device=packed.device, dtype=torch.uint8)
    return (packed[:, None] >> shifts & 1).view(-1)[:count]


@dataclass(frozen=True)
class _Matrix:
    """A parameter whose gradient is sent as a product."""

    name: str
    wanted: Tensor
    """A view of the values to send, as a matrix."""
