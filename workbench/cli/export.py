"""Commands that write results: report, trace, export, ensemble."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach, command_line, described, example, named_trial
from workbench.cli.output import echo, print_json, print_note
from workbench.cli.parameters import FORCE, METRIC, RUN, SIZE, STORED, TO, TRIAL, options_of
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS
from workbench.foundation.bundle_manifest import read_configuration

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.runs import Run


@click.command()
@remote_capable(brings={"--to": "{run_id}-report.html"})
@takes(RUN, options_of("report"), STORED)
@described(ACTIONS["report"])
def report(run_id: str, to: Path | None, as_json: bool) -> None:
    """Write the report of a run."""
    run = attach(run_id)
    written = run.report(to).absolute()
    if as_json:
        print_json({"run_id": run.run_id, "report": str(written)})
    else:
        click.echo(str(written))
        click.echo("Open it in a browser. It needs no network.", err=True)


@click.command()
@remote_capable(brings={"--to": "{run_id}-trace.json"})
@takes(RUN, TO, TRIAL, STORED)
@example("workbench trace last", "workbench trace last --trial 3 --to trial-3.json")
def trace(run_id: str, to: Path | None, trial: int | None, as_json: bool) -> None:
    """Write what each worker did and when, for Perfetto.

    Open the file at ui.perfetto.dev, which keeps it in the browser, or in chrome://tracing.
    """
    run = attach(run_id)
    written = run.trace(to, trial=trial).absolute()
    if as_json:
        print_json({"run_id": run.run_id, "trace": str(written)})
    else:
        click.echo(str(written))
        click.echo("Open it at ui.perfetto.dev.", err=True)


@click.command()
@remote_capable(brings={"--to": None, "--optuna": None})
@takes(RUN, options_of("export", "export_study"), STORED)
@described(
    ACTIONS["export"],
    """A bundle contains the configuration, the weights, the command that trains it again, the
    versions of the environment, and the report.""",
)
def export(
    *,
    run_id: str,
    to: Path | None,
    trial: int | None,
    format: str | None,
    force: bool | None,
    weights: bool | None,
    url: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Export a trial as a bundle, or the study to Optuna."""
    if to is None and url is None:
        raise click.UsageError(
            "give --to FOLDER to write a bundle, or --optuna URL to write a study"
        )
    run_id, trial = named_trial(run_id, trial)
    run = attach(run_id)
    document: dict[str, str | None] = {"run_id": run.run_id, "bundle": None, "study": None}
    if to is not None:
        bundle = run.export(
            to, trial=trial, format=format, force=bool(force), weights=weights is not False
        )
        document["bundle"] = str(bundle.absolute())
    if url is not None:
        document["study"] = run.export_study(url, name)
    if as_json:
        print_json(document)
        return
    if document["bundle"] is not None:
        click.echo(f"bundle  {document['bundle']}")
        click.echo(f"use it  {how_to_use(Path(document['bundle']))}")
        _note_data(Path(document["bundle"]))
        _note_newer_files(run, trial, Path(document["bundle"]))
        _note_missing_stages(run, trial, Path(document["bundle"]))
    if url is not None:
        from workbench.store.database.urls import hide_password

        click.echo(f"study   {document['study']} in {hide_password(url)}")


def how_to_use(folder: Path) -> str:
    """Return a line that uses a bundle: a command if it can predict, otherwise Python."""
    from workbench.deploy.card import CARD

    if (folder / CARD).is_file():
        return shlex.join(["workbench", "predict", str(folder), "ROWS"])
    return f"wb.load_bundle({str(folder)!r})"


def _note_data(folder: Path) -> None:
    """Print which data is in a bundle, and what of it is not as the trial has read it."""
    configuration = read_configuration(folder)
    if contained := configuration.get("data"):
        print_note(
            f"the bundle contains data, in code/: {', '.join(contained)}. Whoever gets the bundle"
            " gets that data"
        )
    changed = configuration.get("changed_since", [])
    if changed:
        print_note(
            f"{', '.join(changed)} changed after the trial read it, and was too large to store."
            " Training again may give another result"
        )


def _note_newer_files(run: Run, number: int | None, folder: Path) -> None:
    """Print a note if the files of a function may be newer than the value of its trial."""
    from workbench.runs.bundles.bundle import choose_trial
    from workbench.runs.bundles.bundle_files import FILES_FOLDER, describe_best_report

    if (folder / FILES_FOLDER).is_dir():
        note = describe_best_report(run.stored, choose_trial(run.stored, run.history, number))
        if note is not None:
            print_note(note)


def _note_missing_stages(run: Run, number: int | None, folder: Path) -> None:
    """Print a note if a model has early exits that tiers cannot use."""
    from workbench.deploy.card import CARD
    from workbench.deploy.stages import STAGES
    from workbench.runs.bundles.bundle import choose_trial

    options: Mapping[str, Any] = {}
    if run.experiment.model is not None:
        options = run.experiment.model.options
    if "exits" not in options and "exits" not in run.experiment.search.root:
        return
    exits = choose_trial(run.stored, run.history, number).params.get("exits", options.get("exits"))
    if exits and (folder / CARD).exists() and not (folder / STAGES).exists():
        print_note(
            "the model is exported as a whole, without a graph for each early exit. Tiers send each"
            " other one array, but the samples of this model are columns of a table"
        )


@click.command()
@remote_capable(brings={"--to": None})
@takes(RUN, TRIAL(is_repeatable=True), SIZE, METRIC, TO, FORCE, STORED)
@example("workbench ensemble last", "workbench ensemble last --to ensemble --size 4")
def ensemble(
    *,
    run_id: str,
    trial: tuple[int, ...],
    size: int | None,
    metric: str | None,
    to: Path | None,
    force: bool | None,
    as_json: bool,
) -> None:
    """Combine trials, and compare that with the best one.

    By default, trials are picked from the 20 best. Their weights are chosen on one half of the
    validation samples and tested on the other half.
    """
    from workbench.foundation.errors import ArgumentError

    run = attach(run_id)
    try:
        combined = run.ensemble(size=size, trials=trial or None, metric=metric)
    except ArgumentError as error:
        option = str(error.field)
        if option == "trials":
            option = "trial"
        raise error.about(f"--{option}") from error
    bundle: Path | None = None
    if to is not None:
        bundle = combined.export(to, force=bool(force)).absolute()
    if as_json:
        print_json({**combined.to_json(), "bundle": bundle and str(bundle)})
        return
    for line in combined.describe():
        echo(line)
    if bundle is not None:
        echo(f"bundle  {bundle}")
        echo(f"use it  {how_to_use(bundle)}")
    elif combined.is_better:
        echo(f"To export it: {command_line('ensemble', run_id, to='ensemble')}")
