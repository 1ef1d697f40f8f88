"""Commands that import what other tools have written: their sweep files, and their old runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.lazy_groups import LazyGroup
from workbench.cli.options import example
from workbench.cli.output import print_json, print_note
from workbench.cli.parameters import (
    GOAL,
    HISTORY_FORMAT,
    HISTORY_PLACE,
    JSON,
    MAP,
    METRIC,
    STORED,
    SWEEP_FILE,
    TO,
    TRAIN,
    given_store,
)
from workbench.foundation.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.experiment.goals import Goal

IMPORTS = {
    "runs": "workbench.cli.imports:import_old_runs",
    "sweep": "workbench.cli.imports:import_sweep",
}


@click.group(
    "import",
    cls=LazyGroup,
    table=IMPORTS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@example("workbench import runs mlflow.db", "workbench import sweep sweep.yaml")
def imports() -> None:
    """Import what other tools have written.

    Old runs become runs of your store. A sweep file becomes an experiment file.
    """


@click.command("runs")
@takes(
    HISTORY_PLACE,
    HISTORY_FORMAT(),
    METRIC(),
    GOAL(),
    MAP(is_repeatable=True),
    STORED,
)
@example(
    "workbench import runs mlflow.db",
    "workbench import runs old.csv --metric val_loss --map learning_rate=lr",
)
def import_old_runs(
    *,
    place: str,
    history_format: str | None,
    metric: str | None,
    goal: Goal | None,
    renamed: Iterable[str],
    as_json: bool,
) -> None:
    """Import runs of another tool, to list, compare, report and learn from them.

    PLACE is a table (CSV, lines of JSON or Parquet), a store of MLflow, Optuna or Trackio, or a
    folder of TensorBoard, Weights & Biases, Ray Tune, neptune-exporter or tables. Each project,
    study or experiment becomes a run, and each of its runs a trial.

    Nothing is executed or unpickled. A second import only adds new trials.
    """
    from workbench.runs.importing.import_runs import import_runs

    imported = import_runs(
        place,
        format=history_format,
        metric=metric,
        goal=goal,
        names=dict(map(_read_name, renamed)),
        store=given_store(),
    )
    if as_json:
        print_json(imported.to_json())
        return
    for line in imported.describe():
        click.echo(line)
    if run_ids := [run.run_id for run in imported.runs]:
        click.echo(f"Show one with: {shlex.join(['workbench', 'show', run_ids[0]])}")


def _read_name(assignment: str) -> tuple[str, str]:
    old, equals, new = assignment.partition("=")
    if not equals or not old.strip() or not new.strip():
        raise ArgumentError(
            f"{assignment!r} gives no name",
            field="--map",
            allowed="OLD=NEW, such as learning_rate=lr",
        )
    return old.strip(), new.strip()


@click.command("sweep")
@takes(SWEEP_FILE, TRAIN, TO, JSON)
@example("workbench import sweep sweep.yaml --to experiment.yaml")
def import_sweep(sweep: Path, train: str | None, to: Path | None, as_json: bool) -> None:
    """Convert a W&B sweep or an NNI search space to an experiment."""
    from workbench.experiment.nni_search import from_nni, is_nni
    from workbench.experiment.wandb_sweep import HOMELESS, from_wandb_sweep
    from workbench.experiment.yaml_file import read_yaml_file

    document = read_yaml_file(
        sweep, holds="a W&B sweep (method, metric, parameters, ...) or an NNI search space"
    )
    if is_nni(document):
        experiment = from_nni(document, folder=sweep.parent, train=train, note=print_note)
    else:
        for key in [key for key in document if key in HOMELESS]:
            click.echo(f"skipped {key}: {document.pop(key)!r}", err=True)
        experiment = from_wandb_sweep(document, train=train, note=print_note)
    text = experiment.to_yaml()
    if to is None:
        if as_json:
            print_json(experiment.model_dump(mode="json"))
        else:
            click.echo(text, nl=False)
        return
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot write {to}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"path": str(to)})
    else:
        click.echo(f"wrote {to}. Check it with: {shlex.join(['workbench', 'check', str(to)])}")
