"""Runs copies of an ASGI application on a cluster with Ray Serve, behind one address.

The caller provides the application. Ray keeps the copies alive and distributes requests.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from workbench.cluster.head import attachment, local_head
from workbench.cluster.ray_internals import served_address
from workbench.foundation.errors import (
    ArgumentError,
    MissingDependencyError,
    RunError,
    first_line_of,
    install_command,
)

STOP_S = 30.0
"""How long requests that were accepted may take when a copy ends, in seconds."""


def check_serve() -> None:
    """Check that Ray Serve is installed.

    Raises:
        MissingDependencyError: If it is not.
    """
    try:
        import ray.serve  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "this needs Ray Serve, which is not installed",
            next_step=f"Install it: {install_command('serve-on-ray')}",
        ) from error


class ServedApplication:
    """An application that Ray Serve serves. It ends with `close`."""

    def __init__(
        self,
        name: str,
        *,
        address: str | None,
        host: str,
        port: int,
        replicas: int,
        cpus: int,
        max_requests: int,
    ) -> None:
        """Attach to a cluster, the local head if no other is named, and start its HTTP server.

        Args:
            name: The name of the application in the cluster.
            address: As in `attachment.connect`.
            host: The address on which the nodes of the cluster listen.
            port: The port.
            replicas: Number of copies.
            cpus: CPUs of each copy.
            max_requests: Requests that each copy may process at once.

        Raises:
            RunError: If the cluster cannot be reached.
            ArgumentError: If Ray Serve listens elsewhere already, or the name is taken.
            MissingDependencyError: If Ray Serve is not installed.
        """
        check_serve()
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        attachment.connect(address)
        from ray import serve

        _check_address(host, port)
        if name in serve.status().applications:
            raise ArgumentError(
                f"the cluster serves an application {name!r} already",
                field="--on",
                next_step="Stop the process that started it, or: serve.delete in Python.",
            )
        serve.start(http_options={"host": host, "port": port})
        self._name = name
        self._options: dict[str, Any] = {
            "num_replicas": replicas,
            "ray_actor_options": {"num_cpus": cpus},
            "max_ongoing_requests": max_requests,
            "graceful_shutdown_timeout_s": STOP_S,
            "graceful_shutdown_wait_loop_s": 0.1,
        }

    def deploy(self, build: Callable[[], Any]) -> None:
        """Serve a new application. Copies of the old one are replaced in turn.

        Args:
            build: Called in each copy. It returns an ASGI application.

        Raises:
            RunError: If a copy cannot start.
        """
        from ray import serve

        def built() -> Any:  # Ray tells a builder from an application by its being a plain function
            return build()

        deployment: Any = serve.deployment(name=self._name, **self._options)(serve.ingress(built)())
        try:
            serve.run(deployment.bind(), name=self._name, route_prefix="/")
        # Ray Serve raises several kinds, which have no common base class.
        except Exception as error:
            raise RunError(
                f"Ray Serve cannot serve the application: {first_line_of(error)}",
                next_step="Run: serve status",
            ) from error

    def keep_alive(self) -> None:
        """Record that the local head is in use."""
        local_head.keep_alive()

    def close(self) -> None:
        """Answer what was accepted, and end the copies.

        Ray Serve itself stays if it serves anything else.
        """
        from ray import serve

        with contextlib.suppress(Exception):  # the cluster may be gone
            serve.delete(self._name)
            if not serve.status().applications:
                serve.shutdown()


def _check_address(host: str, port: int) -> None:
    """Refuse an address that a running Ray Serve does not listen on."""
    served = served_address()
    if served not in (None, (host, port)):
        served_host, served_port = served
        raise ArgumentError(
            f"Ray Serve of this cluster listens on {served_host}:{served_port}",
            field="--port",
            next_step=f"Use --host {served_host} --port {served_port}.",
        )
