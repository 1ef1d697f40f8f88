"""The scheduler `mapping`: each request goes where it is expected to end first.

`known_queues` keeps what is known of all queues. Plans also simulate it: no closed form is known of
queues that requests choose.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any, ClassVar

import numpy as np

from workbench.deploy.stages import accuracy_at
from workbench.tiers.placement.known_queues import Board, Booking, Known, Line, Place
from workbench.tiers.placement.link_queues import (
    NEGLIGIBLE_LOAD,
    link_loads,
    num_links,
    rate_of,
)
from workbench.tiers.placement.schedulers import Outcome, drawn_for, played_outcome
from workbench.tiers.placement.simulated_queues import (
    PlayedServers,
    Requests,
    Work,
    draw_requests,
    first_stages,
)
from workbench.tiers.placement.system import System

_CHARGES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Charges of requests that stay, relative to the time of the rest on a device."""
_CREDITS = (0.125, 0.25, 0.5, 0.75, 0.9)
"""Credits of such requests, relative to the time that the fastest further tier saves."""
_NUM_COMPARED = 6_000
"""Requests that are drawn to compare ways of placing them."""
_EQUAL = 1.01
_EQUAL_ACCURACY = 0.002
_FULL = 1.0 - 1e-6


@dataclass(frozen=True)
class Placing:
    """Where requests may go, and what staying costs.

    Attributes:
        tiers: The tiers that may compute a request, or its rest after the first stage.
        charge_s: By how much a request must end earlier on its own device to stay there. Below 0,
            it may end that much later.
        sends_inputs: Whether a request is placed as a whole when it arrives, by its inputs. It is
            otherwise placed after its first stage, by its features.
    """

    tiers: tuple[int, ...]
    charge_s: float = 0.0
    sends_inputs: bool = False


def places_of(system: System, placing: Placing) -> list[Place]:
    """Return the further tiers that a board compares.

    Args:
        system: The system.
        placing: Where requests may go.
    """
    if placing.sends_inputs:
        seen = system.sending_raw()
        exits = seen.exits
        alone_s, rows_s, send_s = seen.whole_s, seen.whole_rows_s, system.send_raw_s
        links_s = system.links_raw_s
    else:
        seen, goes_on = system.sending(), system.exits > 0
        exits = seen.exits[goes_on] if goes_on.any() else np.zeros(1, dtype=np.int64)
        alone_s, rows_s, send_s = seen.rest_s, seen.rest_rows_s, system.send_s
        links_s = system.links_s
    links = [
        (hop, number, link_s)
        for hop, (number, link_s) in enumerate(
            zip(num_links(system), links_s.tolist(), strict=False)
        )
        if system.total_per_s * link_s / number >= NEGLIGIBLE_LOAD
    ]
    places = []
    for tier in placing.tiers:
        if not tier:
            continue
        work = Work(alone_s[tier][exits], rows_s[tier][exits])
        places.append(
            Place(
                tier=tier,
                send_s=float(send_s[tier]),
                back_s=float(system.back_s[tier]),
                alone_s=float(work.alone_s.mean()),
                queued_s=work.mean_full_s(system.batch(tier)),
                num_machines=system.counts[tier],
                links=tuple(link for link in links if link[0] < tier),
            )
        )
    return places


