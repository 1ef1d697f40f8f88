"""Processes of the local head that Ray starts ahead, so that the next run need not wait for them.

A process of Ray takes seconds to start, most of them for imports, which `ray_startup` begins in
processes that are idle. Ray gives an idle process to the next actor of whichever run is started.
Its call for that is not among Ray's public functions: where it fails, runs start as they do
without.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import psutil

from workbench.cluster.head import local_head

logger = logging.getLogger(__name__)

VARIABLE = "WORKBENCH_SPARE_PROCESSES"
DEFAULT = 2
"""One for the driver of the next run, one for its first trial."""
_IDLE = "ray::IDLE"
_KEPT_S = 24 * 3600
"""Longer than a head is kept that idles."""
_ANY_JOB = b"\xff" * 4
_RPC_TIMEOUT_S = 5.0


def replenish(number: int | None = None) -> None:
    """Let Ray start processes until enough are idle.

    On another cluster than the local head do nothing.

    Args:
        number: How many; None for WORKBENCH_SPARE_PROCESSES, as it was set where the head was
            started, or 2.
    """
    try:
        if not local_head.is_attached():
            return
        missing = (_number_of_user() if number is None else number) - len(idle())
        if missing > 0:
            _start(missing)
    except Exception as error:  # the head has just ended, gRPC fails, or Ray renamed something
        logger.warning("Ray starts no processes ahead: %s", error)


def idle() -> list[psutil.Process]:
    """Return the processes of the local head that have no work."""
    head = local_head.status()
    processes = [] if head is None else psutil.Process(head.pid).children(recursive=True)
    return [process for process in processes if _title(process).startswith(_IDLE)]


def _number_of_user() -> int:
    given = os.environ.get(VARIABLE, "")
    if given and not given.isdecimal():
        logger.warning("%s is not a number: %r; %d is used", VARIABLE, given, DEFAULT)
    return int(given) if given.isdecimal() else DEFAULT


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return next(iter(process.cmdline()), "")
    return ""


def _start(number: int) -> None:
    import ray
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import common_pb2, node_manager_pb2, node_manager_pb2_grpc

    messages: Any = node_manager_pb2  # whose names are made when it is imported
    languages: Any = common_pb2
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)
    channel: Any = init_grpc_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}")
    request = messages.PrestartWorkersRequest(
        language=languages.Language.PYTHON,
        job_id=_ANY_JOB,
        num_workers=number,
        keep_alive_duration_secs=_KEPT_S,
    )
    with channel:
        node_manager_pb2_grpc.NodeManagerServiceStub(channel).PrestartWorkers(
            request, timeout=_RPC_TIMEOUT_S
        )
