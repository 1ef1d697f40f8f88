"""Simulate queues: many devices with one line each, and many servers with one line.

If service times are equal, the times of a queue are computed at once (Lindley's recursion as a
running maximum), otherwise in one pass over the requests. `policies` decides what requests do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

WARM_UP = 0.1
"""Share of the requests that is simulated first and not counted, because queues start empty."""


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival.

    Attributes:
        arrival_s: When each arrives, in seconds.
        device: The device at which it arrives.
        sample: The validation sample that it is like.
    """

    arrival_s: np.ndarray
    device: np.ndarray
    sample: np.ndarray

    @property
    def counted(self) -> slice:
        """Those after the warm-up."""
        return slice(int(len(self.arrival_s) * WARM_UP), None)


@dataclass(frozen=True)
class Work:
    """What requests compute at a server, alone or with others in one call.

    A call takes the longest part of its requests that does not grow with their number, and what
    each of them adds.

    Attributes:
        alone_s: (requests,): the time of a call with this request alone, in seconds.
        row_s: (requests,): by how much it makes a call longer, in seconds.
    """

    alone_s: np.ndarray
    row_s: np.ndarray

    def of(self, requests: np.ndarray) -> Work:
        """Return the work of some requests."""
        return Work(self.alone_s[requests], self.row_s[requests])

    def least_s(self, batch: int) -> np.ndarray:
        """Return the time of a server for each request if all batches are full, in seconds."""
        return self.row_s + (self.alone_s - self.row_s) / batch

    def mean_full_s(self, batch: int) -> float:
        """Return the mean time of a server for a request in full batches of drawn requests.

        Each call takes the longest part of its requests that does not grow with their number.

        Args:
            batch: Requests in a call.
        """
        fixed_s = np.sort(self.alone_s - self.row_s)
        below = (np.arange(len(fixed_s) + 1) / len(fixed_s)) ** batch
        longest_s = float(fixed_s @ np.diff(below))
        return float(self.row_s.mean()) + longest_s / batch


def draw_requests(
    num_requests: int, num_devices: int, per_device_s: float, num_samples: int, *, seed: int = 0
) -> Requests:
    """Draw requests that arrive at random.

    Args:
        num_requests: Number of requests.
        num_devices: Number of devices.
        per_device_s: Requests per second at one device.
        num_samples: Number of validation samples.
        seed: Seed of the draws.
    """
    random = np.random.default_rng(seed)
    gaps_s = random.exponential(1.0 / (per_device_s * num_devices), num_requests)
    return Requests(
        np.cumsum(gaps_s),
        random.integers(num_devices, size=num_requests),
        random.integers(num_samples, size=num_requests),
    )


def first_stages(
    requests: Requests, first_s: float, free_s: Sequence[float]
) -> Iterator[tuple[int, float]]:
    """Yield requests by number with the end of their first stage, in the order of these ends.

    Args:
        requests: The requests.
        first_s: How long a first stage takes.
        free_s: When each device has done all that it has begun. The reader changes it after each
            request, for what the device does for the request, before it reads the next one.
    """
    waiting: dict[int, deque[tuple[int, float]]] = {}
    begun: list[tuple[float, int, int]] = []  # of devices where requests wait, those that are next

    def follow(device: int) -> None:
        line = waiting[device]
        if not line:
            del waiting[device]
            return
        request, arrival = line.popleft()
        free = free_s[device]
        heapq.heappush(begun, ((arrival if arrival > free else free) + first_s, request, device))

    for request, (arrival, device) in enumerate(
        zip(requests.arrival_s.tolist(), requests.device.tolist(), strict=True)
    ):
        done = arrival + first_s
        while begun and begun[0][0] <= done:
            earlier = heapq.heappop(begun)
            yield earlier[1], earlier[0]
            follow(earlier[2])
        if device in waiting:
            waiting[device].append((request, arrival))
        elif free_s[device] > arrival:
            waiting[device] = deque([(request, arrival)])
            follow(device)
        else:
            yield request, done
    while begun:
        done, request, device = heapq.heappop(begun)
        yield request, done
        follow(device)


def ends_at_devices(requests: Requests, service_s: np.ndarray) -> np.ndarray:
    """Return when each request ends at its device, which serves them in their order.

    Args:
        requests: The requests.
        service_s: How long each computes there.
    """
    order = np.argsort(requests.device, kind="stable")
    arrival_s, service_s = requests.arrival_s[order], service_s[order]
    first = np.empty(len(order), dtype=bool)
    first[:1], first[1:] = True, np.diff(requests.device[order]) > 0
    group = np.cumsum(first) - 1
    begun = np.cumsum(service_s)
    work_s = np.add.reduceat(service_s, np.flatnonzero(first))
    begun -= (np.cumsum(work_s) - work_s)[group]  # counted from the first request of the device
    # Devices follow one another on one axis of time, far enough apart that none waits for another.
    shift_s = group * (float(requests.arrival_s[-1]) + float(work_s.max()))
    latest = np.maximum.accumulate(arrival_s - (begun - service_s) + shift_s) - shift_s
    ends = np.empty(len(order))
    ends[order] = latest + begun
    return ends


