"""The registry of schedulers: which tier answers a request."""

from __future__ import annotations

from workbench.registry import Registry

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
