"""Define schedulers, their outcomes, and the registry of schedulers.

Closed forms and simulations give the same `Outcome`: response times, accuracy, bytes, energy and
load. The schedulers themselves are in `policies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from workbench.foundation.registry import Registry
from workbench.tiers.placement.queues import Wait
from workbench.tiers.placement.simulated_queues import Requests, draw_requests

if TYPE_CHECKING:
    from workbench.tiers.placement.system import System

_NUM_DRAWN = 20_000
_FOR_SCENES = {False: ("end", "end-cloud"), True: ("end", "next-tier")}
"""The schedulers that join the views of a scene, or use one view: by whether tiers are between."""
_QUIET, _HEAVY = 0.02, 0.95
"""Loads between which closed forms do not say how waits are distributed."""
NUM_EXPECTED = 20_000
"""Requests that are drawn where no closed form says what is expected of a scheduler."""


class Policy(Protocol):
    """A scheduler, which decides the tier that answers a request."""

    summary: ClassVar[str]

    def expect(self, system: System) -> Outcome:
        """Return what closed forms expect of it."""
        ...

    def play(self, system: System, requests: Requests) -> Outcome:
        """Return what becomes of drawn requests."""
        ...


SCHEDULERS = Registry(
    "scheduler",
    {
        "end": "workbench.tiers.placement.policies:End",
        "cloud": "workbench.tiers.placement.policies:Cloud",
        "cut": "workbench.tiers.placement.policies:WithoutExits",
        "end-cloud": "workbench.tiers.placement.policies:EndCloud",
        "next-tier": "workbench.tiers.placement.policies:NextTier",
        "mapping": "workbench.tiers.placement.mapping:Mapping",
        "threshold": "workbench.tiers.placement.policies:Threshold",
    },
    group="workbench.schedulers",
)


def policies_for(system: System) -> dict[str, Policy]:
    """Return the schedulers that the tiers of a system can carry out, by name."""
    unfit = left_out(system)
    policies: dict[str, Any] = {name: SCHEDULERS.load(name)() for name in SCHEDULERS.names()}
    return {name: policy for name, policy in policies.items() if name not in unfit}


def left_out(system: System) -> dict[str, str]:
    """Return why the tiers of a system cannot carry out some schedulers, by name.

    A scheduler may have a method `fits`, which returns that reason, or None if there is none.

    Args:
        system: The system.
    """
    reasons = {}
    for name in SCHEDULERS.names():
        if system.num_views > 1 and name not in _FOR_SCENES[len(system.names) > 2]:
            reasons[name] = "it does not join the views of a scene at the second tier"
            continue
        fits = getattr(SCHEDULERS.load(name)(), "fits", None)
        reason = None if fits is None else fits(system)
        if reason is not None:
            reasons[name] = reason
    return reasons


@dataclass(frozen=True)
class Outcome:
    """What comes of a way to place requests.

    Attributes:
        response_s: Response times of many requests, in seconds, or infinite if a queue grows
            without end.
        accuracy: Share of correct answers.
        bytes_per_sample: Bytes that leave the first tier for a request, in the mean.
        joules_per_sample: Energy of the first tier for a request, as far as it is known.
        load: For each tier, the share of the time that its machines compute.
        link_load: For each link that is used, the share of the time that it carries requests and
            heartbeats.
    """

    response_s: np.ndarray
    accuracy: float
    bytes_per_sample: float
    joules_per_sample: float
    load: dict[str, float]
    link_load: dict[str, float] = field(default_factory=dict)

    @property
    def highest_load(self) -> float:
        """The highest load of a tier or a link. From 1 on, a queue grows without end."""
        return max([*self.load.values(), *self.link_load.values()])

    def over(self, system: System) -> list[str]:
        """Return the tiers whose load is higher than the file allows.

        Args:
            system: The system, with its limits.
        """
        return [
            name
            for name, limit in zip(system.names, system.limits, strict=False)
            if self.load[name] > limit
        ]

    def quantile_s(self, share: float) -> float:
        """Return the time within which that share of the requests is answered."""
        return float(np.quantile(self.response_s, share, method="lower"))


@dataclass(frozen=True)
class Route:
    """Some of the requests, which take the same way.

    Attributes:
        share: Their share of all requests.
        fixed_s: Possible times of computing and sending a request, (times,).
        waits: The queues that they wait in.
    """

    share: float
    fixed_s: np.ndarray
    waits: Sequence[Wait] = ()


def responses(routes: Sequence[Route], *, seed: int = 0) -> np.ndarray:
    """Return response times as they are distributed over routes.

    Args:
        routes: Routes whose shares sum to 1.
        seed: Seed of the draws.
    """
    random = np.random.default_rng(seed)
    drawn_s = []
    for route in routes:
        number = round(route.share * _NUM_DRAWN)
        if not number or not len(route.fixed_s):
            continue
        times_s = route.fixed_s[random.integers(len(route.fixed_s), size=number)].astype(float)
        for wait in route.waits:
            if wait.probability > 0:
                times_s += wait.draw(number, random)
        drawn_s.append(times_s)
    return np.concatenate(drawn_s)


def drawn_for(system: System) -> Requests:
    """Return drawn requests from which it is read what is expected of a scheduler."""
    return draw_requests(
        NUM_EXPECTED, system.counts[0], system.arrivals_per_s, len(system.exits), seed=0
    )


def played_outcome(
    system: System,
    requests: Requests,
    ends: np.ndarray,
    accuracy: float,
    *,
    work_s: dict[int, np.ndarray],
    num_bytes: float = 0.0,
    joules: float = 0.0,
    link_load: dict[str, float] | None = None,
) -> Outcome:
    """Return what was played.

    Args:
        system: The system.
        requests: The requests.
        ends: (requests,): when each was answered, in seconds.
        accuracy: Share of correct answers if all validation samples were drawn equally often. Taken
            of the drawn requests, it would tell schedulers apart that decide the same.
        work_s: By the number of a tier, the time of its machines for each request.
        num_bytes: Bytes that left the first tier for a request, in the mean.
        joules: Energy of sending them, in the mean.
        link_load: The share of time that links carried something, by their tiers.
    """
    kept = requests.counted
    elapsed_s = float(requests.arrival_s[-1] - requests.arrival_s[kept][0])
    load = dict.fromkeys(system.names, 0.0)
    for tier, times_s in work_s.items():
        load[system.names[tier]] = float(times_s[kept].sum()) / elapsed_s / system.counts[tier]
    device_s = work_s[0][kept].mean() if 0 in work_s else 0.0
    return Outcome(
        response_s=(ends - requests.arrival_s)[kept],
        accuracy=accuracy,
        bytes_per_sample=float(num_bytes),
        joules_per_sample=float(device_s * system.power[0] + joules),
        load=load,
        link_load=link_load or {},
    )


def with_played_times(outcome: Outcome, policy: Policy, system: System) -> Outcome:
    """Return what closed forms expect, with response times as they are played if requests wait.

    Means of waits are exact in closed form, and their distribution is not: it is nearly exponential
    only in queues that are almost full.

    Args:
        outcome: What closed forms expect.
        policy: The scheduler.
        system: The system.
    """
    if not _QUIET < outcome.highest_load < _HEAVY:
        return outcome
    return replace(outcome, response_s=policy.play(system, drawn_for(system)).response_s)
