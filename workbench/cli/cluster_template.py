"""`cluster template`: writes the file for a cluster launcher, an operator or a batch system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.core import ParameterSource

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json
from workbench.cli.parameters import (
    ARTIFACTS,
    CATALOGUE,
    CPUS_PER_NODE,
    ENVIRONMENT,
    EXPERIMENT,
    GPUS_PER_NODE,
    IDLE,
    IMAGE,
    JOB_TIME,
    JSON,
    KIND,
    LAUNCHER_TARGET,
    LAUNCHER_TARGETS,
    MACHINE,
    MACHINE_IMAGE,
    MAX_NODES,
    MEMORY_PER_NODE,
    MIN_NODES,
    MONEY,
    ON_DEMAND,
    PACKAGE,
    PROJECT,
    RESUME,
    SBATCH_OPTION,
    SETTINGS,
    STORE,
    TO,
    given_store,
)
from workbench.experiment.actions import write_assignments
from workbench.foundation.errors import ArgumentError, Suggestion

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.runs.provisioning.catalogue import Machine
    from workbench.runs.provisioning.cluster_request import ClusterRequest

TARGETS = LAUNCHER_TARGETS
_WHEEL = "Build a wheel (pip wheel --no-deps .) and pass its path."
_COMPARE_MACHINES = Suggestion(
    "To compare machines", "cluster plan", "FILE", words=("cluster", "plan", "FILE")
)
_CLOUDS, _SKYPILOT = TARGETS[:3], "skypilot"
_ON_RAY = TARGETS[:4]
_FOR = {
    name: targets
    for targets, names in (
        ((*_ON_RAY, _SKYPILOT), ("type_name", "catalogue", "on_demand", "idle")),
        (_ON_RAY, ("min_nodes",)),
        ((*_ON_RAY, "slurm"), ("max_nodes",)),
        ((*_CLOUDS, _SKYPILOT), ("package",)),
        ((_SKYPILOT,), ("money",)),
        (("gcp",), ("project", "machine_image")),
        (("kubernetes",), ("image", "kind")),
        (
            ("slurm",),
            (
                "environment",
                "cpus_per_node",
                "gpus_per_node",
                "memory_per_node",
                "job_time",
                "options",
            ),
        ),
    )
    for name in names
}


@click.command()
@takes(
    LAUNCHER_TARGET,
    EXPERIMENT,
    ARTIFACTS(is_required=True),
    STORE,
    MACHINE,
    MAX_NODES(default=1),
    MIN_NODES(default=0),
    ON_DEMAND,
    IDLE(default="10m"),
    MONEY,
    PACKAGE,
    PROJECT,
    MACHINE_IMAGE,
    IMAGE,
    KIND(default="job"),
    ENVIRONMENT,
    CPUS_PER_NODE(default=8),
    GPUS_PER_NODE,
    MEMORY_PER_NODE(default="32GiB"),
    JOB_TIME(default="04:00:00"),
    SBATCH_OPTION(is_repeatable=True),
    RESUME,
    CATALOGUE,
    SETTINGS(is_repeatable=True),
    TO,
    JSON,
)
@example(
    "workbench cluster template aws mine.yaml --machine g5.xlarge --max-nodes 4 --artifacts"
    " s3://bucket/runs \\",
    "      --store postgresql://me@db/runs --package"
    " dist/tuning_workbench-0.1.0-py3-none-any.whl --to aws.yaml",
    "workbench cluster template kubernetes mine.yaml --machine a2-highgpu-1g --image"
    " registry/mine:1 ...",
    "workbench cluster template slurm mine.yaml --environment /shared/venv --max-nodes 2"
    " --gpus-per-node 4 ...",
)
def template(
    *,
    target: str,
    file: str,
    artifacts: str,
    type_name: str | None,
    max_nodes: int,
    min_nodes: int,
    on_demand: bool,
    idle: float,
    money: str | None,
    package: str | None,
    project: str | None,
    machine_image: str | None,
    image: str | None,
    kind: str,
    environment: Path | None,
    cpus_per_node: int,
    gpus_per_node: int | None,
    memory_per_node: int,
    job_time: str,
    options: tuple[str, ...],
    resume: str | None,
    catalogue: Path | None,
    settings: dict[str, Any] | None,
    to: Path | None,
    as_json: bool,
) -> None:
    """Write the file that TARGET needs to run an experiment FILE on rented machines.

    For aws, gcp and azure you get a file for Ray's cluster launcher, for kubernetes manifests for
    KubeRay, for slurm a batch script, and for skypilot a task that ends its machine before it costs
    more than --money. The first lines of the file explain how to use it.

    Your code is submitted with Ray's launcher. For kubernetes it must be part of the image, and for
    slurm and skypilot it must be in the current folder.

    Machines may be reclaimed at any time, so checkpoints are stored where all machines reach them.
    Ray requires a token. It is read from a file or a secret, and never written to the file. Ray's
    dashboard is not public. This command rents nothing.
    """
    from workbench.runs import read_experiment
    from workbench.runs.provisioning.cluster_request import ClusterRequest

    _check_options_of(target)
    experiment: Experiment = read_experiment(file, settings or {})
    if target == "slurm":
        machine = _node_of_slurm(cpus_per_node, gpus_per_node or 0, memory_per_node)
    else:
        machine = _machine(target, type_name, catalogue)
    rental = ClusterRequest(
        experiment,
        Path(file),
        machine,
        max_nodes,
        min_nodes,
        spot=not on_demand,
        artifacts=artifacts,
        store=_database(),
        idle_s=idle,
        resume=resume,
        settings=tuple(write_assignments(settings or {})),
    )
    if target == "slurm":
        from workbench.runs.provisioning.slurm import batch_script

        folder = _needed("--environment", environment, "Give the folder of a virtual environment.")
        text = batch_script(
            rental, Path(str(folder)).absolute(), job_time, folder=Path.cwd(), options=options
        )
    elif target == "kubernetes":
        from workbench.runs.provisioning.kuberay import manifests

        requirement = "Give an image that contains Ray, Workbench and your code."
        text = manifests(
            rental,
            str(_needed("--image", image, requirement)),
            cast("Literal['job', 'cluster']", kind),
        )
    elif target == _SKYPILOT:
        from workbench.cli.cluster_plan import read_dollars
        from workbench.runs.provisioning.skypilot import task_file

        budget_usd = read_dollars(str(_needed("--money", money, "Say what it may cost: 20USD.")))
        assert budget_usd is not None
        text = task_file(rental, str(_needed("--package", package, _WHEEL)), budget_usd, path=to)
    else:
        from workbench.runs.provisioning.ray_launcher import launcher_file

        text = launcher_file(
            rental,
            str(_needed("--package", package, _WHEEL)),
            project=project,
            machine_image=machine_image,
            path=to,
        )
    _write(rental, target, text, to, as_json=as_json)


def _check_options_of(target: str) -> None:
    """Raise an error for options that have no effect on the target."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if target not in _FOR.get(name, TARGETS):
            raise ArgumentError(
                f"this option has no effect for {target}",
                field=parameter.opts[-1],
                allowed=f"with {', '.join(_FOR[name])}",
            )


