"""The schedulers, which decide where a request is computed: as closed forms and as simulations.

The first stage is computed where a request starts, except by `cloud`. The other stages are computed
there or on a later tier.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from workbench.deploy.stages import accuracy_at, exits_at
from workbench.tiers.placement.link_queues import (
    PlayedLinks,
    bounded_waits,
    link_loads,
    link_waits,
    played_link_waits_s,
    rate_of,
)
from workbench.tiers.placement.played_queues import (
    Requests,
    ends_at_devices,
    ends_at_servers,
    first_stages,
)
from workbench.tiers.placement.queues import wait_of, wait_of_times
from workbench.tiers.placement.schedulers import SCHEDULERS, Outcome, Route, responses
from workbench.tiers.placement.system import System

_WINDOWS = 200
_HYSTERESIS = 0.9
"""Share of `busy` below which thresholds return to their chosen values."""
_STEPS = 20
_CHARGES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Charges of `mapping` for requests that stay, relative to the time of the rest on a device."""
_CREDITS = (0.125, 0.25, 0.5, 0.75, 0.9)
"""Credits for such requests, relative to the time that an idle last tier saves."""
_EQUAL = 1.01
_NO_TIME = np.zeros(1)


class End:
    """Everything is computed where it starts.

    If the device cannot compute all stages, its last exit answers.
    """

    summary: ClassVar[str] = "all on the device"

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        exits = _exits_here(system, system.exits)
        times_s = system.until_s[0][exits]
        response_s = responses(
            [Route(1.0, times_s, [wait_of_times(system.arrivals_per_s, times_s)])]
        )
        return _outcome(system, response_s, exits, device_s=times_s)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        exits = _exits_here(system, system.exits)[requests.sample]
        times_s = system.until_s[0][exits]
        ends = ends_at_devices(requests, times_s)
        is_correct = system.evidence.is_correct[requests.sample, exits]
        return _played(system, requests, ends, is_correct, work_s={0: times_s})


class Cloud:
    """Everything is sent to the last tier as it is."""

    summary: ClassVar[str] = "all on the last tier"

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        system = system.sending_raw()
        times_s = system.whole_s[-1][system.exits]
        fixed_s = times_s + system.mates_s[-1] + system.send_raw_s[-1] + system.back_s[-1]
        waits = link_waits(system, system.links_raw_s, system.total_per_s)
        waits.append(wait_of_times(system.total_per_s, times_s, system.counts[-1]))
        return _outcome(
            system,
            responses([Route(1.0, fixed_s, waits)]),
            system.exits,
            work_s=times_s,
            num_bytes=system.raw_bytes[-1],
            joules=system.raw_j[-1],
            link_load=link_loads(system, system.links_raw_s, system.total_per_s),
        )

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        system = system.sending_raw()
        exits = system.exits[requests.sample]
        times_s = system.whole_s[-1][exits]
        waits_s = played_link_waits_s(
            system, system.links_raw_s, requests.arrival_s, requests.device
        )
        ready = requests.arrival_s + waits_s + system.send_raw_s[-1]
        ends = (
            ends_at_servers(ready, times_s, system.counts[-1])
            + system.mates_s[-1]
            + system.back_s[-1]
        )
        return _played(
            system,
            requests,
            ends,
            system.evidence.is_correct[requests.sample, exits],
            work_s={len(system.names) - 1: times_s},
            num_bytes=system.raw_bytes[-1],
            joules=system.raw_j[-1],
            link_load=link_loads(system, system.links_raw_s, rate_of(requests)),
        )


class WithoutExits:
    """The model without early exits, cut where a single request is answered first.

    It may be entirely on one tier.
    """

    summary: ClassVar[str] = "without exits, cut where one request is answered first"
    needs_cut: ClassVar[bool] = True

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        cut, name = system.as_cut()
        return SCHEDULERS.load(name)().expect(cut)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        cut, name = system.as_cut()
        return SCHEDULERS.load(name)().play(cut, requests)


