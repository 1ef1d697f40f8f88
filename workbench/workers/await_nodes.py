"""Asks a cluster for machines, and waits until they are there: `python -m workbench.workers.await_nodes`.

Workers are leased on machines that exist, so whoever starts a run on a cluster that grows and shrinks asks
for its machines first, and lets them go afterwards (`--release`); idle ones then end by themselves. Which
machines a run needs is decided elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from workbench.errors import ResourcesError, WorkbenchError
from workbench.workers.head import connect

POLL_S = 0.5


def await_nodes(num_nodes: int, cpus: float, gpus: float, timeout_s: float) -> None:
    """Ask the cluster that this process is attached to for machines, and wait for them.

    Args:
        num_nodes: Machines that do work; one without CPUs, such as a head, does none.
        cpus: CPUs of each.
        gpus: GPUs of each.
        timeout_s: How long to wait.

    Raises:
        ResourcesError: If they are not there in time.
    """
    import ray
    from ray.autoscaler.sdk import request_resources

    each = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
    request_resources(bundles=[each] * num_nodes)
    until_s = time.monotonic() + timeout_s
    while True:
        offered = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        there = sum(
            node.get("CPU", 0.0) >= cpus and node.get("GPU", 0.0) >= gpus and node.get("CPU", 0.0) > 0
            for node in offered
        )
        if there >= num_nodes:
            return
        if time.monotonic() > until_s:
            raise ResourcesError(
                f"{there} of {num_nodes} machines with {cpus:g} CPUs and {gpus:g} GPUs are there after "
                f"{timeout_s:.0f} s",
                field="--timeout",
                next_step="See what their launcher says, or ask for fewer.",
            )
        time.sleep(POLL_S)


def release() -> None:
    """Let the cluster end machines that idle."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[])


def main(arguments: Sequence[str] | None = None) -> None:
    """Wait until a cluster has machines, or let them go; arguments as on a command line."""
    parser = argparse.ArgumentParser("workbench.workers.await_nodes", description=main.__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--nodes", type=int, metavar="N", help="machines that do work")
    what.add_argument("--release", action="store_true", help="let the machines go instead")
    parser.add_argument("--cpus", type=float, default=1.0, help="of each (1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="of each (0)")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="(1800)")
    parser.add_argument("--address", metavar="HOST:PORT", help="by default WORKBENCH_RAY_ADDRESS")
    asked = parser.parse_args(arguments)
    try:
        connect(asked.address)
        if asked.release:
            release()
        else:
            await_nodes(asked.nodes, asked.cpus, asked.gpus, asked.timeout)
    except WorkbenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
