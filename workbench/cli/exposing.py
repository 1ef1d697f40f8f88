"""What doctor says of exposure: who else could reach the head, and who could read what runs keep."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.options import open_store
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.workers.exposure import Listener


def find_exposures() -> list[tuple[bool, str, str | None]]:
    """Return what others could reach: whether that is bad, what it is, and what to do about it."""
    return [*_sockets(), *_tokens(), *_files()]


def _sockets() -> list[tuple[bool, str, str | None]]:
    from workbench.workers import head
    from workbench.workers.exposure import listeners

    found = head.status()
    beyond = [] if found is None else [item for item in listeners(found.pid) if not item.is_local]
    if not beyond:
        return []
    fix = "Stop it, and start it without address settings of Ray's: workbench shutdown"
    return [(True, f"the Ray head listens beyond this machine: {_describe(beyond)}", fix)]


def _describe(found: list[Listener]) -> str:
    return ", ".join(f"{item.process} on {item.host}:{item.port}" for item in found)


def _tokens() -> list[tuple[bool, str, str | None]]:
    """Say where this process would reach a cluster that asks for no token, or shows its token to others."""
    from workbench.workers import head
    from workbench.workers.exposure import open_to_others

    told: list[tuple[bool, str, str | None]] = []
    tokens = [Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")]
    address = os.environ.get("WORKBENCH_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if address and os.environ.get("RAY_AUTH_MODE") != "token":
        text = f"the cluster at {address} is used without a token: whoever reaches it can run code there"
        told.append((False, text, "Start it with RAY_AUTH_MODE=token, and set that here, too."))
    found = open_to_others([*tokens, head.token_path()])
    text = "others on this machine can read the token in"
    return [*told, *((True, f"{text} {path}", _close(path)) for path in found)]


def _files() -> list[tuple[bool, str, str | None]]:
    from workbench.alerts import settings_path
    from workbench.data.cache import cache_folder
    from workbench.workers.exposure import open_to_others

    paths = [cache_folder(), settings_path()]
    try:
        with open_store() as store:
            if store.url.startswith("sqlite"):
                paths.append(Path(store.place))
            if store.artifacts.is_local:
                paths.append(store.artifacts.working_folder)
    except WorkbenchError:
        pass  # the store was looked at before
    return [
        (False, f"others on this machine can read {path}", _close(path)) for path in open_to_others(paths)
    ]


def _close(path: Path) -> str:
    return f"If they should not: chmod go-rwx {shlex.quote(str(path))}"
