"""`ray start` without the processes and imports of a head that nothing here uses.

Even without a dashboard Ray starts the process that would serve it, and waits for that before
anything else starts; it lets the agent of the node load what answers the dashboard, and waits for
that, too; and it starts a proxy for Ray Client. Each imports most of Ray, on the processors that
the first run waits for. Ray's command line in turn imports its commands for Ray Serve, jobs and
states, which takes longer than the rest of it. Where a version of Ray names things otherwise, it
starts and imports them as usual.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from workbench.cluster.head.ray_startup.sitecustomize import import_ray

COMMANDS = "ray.scripts.scripts"
UNUSED_COMMANDS = ("ray.serve.scripts", "ray.util.state.state_cli", "ray.dashboard.modules.job.cli")
"""Parts of the command line that Ray does without where their packages are not installed."""


def import_commands() -> None:
    """Import Ray's command line, without commands that are not for starting a head if that is
    possible.
    """
    try:
        with _not_installed(*UNUSED_COMMANDS):
            import_ray(COMMANDS)
    except ImportError:
        import_ray(COMMANDS)


@contextlib.contextmanager
def _not_installed(*modules: str) -> Iterator[None]:
    """Let importing these modules fail at once, as it does where they are not installed."""
    absent: dict[str, Any] = {name: None for name in modules if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def leave_out_unused(ray_scripts: Any, ray_services: Any, ray_utils: Any) -> None:
    """Let `ray start` start no proxy for Ray Client, and nothing for a dashboard unless one is
    requested.

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
        if hasattr(
            ray_utils, "get_dashboard_dependency_error"
        ):  # looked at when the agent starts, later
            ray_utils.get_dashboard_dependency_error = lambda: ImportError(
                "no dashboard is requested"
            )
        return None, None  # no address, no process

    ray_services.start_api_server = start_api_server


def main() -> None:
    """Run Ray's command line with the arguments of this process."""
    import_commands()
    import ray._private.services as services
    import ray._private.utils as utils
    import ray.scripts.scripts as scripts

    leave_out_unused(scripts, services, utils)
    scripts.main()


if __name__ == "__main__":
    main()
