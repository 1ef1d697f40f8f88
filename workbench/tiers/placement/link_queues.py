"""Queues on links: a request waits while its link carries earlier ones.

Each machine of a tier has one link to the next tier. It carries one frame at a time, which takes
its bytes divided by the bandwidth. Answers do not wait, because they are no larger than requests
and come one after another like these. `policies` decides which requests are sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.tiers.placement.queues import Wait, wait_of
from workbench.tiers.placement.simulated_queues import Requests, ends_at_devices
from workbench.tiers.placement.system import System

NEGLIGIBLE_LOAD = 1e-3
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


def rate_of(requests: Requests, are_sent: np.ndarray | None = None) -> float:
    """Return how many of drawn requests there are per second.

    Args:
        requests: All requests.
        are_sent: (requests,): which requests count, or None for all.
    """
    number = len(requests.arrival_s) if are_sent is None else int(are_sent.sum())
    return number / max(1e-12, float(requests.arrival_s[-1] - requests.arrival_s[0]))


def played_link_waits_s(
    system: System,
    links_s: np.ndarray,
    ready_s: np.ndarray,
    device: np.ndarray,
    *,
    to: np.ndarray | None = None,
) -> np.ndarray:
    """Return how long each of some requests waits at all links on its way.

    Args:
        system: The system.
        links_s: How long each link is occupied by a request.
        ready_s: When each request is sent, in any order.
        device: The device that sends it.
        to: (requests,): the tier to which each is sent. By default, all go to the last tier.
    """
    waits_s, at_s = np.zeros(len(ready_s)), ready_s.astype(float)
    per_request_s = max(1e-12, float(np.ptp(ready_s))) if len(ready_s) else np.inf
    for link, (number, link_s) in enumerate(zip(num_links(system), links_s.tolist(), strict=False)):
        passing = np.arange(len(ready_s)) if to is None else np.flatnonzero(to > link)
        if len(passing) / per_request_s * link_s / number < NEGLIGIBLE_LOAD:
            at_s[passing] += link_s
            continue
        # Requests of different devices may overtake each other on the way.
        order = passing[np.argsort(at_s[passing], kind="stable")]
        sent = Requests(at_s[order], device[order] % number, order)
        ends = ends_at_devices(sent, np.full(len(order), link_s))
        waits_s[order] += ends - at_s[order] - link_s
        at_s[order] = ends
    return waits_s