@dataclass(frozen=True)
class Mapping:
    """Requests go where they are expected to end first, over any number of tiers.

    A request on its device delays the next one that starts there, and a request that is sent delays
    the ones sent after it. If every request considered only itself, a busy tier would be used until
    it is no faster than a device. So some ways to place requests are compared: all tiers or some of
    them, with a charge or a credit for requests that stay, and by inputs instead of features if
    answers are equally good. Of those whose expected p95 is within 1 % of the best, the one with
    the smallest mean is taken. All tiers without a charge are preferred if they are as good.

    Attributes:
        placing: Where requests may go, or None to choose it.

    Source: Naor, The Regulation of Queue Size by Levying Tolls (1969).
    """

    summary: ClassVar[str] = "each request where it is expected to end first"
    placing: Placing | None = None

    def fits(self, system: System) -> str | None:
        """Return why no tier can compute what the first stage leaves, or None if one can."""
        if any(True for _ in _candidates(system)):
            return None
        return "no tier has the memory for the stages after the first one"

    def settled(self, system: System) -> Mapping:
        """Return it with the best way to place requests.

        Args:
            system: The system.
        """
        if self.placing is not None:
            return self
        candidates = list(_candidates(system))
        if len(candidates) == 1:
            return Mapping(candidates[0])
        requests = draw_requests(
            _NUM_COMPARED, system.counts[0], system.arrivals_per_s, len(system.exits), seed=0
        )
        first = _expected(system, requests, candidates[0])
        if first.highest_load < 1.0 and first.quantile_s(0.95) <= _EQUAL * _least_p95_s(system):
            return Mapping(candidates[0])  # nothing waits, so nothing can be better
        others = [_expected(system, requests, placing) for placing in candidates[1:]]
        return Mapping(candidates[_best([first, *others], system)])

    def expect(self, system: System) -> Outcome:
        """Return what is expected of it: what becomes of drawn requests in the long run."""
        placing = self.settled(system).placing
        assert placing is not None
        return _expected(system, drawn_for(system), placing)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        placing = self.settled(system).placing
        assert placing is not None
        return _Played(system, requests, placing).outcome

    def to_json(self) -> dict[str, Any]:
        """Return where requests go as plain values."""
        return {} if self.placing is None else asdict(self.placing)


def _best(outcomes: Sequence[Outcome], system: System) -> int:
    """Return the number of the best outcome. The first of equally good ones is preferred."""
    times_s = np.array([outcome.quantile_s(0.95) for outcome in outcomes])
    loads = np.array([outcome.highest_load for outcome in outcomes])
    is_allowed = np.array([not outcome.over(system) for outcome in outcomes])
    if (loads < 1.0).any():
        times_s[loads >= 1.0] = np.inf
    if (is_allowed & np.isfinite(times_s)).any():
        times_s[~is_allowed] = np.inf
    if np.isinf(times_s).all():
        return int(np.argmin(loads))
    is_best = times_s <= _EQUAL * times_s.min()
    means_s = np.where(is_best, [outcome.response_s.mean() for outcome in outcomes], np.inf)
    return int(np.argmax(means_s <= _EQUAL * means_s.min()))


def _candidates(system: System) -> Iterator[Placing]:
    """Yield ways to place requests: first all tiers without a charge, then more special ones."""
    rest = [tier for tier, times_s in enumerate(system.rest_s) if np.isfinite(times_s[1:]).all()]
    if 0 in rest and not system.can_finish_here:
        rest.remove(0)
    further = tuple(tier for tier in rest if tier)
    if rest:
        yield Placing(tuple(rest))
    if (system.exits > 0).any():
        if 0 in rest and further:
            for charge_s in _charges(system, further):
                yield Placing(tuple(rest), charge_s)
        for tiers in chain.from_iterable(combinations(rest, size) for size in range(1, len(rest))):
            yield Placing(tiers)
    yield from _by_inputs(system)


def _by_inputs(system: System) -> Iterator[Placing]:
    """Yield ways to place whole requests, if answers to inputs are as good as to features."""
    sending, raw = system.sending(), system.sending_raw()
    accuracies = [accuracy_at(seen.evidence, seen.exits) for seen in (sending, raw)]
    if system.has_own_models or abs(accuracies[0] - accuracies[1]) > _EQUAL_ACCURACY:
        return
    tiers = [
        tier
        for tier, times_s in enumerate(system.whole_s)
        if np.isfinite(times_s).all() and (tier or system.can_finish_here)
    ]
    for some in chain.from_iterable(combinations(tiers, size) for size in range(1, len(tiers) + 1)):
        if any(some):  # only on the device, nothing is sent
            yield Placing(some, sends_inputs=True)