def ends_at_servers(ready_s: np.ndarray, service_s: np.ndarray, num_servers: int) -> np.ndarray:
    """Return when each request ends at equal servers with one line.

    Args:
        ready_s: When each joins the line, in any order.
        service_s: How long each computes.
        num_servers: Number of servers.
    """
    if not len(ready_s):
        return np.empty(0)
    order = np.argsort(ready_s, kind="stable")
    ready_s, service_s = ready_s[order], service_s[order]
    ends = np.empty(len(order))
    if np.ptp(service_s) == 0:
        ends[order] = _ends_with_equal_service(ready_s, float(service_s[0]), num_servers)
        return ends
    free_s = [0.0] * num_servers
    ends_in_order = []
    for ready, service in zip(ready_s.tolist(), service_s.tolist(), strict=True):
        begin = free_s[0]
        end = (ready if ready > begin else begin) + service
        heapq.heapreplace(free_s, end)
        ends_in_order.append(end)
    ends[order] = ends_in_order
    return ends


def ends_in_batches(
    ready_s: np.ndarray, work: Work, num_servers: int, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return when each request ends at equal servers with one line, and its share of their time.

    A free server takes all that wait, up to the size of a batch, and never waits for more.

    Args:
        ready_s: When each joins the line, in any order.
        work: What each computes.
        num_servers: Number of servers.
        batch: How many a server computes at once, at most.
    """
    if batch == 1 or not len(ready_s):
        return ends_at_servers(ready_s, work.alone_s, num_servers), work.alone_s
    order = np.argsort(ready_s, kind="stable")
    waits, rows_s = ready_s[order].tolist(), work.row_s[order].tolist()
    fixed_s = (work.alone_s - work.row_s)[order].tolist()
    free_s, first = [0.0] * num_servers, 0
    ends_in_order, shares_in_order = [], []
    while first < len(waits):
        begin_s, end = max(free_s[0], waits[first]), first + 1
        while end < len(waits) and end - first < batch and waits[end] <= begin_s:
            end += 1
        call_s = max(fixed_s[first:end]) + sum(rows_s[first:end])
        heapq.heapreplace(free_s, begin_s + call_s)
        ends_in_order += [begin_s + call_s] * (end - first)
        shares_in_order += [call_s / (end - first)] * (end - first)
        first = end
    ends, shares_s = np.empty(len(order)), np.empty(len(order))
    ends[order], shares_s[order] = ends_in_order, shares_in_order
    return ends, shares_s


class PlayedServers:
    """Equal servers with one line, whose requests come while others are computed.

    They do what `ends_in_batches` does, for a scheduler that has to know what has ended so far.
    """

    def __init__(self, num_servers: int, batch: int) -> None:
        """Start with an empty line.

        Args:
            num_servers: Number of servers.
            batch: How many requests a server computes at once, at most.
        """
        self._free_s, self._batch = [0.0] * num_servers, batch
        self._coming: list[tuple[float, int, float, float]] = []

    def send(self, request: int, ready_s: float, alone_s: float, row_s: float) -> None:
        """Send a request.

        Args:
            request: Its number.
            ready_s: When it joins the line, later than all moments that were played.
            alone_s: The time of a call with this request alone, in seconds.
            row_s: By how much it makes a call longer, in seconds.
        """
        heapq.heappush(self._coming, (ready_s, request, alone_s - row_s, row_s))

    def until(self, at_s: float) -> Iterator[tuple[float, float, list[int]]]:
        """Play until a moment.

        Args:
            at_s: The moment, in seconds.

        Yields:
            For each call that has begun: when it ends, how long a server takes for each of its
            requests, and these.
        """
        coming = self._coming
        while coming:
            ready_s, free_s = coming[0][0], self._free_s[0]
            begin_s = ready_s if ready_s > free_s else free_s
            if begin_s > at_s:
                return
            _, request, longest_s, call_s = heapq.heappop(coming)
            taken = [request]
            while coming and len(taken) < self._batch and coming[0][0] <= begin_s:
                _, request, fixed_s, row_s = heapq.heappop(coming)
                taken.append(request)
                longest_s, call_s = max(longest_s, fixed_s), call_s + row_s
            end_s = begin_s + longest_s + call_s
            heapq.heapreplace(self._free_s, end_s)
            yield end_s, (longest_s + call_s) / len(taken), taken


def _ends_with_equal_service(ready_s: np.ndarray, service_s: float, num_servers: int) -> np.ndarray:
    """Return when requests end if each of c servers takes every c-th of them."""
    rows = -(-len(ready_s) // num_servers)
    padded = np.full(rows * num_servers, np.inf)
    padded[: len(ready_s)] = ready_s
    done = (np.arange(rows) * service_s)[:, None]
    ends = (
        np.maximum.accumulate(padded.reshape(rows, num_servers) - done, axis=0) + done + service_s
    )
    return ends.ravel()[: len(ready_s)]