class EndCloud:
    """Requests that do not leave at the first exit are always sent to the last tier."""

    summary: ClassVar[str] = "first stage on the device, the rest on the last tier"

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        system = system.sending()
        return _expect_sent(system, system.exits)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        system = system.sending()
        return _play_sent(system, requests, system.exits[requests.sample])


class Threshold:
    """Like `end-cloud`, but more requests leave at the first exit while the last tier is busy."""

    summary: ClassVar[str] = "like end-cloud, with exits that open as the last tier gets busy"

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it: the balance at which the load is `busy`."""
        system = system.sending()
        return _expect_sent(system, exits_at(system.evidence, self.balance(system)))

    def balance(self, system: System) -> tuple[float, ...]:
        """Return the thresholds at which the last tier is not more than `busy`."""
        system = system.sending()
        # The more requests leave early, the less accurate the answers are. So the first level that
        # relieves the last tier enough is taken.
        for thresholds in _opened(system):
            exits = exits_at(system.evidence, thresholds)
            mean_s = float(system.rest_s[-1][exits].mean())
            if system.total_per_s * mean_s <= system.busy * system.counts[-1]:
                return thresholds
        return _opened(system)[-1]

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests.

        The level changes by one step for each window of time.
        """
        system = system.sending()
        levels = [exits_at(system.evidence, thresholds) for thresholds in _opened(system)]
        bounds = np.linspace(0, len(requests.arrival_s), _WINDOWS + 1).astype(int)
        exits = np.empty(len(requests.arrival_s), dtype=np.int64)
        level, mean_load = 0, None
        for first, end in pairwise(bounds):
            if first == end:
                continue
            exits[first:end] = levels[level][requests.sample[first:end]]
            elapsed_s = max(1e-12, requests.arrival_s[end - 1] - requests.arrival_s[first])
            load = float(system.rest_s[-1][exits[first:end]].sum()) / elapsed_s / system.counts[-1]
            # One window holds few requests, so their load alone would change the level by chance.
            mean_load = load if mean_load is None else 0.5 * (mean_load + load)
            if mean_load > system.busy and level < len(levels) - 1:
                level, mean_load = level + 1, None  # loads of another level say nothing about this
            elif mean_load is not None and mean_load < _HYSTERESIS * system.busy and level > 0:
                level, mean_load = level - 1, None
        return _play_sent(system, requests, exits)


