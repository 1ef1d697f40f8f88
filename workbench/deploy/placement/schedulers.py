"""What a scheduler is, which tier answers a request, and the registry of them; theirs are `policies`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from workbench.registry import Registry

if TYPE_CHECKING:
    from workbench.deploy.placement.flows import Outcome
    from workbench.deploy.placement.played_queues import Requests
    from workbench.deploy.placement.system import System


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
        "end": "workbench.deploy.placement.policies:End",
        "cloud": "workbench.deploy.placement.policies:Cloud",
        "cut": "workbench.deploy.placement.policies:WithoutExits",
        "end-cloud": "workbench.deploy.placement.policies:EndCloud",
        "mapping": "workbench.deploy.placement.policies:Mapping",
        "threshold": "workbench.deploy.placement.policies:Threshold",
    },
    group="workbench.schedulers",
)


def policies_for(system: System) -> dict[str, Policy]:
    """Return the schedulers by name, without those that need a cut where none is known."""
    policies: dict[str, Any] = {name: SCHEDULERS.load(name)() for name in SCHEDULERS.names()}
    return {
        name: policy for name, policy in policies.items()
        if system.cut is not None or not getattr(policy, "needs_cut", False)
    }  # fmt: skip
