"""The schedulers, which decide where a request is computed: as closed forms and as simulations.

The first stage is computed where a request starts, except by `cloud`. The other stages are computed
there or on a later tier.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from workbench.deploy.stages import accuracy_at, exits_at
from workbench.tiers.placement.link_queues import (
    link_loads,
    link_waits,
    num_links,
    played_link_waits_s,
    rate_of,
)
from workbench.tiers.placement.queues import wait_of, wait_of_times
from workbench.tiers.placement.schedulers import (
    SCHEDULERS,
    Outcome,
    Route,
    drawn_for,
    played_outcome,
    responses,
    with_played_times,
)
from workbench.tiers.placement.simulated_queues import (
    Requests,
    Work,
    ends_at_devices,
    ends_in_batches,
)
from workbench.tiers.placement.system import System

_WINDOWS = 200
_HYSTERESIS = 0.9
"""Share of `busy` below which thresholds return to their chosen values."""
_STEPS = 20
_FULL = 1.0 - 1e-6
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
        expected = _outcome(system, response_s, exits, device_s=times_s)
        return with_played_times(expected, self, system)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        exits = _exits_here(system, system.exits)
        times_s = system.until_s[0][exits[requests.sample]]
        ends = ends_at_devices(requests, times_s)
        accuracy = accuracy_at(system.evidence, exits)
        return played_outcome(system, requests, ends, accuracy, work_s={0: times_s})


class Cloud:
    """Everything is sent to the last tier as it is."""

    summary: ClassVar[str] = "all on the last tier"

    def fits(self, system: System) -> str | None:
        """Return why the last tier cannot compute everything, or None if it can."""
        return _fits_last(system, 0)

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        if system.batch(-1) > 1:
            return _in_the_long_run(self.play(system, drawn_for(system)), system, is_raw=True)
        return with_played_times(self._closed(system.sending_raw()), self, system)

    def _closed(self, system: System) -> Outcome:
        times_s = system.whole_s[-1][system.exits]
        fixed_s = times_s + system.send_raw_s[-1] + system.back_s[-1]
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
        work = Work(times_s, system.whole_rows_s[-1][exits])
        ends, shares_s = ends_in_batches(ready, work, system.counts[-1], system.batch(-1))
        return played_outcome(
            system,
            requests,
            ends + system.back_s[-1],
            accuracy_at(system.evidence, system.exits),
            work_s={len(system.names) - 1: shares_s},
            num_bytes=system.raw_bytes[-1],
            joules=system.raw_j[-1],
            link_load=link_loads(system, system.links_raw_s, rate_of(requests)),
        )


class WithoutExits:
    """The model without early exits, cut where a single request is answered first.

    It may be entirely on one tier.
    """

    summary: ClassVar[str] = "without exits, cut where one request is answered first"

    def fits(self, system: System) -> str | None:
        """Return why the model cannot be cut, or None if it can."""
        return None if system.cut is not None else "it is not known where the model can be cut"

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

    def fits(self, system: System) -> str | None:
        """Return why the last tier cannot compute the rest, or None if it can."""
        return _fits_last(system, 1)

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it, or what is played where batches are computed."""
        if system.batch(-1) > 1:
            return _in_the_long_run(self.play(system, drawn_for(system)), system)
        sending = system.sending()
        return with_played_times(_expect_sent(sending, sending.exits), self, system)

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        system = system.sending()
        accuracy = accuracy_at(system.evidence, system.exits)
        return _play_sent(system, requests, system.exits[requests.sample], accuracy)


