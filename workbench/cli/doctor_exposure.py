"""Checks of `doctor` for exposure: who else could reach the head or read the files of runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.options import open_existing_store
from workbench.foundation.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.cluster.head.exposure import Listener


def find_exposures() -> list[tuple[bool, str, str | None]]:
    """Return what others could reach or read.

    Whether that is a fault, what it is, and how to fix it.
    """
    return [*_sockets(), *_tokens(), *_files()]


def _sockets() -> list[tuple[bool, str, str | None]]:
    from workbench.cluster.head import local_head
    from workbench.cluster.head.exposure import listeners

    found = local_head.status()
    beyond = [] if found is None else [item for item in listeners(found.pid) if not item.is_local]
    workers = [item for item in beyond if item.process.startswith("ray::")]
    own = [item for item in beyond if item not in workers]
    exposures: list[tuple[bool, str, str | None]] = []
    if own:
        fix = "Stop it, and start it without Ray's address settings: workbench shutdown"
        exposures.append((True, f"the Ray head listens beyond this machine: {_describe(own)}", fix))
    if workers:
        text = "workers that trained together listen beyond this machine, as torch has them do"
        fix = "Keep others away by a firewall; the workers end with: workbench shutdown"
        exposures.append((True, f"{text}: {_describe(workers)}", fix))
    return exposures


def _describe(found: list[Listener]) -> str:
    return ", ".join(f"{item.process} on {item.host}:{item.port}" for item in found)


def _tokens() -> list[tuple[bool, str, str | None]]:
    """Find a cluster that requires no token, and tokens that others can read."""
    from workbench.cluster.head import local_head
    from workbench.cluster.head.exposure import readable_by_others

    exposures: list[tuple[bool, str, str | None]] = []
    tokens = [Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")]
    address = os.environ.get("WORKBENCH_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if address and os.environ.get("RAY_AUTH_MODE") != "token":
        text = (
            f"the cluster at {address} is used without a token: anyone who can reach it can run"
            " code there"
        )
        exposures.append((False, text, "Start it with RAY_AUTH_MODE=token, and set it here, too."))
    found = readable_by_others([*tokens, local_head.token_path()])
    text = "others on this machine can read the token in"
    return [*exposures, *((True, f"{text} {path}", _close(path)) for path in found)]


def _files() -> list[tuple[bool, str, str | None]]:
    from workbench.cluster.head.exposure import readable_by_others
    from workbench.data.cache import cache_folder
    from workbench.store.alerts import settings_path

    paths = [cache_folder(), settings_path()]
    try:
        with open_existing_store() as store:
            if store.url.startswith("sqlite"):
                paths.append(Path(store.place))
            if store.artifacts.is_local:
                paths.append(store.artifacts.working_folder)
    except WorkbenchError:
        pass  # reported by the check of the store
    return [
        (False, f"others on this machine can read {path}", _close(path))
        for path in readable_by_others(paths)
    ]


def _close(path: Path) -> str:
    return f"If they should not: chmod go-rwx {shlex.quote(str(path))}"
