"""A request for a cluster, for any launcher: machines, stores and the experiment to run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.foundation.errors import ArgumentError
from workbench.runs.provisioning.catalogue import Machine
from workbench.store.database.urls import hide_password

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_USUAL = re.compile(r"[A-Za-z0-9 ._-]+")
_MAX_NAME_CHARS = 47
"""Limit of the name of a RayJob, the strictest of all: KubeRay appends to it."""
AWAIT = "python -m workbench.cluster.workers.await_nodes"


@dataclass(frozen=True)
class ClusterRequest:
    """Everything that a launcher file needs.

    Attributes:
        experiment: The experiment to run, with `settings` applied.
        file: Its file.
        machine: The type of the machines that do the work.
        nodes: The maximum number of machines. The run requests all of them.
        min_nodes: How many machines stay when nothing runs.
        spot: Whether the provider may reclaim them.
        artifacts: The URL or shared path for checkpoints.
        store: URL or path of the store, without a password.
        idle_s: Seconds after which an idle machine is ended.
        resume: The run to resume, or None to start a new one.
        settings: Changes to the file, NAME=VALUE each, as `--set` takes them.
    """

    experiment: Experiment
    file: Path
    machine: Machine
    nodes: int
    min_nodes: int
    spot: bool
    artifacts: str
    store: str
    idle_s: float = 600.0
    resume: str | None = None
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not work on several machines, or would reveal a secret."""
        if not 0 <= self.min_nodes <= self.nodes:
            raise ArgumentError(
                f"--min-nodes {self.min_nodes} is more than --max-nodes {self.nodes}",
                field="--min-nodes",
                allowed=f"0 to {self.nodes}",
            )
        if self.spot and "spot" not in self.machine.markets:
            raise ArgumentError(
                f"{self.machine.provider} does not offer {self.machine.type} as a spot machine",
                field="--on-demand",
                next_step="Add --on-demand.",
            )
        if self.resume is not None and self.settings:
            raise ArgumentError(
                "a run that is resumed keeps its settings",
                field="--set",
                next_step=suggest("set", self.resume, lead="Omit --resume, or change the run"),
            )
        if hide_password(self.store) != self.store:
            raise ArgumentError(
                "its password would be written into the file",
                field="--store",
                next_step=("Omit the password. The machines read it from ~/.pgpass or a secret."),
            )

    def check_shared_storage(self) -> None:
        """Check that all machines reach the store and the artifacts.

        Raises:
            ArgumentError: If one of them is on a single machine.
        """
        if not self.store.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
            raise ArgumentError(
                f"{self.store} would be on a machine that ends",
                field="--store",
                allowed="postgresql://USER@HOST/DATABASE",
            )
        if "://" not in self.artifacts:
            raise ArgumentError(
                f"{self.artifacts} would be on a machine that ends",
                field="--artifacts",
                allowed="a URL such as s3://bucket/runs, gs://bucket/runs",
            )

    @property
    def name(self) -> str:
        """The name of the cluster: an RFC 1123 label, short enough to append suffixes to it.

        It is made from the experiment's name. If characters had to be dropped, a hash is added.
        """
        letters = (
            unicodedata.normalize("NFKD", self.experiment.name).encode("ascii", "ignore").decode()
        )
        name = f"workbench-{_SEPARATORS.sub('-', letters.lower()).strip('-')}".rstrip("-")
        if (
            _USUAL.fullmatch(self.experiment.name)
            and name != "workbench"
            and len(name) <= _MAX_NAME_CHARS
        ):
            return name
        digest = hashlib.sha256(self.experiment.name.encode()).hexdigest()[:8]
        return f"{name[: _MAX_NAME_CHARS - len(digest) - 1].rstrip('-')}-{digest}"

    @property
    def title(self) -> str:
        """The rented machines, for the first line of the file."""
        market = "on demand"
        if self.spot:
            market = "spot"
        where = f"{self.machine.provider}, {self.machine.region}"
        return f"{self.nodes} x {self.machine.type} ({where}), {market}, for {self.experiment.name}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of every process. None of them is secret."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "WORKBENCH_STORE": self.store,
            "WORKBENCH_ARTIFACTS": self.artifacts,
        }

    @property
    def await_command(self) -> str:
        """The command that requests the nodes of the cluster and waits for them."""
        return f"{AWAIT} --nodes {self.nodes} --cpus {self.cpus} --gpus {self.machine.gpus}"

    @property
    def set_arguments(self) -> list[str]:
        """The `--set` arguments of a command that reads the file."""
        return [word for setting in self.settings for word in ("--set", setting)]

    @property
    def cpus(self) -> int:
        """CPUs of one machine."""
        return self.machine.vcpus


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all machines."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    # A suffix after + describes a local build.
    return {"python": python} | {
        name: importlib.metadata.version(name).partition("+")[0] for name in ("ray", "torch")
    }


def ray_image(gpus: int) -> str:
    """Return the image of the installed versions of Ray and Python."""
    known = versions()
    python = known["python"].replace(".", "")
    kind = "gpu" if gpus else "cpu"
    return f"rayproject/ray:{known['ray']}-py{python}-{kind}"


def as_comment(text: str) -> str:
    """Return text as comment lines."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.strip().splitlines())
