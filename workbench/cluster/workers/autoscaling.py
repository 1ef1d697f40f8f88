"""What the pool requests of an autoscaling cluster: nodes for all gangs that are leased or waiting.

Ray keeps one resource request for a whole cluster and holds nodes for it until it changes, so only
the pool makes it, while a gang wants autoscaling, and withdraws it afterwards. Waiting for nodes
without a pool is left to `await_nodes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.cluster.workers.admission import Request


class ResourceDemand:
    """The resources that this process last requested of the cluster."""

    def __init__(self) -> None:
        """Start without a request."""
        self._requested: list[dict[str, float]] = []

    def update(self, gangs: Sequence[Request]) -> None:
        """Request nodes for these gangs together, or withdraw the request where none wants
        autoscaling.

        Args:
            gangs: All that are leased or waiting.
        """
        wanted: list[dict[str, float]] = []
        if any(gang.autoscaling for gang in gangs):
            wanted = [_bundle(gang) for gang in gangs for _ in range(gang.num_workers)]
        if wanted != self._requested:
            from ray.autoscaler.sdk import (
                request_resources,
            )  # its import takes as long as half of Ray's

            request_resources(bundles=wanted)
            self._requested = wanted

    def describe(self) -> list[str]:
        """Return what was requested from the cluster, in words.

        Nothing where there is no request.
        """
        if not self._requested:
            return []
        cpus = sum(bundle["CPU"] for bundle in self._requested)
        gpus = sum(bundle.get("GPU", 0.0) for bundle in self._requested)
        size = f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        return [f"the cluster was asked to grow to {size}"]


def _bundle(gang: Request) -> dict[str, float]:
    shape = gang.shape
    return {"CPU": float(shape.cpus)} | ({"GPU": shape.gpus} if shape.gpus else {})