def _machine(target: str, type_name: str | None, catalogue: Path | None) -> Machine:
    from workbench.runs.provisioning.catalogue import read_catalogue

    known = read_catalogue(catalogue)
    name = str(_needed("--machine", type_name, _COMPARE_MACHINES))
    if target in ("kubernetes", _SKYPILOT):  # runs on the machines of any provider
        return known.machine(name, None)
    return known.machine(name, target)


def _database() -> str:
    """Return the URL of the database server that keeps the runs.

    Raises:
        ArgumentError: If none is given.
    """
    url = given_store() or os.environ.get("WORKBENCH_STORE")
    if url is None:
        raise ArgumentError(
            "the machines need a database that all of them can reach",
            field="--store",
            allowed="postgresql://USER@HOST/DATABASE, without a password",
        )
    return url


def _node_of_slurm(cpus: int, gpus: int, memory_bytes: int) -> Machine:
    from workbench.runs.provisioning.catalogue import Machine

    device = None
    if gpus:  # Slurm decides which
        device = "any"
    return Machine.model_validate(
        {
            "provider": "own",
            "type": "slurm-node",
            "region": "slurm",
            "vcpus": cpus,
            "memory_gib": memory_bytes / 2**30,
            "device": device,
            "gpus": gpus,
            "source": {"origin": "the command line", "date": "1970-01-01"},
        }
    )


def _needed(field: str, given: object, next_step: str | Suggestion) -> object:
    if given is None:
        raise ArgumentError("this option is required here", field=field, next_step=next_step)
    return given


def _write(
    rental: ClusterRequest, target: str, text: str, path: Path | None, *, as_json: bool
) -> None:
    if path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    if as_json:
        print_json(
            {"target": target, "name": rental.name, "path": path and str(path), "content": text}
        )
    elif path is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {path}. Its first lines explain how to use it.")
