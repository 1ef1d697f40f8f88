"""`cluster template`: the file that a launcher, an operator or a batch system takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from workbench.cli.options import FiniteRange, example, json_option, read_seconds, read_settings
from workbench.cli.printing import print_json
from workbench.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment
    from workbench.renting.catalogue import Machine
    from workbench.renting.rental import Rental

TARGETS = ("aws", "gcp", "azure", "kubernetes", "slurm")
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
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--artifacts", metavar="URL", envvar="WORKBENCH_ARTIFACTS", show_envvar=True, required=True,
              help="For checkpoints: a URL, s3://bucket/runs; for slurm also a shared path.")  # fmt: skip
@click.option("--store", metavar="URL", envvar="WORKBENCH_STORE", show_envvar=True, required=True,
              help="Where runs are kept: postgresql://USER@HOST/DATABASE, without a password.")  # fmt: skip
@click.option("--machine", "type_name", metavar="TYPE", help="A type of the catalogue; not for slurm.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True,
              help="Machines that the run asks for: the most there will be.")  # fmt: skip
@click.option("--min-nodes", type=click.IntRange(min=0), default=0, show_default=True,
              help="Machines that stay while nothing runs.")  # fmt: skip
@click.option("--on-demand", is_flag=True, help="Machines that nobody takes back, instead of spot ones.")
@click.option("--idle", default="10m", show_default=True, metavar="DURATION",
              help="After which a machine that does nothing ends.")  # fmt: skip
@click.option("--package", metavar="WHEEL", help="aws, gcp, azure: what pip installs; a wheel file, or any "
              "requirement of pip.")  # fmt: skip
@click.option("--project", help="gcp: whose bill it is.")
@click.option("--machine-image", metavar="IMAGE", help="gcp: with NVIDIA's driver, for machines with GPUs.")
@click.option("--image", help="kubernetes: with Ray, the workbench and your code.")
@click.option("--kind", type=click.Choice(("job", "cluster")), default="job", show_default=True,
              help="kubernetes: a cluster for this run, or one that stays.")  # fmt: skip
@click.option("--environment", type=click.Path(path_type=Path), metavar="FOLDER",
              help="slurm: the virtual environment, on a shared file system.")  # fmt: skip
@click.option(
    "--cpus", type=click.IntRange(min=1), default=8, show_default=True, help="slurm: CPUs of a node."
)
@click.option(
    "--gpus", type=click.IntRange(min=0), default=0, show_default=True, help="slurm: GPUs of a node."
)
@click.option("--memory-gib", type=FiniteRange(min=1), default=32, show_default=True,
              help="slurm: memory of a node that the job takes.")  # fmt: skip
@click.option(
    "--time",
    "time_limit",
    default="04:00:00",
    show_default=True,
    help="slurm: of the job, as Slurm writes times: 90, 4:00:00, 1-12.",
)
@click.option("--option", "options", multiple=True, metavar="OPTION",
              help="slurm: a further option of sbatch, such as --partition=gpu; repeatable.")  # fmt: skip
@click.option("--resume", metavar="RUN", help="Go on with this run instead of starting one.")
@click.option("--catalogue", type=click.Path(path_type=Path), metavar="FILE", help="As in cluster plan.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="Change a setting of the experiment; it goes along.")  # fmt: skip
@click.option("--to", "path", type=click.Path(path_type=Path), metavar="FILE", help="By default stdout.")
@json_option
@example(
    "workbench cluster template aws mine.yaml --machine g5.xlarge --nodes 4 --artifacts s3://bucket/runs \\",
    "      --store postgresql://me@db/runs --package dist/workbench-0.1.0-py3-none-any.whl --to aws.yaml",
    "workbench cluster template kubernetes mine.yaml --machine a2-highgpu-1g --image registry/mine:1 ...",
    "workbench cluster template slurm mine.yaml --environment /shared/venv --nodes 2 --gpus 4 ...",
)
def template(
    target: str, file: Path, artifacts: str, store: str, type_name: str | None, nodes: int, min_nodes: int,
    on_demand: bool, idle: str, package: str | None, project: str | None, machine_image: str | None,
    image: str | None, kind: str, environment: Path | None, cpus: int, gpus: int, memory_gib: float,
    time_limit: str, options: tuple[str, ...], resume: str | None, catalogue: Path | None,
    assignments: tuple[str, ...], path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write what TARGET takes to run an experiment FILE on rented machines.

    aws, gcp and azure: a file for Ray's cluster launcher; kubernetes: manifests for KubeRay; slurm: a batch
    script. The first lines say what to do with it, and how the code gets there: with a file for Ray's
    launcher it is submitted, kubernetes has it in the image, slurm in the folder that this is typed in.

    Machines may be taken back at any time: checkpoints lie where all reach them. Ray asks for a token, which
    is read from a file or a secret and never written here; its dashboard is not public. Nothing is rented by
    this command.
    """
    from workbench.renting.rental import Rental
    from workbench.run import read_experiment

    _refuse_what_is_not_for(target)
    experiment: Experiment = read_experiment(str(file), read_settings(assignments))
    if target == "slurm":
        machine = _node_of_slurm(cpus, gpus, memory_gib)
    else:
        machine = _machine(target, type_name, catalogue)
    rental = Rental(
        experiment, file, machine, nodes, min_nodes, spot=not on_demand, artifacts=artifacts, store=store,
        idle_s=read_seconds("--idle", idle), resume=resume, settings=assignments,
    )  # fmt: skip
    if target == "slurm":
        from workbench.renting.slurm import batch_script

        folder = _needed("--environment", environment, "Name the folder of a virtual environment.")
        text = batch_script(
            rental, Path(str(folder)).absolute(), time_limit, folder=Path.cwd(), options=options
        )
    elif target == "kubernetes":
        from workbench.renting.kuberay import manifests

        holds = "Name an image that holds Ray, the workbench and your code."
        text = manifests(rental, str(_needed("--image", image, holds)), "job" if kind == "job" else "cluster")
    else:
        from workbench.renting.launcher_file import launcher_file

        wheel = "Build a wheel (pip wheel --no-deps .) and name its file."
        text = launcher_file(
            rental, str(_needed("--package", package, wheel)), project=project, machine_image=machine_image,
            path=path,
        )  # fmt: skip
    _write(rental, target, text, path, as_json=as_json)


