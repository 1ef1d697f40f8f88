"""What is to be rented, for any launcher: machines and how many, where runs are kept, what runs there."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.renting.catalogue import Machine
from workbench.store.urls import hide_password

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_USUAL = re.compile(r"[A-Za-z0-9 ._-]+")
_MOST_LETTERS = 47
"""Of the name of a RayJob, the shortest limit of all: KubeRay makes longer names of it."""
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
        settings: What is changed of the file, NAME=VALUE each, as `--set` takes it; the experiment has it.
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
        """Refuse what could not work on several machines, or would give a secret away."""
        if not 0 <= self.min_nodes <= self.nodes:
            raise ExperimentError(
                f"{self.min_nodes} are more than {self.nodes}", field="--min-nodes", allowed="0 to --nodes"
            )
        if self.spot and "spot" not in self.machine.markets:
            raise ExperimentError(
                f"{self.machine.provider} rents out no {self.machine.type} that it may take back",
                field="--on-demand", next_step="Add --on-demand.",
            )  # fmt: skip
        if self.resume is not None and self.settings:
            raise ExperimentError(
                "a run that goes on keeps its settings", field="--set",
                next_step="Leave out --resume, or change what can be changed of a run: workbench set RUN.",
            )  # fmt: skip
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
        """What the cluster is called: a label of RFC 1123, short enough for all that is made of it.

        It tells what is left of the experiment's name; where that is not all, a hash keeps two of them apart.
        """
        letters = unicodedata.normalize("NFKD", self.experiment.name).encode("ascii", "ignore").decode()
        name = f"workbench-{_SEPARATORS.sub('-', letters.lower()).strip('-')}".rstrip("-")
        if _USUAL.fullmatch(self.experiment.name) and name != "workbench" and len(name) <= _MOST_LETTERS:
            return name
        digest = hashlib.sha256(self.experiment.name.encode()).hexdigest()[:8]
        return f"{name[: _MOST_LETTERS - len(digest) - 1].rstrip('-')}-{digest}"

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

    @property
    def ask(self) -> str:
        """The command that asks a cluster for its machines, and waits for them."""
        return f"{AWAIT} --nodes {self.nodes} --cpus {self.cpus} --gpus {self.machine.gpus}"

    @property
    def set_words(self) -> list[str]:
        """What a command that reads the file is told besides, word by word."""
        return [word for setting in self.settings for word in ("--set", setting)]

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
