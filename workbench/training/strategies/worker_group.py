"""The workers of one trial as one group: where they meet, and how they add up values.

Rank 0 opens a TCP store once in its life. Every trial meets there under its own prefix, so a warm
worker meets the workers of its next trial within milliseconds. A single worker needs no group, and
makes one only for a strategy that requires it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import itertools
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import psutil
import torch
import torch.distributed

# Import this before there is a group. Its functions take the group that exists at the time of the
# import as their default argument, and would keep it alive forever.
import torch.distributed.nn.functional
from torch import Tensor
from torch.distributed import distributed_c10d

from workbench.foundation.errors import ExperimentError

dist: Any = torch.distributed  # some of its names are made in C++, without types

MEETING_TIMEOUT = datetime.timedelta(seconds=120)
CONNECT_TIMEOUT = datetime.timedelta(seconds=10)
CONNECT_ATTEMPTS = 3
"""Workers that meet again at once may wait forever for each other's connection, though rarely. So
they stop waiting after `CONNECT_TIMEOUT` and try again.
"""
COLLECTIVE_TIMEOUT = datetime.timedelta(hours=1)
"""Long, because rank 0 may wait for a decision about its report while the others wait for rank 0.
Dead workers are noticed much sooner, by their closed connections.
"""

_MAX_DIMENSIONS = 8
_DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.bool,
)
"""The types of tensors that one worker can send to another."""

_SHARED_GPUS = "workers that share a GPU with another one"
_OF_GROUP = "@"
_numbers = itertools.count()
_opened: tuple[str, Any] | None = None
_is_joined = False
"""Whether this process is in the group of a trial."""
_init_process_group = distributed_c10d.init_process_group
_left: Any = None
"""The group that was left last. `let_go` ends it.

If a strategy held the last reference, dropping the strategy would end the group while Python's lock
is held. The group's threads may be waiting for that lock, and both would wait forever.
"""


def open_meeting_point(host: str) -> str:
    """Return the address where workers can meet this process. The first call opens it.

    Args:
        host: Address of this machine as the others see it.

    Returns:
        `host:port`.
    """
    global _opened
    if _opened is None or _opened[0] != host:
        port, descriptor = _listen_on(host)
        store = dist.TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=MEETING_TIMEOUT,
            master_listen_fd=descriptor,
        )
        _opened = (host, store)
    return f"{host}:{_opened[1].port}"


def _listen_on(host: str) -> tuple[int, int | None]:
    """Listen on an address of this machine only: by itself, torch listens on all of them.

    Returns:
        The port, and the descriptor of the socket. They are 0 and None if the address belongs to no
        interface of this machine, as behind a translation of addresses. Torch then opens one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            return 0, None
        listening.listen()
        return listening.getsockname()[1], listening.detach()


def let_go() -> None:
    """End the connections of the group that was left. Exchanges of the others with it fail.

    Call this when only reference cycles still refer to the trial's model.
    """
    global _left
    if _left is not None:
        gc.collect()  # DistributedDataParallel refers to the group, and is part of such a cycle
        _left = None


@dataclasses.dataclass(frozen=True)
class Sent:
    """Something that is being sent to another worker."""

    under_way: tuple[Any, ...]

    def wait(self) -> None:
        """Return when it has been sent."""
        for work in self.under_way:
            work.wait(COLLECTIVE_TIMEOUT)  # by default, gloo would use CONNECT_TIMEOUT