def _refuse_what_is_not_for(target: str) -> None:
    """Refuse options that would change nothing of what is written."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if target not in _FOR.get(name, TARGETS):
            raise ExperimentError(
                f"changes nothing for {target}", field=parameter.opts[-1],
                allowed=f"with {', '.join(_FOR[name])}",
            )  # fmt: skip


def _machine(target: str, type_name: str | None, catalogue: Path | None) -> Machine:
    from workbench.renting.catalogue import read_catalogue

    known = read_catalogue(catalogue)
    name = _needed("--machine", type_name, "Choose one: workbench cluster plan FILE compares them.")
    return known.machine(str(name), None if target == "kubernetes" else target)


def _node_of_slurm(cpus: int, gpus: int, memory_gib: float) -> Machine:
    from workbench.renting.catalogue import Machine

    # What GPUs they are is Slurm's business.
    return Machine.model_validate({
        "provider": "own", "type": "slurm-node", "region": "slurm", "vcpus": cpus, "memory_gib": memory_gib,
        "device": "any" if gpus else None, "gpus": gpus,
        "source": {"origin": "the command line", "date": "1970-01-01"},
    })  # fmt: skip


def _needed(field: str, given: object, next_step: str) -> object:
    if given is None:
        raise ExperimentError("is needed here", field=field, next_step=next_step)
    return given


def _write(rental: Rental, target: str, text: str, path: Path | None, *, as_json: bool) -> None:
    if path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ExperimentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"target": target, "name": rental.name, "file": path and str(path), "text": text})
    elif path is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {path}; what to do with it is said in its first lines")
