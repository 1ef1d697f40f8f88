"""`cluster template`: writes the file for a cluster launcher, an operator or a batch system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from workbench.cli.options import (
    PATH,
    Count,
    FiniteRange,
    example,
    json_option,
    option,
    read_settings,
)
from workbench.cli.output import print_json
from workbench.foundation.errors import ArgumentError, Suggestion
from workbench.foundation.formatting import duration_argument_s

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.runs.provisioning.catalogue import Machine
    from workbench.runs.provisioning.cluster_request import ClusterRequest

TARGETS = ("aws", "gcp", "azure", "kubernetes", "slurm")
_COMPARE_MACHINES = Suggestion(
    "Choose one; to compare them", "cluster plan", "FILE", words=("cluster", "plan", "FILE")
)
_CLOUDS, _ALL_BUT_SLURM = TARGETS[:3], TARGETS[:4]
_FOR = {
    name: targets
    for targets, names in (
        (_ALL_BUT_SLURM, ("type_name", "catalogue", "min_nodes", "on_demand", "idle")),
        (_CLOUDS, ("package",)),
        (("gcp",), ("project", "machine_image")),
        (("kubernetes",), ("image", "kind")),
        (("slurm",), ("environment", "cpus", "gpus", "memory_gib", "time_limit", "options")),
    )
    for name in names
}


@click.command()
@click.argument("target", type=click.Choice(TARGETS))
@click.argument("file", type=PATH)
@option(
    "--artifacts",
    "Keep checkpoints at this URL, such as s3://bucket/runs, or a shared path.",
    metavar="URL",
    envvar="WORKBENCH_ARTIFACTS",
    show_envvar=True,
    required=True,
)
@option(
    "--store",
    "Keep runs here: postgresql://USER@HOST/DATABASE, without a password.",
    metavar="URL",
    envvar="WORKBENCH_STORE",
    show_envvar=True,
    required=True,
)
@option(
    "--machine type_name", "Use this machine type of the catalogue; not for slurm.", metavar="TYPE"
)
@option("--nodes", "Use at most this many machines.", Count(min=1), default=1)
@option("--min-nodes", "Keep this many machines while nothing runs.", Count(min=0), default=0)
@option("--on-demand", "Use on-demand machines instead of spot machines.", is_flag=True)
@option(
    "--idle",
    "Release a machine after it has been idle for this long.",
    default="10m",
    metavar="DURATION",
)
@option(
    "--package",
    "aws, gcp, azure: install this with pip: a wheel file, or any requirement of pip.",
    metavar="WHEEL",
)
@option("--project", "gcp: bill this project.")
@option(
    "--machine-image",
    "gcp: boot this image, which has NVIDIA's driver, on machines with GPUs.",
    metavar="IMAGE",
)
@option("--image", "kubernetes: use this image, which contains Ray, the workbench and your code.")
@option(
    "--kind",
    "kubernetes: create a cluster for this run, or one that stays.",
    click.Choice(("job", "cluster")),
    default="job",
)
@option(
    "--environment",
    "slurm: use this virtual environment on a shared file system.",
    PATH,
    metavar="FOLDER",
)
@option("--cpus", "slurm: request this many CPUs per node.", Count(min=1), default=8)
@option("--gpus", "slurm: request this many GPUs per node.", Count(min=0), default=0)
@option("--memory-gib", "slurm: request this much memory per node.", FiniteRange(min=1), default=32)
@option(
    "--time time_limit",
    "slurm: limit the job to this time, in Slurm's form: 90, 4:00:00, 1-12.",
    default="04:00:00",
)
@option(
    "--option options",
    "slurm: pass this option to sbatch, such as --partition=gpu; repeatable.",
    multiple=True,
    metavar="OPTION",
)
@option("--resume", "Continue this run instead of starting one.", metavar="RUN")
@option("--catalogue", "Use a custom catalogue, as in cluster plan.", PATH, metavar="FILE")
@option(
    "--set assignments",
    "Change a setting of the experiment, also in the written files.",
    multiple=True,
    metavar="NAME=VALUE",
)
@option("--to path", "Write to this file; by default to stdout.", PATH, metavar="FILE")
@json_option
@example(
    "workbench cluster template aws mine.yaml --machine g5.xlarge --nodes 4 --artifacts"
    " s3://bucket/runs \\",
    "      --store postgresql://me@db/runs --package"
    " dist/tuning_workbench-0.1.0-py3-none-any.whl --to aws.yaml",
    "workbench cluster template kubernetes mine.yaml --machine a2-highgpu-1g --image"
    " registry/mine:1 ...",
    "workbench cluster template slurm mine.yaml --environment /shared/venv --nodes 2 --gpus 4 ...",
)
def template(
    *,
    target: str,
    file: Path,
    artifacts: str,
    store: str,
    type_name: str | None,
    nodes: int,
    min_nodes: int,
    on_demand: bool,
    idle: str,
    package: str | None,
    project: str | None,
    machine_image: str | None,
    image: str | None,
    kind: str,
    environment: Path | None,
    cpus: int,
    gpus: int,
    memory_gib: float,
    time_limit: str,
    options: tuple[str, ...],
    resume: str | None,
    catalogue: Path | None,
    assignments: tuple[str, ...],
    path: Path | None,
    as_json: bool,
) -> None:
    """Write the launcher files with which TARGET runs an experiment FILE on rented machines.

    aws, gcp and azure: a file for Ray's cluster launcher; kubernetes: manifests for KubeRay; slurm:
    a batch script. The first lines of the file explain its use and how your code reaches the
    machines: it is submitted with Ray's launcher, part of the image for kubernetes, and in the
    current folder for slurm.

    Machines may be reclaimed at any time: checkpoints are stored where all machines reach them. Ray
    requires a token, which is read from a file or a secret and never written here; its dashboard is
    not public. This command rents nothing.
    """
    from workbench.runs import read_experiment
    from workbench.runs.provisioning.cluster_request import ClusterRequest

    _check_options_of(target)
    experiment: Experiment = read_experiment(str(file), read_settings(assignments))
    if target == "slurm":
        machine = _node_of_slurm(cpus, gpus, memory_gib)
    else:
        machine = _machine(target, type_name, catalogue)
    rental = ClusterRequest(
        experiment,
        file,
        machine,
        nodes,
        min_nodes,
        spot=not on_demand,
        artifacts=artifacts,
        store=store,
        idle_s=duration_argument_s(idle, field="--idle"),
        resume=resume,
        settings=assignments,
    )
    if target == "slurm":
        from workbench.runs.provisioning.slurm import batch_script

        folder = _needed("--environment", environment, "Name the folder of a virtual environment.")
        text = batch_script(
            rental, Path(str(folder)).absolute(), time_limit, folder=Path.cwd(), options=options
        )
    elif target == "kubernetes":
        from workbench.runs.provisioning.kuberay import manifests

        holds = "Name an image that contains Ray, the workbench and your code."
        text = manifests(
            rental, str(_needed("--image", image, holds)), "job" if kind == "job" else "cluster"
        )
    else:
        from workbench.runs.provisioning.ray_launcher import launcher_file

        wheel = "Build a wheel (pip wheel --no-deps .) and pass its path."
        text = launcher_file(
            rental,
            str(_needed("--package", package, wheel)),
            project=project,
            machine_image=machine_image,
            path=path,
        )
    _write(rental, target, text, path, as_json=as_json)


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
    name = _needed("--machine", type_name, _COMPARE_MACHINES)
    return known.machine(str(name), None if target == "kubernetes" else target)


def _node_of_slurm(cpus: int, gpus: int, memory_gib: float) -> Machine:
    from workbench.runs.provisioning.catalogue import Machine

    # The type of GPU is up to Slurm.
    return Machine.model_validate(
        {
            "provider": "own",
            "type": "slurm-node",
            "region": "slurm",
            "vcpus": cpus,
            "memory_gib": memory_gib,
            "device": "any" if gpus else None,
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
            {"target": target, "name": rental.name, "file": path and str(path), "text": text}
        )
    elif path is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {path}; its first lines explain how to use it")
