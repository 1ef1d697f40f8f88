"""Read and write the environment variables of Ray: the cluster, the token, the job of this process.

Ray reads the token of the local head from the environment of this process. A token that the user
has set is saved, because it is meant for other clusters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from workbench.experiment.actions import suggest
from workbench.foundation.errors import RunError

_TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
_HEAD_TOKEN = "WORKBENCH_HEAD_TOKEN_PATH"
_GIVEN = "WORKBENCH_GIVEN_"
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_JOB_FOLDERS = "working_dir_files"


def cluster_address(address: str | None = None) -> str | None:
    """Return the address of the cluster to attach to, or None for the local head.

    Args:
        address: As the user gave it, or None for WORKBENCH_RAY_ADDRESS or RAY_ADDRESS.

    Raises:
        RunError: If it is an address for job submission, to which no process can attach.
    """
    chosen = address or os.environ.get("WORKBENCH_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if chosen and chosen.lower().startswith(("http://", "https://")):
        raise RunError(
            f"{chosen} only accepts jobs: a process outside of the cluster cannot attach to it",
            field="address",
            allowed="HOST:PORT of a cluster that this machine is part of",
            next_step=suggest("submit", "FILE", lead="To submit a run", address=chosen),
        )
    return chosen or None


def use_head_token(path: Path) -> None:
    """Make Ray use the token of the local head in this process and its children."""
    environment = given_environment()
    for name in _TOKEN_VARIABLES:
        os.environ[_GIVEN + name] = environment.get(name, "")
    os.environ[_HEAD_TOKEN] = str(path)
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def is_in_local_head() -> bool:
    """Return whether this process uses the local head, as its caller or as one of its processes."""
    token = os.environ.get(_HEAD_TOKEN)
    return token is not None and os.environ.get("RAY_AUTH_TOKEN_PATH") == token


def given_environment() -> Mapping[str, str]:
    """Return the environment as the user set it: without the token of the local head."""
    variables = dict(os.environ)
    if is_in_local_head():
        variables |= {name: variables.get(_GIVEN + name, "") for name in _TOKEN_VARIABLES}
    return {name: value for name, value in variables.items() if value}


def job_folder() -> Path | None:
    """Return the folder into which Ray unpacked submitted files, or None outside of such a job."""
    here = Path.cwd()
    if _JOB_VARIABLE not in os.environ or _JOB_FOLDERS not in here.parts:
        return None
    depth = here.parts.index(_JOB_FOLDERS) + 2
    if len(here.parts) < depth:
        return None
    return Path(*here.parts[:depth])


def drop_job_folder() -> None:
    """Keep Ray from passing the folder of this job on to every actor that this process creates.

    Drivers and workers outlive the job and serve many runs, each of which brings its own code. They
    keep the rest of the job's environment, such as packages to install.
    """
    text = os.environ.get(_JOB_VARIABLE)
    if text is None:
        return
    config = json.loads(text)
    remaining = {
        name: value
        for name, value in (config.get("runtime_env") or {}).items()
        if name not in ("working_dir", "excludes")
    }
    os.environ[_JOB_VARIABLE] = json.dumps({**config, "runtime_env": remaining})