class Mapping:
    """Requests that do not leave at the first exit go where they are expected to end first.

    A request on its device delays the next one that starts there, and a request that is sent delays
    the ones sent after it. If every request considered only itself, a busy last tier would be used
    until it is no faster than a device. A request that stays is therefore charged or credited with
    the difference between the two delays: see `charge_s`.

    Source: Naor, The Regulation of Queue Size by Levying Tolls (1969).
    """

    summary: ClassVar[str] = "each request where it is expected to end first"

    def charge_s(self, system: System) -> float:
        """Return by how much a request must end earlier on its own device to stay there.

        Below 0 it may end that much later. Of some charges whose expected p95 is within 1 % of the
        best, and whose expected mean is within 1 % of the best of these, it is the one nearest to
        0: 0 where nothing is busy, and infinite where nothing should stay. A charge with which a
            queue would grow without end is the last resort, also where so few requests are in it
            that p95 does not show it.
        """
        if not system.can_finish_here or not (system.exits > 0).any():
            return 0.0
        here_s, _, advantage_s = self._rest_s(system)
        charges_s = [
            0.0,
            *(max(0.0, -advantage_s) + here_s.mean() * part for part in _CHARGES),
            np.inf,
        ]
        charges_s += [-advantage_s * part for part in _CREDITS if advantage_s > 0]
        # The first of equally good charges is returned, and that is the one nearest to 0.
        charges_s.sort(key=abs)
        outcomes = [self._expect(system, float(charge_s)) for charge_s in charges_s]
        times_s = np.array([outcome.quantile_s(0.95) for outcome in outcomes])
        is_stable = np.array([outcome.highest_load < 1.0 for outcome in outcomes])
        if is_stable.any():
            times_s[~is_stable] = np.inf
        if np.isinf(times_s).all():
            return float(charges_s[int(np.argmin([outcome.highest_load for outcome in outcomes]))])
        is_best = times_s <= _EQUAL * times_s.min()
        means_s = np.where(is_best, [outcome.response_s.mean() for outcome in outcomes], np.inf)
        return float(charges_s[int(np.argmax(means_s <= _EQUAL * means_s.min()))])

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it, with the last tier as the place to send to."""
        return self._expect(system, self.charge_s(system))

    def _rest_s(self, system: System) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the rest's times here and on the last tier, and how much earlier it ends there."""
        sending, goes_on = system.sending(), system.exits > 0
        here_s = system.rest_s[0][system.exits[goes_on]]
        there_s = system.rest_s[-1][sending.exits[goes_on]]
        away_s = system.send_s[-1] + system.back_s[-1] + system.mates_s[-1]
        return here_s, there_s, float(here_s.mean() - there_s.mean() - away_s)

    def _expect(self, system: System, charge_s: float) -> Outcome:
        sending, goes_on, last = system.sending(), system.exits > 0, len(system.names) - 1
        if not system.can_finish_here or not goes_on.any() or np.isinf(charge_s):
            return _expect_sent(sending, sending.exits)
        here_s, there_s, advantage_s = self._rest_s(system)
        away_s = float(system.send_s[last] + system.back_s[last] + system.mates_s[last])
        first_s, share = system.stage_s[0, 0], float(goes_on.mean())
        # A request stays once it would wait longer than the other tier saves. For those that are
        # sent, this is a queue with a limited length, and the blocked ones are those that stay.
        queues = bounded_waits(system, there_s, share, advantage_s + charge_s)
        blocked = queues[0].blocked
        sent, kept = (1.0 - blocked) * share, blocked * share
        device_s = np.concatenate([[first_s], first_s + here_s])
        weights = np.array([1.0 - kept, *([kept / len(here_s)] * len(here_s))])
        line = wait_of_times(system.arrivals_per_s, device_s, weights=weights)
        routes = [
            Route(1.0 - share, np.full(1, first_s), (line,)),
            Route(kept, first_s + here_s, (line,)),
            Route(sent, first_s + there_s + away_s, (line, *queues)),
        ]
        load = dict.fromkeys(system.names, 0.0)
        load[system.names[0]] = system.arrivals_per_s * float(device_s @ weights)
        load[system.names[last]] = (
            system.total_per_s * sent * float(there_s.mean()) / system.counts[last]
        )
        accuracy = blocked * accuracy_at(system.evidence, system.exits)
        accuracy += (1.0 - blocked) * accuracy_at(sending.evidence, sending.exits)
        return Outcome(
            responses(routes),
            accuracy,
            sent * float(system.sent_bytes[last]),
            float(device_s @ weights) * system.power[0] + sent * float(system.send_j[last]),
            load,
            link_loads(system, system.links_s, system.total_per_s * sent),
        )

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests.

        All tiers that can compute the rest are compared.
        """
        sending = system.sending()
        here, there = system.exits[requests.sample], sending.exits[requests.sample]
        places = [
            tier for tier in range(len(system.names)) if np.isfinite(system.rest_s[tier]).all()
        ]
        ends, where = _map(
            system, requests, here, there, places=places, charge_s=self.charge_s(system)
        )
        exits = np.where(where == 0, here, there)
        is_correct = np.where(
            where == 0,
            system.evidence.is_correct[requests.sample, exits],
            sending.evidence.is_correct[requests.sample, exits],
        )
        device_s = system.stage_s[0, 0] + np.where(
            (where == 0) & (exits > 0), system.rest_s[0][exits], 0.0
        )
        device_s = np.where(np.isfinite(device_s), device_s, system.stage_s[0, 0])
        work_s = {0: device_s} | {
            tier: np.where(where == tier, system.rest_s[tier][exits], 0.0)
            for tier in places
            if tier > 0
        }
        passes = np.array([(where > link).mean() for link in range(len(system.links_s))])
        return _played(
            system,
            requests,
            ends,
            is_correct,
            work_s=work_s,
            num_bytes=system.sent_bytes[where][requests.counted].mean(),
            joules=system.send_j[where][requests.counted].mean(),
            link_load=link_loads(system, system.links_s * passes, rate_of(requests)),
        )


def _map(
    system: System,
    requests: Requests,
    exits_here: np.ndarray,
    exits_there: np.ndarray,
    *,
    places: Sequence[int],
    charge_s: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return when each request is answered, and the tier that answered it.

    Features that are sent may leave at another exit than those that are not.
    """
    first_s = float(system.stage_s[0, 0])
    device_free = [0.0] * system.counts[0]
    links = PlayedLinks.of(system, rate_of(requests, exits_here > 0))
    others = [
        (
            tier,
            float(system.send_s[tier]),
            float(system.back_s[tier] + system.mates_s[tier]),
            system.rest_s[tier].tolist(),
            [0.0] * system.counts[tier],
            links[tier],
        )
        for tier in places
        if tier > 0
    ]
    here_s = [np.inf] * system.stage_s.shape[1]
    if 0 in places:
        here_s = system.rest_s[0].tolist()
    num_requests = len(requests.arrival_s)
    ends, where = np.empty(num_requests), np.zeros(num_requests, dtype=np.int64)
    devices = requests.device.tolist()
    leaves_here, leaves_there = exits_here.tolist(), exits_there.tolist()
    # Every simulated request passes this loop, where lists and local names are faster than arrays
    # and attributes.
    replace = heapq.heapreplace
    for request, done in first_stages(requests, first_s, device_free):
        device, leaves = devices[request], leaves_here[request]
        device_free[device] = ends[request] = done
        if not leaves:
            continue
        best, chosen, line, busy_until = done + here_s[leaves] + charge_s, 0, None, 0.0
        for tier, send, back, service, free_s, path in others:
            ready = done + send + (path.wait_s(device, done) if path.can_wait else 0.0)
            finish = (ready if ready > free_s[0] else free_s[0]) + service[leaves_there[request]]
            if finish + back < best:
                best, chosen, line, busy_until = finish + back, tier, free_s, finish
        if line is None:
            # `best` includes the charge, which only decides: nobody waits for it.
            best = device_free[device] = done + here_s[leaves]
        else:
            replace(line, busy_until)
            links[chosen].send(device, done)
        ends[request], where[request] = best, chosen
    return ends, where


