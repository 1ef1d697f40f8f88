"""Request nodes of an autoscaling cluster and wait for them.

Called as `python -m workbench.cluster.workers.await_nodes`.

Workers are leased on nodes that exist, so the script that starts a run on such a cluster requests
the nodes first and releases them afterwards (`--release`). The cluster then ends those that are
idle. Which nodes a run needs is left to `provisioning`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from workbench.cluster.head.attachment import connect
from workbench.foundation.errors import ResourcesError, WorkbenchError

POLL_S = 0.5


def await_nodes(num_nodes: int, cpus: float, gpus: float, timeout_s: float) -> None:
    """Request nodes of the cluster that this process is attached to, and wait for them.

    Args:
        num_nodes: Nodes with CPUs. A head without any does not count.
        cpus: CPUs of each.
        gpus: GPUs of each.
        timeout_s: How long to wait.

    Raises:
        ResourcesError: If they do not arrive in time.
    """
    import ray
    from ray.autoscaler.sdk import request_resources

    node = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
    request_resources(bundles=[node] * num_nodes)
    until_s = time.monotonic() + timeout_s
    while True:
        offered = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        present = sum(
            node.get("CPU", 0.0) >= cpus
            and node.get("GPU", 0.0) >= gpus
            and node.get("CPU", 0.0) > 0
            for node in offered
        )
        if present >= num_nodes:
            return
        if time.monotonic() > until_s:
            raise ResourcesError(
                f"only {present} of {num_nodes} nodes with {cpus:g} CPUs and {gpus:g} GPUs have"
                f" joined the cluster after {timeout_s:.0f} s",
                field="--timeout",
                next_step="Read the log of the cluster launcher, or request fewer nodes.",
            )
        time.sleep(POLL_S)


def release() -> None:
    """Let the cluster end its idle nodes."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[])


def main(arguments: Sequence[str] | None = None) -> None:
    """Wait until a cluster has the nodes that a run needs, or release them."""
    parser = argparse.ArgumentParser(
        "workbench.cluster.workers.await_nodes", description=main.__doc__
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--nodes", type=int, metavar="N", help="wait for N nodes that have CPUs")
    group.add_argument("--release", action="store_true", help="release the nodes instead")
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs of each node (default: 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of each node (default: 0)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long to wait (default: 1800)",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="the cluster (default: WORKBENCH_RAY_ADDRESS)"
    )
    options = parser.parse_args(arguments)
    try:
        connect(options.address)
        if options.release:
            release()
        else:
            await_nodes(options.nodes, options.cpus, options.gpus, options.timeout)
    except WorkbenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
