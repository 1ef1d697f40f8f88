"""Serves bundles with Ray Serve, with the same routes and answers as the plain server.

Every copy of the server has all bundles, which are sent to it as files.
`workbench.cluster.head.served_application` runs the copies and distributes requests.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.cluster.head.served_application import ServedApplication
from workbench.deploy.card import CARD, MODEL
from workbench.deploy.serving.access_token import Token
from workbench.deploy.serving.served_models import Limits, Version, check_same_interface
from workbench.foundation.errors import WorkbenchError

APPLICATION = "workbench"
_FILES = (CARD, MODEL)
_WAIT_S = 1.0


@dataclass(frozen=True)
class Copy:
    """Everything that a copy of the server needs on any node.

    Attributes:
        files: The files of each bundle, by the name of its model.
        limits: The limits of batches and queues.
        token: The token that requests must have, or None.
    """

    files: Mapping[str, Mapping[str, bytes]]
    limits: Limits
    token: Token | None

    @classmethod
    def of(cls, bundles: Mapping[str, Path], limits: Limits, token: Token | None) -> Copy:
        """Read the bundles as they are now."""
        files = {
            name: {file: (folder / file).read_bytes() for file in _FILES}
            for name, folder in bundles.items()
        }
        return cls(files, limits, token)

    def build(self) -> Any:
        """Return the application of the plain server. It is called on the node of the copy."""
        from workbench.deploy.serving.app import Service, make_app
        from workbench.deploy.serving.served_models import ServedModel

        models = []
        for name, files in self.files.items():
            with tempfile.TemporaryDirectory(prefix="workbench-") as temporary:
                folder = Path(temporary)
                for file, content in files.items():
                    (folder / file).write_bytes(content)
                version = Version.open(folder, self.limits)
            models.append(
                ServedModel(
                    name,
                    folder,
                    version,
                    self.limits,
                    lambda *batch: service.metrics.count_batch(*batch),
                )
            )
        service = Service(models, self.limits, self.token, is_copy=True)
        return make_app(service)


def serve(
    bundles: Mapping[str, Path],
    versions: Mapping[str, Version],
    limits: Limits,
    *,
    application: ServedApplication,
    token: Token | None,
    notify: Callable[[str], None],
    started: Callable[[], None],
) -> None:
    """Serve bundles until a signal ends it. SIGHUP loads the bundles from their folders again.

    Args:
        bundles: The folder of each model by its name.
        versions: The opened bundles.
        limits: The limits of batches and queues in each copy.
        application: The Ray Serve application.
        token: The token that requests must have, or None.
        notify: Receives messages for the operator, in one line.
        started: Called when the server answers requests.

    Raises:
        WorkbenchError: If the first copies cannot start.
    """
    stop, swap, wake = threading.Event(), threading.Event(), threading.Event()

    def ask(event: threading.Event) -> Callable[..., None]:
        def on_signal(*_: object) -> None:
            event.set()
            wake.set()

        return on_signal

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask(stop))
    signal.signal(signal.SIGHUP, ask(swap))
    served = dict(versions)
    try:
        application.deploy(Copy.of(bundles, limits, token).build)
        started()
        while not stop.is_set():
            wake.wait(_WAIT_S)
            wake.clear()
            application.keep_alive()
            if swap.is_set():
                swap.clear()
                served = _replace(
                    served, bundles, limits, token, application=application, notify=notify
                )
    finally:
        notify("stopping: accepted requests are answered first")
        application.close()


def _replace(
    served: dict[str, Version],
    bundles: Mapping[str, Path],
    limits: Limits,
    token: Token | None,
    *,
    application: ServedApplication,
    notify: Callable[[str], None],
) -> dict[str, Version]:
    """Serve the bundles that are now in the folders.

    If one of them cannot replace the served model, nothing changes.
    """
    try:
        newer = {name: Version.open(folder, limits) for name, folder in bundles.items()}
        for name, version in newer.items():
            check_same_interface(served[name].card, version.card)
        if all(newer[name].sha256 == version.sha256 for name, version in served.items()):
            notify("there are no newer models")
            return served
        application.deploy(Copy.of(bundles, limits, token).build)
    except WorkbenchError as error:
        notify(f"{str(error).rstrip('.')}. The current models stay in service")
        return served
    notify(
        ", ".join(f"{name}: now version {version.sha256[:12]}" for name, version in newer.items())
    )
    return newer