def _opened(system: System) -> list[tuple[float, ...]]:
    """Return thresholds from those that were chosen down to 0 at the first exit, in steps."""
    first, *others = system.thresholds
    confidence = np.sort(system.evidence.confidence[:, 0])
    below = confidence[confidence < first]
    if not len(below):
        return [system.thresholds]
    # Quantiles, so that each step moves equally many requests.
    lower = np.quantile(below, np.linspace(1.0, 0.0, _STEPS + 1)[1:])
    return [system.thresholds, *((float(level), *others) for level in lower)]


def _exits_here(system: System, exits: np.ndarray) -> np.ndarray:
    """Return the exits at which samples leave if no other tier takes part."""
    return np.minimum(exits, int(np.isfinite(system.until_s[0]).sum()) - 1)


def _expect_sent(system: System, exits: np.ndarray) -> Outcome:
    goes_on = exits > 0
    share = float(goes_on.mean())
    first_s = float(system.stage_s[0, 0])
    line = wait_of(system.arrivals_per_s, first_s)
    routes = [Route(1.0 - share, np.full(1, first_s), (line,))]
    there_s = system.rest_s[-1][exits[goes_on]]
    if share:
        queue = wait_of_times(system.total_per_s * share, there_s, system.counts[-1])
        away_s = system.send_s[-1] + system.back_s[-1] + system.mates_s[-1]
        waits = link_waits(system, system.links_s, system.total_per_s * share, before_s=first_s)
        routes.append(Route(share, first_s + there_s + away_s, (line, queue, *waits)))
    return _outcome(
        system,
        responses(routes),
        exits,
        device_s=np.full(1, first_s),
        work_s=system.rest_s[-1][exits],
        num_bytes=share * system.sent_bytes[-1],
        joules=share * system.send_j[-1],
        link_load=link_loads(system, system.links_s, system.total_per_s * share),
    )


