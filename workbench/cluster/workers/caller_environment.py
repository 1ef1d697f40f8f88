"""The environment variables of the process that starts a run, which its driver and workers get.

A local head and its processes outlive the shell that started them, so what they inherit is not what
the next caller has set. The variables are kept in the memory of the cluster under their digest:
they may be secrets, and orders are written to disks. Variables of a session or of one process, such
as a terminal's, are skipped, and so are those that Ray and the workbench set themselves.

The nodes of a cluster that somebody else started have variables of their own, such as PATH,
LD_LIBRARY_PATH or NCCL_SOCKET_IFNAME. None of them is removed, and on other machines than the
caller's none is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from workbench.cluster.head.attachment import NAMESPACE
from workbench.cluster.head.ray_environment import is_in_local_head
from workbench.cluster.ray_internals import get_text, put_text
from workbench.foundation.errors import RunError

_PREFIXES = (
    "BASH_FUNC_",
    "COV_",
    "DBUS_",
    "GNOME_",
    "GPG_",
    "JPY_",
    "LC_TERMINAL",
    "MAKE",
    "PYDEVD_",
    "PYTEST_",
    "RAY_",
    "SSH_",
    "SUDO_",
    "TERM",
    "TMUX",
    "TUNE_",
    "VSCODE_",
    "WAYLAND_",
    "WORKBENCH_",
    "WT_",
    "XDG_SESSION_",
)
_NAMES = frozenset(
    {
        "_",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "COLUMNS",
        "CUDA_VISIBLE_DEVICES",
        "DISPLAY",
        "FORCE_COLOR",
        "GIT_PAGER",
        "HOSTNAME",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LESSCLOSE",
        "LESSOPEN",
        "LINES",
        "LS_COLORS",
        "MAIL",
        "MFLAGS",
        "MKL_NUM_THREADS",
        "NO_COLOR",
        "OLDPWD",
        "OMP_NUM_THREADS",
        "PAGER",
        "PS1",
        "PWD",
        "PYTHONPATH",
        "SHLVL",
        "STY",
        "WINDOWID",
        "WINDOWPATH",
        "XAUTHORITY",
    }
)
_READ_AT_START = ("LD_", "DYLD_", "PYTHON", "MALLOC_", "GLIBC_", "KMP_", "LANG", "LC_")
"""Beginnings of the names of variables that count only if a process starts with them."""
_KEY = "workbench-environment-"

_entered: CallerEnvironment | None = None
"""That of the caller, in a process that a run has started."""


@dataclass(frozen=True)
class CallerEnvironment:
    """The variables of a caller, and where it runs.

    Attributes:
        host: The name of its machine.
        variables: The variables that its runs get.
    """

    host: str
    variables: Mapping[str, str]

    def enter(self) -> None:
        """Give this process the variables.

        A process of the local head has exactly these afterwards. On a cluster that somebody else
        started, what only the node has stays, and on another machine the node's values win.
        """
        global _entered
        _entered = self
        if is_in_local_head():
            for name in _passed_on(os.environ).keys() - self.variables.keys():
                del os.environ[name]
        own = os.environ if self.host != socket.gethostname() else {}
        os.environ.update(
            {name: value for name, value in self.variables.items() if name not in own}
        )

    def needed_at_start(self) -> dict[str, str]:
        """Return the variables without which a process must not start.

        Programs and libraries read them only at the start. Those that this process has are left
        out, because a new one gets them from its node.
        """
        return {
            name: value
            for name, value in self.variables.items()
            if name.startswith(_READ_AT_START) and os.environ.get(name) != value
        }

    def digest(self) -> str:
        """Return a SHA-256 digest that is equal for equal environments."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the environment as text, which `fetch` reads."""
        return json.dumps(asdict(self), sort_keys=True)


def this_environment() -> CallerEnvironment:
    """Return the environment that this process passes on: that of its caller, or else its own."""
    return _entered or CallerEnvironment(socket.gethostname(), _passed_on(os.environ))


def publish() -> str:
    """Keep the environment of this process in the memory of the cluster that it is attached to.

    Returns:
        Its digest, or empty if this process is not attached to any cluster.
    """
    import ray  # here, because commands that only compare offers also load this module

    if not ray.is_initialized():
        return ""
    environment = this_environment()
    put_text(_KEY + environment.digest(), environment.to_json(), NAMESPACE)
    return environment.digest()


def fetch(digest: str) -> CallerEnvironment:
    """Return an environment that was published.

    Args:
        digest: Its digest. If it is empty, the environment of this process is returned.

    Raises:
        RunError: If the cluster does not have it, because it was started again.
    """
    if not digest:
        return this_environment()
    text = get_text(_KEY + digest, NAMESPACE)
    if text is None:
        raise RunError("the environment variables of the run are not on this cluster")
    return CallerEnvironment(**json.loads(text))


def _passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if _is_passed_on(name, value)}


def _is_passed_on(name: str, value: str) -> bool:
    if name == "MPLBACKEND" and value.startswith("module://"):
        return False  # a notebook's own, which cannot draw anywhere else
    return name not in _NAMES and not name.startswith(_PREFIXES)