def _charges(system: System, further: Sequence[int]) -> list[float]:
    """Return charges and credits, those nearest to 0 first."""
    here_s = float(system.rest_s[0][system.exits[system.exits > 0]].mean())
    fastest_s = min(
        place.send_s + place.alone_s + place.back_s
        for place in places_of(system, Placing(tuple(further)))
    )
    saved_s = here_s - fastest_s
    charges_s = [max(0.0, -saved_s) + here_s * part for part in _CHARGES]
    charges_s += [-saved_s * part for part in _CREDITS if saved_s > 0]
    return sorted(charges_s, key=abs)


def _least_p95_s(system: System) -> float:
    """Return a p95 that no way to place requests can beat: that of requests that never wait."""
    sending, first_s = system.sending(), float(system.stage_s[0, 0])
    goes_on, exits = sending.exits > 0, sending.exits
    rests_s = [
        system.rest_s[tier] + system.send_s[tier] + system.back_s[tier]
        for tier in range(len(system.names))
    ]
    after_s = first_s + np.where(goes_on, np.min(rests_s, axis=0)[exits], 0.0)
    whole_s = np.min(
        [
            system.whole_s[tier] + system.send_raw_s[tier] + system.back_s[tier]
            for tier in range(len(system.names))
        ],
        axis=0,
    )[exits]
    return float(np.quantile(np.minimum(after_s, whole_s), 0.95, method="lower"))


def _expected(system: System, requests: Requests, placing: Placing) -> Outcome:
    """Return the outcome in the long run, with infinite response times in an overload."""
    played = _Played(system, requests, placing)
    used, outcome = _used(system, placing), played.evened
    if used < 1.0:
        return replace(
            outcome,
            load={name: min(load, _FULL) for name, load in outcome.load.items()},
            link_load={name: min(load, _FULL) for name, load in outcome.link_load.items()},
        )
    response_s = np.where(played.is_placed[requests.counted], np.inf, outcome.response_s)
    return replace(_with_highest(outcome, used), response_s=response_s)


def _with_highest(outcome: Outcome, used: float) -> Outcome:
    """Return an outcome whose busiest tier or link has at least the load of all the room.

    Others may be idle behind it: a server has no more to do because its link is full.
    """
    load, link_load = dict(outcome.load), dict(outcome.link_load)
    highest = outcome.highest_load
    # Few drawn requests may take a little less than what is full in the long run.
    for loads in (load, link_load):
        loads.update({name: used for name in loads if highest == loads[name] < used})
    return replace(outcome, load=load, link_load=link_load)


def _used(system: System, placing: Placing) -> float:
    """Return which part of all the room for requests is used. From 1 on, some queue grows."""
    placed_per_s, first_s = system.total_per_s, float(system.stage_s[0, 0])
    here = 0.0
    if placing.sends_inputs:
        if 0 in placing.tiers:
            here = system.counts[0] / float(system.until_s[0][system.exits].mean())
        links_s = system.links_raw_s
    else:
        first_load = system.arrivals_per_s * first_s
        if first_load >= 1.0:
            return first_load
        goes_on = system.exits > 0
        placed_per_s *= float(goes_on.mean())
        if not placed_per_s:
            return 0.0
        if 0 in placing.tiers:
            rest_s = float(system.rest_s[0][system.exits[goes_on]].mean())
            here = system.counts[0] * (1.0 - first_load) / max(rest_s, 1e-12)
        links_s = system.links_s
    machines = {
        place.tier: place.num_machines / max(place.queued_s, 1e-12)
        for place in places_of(system, placing)
    }
    # From the last tier on: a tier takes what it computes, and what the links after it carry.
    room = 0.0
    links = list(zip(num_links(system), links_s.tolist(), strict=False))
    for link, (number, link_s) in reversed(list(enumerate(links))):
        carried = number / link_s if link_s > 0 else np.inf
        room = min(carried, machines.get(link + 1, 0.0) + room)
    return placed_per_s / max(here + room, 1e-12)


def known_of(system: System, placing: Placing) -> Known:
    """Return what a device needs to place requests as simulations do.

    Args:
        system: The system.
        placing: Where requests may go.
    """
    places = tuple(places_of(system, placing))
    if 0 not in placing.tiers:
        return Known(places, np.inf, placing.sends_inputs)
    exits = system.exits
    if placing.sends_inputs:
        return Known(places, float(system.until_s[0][exits].mean()), sends_inputs=True)
    rest_s = system.rest_s[0][exits[exits > 0]]
    return Known(places, (float(rest_s.mean()) if len(rest_s) else 0.0) + placing.charge_s)


