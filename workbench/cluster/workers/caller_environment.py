"""The environment variables of the process that starts a run, which its driver and workers get.

A local head and its processes outlive the shell that started them, so what they inherit is not what
the next caller has set. The variables are kept in the memory of the cluster under their digest:
they may be secrets, and orders are written to disks. Variables of a session or of one process, such
as a terminal's, are skipped, and so are those that Ray and the workbench set themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

from workbench.cluster.head.attachment import NAMESPACE
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


def variables_of_caller(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of this process that its runs get.

    Args:
        environment: All variables, or None for the variables of this process.

    Example:
        >>> variables_of_caller({"DATA_DIR": "/data", "TERM": "xterm", "PWD": "/home/me"})
        {'DATA_DIR': '/data'}
    """
    variables = os.environ if environment is None else environment
    return {name: value for name, value in variables.items() if _is_passed_on(name, value)}


def publish() -> str:
    """Keep the variables of this process in the memory of the cluster that it is attached to.

    Returns:
        Their digest, or empty if it is not attached to any.
    """
    import ray  # here, because commands that only compare offers also load this module

    if not ray.is_initialized():
        return ""
    text = json.dumps(variables_of_caller(), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    put_text(_KEY + digest, text, NAMESPACE)
    return digest


def fetch(digest: str) -> dict[str, str]:
    """Return variables that were published.

    Args:
        digest: Their digest. If it is empty, the variables of this process are returned.

    Raises:
        RunError: If the cluster does not have them, because it was started again.
    """
    if not digest:
        return variables_of_caller()
    text = get_text(_KEY + digest, NAMESPACE)
    if text is None:
        raise RunError("the environment variables of the run are not on this cluster")
    return json.loads(text)


def enter(variables: Mapping[str, str]) -> None:
    """Give this process the variables of a caller.

    Args:
        variables: All that it should have of those that are passed on.
    """
    for name in variables_of_caller().keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def needed_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without which a process must not start, because it reads them only then.

    Args:
        variables: All that it will have.
    """
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_READ_AT_START) and os.environ.get(name) != value
    }


def _is_passed_on(name: str, value: str) -> bool:
    if name == "MPLBACKEND" and value.startswith("module://"):
        return False  # a notebook's own, which cannot draw anywhere else
    return name not in _NAMES and not name.startswith(_PREFIXES)
