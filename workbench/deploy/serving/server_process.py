"""The process that serves: its socket, its signals, and its orderly end.

SIGTERM and SIGINT end it after all accepted requests were answered. A second signal ends it at
once. SIGHUP opens the bundles again. `app` answers the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from workbench.deploy.distributions import needs
from workbench.deploy.serving.access_token import Token
from workbench.deploy.serving.drift_alerts import DriftAlerts
from workbench.deploy.serving.served_models import Limits, ServedModel, Version
from workbench.foundation.errors import ArgumentError, WorkbenchError
from workbench.foundation.formatting import format_count

if TYPE_CHECKING:
    from workbench.deploy.serving.connections import Network

_MAX_CONNECTIONS = 4096
_SPARE_FILES = 128
"""Open files that are reserved for everything except connections."""
_BACKLOG = 512
_GRACE_S = 30
_IDLE_S = 75
"""How long an unused connection is kept. This is longer than proxies usually keep theirs."""
_SWITCH_S = 1e-3
"""The switch interval of threads. The default of 5 ms is longer than most models compute."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: A name or number of this machine.
        port: The port, or 0 for any that is free.

    Raises:
        ArgumentError: If it cannot.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ArgumentError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            field="--port",
            next_step="Choose another port, or --port 0 for any free port.",
        ) from error
    listener.setblocking(False)
    return listener


def check_packages() -> None:
    """Check that the packages for serving are installed, before anything is opened.

    Raises:
        MissingDependencyError: If a package is missing.
    """
    for package in ("onnxruntime", "prometheus_client", "starlette", "uvicorn"):
        with needs(package):
            importlib.import_module(package)


def open_versions(bundles: Mapping[str, Path], limits: Limits) -> dict[str, Version]:
    """Open bundles. Arguments as in `ServedModel`.

    Raises:
        WorkbenchError: If a bundle cannot be served.
    """
    return {name: Version.open(folder, limits) for name, folder in bundles.items()}


def serve(
    bundles: Mapping[str, Path],
    versions: Mapping[str, Version],
    limits: Limits,
    *,
    listener: socket.socket,
    token: Token | None,
    notify: Callable[[str], None],
    alerts: DriftAlerts,
    trusted_proxies: tuple[Network, ...] = (),
) -> None:
    """Serve bundles until a signal ends it.

    Args:
        bundles: The folder of each model by its name.
        versions: The opened bundles.
        limits: The limits of batches and queues.
        listener: The socket that listens.
        token: The token that requests must have, or None.
        notify: Receives messages for the operator, in one line.
        alerts: Watches the models for drift.
        trusted_proxies: Addresses that may have all connections, because each serves many clients.
    """
    import uvicorn

    from workbench.deploy.serving.app import Service, make_app
    from workbench.deploy.serving.connections import Connections, LimitedProtocol

    async def main() -> None:
        models = [
            ServedModel(
                name,
                folder,
                versions[name],
                limits,
                lambda *batch: service.metrics.count_batch(*batch),
            )
            for name, folder in bundles.items()
        ]
        service = Service(models, limits, token)
        connections = Connections(_allow_connections(), trusted_proxies)
        config = uvicorn.Config(
            make_app(service),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="on",
            http=LimitedProtocol.of(connections),
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_GRACE_S,
            timeout_keep_alive=_IDLE_S,
            proxy_headers=False,
        )
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def start(work: Coroutine[Any, Any, None]) -> None:
            task = loop.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async def stop() -> None:
            service.is_stopping = True
            notify(
                f"stopping: {format_count(service.num_accepted, 'accepted request')} to answer"
                " first"
            )
            while service.num_accepted and not server.force_exit:
                await asyncio.sleep(0.01)
            server.should_exit = True

        class Server(uvicorn.Server):
            """A server that answers all accepted requests before it ends."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                if service.is_stopping:
                    self.force_exit = self.should_exit = True
                else:
                    loop.call_soon_threadsafe(lambda: start(stop()))

        server = Server(config)
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, lambda: start(swap_all(models, notify)))
        start(alerts.watch(models))
        leave_out_of_collections()
        await server.serve(sockets=[listener])
        alerts.close(models)
        notify(f"stopped after {format_count(service.num_answered, 'answered request')}")

    sys.setswitchinterval(_SWITCH_S)
    with contextlib.closing(listener):
        run_loop(main())


def leave_out_of_collections() -> None:
    """Exclude all current objects from garbage collection. They live as long as the server.

    Modules, models and routes are about 90,000 objects. Under load, a full collection would visit
    them every second. It takes 50 ms in which no request is answered.
    """
    gc.collect()
    gc.freeze()


def _allow_connections() -> int:
    """Raise the process's limit of open files as far as possible.

    Returns:
        How many connections the limit allows.
    """
    num_files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_CONNECTIONS + _SPARE_FILES
    if num_files < wanted:
        num_files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, hard))
    return min(_MAX_CONNECTIONS, num_files - _SPARE_FILES)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on the fastest event loop that is installed."""
    try:
        import uvloop  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        asyncio.run(main)
        return
    uvloop.run(main)


async def swap_all(models: list[ServedModel], notify: Callable[[str], None]) -> None:
    """Open all bundles again, and report the result for each."""
    for model in models:
        try:
            swapped = await model.swap()
        except WorkbenchError as error:
            notify(f"{model.name}: {str(error).rstrip('.')}. The current model stays in service")
            continue
        result = "now version" if swapped else "nothing newer than"
        notify(f"{model.name}: {result} {model.version.sha256[:12]}")


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the host and port on which a socket listens."""
    name: Any = listener.getsockname()
    return (f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]), name[1]