class _Further:
    """The further tiers while requests are placed: what is known of them, and what they do."""

    def __init__(
        self,
        board: Board,
        servers: Sequence[PlayedServers],
        works: Sequence[tuple[list[float], list[float]]],
        ends: np.ndarray,
        shares_s: np.ndarray,
    ) -> None:
        self._board, self._servers, self._works = board, servers, works
        self._ends, self._shares_s = ends, shares_s
        self._bookings: dict[int, Booking] = {}
        self._answers: list[tuple[float, int, float]] = []

    def place(self, request: int, device: int, now_s: float, *, stay_s: float) -> int | None:
        """Return the tier that a request is sent to, or None for its own device."""
        board, answers = self._board, self._answers
        self._play(now_s)
        while answers and answers[0][0] <= now_s:
            _, earlier, end_s = heapq.heappop(answers)
            board.correct(self._bookings.pop(earlier), end_s)
        chosen = board.best(device, now_s, stay_s=stay_s)
        if chosen is None:
            return None
        booking = self._bookings[request] = board.book(chosen, device, now_s)
        alone_s, rows_s = self._works[chosen]
        self._servers[chosen].send(request, booking.ready_s, alone_s[request], rows_s[request])
        return board.places[chosen].tier

    def finish(self) -> None:
        """Compute all that was sent."""
        self._play(np.inf)

    def _play(self, until_s: float) -> None:
        for place, servers in zip(self._board.places, self._servers, strict=True):
            for end_s, share_s, requests in servers.until(until_s):
                for request in requests:
                    answer_s = self._ends[request] = end_s + place.back_s
                    self._shares_s[request] = share_s
                    heapq.heappush(self._answers, (answer_s, request, end_s))


