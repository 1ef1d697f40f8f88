"""What the environment says about Ray: which cluster, whose token, which job this process is part of.

The local head puts a token of its own into this process's environment, for Ray to find; what a person had
put there is remembered, as it is meant for other clusters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import RunError

_TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
_OUR_TOKEN = "WORKBENCH_HEAD_TOKEN_PATH"
_GIVEN = "WORKBENCH_GIVEN_"
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_JOB_FOLDERS = "working_dir_files"


def cluster_address(address: str | None = None) -> str | None:
    """Return the cluster that is meant; None for the local head.

    Args:
        address: What somebody said; None for WORKBENCH_RAY_ADDRESS or RAY_ADDRESS.

    Raises:
        RunError: If it is an address that takes jobs, to which nobody can attach.
    """
    given = address or os.environ.get("WORKBENCH_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if given and given.lower().startswith(("http://", "https://")):
        raise RunError(
            f"{given} takes jobs, and this process would have to be part of the cluster", field="address",
            allowed="HOST:PORT of a cluster that this machine belongs to",
            next_step=f"Submit the run: workbench submit FILE --address {given}",
        )  # fmt: skip
    return given or None


def use_our_token(path: Path) -> None:
    """Let Ray, in this process and its children, show the token of the local head."""
    given = given_environment()
    for name in _TOKEN_VARIABLES:
        os.environ[_GIVEN + name] = given.get(name, "")
    os.environ[_OUR_TOKEN] = str(path)
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def given_environment() -> Mapping[str, str]:
    """Return the environment without the token of the local head, which is for nobody else."""
    found = dict(os.environ)
    if _OUR_TOKEN in found and found.get("RAY_AUTH_TOKEN_PATH") == found[_OUR_TOKEN]:
        found |= {name: found.get(_GIVEN + name, "") for name in _TOKEN_VARIABLES}
    return {name: value for name, value in found.items() if value}


def job_folder() -> Path | None:
    """Return the folder in which Ray unpacked what was submitted; None outside of a job that has one."""
    here = Path.cwd()
    if _JOB_VARIABLE not in os.environ or _JOB_FOLDERS not in here.parts:
        return None
    depth = here.parts.index(_JOB_FOLDERS) + 2
    return Path(*here.parts[:depth]) if len(here.parts) >= depth else None


def leave_job_folder_to_the_job() -> None:
    """Keep Ray from giving the folder of this job to every actor that this process makes.

    Drivers and workers outlive the job and serve many: each run brings its code along itself. What else the
    job was given, such as packages to install, they keep.
    """
    text = os.environ.get(_JOB_VARIABLE)
    if text is None:
        return
    config = json.loads(text)
    kept = {
        name: value for name, value in (config.get("runtime_env") or {}).items()
        if name not in ("working_dir", "excludes")
    }  # fmt: skip
    os.environ[_JOB_VARIABLE] = json.dumps({**config, "runtime_env": kept})
