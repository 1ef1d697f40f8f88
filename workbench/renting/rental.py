"""What is to be rented, for any launcher: machines and how many, where runs are kept, what runs there."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.renting.catalogue import Machine
from workbench.store.urls import hide_password

_NAME = re.compile(r"[^a-z0-9]+")
AWAIT = "python -m workbench.workers.await_nodes"


@dataclass(frozen=True)
class Rental:
    """What a launcher file is written for.

    Attributes:
        experiment: What is to be run.
        file: Its file.
        machine: The type of the machines that do the work.
        nodes: How many at most: the run asks for all of them.
        min_nodes: How many stay while nothing runs.
        spot: Whether they may be taken back.
        artifacts: URL, or path that all machines share, where checkpoints are kept.
        store: Where runs are kept, without a password.
        idle_s: Seconds after which a machine that does nothing ends.
        resume: A run that is to go on; None to start one.
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

    def __post_init__(self) -> None:
        """Refuse what could not work on several machines, or would give a secret away."""
        if not 0 <= self.min_nodes <= self.nodes:
            raise ExperimentError(
                f"{self.min_nodes} are more than {self.nodes}", field="--min-nodes", allowed="0 to --nodes"
            )
        if hide_password(self.store) != self.store:
            raise ExperimentError(
                "a password would be written into the file", field="--store",
                next_step="Leave it out; it is read from ~/.pgpass or a secret on the machines.",
            )  # fmt: skip

    def refuse_local_files(self) -> None:
        """Refuse places that one machine has for itself.

        Raises:
            ExperimentError: If the store or the artifacts are none that all machines reach.
        """
        if not self.store.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
            raise ExperimentError(
                f"{self.store} lies on a machine that ends", field="--store",
                allowed="postgresql://USER@HOST/DATABASE",
            )  # fmt: skip
        if "://" not in self.artifacts:
            raise ExperimentError(
                f"{self.artifacts} lies on a machine that ends", field="--artifacts",
                allowed="a URL such as s3://bucket/runs, gs://bucket/runs",
            )  # fmt: skip

    @property
    def name(self) -> str:
        """What the cluster is called: letters, digits and dashes."""
        return f"workbench-{_NAME.sub('-', self.experiment.name.lower()).strip('-')[:40].rstrip('-')}"

    @property
    def title(self) -> str:
        """What it is, as the first line says it."""
        market = "spot" if self.spot else "on demand"
        where = f"{self.machine.provider}, {self.machine.region}"
        return f"{self.nodes} x {self.machine.type} ({where}), {market}, for {self.experiment.name}"

    @property
    def environment(self) -> dict[str, str]:
        """What every process there is told; nothing of it is secret."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "WORKBENCH_STORE": self.store,
            "WORKBENCH_ARTIFACTS": self.artifacts,
        }

    def session(self, file: str) -> str:
        """Return the shell command that does the run, machines asked for first and let go at its end.

        Args:
            file: Where the experiment file lies there.
        """
        # A shell finds the home folder only where the tilde is not quoted.
        path = f"~/{shlex.quote(file[2:])}" if file.startswith("~/") else shlex.quote(file)
        do = f"sweep {path}" if self.resume is None else f"resume {shlex.quote(self.resume)}"
        wanted = f"--nodes {self.nodes} --cpus {self.cpus} --gpus {self.machine.gpus}"
        return f"{AWAIT} {wanted} && workbench {do}; code=$?; {AWAIT} --release; exit $code"

    @property
    def cpus(self) -> int:
        """CPUs that a machine offers."""
        return self.machine.vcpus


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all machines."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    # What follows a + says how it was built here.
    return {"python": python} | {
        name: importlib.metadata.version(name).partition("+")[0] for name in ("ray", "torch")
    }


def ray_image(gpus: int) -> str:
    """Return the image that the Ray project publishes of the installed version of Ray and Python."""
    known = versions()
    return f"rayproject/ray:{known['ray']}-py{known['python'].replace('.', '')}-{'gpu' if gpus else 'cpu'}"


def remark(text: str) -> str:
    """Return text as comments."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.strip().splitlines())