@dataclasses.dataclass(frozen=True)
class Part:
    """Some workers of a group. By default, a single worker.

    Attributes:
        num_workers: Number of workers.
        handle: The group in torch.
    """

    num_workers: int = 1
    handle: Any = None

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over these workers. Each must call it in the same order."""
        if self.num_workers == 1:
            return values
        summed = values.clone()
        dist.all_reduce(summed, group=self.handle)
        return summed


class Group:
    """One worker's membership in the group of a trial.

    Attributes:
        rank: From 0 to num_workers - 1.
        num_workers: Workers of the trial.
        store: The store where the workers met, for exchanges without a collective. None for one
            worker.
        address: Address of this machine, as the other workers see it, or "" for one worker.
    """

    def __init__(
        self,
        rank: int = 0,
        num_workers: int = 1,
        device: torch.device | None = None,
        meeting: str | None = None,
    ) -> None:
        """Join the other workers, if there are any.

        Args:
            rank: From 0 to num_workers - 1.
            num_workers: Workers of the trial.
            device: Device of this worker, or None for the CPU.
            meeting: `host:port/prefix`, the same on every worker and new for every attempt.

        Raises:
            torch.distributed.DistError: If the others cannot be reached.
        """
        self.rank, self.num_workers = rank, num_workers
        self._device = device or torch.device("cpu")
        self._joined = self._shares_gpus = False
        self._parts: list[Any] = []
        self._name = meeting or f"alone {next(_numbers)}"
        self.store: Any = None
        self.address = ""
        if num_workers > 1:
            assert meeting is not None, "several workers need a place to meet"
            self.store = connect(meeting)
            self.address = _own_address(*_host_and_port(meeting))
            self._join(self.store)

    def mesh(self, **sizes: int) -> Any:
        """Return the group as a device mesh. Every worker must call it.

        Torch caches operations on tensors of a mesh. It reuses them for any mesh with the same
        shape and names, even if the groups of the first mesh have been left. So each group gives
        its dimensions unique names.

        Args:
            **sizes: Workers along each dimension. Their product is the number of workers. Ranks
                along the last dimension follow each other. `dimension_name` turns the name of a
                dimension of the mesh back into the one given here.

        Raises:
            ExperimentError: If some of the workers share a GPU.
        """
        self.torch_group()
        if self._shares_gpus:
            raise ExperimentError(
                "workers that share a GPU cannot divide parameters: NCCL allows one worker per GPU,"
                " and gloo cannot exchange shards that are on a GPU",
                field="resources.gpus_per_worker",
                allowed="1 or more with plan.strategy fsdp or tensor, and with plan.shard",
                next_step=(
                    "Give each worker a whole GPU, or choose the strategy ddp, zero1 or pipeline."
                ),
            )
        names = tuple(f"{name}{_OF_GROUP}{self._name}" for name in sizes)
        return dist.init_device_mesh(self._device.type, tuple(sizes.values()), mesh_dim_names=names)

    def torch_group(self) -> torch.distributed.ProcessGroup:
        """Return the process group of torch. If this worker is alone, this call makes one."""
        if not self._joined:
            self._join(dist.HashStore())
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def part(self, ranks: Sequence[int]) -> torch.distributed.ProcessGroup | None:
        """Return some of the workers as a process group, or None if this one is not among them.

        Every worker must call it with the same ranks, in the same order.
        """
        made = dist.new_group(list(ranks))
        if self.rank not in ranks:
            return None
        self._parts.append(made)
        return made

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over all workers.

        Every worker must call it in the same order.
        """
        if self.num_workers == 1:
            return values
        summed = values.clone()
        dist.all_reduce(summed)
        return summed

    def joined(self, values: Tensor) -> Tensor:
        """Return the rows of all workers, by rank. Only this worker's rows have a gradient.

        Every worker must call it in the same order. Workers may have different numbers of rows.
        """
        if self.num_workers == 1:
            return values
        nums = torch.zeros(self.num_workers, dtype=torch.int64, device=values.device)
        nums[self.rank] = len(values)
        ends = self.total(nums).cumsum(0).tolist()
        last = ends[self.rank]
        first = last - len(values)
        # Zeros where others have values: their sum is a gathering of rows of any number.
        rows = values.new_zeros((ends[-1], *values.shape[1:]))
        rows[first:last] = values.detach()
        rows = self.total(rows)
        return torch.cat([rows[:first], values, rows[last:]])

    def across(self, size: int) -> Part:
        """Return the workers that have the same place as this one in their replica.

        Every worker must call it. Rank r has place r % size.

        Args:
            size: Workers of a replica. The number of workers is a multiple of it.
        """
        if self.num_workers == size:
            return Part()
        made = [self.part(range(place, self.num_workers, size)) for place in range(size)]
        return Part(self.num_workers // size, made[self.rank % size])

    def send(self, values: Tensor, receiver: int, *, is_known: bool = False) -> Sent:
        """Start to send a tensor to one worker, through the memory of the host.

        Args:
            values: The tensor.
            receiver: The rank that calls `receive` for it.
            is_known: Whether the receiver knows its shape and type.

        Returns:
            The transfer, to wait for.
        """
        # The shape travels first, as a tensor of a fixed size, unless the receiver knows it.
        kept = values.detach().cpu().contiguous()
        if is_known:
            return Sent((dist.isend(kept, receiver),))
        form = torch.zeros(2 + _MAX_DIMENSIONS, dtype=torch.int64)
        form[: 2 + kept.ndim] = torch.tensor([_DTYPES.index(kept.dtype), kept.ndim, *kept.shape])
        return Sent(tuple(dist.isend(tensor, receiver) for tensor in (form, kept)))

    def receive(self, sender: int, like: Tensor | None = None) -> Tensor:
        """Return the next tensor that a worker has sent to this one, on its device.

        Args:
            sender: The rank that calls `send`.
            like: A tensor of the same shape and type, if these are known.
        """
        if like is not None:
            return receive_on_cpu(like.shape, like.dtype, sender).to(self._device)
        dtype, num_dimensions, *shape = receive_on_cpu(
            [2 + _MAX_DIMENSIONS], torch.int64, sender
        ).tolist()
        return receive_on_cpu(shape[:num_dimensions], _DTYPES[dtype], sender).to(self._device)

    def gather(self, content: Any) -> list[Any]:
        """Return the `content` of every worker, by rank.

        Every worker must call it in the same order.
        """
        if self.num_workers == 1:
            return [content]
        gathered: list[Any] = [None] * self.num_workers
        dist.all_gather_object(gathered, content)
        return gathered

    def broadcast(self, content: Any) -> Any:
        """Return the `content` of rank 0. Every worker must call it in the same order."""
        if self.num_workers == 1:
            return content
        sent = [content if self.rank == 0 else None]
        dist.broadcast_object_list(sent, src=0, device=self._device)
        return sent[0]

    def close(self) -> None:
        """Leave the group, so that this process can join another one.

        The others notice when the group is dropped. See `let_go`.
        """
        global _left, _is_joined
        if not self._joined:
            return
        self._joined = _is_joined = False
        _replace_in_modules(_init_unless_joined, _init_process_group)
        if dist.is_initialized():  # scripts may have destroyed it at their end
            _left, self._parts = (dist.group.WORLD, self._parts), []
            dist.destroy_process_group()
            _forget_operations()

    def _join(self, store: Any) -> None:
        global _left, _is_joined
        _left = None
        on_gpu = self._device.type == "cuda"
        # Each worker counts itself under the identity of its GPU. Any count above 1 tells all of
        # them to use gloo, because NCCL does not accept two workers on one GPU.
        if on_gpu and store.add(str(torch.cuda.get_device_properties(self._device).uuid), 1) > 1:
            store.add(_SHARED_GPUS, 1)
        _wait_for_all(store, self.num_workers)
        self._shares_gpus = on_gpu and store.add(_SHARED_GPUS, 0) > 0
        uses_nccl = on_gpu and not self._shares_gpus
        for attempt in range(CONNECT_ATTEMPTS):
            try:
                _init_process_group(
                    "cpu:gloo,cuda:nccl" if uses_nccl else "gloo",
                    store=dist.PrefixStore(str(attempt), store),  # no keys of a failed attempt
                    rank=self.rank,
                    world_size=self.num_workers,
                    timeout=CONNECT_TIMEOUT,
                    device_id=self._device if uses_nccl else None,
                )
                break
            except RuntimeError:
                if attempt == CONNECT_ATTEMPTS - 1:
                    raise
        distributed_c10d._set_pg_timeout(COLLECTIVE_TIMEOUT)
        _is_joined = self._joined = True
        _replace_in_modules(_init_process_group, _init_unless_joined)


def receive_on_cpu(shape: Sequence[int], dtype: torch.dtype, sender: int) -> Tensor:
    """Return a tensor that a worker sends to this one through the memory of the host."""
    received = torch.empty(shape, dtype=dtype)
    dist.irecv(received, sender).wait(COLLECTIVE_TIMEOUT)  # see Sent.wait
    return received


def dimension_name(full_name: str) -> str:
    """Return the name that `Group.mesh` was given for a dimension of a mesh."""
    return full_name.partition(_OF_GROUP)[0]


def _forget_operations() -> None:
    """Drop torch's cache of operations on a group's tensors, which would keep the group alive."""
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import _collective_utils, _redistribute
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        _clear_sharding_prop_cache()
        with contextlib.suppress(AttributeError):  # older versions of torch keep less
            _collective_utils.MeshTopoInfo.build_from_mesh.cache_clear()
            _redistribute._gen_transform_infos.cache_clear()
            _redistribute.clear_redistribute_planner_cache()


def _init_unless_joined(*arguments: Any, **options: Any) -> None:
    """Stand in for torch's `init_process_group`: do nothing while the trial's group is joined.

    After a script has left that group, it joins another one as usual.

    Raises:
        ExperimentError: If the script asks for another rank or size than the trial's group has.
    """
    if not (_is_joined and dist.is_initialized()):
        _init_process_group(*arguments, **options)
        return
    for name, known in (("world_size", dist.get_world_size()), ("rank", dist.get_rank())):
        if options.get(name, -1) not in (-1, known):
            raise ExperimentError(
                f"init_process_group was called with {name}={options[name]}, "
                f"but the group of the trial has {name}={known}",
                field="train",
                next_step=(
                    f"Remove {name}, or call torch.distributed.destroy_process_group() first."
                ),
            )


def _replace_in_modules(function: Any, replacement: Any) -> None:
    """Replace a function in torch, and in all modules that have imported it by name.

    Scripts for several processes start with `init_process_group`, and torch rejects a second call.
    A warm worker keeps the modules of a script from one trial to the next. So modules that were
    imported before the group was joined need the replacement as well.
    """
    name = _init_process_group.__name__
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is function:
            setattr(module, name, replacement)


def _wait_for_all(store: Any, num_workers: int) -> None:
    """Wait until every worker is at the meeting point. Some may still be starting."""
    if store.add("arrived", 1) == num_workers:
        store.set("all", "here")
    store.wait(["all"], MEETING_TIMEOUT)


def connect(meeting: str) -> Any:
    """Return the store where the workers of a trial meet.

    Args:
        meeting: `host:port/prefix`, the same on every worker and new for every attempt.
    """
    host, port = _host_and_port(meeting)
    prefix = meeting.partition("/")[2]
    _use_interface_of(_own_address(host, port))
    if _opened is not None and (host, port) == (_opened[0], _opened[1].port):
        return dist.PrefixStore(prefix, _opened[1])
    store = dist.TCPStore(
        host, port, is_master=False, wait_for_workers=False, timeout=MEETING_TIMEOUT
    )
    return dist.PrefixStore(prefix, store)


def _host_and_port(meeting: str) -> tuple[str, int]:
    host, _, port = meeting.partition("/")[0].rpartition(":")
    return host, int(port)


def _own_address(host: str, port: int) -> str:
    """Return the address of this machine from which a meeting point is reached."""
    # Connecting a UDP socket sends nothing. It only lets the system choose the route.
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
    ) as probe:
        probe.connect((host, port))
        return probe.getsockname()[0]


def _use_interface_of(own_address: str) -> None:
    """Let gloo and NCCL use the network over which the meeting point is reached.

    By default, gloo takes the interface that the host name resolves to. Other nodes may not see it.
    """
    for interface, addresses in psutil.net_if_addrs().items():
        if any(item.address == own_address for item in addresses):
            for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(variable, interface)