class Threshold:
    """Like `end-cloud`, but more requests leave at the first exit while the last tier is busy."""

    summary: ClassVar[str] = "like end-cloud, with exits that open as the last tier gets busy"

    def fits(self, system: System) -> str | None:
        """Return why the last tier cannot compute the rest, or None if it can."""
        return _fits_last(system, 1)

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it: the balance at which the load is `busy`."""
        balanced = replace(system, thresholds=self.balance(system))
        return EndCloud().expect(balanced)

    def balance(self, system: System) -> tuple[float, ...]:
        """Return the thresholds at which the last tier is not more than `busy`."""
        system = system.sending()
        # The more requests leave early, the less accurate the answers are. So the first level that
        # relieves the last tier enough is taken.
        for thresholds in _opened(system):
            exits = exits_at(system.evidence, thresholds)
            mean_s = _mean_there_s(system, exits)
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
        level, mean_load, levels_taken = 0, None, np.zeros(len(requests.arrival_s), dtype=np.int64)
        for first, end in pairwise(bounds):
            if first == end:
                continue
            levels_taken[first:end] = level
            exits[first:end] = levels[level][requests.sample[first:end]]
            elapsed_s = max(1e-12, requests.arrival_s[end - 1] - requests.arrival_s[first])
            work = _work_there(system, exits[first:end])
            load = float(work.least_s(system.batch(-1)).sum()) / elapsed_s / system.counts[-1]
            # One window holds few requests, so their load alone would change the level by chance.
            mean_load = load if mean_load is None else 0.5 * (mean_load + load)
            if mean_load > system.busy and level < len(levels) - 1:
                level, mean_load = level + 1, None  # loads of another level say nothing about this
            elif mean_load is not None and mean_load < _HYSTERESIS * system.busy and level > 0:
                level, mean_load = level - 1, None
        # A level follows from earlier requests, so it says nothing about the sample of this one.
        shares = np.bincount(levels_taken[requests.counted], minlength=len(levels))
        shares = shares / shares.sum()
        accuracies = np.array([accuracy_at(system.evidence, level) for level in levels])
        accuracy = accuracies[0] + float(shares @ (accuracies - accuracies[0]))
        return _play_sent(system, requests, exits, accuracy)


class NextTier:
    """Every tier computes a part, and sends what it cannot answer to the next tier.

    Source: Teerapittayanon, McDanel, Kung, Distributed Deep Neural Networks over the Cloud, the
    Edge and End Devices (2017).
    """

    summary: ClassVar[str] = "a part on every tier, each sends on what it is not sure of"

    def fits(self, system: System) -> str | None:
        """Return why the tiers cannot compute all parts, or None if they can."""
        if system.hops is None:
            return "with fewer than three tiers, it does what end-cloud does"
        if sum(map(len, system.parts)) < system.stage_s.shape[1]:
            return "the tiers do not have the memory for their parts of the model"
        if system.num_views > 1 and not system.parts[1]:
            return f"tiers.{system.names[1]}.memory is too small for the stage that joins views"
        return None

    def expect(self, system: System) -> Outcome:
        """Return what is expected of it: what becomes of drawn requests in the long run."""
        outcome = self._follow(system, drawn_for(system), is_endless=True)
        seen = system.passing_on()
        assert seen.hops is not None
        share = float((seen.exits > seen.parts[0][-1]).mean())
        return replace(outcome, bytes_per_sample=share * float(seen.hops.num_bytes[0]))

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        return self._follow(system, requests, is_endless=False)

    def _follow(self, system: System, requests: Requests, *, is_endless: bool) -> Outcome:
        """Follow requests from tier to tier. Endless queues take infinitely long."""
        system = system.passing_on()
        hops, exits = system.hops, system.exits[requests.sample]
        assert hops is not None
        device_s = np.full(len(exits), system.stage_s[0, 0])
        ends = ends_at_devices(requests, device_s)
        at_s, back_s = np.array(ends), 0.0
        work_s, link_load = {0: device_s}, {}
        sent_bytes, joules = 0.0, 0.0
        is_full = np.full(len(exits), is_endless and system.arrivals_per_s * device_s[0] >= 1.0)
        last_stage = system.parts[0][-1]
        for link, number in enumerate(num_links(system)):
            (going,) = np.nonzero(exits > last_stage)
            if not len(going):
                break
            share = float((exits[requests.counted] > last_stage).mean())
            if not link:
                sent_bytes, joules = share * hops.num_bytes[0], share * hops.energy_j[0]
            link_s = float(hops.links_s[link])
            ordered = going[np.argsort(at_s[going], kind="stable")]
            passing = Requests(at_s[ordered], requests.device[ordered] % number, ordered)
            carried = ends_at_devices(passing, np.full(len(ordered), link_s))
            at_s[ordered] = carried + hops.send_s[link] - link_s
            per_s = rate_of(requests) * share
            names = f"{system.names[link]}-{system.names[link + 1]}"
            link_load |= {
                names: link_loads(system, np.eye(len(hops.links_s))[link] * link_s, per_s)[names]
            }
            tier, part = link + 1, system.parts[link + 1]
            work = self._work(system, tier, exits[going], float(hops.received_s[link]))
            ended, shares_s = ends_in_batches(
                at_s[going], work, system.counts[tier], system.batch(tier)
            )
            at_s[going], back_s = ended, back_s + float(hops.back_s[link])
            ends[going] = at_s[going] + back_s
            work_s[tier] = np.zeros(len(exits))
            work_s[tier][going] = shares_s
            least_s = work.mean_full_s(system.batch(tier))
            load = per_s * least_s / system.counts[tier]
            if is_endless and max(load, link_load[names]) >= 1.0:
                is_full[going] = True
                work_s[tier][going] = np.maximum(shares_s, least_s)
            last_stage = part[-1] if part else last_stage
        ends[is_full] = np.inf
        return played_outcome(
            system,
            requests,
            ends,
            accuracy_at(system.evidence, system.exits),
            work_s=work_s,
            num_bytes=sent_bytes,
            joules=joules,
            link_load=link_load,
        )

    def _work(self, system: System, tier: int, exits: np.ndarray, received_s: float) -> Work:
        """Return what requests take at a tier that computes its part until their exits."""
        part = system.parts[tier]
        alone_s, rows_s = np.zeros(len(exits)), np.zeros(len(exits))
        for stage in part:
            reaches = exits >= stage
            alone_s[reaches] += system.stage_s[tier, stage]
            rows_s[reaches] += system.added_s[tier, stage]
        return Work(alone_s + received_s, rows_s + received_s)


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
        away_s = system.send_s[-1] + system.back_s[-1]
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


def _play_sent(system: System, requests: Requests, exits: np.ndarray, accuracy: float) -> Outcome:
    device_s = np.full(len(exits), system.stage_s[0, 0])
    ends = ends_at_devices(requests, device_s)
    goes_on = exits > 0
    waits_s = played_link_waits_s(system, system.links_s, ends[goes_on], requests.device[goes_on])
    ready = ends[goes_on] + waits_s + system.send_s[-1]
    work_s = np.zeros(len(exits))
    served, work_s[goes_on] = ends_in_batches(
        ready, _work_there(system, exits[goes_on]), system.counts[-1], system.batch(-1)
    )
    ends[goes_on] = served + system.back_s[-1]
    share = float(goes_on[requests.counted].mean())
    return played_outcome(
        system,
        requests,
        ends,
        accuracy,
        work_s={0: device_s, len(system.names) - 1: work_s},
        num_bytes=share * system.sent_bytes[-1],
        joules=share * system.send_j[-1],
        link_load=link_loads(system, system.links_s, rate_of(requests, goes_on)),
    )


def _work_there(system: System, exits: np.ndarray) -> Work:
    """Return what the rest of requests takes on the last tier."""
    return Work(system.rest_s[-1][exits], system.rest_rows_s[-1][exits])


def _mean_there_s(system: System, exits: np.ndarray) -> float:
    """Return the mean time of the last tier for a request in full batches, 0 for what stays."""
    (going,) = np.nonzero(exits > 0)
    if not len(going):
        return 0.0
    work = _work_there(system, exits[going])
    return work.mean_full_s(system.batch(-1)) * len(going) / len(exits)


def _fits_last(system: System, first: int) -> str | None:
    """Return why the last tier cannot compute the stages from one on, or None if it can."""
    if np.isfinite(system.stage_s[-1, first:]).all():
        return None
    return f"tiers.{system.names[-1]}.memory is too small for the model"


def _in_the_long_run(outcome: Outcome, system: System, *, is_raw: bool = False) -> Outcome:
    """Return what was played, without steady times where a queue grows without end."""
    seen = system.sending_raw() if is_raw else system.sending()
    mean_s, share = _mean_there_s(seen, seen.exits), float((seen.exits > 0).mean())
    if is_raw:
        work = Work(seen.whole_s[-1][seen.exits], seen.whole_rows_s[-1][seen.exits])
        mean_s, share = work.mean_full_s(system.batch(-1)), 1.0
    name, first = system.names[-1], system.names[0]
    sent_bytes = system.raw_bytes if is_raw else system.sent_bytes
    outcome = replace(outcome, bytes_per_sample=share * float(sent_bytes[-1]))
    used = system.total_per_s * mean_s / system.counts[-1]
    if max([used, outcome.load[first], *outcome.link_load.values()]) < 1.0:
        # Batches grow as more requests wait, so a machine that is always busy may still keep up.
        return replace(outcome, load={**outcome.load, name: min(outcome.load[name], _FULL)})
    if outcome.load[first] >= 1.0:
        share = 1.0
    response_s = np.sort(outcome.response_s)
    response_s[round((1.0 - share) * len(response_s)) :] = np.inf
    load = {**outcome.load, name: max(used, outcome.load[name])}
    return replace(outcome, response_s=response_s, load=load)


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
        response_s=response_s,
        accuracy=accuracy_at(system.evidence, exits),
        bytes_per_sample=float(num_bytes),
        joules_per_sample=float(device_s.mean() * system.power[0] + joules),
        load=load,
        link_load=link_load or {},
    )
