"""`ray start` without the processes of a head that nothing here uses.

Even without a dashboard Ray starts the process that would serve it, and waits for that before anything else
starts; and it starts a proxy for Ray Client. Each imports most of Ray, on the processors that the first run
waits for. Where a version of Ray names things otherwise, it starts them as usual.
"""

from __future__ import annotations

from typing import Any

from workbench.head.ray_startup.sitecustomize import import_ray

import_ray("ray.scripts.scripts")

import ray._private.services as services  # noqa: E402
import ray.scripts.scripts as scripts  # noqa: E402


def leave_out_unused(ray_scripts: Any, ray_services: Any) -> None:
    """Let `ray start` start no proxy for Ray Client, and no dashboard process unless one is requested.

    Args:
        ray_scripts: Ray's module of the command.
        ray_services: Ray's module that starts processes.
    """
    if hasattr(ray_scripts, "get_ray_client_dependency_error"):
        ray_scripts.get_ray_client_dependency_error = lambda: "Ray Client is not used"
    start = getattr(ray_services, "start_api_server", None)
    if start is None:
        return

    def start_api_server(include_dashboard: bool | None, *arguments: Any, **options: Any) -> Any:
        if include_dashboard is False:
            return None, None  # no address, no process
        return start(include_dashboard, *arguments, **options)

    ray_services.start_api_server = start_api_server


if __name__ == "__main__":
    leave_out_unused(scripts, services)
    scripts.main()
