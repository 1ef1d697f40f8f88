"""What a scheduler is, which tier answers a request, and the registry of them.

Theirs are `policies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from workbench.foundation.registry import Registry

if TYPE_CHECKING:
    from workbench.tiers.placement.flows import Outcome
    from workbench.tiers.placement.played_queues import Requests
    from workbench.tiers.placement.system import System


class Policy(Protocol):
    """A scheduler."""

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
