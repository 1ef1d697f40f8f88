"""Define schedulers, their outcomes, and the registry of schedulers.

Closed forms and simulations give the same `Outcome`: response times, accuracy, bytes, energy and
load. The schedulers themselves are in `policies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from workbench.foundation.registry import Registry
from workbench.tiers.placement.queues import Wait

if TYPE_CHECKING:
    from workbench.tiers.placement.played_queues import Requests
    from workbench.tiers.placement.system import System

_NUM_DRAWN = 20_000


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
        "mapping": "workbench.tiers.placement.policies:Mapping",
        "threshold": "workbench.tiers.placement.policies:Threshold",
    },
    group="workbench.schedulers",
)


def policies_for(system: System) -> dict[str, Policy]:
    """Return the schedulers by name, without those that need a cut where none is known."""
    policies: dict[str, Any] = {name: SCHEDULERS.load(name)() for name in SCHEDULERS.names()}
    return {
        name: policy
        for name, policy in policies.items()
        if system.cut is not None or not getattr(policy, "needs_cut", False)
    }


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
