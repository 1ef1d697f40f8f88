"""What the pool asks of a cluster that grows and shrinks: machines for all gangs there are.

Ray knows one wish for a whole cluster and holds machines for it until it is changed, so the pool alone has
one while somebody asked for that, and takes it back afterwards. Who waits for machines without a pool is
`await_nodes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray.autoscaler.sdk import request_resources

from workbench.workers.admission import Request


class Wishes:
    """What this process last asked of the cluster."""

    def __init__(self) -> None:
        """Begin without a wish."""
        self._asked: list[dict[str, float]] = []

    def tell(self, gangs: Sequence[Request]) -> None:
        """Ask for machines for these gangs together, or take the wish back where none needs it.

        Args:
            gangs: All that are leased or waited for; nothing is asked unless one of them says so.
        """
        wanted: list[dict[str, float]] = []
        if any(gang.autoscaling for gang in gangs):
            wanted = [_bundle(gang) for gang in gangs for _ in range(gang.num_workers)]
        if wanted != self._asked:
            request_resources(bundles=wanted)
            self._asked = wanted

    def told(self) -> list[str]:
        """Say what the cluster was asked for, in words."""
        if not self._asked:
            return []
        cpus = sum(bundle["CPU"] for bundle in self._asked)
        gpus = sum(bundle.get("GPU", 0.0) for bundle in self._asked)
        size = f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        return [f"the cluster was asked to grow to {size}"]


def _bundle(gang: Request) -> dict[str, float]:
    shape = gang.shape
    return {"CPU": float(shape.cpus)} | ({"GPU": shape.gpus} if shape.gpus else {})