class _Played:
    """Requests placed one after another, and what became of them.

    A request is placed by what is known when that happens: by the mean time of requests, and by the
    answers so far.

    Attributes:
        where: The tier that computed each request, or its rest.
        is_placed: Whether it was placed at all. Others left at the first exit.
        outcome: What became of them.
    """

    def __init__(self, system: System, requests: Requests, placing: Placing) -> None:
        self._system, self._requests, self._placing = system, requests, placing
        self._sent = system.sending_raw() if placing.sends_inputs else system.sending()
        self._here = system.exits[requests.sample]
        self._there = self._sent.exits[requests.sample]
        self.where = np.zeros(len(requests.sample), dtype=np.int64)
        self._ends = np.empty(len(requests.sample))
        self._shares_s = np.zeros(len(requests.sample))
        if placing.sends_inputs:
            self.is_placed = np.ones(len(requests.sample), dtype=bool)
            self._place_inputs()
        else:
            self.is_placed = self._here > 0
            self._place_features()

    def _further(self) -> _Further:
        """Return the tiers that requests may be sent to."""
        system = self._system
        alone_s, rows_s = self._sent.rest_s, self._sent.rest_rows_s
        if self._placing.sends_inputs:
            alone_s, rows_s = self._sent.whole_s, self._sent.whole_rows_s
        places = places_of(system, self._placing)
        works = [
            (alone_s[place.tier][self._there].tolist(), rows_s[place.tier][self._there].tolist())
            for place in places
        ]
        servers = [PlayedServers(place.num_machines, system.batch(place.tier)) for place in places]
        return _Further(Board(places), servers, works, self._ends, self._shares_s)

    def _place_features(self) -> None:
        """Place what does not leave at the first exit, in the order in which that is known."""
        system, placing = self._system, self._placing
        further, stays = self._further(), 0 in placing.tiers
        here_s = system.rest_s[0].tolist() if stays else [np.inf] * system.stage_s.shape[1]
        first_s, device_free = float(system.stage_s[0, 0]), [0.0] * system.counts[0]
        devices, leaves = self._requests.device.tolist(), self._here.tolist()
        # Every simulated request passes this loop, where lists and local names are faster than
        # arrays and attributes.
        ends, where = self._ends, self.where
        charged_s = known_of(system, placing).stay_s
        for request, done in first_stages(self._requests, first_s, device_free):
            device = devices[request]
            device_free[device] = ends[request] = done
            if not leaves[request]:
                continue
            chosen = further.place(request, device, done, stay_s=done + charged_s)
            if chosen is None:
                device_free[device] = ends[request] = done + here_s[leaves[request]]
            else:
                where[request] = chosen
        further.finish()

    def _place_inputs(self) -> None:
        """Place whole requests as they arrive."""
        system, placing = self._system, self._placing
        further, stays = self._further(), 0 in placing.tiers
        whole_s = system.until_s[0][self._here].tolist() if stays else []
        mean_s = known_of(system, placing).stay_s
        lines: list[deque[tuple[float, float]]] = [deque() for _ in range(system.counts[0])]
        free = [0.0] * system.counts[0]
        ends, where = self._ends, self.where
        for request, (arrival, device) in enumerate(
            zip(self._requests.arrival_s.tolist(), self._requests.device.tolist(), strict=True)
        ):
            stay_s, line = np.inf, lines[device]
            if stays:
                while line and line[0][1] <= arrival:
                    line.popleft()
                known = Line(len(line), line[0][0]) if line else Line()
                stay_s = known.free_s(arrival, mean_s) + mean_s
            chosen = further.place(request, device, arrival, stay_s=stay_s)
            if chosen is None:
                begin = max(arrival, free[device])
                free[device] = ends[request] = begin + whole_s[request]
                line.append((begin, free[device]))
            else:
                where[request] = chosen
        further.finish()

    @cached_property
    def outcome(self) -> Outcome:
        """What became of the requests."""
        system, requests, where = self._system, self._requests, self.where
        is_raw = self._placing.sends_inputs
        links_s = system.links_raw_s if is_raw else system.links_s
        busy_s: dict[int, np.ndarray] = {0: self._device_s()}
        for tier in self._placing.tiers:
            if tier:
                busy_s[tier] = np.where(where == tier, self._shares_s, 0.0)
        passes = np.array([(where > link).mean() for link in range(len(links_s))])
        num_bytes = system.raw_bytes if is_raw else system.sent_bytes
        joules = system.raw_j if is_raw else system.send_j
        return played_outcome(
            system,
            requests,
            self._ends,
            self._accuracy(),
            work_s=busy_s,
            num_bytes=float(num_bytes[where][requests.counted].mean()),
            joules=float(joules[where][requests.counted].mean()),
            link_load=link_loads(system, links_s * passes, rate_of(requests)),
        )

    @property
    def evened(self) -> Outcome:
        """The outcome if all validation samples were drawn equally often."""
        system, counted = self._system, self._requests.counted
        placed = self.where[counted][self.is_placed[counted]]
        share = 1.0 if self._placing.sends_inputs else float((system.exits > 0).mean())
        is_raw = self._placing.sends_inputs
        sent_bytes = system.raw_bytes if is_raw else system.sent_bytes
        num_bytes = share * float(sent_bytes[placed].mean()) if len(placed) else 0.0
        return replace(self.outcome, bytes_per_sample=num_bytes)

    def _accuracy(self) -> float:
        """Return the share of correct answers if all samples were drawn equally often."""
        counted = self._requests.counted
        placed = self.where[counted][self.is_placed[counted]]
        sent = float((placed > 0).mean()) if len(placed) else 0.0
        # Where a request is placed depends on the queues, and not on the request itself.
        here = accuracy_at(self._system.evidence, self._system.exits)
        there = accuracy_at(self._sent.evidence, self._sent.exits)
        return here + sent * (there - here)

    def _device_s(self) -> np.ndarray:
        """Return the time that a device computes for each request."""
        system, stays = self._system, self.where == 0
        if self._placing.sends_inputs:
            return np.where(stays, system.until_s[0][self._here], 0.0)
        rest_s = np.where(stays & (self._here > 0), system.rest_s[0][self._here], 0.0)
        return system.stage_s[0, 0] + rest_s
