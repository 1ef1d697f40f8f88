"""A program that leases gangs on a node with several GPUs, and prints which they get."""

from __future__ import annotations

import json
import os

import ray

from workbench.cluster.workers.admission import Request, Shape
from workbench.cluster.workers.gang import Gang


def leased(number: int) -> list[Gang]:
    """Lease a gang with a whole GPU for each worker."""
    return [Gang.lease(Request("run", num_workers=number, shape=Shape(1, 1.0)), timeout_s=300)]


if __name__ == "__main__":
    ray.init(num_cpus=8, num_gpus=4, include_dashboard=False, log_to_driver=False)
    for gang in leased(4):
        gang.release()
    [pair] = leased(2)
    [other] = leased(2)
    print(
        json.dumps(
            {
                "pairs": [
                    sorted(gpu.index for worker in gang.workers for gpu in worker.placed)
                    for gang in (pair, other)
                ],
                "cpus": [sorted(os.sched_getaffinity(worker.pid)) for worker in pair.workers],
            }
        )
    )
    ray.shutdown()