def _play_sent(system: System, requests: Requests, exits: np.ndarray) -> Outcome:
    device_s = np.full(len(exits), system.stage_s[0, 0])
    ends = ends_at_devices(requests, device_s)
    goes_on = exits > 0
    work_s = system.rest_s[-1][exits]
    away_s = system.mates_s[-1] + system.back_s[-1]
    waits_s = played_link_waits_s(system, system.links_s, ends[goes_on], requests.device[goes_on])
    ready = ends[goes_on] + waits_s + system.send_s[-1]
    ends[goes_on] = away_s + ends_at_servers(ready, work_s[goes_on], system.counts[-1])
    share = float(goes_on[requests.counted].mean())
    return _played(
        system,
        requests,
        ends,
        system.evidence.is_correct[requests.sample, exits],
        work_s={0: device_s, len(system.names) - 1: work_s},
        num_bytes=share * system.sent_bytes[-1],
        joules=share * system.send_j[-1],
        link_load=link_loads(system, system.links_s, rate_of(requests, goes_on)),
    )


def _outcome(
    system: System,
    response_s: np.ndarray,
    exits: np.ndarray,
    *,
    device_s: np.ndarray = _NO_TIME,
    work_s: np.ndarray = _NO_TIME,
    num_bytes: float = 0.0,
    joules: float = 0.0,
    link_load: dict[str, float] | None = None,
) -> Outcome:
    """Return what closed forms expect, from the times of the first tier and of the last."""
    load = dict.fromkeys(system.names, 0.0)
    load[system.names[0]] = system.arrivals_per_s * float(device_s.mean())
    if len(system.names) > 1:
        load[system.names[-1]] = system.total_per_s * float(work_s.mean()) / system.counts[-1]
    return Outcome(
        response_s,
        accuracy_at(system.evidence, exits),
        float(num_bytes),
        float(device_s.mean() * system.power[0] + joules),
        load,
        link_load or {},
    )


def _played(
    system: System,
    requests: Requests,
    ends: np.ndarray,
    is_correct: np.ndarray,
    *,
    work_s: dict[int, np.ndarray],
    num_bytes: float = 0.0,
    joules: float = 0.0,
    link_load: dict[str, float] | None = None,
) -> Outcome:
    """Return what was played, with the time of each request on each tier, by its number."""
    kept = requests.counted
    elapsed_s = float(requests.arrival_s[-1] - requests.arrival_s[kept][0])
    load = dict.fromkeys(system.names, 0.0)
    for tier, times_s in work_s.items():
        load[system.names[tier]] = float(times_s[kept].sum()) / elapsed_s / system.counts[tier]
    device_s = work_s[0][kept].mean() if 0 in work_s else 0.0
    return Outcome(
        (ends - requests.arrival_s)[kept],
        float(is_correct[kept].mean()),
        float(num_bytes),
        float(device_s * system.power[0] + joules),
        load,
        link_load or {},
    )
