"""Replicas add their steps to served parameters, without waiting for the slowest replica.

Some of the replicas serve the parameters. A replica sends the change that its step made, so the
optimizer, clipping and weight decay stay with the replica. When it reads the parameters, they
contain all of its own steps. Of the other replicas' steps, at most the last few may be missing:
`exchange_staleness` is the bound. Unless the bound is 0, values travel while the next step is
computed. Such a read starts one step earlier, so it must contain one step more.
`served_parameters` keeps and sends the values.

Sources: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server"; Dean et al. 2012, "Large Scale Distributed Deep Networks".
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from workbench.experiment.plan import Plan
from workbench.training.exchanges.allreduce import num_bytes_of
from workbench.training.exchanges.capabilities import BUILT_IN, Capabilities
from workbench.training.exchanges.exchange import Replicas, Traffic
from workbench.training.exchanges.local import LocalSteps
from workbench.training.exchanges.served_parameters import Own, OwnPart, Remote, Served, Server


class ParameterServer(LocalSteps):
    """No replica is more than `exchange_staleness` steps ahead of the steps that it reads."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["server"]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._num_servers = plan.exchange_servers
        self._max_staleness: int | None = plan.exchange_staleness
        self._own_part: OwnPart | None = None
        self._server: Server | None = None
        self._parts: list[Served] = []
        self._reading: Future[Tensor] | None = None

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends and gets back. See KnowsTraffic.traffic."""
        return Traffic(
            num_bytes_of(shapes),
            "serve",
            is_beside_next_step=self._max_staleness != 0,
            num_servers=self._num_servers,
        )

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Serve the parameters on the first replicas, an equal part on each.

        See Exchange.setup.
        """
        super().setup(parameters, replicas)
        self._has_stepped = False
        # Sums of many small changes need single precision. Also, numpy has no bf16, and values are
        # sent as numpy arrays.
        self._dtype = functools.reduce(
            torch.promote_types, {parameter.dtype for parameter in self._held}, torch.float32
        )
        self._start_values = self._flat()
        num_replicas = replicas.num_workers
        rank = replicas.rank
        self._num_servers = min(self._num_servers, num_replicas)
        if rank < self._num_servers:
            values = self._cut(self._start_values)[rank]
            self._own_part = OwnPart(values, num_replicas, in_order=self._max_staleness == 0)
            self._server = Server(self._own_part, replicas.address, num_replicas - 1)
        own_address = self._server.address if self._server is not None else None
        addresses = replicas.gather(own_address)
        for server, address in enumerate(addresses[: self._num_servers]):
            if server == rank and self._own_part is not None:
                self._parts.append(Own(self._own_part, rank))
            else:
                self._parts.append(Remote(address, rank))

    def after_step(self) -> None:
        """Add the change of the step, and take over the changes of the others.

        See ParameterExchange.after_step.
        """
        self._num_steps += 1
        self._has_stepped = True
        # The server adds the updates of all replicas, so each sends its share of their mean.
        update = (self._flat() - self._start_values).div_(self._replicas.num_workers)
        if self._max_staleness == 0:
            self._take_over(self._exchange(self._cut(update), self._num_steps))
            return
        read = self._end_reading()
        if read is None:
            read = self._start_values
        # The read was started before this step, so the step's own change is not in it yet.
        self._take_over(read + update)
        # Without a bound a read never waits for another replica.
        required = 0
        if self._max_staleness is not None:
            required = max(0, self._num_steps + 1 - self._max_staleness)
        self._begin_reading(self._cut(update), required)

    def agree(self) -> None:
        """Take over the steps of all replicas, unless none was made since.

        See ParameterExchange.agree.
        """
        if self._has_stepped:
            self._has_stepped = False
            self._end_reading()
            # After this, the servers have the updates of all replicas. A read need not wait.
            self._replicas.gather(None)
            self._take_over(self._exchange([None] * self._num_servers, 0))
            self._replicas.gather(None)  # nobody adds a step before all have read

    def load(self, state: Mapping[str, Any]) -> None:
        """Serve the current parameters. See Exchange.load."""
        super().load(state)
        self._end_reading()
        self._has_stepped = False
        self._start_values = self._flat()
        if self._own_part is not None:
            self._own_part.restart(self._cut(self._start_values)[self._replicas.rank])
        self._replicas.gather(None)  # nobody sends an update before all parts have restarted

    def close(self) -> None:
        """Leave the other replicas, which fail if they still need this one.

        See ParameterExchange.close.
        """
        for part in self._parts:
            part.close()
        if self._server is not None:
            self._server.close()

    def _begin_reading(self, updates: list[Tensor], num_steps: int) -> None:
        """Exchange in another thread, while the next step is computed."""
        reading: Future[Tensor] = Future()

        def read() -> None:
            try:
                reading.set_result(self._exchange(updates, num_steps))
            except Exception as error:  # raised where the values are needed
                reading.set_exception(error)

        threading.Thread(target=read, daemon=True).start()
        self._reading = reading

    def _end_reading(self) -> Tensor | None:
        """Return the values that were read in the meantime, or None."""
        reading = self._reading
        self._reading = None
        if reading is None:
            return None
        return reading.result()

    def _exchange(self, updates: Sequence[Tensor | None], num_steps: int) -> Tensor:
        """Add an update, and return values that contain `num_steps` steps of every replica."""
        for part, update in zip(self._parts, updates, strict=True):
            part.begin(update, num_steps)
        values_read = torch.empty_like(self._start_values)
        for part, values in zip(self._parts, self._cut(values_read), strict=True):
            part.finish(values)
        return values_read

    @torch.no_grad()
    def _take_over(self, values: Tensor) -> None:
        sizes = [parameter.numel() for parameter in self._held]
        for held, own in zip(self._held, values.split(sizes), strict=True):
            held.copy_(own.view_as(held))
        # Read them back: parameters of less precision have rounded the values.
        self._start_values = self._flat()

    def _flat(self) -> Tensor:
        return torch.cat([parameter.reshape(-1).to("cpu", self._dtype) for parameter in self._held])

    def _cut(self, flat: Tensor) -> list[Tensor]:
        """Return the part of each server, without copying."""
        return list(flat.tensor_split(self._num_servers))


class Asynchronous(ParameterServer):
    """No replica ever waits for another one."""

    capabilities = BUILT_IN["asynchronous"]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._max_staleness = None
