"""What is known of the queues of further tiers, by which `mapping` places requests.

Simulations decide with it, and so do the processes of `workbench.tiers.processes`: both place
requests alike. It needs the standard library only, as tiers run on small devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A further tier as a board sees it.

    Attributes:
        tier: The number of the tier.
        send_s: Time of a request until it is there, without waiting.
        back_s: Time of the answer back.
        alone_s: Mean time of a machine for a request.
        queued_s: Mean time that a request adds where others wait, which a batch may make shorter.
        num_machines: Number of machines.
        links: For each link on the way where requests may wait, its place from the first one, 0,
            on, how many of them there are, and how long one is occupied.
    """

    tier: int
    send_s: float
    back_s: float
    alone_s: float
    queued_s: float
    num_machines: int
    links: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True)
class Known:
    """What a device needs to place its requests.

    Attributes:
        places: The further tiers.
        stay_s: How long a request is expected to take on its device, with what is charged for
            staying, in seconds. Infinite if it may not stay.
        sends_inputs: Whether a request is placed as a whole when it arrives.
    """

    places: tuple[Place, ...]
    stay_s: float
    sends_inputs: bool = False


@dataclass
class Line:
    """The requests that a device computes as a whole, as far as is known before they end.

    Attributes:
        num_requests: How many the device has, with the one that it computes.
        began_s: When it began that one, in seconds.
    """

    num_requests: int = 0
    began_s: float = 0.0

    def free_s(self, now_s: float, mean_s: float) -> float:
        """Return when the device is expected to have answered all of them, in seconds.

        Args:
            now_s: The time, in seconds.
            mean_s: How long it computes for a request in the mean.
        """
        if not self.num_requests:
            return now_s
        return max(now_s, self.began_s + mean_s) + (self.num_requests - 1) * mean_s


@dataclass
class Booking:
    """A request that a board expects at a place.

    Attributes:
        place: The number of the place on the board.
        machine: The machine that is expected to compute it.
        ready_s: When it is there, in seconds.
        finish_s: When it is expected to end there.
    """

    place: int
    machine: int
    ready_s: float
    finish_s: float


class Board:
    """What is known of the queues of further tiers, and of the links to them.

    Example:
        >>> board = Board([Place(1, 0.1, 0.1, 1.0, 1.0, 1)])
        >>> board.best(0, 0.0, stay_s=2.0)
        0
        >>> booking = board.book(0, 0, 0.0)
        >>> board.best(0, 0.0, stay_s=2.0) is None
        True
    """

    def __init__(self, places: Sequence[Place]) -> None:
        """Start with empty queues.

        Args:
            places: The further tiers.
        """
        self.places = tuple(places)
        self._free_s = [[0.0] * place.num_machines for place in places]
        # The same times in heaps, in which those that were corrected since are passed over.
        self._heaps = [[(0.0, machine) for machine in range(p.num_machines)] for p in places]
        # A link that several tiers are reached over is one queue, so its times are shared.
        free: dict[int, list[float]] = {}
        self._links = [
            PlayedLinks(
                [
                    (number, link_s, free.setdefault(hop, [0.0] * number))
                    for hop, number, link_s in place.links
                ]
            )
            for place in places
        ]

    def best(
        self, device: int, now_s: float, *, stay_s: float, lost: Collection[int] = ()
    ) -> int | None:
        """Return the place where a request is expected to end first, or None for its own device.

        Args:
            device: The device that has it.
            now_s: The time, in seconds.
            stay_s: When it would end there, with what that costs, in seconds.
            lost: The numbers of places that cannot be reached.
        """
        best_s, chosen = stay_s, None
        for number, place in enumerate(self.places):
            if number in lost:
                continue
            links = self._links[number]
            ready = now_s + place.send_s + (links.wait_s(device, now_s) if links.can_wait else 0.0)
            free, _ = self._first_free(number)
            finish = ready + place.alone_s if ready >= free else free + place.queued_s
            if finish + place.back_s < best_s:
                best_s, chosen = finish + place.back_s, number
        return chosen

    def book(self, number: int, device: int, now_s: float) -> Booking:
        """Expect a request at a place. How much it computes there is not known before it ends.

        Args:
            number: The place.
            device: The device that sends it.
            now_s: When it is sent, in seconds.
        """
        place, links = self.places[number], self._links[number]
        ready = now_s + place.send_s
        if links.can_wait:
            ready += links.wait_s(device, now_s)
            links.send(device, now_s)
        free, machine = self._first_free(number)
        finish = ready + place.alone_s if ready >= free else free + place.queued_s
        heapq.heapreplace(self._heaps[number], (finish, machine))
        self._free_s[number][machine] = finish
        return Booking(number, machine, ready, finish)

    def correct(self, booking: Booking, finish_s: float) -> None:
        """Note when a request really ended, which moves what its machine computes after it.

        Args:
            booking: The request.
            finish_s: When it ended, in seconds.
        """
        late_s = finish_s - booking.finish_s
        if late_s:
            free_s = self._free_s[booking.place]
            free_s[booking.machine] += late_s
            entry = (free_s[booking.machine], booking.machine)
            heapq.heappush(self._heaps[booking.place], entry)

    def _first_free(self, number: int) -> tuple[float, int]:
        """Return when the first machine of a place is free, in seconds, and which it is."""
        heap, free_s = self._heaps[number], self._free_s[number]
        while heap[0][0] != free_s[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0]


class PlayedLinks:
    """The links to one tier, on which requests are sent one by one, in order."""

    def __init__(self, links: Sequence[tuple[int, float, list[float]]]) -> None:
        """Take links in order.

        Args:
            links: For each hop, the number of links, how long a request occupies one, and when each
                is free.
        """
        self._links = tuple(links)
        self.can_wait = bool(self._links)
        """Whether a request may wait at all."""

    def wait_s(self, device: int, ready_s: float) -> float:
        """Return how long a request would wait if it were sent now."""
        at_s = ready_s
        for number, link_s, free_s in self._links:
            at_s = max(at_s, free_s[device % number]) + link_s
            ready_s += link_s  # what it takes without waiting, which `send_s` has already
        return at_s - ready_s

    def send(self, device: int, ready_s: float) -> None:
        """Send a request, for which later ones have to wait."""
        for number, link_s, free_s in self._links:
            ready_s = free_s[device % number] = max(ready_s, free_s[device % number]) + link_s
