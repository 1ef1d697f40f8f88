"""`ray start` without the processes and imports of a head that nothing here uses.

Even without a dashboard, Ray starts the process that would serve it, and waits for it before
anything else starts. It also waits until the node's agent has loaded the code that answers the
dashboard, and it starts a proxy for Ray Client. Each of them imports most of Ray, on processors
that the first run needs. So `ray_internals` disables them.

Ray's command line also imports its commands for Ray Serve, jobs and states, which takes longer than
the rest of it. If a version of Ray uses other names, everything is started and imported as usual.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from workbench.cluster.head.ray_startup.sitecustomize import import_ray
from workbench.cluster.ray_internals import run_command_line

COMMANDS = "ray.scripts.scripts"
UNUSED_COMMANDS = ("ray.serve.scripts", "ray.util.state.state_cli", "ray.dashboard.modules.job.cli")
"""Parts of the command line that Ray omits if their packages are not installed."""


def import_commands() -> None:
    """Import Ray's command line, if possible without commands that start no head."""
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


def main() -> None:
    """Run Ray's command line with the arguments of this process."""
    import_commands()
    run_command_line()


if __name__ == "__main__":
    main()
