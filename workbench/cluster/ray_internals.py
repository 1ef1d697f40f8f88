"""All that the workbench uses of Ray's internals, Tune aside: each name, and why.

Ray documents no other way to do these things. Names are imported when they are used, so that all
modules may import this one. `PRIVATE_NAMES` lists each name that Ray does not document. A test
checks them against the lowest and the newest allowed version of Ray, so we notice before users if a
name disappears. `head/ray_startup`, which Ray's processes run at their start, must not import the
workbench. Its names are only listed here.
"""

from __future__ import annotations

import functools
import time
from typing import Any

PRIVATE_NAMES = {
    "ray._private.state.jobs": "tells whether the job that holds a lease has ended",
    "ray._private.state.actors": "tells whether the actor that holds a lease has ended",
    "ray._private.state.available_resources_per_node": (
        "is what each node has free, whereas the documented function adds all nodes up"
    ),
    "ray._private.state.state._connect_and_get_accessor": (
        "gives access to the table of processes, which says why one has ended"
    ),
    "ray.core.generated.gcs_pb2.WorkerTableData": "is a row of that table",
    "ray.core.generated.gcs_pb2.ActorTableData": "defines the states of actors",
    "ray.core.generated.common_pb2.NODE_OUT_OF_MEMORY": "is Ray's reason where memory ran out",
    "ray.core.generated.common_pb2.Language": "is a part of the request for processes ahead",
    "ray.core.generated.node_manager_pb2.PrestartWorkersRequest": "is that request",
    "ray.core.generated.node_manager_pb2_grpc.NodeManagerServiceStub": "sends it to a node",
    "ray._private.grpc_utils.init_grpc_channel": "connects to the node with the cluster's token",
    "ray.actor.ActorHandle._get_local_state": (
        "is what this process knows of an actor, whereas asking the cluster takes a round trip"
    ),
    "ray.experimental.internal_kv._internal_kv_put": "keeps variables that no disk should hold",
    "ray.experimental.internal_kv._internal_kv_get": "reads them",
    "ray._raylet.Config": "reads the environment again: Ray did so when it was imported",
    "ray._raylet.AuthenticationTokenLoader": "reads the token of the local head again",
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "makes a process of the head bind to loopback",
    "ray._private.worker._global_node": (
        "knows the folder of the session. `ray.init` returns it, but replaces the SIGTERM handler"
    ),
    "ray._private.worker.listen_error_messages": (
        "prints messages about dead workers in spite of log_to_driver=False"
    ),
    "ray.scripts.scripts.get_ray_client_dependency_error": "starts a proxy that nothing here uses",
    "ray._private.services.start_api_server": "waits for a dashboard that nobody has asked for",
    "ray._private.services.get_node": "is asked for 30 s only whether the node has started",
    "ray._private.utils.get_dashboard_dependency_error": "lets agents load what only that needs",
    "ray.dashboard.utils.get_all_modules": "is used by `ray_startup`: it imports a whole dashboard",
    "ray._raylet.getproctitle": "is used by `ray_startup`: it says whether a process has work",
    "ray._common.usage.usage_lib": "is used by `ray_startup`, which imports it before it is needed",
}
"""Names of Ray that are not documented, each with the reason why it is used."""
OPTIONAL_NAMES = {
    "ray.serve.context._get_global_client": "knows where a running Ray Serve listens",
}
"""Those of an extra of Ray that need not be installed."""

_ANY_JOB = b"\xff" * 4
_RPC_TIMEOUT_S = 5.0
_NODE_POLL_S = 0.1


def session_folder() -> str:
    """Return the folder of the cluster's session on this machine. The process is attached."""
    from ray._private import worker

    node: Any = worker._global_node
    return node.get_session_dir_path()


def ended_jobs() -> set[str]:
    """Return the ids of the jobs of the cluster that have ended."""
    from ray._private import state

    return {job["JobID"] for job in state.jobs() if job["IsDead"]}


def actor_state(actor_id: str) -> tuple[str, int]:
    """Return the state of an actor as the cluster knows it, and its process, 0 at first."""
    from ray._private import state

    actor = state.actors(actor_id)
    return actor.get("State", "DEAD"), actor.get("Pid", 0)


def free_by_node() -> dict[str, dict[str, float]]:
    """Return the resources that are free now on each node, by its id."""
    from ray._private import state

    return state.available_resources_per_node()


def was_killed_for_memory(process_id: str, patience_s: float) -> bool:
    """Return whether the cluster killed a process because memory ran out.

    Args:
        process_id: Ray's id of the process, in hexadecimal digits.
        patience_s: How long to wait until the cluster knows why the process has ended.
    """
    import ray
    from ray._private import state
    from ray.core.generated import common_pb2, gcs_pb2

    rows: Any = gcs_pb2  # generated without types
    reasons: Any = common_pb2
    accessor: Any = state.state._connect_and_get_accessor()
    worker_id = ray.WorkerID(bytes.fromhex(process_id))
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        stored = accessor.get_worker_info(worker_id)
        worker = rows.WorkerTableData.FromString(stored) if stored else None
        if worker is not None and not worker.is_alive:
            return worker.exit_type == reasons.NODE_OUT_OF_MEMORY
        time.sleep(0.02)
    return False


