"""The command that writes a first experiment file for a script."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json
from workbench.cli.parameters import JSON, SCRIPT, TO


@click.command("init")
@takes(SCRIPT, TO, JSON)
@example("workbench init train.py --to experiment.yaml")
def init(script: Path, to: Path | None, as_json: bool) -> None:
    """Write a first experiment file for a script, from its options."""
    from workbench.foundation.errors import ArgumentError
    from workbench.foundation.formatting import counted_noun
    from workbench.runs.scripts.first_experiment import experiment_for

    first_experiment = experiment_for(script)
    path = to or script.with_suffix(".yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(first_experiment.text)
    except FileExistsError as error:
        raise ArgumentError(
            f"{path} already exists",
            field="--to",
            next_step="Give another file with --to, or remove this one.",
        ) from error
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    needed = first_experiment.values_to_write
    if as_json:
        notes = list(first_experiment.notes)
        print_json({"path": str(path), "values_to_write": list(needed), "notes": notes})
        return
    click.echo(f"wrote {path}")
    for note in first_experiment.notes:
        click.echo(note)
    if needed:
        values = counted_noun(len(needed), "value")
        click.echo(f"Write the {values} of {', '.join(needed)} into it.")
    click.echo(f"Edit it, then check it with: {shlex.join(['workbench', 'check', str(path)])}")
