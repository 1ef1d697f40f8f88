"""Queues on links: a request waits while its link carries earlier ones.

Each machine of a tier has one link to the next tier. It carries one frame at a time, which takes
its bytes divided by the bandwidth. Answers do not wait, because they are no larger than requests
and come one after another like these. `policies` decides which requests are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.tiers.placement.played_queues import Requests, ends_at_devices
from workbench.tiers.placement.queues import Wait, bounded_wait, wait_of, wait_of_times
from workbench.tiers.placement.system import System

_NEGLIGIBLE_LOAD = 1e-3
"""Below this load the mean wait is less than a two-thousandth of the time to carry a frame."""


def num_links(system: System) -> list[int]:
    """Return how many links between each tier and the next one are used."""
    # One device uses one edge only, however many there are. The links of the others stay idle.
    return np.minimum.accumulate(system.counts[:-1]).tolist()


def link_loads(system: System, links_s: np.ndarray, sent_per_s: float) -> dict[str, float]:
    """Return the share of time in which links carry requests and heartbeats, by their tiers.

    Args:
        system: The system.
        links_s: How long each link is occupied by a request, in the time that heartbeats leave.
        sent_per_s: Requests per second that are sent to the last tier, in all.
    """
    beats = system.heartbeat_load
    return _by_link(system, beats + (1.0 - beats) * _request_loads(system, links_s, sent_per_s))


def without_heartbeats(system: System, loads: Mapping[str, float]) -> dict[str, float]:
    """Return the share in which links carry requests, of the time that heartbeats leave.

    Like the entire load, it is 1 if a link is full. Unlike that, it is proportional to the
    requests.

    Args:
        system: The system.
        loads: Loads as `link_loads` returns them.
    """
    beats = _by_link(system, np.broadcast_to(system.heartbeat_load, len(system.names) - 1))
    return {name: (load - beats[name]) / (1.0 - beats[name]) for name, load in loads.items()}


def _request_loads(system: System, links_s: np.ndarray, sent_per_s: float) -> np.ndarray:
    """Return the share in which each link carries requests, of the time that heartbeats leave."""
    return sent_per_s * links_s / np.array(num_links(system))


def _by_link(system: System, values: np.ndarray) -> dict[str, float]:
    names = zip(system.names, system.names[1:], strict=False)
    return {
        f"{first}-{second}": value
        for (first, second), value in zip(names, values.tolist(), strict=False)
    }


def link_waits(
    system: System, links_s: np.ndarray, sent_per_s: float, *, before_s: float = 0.0
) -> list[Wait]:
    """Return how long requests to the last tier wait at links, each of which is M/D/1.

    In a row of links that follow one another one to one, only the slowest makes requests wait.
    Requests leave it far enough apart for the links after it, and requests that waited at a link
    before it do not wait again.

    Args:
        system: The system.
        links_s: How long each link is occupied by a request.
        sent_per_s: Requests per second that are sent to the last tier, in all.
        before_s: How long a machine of the first tier computes for each request before it is sent.

    Source: Pollaczek (1930) and Khinchine (1932); of queues in a row, Friedman (1965).
    """
    slowest: dict[int, float] = {}
    for number, link_s in zip(num_links(system), links_s.tolist(), strict=False):
        slowest[number] = max(link_s, slowest.get(number, 0.0))
    waits = []
    for number, link_s in slowest.items():
        # A device that computes longer than its link sends never finds the link occupied.
        if link_s > 0 and not (number == system.counts[0] and link_s <= before_s):
            wait = wait_of(sent_per_s / number, link_s)
            waits.append(Wait(wait.probability, wait.mean_s, constant_s=link_s))
    return waits


def bounded_waits(
    system: System, there_s: np.ndarray, share: float, longest_s: float
) -> tuple[Wait, ...]:
    """Return the waits of requests to the last tier that are only sent if the wait is short.

    The queue with the highest load is bounded. The requests that it admits also wait in the others.

    Args:
        system: The system.
        there_s: Times on the last tier.
        share: The share of the requests that would be sent if nothing waited.
        longest_s: The wait from which a request is not sent.
    """
    rate, first_s = system.total_per_s * share, float(system.stage_s[0, 0])
    # The 0 keeps `argmax` valid for a system of one tier, which has no links.
    loads = np.append(_request_loads(system, system.links_s, rate), 0.0)
    slowest, mean_s = int(np.argmax(loads)), float(there_s.mean())
    if loads[slowest] <= rate * mean_s / system.counts[-1]:
        queue = bounded_wait(rate, mean_s, system.counts[-1], longest_s)
        return queue, *link_waits(
            system, system.links_s, rate * (1.0 - queue.blocked), before_s=first_s
        )
    number = num_links(system)[slowest]
    queue = bounded_wait(rate / number, float(system.links_s[slowest]), 1, longest_s)
    rate *= 1.0 - queue.blocked
    # Links in a row with the slowest make nobody wait a second time: see `link_waits`.
    others_s = np.where(np.array(num_links(system)) == number, 0.0, system.links_s)
    others = link_waits(system, others_s, rate, before_s=first_s)
    return queue, wait_of_times(rate, there_s, system.counts[-1]), *others


def rate_of(requests: Requests, are_sent: np.ndarray | None = None) -> float:
    """Return how many of drawn requests there are per second.

    Args:
        requests: All requests.
        are_sent: (requests,): which requests count, or None for all.
    """
    number = len(requests.arrival_s) if are_sent is None else int(are_sent.sum())
    return number / max(1e-12, float(requests.arrival_s[-1] - requests.arrival_s[0]))


def played_link_waits_s(
    system: System, links_s: np.ndarray, ready_s: np.ndarray, device: np.ndarray
) -> np.ndarray:
    """Return how long each of some requests waits at all links to the last tier.

    Args:
        system: The system.
        links_s: How long each link is occupied by a request.
        ready_s: When each request is sent, in any order.
        device: The device that sends it.
    """
    waits_s, at_s = np.zeros(len(ready_s)), ready_s
    sent_per_s = 0.0
    if len(ready_s):
        sent_per_s = len(ready_s) / max(1e-12, float(np.ptp(ready_s)))
    for number, link_s in zip(num_links(system), links_s.tolist(), strict=False):
        if sent_per_s * link_s / number < _NEGLIGIBLE_LOAD:
            continue
        # Requests of different devices may overtake each other on the way.
        order = np.argsort(at_s, kind="stable")
        sent = Requests(at_s[order], device[order] % number, order)
        ends = np.empty(len(order))
        ends[order] = ends_at_devices(sent, np.full(len(order), link_s))
        waits_s, at_s = waits_s + (ends - at_s - link_s), ends
    return waits_s


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

    @classmethod
    def of(cls, system: System, sent_per_s: float) -> list[PlayedLinks]:
        """Return the links to each tier, without links that are almost unused.

        Args:
            system: The system.
            sent_per_s: Requests per second that may be sent, in all.
        """
        links = [
            (number, link_s, [0.0] * number)
            for number, link_s in zip(num_links(system), system.links_s.tolist(), strict=False)
        ]
        return [
            cls(
                [
                    link
                    for link in links[:tier]
                    if sent_per_s * link[1] / link[0] >= _NEGLIGIBLE_LOAD
                ]
            )
            for tier in range(len(system.names))
        ]

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