def is_known_dead(actor: Any) -> bool:
    """Return whether an actor has died or is restarted, as far as this process knows."""
    return actor._get_local_state() in _dead_states()


def is_known_alive(actor: Any) -> bool:
    """Return whether an actor has been created and lives, as far as this process knows."""
    from ray.core.generated import gcs_pb2

    rows: Any = gcs_pb2
    return actor._get_local_state() == rows.ActorTableData.ALIVE


@functools.cache
def _dead_states() -> tuple[int, int]:
    from ray.core.generated import gcs_pb2

    rows: Any = gcs_pb2
    return rows.ActorTableData.RESTARTING, rows.ActorTableData.DEAD


def put_text(key: str, text: str, namespace: str) -> None:
    """Keep a text in the memory of the cluster, unless it has one of that key."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, text, overwrite=False, namespace=namespace)


def get_text(key: str, namespace: str) -> Any:
    """Return a text from the memory of the cluster, or None if it has none of that key."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_get(key, namespace=namespace)


def start_processes(number: int) -> None:
    """Let the node of this process start processes for the actors to come."""
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
        keep_alive_duration_secs=24 * 3600,  # longer than a head is kept that idles
    )
    with channel:
        node_manager_pb2_grpc.NodeManagerServiceStub(channel).PrestartWorkers(
            request, timeout=_RPC_TIMEOUT_S
        )


def read_environment_again(*, on_loopback: bool) -> Any:
    """Let Ray read its environment variables, which it did when it was imported.

    Args:
        on_loopback: Whether processes of this machine are to use loopback only.

    Returns:
        What reads the token: `reset_cache` makes it forget one, `has_token` reads it.
    """
    from ray import _raylet
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = not on_loopback
    raylet: Any = _raylet  # a compiled module without types
    raylet.Config.initialize("")
    return raylet.AuthenticationTokenLoader.instance()


def ignore_messages() -> None:
    """Keep Ray from printing messages about dead workers, which its log files also contain.

    The thread that prints them also prints its own stack where the head ends while it starts.
    """
    from ray._private import worker

    worker.listen_error_messages = lambda *_: None


def leave_out_unused(ray_scripts: Any, ray_services: Any, ray_utils: Any) -> None:
    """Keep `ray start` from starting a proxy for Ray Client, and a dashboard that is not wanted.

    If a version of Ray uses other names, it starts them as usual.

    Args:
        ray_scripts: Ray's module of the command.
        ray_services: Ray's module that starts processes.
        ray_utils: Ray's module that knows whether the packages of the dashboard are installed:
            where they are not, agents are small.
    """
    if hasattr(ray_scripts, "get_ray_client_dependency_error"):
        ray_scripts.get_ray_client_dependency_error = lambda: "Ray Client is not used"
    start = getattr(ray_services, "start_api_server", None)
    if start is None:
        return

    def start_api_server(include_dashboard: bool | None, *arguments: Any, **options: Any) -> Any:
        if include_dashboard is not False:
            return start(include_dashboard, *arguments, **options)
        # It is looked at when the agent starts, later.
        if hasattr(ray_utils, "get_dashboard_dependency_error"):
            error = ImportError("no dashboard is requested")
            ray_utils.get_dashboard_dependency_error = lambda: error
        return None, None  # no address, no process

    ray_services.start_api_server = start_api_server


def wait_for_node(ray_services: Any) -> None:
    """Let `ray start` wait for its node as long as the process of the node lives.

    Otherwise it gives up after 30 s, which a node may need on a busy machine. The keeper of the
    head ends what hangs.

    Args:
        ray_services: Ray's module that starts processes.
    """
    get_node = getattr(ray_services, "get_node", None)
    if get_node is None:
        return

    def get_started_node(*arguments: Any, **options: Any) -> Any:
        while True:
            try:
                return get_node(*arguments, **options)
            except RuntimeError:
                time.sleep(_NODE_POLL_S)  # Ray asks again without a pause
                if not _is_node_alive():
                    raise

    ray_services.get_node = get_started_node


def _is_node_alive() -> bool:
    """Return whether this process has started a node that lives."""
    import psutil

    children = psutil.Process().children()
    return any(
        child.name() == "raylet" and child.status() != psutil.STATUS_ZOMBIE for child in children
    )


def run_command_line() -> None:
    """Run Ray's command line without what nothing here uses. Its module is imported already."""
    import ray._private.services as services
    import ray._private.utils as utils
    import ray.scripts.scripts as scripts

    leave_out_unused(scripts, services, utils)
    wait_for_node(services)
    scripts.main()


def served_address() -> tuple[str, int] | None:
    """Return where the Ray Serve of the cluster listens, or None if none runs."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        client = serve.context._get_global_client()  # pyright: ignore[reportAttributeAccessIssue]
    except RayServeException:
        return None
    return client.http_config.host, client.http_config.port
