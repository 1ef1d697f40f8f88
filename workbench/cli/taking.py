"""Commands that take a result along, or bring an experiment in: report, export, import."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from workbench.cli.elsewhere import anywhere
from workbench.cli.options import attach, example, json_option, run_argument, store_option
from workbench.cli.printing import print_json


@click.command()
@anywhere(brings={"--to": "{run_id}-report.html"})
@run_argument
@click.option(
    "--to", "path", type=click.Path(path_type=Path),
    help="The file; by default in the run's folder, or, with --address, RUN-report.html here.",
)  # fmt: skip
@store_option
@json_option
@example("workbench report last --to report.html")
def report(run_id: str, path: Path | None, as_json: bool) -> None:
    """Write the report of a run: one HTML page that needs no network."""
    run = attach(run_id)
    written = run.report(path).absolute()
    if as_json:
        print_json({"run_id": run.run_id, "report": str(written)})
    else:
        click.echo(str(written))


@click.command()
@anywhere(brings={"--to": None, "--optuna": None})
@run_argument
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write the bundle into this folder.")
@click.option("--trial", type=click.IntRange(min=0), help="This trial instead of the best.")
@click.option("--force", is_flag=True, help="Write into a folder that holds something.")
@click.option("--without-weights", is_flag=True, help="Leave the weights out of the bundle.")
@click.option("--optuna", "url", metavar="URL", help="Write the study into an Optuna storage.")
@click.option("--study-name", help="What the study is called there; by default the run id.")
@store_option
@json_option
@example(
    "workbench export last --to best",
    "workbench export last --optuna sqlite:///study.db",
)
def export(
    run_id: str, folder: Path | None, trial: int | None, force: bool, without_weights: bool, url: str | None,
    study_name: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Take the best trial along as a bundle, or the study to Optuna.

    A bundle holds the configuration, the weights, the command that trains it again, the versions of the
    environment, and the report.
    """
    if folder is None and url is None:
        raise click.UsageError("Say where: --to DIR for a bundle, --optuna URL for a study.")
    run = attach(run_id)
    document: dict[str, str | None] = {"run_id": run.run_id, "bundle": None, "study": None}
    if folder is not None:
        bundle = run.export(folder, trial=trial, force=force, weights=not without_weights)
        document["bundle"] = str(bundle.absolute())
    if url is not None:
        document["study"] = run.export_study(url, study_name)
    if as_json:
        print_json(document)
        return
    if document["bundle"] is not None:
        click.echo(f"bundle  {document['bundle']}")
    if url is not None:
        from workbench.store.urls import hide_password

        click.echo(f"study   {document['study']} in {hide_password(url)}")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--train", metavar="MODULE:FUNCTION", help="The function (config, report) that a trial calls.")
@click.option("--to", "path", type=click.Path(path_type=Path), help="The experiment file; by default stdout.")
@json_option
@example("workbench import sweep.yaml --train my_training:train --to experiment.yaml")
def import_sweep(file: Path, train: str | None, path: Path | None, as_json: bool) -> None:
    """Turn a W&B sweep file into an experiment file."""
    from workbench.errors import ExperimentError
    from workbench.experiment.wandb_sweep import HOMELESS, from_wandb_sweep
    from workbench.experiment.yaml_file import read_yaml_file

    document = read_yaml_file(file, holds="a W&B sweep: method, metric, parameters, ...")
    for key in [key for key in document if key in HOMELESS]:
        click.echo(f"left out {key}: {document.pop(key)!r}", err=True)
    experiment = from_wandb_sweep(document, train=train)
    text = experiment.to_yaml()
    if path is None:
        if as_json:
            print_json(experiment.model_dump(mode="json"))
        else:
            click.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"experiment": str(path)})
    else:
        click.echo(f"wrote {path}; look at it with: {shlex.join(['workbench', 'check', str(path)])}")
